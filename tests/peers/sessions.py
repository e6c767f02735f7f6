"""Servers of revisions before 2026-07-28 that say what the test tells them to, for our client.

    async with in_session(answer) as (client, script):        # over a stream in memory
    async with http_session(answer) as server:                # over HTTP, on a port of 127.0.0.1
        async with connect(server.address) as client:

``answer`` gets each request and returns the result to send, an :class:`Error`, a line to send as it
is, or None to say nothing. Discovery is refused and ``initialize`` answered unless ``answer`` does
it. Whatever our client says in a session is held against that revision's official schema.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import jsonschema_rs
import msgspec
import trio
import trio.testing
from tests.peers.scripted import Error

from trio_mcp import Client, connect

__all__ = [
    "INITIALIZED",
    "Answer",
    "HttpAnswer",
    "HttpRequest",
    "HttpSession",
    "SessionScript",
    "http_session",
    "in_session",
]

_SCHEMA_FILE = Path(__file__).parents[1] / "data" / "2025-11-25" / "schema.json"

INITIALIZED: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "logging": {},
    },
    "serverInfo": {"name": "old", "version": "1"},
}
"""A plain answer to ``initialize``."""

Answer: TypeAlias = Callable[[dict[str, Any]], "dict[str, Any] | Error | bytes | None"]


@cache
def _validator(definition: str) -> jsonschema_rs.Draft202012Validator:
    schema = msgspec.json.decode(_SCHEMA_FILE.read_bytes())
    return jsonschema_rs.Draft202012Validator({**schema, "$ref": f"#/$defs/{definition}"})


def check_client_message(message: dict[str, Any]) -> None:
    """Raises ``AssertionError`` for what a client of revision 2025-11-25 must not say."""
    assert message["jsonrpc"] == "2.0"
    if message.get("method") == "server/discover":
        return  # the question that finds out
    if "method" not in message:
        definition = "JSONRPCErrorResponse" if "error" in message else "JSONRPCResultResponse"
    else:
        definition = "ClientRequest" if "id" in message else "ClientNotification"
    assert _validator(definition).is_valid(message), f"no {definition}: {message}"


def _reply_to(answer: Answer, request: dict[str, Any]) -> bytes | None:
    """The line to send."""
    said = answer(request)
    if said is None and request["method"] == "server/discover":
        said = Error(-32601, "Method not found")
    if said is None and request["method"] == "initialize":
        said = INITIALIZED
    if said is None or isinstance(said, bytes):
        return said
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
    if isinstance(said, Error):
        message["error"] = attrs.asdict(said)
    else:
        message["result"] = said
    return msgspec.json.encode(message)


class _Heard:
    """What the client has said."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []

    def hear(self, message: dict[str, Any]) -> None:
        check_client_message(message)
        self.heard.append(message)

    def methods(self) -> list[str]:
        return [message["method"] for message in self.heard if "method" in message]

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [message for message in self.heard if message.get("method") == method]

    def answers(self) -> list[dict[str, Any]]:
        """Its answers to what the server has asked."""
        return [message for message in self.heard if "method" not in message]

    async def until(self, condition: Callable[[], object]) -> None:
        with trio.fail_after(5):
            while not condition():  # noqa: ASYNC110
                await trio.sleep(0.005)


# Over a stream ------------------------------------------------------------------------------------


class SessionScript(_Heard):
    """The scripted server at the other end of a stream."""

    def __init__(self, answer: Answer, stream: trio.abc.HalfCloseableStream) -> None:
        super().__init__()
        self._answer = answer
        self._stream = stream
        self._turn = trio.Lock()

    async def say(self, message: dict[str, Any] | bytes) -> None:
        """Send something unasked for."""
        line = message if isinstance(message, bytes) else msgspec.json.encode(message)
        async with self._turn:  # the test and the answers
            await self._stream.send_all(line + b"\n")

    async def ask(self, request_id: Any, method: str, **params: Any) -> None:
        """Send a request of the server's."""
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        await self.say(message)

    async def tell(self, method: str, **params: Any) -> None:
        await self.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def end(self) -> None:
        await self._stream.send_eof()

    async def serve(self) -> None:
        rest = b""
        with contextlib.suppress(trio.BrokenResourceError):
            while data := await self._stream.receive_some(65536):
                *lines, rest = (rest + bytes(data)).split(b"\n")
                for line in lines:
                    message = msgspec.json.decode(line)
                    self.hear(message)
                    if "id" in message and "method" in message:
                        reply = _reply_to(self._answer, message)
                        if reply is not None:
                            await self.say(reply)


@asynccontextmanager
async def in_session(
    answer: Answer, **options: Any
) -> AsyncGenerator[tuple[Client, SessionScript], None]:
    """Our client in a session with a scripted server; ``options`` are those of ``connect``. What
    the block raises comes out as it is."""
    ours, theirs = trio.testing.memory_stream_pair()
    script = SessionScript(answer, theirs)
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


# Over HTTP ----------------------------------------------------------------------------------------


@attrs.define(eq=False)
class HttpRequest:
    """One request, and the stream to answer it on."""

    verb: str
    headers: dict[str, str]
    body: dict[str, Any]
    stream: trio.SocketStream

    async def answer(
        self,
        body: bytes = b"",
        status: str = "200 OK",
        kind: str = "application/json",
        more: str = "",
    ) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}"
        head += f"Content-Type: {kind}\r\n\r\n" if body else "\r\n"
        await self.stream.send_all(head.encode() + body)

    async def begin_events(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
        await self.stream.send_all(head + b"Transfer-Encoding: chunked\r\n\r\n")

    async def event(self, message: dict[str, Any] | bytes, before: bytes = b"") -> None:
        data = message if isinstance(message, bytes) else msgspec.json.encode(message)
        await self._chunk(before + b"data: " + data + b"\n\n")

    async def end_events(self) -> None:
        await self.stream.send_all(b"0\r\n\r\n")

    async def _chunk(self, data: bytes) -> None:
        await self.stream.send_all(b"%x\r\n%b\r\n" % (len(data), data))

    async def closed_by_client(self) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            assert await self.stream.receive_some(1) == b""


HttpAnswer: TypeAlias = Callable[[HttpRequest], Any]
"""An async function that answers a request, or returns False to have it answered as usual."""


class HttpSession(_Heard):
    """A scripted server of one session, ``self.session_id``; it has no stream for GET."""

    def __init__(self, script: HttpAnswer | None, answer: Answer) -> None:
        super().__init__()
        self.address = ""
        self.session_id: str | None = "s-1"
        self.requests: list[HttpRequest] = []
        self._script = script
        self._answer = answer

    def verbs(self) -> list[str]:
        return [request.verb for request in self.requests]

    def about(self, method: str) -> list[HttpRequest]:
        return [request for request in self.requests if request.body.get("method") == method]

    async def serve(self, stream: trio.SocketStream) -> None:
        data = b""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                while b"\r\n\r\n" not in data:
                    if not (more := await stream.receive_some()):
                        return
                    data += more
                head, _, data = data.partition(b"\r\n\r\n")
                line, *lines = head.decode("ascii").split("\r\n")
                headers = {
                    name.lower(): value for name, value in (one.split(": ", 1) for one in lines)
                }
                size = int(headers.get("content-length", 0))
                while len(data) < size:
                    if not (more := await stream.receive_some()):
                        return
                    data += more
                body = msgspec.json.decode(data[:size]) if size else {}
                data = data[size:]
                request = HttpRequest(line.split(" ")[0], headers, body, stream)
                self.requests.append(request)
                if body:
                    self.hear(body)
                if self._script is None or await self._script(request) is False:
                    await self._usual(request)

    async def _usual(self, request: HttpRequest) -> None:
        body = request.body
        if request.verb == "GET":
            await request.answer(status="405 Method Not Allowed")
        elif request.verb == "DELETE":
            await request.answer()
        elif "id" not in body or "method" not in body:
            await request.answer(status="202 Accepted")
        elif body["method"] == "server/discover":
            error = {"code": -32000, "message": "Bad Request: no valid session"}
            refusal = {"jsonrpc": "2.0", "id": None, "error": error}
            await request.answer(msgspec.json.encode(refusal), "400 Bad Request")
        else:
            more = ""
            if body["method"] == "initialize" and self.session_id is not None:
                more = f"Mcp-Session-Id: {self.session_id}\r\n"
            reply = _reply_to(self._answer, body)
            if reply is None:
                await trio.sleep_forever()
            else:
                await request.answer(reply, more=more)


@asynccontextmanager
async def http_session(
    script: HttpAnswer | None = None, answer: Answer = lambda _: None
) -> AsyncGenerator[HttpSession, None]:
    """A scripted server, over HTTP."""
    server = HttpSession(script, answer)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
        server.address = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"
        with trio.fail_after(20):
            yield server
        nursery.cancel_scope.cancel()
