"""Prompts, and what functions return for them."""
