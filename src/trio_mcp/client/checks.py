"""Types of what applications pass to a client, for those that no type checker looks at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..runtime.tracing import TraceContext

__all__ = [
    "check_arguments",
    "check_flag",
    "check_function",
    "check_mapping",
    "check_seconds",
    "check_text",
    "check_texts",
    "check_trace",
    "check_tracing",
]

_PLAIN: Final = frozenset((str, int, float, bool, type(None)))
_TEXT: Final = frozenset((str,))
_NONE: Final = (bytes, bytearray, memoryview, set, frozenset)
"""What the encoder would write as something else: as base64, and as arrays in any order."""
_INSTEAD: Final = {False: "send a text, in base64 for one", True: "send a list"}


def check_text(what: str, value: Any) -> None:
    """Raises ``TypeError``."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a text, not {value!r:.80}")


def check_mapping(what: str, value: Any) -> None:
    """Raises ``TypeError``. ``what`` is a plural."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} are a mapping of names to values, not {value!r:.80}")


def check_texts(what: str, value: Any) -> None:
    """Raises ``TypeError`` for what is no mapping of texts to texts. ``what`` is a plural."""
    check_mapping(what, value)
    for name, text in value.items():
        for part in (name, text):
            if not isinstance(part, str):
                raise TypeError(f"{what} are texts by their names; {part!r:.80} is none")


def check_arguments(arguments: Any) -> None:
    """Raises ``TypeError`` for what is no mapping, and for what JSON does not have in it and would
    be sent as something else; ``ValueError`` for what is nested too deeply, or in itself."""
    check_mapping("arguments", arguments)
    try:
        _check_object(arguments, "")
    except RecursionError:
        raise ValueError("the arguments are nested too deeply") from None


def _check_object(value: Mapping[Any, Any], path: str) -> None:
    # Types at a time: most have nothing but plain values, and lists may be long.
    if not _TEXT.issuperset(map(type, value)):
        for key in value:
            if not isinstance(key, str):
                where = f"in {path}" if path else "of arguments"
                raise TypeError(f"keys {where} are texts, as in JSON; {key!r:.80} is none")
    if not _PLAIN.issuperset(map(type, value.values())):
        for key, item in value.items():
            _check_item(item, f"{path}.{key}" if path else f"{key}")


def _check_item(value: Any, path: str) -> None:
    if type(value) in _PLAIN:
        return
    if isinstance(value, Mapping):
        _check_object(value, path)
    elif isinstance(value, (list, tuple)):
        if not _PLAIN.issuperset(map(type, value)):
            for index, item in enumerate(value):
                _check_item(item, f"{path}[{index}]")
    elif isinstance(value, _NONE):
        raise TypeError(
            f"the argument {path:.80} is a {type(value).__name__}, which JSON does not have: "
            f"{_INSTEAD[isinstance(value, (set, frozenset))]}"
        )


def check_trace(value: Any) -> None:
    """Raises ``TypeError``."""
    if not isinstance(value, TraceContext):
        raise TypeError(f"trace is a TraceContext, such as ctx.trace, not {value!r:.80}")


def check_tracing(value: Any) -> None:
    """Raises ``TypeError`` for what can make no spans."""
    if not callable(getattr(value, "call", None)):
        raise TypeError(f"tracing is a Tracing, such as OpenTelemetry(), not {value!r:.80}")


def check_function(what: str, value: Any) -> None:
    """Raises ``TypeError`` for what cannot be called."""
    if not callable(value):
        raise TypeError(f"{what} is a function, not {value!r:.80}")


def check_flag(what: str, value: Any) -> None:
    """Raises ``TypeError`` for what is no ``bool``: it may have been meant for another option."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} is True or False, not {value!r:.80}")


def check_seconds(what: str, value: Any) -> None:
    """Raises ``TypeError`` for no number, ``ValueError`` for one that is not above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} is a number of seconds, not {value!r:.80}")
    if not value > 0:
        raise ValueError(f"{what} must be more than 0 seconds, not {value!r}")
