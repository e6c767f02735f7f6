"""MCP features: one module per feature of the specification."""

if __name__ != "trio_mcp.handlers":
    raise ImportError("import trio_mcp.handlers, not handlers: see README, 'Layout'")
