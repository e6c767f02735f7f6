"""What is wrong with a peer's JSON, in words: where, what was expected, what was found.

Structuring hooks raise `Mismatch`; cattrs adds notes about where. `problems` turns the result into
lines like ``params.arguments: expected an object, got a string``.

The peer chose what these lines quote, so each quotation is cut to `QUOTE_LIMIT` characters of
escaped JSON, and there are at most `PROBLEM_LIMIT` lines.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, Literal, Union, get_args, get_origin

import attrs
from cattrs.errors import AttributeValidationNote, ClassValidationError, IterableValidationNote

__all__ = [
    "NOTHING",
    "PROBLEM_LIMIT",
    "QUOTE_LIMIT",
    "Mismatch",
    "describe",
    "one_of",
    "problems",
    "wire_name",
]

NOTHING: Final = "nothing"
"""What was found where a member is absent."""

PROBLEM_LIMIT: Final = 3
"""Problems named for one message."""

QUOTE_LIMIT: Final = 80
"""Characters of the peer's own text in one place of a problem."""

_DESCRIPTIONS: Final[dict[Any, str]] = {
    Any: "a value",
    bool: "a boolean",
    dict: "an object",
    float: "a number",
    int: "an integer",
    list: "an array",
    str: "a string",
    types.NoneType: "null",
}


class Mismatch(Exception):
    """A value is not what the model wants. `expected` is a phrase, like `describe` makes them."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(expected, found)
        self.expected = expected
        self.found = found

    @classmethod
    def of_kind(cls, expected: str, value: object) -> Mismatch:
        """The value is of the wrong kind: name its kind, do not quote it."""
        if type(value) is float:
            return cls(expected, "a floating-point number")
        return cls(expected, _DESCRIPTIONS.get(type(value), type(value).__name__))

    @classmethod
    def of_value(cls, expected: str, value: object) -> Mismatch:
        """The value is of the right kind but not one of those allowed: quote it."""
        if isinstance(value, str):
            return cls(expected, _quote(value))
        return cls.of_kind(expected, value)


def wire_name(attribute: attrs.Attribute[Any]) -> str:
    """The JSON member that holds an attribute: camel case, or what its metadata says."""
    if "wire" in attribute.metadata:
        return str(attribute.metadata["wire"])
    if attribute.name == "meta":
        return "_meta"
    first, *rest = attribute.name.rstrip("_").split("_")
    return first + "".join(word.capitalize() for word in rest)


def one_of(values: Iterable[str]) -> str:
    """The phrase for a closed set of strings."""
    quoted = [json.dumps(value) for value in values]
    return quoted[0] if len(quoted) == 1 else f"one of {', '.join(quoted)}"


def describe(type_: Any) -> str:
    """What JSON a type stands for, as a phrase: "a string", "an object", ``one of "a", "b"``."""
    if attrs.has(type_):
        return "an object"
    origin = get_origin(type_)
    if origin is Literal:
        return one_of(get_args(type_))
    if origin in (Union, types.UnionType):
        members = [member for member in get_args(type_) if member is not types.NoneType]
        if str in members:
            members = [member for member in members if get_origin(member) is not Literal]
        return " or ".join(dict.fromkeys(map(describe, members)))
    return _DESCRIPTIONS.get(origin or type_, "a value")


def problems(error: BaseException, at: str) -> list[str]:
    """The first few problems in what structuring raised, as lines.

    `at` is the path of the structured value itself. What no peer can cause is raised again.
    """
    lines = []
    for path, leaf, type_ in islice(_leaves(error, at), PROBLEM_LIMIT):
        if isinstance(leaf, Mismatch):
            expected, found = leaf.expected, leaf.found
        elif isinstance(leaf, KeyError):
            expected, found = describe(type_), NOTHING
        else:
            raise leaf
        lines.append(f"{path}: expected {expected}, got {found}".removeprefix(": "))
    return lines


def _leaves(
    error: BaseException, path: str, owner: Any = None
) -> Iterator[tuple[str, BaseException, Any]]:
    """Every innermost error with its path and the type that was wanted there.

    `owner` is the model whose attribute `error` is about.
    """
    type_ = None
    for note in reversed(getattr(error, "__notes__", [])):  # they were added from the inside out
        if isinstance(note, AttributeValidationNote):
            path = _join(path, wire_name(getattr(attrs.fields(owner), note.name)))
            type_ = note.type
        elif isinstance(note, IterableValidationNote):
            path = _join(path, note.index)
    if isinstance(error, ClassValidationError):
        for inner in error.exceptions:
            yield from _leaves(inner, path, error.cl)
    else:
        yield path, error, type_


def _join(path: str, step: str | int) -> str:
    """`path` extended by an array's index, ``[0]``, or an object's member, ``.name``."""
    if isinstance(step, int):
        return f"{path}[{step}]"
    if not (step.isascii() and step.isidentifier() and len(step) <= QUOTE_LIMIT):
        return f"{path}[{_quote(step)}]"
    return f"{path}.{step}" if path else step


def _quote(text: str) -> str:
    """Text of the peer's as JSON, cut to the limit."""
    quoted = json.dumps(text[:QUOTE_LIMIT])
    return quoted if len(quoted) <= QUOTE_LIMIT else quoted[: QUOTE_LIMIT - 4] + '..."'
