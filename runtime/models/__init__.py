"""The messages of MCP as attrs classes, and the one converter between them and JSON.

Class names are the specification's own (revision 2026-07-28). Attributes are in snake case; how a
class looks on the wire is the business of ``converter`` alone. Import each class from the module
that defines it.
"""
