"""Who runs, who waits, who is refused: in turns between clients.

``fair_queue`` has the rules, without a loop; ``admission`` applies them to requests, and
``fair_limiter`` to threads.
"""
