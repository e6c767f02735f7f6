"""A channel over WebSocket: one JSON-RPC message per text frame. Both sides.

``trio-websocket`` speaks the protocol: a task of its own reads, and from there also answers pings
and closes. The library writes to a stream of ours (:mod:`.pipe`), so that this task never waits for
a peer that does not read, and what it is given to hold is bounded there. The wire (:mod:`.wire`) is
the same on both sides; :mod:`.serving` lets peers in, :mod:`.opening` connects to a server.

Imported when it is first used: ``trio_websocket`` is no part of a plain ``import trio_mcp``.
"""
