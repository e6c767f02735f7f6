"""What a tool returned, as a result. Specification: *Tools*, "Tool Result"."""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from ..runtime.jsonrpc import encode
from ..runtime.models.content import ContentBlock, TextContent
from ..runtime.models.tools import CallToolResult
from .schema.type_hints import base_value, encode_custom

__all__ = ["UNSTRUCTURED", "error_result", "structured_result", "unstructured_result"]

_BLOCKS: Final[tuple[type, ...]] = get_args(ContentBlock)

UNSTRUCTURED: Final[tuple[type, ...]] = (*_BLOCKS, CallToolResult)
"""Return types that are content, or a whole result, and so have no output schema."""


def structured_result(value: Any) -> CallToolResult:
    """A result with ``value`` (plain JSON) as structured content, and as text beside it."""
    data = encode(value)
    return CallToolResult([TextContent(data.decode())], structured_content=msgspec.Raw(data))


def unstructured_result(value: Any) -> CallToolResult:
    """A result without structured content: text, content blocks, lists of them, or nothing.

    Anything else becomes JSON text. Raises ``TypeError`` for what JSON cannot hold.
    """
    if isinstance(value, str):
        return CallToolResult([TextContent(base_value(value))])
    if isinstance(value, CallToolResult):
        return value
    if value is None:
        return CallToolResult([])
    if isinstance(value, (list, tuple)) and any(isinstance(item, _BLOCKS) for item in value):
        return CallToolResult([_block(item) for item in value])
    return CallToolResult([_block(value)])


def error_result(message: str) -> CallToolResult:
    """A failure of the tool itself, told to the model; what is no Unicode in it is escaped."""
    text = message.encode(errors="backslashreplace").decode()
    return CallToolResult([TextContent(text)], is_error=True)


def _block(value: Any) -> ContentBlock:
    if isinstance(value, _BLOCKS):
        return value  # type: ignore[return-value]
    if isinstance(value, str):
        return TextContent(base_value(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(
            "a tool returned bytes; return ImageContent, AudioContent or EmbeddedResource "
            "with the data in base64 instead"
        )
    return TextContent(encode(msgspec.to_builtins(value, enc_hook=encode_custom)).decode())
