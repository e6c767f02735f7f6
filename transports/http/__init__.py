"""Streamable HTTP: one endpoint, and the carriers that move its bytes.

The endpoint (:mod:`.endpoint`, :mod:`.metadata`, :mod:`.sse`) knows no server; a carrier gives it a
request's head and body and takes its answer. The native carrier (:mod:`.native`) is HTTP/1.1 on
Trio streams; the ASGI carrier (:mod:`.asgi`) is for Hypercorn (:mod:`.hypercorn`).
Specification: *Streamable HTTP*.
"""
