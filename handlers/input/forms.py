"""Forms: from a class or a JSON schema to what may be asked, and from its content to a value.

What may be asked is flat: an object whose properties are texts, numbers, booleans, one choice or
several choices (specification: *Elicitation*, "Requested Schema"). What is published is enforced.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs
import jsonschema_rs
import msgspec

from ...runtime.context import Context
from ...runtime.jsonrpc import encode
from ..schema.problems import Checker, has_non_finite, summarise
from ..schema.signature import InvalidArguments, SignatureError, inspect_function

__all__ = ["Form", "Misfit", "form_of"]

#: How many forms are kept ready: by class, and by JSON schema.
_KEPT: Final = 256

_WORDS: Final = {"type", "title", "description", "default"}
_KINDS: Final[dict[str, set[str]]] = {
    "string": {"minLength", "maxLength", "format", "enum", "enumNames", "oneOf"},
    "integer": {"minimum", "maximum"},
    "number": {"minimum", "maximum"},
    "boolean": set(),
    "array": {"minItems", "maxItems", "items"},
}
_FORMATS: Final = ("email", "uri", "date", "date-time")


class Misfit(ValueError):
    """What a client sent does not fit; the text says where and why."""


@attrs.frozen(eq=False)
class Form:
    """A form that clients can show: its schema, and the way from its content to a value."""

    schema: dict[str, Any]
    read: Callable[[dict[str, Any]], Any]
    """Raises :class:`Misfit`."""


def form_of(schema_type: Any) -> Form:
    """The form for a class with fields, or for a JSON schema.

    Raises ``TypeError`` or ``ValueError`` for what cannot be asked.
    """
    if isinstance(schema_type, Mapping):
        try:
            encoded = encode(schema_type)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"the schema of the form is no JSON: {error}") from None
        return _form_of_schema(encoded)
    try:
        hash(schema_type)  # it is kept by it
        return _form_of_class(schema_type)
    except SignatureError as error:
        raise TypeError(f"no form can be made of {schema_type!r}: {error}") from error


# From a class -------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=_KEPT)
def _form_of_class(cls: Any) -> Form:
    def form(content: Any) -> None: ...

    # A form is read as the one argument of a function would be.
    form.__annotations__ = {"content": cls, "return": None}
    taken = inspect_function(form, context_type=Context)
    (schema,) = taken.input_schema["properties"].values()
    name = getattr(cls, "__name__", repr(cls))
    if schema.get("type") != "object" or "properties" not in schema:
        raise TypeError(
            f"no form can be made of {name}: take a class with fields (attrs, dataclass, "
            "TypedDict, msgspec.Struct), or a JSON schema"
        )
    required = schema.get("required", [])
    properties = {
        key: _plain(key, part, name, optional=key not in required)
        for key, part in schema["properties"].items()
    }

    def read(content: dict[str, Any]) -> Any:
        try:
            return taken.bind({"content": content})["content"]
        except InvalidArguments as error:
            raise Misfit(str(error)) from None

    return Form(_form(properties, required), read)


def _plain(key: str, schema: dict[str, Any], name: str, *, optional: bool) -> dict[str, Any]:
    """A property as a form may have it: what is optional is left out, and never null."""
    others = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
    if optional and len(others) == 1:
        rest = {word: value for word, value in schema.items() if word != "anyOf"}
        schema = {**others[0], **rest}
        if schema.get("default", ...) is None:
            del schema["default"]
    schema = dict(schema)
    if "oneOf" in schema:
        schema.pop("enum", None)  # titles, added to a Literal
    if schema.get("type") == "array":
        schema.pop("uniqueItems", None)
        items = schema.get("items")
        if isinstance(items, dict) and "anyOf" in items:
            schema["items"] = {"anyOf": items["anyOf"]}
    try:
        _check_property(key, schema)
    except ValueError as error:
        raise TypeError(f"no form can be made of {name}: {error}") from None
    return schema


# From a JSON schema -------------------------------------------------------------------------------


@functools.lru_cache(maxsize=_KEPT)
def _form_of_schema(encoded: bytes) -> Form:
    schema: dict[str, Any] = msgspec.json.decode(encoded)
    unknown = schema.keys() - {"type", "properties", "required", "$schema", "title", "description"}
    properties = schema.get("properties")
    required = schema.get("required", [])
    if schema.get("type") != "object" or not isinstance(properties, dict):
        raise ValueError('the schema of a form has "type": "object" and "properties"')
    if unknown:
        raise ValueError(f"the schema of a form has no {_listed(unknown)}")
    if not isinstance(required, list) or not all(name in properties for name in required):
        raise ValueError('"required" lists properties of the form')
    for key, part in properties.items():
        _check_property(key, part)
    asked = _form(properties, required)
    try:
        checker = Checker.of("argument", asked, open=False)
    except jsonschema_rs.ValidationError as error:
        raise ValueError(f"the schema of the form is not valid: {error.message}") from None

    def read(content: dict[str, Any]) -> dict[str, Any]:
        if not checker.accepts(content):
            raise Misfit(summarise(checker.explain(content)))
        return {key: value for key, value in content.items() if key in properties}

    return Form(asked, read)


def _form(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    form: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        form["required"] = required
    return form


# What a property may be ---------------------------------------------------------------------------


def _check_property(key: str, schema: Any) -> None:
    """Raises ``ValueError`` unless it is a *PrimitiveSchemaDefinition* of the specification."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(
            f"{key!r} is no text, number, boolean, choice or several choices; forms are flat "
            "(an optional field needs a default)"
        )
    unknown = schema.keys() - _WORDS - _KINDS[kind]
    if unknown:
        raise ValueError(f"{key!r} has {_listed(unknown)}, which forms do not know")
    if "format" in schema and schema["format"] not in _FORMATS:
        raise ValueError(f"{key!r} has the format {schema['format']!r}; forms know {_FORMATS}")
    if kind == "array":
        _check_several(key, schema.get("items"))
    elif "enum" in schema:
        _check_choices(key, schema["enum"])
    elif "oneOf" in schema:
        _check_titled(key, schema["oneOf"])
    if "default" in schema and not _is_kind(schema["default"], kind):
        raise ValueError(f"{key!r} has a default that is no {kind}: {schema['default']!r}")


def _check_several(key: str, items: Any) -> None:
    if isinstance(items, dict) and items.keys() == {"anyOf"}:
        _check_titled(key, items["anyOf"])
    elif isinstance(items, dict) and items.keys() == {"type", "enum"}:
        _check_choices(key, items["enum"] if items["type"] == "string" else None)
    else:
        raise ValueError(f"{key!r} is a list, and forms know lists of given choices only")


def _check_choices(key: str, choices: Any) -> None:
    if not _texts(choices):
        raise ValueError(f"{key!r} has choices that are no texts")


def _check_titled(key: str, choices: Any) -> None:
    for choice in choices if isinstance(choices, list) and choices else [None]:
        if not (
            isinstance(choice, dict)
            and choice.keys() == {"const", "title"}
            and _texts([*choice.values()])
        ):
            raise ValueError(f'{key!r} has choices that are not {{"const": text, "title": text}}')


def _texts(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(type(v) is str for v in values)


def _is_kind(value: Any, kind: str) -> bool:
    if kind == "string":
        return type(value) is str
    if kind == "boolean":
        return type(value) is bool
    if kind == "array":
        return value == [] or _texts(value)
    whole = type(value) is int or (type(value) is float and value.is_integer())
    return whole or (kind == "number" and type(value) is float and not has_non_finite(value))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names))
