"""Server-Sent Events, as this transport writes them. No I/O.

A message is one line of JSON, so it is one ``data`` line: JSON text has no raw line breaks.
"""

from __future__ import annotations

from typing import Final

__all__ = ["COMMENT", "encode_event"]

COMMENT: Final = b":\n\n"
"""A sign of life between two events; readers ignore it."""


def encode_event(frame: bytes) -> bytes:
    return b"event: message\ndata: " + frame + b"\n\n"
