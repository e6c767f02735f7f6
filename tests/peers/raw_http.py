"""A peer that speaks HTTP/1.1 by bytes, and reads responses."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec
import trio

__all__ = ["Head", "HttpPeer", "Response", "event_in", "post"]


@attrs.frozen
class Head:
    status: int
    headers: dict[str, str]


@attrs.frozen
class Response(Head):
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> int:
        code: int = self.json["error"]["code"]
        return code

    @property
    def events(self) -> list[Any]:
        """The messages of an event stream; ``None`` for a comment. Each block is well-formed."""
        assert self.headers["content-type"] == "text/event-stream"
        assert self.body.endswith(b"\n\n")
        return [event_in(block) for block in self.body.split(b"\n\n")[:-1]]


def event_in(block: bytes) -> Any:
    if block == b":":
        return None
    prefix = b"event: message\ndata: "
    assert block.startswith(prefix), block[:200]
    assert b"\n" not in block.removeprefix(prefix)
    return msgspec.json.decode(block.removeprefix(prefix))


def post(
    message: Any,
    *,
    version: str = "1.1",
    chunked: bool = False,
    path: str = "/mcp",
    method: str = "POST",
    **changes: str | None,
) -> bytes:
    """The bytes of a request. ``mcp_name="x"`` changes a header, ``mcp_name=None`` drops it."""
    body = message if isinstance(message, bytes) else msgspec.json.encode(message)
    headers: dict[str, str | None] = {
        "host": "127.0.0.1",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
    }
    if isinstance(message, dict):
        headers["mcp-method"] = message["method"]
        params = message.get("params", {})
        headers["mcp-name"] = params.get("name", params.get("uri"))
    if chunked:
        headers["transfer-encoding"] = "chunked"
        body = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    else:
        headers["content-length"] = str(len(body))
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    lines = [f"{name}: {value}\r\n" for name, value in headers.items() if value is not None]
    return f"{method} {path} HTTP/{version}\r\n{''.join(lines)}\r\n".encode() + body


class HttpPeer:
    """A connection on which bytes are written, and responses read."""

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream
        self.buffer = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def ask(self, message: Any, **options: Any) -> Response:
        await self.send(post(message, **options))
        return await self.response()

    async def more(self) -> bool:
        data = await self.stream.receive_some(65536)
        self.buffer += data
        return bool(data)

    async def until(self, mark: bytes, timeout: float = 5) -> bytes:
        """Read up to a mark."""
        with trio.fail_after(timeout):
            while mark not in self.buffer:
                if not await self.more():
                    raise EOFError(self.buffer)
        found, self.buffer = self.buffer.split(mark, 1)
        return found

    async def exactly(self, size: int, timeout: float = 5) -> bytes:
        with trio.fail_after(timeout):
            while len(self.buffer) < size:
                if not await self.more():
                    raise EOFError(self.buffer)
        found, self.buffer = self.buffer[:size], self.buffer[size:]
        return found

    async def rest(self, timeout: float = 5) -> bytes:
        """Read to the end."""
        with trio.fail_after(timeout):
            while await self.more():
                pass
        found, self.buffer = self.buffer, b""
        return found

    async def head(self, timeout: float = 5) -> Head:
        first, *lines = (await self.until(b"\r\n\r\n", timeout)).decode("latin-1").split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        pairs = [line.split(": ", 1) for line in lines]
        assert len({name for name, _ in pairs}) == len(pairs), "a header is there twice"
        return Head(int(status), dict(pairs))

    async def chunk(self, timeout: float = 5) -> bytes:
        size = int(await self.until(b"\r\n", timeout), 16)
        data = await self.exactly(size)
        assert await self.exactly(2) == b"\r\n"
        return data

    async def response(self, timeout: float = 5, *, bare: bool = False) -> Response:
        head = await self.head(timeout)
        if bare or head.status in (100, 204):
            body = b""
        elif "content-length" in head.headers:
            body = await self.exactly(int(head.headers["content-length"]))
        elif head.headers.get("transfer-encoding") == "chunked":
            body = b""
            while data := await self.chunk(timeout):
                body += data
        else:
            body = await self.rest()
        return Response(head.status, head.headers, body)
