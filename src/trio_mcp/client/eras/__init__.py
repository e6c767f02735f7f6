"""How a client speaks to servers of one family of protocol revisions, beyond the wires.

No other code of the client tests for a revision.
"""
