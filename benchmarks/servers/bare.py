"""The raw limit, without MCP: ``… benchmarks.servers.bare WIRE [PORT]``.

Trio and the parsers of ``ours.py``: msgspec, httptools, trio-websocket. It finds the tool by its
name, and writes an answer of the same shape. It validates nothing, cannot cancel, knows no limits,
and has no task for a request, but for ``sleep``. The tools are those of ``ours.py``, without
``ended``.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httptools
import msgspec
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

CHUNK = 65_536

called = 0
live = 0


class Params(msgspec.Struct):
    name: str = ""
    arguments: dict[str, Any] = {}


class Request(msgspec.Struct):
    method: str
    id: int | str | None = None
    params: Params | None = None


decode = msgspec.json.Decoder(Request).decode
encode = msgspec.json.Encoder().encode

Say = Callable[[bytes], Awaitable[None]]


def answer(request: Request) -> bytes | None:
    """The whole answer, if it does not wait."""
    global called
    params = request.params or Params()
    value: Any = None
    if params.name in ("stock", "search"):
        called += 1
        value = {"title": params.arguments["title"], "copies": 3, "price": 12.5}
        text = encode(value).decode()
    elif params.name == "sleep":
        return None
    else:
        text = str({"alive": live, "calls": called}.get(params.name, 0))
        value = {"result": int(text)}
    result = {
        "content": [{"type": "text", "text": text}],
        "structuredContent": value,
        "isError": False,
        "resultType": "complete",
    }
    return encode({"jsonrpc": "2.0", "id": request.id, "result": result})


async def sleep() -> None:
    global live
    live += 1
    try:
        await trio.sleep_forever()
    finally:
        live -= 1


# Channels -----------------------------------------------------------------------------------------


async def serve_lines(receive: trio.abc.ReceiveStream, send: trio.abc.SendStream) -> None:
    async with trio.open_nursery() as nursery:
        rest = b""
        while data := await receive.receive_some(CHUNK):
            *lines, rest = (rest + data).split(b"\n")
            answers = []
            for line in lines:
                said = answer(decode(line))
                if said is None:
                    nursery.start_soon(sleep)
                else:
                    answers.append(said)
            if answers:
                await send.send_all(b"\n".join(answers) + b"\n")
        nursery.cancel_scope.cancel()


async def serve_stdio() -> None:
    async with trio.lowlevel.FdStream(0) as receive, trio.lowlevel.FdStream(1) as send:
        await serve_lines(receive, send)


async def serve_stream(stream: trio.SocketStream) -> None:
    async with stream:
        try:
            await serve_lines(stream, stream)
        except* trio.BrokenResourceError:
            pass


async def serve_tcp(port: int) -> None:
    await trio.serve_tcp(serve_stream, port, host="127.0.0.1")


async def serve_websockets(port: int) -> None:
    await serve_websocket(serve_one_websocket, "127.0.0.1", port, None)


async def serve_one_websocket(request: WebSocketRequest) -> None:
    socket: WebSocketConnection = await request.accept()
    async with trio.open_nursery() as nursery:
        try:
            while True:
                said = answer(decode(await socket.get_message()))
                if said is None:
                    nursery.start_soon(sleep)
                else:
                    await socket.send_message(said.decode())
        except ConnectionClosed:
            nursery.cancel_scope.cancel()


# HTTP ---------------------------------------------------------------------------------------------

EVENT = b"event: message\ndata: %b\n\n"


class Connection:
    """One request after the other, as ``httptools`` finds them."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._body = b""
        self._bodies: list[bytes] = []

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._bodies.append(self._body)
        self._body = b""

    async def serve(self, shape: Callable[[Request, bytes], bytes]) -> None:
        parser = httptools.HttpRequestParser(self)
        while data := await self._stream.receive_some(CHUNK):
            parser.feed_data(data)
            bodies, self._bodies = self._bodies, []
            for body in bodies:
                request = decode(body)
                said = answer(request)
                if said is None:
                    await sleep()
                else:
                    await self._stream.send_all(shape(request, said))


def one_body(request: Request, said: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(said),
        said,
    )


def events(request: Request, said: bytes) -> bytes:
    """Three reports of progress before it, all in one write."""
    stream = b""
    if request.params is not None and request.params.name == "search":
        for done in range(1, 4):
            params = {"progressToken": 1, "progress": done, "total": 3}
            report = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            stream += EVENT % encode(report)
    stream += EVENT % said
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (
        len(stream),
        stream,
    )


async def serve_http(port: int, shape: Callable[[Request, bytes], bytes]) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            try:
                await Connection(stream).serve(shape)
            except trio.BrokenResourceError:
                pass  # reset, as some who ask it do

    await trio.serve_tcp(serve, port, host="127.0.0.1")


def main(wire: str, *port: str) -> None:
    if wire == "stdio":
        trio.run(serve_stdio)
        return
    serve: dict[str, Callable[[int], Awaitable[None]]] = {
        "tcp": serve_tcp,
        "websocket": serve_websockets,
        "http-json": partial(serve_http, shape=one_body),
        "http-sse": partial(serve_http, shape=events),
    }
    trio.run(serve[wire], int(port[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
