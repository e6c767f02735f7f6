"""What an application has made itself, looked at before a peer sees it.

The types of models are the type checker's work, and not every application runs one: a block with
a number for its text would go out as a message that breaks the protocol. What this library makes
of plain values is sound by itself and is not looked at.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from ..runtime.admission.admission import FunctionLimit
from ..runtime.jsonrpc import encode
from ..runtime.models.base import Icon
from ..runtime.models.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
)
from ..runtime.models.converter import structure, unstructure

__all__ = ["check_options", "check_sendable", "check_timeout", "limit_of", "sound"]

M = TypeVar("M")

_UNSOUND: Final = (ValueError, TypeError, AttributeError, RecursionError)


def sound(model: M) -> M:
    """The same model, which can be read again as it goes out, binary data included.

    For content blocks, contents of resources, and whole results of them. Raises ``ValueError`` or
    ``TypeError`` for one that is none.
    """
    _check(model)
    _check_binary(model)
    return model


def check_sendable(definition: Any, what: str) -> None:
    """Raises ``ValueError`` for a definition that would be no message. ``what`` names it."""
    try:
        _check(definition)
        encode(unstructure(definition))
    except _UNSOUND as error:
        raise ValueError(
            f"the definition of {what} (title, description, …) cannot be sent as JSON: {error}"
        ) from error


def check_options(
    *, annotations: Any = None, kind: type = object, icons: Any = None, meta: Any = None
) -> None:
    """Raises ``TypeError`` for options that are not what the model's constructors take."""
    if annotations is not None and not isinstance(annotations, kind):
        raise TypeError(
            f"annotations are an object {kind.__name__}(…), not {type(annotations).__name__}"
        )
    if icons is not None and (
        not isinstance(icons, (list, tuple)) or not all(isinstance(icon, Icon) for icon in icons)
    ):
        raise TypeError(f'icons are a list of Icon objects: [Icon("https://…")], not {icons!r:.80}')
    if meta is not None and not isinstance(meta, Mapping):
        raise TypeError(f"meta is a dict, not {type(meta).__name__}")


def check_timeout(timeout: Any) -> None:
    """Raises ``ValueError`` or ``TypeError`` for what is neither seconds nor ``None``."""
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout is a number of seconds, not {timeout!r:.80}")
    if not timeout > 0:
        raise ValueError(f"timeout must be more than 0 seconds, not {timeout!r}")


def limit_of(limit: Any, queue: Any, default: int) -> FunctionLimit | None:
    """The limit that two options stand for. Raises ``ValueError`` or ``TypeError`` if they are not
    whole numbers, or none of a limit and its queue; ``default`` is the queue's length."""
    for name, value, least in (("limit", limit, 1), ("queue", queue, 0)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise TypeError(f"{name} is a whole number of requests, not {value!r:.80}")
        if value is not None and value < least:
            raise ValueError(f"{name} must be {least} or more, not {value!r}")
    if limit is None:
        if queue is not None:
            raise ValueError("queue is for those that wait because of a limit: pass limit=, too")
        return None
    return FunctionLimit(limit, default if queue is None else queue)


def _check(model: Any) -> None:
    try:
        data = unstructure(model)
    except AttributeError as error:  # something else in the place of a model
        raise TypeError(f"{type(model).__name__} has a part that is none: {error}") from error
    structure(type(model), data)


def _check_binary(part: Any) -> None:
    if isinstance(part, (ImageContent, AudioContent)):
        _check_base64(part.data, f"{type(part).__name__}.data")
    elif isinstance(part, BlobResourceContents):
        _check_base64(part.blob, "BlobResourceContents.blob")
    elif isinstance(part, EmbeddedResource):
        _check_binary(part.resource)
    else:
        _check_list(getattr(part, "content", None))
        _check_list(getattr(part, "contents", None))
        _check_list(getattr(part, "messages", None))


def _check_list(parts: Any) -> None:
    """``content`` of a message is one block, that of a result is several."""
    for part in parts if isinstance(parts, (list, tuple)) else (parts,):
        if part is not None:
            _check_binary(part)


def _check_base64(text: str, where: str) -> None:
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise ValueError(
            f"{where} is no base64 ({error}); write base64.b64encode(data).decode()"
        ) from error
