"""A server without this library. It never stops anything: it takes no notice of a cancel or of a
closed connection, and answers when it is done. With `--heed` it is the same server, but stops what
is cancelled: two that differ in nothing else. With `--stay` it does not exit when its input ends.

`python tests/peers/raw_server.py` serves stdio; with `--http`, `--websocket` or `--tcp` that, on a
port of 127.0.0.1 which is its first line, with `--unix PATH` a socket at that path, with
`--tls FILE` one of these over TLS, with the key and the certificate in FILE.

| option | over HTTP |
| --- | --- |
| `--events` | it answers in event streams, which it opens at once, instead of one JSON body |
| `--session` | it speaks 2025-11-25, not only over HTTP: there a closed connection is no cancel |

| option | what becomes of what was cancelled and ran on |
| --- | --- |
| `--mute` | late answers are kept |
| `--twice` | every answer, late ones too, is sent twice |
| `--reuse` | late answers are sent with the id of the last request that was answered |

| tool | what it does |
| --- | --- |
| `slow(seconds)` | waits |
| `write(seconds)` | makes the file that `EFFECT` names longer meanwhile |
| `write_at_end(seconds)` | waits, and then makes it longer |
| `burn(seconds)` | uses a core |
| `alive()` | how many of these run |
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket

Send = Callable[[bytes], Awaitable[None]]
Key = tuple[object, type, Any]
"""Whose request it is, and its id: 1 and "1" are two."""

HEEDS, MUTE, TWICE, REUSE = (f"--{it}" in sys.argv for it in ("heed", "mute", "twice", "reuse"))
SESSIONS, EVENTS = "--session" in sys.argv, "--events" in sys.argv
VERSION = "2025-11-25" if SESSIONS else "2026-07-28"
SLOW = ("slow", "write", "write_at_end", "burn")
TAKES_SECONDS = {
    "type": "object",
    "properties": {"seconds": {"type": "number"}},
    "required": ["seconds"],
}
TOOLS: list[dict[str, Any]] = [
    *({"name": name, "inputSchema": TAKES_SECONDS} for name in SLOW),
    {"name": "alive", "inputSchema": {"type": "object"}},
]
GONE = (trio.BrokenResourceError, trio.ClosedResourceError, ConnectionClosed)


class Works:
    """What it does with messages, whatever they come over."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self._alive = 0
        self._scopes: dict[Key, trio.CancelScope] = {}
        self._cancelled: list[Key] = []
        self._last: Any = None

    def hear(self, whose: object, line: bytes, send: Send) -> trio.CancelScope | None:
        """That of a request, which is answered in the end; ``None`` for a notification."""
        message = json.loads(line)
        if "id" in message:
            scope = self._scopes[key_of(whose, message["id"])] = trio.CancelScope()
            self.nursery.start_soon(self._answer, whose, message, send, scope)
            return scope
        params = message.get("params")
        if message["method"] == "notifications/cancelled" and isinstance(params, dict):
            self.cancel(key_of(whose, params.get("requestId")))
        return None

    def cancel(self, key: Key) -> None:
        self._cancelled.append(key)
        scope = self._scopes.get(key) if HEEDS else None
        if scope is not None:
            scope.cancel()

    def leave(self, whose: object) -> None:
        """Their connection is closed."""
        for key in [key for key in self._scopes if key[0] is whose]:
            self.cancel(key)

    async def _answer(
        self, whose: object, message: dict[str, Any], send: Send, scope: trio.CancelScope
    ) -> None:
        key = key_of(whose, message["id"])
        with scope:
            said = await self._said(message["method"], message.get("params") or {})
        self._scopes.pop(key, None)
        late = key in self._cancelled
        if scope.cancelled_caught or (late and MUTE):
            return
        answer = {"jsonrpc": "2.0", "id": self._last if late and REUSE else message["id"], **said}
        self._last = answer["id"]
        for _ in range(1 + TWICE):
            try:
                await send(json.dumps(answer).encode() + b"\n")
            except GONE:
                return

    async def _said(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == ("server/discover" if SESSIONS else "initialize"):
            return {"error": {"code": -32601, "message": "Method not found"}}
        result = await self._result(method, params)
        return {"result": result if SESSIONS else {"resultType": "complete", **result}}

    async def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        can: dict[str, Any] = {"capabilities": {"tools": {}}}
        if method == "initialize":
            info = {"serverInfo": {"name": "raw", "version": "1"}}
            return {"protocolVersion": VERSION, **can, **info}
        fresh = {} if SESSIONS else {"ttlMs": 0, "cacheScope": "private"}
        if method == "server/discover":
            return {"supportedVersions": [VERSION], **can, **fresh}
        if method == "tools/list":
            return {"tools": TOOLS, **fresh}
        text = str(self._alive)
        if params["name"] in SLOW:
            self._alive += 1
            try:
                await WORK[params["name"]](params["arguments"]["seconds"])
            finally:
                self._alive -= 1
            text = "done"
        return {"content": [{"type": "text", "text": text}]}


def key_of(whose: object, request_id: Any) -> Key:
    return whose, type(request_id), json.dumps(request_id)


async def write(seconds: float) -> None:
    end = trio.current_time() + seconds
    while trio.current_time() < end:
        _write_more()
        await trio.sleep(0.05)


async def write_at_end(seconds: float) -> None:
    await trio.sleep(seconds)
    _write_more()


def _write_more() -> None:
    with open(os.environ["EFFECT"], "a", encoding="ascii") as effect:
        effect.write("x")


async def burn(seconds: float) -> None:
    end = trio.current_time() + seconds
    while trio.current_time() < end:
        until = time.perf_counter() + 0.005
        while time.perf_counter() < until:
            pass
        await trio.lowlevel.checkpoint()


WORK = {"slow": trio.sleep, "write": write, "write_at_end": write_at_end, "burn": burn}


# Wires --------------------------------------------------------------------------------------------


class Lines:
    """Of a stream of bytes, as they end."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._rest = b""

    async def line(self) -> bytes | None:
        """``None`` at the end."""
        while b"\n" not in self._rest:
            if not await self.more():
                return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    async def exactly(self, size: int) -> bytes:
        while len(self._rest) < size and await self.more():
            pass
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    async def more(self) -> bool:
        try:
            data = bytes(await self._stream.receive_some(65536))
        except GONE:
            return False
        self._rest += data
        return bool(data)


async def serve_lines(
    works: Works, receive: trio.abc.ReceiveStream, send: trio.abc.SendStream
) -> None:
    lines, turn = Lines(receive), trio.Lock()

    async def write(data: bytes) -> None:
        async with turn:
            await send.send_all(data)

    while (line := await lines.line()) is not None:
        works.hear(lines, line, write)
    works.leave(lines)
    if "--stay" in sys.argv:
        await trio.sleep_forever()


async def serve_post(works: Works, stream: trio.abc.Stream) -> None:
    """One request of a connection, and then no more."""
    lines, size, session = Lines(stream), 0, ""
    verb, _, _ = (await lines.line() or b"").partition(b" ")
    while (line := await lines.line()) not in (None, b"\r"):
        name, _, value = (line or b"").partition(b":")
        size = int(value) if name.lower() == b"content-length" else size
        session = value.strip().decode() if name.lower() == b"mcp-session-id" else session
    if verb != b"POST":
        await stream.send_all(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
        return
    body = await lines.exactly(size)
    if "id" not in json.loads(body):
        works.hear(session if SESSIONS else lines, body, stream.send_all)
        await stream.send_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        return
    await _answer_post(works, lines, stream, session, body)


async def _answer_post(
    works: Works, lines: Lines, stream: trio.abc.Stream, session: str, body: bytes
) -> None:
    if SESSIONS and not session:
        session = os.urandom(8).hex()
    head = f"HTTP/1.1 200 OK\r\nmcp-session-id: {session}\r\nconnection: close\r\n"
    answers = 1 + TWICE * EVENTS

    async def write(answer: bytes) -> None:
        nonlocal answers
        if answers == 0:
            return
        if EVENTS:
            await stream.send_all(b"data: " + answer + b"\n")
        else:
            sized = f"content-type: application/json\r\ncontent-length: {len(answer)}\r\n\r\n"
            await stream.send_all((head + sized).encode() + answer)
        answers -= 1
        if answers == 0:
            await stream.aclose()

    if EVENTS:
        await stream.send_all(f"{head}content-type: text/event-stream\r\n\r\n".encode())
    works.hear(session if SESSIONS else lines, body, write)
    while await lines.more():
        pass
    if not SESSIONS:
        works.leave(lines)


async def serve_frames(works: Works, request: WebSocketRequest) -> None:
    connection = await request.accept(subprotocol="mcp")
    try:
        while True:
            message = await connection.get_message()
            assert isinstance(message, str)
            works.hear(connection, message.encode(), _as_text(connection))
    except ConnectionClosed:
        works.leave(connection)


def _as_text(connection: Any) -> Send:
    async def send(data: bytes) -> None:
        await connection.send_message(data.decode())

    return send


def value_of(option: str) -> str | None:
    return sys.argv[sys.argv.index(option) + 1] if option in sys.argv else None


async def main() -> None:
    context = None
    if (file := value_of("--tls")) is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
    async with trio.open_nursery() as nursery:
        works = Works(nursery)

        async def handle(tcp: trio.SocketStream) -> None:
            stream: trio.abc.Stream = tcp
            if context is not None:
                stream = trio.SSLStream(tcp, context, server_side=True, https_compatible=True)
            try:
                if "--http" in sys.argv:
                    await serve_post(works, stream)
                else:
                    await serve_lines(works, stream, stream)
            except GONE:
                pass
            finally:
                await trio.aclose_forcefully(stream)

        if "--websocket" in sys.argv:

            async def serve(request: WebSocketRequest) -> None:
                await serve_frames(works, request)

            server = await nursery.start(serve_websocket, serve, "127.0.0.1", 0, context)
            print(server.port, flush=True)
        elif (path := value_of("--unix")) is not None:
            listening = trio.socket.socket(trio.socket.AF_UNIX)
            await listening.bind(path)
            listening.listen()
            print(path, flush=True)
            await trio.serve_listeners(handle, [trio.SocketListener(listening)])
        elif "--http" in sys.argv or "--tcp" in sys.argv:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            print(listener.socket.getsockname()[1], flush=True)
            await trio.serve_listeners(handle, [listener])
        else:
            pipes = trio.lowlevel.FdStream(0), trio.lowlevel.FdStream(1)
            await serve_lines(works, *pipes)
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
