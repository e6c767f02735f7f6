"""``key=value`` words on the command line, to the arguments that a tool's schema asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ..runtime.models.prompts import PromptArgument
from .failure import USAGE, CommandError
from .printable import few

__all__ = [
    "check_names",
    "parameters_of",
    "parse_arguments",
    "parse_texts",
    "parse_value",
    "required_of",
    "type_name",
]

_ANY: Final = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})

_REFERENCES: Final = 8
"""References that lead to one another and are followed."""
_ALTERNATIVES: Final = 256
"""Alternatives that are looked at to tell one parameter's types."""
_NESTED: Final = 4
"""Arrays in arrays whose items are named."""
_OPTIONS: Final = 50
"""Values of an enumeration that are named."""

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


def parse_arguments(
    words: Sequence[str], schema: Mapping[str, Any], taker: str = "tool"
) -> dict[str, Any]:
    """The arguments of a call, typed as the tool's input schema says.

    ``key=value``: a parameter that may be a string takes the text as it is; any other takes JSON of
    its type; one without a type takes JSON, or else the text. ``key:=JSON`` takes JSON for any.
    Raises :class:`CommandError` with one line that says what to write instead, and what the
    ``taker`` takes.
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
            raise _unknown(key, schema, taker)
        arguments[key] = (
            _forced(key, text)
            if forced
            else parse_value(key, text, properties.get(key, {}), schema)
        )
    missing = [key for key in required_of(schema) if key not in arguments]
    if missing:
        raise _wrong(f"missing: {few(missing)}; {_offer(schema, taker)}")
    return arguments


def parse_texts(words: Sequence[str], arguments: Sequence[PromptArgument]) -> dict[str, str]:
    """The arguments of a prompt, which are texts: ``key=value`` as it is, ``key:=JSON`` a JSON
    string. Raises as :func:`parse_arguments`."""
    texts = parse_arguments(words, _schema_of(arguments), "prompt")
    for key, text in texts.items():
        if not isinstance(text, str):
            raise _wrong(f"{key}: the arguments of a prompt are texts")
    return texts


def check_names(names: Iterable[str], arguments: Sequence[PromptArgument]) -> None:
    """Raises :class:`CommandError` for one that no argument of the prompt has."""
    schema = _schema_of(arguments)
    for name in names:
        if name not in parameters_of(schema):
            raise _unknown(name, schema, "prompt")


def _schema_of(arguments: Sequence[PromptArgument]) -> dict[str, Any]:
    return {
        "properties": {argument.name: {"type": "string"} for argument in arguments},
        "required": [argument.name for argument in arguments if argument.required],
        "additionalProperties": False,
    }


def parameters_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of each parameter, in the tool's order."""
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def required_of(schema: Mapping[str, Any]) -> list[str]:
    """The names of the parameters that must be given."""
    required = schema.get("required")
    return [key for key in required if isinstance(key, str)] if isinstance(required, list) else []


def type_name(schema: Any, root: Mapping[str, Any], nested: int = _NESTED) -> str:
    """A parameter's type in a few words: ``integer``, ``array of string``, ``"a" or "b"``."""
    schema = _resolved(schema, root)
    options = schema.get("enum")
    if isinstance(options, list) and options:
        names = [_json(option) for option in options[:_OPTIONS]]
        return " or ".join(names if len(options) <= _OPTIONS else [*names, "…"])
    if "const" in schema:
        return _json(schema["const"])
    kinds = sorted(_kinds(schema, root), key=list(_TYPES.values()).index)
    if len(kinds) == len(_ANY):
        return "any"
    if kinds == ["array"] and isinstance(schema.get("items"), dict) and nested:
        return f"array of {type_name(schema['items'], root, nested - 1)}"
    return " or ".join(kinds)


def parse_value(key: str, text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """The text given for ``key``, as :func:`parse_arguments` reads it."""
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


def _kinds(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types that a schema allows, as far as it says so plainly; all if it does not.

    Alternatives may lead back to where they are among: each is looked at once, and not too many.
    """
    kinds: set[str] = set()
    pending, seen = [schema], set[int]()
    left = _ALTERNATIVES
    while pending:
        schema = _resolved(pending.pop(), root)
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        said = _said_kinds(schema)
        options = schema.get("anyOf") or schema.get("oneOf")
        if said is not None:
            kinds |= said
        elif isinstance(options, list) and 0 < len(options) <= left:
            pending += options
            left -= len(options)
        else:
            return _ANY
    return frozenset(kinds) or _ANY


def _said_kinds(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """What a schema itself says, without its alternatives."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return _ANY & {declared}
    if isinstance(declared, list):
        return _ANY.intersection(kind for kind in declared if isinstance(kind, str))
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return frozenset(_TYPES[type(value)] for value in values)
    return None


def _resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """Where a reference into the tool's own ``$defs`` leads; ``{}`` for what cannot be followed."""
    seen = 0
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        if seen == _REFERENCES:
            return {}
        definitions = root.get("$defs")
        name = schema["$ref"].removeprefix("#/$defs/")
        schema = definitions.get(name) if isinstance(definitions, dict) else None
        seen += 1
    return schema if isinstance(schema, dict) and "$ref" not in schema else {}


def _expected(kinds: frozenset[str]) -> str:
    known = [kind for kind in _TYPES.values() if kind in kinds]
    return " or ".join(_EXAMPLES.get(kind, _article(kind)) for kind in known)


def _article(kind: str) -> str:
    return kind if kind == "null" else f"an {kind}" if kind[0] in "aio" else f"a {kind}"


def _unknown(name: str, schema: Mapping[str, Any], taker: str) -> CommandError:
    return _wrong(f"there is no parameter {name!r}; {_offer(schema, taker)}")


def _offer(schema: Mapping[str, Any], taker: str) -> str:
    properties, required = parameters_of(schema), required_of(schema)
    if not properties:
        return f"the {taker} takes no arguments"
    named = (name if name in required else f"[{name}]" for name in properties)
    return f"the {taker} takes {few(named)}"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _wrong(message: str) -> CommandError:
    return CommandError(message, USAGE)
