"""The official SDK's client, driven from Trio, for interoperability tests.

The SDK runs on anyio, and anyio runs on Trio, so these are ordinary Trio functions: call them from
a test, put any scope around them.

    async with official_client([sys.executable, "examples/quickstart.py"]) as client:
        assert "order_book" in await tool_names(client)
        result, updates = await call_with_progress(client, "tick", {"n": 3, "dt": 0})
        assert text_of(result) == "done"

The client knows one rule that a test must not forget: after the first successful call of a tool it
has not listed, it sends a `tools/list` of its own, to check structured content against the schema.
"""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

import trio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult, TextContent

__all__ = [
    "Progress",
    "call_and_cancel",
    "call_with_progress",
    "official_client",
    "text_of",
    "tool_names",
]


class Progress(NamedTuple):
    """One progress notification, as the client's callback gets it."""

    progress: float
    total: float | None
    message: str | None


@asynccontextmanager
async def official_client(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    mode: str = "auto",
    read_timeout: float | None = None,
) -> AsyncIterator[Client]:
    """Start `command` as a stdio server and connect to it.

    `mode` is how the client finds the revision: "auto" probes `server/discover` and falls back to
    `initialize`; "legacy" sends `initialize`; "2026-07-28" sends neither. The server inherits this
    process's environment, with `env` laid over it, and its stderr. `read_timeout` is in seconds,
    for each request.

    Leaving the block closes the server's stdin, waits two seconds for it to exit, then kills it;
    that also happens when a scope around the block is cancelled.
    """
    parameters = StdioServerParameters(
        command=command[0], args=list(command[1:]), env={**os.environ, **(env or {})}
    )
    # The real stderr: a captured `sys.stderr` need not have the descriptor a subprocess needs.
    transport = stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)
    async with Client(transport, mode=mode, read_timeout_seconds=read_timeout) as client:
        yield client


async def tool_names(client: Client) -> list[str]:
    """Return the names of all tools, following cursors, in the server's order."""
    names: list[str] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        names += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            return names


async def call_with_progress(
    client: Client, name: str, arguments: Mapping[str, Any]
) -> tuple[CallToolResult, list[Progress]]:
    """Call a tool; return its result and the progress that came, in the order of arrival."""
    updates: list[Progress] = []

    async def collect(progress: float, total: float | None, message: str | None) -> None:
        updates.append(Progress(progress, total, message))

    result = await client.call_tool(name, dict(arguments), progress_callback=collect)
    # Each callback is a task of its own: the last one may still be waiting for its turn.
    await trio.lowlevel.checkpoint()
    return result, updates


async def call_and_cancel(
    client: Client,
    name: str,
    arguments: Mapping[str, Any],
    *,
    when: Callable[[], Awaitable[object]],
) -> CallToolResult | None:
    """Start a call, wait for `when()`, then cancel the scope around the call.

    Returns None if the call was cancelled, its result if that came first. On return the client has
    handed `notifications/cancelled` to its writer; the server may not have read it yet.
    """
    result: CallToolResult | None = None
    scope = trio.CancelScope()

    async def call() -> None:
        nonlocal result
        with scope:
            result = await client.call_tool(name, dict(arguments))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await when()
        scope.cancel()
    return result


def text_of(result: CallToolResult) -> str:
    """Return the text of a result that has exactly one content block, a text."""
    (block,) = result.content
    return cast(TextContent, block).text
