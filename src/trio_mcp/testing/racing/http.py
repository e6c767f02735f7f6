"""The same over HTTP: a connection for each request, in memory, served by the native carrier."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import trio
import trio.testing

from ...server import Server
from ...transports.http.native import _Server
from .traces import EXCHANGE, is_answer

__all__ = ["HttpWire"]

_NAMES: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_BEGIN: Final = re.compile(r'\{"jsonrpc":"2.0","id":("[^"]*"),"(result)":')


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
        try:
            self._connect.send_nowait(stream)
        except trio.BrokenResourceError:
            return  # nobody listens any more
        self._streams.append(stream)
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

    @property
    def closed_by_server(self) -> bool:
        return all(one.closed.is_set() for one in self._streams if one.is_accepted)

    @property
    def delivered(self) -> bool:
        """Whether the answer to the raced request was sent to its end."""
        return self._streams[0].delivered

    @property
    def is_whole(self) -> bool:
        """Whether the answer to the raced request is one to its last byte, if there is one."""
        return self._streams[0].is_whole

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
        stream = await self._incoming.receive()
        stream.is_accepted = True
        return stream

    async def aclose(self) -> None:
        self._incoming.close()
        await trio.lowlevel.checkpoint()


class _Stream(trio.abc.Stream):
    """The server's end of a connection."""

    def __init__(self, note: Callable[..., None], request: Any) -> None:
        self.closed = trio.Event()
        self.is_accepted = False
        self.delivered = False
        self._answers = 0
        self._note = note
        self._request = request
        self._incoming = trio.testing.MemoryReceiveStream()
        self._said = bytearray()
        self._read_to = 0  # of what was said: the messages up to there were noted
        self._begun = False  # a message was noted, and is still to come to its end
        self._has_ended = False  # on the client's side

    def feed(self, data: bytes) -> None:
        self._incoming.put_data(data)

    @property
    def is_whole(self) -> bool:
        head, _, body = bytes(self._said).partition(b"\r\n\r\n")
        return b"\ntransfer-encoding: chunked" not in head or body.endswith(b"\r\n0\r\n\r\n")

    def close_as_client(self) -> None:
        if not self.closed.is_set():
            self._incoming.put_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = bytes(await self._incoming.receive_some(max_bytes))
        if data:
            self._note("read", message=self._request)
        else:
            self._has_ended = True
            self._note("eof")
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._has_ended:
            self._note("bytes", text=f"{len(data)} bytes")
        self._said += data
        for message in self._messages():
            self._note("written", message=message)
            self._answers += is_answer(message)
        await trio.lowlevel.checkpoint()
        self.delivered = self._answers > 0 and not self._begun

    def _messages(self) -> Iterator[Any]:
        """Those that have come, in a body or in events. An answer has with its first bytes: it was
        claimed, and can be too long for one write."""
        text = self._said[self._read_to :].decode("utf-8", "replace")
        end = 0
        while (at := text.find('{"jsonrpc"', end)) >= 0:
            try:
                message, end = json.JSONDecoder().raw_decode(text, at)
            except ValueError:
                begun = _BEGIN.match(text, at)
                if begun is not None and not self._begun:
                    self._begun = True
                    yield {"jsonrpc": "2.0", "id": json.loads(begun[1]), begun[2]: {}}
                end = at
                break
            if not self._begun:
                yield message
            self._begun = False
        self._read_to += len(text[:end].encode())

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


def _note_answers(note: Callable[..., None]) -> Callable[..., None]:
    """For another request's connection: its end is none of the raced one."""

    def only(what: str, **more: Any) -> None:
        if what != "eof":
            note(what, **more)

    return only
