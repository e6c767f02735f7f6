"""What handlers ask clients for: forms, pages, models, roots; and the state between two rounds."""
