"""The options of a sweep, and what they may be."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, get_args

import attrs

from ..checks import Check
from .report import Kind

__all__ = [
    "NAME_IT",
    "Settings",
    "check_callable",
    "check_names",
    "check_values",
    "checked_kinds",
    "close_to",
]

NAME_IT: Final = "name what to ask the server for: a tool, resource=… or prompt=…"

_KINDS: Final[tuple[str, ...]] = get_args(Kind)
_SHOWN: Final = 12
"""Names that a message offers."""


def check_callable(what: str, value: object) -> None:
    """Raises ``TypeError`` if it cannot be called without arguments."""
    if not callable(value):
        raise TypeError(f"{what} is to be a function without parameters, not {value!r:.80}")
    try:
        signature = inspect.signature(value, follow_wrapped=False)
    except ValueError:  # one in C that does not tell
        return
    try:
        signature.bind()
    except TypeError as error:
        name = getattr(value, "__name__", None) or repr(value)
        raise TypeError(f"{what} is called without arguments; of {name}: {error}") from None


def _function(_: Any, option: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        check_callable(option.name, value)


def _flag(_: Any, option: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{option.name} is to be True or False, not {value!r:.80}")


def _seconds(_: Any, option: attrs.Attribute[Any], value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:  # type: ignore[operator]
        raise TypeError(f"{option.name} is to be seconds, more than 0, not {value!r:.80}")


def _count(_: Any, option: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise TypeError(f"{option.name} is to be a whole number from 1 on, not {value!r:.80}")


def _seed(_: Any, option: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{option.name} is to be a whole number, not {value!r:.80}")


def _kinds(value: Collection[Kind]) -> frozenset[Kind]:
    return checked_kinds(value, _KINDS)


def checked_kinds(given: Any, known: Collection[str]) -> frozenset[Any]:
    """Raises ``TypeError`` if they are not all among those that there are."""
    if isinstance(given, str) or not isinstance(given, Collection):
        raise TypeError(f'ignore is to be kinds, such as {{"leaked"}}, not {given!r:.80}')
    for kind in given:
        if kind not in known:
            raise TypeError(f"ignore: there is no kind {kind!r:.80}; {close_to(kind, known)}")
    return frozenset(given)


@attrs.frozen
class Settings:
    """The options of a sweep; see :func:`~.sweep.cancel_sweep`.

    Raises ``TypeError`` for what makes no sense, with the option's name.
    """

    check: Check | None = attrs.field(validator=_function)
    reset: Callable[[], object] | None = attrs.field(validator=_function)
    bound: float | None = attrs.field(validator=attrs.validators.optional(_seconds))
    twice: bool = attrs.field(validator=_flag)
    allow_late: bool = attrs.field(validator=_flag)
    ignore: frozenset[Kind] = attrs.field(converter=_kinds)
    max_checkpoints: int = attrs.field(validator=_count)
    longest: float = attrs.field(validator=_seconds)
    seed: int = attrs.field(validator=_seed)


def check_names(given: Mapping[str, object]) -> None:
    """Raises ``TypeError`` for a name that no option has."""
    known = [field.name for field in attrs.fields(Settings)]
    for name in given:
        if name not in known:
            raise TypeError(f"there is no option {name!r}; {close_to(name, known)}")


def check_values(given: Mapping[str, Any]) -> None:
    """Raises ``TypeError`` for a value that its option cannot have."""
    for field in attrs.fields(Settings):
        if field.name in given and field.validator is not None:
            field.validator(None, field, given[field.name])
    _kinds(given.get("ignore", ()))


def close_to(word: object, known: Iterable[str]) -> str:
    """What somebody may have meant, in words."""
    names = list(known)
    if not names:
        return "it has none"
    close = difflib.get_close_matches(str(word), names, n=1)
    hint = f"did you mean {close[0]!r}? There is " if close else "there is "
    return hint + _few(names)


def _few(names: list[str]) -> str:
    more = f" … and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more
