"""How much the library keeps of a message that is not complete. No I/O.

It bounds a message's characters, but keeps each part of it by itself, even an empty one, without a
bound. It does not tell, so frames are counted here, by their heads alone: what is wrong with them
is for the library to find out. Specification: RFC 6455, section 5.2.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PART_BYTES", "Parts"]

PART_BYTES: Final = 64
"""What a part takes up besides its text, about."""

_CLOSE: Final = 0x8
_LENGTHS: Final = {126: 2, 127: 8}
"""Bytes of a length that does not fit into seven bits."""


class Parts:
    """``kept``: bytes of the message that is coming in. Frames of control, pings for one, come in
    between and count for nothing: the library deals with each of them at once.

    ``closed``: whether a close frame has come.
    """

    def __init__(self) -> None:
        self.kept = 0
        self.closed = False
        self._head = bytearray()  # of a frame, as far as it has come
        self._left = 0  # bytes of its payload that are still to come
        self._control = False
        self._last = False

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes as they come, which must be handed on at once: where they end, a part ends too."""
        at, end = 0, len(data)
        while at < end:
            if self._left:
                taken = min(self._left, end - at)
                at += taken
                self._left -= taken
                self._count(taken)
            else:
                self._head.append(data[at])
                at += 1
                if len(self._head) == _length_of_head(self._head):
                    self._begin()

    def _begin(self) -> None:
        """The head of a frame is complete."""
        head, self._head = self._head, bytearray()
        self._control = bool(head[0] & 0x8)
        self._last = bool(head[0] & 0x80)
        short = head[1] & 0x7F
        self._left = int.from_bytes(head[2 : 2 + _LENGTHS[short]]) if short in _LENGTHS else short
        if head[0] & 0xF == _CLOSE:
            self.closed = True
        if not self._left:
            self._count(0)

    def _count(self, size: int) -> None:
        if not self._control:
            whole = self._last and not self._left
            self.kept = 0 if whole else self.kept + PART_BYTES + size


def _length_of_head(head: bytearray) -> int:
    """Of a frame whose first bytes these are; at least 2."""
    if len(head) < 2:
        return 2
    mask = 4 if head[1] & 0x80 else 0
    return 2 + _LENGTHS.get(head[1] & 0x7F, 0) + mask
