"""A server on the official SDK, for interoperability tests.

Run it as `python tests/peers/official_server.py`, for standard streams. With `--http` it serves
Streamable HTTP on a port of 127.0.0.1, which is its first line; with `--http --older` it does so
without the revision of 2026-07-28, as this SDK's servers did before they had it.

| tool | what it does |
| --- | --- |
| `echo(text)` | returns the text |
| `add(a, b)` | returns the sum: the number as text, and `{"result": sum}` as structured content |
| `sleep(seconds)` | notes "sleep started", waits, returns "slept"; always notes "sleep released" |
| `tick(n, dt)` | reports progress 1/n to n/n, `dt` seconds apart, then returns "done" |
| `boom()` | raises: the answer is a tool result with `isError` |
| `change(uri)` | tells, in either revision's way, that a resource and the tools have changed |

In a session clients can subscribe to any resource: the SDK leaves that to its lower level. There it
does not declare that its list of tools may change, and nobody who listens agrees on that.

Notes are lines appended to the file that the environment variable `PEER_LOG` names; without it
there are none. A test reads that file to see that work really started and stopped.
"""

import os
import socket
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

__all__ = ["server"]

server = MCPServer("official-peer", version="1.0.0")


def _note(line: str) -> None:
    path = os.environ.get("PEER_LOG")
    if path:
        with open(path, "a", encoding="utf-8") as log:
            log.write(line + "\n")


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
async def add(a: int, b: int) -> int:
    """Return the sum of two numbers."""
    return a + b


@server.tool()
async def sleep(seconds: float) -> str:
    """Wait for some seconds."""
    _note("sleep started")
    try:
        await anyio.sleep(seconds)
    finally:
        _note("sleep released")
    return "slept"


@server.tool()
async def tick(n: int, dt: float, ctx: Context) -> str:
    """Report progress n times, dt seconds apart."""
    for done in range(1, n + 1):
        await anyio.sleep(dt)
        await ctx.report_progress(done, n, f"tick {done}")
    return "done"


@server.tool()
async def boom() -> str:
    """Fail."""
    raise RuntimeError("boom")


@server.tool()
async def change(uri: str, ctx: Context) -> str:
    """Tell that a resource, and the list of tools, has changed."""
    await ctx.notify_resource_updated(uri)
    await ctx.notify_tools_changed()
    await ctx.session.send_resource_updated(uri)
    await ctx.session.send_tool_list_changed()
    return "changed"


async def _accept(_: Any, __: types.RequestParams) -> types.EmptyResult:
    return types.EmptyResult()


for method, params in (
    ("resources/subscribe", types.SubscribeRequestParams),
    ("resources/unsubscribe", types.UnsubscribeRequestParams),
):
    server._lowlevel_server.add_request_handler(method, params, _accept)


def _without_ours(app: Any) -> Any:
    """The application, which refuses what is not of a session yet, as it did before 2026-07-28."""

    async def older(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if headers.get(b"mcp-protocol-version") != b"2026-07-28":
            await app(scope, receive, send)
            return
        body = (
            b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request"}}'
        )
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return older


def _serve_http(*, older: bool) -> None:
    import uvicorn  # which the standard streams do without

    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        app = server.streamable_http_app()
        config = uvicorn.Config(_without_ours(app) if older else app, log_level="error")
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    if "--http" in sys.argv:
        _serve_http(older="--older" in sys.argv)
    else:
        server.run()
