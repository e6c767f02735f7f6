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
_NONE: Final = (bytes, bytearray, memoryview, set, frozenset)
"""What the encoder would write as something else: as base64, and as arrays in any order."""


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
    try:
        if type(arguments) is not dict or not _is_plain(arguments):
            check_mapping("arguments", arguments)
            _look_closely(arguments, "")
    except RecursionError:
        raise ValueError("the arguments are nested too deeply") from None


def _is_plain(value: Any) -> bool:
    """Whether there is nothing to look at closely. Fast: arguments may be large, and most have
    nothing but plain values."""
    if type(value) is dict:
        for key, item in value.items():
            if type(key) is not str or (type(item) not in _PLAIN and not _is_plain(item)):
                return False
    elif type(value) is list or type(value) is tuple:
        for item in value:
            if type(item) not in _PLAIN and not _is_plain(item):
                return False
    else:
        return False
    return True


def _look_closely(value: Any, path: str) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                where = f"in {path:.80}" if path else "of arguments"
                raise TypeError(f"keys {where} are texts, as in JSON; {key!r:.80} is none")
            _look_closely(item, f"{path}.{key}" if path else key)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _look_closely(item, f"{path}[{index}]")
    elif isinstance(value, _NONE):
        instead = "a list" if isinstance(value, (set, frozenset)) else "a text, in base64 for one"
        raise TypeError(
            f"the argument {path:.80} is a {type(value).__name__}, which JSON does not have: "
            f"send {instead}"
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
