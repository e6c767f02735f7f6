"""The one converter between models and JSON values.

Theory of operation. cattrs compiles one function per model and direction; the hooks below tell it
what JSON means. Reading is strict about types and tolerant about everything else:

- nothing is coerced: a string is a string, an integer is no boolean and no float, a number may be
  an integer or a float and stays what it is;
- a member that the model does not know is ignored; an optional member may be null, which is the
  same as absent;
- whatever is typed as a JSON value or JSON object passes through untouched.

Writing omits optional members that are not set and writes all others, so a member with a real
default (``resultType``) is always there. Unions of models are told apart by the member that is a
one-value ``Literal`` in each of them: ``type``, ``method``, ``mode`` or ``resultType``. New models
need no entry here.

cattrs' detailed validation, which collects errors with notes about where they are, costs less than
0.1 µs per model when there are none; so there is no second converter for the error texts.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, overload

import attrs
from cattrs import Converter
from cattrs.errors import ClassValidationError, IterableValidationNote
from cattrs.fns import identity
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from .base import UNSET, JSONObject, JSONValue
from .content import BlobResourceContents, TextResourceContents, UnknownContent
from .problems import NOTHING, Mismatch, one_of, problems, wire_name

__all__ = ["ModelError", "structure", "unstructure"]

_T = TypeVar("_T")
_Reader = Callable[[Any, Any], Any]
"""A structuring hook: called with the JSON value and with the type, which ours know already."""
_Writer = Callable[[Any], Any]

_ABSENT_TAG: Final = {"resultType": "complete", "mode": "form"}
"""Members that tell models apart and may be missing, and what that means."""

_converter: Final = Converter(detailed_validation=True)


class ModelError(ValueError):
    """A JSON value is not a valid message of its type.

    The text names the first few problems by their JSON path, for example ``params.arguments:
    expected an object, got a string``. It is short, one line, and safe to log or to send to a
    peer.
    """


@overload
def structure(cls: type[_T], data: JSONValue, *, at: str = ...) -> _T: ...
@overload
def structure(cls: types.UnionType, data: JSONValue, *, at: str = ...) -> Any: ...
def structure(cls: Any, data: JSONValue, *, at: str = "") -> Any:
    """Make a model of a decoded JSON value.

    `cls` is a model, or a union of models that differ in their ``type``, ``method``, ``mode`` or
    ``resultType``. `at` is the path of `data` in its message (``"params"``), for the error text.
    The model shares the JSON objects inside of `data` (arguments, metadata) and does not copy them.

    Raises `ModelError` if `data` does not fit.
    """
    try:
        return _converter.structure(data, cls)
    except (ClassValidationError, Mismatch) as error:
        raise ModelError("; ".join(problems(error, at))) from None


def unstructure(obj: Any) -> JSONObject:
    """Make the JSON object of a model, ready to be encoded.

    It shares the JSON values inside of the model and does not copy them. The types of the
    attributes are not checked: that is the type checker's work.
    """
    result: JSONObject = _converter.unstructure(obj)
    return result


# Plain values


def _read_string(value: Any, _: Any) -> str:
    if isinstance(value, str):
        return value
    raise Mismatch.of_kind("a string", value)


def _read_integer(value: Any, _: Any) -> int:
    if type(value) is int:
        return value
    raise Mismatch.of_kind("an integer", value)


def _read_number(value: Any, _: Any) -> float:
    if type(value) is float or type(value) is int:
        return value
    raise Mismatch.of_kind("a number", value)


def _read_boolean(value: Any, _: Any) -> bool:
    if type(value) is bool:
        return value
    raise Mismatch.of_kind("a boolean", value)


def _read_string_or_integer(value: Any, _: Any) -> str | int:
    if isinstance(value, str) or type(value) is int:
        return value
    raise Mismatch.of_kind("a string or an integer", value)


def _literal_reader(type_: Any) -> _Reader:
    allowed = frozenset(get_args(type_))
    expected = one_of(get_args(type_))

    def read_literal(value: Any, _: Any) -> str:
        if isinstance(value, str) and value in allowed:
            return value
        raise Mismatch.of_value(expected, value)

    return read_literal


# Arrays and objects


def _list_reader(type_: Any) -> _Reader:
    (item_type,) = get_args(type_)
    read_item = _converter.get_structure_hook(item_type)

    def read_list(value: Any, _: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Mismatch.of_kind("an array", value)
        items: list[Any] = []
        try:
            for item in value:
                items.append(read_item(item, item_type))  # a loop, to know where it stopped
        except (ClassValidationError, Mismatch) as error:
            error.add_note(IterableValidationNote("in an array", len(items), item_type))
            raise
        return items

    return read_list


def _list_writer(type_: Any) -> _Writer:
    (item_type,) = get_args(type_)
    write_item = _converter.get_unstructure_hook(item_type)
    if write_item is identity:
        return identity

    def write_list(items: list[Any]) -> list[Any]:
        return [write_item(item) for item in items]

    return write_list


def _object_reader(type_: Any) -> _Reader:
    """For objects without a model; one whose values may be anything stays what it is."""
    _, value_type = get_args(type_)
    read_value = None if value_type is Any else _converter.get_structure_hook(value_type)

    def read_object(value: Any, _: Any) -> JSONObject:
        if not isinstance(value, dict):
            raise Mismatch.of_kind("an object", value)
        if read_value is None:
            return value
        items: JSONObject = {}
        for name, item in value.items():
            try:
                items[name] = read_value(item, value_type)
            except (ClassValidationError, Mismatch) as error:
                error.add_note(IterableValidationNote("in an object", name, value_type))
                raise
        return items

    return read_object


def _object_writer(type_: Any) -> _Writer:
    _, value_type = get_args(type_)
    write_value = _converter.get_unstructure_hook(value_type)
    if write_value is identity:
        return identity

    def write_object(items: dict[str, Any]) -> JSONObject:
        return {name: write_value(item) for name, item in items.items()}

    return write_object


# Models


def _fields(model: type[Any]) -> tuple[attrs.Attribute[Any], ...]:
    fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(attrs.resolve_types(model))
    return fields


def _tag(model: type[Any]) -> tuple[str, str]:
    """The member that tells this model from others, and its value."""
    for field in _fields(model):
        if get_origin(field.type) is Literal and len(get_args(field.type)) == 1:
            return wire_name(field), get_args(field.type)[0]
    raise TypeError(f"{model.__name__} has nothing that tells it from other models")


def _wrong_tag(value: JSONObject, member: str, expected: str) -> Mismatch:
    """The error for an object whose `member` does not say `expected`."""
    if member in value:
        error = Mismatch.of_value(expected, value[member])
    else:
        error = Mismatch(expected, NOTHING)
    error.add_note(IterableValidationNote("in an object", member, str))
    return error


@cache
def _model_reader(model: type[Any]) -> _Reader:
    renames: dict[str, Any] = {
        field.name: override(rename=wire_name(field)) for field in _fields(model)
    }
    read_members = make_dict_structure_fn(model, _converter, **renames)
    constants = {wire_name(field): str(field.default) for field in _fields(model) if not field.init}

    def read_model(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise Mismatch.of_kind("an object", value)
        for member, constant in constants.items():
            if value.get(member) != constant:
                raise _wrong_tag(value, member, one_of([constant]))
        return read_members(value, model)

    return read_model


@cache
def _model_writer(model: type[Any]) -> _Writer:
    overrides: dict[str, Any] = {
        field.name: override(
            rename=wire_name(field),
            omit_if_default=field.default is None or field.default is UNSET,
        )
        for field in _fields(model)
    }
    return make_dict_unstructure_fn(model, _converter, _cattrs_include_init_false=True, **overrides)


def _read_unknown_content(value: Any, _: Any) -> UnknownContent:
    if not isinstance(value, dict):
        raise Mismatch.of_kind("an object", value)
    if not isinstance(value.get("type"), str):
        raise _wrong_tag(value, "type", "a string")
    return UnknownContent(value)


def _write_unknown_content(content: UnknownContent) -> JSONObject:
    return content.raw


# Unions


def _is_union(type_: Any) -> bool:
    return get_origin(type_) in (Union, types.UnionType)


def _union_reader(type_: Any) -> _Reader:
    members = [member for member in get_args(type_) if member is not types.NoneType]
    if len(members) == 1:
        read = _converter.get_structure_hook(members[0])
    elif str in members and all(m is str or get_origin(m) is Literal for m in members):
        read = _read_string
    elif set(members) == {str, int}:
        read = _read_string_or_integer
    elif set(members) == {TextResourceContents, BlobResourceContents}:
        read = _resource_contents_reader()
    elif any(get_origin(member) is list for member in members):
        read = _one_or_list_reader(members)
    else:
        read = _tagged_union_reader(members)
    if len(members) == len(get_args(type_)):
        return read

    def read_optional(value: Any, _: Any) -> Any:
        return None if value is None else read(value, _)

    return read_optional


def _union_writer(type_: Any) -> _Writer:
    members = [member for member in get_args(type_) if member is not types.NoneType]
    writers = [_converter.get_unstructure_hook(member) for member in members]
    if all(writer is identity for writer in writers):
        return identity
    if len(writers) > 1:
        return _converter.unstructure  # by the class of the value
    (write,) = writers

    def write_optional(value: Any) -> Any:
        return None if value is None else write(value)

    return write_optional


def _tagged_union_reader(members: list[Any]) -> _Reader:
    models = [member for member in members if member is not UnknownContent]
    tag_member, _ = _tag(models[0])
    readers = {_tag(model)[1]: _converter.get_structure_hook(model) for model in models}
    otherwise = _read_unknown_content if UnknownContent in members else None
    absent = _ABSENT_TAG.get(tag_member)

    def read_tagged_union(value: Any, _: Any) -> Any:
        if not isinstance(value, dict):
            raise Mismatch.of_kind("an object", value)
        tag = value.get(tag_member, absent)
        read = readers.get(tag, otherwise) if isinstance(tag, str) else otherwise
        if read is None:
            raise _wrong_tag(value, tag_member, one_of(readers))
        return read(value, _)

    return read_tagged_union


def _one_or_list_reader(members: list[Any]) -> _Reader:
    """For one model or a list of them."""
    (list_type,) = (member for member in members if get_origin(member) is list)
    read_list = _list_reader(list_type)
    read_one = _tagged_union_reader([member for member in members if member is not list_type])

    def read_one_or_list(value: Any, _: Any) -> Any:
        if isinstance(value, list):
            return read_list(value, _)
        if isinstance(value, dict):
            return read_one(value, _)
        raise Mismatch.of_kind("an object or an array", value)

    return read_one_or_list


def _resource_contents_reader() -> _Reader:
    """Text and binary contents have no tag; each has a member that the other one lacks."""
    read_text = _converter.get_structure_hook(TextResourceContents)
    read_blob = _converter.get_structure_hook(BlobResourceContents)

    def read_resource_contents(value: Any, _: Any) -> Any:
        is_blob = isinstance(value, dict) and value.get("text") is None and "blob" in value
        return read_blob(value, _) if is_blob else read_text(value, _)

    return read_resource_contents


# Registration


def _has_origin(origin: Any) -> Callable[[Any], bool]:
    return lambda type_: get_origin(type_) is origin


def _is_plain(type_: Any) -> bool:
    """Whether values of the type are written as they are."""
    return type_ in (Any, bool, dict, float, int, str, types.NoneType) or (
        get_origin(type_) is Literal
    )


def _register_hooks(converter: Converter) -> None:
    converter.register_structure_hook(bool, _read_boolean)
    converter.register_structure_hook(float, _read_number)
    converter.register_structure_hook(int, _read_integer)
    converter.register_structure_hook(str, _read_string)
    converter.register_structure_hook_factory(_has_origin(Literal), _literal_reader)
    converter.register_structure_hook_factory(_has_origin(list), _list_reader)
    converter.register_structure_hook_factory(_has_origin(dict), _object_reader)
    converter.register_structure_hook_factory(_is_union, _union_reader)
    converter.register_structure_hook_factory(attrs.has, _model_reader)
    converter.register_structure_hook(UnknownContent, _read_unknown_content)

    converter.register_unstructure_hook_func(_is_plain, identity)
    converter.register_unstructure_hook_factory(_has_origin(list), _list_writer)
    converter.register_unstructure_hook_factory(_has_origin(dict), _object_writer)
    converter.register_unstructure_hook_factory(_is_union, _union_writer)
    converter.register_unstructure_hook_factory(attrs.has, _model_writer)
    converter.register_unstructure_hook(UnknownContent, _write_unknown_content)


_register_hooks(_converter)
