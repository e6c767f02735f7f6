"""JSON Schema (2020-12) of translated types.

`msgspec` writes the schemas; this module makes them pleasant to read for a model: no generated
titles, no reference where the definition can stand in its place (definitions that are used twice or
refer to themselves stay under ``$defs``), texts of fields from docstrings and ``Annotated``,
properties in the order of their definition.
"""

from __future__ import annotations

import enum
import pathlib
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args, get_origin

import msgspec

from .docstrings import parse_docstring
from .fields import UnsupportedAnnotation
from .pydantic_models import describe_models
from .type_hints import MARK_HASHED, MAX_HASHED, REFUSALS, Choice, Translation

__all__ = [
    "Schema",
    "describe_types",
    "is_open",
    "map_parts",
    "parts_of",
    "reference_of",
    "self_contained",
]

Schema = dict[str, Any]

_ONE = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_LIST = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_MAP = frozenset(
    {
        "$defs",
        "definitions",
        "dependencies",
        "dependentSchemas",
        "patternProperties",
        "properties",
    }
)
_TYPE_NAMES = {str: "string", int: "integer", bool: "boolean"}
_DEFS = "#/$defs/"
_CHOICE = "#/choices/"
_MODEL = "#/models/"


def describe_types(
    types: Sequence[Any], translation: Translation
) -> tuple[list[Schema], dict[str, Schema]]:
    """The schemas of some types, and the definitions that they refer to.

    Raises:
        UnsupportedAnnotation: a type among them has no JSON form.
    """
    members = [member for choice in translation.choices for member in choice.members]
    groups = [list(types), list(translation.classes), members, list(translation.overrides.values())]

    models = list(translation.models)

    def custom(kind: type) -> Schema:
        if kind in translation.models:
            return {"$ref": f"{_MODEL}{models.index(kind)}"}
        if issubclass(kind, Choice):
            return {"$ref": f"{_CHOICE}{translation.choices.index(kind)}"}
        if issubclass(kind, pathlib.PurePath):
            return {"type": "string", "format": "path"}
        raise UnsupportedAnnotation(
            f"{getattr(kind, '__name__', kind)} has no JSON Schema; use a builtin type, an attrs "
            "class, a dataclass, a TypedDict, a NamedTuple, a msgspec.Struct or a pydantic model"
        )

    try:
        described, definitions = msgspec.json.schema_components(
            [item for group in groups for item in group], schema_hook=custom
        )
    except UnsupportedAnnotation:
        raise
    except REFUSALS as error:
        raise UnsupportedAnnotation(" ".join(str(error).split())) from error
    rest = iter(described)
    roots, classes, parts, overrides = ([next(rest) for _ in group] for group in groups)

    names = {
        cls: schema["$ref"].removeprefix(_DEFS)
        for cls, schema in zip(translation.classes, classes, strict=True)
    }
    for (cls, key), schema in zip(translation.overrides, overrides, strict=True):
        _replace_property(definitions[names[cls]], cls, key, schema)
    for cls, key in translation.hidden:
        _drop_property(definitions[names[cls]], key)
    for cls, name in names.items():
        _polish_class(definitions[name], cls)
    for definition in definitions.values():
        definition.pop("title", None)

    model_names = _add_models(models, definitions, incoming=translation.incoming)
    choices = _grouped(parts, [len(choice.members) for choice in translation.choices])
    resolve = _resolver(choices, model_names)
    return (
        [resolve(root) for root in roots],
        {name: resolve(definition) for name, definition in definitions.items()},
    )


def in_written_order(annotation: Any, schema: Schema) -> Schema:
    """The schema of an annotation, with the values of its ``Literal`` as they were written, and not
    in alphabetical order. Those in the fields of classes are left as they are."""
    orders = {frozenset(get_args(literal)): get_args(literal) for literal in _literals(annotation)}

    def place(part: Any) -> Any:
        part = map_parts(part, place)
        values = part.get("enum", ()) if isinstance(part, dict) else ()
        plain = all(isinstance(value, (str, int)) for value in values)
        written = orders.get(frozenset(values)) if values and plain else None
        return {**part, "enum": list(written)} if written else part

    return place(schema) if orders else schema


def _literals(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Literal:
        yield annotation
        return
    for part in get_args(annotation):
        yield from _literals(part)


def self_contained(root: Schema, definitions: dict[str, Schema]) -> Schema:
    """One schema with everything it refers to, in place or under its own ``$defs``."""
    counts: dict[str, int] = {}

    def count(schema: Any) -> None:
        if name := reference_of(schema):
            counts[name] = counts.get(name, 0) + 1
            if counts[name] == 1:
                count(definitions[name])
        for part in parts_of(schema):
            count(part)

    count(root)
    kept: Schema = {}

    def place(schema: Any) -> Any:
        name = reference_of(schema)
        if name is None:
            return map_parts(schema, place)
        if counts[name] > 1 and "enum" not in definitions[name]:  # recursion counts twice
            if name not in kept:
                kept[name] = None  # stops the recursion
                kept[name] = place(definitions[name])
            return schema
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return {**place(definitions[name]), **beside}

    placed: Schema = place(root)
    return {**placed, "$defs": kept} if kept else placed


def is_open(schema: Any, *, extras: bool = False) -> bool:
    """Whether some place in a schema takes any JSON value whatever.

    ``extras`` counts objects that may have more properties than the schema names.
    """
    if not isinstance(schema, dict):
        return schema is True
    kind = schema.get("type")
    if kind == "array" and not schema.keys() & {"items", "prefixItems"}:
        return True
    named = {"additionalProperties"} if extras else {"properties", "additionalProperties"}
    if kind == "object" and not schema.keys() & named:
        return True
    if not schema.keys() & {"type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"}:
        return True
    return any(is_open(part, extras=extras) for part in parts_of(schema, names=False))


def _add_models(
    models: Sequence[Any], definitions: dict[str, Schema], *, incoming: bool
) -> list[str]:
    """Add the definitions of pydantic's models; returns their names, in order."""
    try:
        names, more = describe_models(models, incoming=incoming, taken=list(definitions))
    except Exception as error:  # whatever pydantic and its plug-ins raise
        raise UnsupportedAnnotation(" ".join(str(error).split())) from error
    definitions.update(more)
    return [names[model] for model in models]


# -- one definition --------------------------------------------------------------------------------


def _polish_class(definition: Schema, cls: Any) -> None:
    origin = getattr(cls, "__origin__", cls)
    if issubclass(origin, enum.Enum):
        definition["enum"] = [member.value for member in origin]
        return
    if "description" in definition:
        doc = parse_docstring(definition.pop("description"))
        if doc.description:
            definition["description"] = doc.description
        for name, text in doc.parameters.items():
            place = _find_property(definition, origin, name)
            if place is not None:
                place.setdefault("description", text)
    if issubclass(origin, dict):  # a TypedDict, whose keys msgspec sorts
        order = {name: at for at, name in enumerate(typing.get_type_hints(origin))}
        properties = sorted(definition["properties"].items(), key=lambda item: order[item[0]])
        definition["properties"] = dict(properties)
        definition["required"].sort(key=order.__getitem__)
    if definition.get("required") == []:
        del definition["required"]


def _find_property(definition: Schema, cls: type, key: str) -> Schema | None:
    if definition["type"] == "object":
        found: Schema | None = definition["properties"].get(key)
        return found
    fields: Sequence[str] = getattr(cls, "_fields", getattr(cls, "__struct_fields__", ()))
    return definition["prefixItems"][fields.index(key)] if key in fields else None


def _replace_property(definition: Schema, cls: Any, key: str, schema: Schema) -> None:
    place = _find_property(definition, getattr(cls, "__origin__", cls), key)
    if place is not None:
        default = {"default": place["default"]} if "default" in place else {}
        place.clear()
        place.update(schema | default)


def _drop_property(definition: Schema, key: str) -> None:
    definition["properties"].pop(key, None)
    if key in definition["required"]:
        definition["required"].remove(key)


# -- walking ---------------------------------------------------------------------------------------


def reference_of(schema: Any) -> str | None:
    """The name of the definition that a schema refers to."""
    target = schema.get("$ref") if isinstance(schema, dict) else None
    if isinstance(target, str) and target.startswith(_DEFS):
        return target.removeprefix(_DEFS)
    return None


def parts_of(schema: Any, *, names: bool = True) -> Iterator[Any]:
    """The direct subschemas (``names=False``: without those for names of properties)."""
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in _ONE and not isinstance(value, list):
            if names or key != "propertyNames":
                yield value
        elif key in _ONE or key in _LIST:
            yield from value
        elif key in _MAP:
            yield from value.values()


def map_parts(schema: Any, change: Callable[[Any], Any]) -> Any:
    """A schema with its direct subschemas changed."""
    if not isinstance(schema, dict):
        return schema
    changed: Schema = {}
    for key, value in schema.items():
        if key in _ONE and not isinstance(value, list):
            changed[key] = change(value)
        elif key in _ONE or key in _LIST:  # "items" may be a list in older dialects
            changed[key] = [change(part) for part in value]
        elif key in _MAP:
            changed[key] = {name: change(part) for name, part in value.items()}
        else:
            changed[key] = value
    return changed


def _resolver(choices: list[list[Schema]], models: Sequence[str]) -> Callable[[Any], Any]:
    def resolve(schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        schema = map_parts(schema, resolve)
        schema.pop("discriminator", None)  # OpenAPI's, with references of its own
        if schema.pop(MARK_HASHED, False):
            bound = "maxItems" if schema.get("type") == "array" else "maxProperties"
            schema.setdefault(bound, MAX_HASHED)
        kinds = {_TYPE_NAMES.get(type(option)) for option in schema.get("enum", ())}
        if len(kinds) == 1 and None not in kinds:
            schema = {"type": kinds.pop(), **schema}
        target = schema.get("$ref", "")
        if target.startswith(_MODEL):
            schema["$ref"] = _DEFS + models[int(target.removeprefix(_MODEL))]
        if not target.startswith(_CHOICE):
            return schema
        del schema["$ref"]
        options = choices[int(target.removeprefix(_CHOICE))]
        return {"anyOf": [resolve(option) for option in options], **schema}

    return resolve


def _grouped(items: list[Schema], sizes: list[int]) -> list[list[Schema]]:
    rest = iter(items)
    return [[next(rest) for _ in range(size)] for size in sizes]
