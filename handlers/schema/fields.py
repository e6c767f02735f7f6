"""The fields of classes: `msgspec.Struct`, attrs, dataclasses, named tuples and ``TypedDict``."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any

import attrs
import msgspec

__all__ = [
    "MAX_HASHED",
    "Field",
    "UnsupportedAnnotation",
    "class_hints",
    "fields_of",
    "has_fields",
]

#: How many entries an argument may have that is a set, or a mapping with keys that are no strings.
#: Python's hashes of numbers are no secret: whoever sends numbers with the same hash makes each
#: entry as slow as there are entries before it (1,000: 5 ms, 10,000: 0.5 s, 100,000: a minute).
#: Entries whose hash nobody can foresee, such as strings and dates, are not counted.
MAX_HASHED = 1_000


class UnsupportedAnnotation(TypeError):
    """An annotation that has no JSON Schema or that JSON cannot be converted to."""


@attrs.frozen
class Field:
    key: str
    annotation: Any = Any
    obstacle: str | None = None
    hidden: bool = False


def has_fields(cls: type) -> bool:
    return (
        attrs.has(cls)
        or dataclasses.is_dataclass(cls)
        or typing.is_typeddict(cls)
        or issubclass(cls, msgspec.Struct)
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
        or (issubclass(cls, dict) and hasattr(cls, "__total__"))
    )


def class_hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception as error:  # whatever evaluating an annotation raises
        raise UnsupportedAnnotation(
            f"the annotations of class {cls.__name__} cannot be resolved ({error}); "
            "define what they name at module level"
        ) from error


def fields_of(cls: type, hints: dict[str, Any]) -> Iterator[Field]:
    """The fields in the order of their definition; empty for other classes."""
    if issubclass(cls, msgspec.Struct):
        for name, key in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True):
            yield Field(key, hints.get(name, Any))
    elif attrs.has(cls):
        for attribute in attrs.fields(cls):
            yield Field(
                attribute.name,
                hints.get(attribute.name, attribute.type or Any),
                _attrs_obstacle(attribute),
                hidden=attribute.name.startswith("_"),
            )
    elif dataclasses.is_dataclass(cls):
        for item in dataclasses.fields(cls):
            obstacle = None if item.init else "has init=False, so it is no argument"
            yield Field(item.name, hints.get(item.name, Any), obstacle)
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        for name in cls._fields:
            yield Field(name, hints.get(name, Any))
    elif issubclass(cls, dict) and hasattr(cls, "__total__"):
        for name in hints or cls.__annotations__:
            yield Field(name, hints.get(name, Any))


def _attrs_obstacle(attribute: attrs.Attribute[Any]) -> str | None:
    if attribute.name.startswith("_"):
        return "is private"
    if not attribute.init:
        return "has init=False, so it is no argument"
    if attribute.converter is not None:
        return "has a converter, which conversion from JSON would not run"
    return None
