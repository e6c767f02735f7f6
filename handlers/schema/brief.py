"""One problem instead of all: what is said about values too large to be explained in full.

The validator makes all errors of a value before it shows the first, and of a union those of every
alternative. That is bounded by asking beforehand how many there can be (`is_costly`,
`errors_per_part`), and by a second schema that accepts the same values and never compares
alternatives in its errors (`without_alternatives`): its first error is found in linear time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from .type_schemas import Schema, map_parts, parts_of, reference_of

__all__ = ["alternatives", "errors_per_part", "is_costly", "without_alternatives"]

#: So many characters of names above a value cost as much as one more error: each error copies them.
CHARACTERS_PER_ERROR = 10_000

_UNIONS = ("anyOf", "oneOf")
_WORDS = frozenset({"title", "description", "default", "examples", "deprecated"})
_OF_NUMBERS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
)
_KEYWORDS = {  # that say nothing about values of other types
    "null": frozenset[str](),
    "boolean": frozenset[str](),
    "integer": _OF_NUMBERS,
    "number": _OF_NUMBERS,
    "string": frozenset({"minLength", "maxLength", "pattern", "contentEncoding"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}),
    "object": frozenset(
        {
            "properties",
            "required",
            "additionalProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
        }
    ),
}


def is_costly(value: Any, limit: float) -> bool:
    """Whether a value made of builtins has more than ``limit`` parts; long names count as parts."""
    rest: list[tuple[Any, int]] = [(value, 0)]
    cost = 1
    while rest:
        item, above = rest.pop()
        if not isinstance(item, (dict, list, tuple)):
            continue
        cost += len(item)
        if cost > limit:
            return True
        named = item.items() if isinstance(item, dict) else zip(itertools.repeat(""), item)
        for name, part in named:
            length = above + len(name)
            cost += length // CHARACTERS_PER_ERROR
            rest.append((part, length))
    return cost > limit


def errors_per_part(root: Schema) -> float:
    """How many errors one part of a value has at most, about; infinite for some recursive unions.

    Alternatives add up. Where two of them lead back to the union, each level doubles the errors.
    """
    definitions: dict[str, Schema] = root.get("$defs", {})
    reach = {name: _reached(schema, definitions) for name, schema in definitions.items()}
    known: dict[str, float] = {}

    def most(schema: Any, within: str | None) -> float:
        if not isinstance(schema, dict):
            return 1
        own, elsewhere = 1.0 + len(schema.get("required", ())), 0.0
        if (name := reference_of(schema)) is not None:
            if name not in known:
                known[name] = 0.0  # stops the recursion
                known[name] = most(definitions[name], name)
            own += known[name]
        options = [option for keyword in _UNIONS for option in schema.get(keyword, ())]
        if sum(within in _reached(option, definitions, reach) for option in options) > 1:
            return math.inf
        own += sum(most(option, within) for option in options)
        for part in parts_of({key: part for key, part in schema.items() if key not in _UNIONS}):
            elsewhere = max(elsewhere, most(part, within))
        return max(own, elsewhere)

    parts = [*root.get("properties", {}).values(), *definitions.values()]
    if root.keys() & {"items", "anyOf", "oneOf", "additionalProperties", "prefixItems"}:
        parts.append({key: part for key, part in root.items() if key != "$defs"})
    for name, schema in definitions.items():
        known[name] = 0.0
        known[name] = most(schema, name)
    return max((most(part, None) for part in parts), default=1.0)


def without_alternatives(schema: Any) -> Any:
    """A schema that accepts the same, and whose errors are not about alternatives one by one.

    Alternatives of different types become one schema with several types, whose errors are as
    precise as before. For others there is one error (see `alternatives`).
    """
    if not isinstance(schema, dict) or _hidden(schema) is not None:
        return schema
    schema = map_parts(schema, without_alternatives)
    for keyword in _UNIONS:
        if keyword not in schema:
            continue
        options = schema.pop(keyword)
        merged = _merged(options)
        if merged is not None and not merged.keys() & schema.keys():
            schema.update(merged)
        else:
            hidden = {"not": {"not": {keyword: options}}}
            schema["allOf"] = [*schema.get("allOf", ()), hidden]
    return schema


def alternatives(schema: Schema) -> Schema | None:
    """The union that `without_alternatives` has hidden in a schema, if it has."""
    parts = (schema, *schema.get("allOf", ()))
    return next((union for part in parts if (union := _hidden(part)) is not None), None)


def _hidden(schema: Any) -> Schema | None:
    inner = schema.get("not") if isinstance(schema, dict) else None
    union = inner.get("not") if isinstance(inner, dict) and len(inner) == 1 else None
    hidden = isinstance(union, dict) and len(union) == 1 and union.keys() <= set(_UNIONS)
    return union if hidden else None


def _reached(
    schema: Any, definitions: dict[str, Schema], known: dict[str, set[str]] | None = None
) -> set[str]:
    """The names of the definitions that a schema refers to, also by way of others."""
    found: set[str] = set()
    rest = [schema]
    while rest:
        part = rest.pop()
        name = reference_of(part)
        if name is not None and name not in found:
            found.add(name)
            if known is not None and name in known:
                found |= known[name]
            else:
                rest.append(definitions[name])
        rest.extend(parts_of(part))
    return found


def _merged(options: Sequence[Any]) -> Schema | None:
    """One schema for alternatives of types that exclude each other."""
    merged: Schema = {"type": []}
    numbers = 0
    for option in options:
        types = option.get("type") if isinstance(option, dict) else None
        types = [types] if isinstance(types, str) else types or ["unknown"]
        if not all(kind in _KEYWORDS and kind not in merged["type"] for kind in types):
            return None
        keywords = {key: part for key, part in option.items() if key not in {"type", *_WORDS}}
        if not keywords.keys() <= frozenset[str]().union(*(_KEYWORDS[kind] for kind in types)):
            return None
        numbers += "integer" in types or "number" in types
        merged["type"] += types
        merged.update(keywords)
    return merged if numbers <= 1 else None
