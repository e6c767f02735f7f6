"""The server that the conformance suite asks for: every fixture it names, and no other.

:func:`build` makes one; ``python -m tests.conformance.server`` serves one on port 8000. The suite
follows no cursor, so each list has to fit on one page; and it calls the first tool of the list
without arguments.
"""

from __future__ import annotations

import trio

from trio_mcp import Server

from .fixtures import changes, prompts, questions, resources, tools

__all__ = ["build"]


def build() -> Server:
    """A server with all fixtures. Some of them change its lists, so each run wants its own."""
    server = Server("trio-mcp-conformance", version="1.0.0")
    for feature in (tools, questions, changes, resources, prompts):
        feature.offer(server)
    return server


if __name__ == "__main__":
    trio.run(build().serve_http)
