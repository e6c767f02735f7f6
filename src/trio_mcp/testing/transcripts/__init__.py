"""What was said over a wire, as text."""
