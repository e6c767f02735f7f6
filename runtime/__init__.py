"""Lifetimes: exchanges, calls, their lifecycle, the scope tree and the journal.

Knows no wire and no MCP feature; imports neither ``transports`` nor ``handlers``.
"""

if __name__ != "trio_mcp.runtime":
    raise ImportError("import trio_mcp.runtime, not runtime: see README, 'Layout'")
