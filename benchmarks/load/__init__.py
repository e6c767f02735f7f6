"""What drives the servers. It knows no server library, and measures from outside of their process."""
