"""Texts as values of headers: what a header cannot hold as it is, it holds in Base64.

Specification: *Streamable HTTP*, "Request Metadata". Plain functions, no I/O.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

__all__ = ["decode_value", "encode_value", "is_plain"]

_PREFIX: Final = "=?base64?"
_SUFFIX: Final = "?="
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")


def encode_value(value: str) -> str:
    """``value`` for a header: as it is, or in Base64 where it would not come through as it is."""
    if is_plain(value):
        return value
    return f"{_PREFIX}{base64.b64encode(value.encode()).decode()}{_SUFFIX}"


def decode_value(text: str) -> str:
    """The value that a header stands for. Raises ``ValueError`` for what nothing encodes to."""
    if _is_encoded(text):
        encoded = text[len(_PREFIX) : -len(_SUFFIX)]
        try:
            data = base64.b64decode(encoded, validate=True)
            if base64.b64encode(data).decode() == encoded:
                return data.decode()
        except (binascii.Error, UnicodeDecodeError):
            pass
        raise ValueError("it is no Base64 of UTF-8")
    if text and not _PLAIN.fullmatch(text):
        raise ValueError("it has characters that need Base64")
    return text


def _is_encoded(text: str) -> bool:
    return text.startswith(_PREFIX) and text.endswith(_SUFFIX)


def is_plain(text: str) -> bool:
    """Whether a header holds this text as it is."""
    return _PLAIN.fullmatch(text) is not None and not _is_encoded(text)
