"""What a tool returned, as a result. Specification: *Tools*, "Tool Result"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeVar, get_args

import attrs
import msgspec

from ..runtime.jsonrpc import encode
from ..runtime.models.base import UNSET, Unset
from ..runtime.models.content import ContentBlock, TextContent
from ..runtime.models.tools import CallToolResult
from .schema.type_hints import base_value, encode_custom
from .soundness import sound

__all__ = [
    "UNSTRUCTURED",
    "ToolResult",
    "error_result",
    "full_result",
    "structured_result",
    "unstructured_result",
]

T = TypeVar("T")

_BLOCKS: Final[tuple[type, ...]] = get_args(ContentBlock)

UNSTRUCTURED: Final[tuple[type, ...]] = (*_BLOCKS, CallToolResult)
"""Return types that are content, or a whole result, and so have no output schema."""


@attrs.frozen
class ToolResult(Generic[T]):
    """Everything that a tool can say at once.

    :param content: for the model: a text, a content block, or several of both. Left out, it is the
        structured content as JSON text.
    :param structured_content: any value with a JSON form; ``UNSET`` is none, ``None`` a null.
    :param is_error: whether the tool failed; the content says why.
    :param meta: ``_meta`` of the result.

    A tool annotated ``-> ToolResult[Weather]`` has the output schema of ``Weather``, and its
    structured content is checked against it; it may be left out of an error only. One annotated
    ``-> ToolResult`` has none, and its structured content may be anything. Specification: *Tools*,
    "Tool Result".
    """

    content: str | ContentBlock | Sequence[str | ContentBlock] | None = None
    structured_content: T | Unset = attrs.field(default=UNSET, kw_only=True)
    is_error: bool = attrs.field(default=False, kw_only=True)
    meta: Mapping[str, Any] | None = attrs.field(default=None, kw_only=True)


def full_result(result: ToolResult[Any], value: Any) -> CallToolResult:
    """``value`` is its structured content as plain JSON, or ``UNSET``.

    Raises ``TypeError`` or ``ValueError`` for content that is none.
    """
    whole = CallToolResult([]) if value is UNSET else structured_result(value)
    if result.content is not None:
        whole.content = _blocks(result.content)
    if result.is_error:
        whole.is_error = True
    if result.meta is not None:
        whole.meta = dict(result.meta)
    return whole


def _blocks(content: Any) -> list[ContentBlock]:
    items = content if isinstance(content, (list, tuple)) else (content,)
    for item in items:
        if not isinstance(item, (str, bytes, bytearray, memoryview, *_BLOCKS)):
            raise TypeError(
                f"content is text, content blocks or a list of both, not {type(item).__name__}; "
                "data belongs into structured_content"
            )
    return [_block(item) for item in items]


def structured_result(value: Any) -> CallToolResult:
    """A result with ``value`` (plain JSON) as structured content, and as text beside it."""
    data = encode(value)
    return CallToolResult([TextContent(data.decode())], structured_content=msgspec.Raw(data))


def unstructured_result(value: Any) -> CallToolResult:
    """A result without structured content: text, content blocks, lists of them, or nothing.

    Anything else becomes JSON text. Raises ``TypeError`` or ``ValueError`` for what JSON cannot
    hold, and for blocks and results that are none.
    """
    if isinstance(value, str):
        return CallToolResult([TextContent(base_value(value))])
    if isinstance(value, CallToolResult):
        return sound(value)
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
        return sound(value)  # type: ignore[return-value]
    if isinstance(value, str):
        return TextContent(base_value(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError(
            "a tool returned bytes; return ImageContent, AudioContent or EmbeddedResource "
            "with the data in base64 instead"
        )
    return TextContent(encode(msgspec.to_builtins(value, enc_hook=encode_custom)).decode())
