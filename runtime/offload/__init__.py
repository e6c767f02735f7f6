"""Work that leaves the event loop, on behalf of one request.

``threads`` are for plain functions, ``subprocesses`` for commands, ``workers`` for Python that
computes; ``work`` is what they have in common. Each piece of work is a node of the scope tree, has
bounds, and is written down on the record of its request.
"""
