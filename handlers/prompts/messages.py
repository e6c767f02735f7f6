"""What a prompt returned, as a result. Specification: *Prompts*, "PromptMessage"."""

from __future__ import annotations

from typing import Any, Final, get_args

from ...runtime.models.content import ContentBlock, TextContent
from ...runtime.models.prompts import GetPromptResult, PromptMessage
from ..schema.type_hints import base_value
from ..soundness import sound

__all__ = ["MESSAGES", "prompt_result"]

_BLOCKS: Final[tuple[type, ...]] = get_args(ContentBlock)

MESSAGES: Final[tuple[type, ...]] = (*_BLOCKS, PromptMessage, GetPromptResult)
"""What a prompt may return, besides text, and lists of these and of text."""


def prompt_result(value: Any, description: str | None) -> GetPromptResult:
    """A result with these messages; text and content blocks are the user's.

    Raises ``TypeError`` or ``ValueError`` for what is no message, in all its parts: what a prompt
    says goes to a model.
    """
    if isinstance(value, GetPromptResult):
        result = value
    elif isinstance(value, (list, tuple)):
        result = GetPromptResult([_message(item) for item in value], description)
    else:
        result = GetPromptResult([_message(value)], description)
    for message in result.messages:
        if not isinstance(message, PromptMessage) or not isinstance(message.content, _BLOCKS):
            raise TypeError(
                "a prompt's messages are PromptMessage objects with one content block each, such "
                f"as TextContent; not {message!r}"
            )
    return sound(result)


def _message(value: Any) -> PromptMessage:
    if isinstance(value, PromptMessage):
        return value
    if isinstance(value, str):
        return PromptMessage("user", TextContent(base_value(value)))
    if isinstance(value, _BLOCKS):
        return PromptMessage("user", value)  # type: ignore[arg-type]
    raise TypeError(
        "a prompt returns text, content blocks, PromptMessage, a list of these, or "
        f"GetPromptResult; not {type(value).__name__}"
    )
