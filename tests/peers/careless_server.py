"""A server without this library, of 2026-07-28, that never stops anything: it takes no notice of a
cancel, of a closed connection or of the end of its input, and answers when it is done.

`python tests/peers/careless_server.py` serves stdio; with `--http`, `--websocket` or `--tcp` that,
on a port of 127.0.0.1 which is its first line. With `--mute` it keeps late answers to itself.

| tool | what it does |
| --- | --- |
| `slow(seconds)` | waits |
| `alive()` | how many of these run |
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketRequest, serve_websocket

Send = Callable[[bytes], Awaitable[None]]

VERSION = "2026-07-28"
TOOLS = [
    {
        "name": "slow",
        "inputSchema": {
            "type": "object",
            "properties": {"seconds": {"type": "number"}},
            "required": ["seconds"],
        },
    },
    {"name": "alive", "inputSchema": {"type": "object"}},
]
GONE = (trio.BrokenResourceError, trio.ClosedResourceError, ConnectionClosed)


class Careless:
    """What it does with messages, whatever they come over."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self._alive = 0
        self._cancelled: list[Any] = []

    def hear(self, line: bytes, send: Send) -> bool:
        """Whether it is a request, which is answered in the end."""
        message = json.loads(line)
        if "id" not in message:
            params = message.get("params")
            self._cancelled.append(params.get("requestId") if isinstance(params, dict) else None)
            return False
        self.nursery.start_soon(self._answer, message, send)
        return True

    async def _answer(self, message: dict[str, Any], send: Send) -> None:
        result = await self._result(message["method"], message.get("params") or {})
        if "--mute" in sys.argv and message["id"] in self._cancelled:
            return
        body = {"resultType": "complete", **result}
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": body}
        try:
            await send(json.dumps(answer).encode() + b"\n")
        except GONE:
            pass

    async def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "server/discover":
            said = {"supportedVersions": [VERSION], "capabilities": {"tools": {}}}
            return {**said, "ttlMs": 0, "cacheScope": "private"}
        if method == "tools/list":
            return {"tools": TOOLS, "ttlMs": 0, "cacheScope": "private"}
        text = str(self._alive)
        if params["name"] == "slow":
            self._alive += 1
            await trio.sleep(params["arguments"]["seconds"])
            self._alive -= 1
            text = "waited"
        return {"content": [{"type": "text", "text": text}]}


class Lines:
    """Of a stream of bytes, as they end."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._rest = b""

    async def line(self) -> bytes | None:
        """``None`` at the end."""
        while b"\n" not in self._rest:
            if not await self._more():
                return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    async def exactly(self, size: int) -> bytes:
        while len(self._rest) < size and await self._more():
            pass
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    async def _more(self) -> bool:
        try:
            data = bytes(await self._stream.receive_some(65536))
        except GONE:
            return False
        self._rest += data
        return bool(data)


async def serve_lines(
    careless: Careless, receive: trio.abc.ReceiveStream, send: trio.abc.SendStream
) -> None:
    lines, turn = Lines(receive), trio.Lock()

    async def write(data: bytes) -> None:
        async with turn:
            await send.send_all(data)

    while (line := await lines.line()) is not None:
        careless.hear(line, write)
    await trio.sleep_forever()  # what is begun is ended


async def serve_post(careless: Careless, stream: trio.SocketStream) -> None:
    """One request of a connection, and then no more."""
    lines, size = Lines(stream), 0
    while (line := await lines.line()) not in (None, b"\r"):
        name, _, value = (line or b"").partition(b":")
        size = int(value) if name.lower() == b"content-length" else size
    answered = trio.Event()

    async def write(body: bytes) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        try:
            await stream.send_all(head.encode() + b"\r\n\r\n" + body)
        finally:
            answered.set()

    if careless.hear(await lines.exactly(size), write):
        await answered.wait()
    else:
        await stream.send_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")


async def serve_frames(careless: Careless, request: WebSocketRequest) -> None:
    connection = await request.accept(subprotocol="mcp")
    try:
        while True:
            message = await connection.get_message()
            assert isinstance(message, str)
            careless.hear(message.encode(), _as_text(connection))
    except ConnectionClosed:
        pass


def _as_text(connection: Any) -> Send:
    async def send(data: bytes) -> None:
        await connection.send_message(data.decode())

    return send


async def main() -> None:
    async with trio.open_nursery() as nursery:
        careless = Careless(nursery)
        if "--websocket" in sys.argv:

            async def serve(request: WebSocketRequest) -> None:
                await serve_frames(careless, request)

            server = await nursery.start(serve_websocket, serve, "127.0.0.1", 0, None)
            print(server.port, flush=True)
        elif "--http" in sys.argv or "--tcp" in sys.argv:

            async def handle(stream: trio.SocketStream) -> None:
                if "--http" in sys.argv:
                    await serve_post(careless, stream)
                else:
                    await serve_lines(careless, stream, stream)

            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            print(listener.socket.getsockname()[1], flush=True)
            await trio.serve_listeners(handle, [listener])
        else:
            pipes = trio.lowlevel.FdStream(0), trio.lowlevel.FdStream(1)
            await serve_lines(careless, *pipes)


if __name__ == "__main__":
    trio.run(main)
