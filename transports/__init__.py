"""Wires: bytes in, exchanges and cancel causes out. One module per wire.

The only code that turns what happens on a wire into the cancellation of a scope.
"""

if __name__ != "trio_mcp.transports":
    raise ImportError("import trio_mcp.transports, not transports: see README, 'Layout'")
