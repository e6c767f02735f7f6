"""`cancel_sweep`: a handler, cancelled at each of its checkpoints."""
