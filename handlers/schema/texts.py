"""Arguments that come as text, such as those of prompts, and the values that functions want.

A text is read by the schema of its parameter: where that takes a number, a boolean or one of some
values, a text that says one becomes it; every other text stays what it is. The schema is then
enforced as it is for tools, and finds the words for a text that says nothing fitting. In a union,
text comes last: ``"5"`` is the number for ``int | str``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from .callables import SignatureError
from .signature import FunctionSchema
from .type_schemas import Schema

__all__ = ["TextArgument", "TextArguments"]

#: Longer texts are not read as numbers: the time to read one grows with the square of its digits.
MAX_DIGITS: Final = 1_000

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BOOLEANS: Final = {"true": True, "false": False}


@attrs.frozen(eq=False)
class TextArgument:
    """One argument: what people may know of it, and how its text is read.

    ``options`` are the texts that it can be, where these are few: of ``Literal``, enumerations and
    `bool`.
    """

    name: str
    title: str | None
    description: str | None
    required: bool
    options: tuple[str, ...]
    _values: Mapping[str, Any]
    _kinds: frozenset[str]

    @classmethod
    def of(cls, name: str, schema: Schema, *, required: bool) -> TextArgument:
        """Raises ``ValueError`` if a text can never be what the schema wants."""
        alternatives = [*_alternatives(schema)]
        if not all(map(_is_plain, alternatives)):
            raise ValueError("only text, numbers, booleans, dates and the like can come as text")
        values = {_text_of(option): option for part in alternatives for option in _options(part)}
        kinds = {part.get("type") for part in alternatives if "enum" not in part}
        if "boolean" in kinds:
            values |= _BOOLEANS
        return cls(
            name,
            _word("title", schema, *alternatives),
            _word("description", schema, *alternatives),
            required,
            tuple(values),
            values,
            frozenset(kind for kind in kinds if isinstance(kind, str)),
        )

    def read(self, text: str) -> Any:
        """The value that a text says; the text itself if it says none. Never fails."""
        if text in self._values:
            return self._values[text]
        if len(text) > MAX_DIGITS:
            return text
        if "boolean" in self._kinds and text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        if "integer" in self._kinds and _INTEGER.fullmatch(text):
            return int(text)
        if "number" in self._kinds and _NUMBER.fullmatch(text):
            number = float(text)
            return number if math.isfinite(number) else text
        return text


@attrs.frozen(eq=False)
class TextArguments:
    """All arguments of one function, by name, in order."""

    by_name: Mapping[str, TextArgument]
    _schema: FunctionSchema

    @classmethod
    def of(cls, schema: FunctionSchema) -> TextArguments:
        """Raises :class:`.SignatureError` for a parameter that no text can be."""
        required = schema.input_schema.get("required", ())
        by_name = {}
        for name, part in schema.input_schema["properties"].items():
            try:
                by_name[name] = TextArgument.of(name, part, required=name in required)
            except ValueError as error:
                raise SignatureError(
                    f"parameter {name!r} cannot be offered: {error}; take a str and parse it"
                ) from None
        return cls(by_name, schema)

    def bind(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Keyword arguments for the function. Raises :class:`.InvalidArguments`."""
        known = self.by_name
        return self._schema.bind(
            {
                name: known[name].read(text) if name in known else text
                for name, text in texts.items()
            }
        )


def _alternatives(schema: Schema) -> Iterator[Schema]:
    """The schemas that one value may fit, unions taken apart, without that of null."""
    union = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if not union and schema.get("type") != "null":
        yield schema
    for part in union:
        yield from _alternatives(part)


def _is_plain(schema: Schema) -> bool:
    """Whether one text can be all of it: no array, no object."""
    if schema.keys() & {"$ref", "allOf"}:
        return False
    kind = schema.get("type", "string")  # without one any value fits, so a text does too
    return "enum" in schema or kind in ("string", "integer", "number", "boolean")


def _options(schema: Schema) -> list[Any]:
    return [option for option in schema.get("enum", ()) if option is not None]


def _text_of(option: Any) -> str:
    if isinstance(option, bool):
        return "true" if option else "false"
    return str(option)


def _word(key: str, *schemas: Schema) -> str | None:
    """The first text under this key."""
    return next((schema[key] for schema in schemas if key in schema), None)
