"""Schemas that the application gives: published as they are, and bounded before they are used.

JSON Schema 2020-12, or 2019-09 or draft-07 if ``$schema`` says so. Nothing is ever fetched: a
reference leads to somewhere in the same schema, by pointer, by ``$anchor``, or by an ``$id`` in it.
Patterns are those of an engine that takes linear time, so without look-around and back-references.

A schema costs at most what `visits_of` counts: definitions that refer to others more than once can
make a small schema expand without end. Recursive ones are not expanded: the validator remembers
what it has looked at.

Specification: *Base Protocol*, "JSON Schema Usage".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn
from urllib.parse import unquote, urldefrag, urljoin

import attrs
import jsonschema_rs
import msgspec

from ...runtime.jsonrpc import encode
from ...runtime.limits import Limits

__all__ = ["DIALECTS", "GivenSchema", "Visits", "mentions_unevaluated", "visits_of"]

Schema = dict[str, Any]

DIALECTS: Final[dict[str, Any]] = {
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
}
_DEFAULT: Final = next(iter(DIALECTS))
_FOREIGN: Final = re.compile(r"Resource '(?P<uri>[^']{1,200})")
_NO_REGEX: Final = re.compile(r'"(?P<pattern>.{1,100}?)" is not a "regex"', re.DOTALL)
#: What a reference counts that leads to one of the validator's own documents.
_UNKNOWN: Final = 1_000.0

_IN_PLACE = frozenset({"not", "if", "then", "else"})
_IN_PLACE_LISTS = frozenset({"allOf", "anyOf", "oneOf"})
_IN_PLACE_MAPS = frozenset({"dependentSchemas", "dependencies"})
_INSIDE = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "items",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_NAMED = frozenset({"$defs", "definitions"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


@attrs.frozen(eq=False)
class GivenSchema:
    """A schema that was looked at, and how to make a validator of its dialect."""

    schema: Schema
    errors_per_part: float
    make: Callable[[Any], Any]

    @classmethod
    def of(cls, schema: Any, what: str, limits: Limits) -> GivenSchema:
        """A copy of the schema. Raises ``ValueError`` or ``TypeError`` for one that is refused.

        :param what: names it in messages: ``"the input schema"``.
        """
        try:
            copy = _bounded_copy(schema, limits)
            dialect = _dialect_of(copy)
            make = _maker(DIALECTS[dialect])
            make(copy)
            visits = visits_of(copy, dialect, limits)
        except jsonschema_rs.ValidationError as error:
            raise ValueError(f"{what} cannot be used: {_words(error)}") from None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{what} cannot be used: {error}") from None
        except TypeError as error:
            raise TypeError(f"{what} cannot be used: {error}") from None
        return cls(copy, visits.errors, make)


def mentions_unevaluated(schema: Schema) -> bool:
    """Whether it has keywords that depend on what other keywords have looked at."""
    keywords = {"unevaluatedItems", "unevaluatedProperties"}
    return any(part.keys() & keywords for part in _all_parts(schema))


def _refuse_to_retrieve(uri: str) -> NoReturn:
    raise ValueError(f"references to other documents are not followed: {uri}")


def _maker(validator: Any) -> Callable[[Any], Any]:
    def make(schema: Any) -> Any:
        return validator(
            schema,
            validate_formats=True,
            retriever=_refuse_to_retrieve,
            pattern_options=jsonschema_rs.RegexOptions(),
        )

    return make


def _words(error: jsonschema_rs.ValidationError) -> str:
    text = str(error.message)
    if foreign := _FOREIGN.match(text):
        return f"it refers to another document, and none is ever fetched: {foreign['uri']}"
    if pattern := _NO_REGEX.match(text):
        return (
            f"the pattern {pattern['pattern']!r} is not one that can be matched in linear time "
            "(no look-around, no back-references, bounded repetitions)"
        )
    where = "/".join(str(step) for step in error.instance_path)
    return f"{text[:300]}{f' (at {where[:100]})' if where else ''}"


def _dialect_of(schema: Schema) -> str:
    """The dialect of a schema, and of every schema in it."""
    dialect = schema.get("$schema", _DEFAULT)
    name = dialect.removesuffix("#") if isinstance(dialect, str) else None
    if name not in DIALECTS:
        raise ValueError(f"$schema {dialect!r} is not supported; use one of {', '.join(DIALECTS)}")
    for part in _all_parts(schema):
        other = part.get("$schema", dialect)
        if other != dialect:
            raise ValueError(f"a schema inside of it has another $schema: {other!r}")
    return name


def _bounded_copy(schema: Any, limits: Limits) -> Schema:
    if not isinstance(schema, dict):
        raise TypeError(f"it is no JSON object but {type(schema).__name__}; pass a dict")
    level: list[Any] = [schema]
    count = 0
    for _ in range(limits.schema_depth):
        inside: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                if not all(isinstance(key, str) for key in item):
                    raise TypeError("a key in it is no text")
                inside.extend(item.values())
            elif isinstance(item, (list, tuple)):
                inside.extend(item)
            elif item is not None and not isinstance(item, (str, int, float)):
                raise TypeError(f"it holds a {type(item).__name__}, which is no JSON")
            count += 1
        if count + len(inside) > limits.schema_bytes:
            raise ValueError(f"it is longer than {limits.schema_bytes} bytes (schema_bytes)")
        if not inside:
            break
        level = inside
    else:
        raise ValueError(f"it has more than {limits.schema_depth} levels (schema_depth)")
    data = encode(schema)
    if len(data) > limits.schema_bytes:
        raise ValueError(f"it is longer than {limits.schema_bytes} bytes (schema_bytes)")
    copy: Schema = msgspec.json.decode(data)
    return copy


# What a schema costs ------------------------------------------------------------------------------


@attrs.frozen
class Visits:
    """What it costs to look at one place of a value, and what is said about it.

    ``count`` is how often schemas look at it, about, without recursion; ``errors`` how many errors
    there can be, infinite where a recursive schema leads back to itself more than once.
    """

    count: float
    errors: float


def visits_of(schema: Schema, dialect: str, limits: Limits) -> Visits:
    """Raises ``ValueError`` for a schema that costs too much."""
    survey = _Survey(schema, dialect, limits)
    whole = survey.visit(schema)
    if whole.count > limits.schema_visits:
        raise ValueError(
            "its references expand to too many schemas: more than "
            f"{limits.schema_visits} (schema_visits)"
        )
    return Visits(whole.count, math.inf if survey.doubles else whole.count)


@attrs.frozen
class _Cost:
    """``back`` counts, by identity, how often a schema leads back to one that it is part of."""

    count: float = 0.0
    height: int = 0
    back: dict[int, int] = attrs.field(factory=dict)

    def __add__(self, other: _Cost) -> _Cost:
        back = dict(self.back)
        for key, count in other.back.items():
            back[key] = back.get(key, 0) + count
        return _Cost(self.count + other.count, max(self.height, other.height), back)

    def __or__(self, other: _Cost) -> _Cost:
        """Of two that never look at the same place."""
        back = dict(self.back)
        for key, count in other.back.items():
            back[key] = max(back.get(key, 0), count)
        return _Cost(max(self.count, other.count), max(self.height, other.height), back)


class _Survey:
    """Walks through a schema along its references."""

    def __init__(self, root: Schema, dialect: str, limits: Limits) -> None:
        self.doubles = False
        self._limits = limits
        self._resources: dict[str, Schema] = {}
        self._anchors: dict[str, list[Schema]] = {}
        self._bases: dict[int, str] = {}
        self._known: dict[int, _Cost] = {}
        self._active: set[int] = set()
        self._index(root)

    def _index(self, root: Schema) -> None:
        self._resources[""] = root
        rest: list[tuple[str, Any]] = [("", root)]
        while rest:
            base, schema = rest.pop()
            if not isinstance(schema, dict):
                continue
            if isinstance(schema.get("$id"), str):
                base = urldefrag(urljoin(base, schema["$id"])).url
                self._resources[base] = schema
            self._bases[id(schema)] = base
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(schema.get(keyword), str):
                    self._anchors.setdefault(schema[keyword], []).append(schema)
            rest.extend((base, part) for part in _parts(schema))

    def visit(self, schema: Any) -> _Cost:
        if not isinstance(schema, dict):
            return _Cost(1.0, 1)
        key = id(schema)
        if key in self._active:
            return _Cost(1.0, 1, {key: 1})
        if key in self._known:
            return self._known[key]
        if len(self._active) >= self._limits.schema_depth:
            self._refuse_height()
        self._active.add(key)
        inner = _total(self._within(schema))
        self._active.remove(key)
        if sum(inner.back.values()) > 1:
            self.doubles = True
        required = schema.get("required", ())
        own = 1.0 + (len(required) if isinstance(required, list) else 0)
        back = {other: count for other, count in inner.back.items() if other != key}
        cost = self._known[key] = _Cost(own + inner.count, 1 + inner.height, back)
        if cost.height > self._limits.schema_depth:
            self._refuse_height()
        return cost

    def _refuse_height(self) -> NoReturn:
        raise ValueError(
            f"with its references it has more than {self._limits.schema_depth} levels "
            "(schema_depth)"
        )

    def _within(self, schema: Schema) -> Iterator[_Cost]:
        """What else looks at the same place, or at one inside of it."""
        for keyword, value in schema.items():
            if keyword in _REFERENCES and isinstance(value, str):
                yield self._follow(keyword, value, self._bases.get(id(schema), ""))
            elif keyword in _IN_PLACE_LISTS and isinstance(value, list):
                yield from map(self.visit, value)
            elif keyword in _IN_PLACE_MAPS and isinstance(value, dict):
                yield from (self.visit(part) for part in value.values() if isinstance(part, dict))
            elif keyword == "properties" and isinstance(value, dict):
                yield _either(map(self.visit, value.values()))
            elif keyword in ("prefixItems", "items") and isinstance(value, list):
                yield _either(map(self.visit, value))
            elif keyword == "patternProperties" and isinstance(value, dict):
                yield from map(self.visit, value.values())
            elif (keyword in _IN_PLACE or keyword in _INSIDE) and isinstance(value, dict):
                yield self.visit(value)

    def _follow(self, keyword: str, reference: str, base: str) -> _Cost:
        found = self._targets(keyword, reference, base)
        if not found:
            self.doubles = True
            return _Cost(_UNKNOWN, 1)
        return _total(map(self.visit, found))

    def _targets(self, keyword: str, reference: str, base: str) -> list[Any]:
        """More than one where only a value decides."""
        url, fragment = urldefrag(urljoin(base, reference))
        if fragment and not fragment.startswith("/"):
            anchored = self._anchors.get(unquote(fragment), [])
            if keyword == "$dynamicRef":
                return anchored
            own = [schema for schema in anchored if self._bases[id(schema)] == url]
            return own or anchored
        target: Any = self._resources.get(url)
        for step in unquote(fragment).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict):
                target = target.get(step)
            elif isinstance(target, list) and step.isdecimal() and int(step) < len(target):
                target = target[int(step)]
            else:
                target = None
        if isinstance(target, dict):
            self._bases.setdefault(id(target), url)
        return [] if target is None else [target]


def _total(costs: Iterable[_Cost]) -> _Cost:
    return sum(costs, _Cost())


def _either(costs: Iterable[_Cost]) -> _Cost:
    whole = _Cost()
    for cost in costs:
        whole |= cost
    return whole


def _parts(schema: Schema) -> Iterator[Any]:
    for keyword, value in schema.items():
        if keyword in _IN_PLACE or keyword in _INSIDE or keyword in _IN_PLACE_LISTS:
            yield from value if isinstance(value, list) else (value,)
        elif keyword == "prefixItems" and isinstance(value, list):
            yield from value
        elif (
            keyword in _NAMED
            or keyword in _IN_PLACE_MAPS
            or keyword in ("properties", "patternProperties")
        ) and isinstance(value, dict):
            yield from value.values()


def _all_parts(schema: Schema) -> Iterator[Schema]:
    rest: list[Any] = [schema]
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            yield part
            rest.extend(_parts(part))
