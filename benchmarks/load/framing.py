"""How messages are told apart on a channel: lines, or WebSocket frames. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from .process import LoadError

__all__ = ["UPGRADE", "Framing", "Lines", "WebSocketFrames"]

UPGRADE = (
    b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mcp\r\n\r\n"
)
_TEXT, _CLOSE = 0x81, 0x88
_MASKED = 0x80
_NO_MASK = bytes(4)  # masking with zeros leaves the text as it is


class Framing(Protocol):
    """Messages to bytes and back."""

    def join(self, messages: Iterable[bytes]) -> bytes: ...

    def split(self, data: bytes) -> list[bytes]:
        """The messages that end in `data`; the rest is kept."""


class Lines:
    """One message per line."""

    def __init__(self) -> None:
        self._rest = b""

    def join(self, messages: Iterable[bytes]) -> bytes:
        return b"\n".join(messages) + b"\n"

    def split(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


class WebSocketFrames:
    """One message per text frame, not in parts."""

    def __init__(self) -> None:
        self._rest = b""

    def join(self, messages: Iterable[bytes]) -> bytes:
        return b"".join(map(_frame, messages))

    def split(self, data: bytes) -> list[bytes]:
        data = self._rest + data
        messages = []
        at, end = 0, len(data)
        while at + 2 <= end:
            length, start = data[at + 1], at + 2
            if length == 126:
                length, start = int.from_bytes(data[at + 2 : at + 4]), at + 4
            elif length == 127:
                length, start = int.from_bytes(data[at + 2 : at + 10]), at + 10
            if start + length > end or start > end:
                break
            if data[at] == _TEXT:
                messages.append(data[start : start + length])
            elif data[at] == _CLOSE:
                raise LoadError(f"the server closed: {data[start : start + length]!r}")
            at = start + length
        self._rest = data[at:]
        return messages


def _frame(message: bytes) -> bytes:
    size = len(message)
    if size < 126:
        return bytes((_TEXT, _MASKED | size)) + _NO_MASK + message
    return bytes((_TEXT, _MASKED | 126)) + size.to_bytes(2) + _NO_MASK + message
