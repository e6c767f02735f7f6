"""``trio-mcp demo``: a bookshop as a server, and fifty customers who change their minds."""
