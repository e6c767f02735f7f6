"""The same over HTTP: a connection for each request, in memory, served by the native carrier."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import trio
import trio.testing

from ...server import Server
from ...transports.http.native import _Server
from .traces import EXCHANGE

__all__ = ["HttpWire"]

_NAMES: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class HttpWire:
    """HTTP in the race's hands. A client cancels by closing the connection of its request.

    :param note: is told of each message, as it is read or written.
    """

    label = "http"

    def __init__(self, note: Callable[..., None]) -> None:
        self.closed_by_client = False
        self._note = note
        self._connect, self._incoming = trio.open_memory_channel[_Stream](math.inf)
        self._streams: list[_Stream] = []
        self._left = trio.Event()

    # The client -----------------------------------------------------------------------------------

    def ask(self, request: bytes) -> None:
        message = json.loads(request)
        note = self._note if message["id"] == EXCHANGE else _note_answers(self._note)
        stream = _Stream(note, message)
        self._streams.append(stream)
        self._connect.send_nowait(stream)
        stream.feed(_post(message, request))

    def cancel(self) -> None:
        self._streams[0].close_as_client()

    def cancel_twice(self) -> None:
        self.cancel()

    def hang_up(self) -> None:
        """The client leaves for good."""
        self.closed_by_client = True
        for stream in self._streams:
            stream.close_as_client()
        self._left.set()

    # The server -----------------------------------------------------------------------------------

    async def serve(self, server: Server) -> None:
        """Until the client has left, and all connections have ended; or the server ends."""
        core = server._core
        service = server._http_service("/mcp", (), (), (), None, "Bearer")
        core.enter_run()
        native = _Server(service)
        listeners: Any = [_Listener(self._incoming)]
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(native.run, listeners)
                core.draining.enter(native)
                try:
                    await self._left.wait()
                    for stream in self._streams:
                        await stream.closed.wait()
                finally:
                    native.drain(trio.current_time() + core.limits.drain)
        finally:
            core.draining.leave(native, drained=True)


class _Listener(trio.abc.Listener["_Stream"]):
    def __init__(self, incoming: trio.MemoryReceiveChannel[_Stream]) -> None:
        self._incoming = incoming

    async def accept(self) -> _Stream:
        return await self._incoming.receive()

    async def aclose(self) -> None:
        self._incoming.close()
        await trio.lowlevel.checkpoint()


class _Stream(trio.abc.Stream):
    """The server's end of a connection."""

    def __init__(self, note: Callable[..., None], request: Any) -> None:
        self.closed = trio.Event()
        self._note = note
        self._request = request
        self._incoming = trio.testing.MemoryReceiveStream()
        self._said: bytes = b""

    def feed(self, data: bytes) -> None:
        self._incoming.put_data(data)

    def close_as_client(self) -> None:
        if not self.closed.is_set():
            self._incoming.put_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = bytes(await self._incoming.receive_some(max_bytes))
        if data:
            self._note("read", message=self._request)
        else:
            self._note("eof")
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        for message in _messages(bytes(data)):
            self._note("written", message=message)
        await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self._incoming.close()
        self.closed.set()
        await trio.lowlevel.checkpoint()


def _post(message: Any, body: bytes) -> bytes:
    params = message["params"]
    name = params.get(_NAMES.get(message["method"], ""))
    version = params["_meta"]["io.modelcontextprotocol/protocolVersion"]
    headers = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        "mcp-method": message["method"],
        **({"mcp-name": name} if name is not None else {}),
        "content-length": str(len(body)),
    }
    head = "".join(f"{field}: {value}\r\n" for field, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


def _messages(data: bytes) -> Iterator[Any]:
    """Those in a body, or in events."""
    text = data.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    at = text.find('{"jsonrpc"')
    while at >= 0:
        message, end = decoder.raw_decode(text, at)
        yield message
        at = text.find('{"jsonrpc"', end)


def _note_answers(note: Callable[..., None]) -> Callable[..., None]:
    """For another request's connection: its end is none of the raced one."""

    def only(what: str, **more: Any) -> None:
        if what != "eof":
            note(what, **more)

    return only
