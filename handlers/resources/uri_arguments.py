"""The variables of a URI template as the arguments of a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from ...runtime.context import Context
from ...runtime.models.content import BlobResourceContents, TextResourceContents
from ...runtime.models.resources import ReadResourceResult
from ..schema.signature import FunctionSchema, InvalidArguments, inspect_function
from ..schema.texts import TextArgument
from ..schema.type_schemas import Schema
from .uri_templates import UriTemplate

__all__ = ["UriArguments"]

_CONTENTS: Final = (TextResourceContents, BlobResourceContents, ReadResourceResult)
_URI: Final = "uri"
_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_EXPLODED: Final = re.compile(r"([A-Za-z0-9_.%]+)\*")


@attrs.frozen(eq=False)
class UriArguments:
    """How the texts in a URI become what a function takes.

    Each variable is the parameter of its name; that of ``{list*}`` takes a list, which is empty if
    the URI has none of it and the function no default. A parameter named ``uri`` that is no
    variable takes the whole URI.
    """

    schema: FunctionSchema
    _readers: Mapping[str, TextArgument]
    _lists: frozenset[str]
    _takes_uri: bool

    @classmethod
    def of(cls, function: Callable[..., Any], template: UriTemplate | None) -> UriArguments:
        """Raises ``ValueError`` unless parameters and variables are the same, ``TypeError`` for a
        signature that cannot be offered."""
        schema = inspect_function(function, context_type=Context, unstructured_types=_CONTENTS)
        properties = dict(schema.input_schema["properties"])
        variables = template.variables if template is not None else ()
        takes_uri = _URI in properties and _URI not in variables
        if takes_uri and properties.pop(_URI).get("type", "string") != "string":
            raise ValueError("the parameter 'uri' takes the URI that was asked for, a str")
        _check_names(variables, properties)
        lists = frozenset(_exploded(template.text)) if template is not None else frozenset[str]()
        readers = {}
        for name in variables:
            try:
                readers[name] = _reader(name, properties[name], is_list=name in lists)
            except ValueError as error:
                raise ValueError(f"the parameter {name!r} cannot be a variable: {error}") from None
        return cls(schema, readers, lists & {*schema.input_schema.get("required", ())}, takes_uri)

    def bind(self, uri: str, values: Mapping[str, str | list[str]]) -> dict[str, Any] | None:
        """Keyword arguments for these values of the variables; ``None`` if they do not fit."""
        arguments: dict[str, Any] = {name: [] for name in self._lists}
        if self._takes_uri:
            arguments[_URI] = uri
        for name, value in values.items():
            read = self._readers[name].read
            arguments[name] = read(value) if isinstance(value, str) else [read(v) for v in value]
        try:
            return self.schema.bind(arguments)
        except InvalidArguments:
            return None


def _check_names(variables: tuple[str, ...], parameters: Mapping[str, Any]) -> None:
    for name in variables:
        if name not in parameters:
            raise ValueError(f"the variable {name!r} of the URI is no parameter of the function")
    for name in parameters:
        if name not in variables:
            raise ValueError(f"the parameter {name!r} is no variable of the URI")


def _exploded(template: str) -> Iterator[str]:
    """The variables of a template that are lists."""
    for expression in _EXPRESSION.findall(template):
        yield from _EXPLODED.findall(expression)


def _reader(name: str, schema: Schema, *, is_list: bool) -> TextArgument:
    """Raises ``ValueError`` for what no text, or no list of texts, can be."""
    anything = not schema.keys() & {"type", "enum", "anyOf", "oneOf", "$ref"}
    if is_list:
        if not anything and schema.get("type") != "array":
            raise ValueError(f"{{{name}*}} is a list; annotate it list[str]")
        items = schema.get("items")
        schema = items if isinstance(items, dict) else {}
    return TextArgument.of(name, schema, required=False)
