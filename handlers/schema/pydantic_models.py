"""`pydantic` models (version 2) as arguments and results; imported only if the application does.

Pydantic converts and checks values of its own classes, wherever they are in an annotation; its
schemas become part of ours.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs
import msgspec

from ...runtime.jsonrpc import encode
from .docstrings import parse_docstring
from .fields import MAX_HASHED

if TYPE_CHECKING:
    import pydantic

__all__ = [
    "ModelProblems",
    "describe_models",
    "dump_model",
    "is_field",
    "is_model",
    "load_model",
    "unfolded",
]

Schema = dict[str, Any]

_FIELDS = (dataclasses.Field, type(attrs.field()), type(msgspec.field()))

#: How many of a model's errors are kept; more than are ever shown.
MAX_ERRORS = 20
#: What pydantic writes before the message of an exception.
_PREFIXES = ("Value error, ", "Assertion failed, ")


class ModelProblems(ValueError):
    """What pydantic says about a value: for each error its place in the model, and words."""

    def __init__(self, problems: Sequence[tuple[tuple[str | int, ...], str]]) -> None:
        self.problems = problems
        super().__init__("; ".join(text for _, text in problems))


def is_model(cls: Any) -> bool:
    """Whether it is a class of models. False, at no cost, where nobody has imported pydantic."""
    module: Any = sys.modules.get("pydantic")
    base = getattr(module, "BaseModel", None)
    return (
        base is not None
        and hasattr(base, "model_json_schema")  # version 2
        and isinstance(cls, type)
        and issubclass(cls, base)
    )


def unfolded(metadata: Iterable[Any]) -> Iterator[Any]:
    """Metadata of ``Annotated``, with the constraints and words of a ``pydantic.Field`` apart."""
    module: Any = sys.modules.get("pydantic.fields")
    field_info = getattr(module, "FieldInfo", ())
    for item in metadata:
        if not isinstance(item, field_info):
            yield item
            continue
        yield from item.metadata
        if item.description is not None:
            yield str(item.description)
        for part in item.metadata:
            if isinstance(pattern := getattr(part, "pattern", None), str):
                yield msgspec.Meta(pattern=pattern)


def is_field(value: Any) -> bool:
    """Whether it describes a field, by `pydantic.Field`, `attrs.field` and the like: no value."""
    module: Any = sys.modules.get("pydantic.fields")
    return isinstance(value, (*_FIELDS, *([module.FieldInfo] if module is not None else [])))


def load_model(cls: Any, value: Any) -> Any:
    """A model from builtins, by the rules that pydantic has for JSON. Raises `ModelProblems`."""
    if isinstance(value, cls):
        return value
    import pydantic

    try:
        return cls.model_validate_json(encode(value))
    except pydantic.ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        problems = [(one["loc"], _plain(one["msg"])) for one in errors[:MAX_ERRORS]]
        raise ModelProblems(problems) from None


def _plain(message: str) -> str:
    for prefix in _PREFIXES:
        message = message.removeprefix(prefix)
    return message


def dump_model(model: pydantic.BaseModel) -> Any:
    """Builtins from a model, under the names that its schema has."""
    return model.model_dump(mode="json", by_alias=True, warnings="none")


def describe_models(
    models: Iterable[Any], *, incoming: bool, taken: Iterable[str]
) -> tuple[dict[Any, str], dict[str, Schema]]:
    """The name of each model's definition, and the definitions, none of a name that is ``taken``.

    Raises pydantic's errors for models that have no JSON Schema.
    """
    models = list(models)
    if not models:
        return {}, {}
    names, definitions = _described(models, incoming, "")
    if not definitions.keys().isdisjoint(taken):
        names, definitions = _described(models, incoming, "pydantic.")
    for definition in definitions.values():
        _polish(definition)
        if incoming:
            _bound_sets(definition)
    return names, definitions


def _described(
    models: list[Any], incoming: bool, prefix: str
) -> tuple[dict[Any, str], dict[str, Schema]]:
    from pydantic.json_schema import models_json_schema

    mode: Literal["validation", "serialization"] = "validation" if incoming else "serialization"
    references, described = models_json_schema(
        [(model, mode) for model in models],
        ref_template=f"#/$defs/{prefix}{{model}}",
        schema_generator=_generator(),
    )
    names = {
        model: reference["$ref"].removeprefix("#/$defs/")
        for (model, _), reference in references.items()
    }
    return names, {prefix + name: part for name, part in described.get("$defs", {}).items()}


def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class WithoutTitles(GenerateJsonSchema):
        """Titles made from the names of fields tell a model nothing."""

        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

    return WithoutTitles


def _polish(definition: Schema) -> None:
    definition.pop("title", None)
    if "description" not in definition:
        return
    doc = parse_docstring(definition.pop("description"))
    if doc.description:
        definition["description"] = doc.description
    for name, text in doc.parameters.items():
        place = definition.get("properties", {}).get(name)
        if isinstance(place, dict):
            place.setdefault("description", text)


def _bound_sets(schema: Any) -> None:
    """Sets of numbers can be made slow by whoever sends them: see `MAX_HASHED`."""
    rest = [schema]
    while rest:
        part = rest.pop()
        if isinstance(part, list):
            rest.extend(part)
        elif isinstance(part, dict):
            if part.get("uniqueItems") is True and part.get("type") == "array":
                part.setdefault("maxItems", MAX_HASHED)
            rest.extend(part.values())
