"""What was read, as a result of ``resources/read``. Specification: *Resources*, "Data Types"."""

from __future__ import annotations

import base64
from typing import Any, Final, TypeAlias

import msgspec

from ...runtime.jsonrpc import encode
from ...runtime.models.content import BlobResourceContents, TextResourceContents
from ...runtime.models.resources import ReadResourceResult
from ..caching import CacheHint
from ..schema.type_hints import base_value, encode_custom
from ..soundness import sound

__all__ = ["Contents", "bytes_contents", "read_result", "text_contents"]

Contents: TypeAlias = TextResourceContents | BlobResourceContents

_CONTENTS: Final = (TextResourceContents, BlobResourceContents)


def read_result(
    value: Any, uri: str, mime_type: str | None, cache: CacheHint
) -> ReadResourceResult:
    """A result with what a function returned for ``uri``.

    Text, bytes, contents or a list of these; anything else becomes JSON text. ``mime_type`` is that
    of text, bytes and JSON. Raises ``TypeError`` or ``ValueError`` for ``None``, for what JSON
    cannot hold, and for contents that are none.
    """
    if isinstance(value, ReadResourceResult):
        return sound(value)
    return ReadResourceResult(
        _contents(value, uri, mime_type), ttl_ms=cache.ttl_ms, cache_scope=cache.scope
    )


def text_contents(text: str, uri: str, mime_type: str | None) -> TextResourceContents:
    return TextResourceContents(uri, base_value(text), mime_type or "text/plain")


def bytes_contents(
    data: bytes | bytearray | memoryview, uri: str, mime_type: str | None
) -> BlobResourceContents:
    blob = base64.b64encode(data).decode()
    return BlobResourceContents(uri, blob, mime_type or "application/octet-stream")


def _contents(value: Any, uri: str, mime_type: str | None) -> list[Contents]:
    if isinstance(value, _CONTENTS):
        return [_checked(value)]
    if isinstance(value, str):
        return [text_contents(value, uri, mime_type)]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return [bytes_contents(value, uri, mime_type)]
    if value is None:
        raise TypeError(
            "a resource returned None; raise ResourceNotFound for what does not exist, and return "
            "an empty text for what is empty"
        )
    if isinstance(value, (list, tuple)) and any(isinstance(item, _CONTENTS) for item in value):
        return [_checked(item) for item in value]
    data = encode(msgspec.to_builtins(value, str_keys=True, enc_hook=encode_custom))
    return [TextResourceContents(uri, data.decode(), mime_type or "application/json")]


def _checked(item: Any) -> Contents:
    if isinstance(item, _CONTENTS):
        return sound(item)
    raise TypeError(
        "a resource returned a list of contents with something else in it: each item must be "
        f"TextResourceContents or BlobResourceContents, not {type(item).__name__}"
    )
