"""``key=value`` words on the command line, to the arguments that a tool's schema asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from .failure import USAGE, CommandError

__all__ = ["parameters_of", "parse_arguments", "type_name"]

_ANY: Final = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})

_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}

_EXAMPLES: Final[Mapping[str, str]] = {
    "boolean": "true or false",
    "array": 'an array like \'["a", "b"]\'',
    "object": "an object like '{\"a\": 1}'",
    "null": "null",
}


def parse_arguments(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call, typed as the tool's input schema says.

    ``key=value``: a parameter that may be a string takes the text as it is; any other takes JSON of
    its type; one without a type takes JSON, or else the text. ``key:=JSON`` takes JSON for any.
    Raises :class:`CommandError` with one line that says what to write instead.
    """
    properties = parameters_of(schema)
    arguments: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key in ("", ":"):
            raise _wrong(f"{word!r} is no argument; write key=value, or key:=JSON")
        forced = key.endswith(":")
        key = key.removesuffix(":")
        if key in arguments:
            raise _wrong(f"{key} is given twice; a list is {key}='[…]'")
        if key not in properties and schema.get("additionalProperties") is False:
            raise _wrong(f"there is no parameter {key!r}; {_offer(properties)}")
        arguments[key] = (
            _forced(key, text) if forced else _value(key, text, properties.get(key, {}), schema)
        )
    missing = [key for key in schema.get("required", ()) if key not in arguments]
    if missing:
        raise _wrong(f"missing: {', '.join(missing)}; {_offer(properties)}")
    return arguments


def parameters_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of each parameter, in the tool's order."""
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def type_name(schema: Any, root: Mapping[str, Any]) -> str:
    """A parameter's type in a few words: ``integer``, ``array of string``, ``"a" or "b"``."""
    schema = _resolved(schema, root)
    options = schema.get("enum")
    if isinstance(options, list) and options:
        return " or ".join(_json(option) for option in options)
    if "const" in schema:
        return _json(schema["const"])
    kinds = sorted(_kinds(schema, root), key=list(_TYPES.values()).index)
    if len(kinds) == len(_ANY):
        return "any"
    if kinds == ["array"] and isinstance(schema.get("items"), dict):
        return f"array of {type_name(schema['items'], root)}"
    return " or ".join(kinds)


def _value(key: str, text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    kinds = _kinds(schema, root)
    if "string" in kinds and kinds != _ANY:
        return text
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        if kinds == _ANY:
            return text
        raise _wrong(f"{key}={text}: expected {_expected(kinds)}") from None
    kind = _TYPES[type(value)]
    if kind in kinds or (kind == "integer" and "number" in kinds):
        return value
    raise _wrong(f"{key}={text}: expected {_expected(kinds)}, this is {_article(kind)}")


def _forced(key: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise _wrong(f"{key}:={text}: this is no JSON ({error})") from None


def _kinds(schema: Any, root: Mapping[str, Any], depth: int = 8) -> frozenset[str]:
    """The JSON types that a schema allows, as far as it says so plainly."""
    schema = _resolved(schema, root)
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared}) & _ANY
    if isinstance(declared, list):
        return _ANY.intersection(kind for kind in declared if isinstance(kind, str))
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return frozenset(_TYPES[type(value)] for value in values)
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list) and options and depth:
            return frozenset().union(*(_kinds(option, root, depth - 1) for option in options))
    return _ANY


def _resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Where a reference into the tool's own ``$defs`` leads; ``{}`` for what cannot be followed."""
    seen = 0
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str) and seen < 8:
        definitions = root.get("$defs")
        name = schema["$ref"].removeprefix("#/$defs/")
        schema = definitions.get(name) if isinstance(definitions, dict) else None
        seen += 1
    return schema if isinstance(schema, dict) and "$ref" not in schema else {}


def _expected(kinds: frozenset[str]) -> str:
    known = [kind for kind in _TYPES.values() if kind in kinds]
    return " or ".join(_EXAMPLES.get(kind, _article(kind)) for kind in known) or "something else"


def _article(kind: str) -> str:
    return kind if kind == "null" else f"an {kind}" if kind[0] in "aio" else f"a {kind}"


def _offer(properties: Mapping[str, Any]) -> str:
    if not properties:
        return "the tool takes no arguments"
    return f"the tool takes {', '.join(properties)}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _wrong(message: str) -> CommandError:
    return CommandError(message, USAGE)
