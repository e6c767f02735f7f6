"""What is asked, and what has to be answered: revision 2026-07-28, as bytes."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from .process import LoadError

__all__ = [
    "BOOK",
    "SLEEP_SECONDS",
    "STOCK",
    "Message",
    "call",
    "call_parts",
    "cancel",
    "check_stock",
    "post",
    "read",
    "text_of",
]

#: Seconds that a `sleep` call would take if nobody cancelled it.
SLEEP_SECONDS = 3600.0

BOOK = {"title": "Dune"}
STOCK = {"title": "Dune", "copies": 3, "price": 12.5}

_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_MARK = 987_654_321


class _Text(msgspec.Struct):
    text: str = ""


class _Result(msgspec.Struct):
    content: list[_Text] = []
    structuredContent: Any = None
    isError: bool = False


class Message(msgspec.Struct):
    """Anything a server says."""

    id: int | None = None
    result: _Result | None = None
    error: Any = None
    method: str | None = None


read = msgspec.json.Decoder(Message).decode


def call(number: int, tool: str, arguments: dict[str, Any], *, progress: bool = False) -> bytes:
    """A `tools/call`; `progress` asks for reports with the token 1."""
    meta = _META | {"progressToken": 1} if progress else _META
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    request = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(request, separators=(",", ":")).encode()


def call_parts(tool: str, arguments: dict[str, Any]) -> tuple[bytes, bytes]:
    """What goes before and after the id, so that requests are made quickly."""
    before, _, after = call(_MARK, tool, arguments).partition(str(_MARK).encode())
    return before, after


def cancel(number: int) -> bytes:
    """The cancellation of a request, on a channel."""
    return (
        '{"jsonrpc":"2.0","method":"notifications/cancelled",'
        f'"params":{{"requestId":{number},"reason":"benchmark"}}}}'
    ).encode()


def post(body: bytes, tool: str, port: int) -> bytes:
    """The HTTP request that brings a call."""
    return (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def text_of(message: Message) -> str:
    """Return the text of a tool's result, which structured content must not contradict."""
    result = message.result
    if result is None or result.isError or len(result.content) != 1:
        raise LoadError(f"expected a result with one text: {message}")
    text = result.content[0].text
    structured = result.structuredContent
    if isinstance(structured, dict):
        structured = structured.get("result")
    if structured is not None and float(structured) != float(text):
        raise LoadError(f"text and structured content differ: {message}")
    return text


def check_stock(message: Message) -> None:
    """Look at a whole answer of `stock` or `search`."""
    result = message.result
    if result is None or result.isError or len(result.content) != 1:
        raise LoadError(f"stock was answered with {message}")
    if result.structuredContent != STOCK or json.loads(result.content[0].text) != STOCK:
        raise LoadError(f"stock was answered with {message}")
