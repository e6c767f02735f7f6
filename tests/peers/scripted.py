"""A server that says what the test tells it to, for our client: over a stream in memory.

    async with scripted(answer) as (client, script):
        ...

``answer`` gets each request and returns the result to send, an :class:`Error`, a line to send as it
is, or None to say nothing. Discovery is answered by itself unless ``answer`` does it. Everything
that our client sends is held against the official schema.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import attrs
import msgspec
import trio
import trio.testing
from tests.peers.checked import WireCheck

from trio_mcp import Client, connect

__all__ = ["DISCOVERED", "Answer", "Error", "Script", "scripted"]

DISCOVERED: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "ttlMs": 0,
    "cacheScope": "private",
}
"""A plain answer to ``server/discover``."""


@attrs.frozen
class Error:
    """A JSON-RPC error to answer with."""

    code: int
    message: str = "no"


Answer: TypeAlias = Callable[[dict[str, Any]], dict[str, Any] | Error | bytes | None]


class Script:
    """The scripted server, and what the client has sent to it."""

    def __init__(self, answer: Answer, stream: trio.abc.HalfCloseableStream) -> None:
        self.check = WireCheck(strict_client=True)
        self._answer = answer
        self._stream = stream

    def sent(self, method: str) -> list[dict[str, Any]]:
        """What the client has sent with this method, in order."""
        return [message for message in self.check.sent if message["method"] == method]

    def cancelled(self) -> list[Any]:
        """The ids of the requests that the client has cancelled."""
        return [message["params"]["requestId"] for message in self.sent("notifications/cancelled")]

    async def say(self, message: dict[str, Any] | bytes) -> None:
        """Send something unasked for."""
        line = message if isinstance(message, bytes) else msgspec.json.encode(message)
        await self._stream.send_all(line + b"\n")

    async def end(self) -> None:
        """Close this side: the connection ends."""
        await self._stream.send_eof()

    async def serve(self) -> None:
        """Answer until the client closes its side."""
        rest = b""
        while data := await self._stream.receive_some(65536):
            *lines, rest = (rest + bytes(data)).split(b"\n")
            for line in lines:
                self.check.client_line(line)
                message = msgspec.json.decode(line)
                if "id" in message:
                    await self._reply(message)
        assert rest == b""

    async def _reply(self, request: dict[str, Any]) -> None:
        answer = self._answer(request)
        if answer is None and request["method"] == "server/discover":
            answer = DISCOVERED
        if isinstance(answer, bytes):
            await self.say(answer)
        elif isinstance(answer, Error):
            error = attrs.asdict(answer)
            await self.say({"jsonrpc": "2.0", "id": request["id"], "error": error})
        elif answer is not None:
            await self.say({"jsonrpc": "2.0", "id": request["id"], "result": answer})


@asynccontextmanager
async def scripted(answer: Answer, **options: Any) -> AsyncGenerator[tuple[Client, Script], None]:
    """Our client, connected to a scripted server; ``options`` are those of ``connect``. What the
    block raises comes out as it is."""
    ours, theirs = trio.testing.memory_stream_pair()
    script = Script(answer, theirs)
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(script.serve)
        try:
            async with connect(ours, **options) as client:
                yield client, script
        except Exception as raised:
            failure = raised
    if failure is not None:
        raise failure
