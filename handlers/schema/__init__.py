"""From a Python function to JSON Schema, and from JSON to its arguments and back."""
