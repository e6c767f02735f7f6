"""A witness between a client and an HTTP server: what each has said, byte by byte.

``async with witnessed(port) as log`` listens on a port of its own and relays to that one. When a
side ends a connection, so does the witness on the other side. :meth:`HttpLog.check` holds what was
said against the official schema, and against the transport's rules for headers.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import httptools
import msgspec
import trio
from tests.peers.checked import WireCheck

__all__ = ["HttpLog", "Said", "witnessed"]


@attrs.define
class Said:
    """A request, with its ``method``, or a response, with its ``status``; perhaps cut off."""

    method: str = ""
    status: int = 0
    headers: dict[str, str] = attrs.Factory(dict)
    body: bytes = b""
    complete: bool = False

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def messages(self) -> list[bytes]:
        """The JSON-RPC messages of a body."""
        if self.headers.get("content-type", "").partition(";")[0] != "text/event-stream":
            return [self.body] if self.body and self.complete else []
        blocks = self.body.replace(b"\r\n", b"\n").split(b"\n\n")[:-1]
        return [data for block in blocks if (data := _data_of(block))]


def _data_of(block: bytes) -> bytes:
    fields = [line.partition(b":") for line in block.split(b"\n")]
    return b"\n".join(value.removeprefix(b" ") for name, _, value in fields if name == b"data")


@attrs.define(eq=False)
class Connection:
    """What came on one connection, in order."""

    requests: list[Said] = attrs.Factory(list)
    responses: list[Said] = attrs.Factory(list)


class HttpLog:
    """What has been said so far."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections: list[Connection] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def requests(self, method: str) -> list[Said]:
        """The requests with this JSON-RPC method."""
        every = [said for connection in self.connections for said in connection.requests]
        return [said for said in every if said.json["method"] == method]

    def check(self, *, strict_client: bool) -> WireCheck:
        """Raise ``WireViolation`` or ``AssertionError`` where something is against the rules.

        ``strict_client``: also what the client said.
        """
        check = WireCheck(strict_client=strict_client)
        for connection in self.connections:
            for number, request in enumerate(connection.requests):
                if strict_client:
                    _check_head(request)
                check.client_line(request.body)
                if number < len(connection.responses):
                    for message in connection.responses[number].messages:
                        check.server_line(message)
        return check


def _check_head(request: Said) -> None:
    """*Streamable HTTP*: "Sending Messages" and "Request Metadata"."""
    assert request.method == "POST"
    headers, message = request.headers, request.json
    accepted = {part.partition(";")[0].strip() for part in headers["accept"].split(",")}
    assert {"application/json", "text/event-stream"} <= accepted
    assert headers["content-type"].partition(";")[0] == "application/json"
    meta = message["params"]["_meta"]
    version = meta["io.modelcontextprotocol/protocolVersion"]
    assert headers["mcp-protocol-version"] == version == "2026-07-28"
    assert headers["mcp-method"] == message["method"]
    assert headers.get("mcp-name") == message["params"].get("name")
    assert "mcp-session-id" not in headers
    assert "last-event-id" not in headers


class _Reader:
    """Callbacks of httptools."""

    def __init__(self, seen: list[Said]) -> None:
        self.seen = seen
        self.parser: httptools.HttpRequestParser | httptools.HttpResponseParser

    def on_message_begin(self) -> None:
        self.seen.append(Said())

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        assert key not in self.seen[-1].headers, f"{key} is there twice"
        self.seen[-1].headers[key] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if isinstance(self.parser, httptools.HttpRequestParser):
            self.seen[-1].method = self.parser.get_method().decode("latin-1")
        else:
            self.seen[-1].status = self.parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self.seen[-1].body += data

    def on_message_complete(self) -> None:
        self.seen[-1].complete = True


def _request_reader(connection: Connection) -> httptools.HttpRequestParser:
    reader = _Reader(connection.requests)
    reader.parser = httptools.HttpRequestParser(reader)
    return reader.parser


def _response_reader(connection: Connection) -> httptools.HttpResponseParser:
    reader = _Reader(connection.responses)
    reader.parser = httptools.HttpResponseParser(reader)
    return reader.parser


@asynccontextmanager
async def witnessed(port: int) -> AsyncGenerator[HttpLog, None]:
    """A witness before the server on this port of 127.0.0.1."""
    async with trio.open_nursery() as nursery:
        log = HttpLog(0)
        serve = partial(trio.serve_tcp, partial(_relay_both, log, port), 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        log.port = listener.socket.getsockname()[1]
        yield log
        nursery.cancel_scope.cancel("the test is over")


async def _relay_both(log: HttpLog, port: int, client: trio.SocketStream) -> None:
    connection = Connection()
    log.connections.append(connection)
    server = await trio.open_tcp_stream("127.0.0.1", port)
    async with server, trio.open_nursery() as nursery:
        scope = nursery.cancel_scope
        nursery.start_soon(_relay, client, server, _request_reader(connection), scope)
        nursery.start_soon(_relay, server, client, _response_reader(connection), scope)


async def _relay(
    source: trio.SocketStream,
    target: trio.SocketStream,
    parser: httptools.HttpRequestParser | httptools.HttpResponseParser,
    both: trio.CancelScope,
) -> None:
    with contextlib.suppress(trio.BrokenResourceError):
        async for data in source:
            parser.feed_data(data)
            await target.send_all(data)
    both.cancel("one side has ended the connection")
