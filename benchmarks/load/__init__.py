"""What drives the servers, from outside of their process. It knows no server library."""
