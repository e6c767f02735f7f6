"""Type hints: from what users write to what `msgspec` converts and describes.

`msgspec` knows most annotations already. A `Translation` adds what it lacks and keeps account of
what the JSON Schema needs to know afterwards:

- metadata in ``Annotated``: a bare string is a description; any object with the attributes of the
  `annotated_types` vocabulary (``ge``, ``max_length`` …) is a constraint; constraints on a union
  reach the members they fit. Other metadata is ignored, as ``Annotated`` asks for.
- unions that `msgspec` refuses (several classes, `str` beside `datetime` …) become a `Choice`,
  whose members are tried in turn.
- paths, and date and number formats that a schema should name.
- sets, and mappings with keys other than strings: arguments have at most `MAX_HASHED` entries,
  unless the annotation gives a ``max_length`` of its own.

Inside of a class, `msgspec` reads the annotations itself: a union it refuses is refused there, and
what only the schema can say about a field is kept in ``overrides``.
"""

from __future__ import annotations

import collections.abc
import datetime
import decimal
import enum
import functools
import operator
import pathlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal, Union, cast, get_args, get_origin

import attrs
import msgspec

from ...runtime.mirrored import HEADER_KEYWORD
from .fields import (
    MAX_HASHED,
    Field,
    UnsupportedAnnotation,
    class_hints,
    fields_of,
    has_fields,
)
from .pydantic_models import dump_model, is_model, load_model, unfolded

__all__ = [
    "MARK_HASHED",
    "MAX_HASHED",
    "REFUSALS",
    "Choice",
    "McpHeader",
    "Translation",
    "base_value",
    "convert_custom",
    "encode_custom",
]

#: The name of the remark in a schema that `MAX_HASHED` applies; it is never published.
MARK_HASHED = "x-hashed"

_DECIMAL_PATTERN = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_FORMATTED: dict[Any, msgspec.Meta] = {
    datetime.datetime: msgspec.Meta(extra_json_schema={"format": "date-time"}),
    datetime.time: msgspec.Meta(extra_json_schema={"format": "time"}),
    decimal.Decimal: msgspec.Meta(extra_json_schema={"pattern": _DECIMAL_PATTERN}),
}
_BOUNDS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length")
_LIMITS = (*_BOUNDS, "pattern", "tz")
_WORDS = ("title", "description", "examples", "extra_json_schema", "extra")
_TYPE_ALIAS = getattr(typing, "TypeAliasType", None)  # Python 3.12
_FIELD_QUALIFIERS = tuple(
    getattr(typing, name)
    for name in ("Required", "NotRequired", "ReadOnly", "Final")
    if hasattr(typing, name)
)
_UNION: Any = Union  # to be made from members that only run time knows
_ARRAYS: dict[Any, Any] = {collections.abc.Iterable: list}
_HASHED = msgspec.Meta(extra_json_schema={MARK_HASHED: True})
_UNFORESEEN = (
    str,
    bytes,
    datetime.date,
    datetime.time,
    pathlib.PurePath,
    # and those with few values, or few with the same hash
    bool,
    float,
    enum.Enum,
    type(None),
)


#: What `msgspec` raises for annotations it cannot use.
REFUSALS = (
    TypeError,
    ValueError,
    NameError,
    AttributeError,
    NotImplementedError,
    RecursionError,
)


@attrs.frozen
class McpHeader:
    """``Annotated[str, McpHeader("Region")]``: over HTTP, callers repeat the argument in a header.

    It is called ``Mcp-Param-Region`` then, for proxies to read. For `str`, `int` and `bool`, and
    what is one of them in JSON; not for unions, and never for secrets. Specification: *Tools*,
    "x-mcp-header".
    """

    name: str


class _AnyInstance(type):
    """`msgspec` checks what its ``dec_hook`` made with `isinstance`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class Choice(metaclass=_AnyInstance):
    """The type of a union that `msgspec` cannot tell apart; ``members`` are tried in turn."""

    members: ClassVar[tuple[Any, ...]] = ()


def convert_custom(kind: type, value: Any) -> Any:
    """`msgspec`'s ``dec_hook`` for everything a `Translation` makes."""
    if issubclass(kind, Choice):
        for convert in _best_first(kind, value):
            try:
                return convert(value)
            except msgspec.ValidationError:
                continue
        raise ValueError("Fits none of the types that are possible here")
    if issubclass(kind, pathlib.PurePath) and isinstance(value, (str, pathlib.PurePath)):
        return kind(value)
    if is_model(kind):
        return load_model(kind, value)
    raise ValueError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


def encode_custom(value: Any) -> Any:
    """`msgspec`'s ``enc_hook``, the way back."""
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if is_model(type(value)):
        return dump_model(value)
    return base_value(value)


def base_value(value: Any) -> Any:
    """The text or number that an object of a subclass is, whatever its class makes of it.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, int):
        return int.__int__(value)
    raise TypeError(f"objects of type {type(value).__name__} have no JSON form")


def _best_first(choice: type[Choice], value: Any) -> Iterator[Callable[[Any], Any]]:
    """Classes ignore keys they do not know: try those first that ignore least."""
    attempts = _attempts(choice)
    if not isinstance(value, dict):
        yield from (convert for convert, _ in attempts)
        return
    sent = value.keys()
    ignoring = []
    for convert, known in attempts:
        if not known or sent <= known:
            yield convert
        else:
            ignoring.append((len(sent - known), convert))
    yield from (convert for _, convert in sorted(ignoring, key=operator.itemgetter(0)))


@functools.lru_cache(maxsize=1024)
def _attempts(choice: type[Choice]) -> list[tuple[Callable[[Any], Any], frozenset[str]]]:
    """How to convert to each member, and the keys it knows (none: all of them)."""
    return [(_converter(member), frozenset(_keys(member))) for member in choice.members]


def _converter(member: Any) -> Callable[[Any], Any]:
    return functools.partial(msgspec.convert, type=member, dec_hook=convert_custom, str_keys=True)


def _keys(member: Any) -> list[str]:
    cls = _without_metadata(get_origin(member) or member)
    return [field.key for field in fields_of(cls, {})] if isinstance(cls, type) else []


@attrs.define
class Translation:
    """Translates annotations and remembers what it met.

    ``incoming`` says which way values go: into the program (arguments) or out of it (results).
    """

    incoming: bool
    #: every enumeration and class with fields that was met, generic ones with their arguments
    classes: dict[Any, None] = attrs.field(factory=dict)
    #: (class, property): what `msgspec` would not say about it by itself
    overrides: dict[tuple[Any, str], Any] = attrs.field(factory=dict)
    #: (class, property) that never appears in JSON
    hidden: set[tuple[Any, str]] = attrs.field(factory=set)
    #: pydantic's models, which describe themselves
    models: dict[Any, None] = attrs.field(factory=dict)
    choices: list[type[Choice]] = attrs.field(factory=list)
    #: `convert_custom` is needed
    custom: bool = False
    #: some mapping has keys other than strings
    converted_keys: bool = False
    _aliases: list[Any] = attrs.field(factory=list)

    def translate(self, annotation: Any) -> Any:
        """What to hand to `msgspec` instead; raises `UnsupportedAnnotation`."""
        if annotation is None:
            return type(None)
        if annotation is object:
            return Any
        if isinstance(annotation, type) and annotation in _FORMATTED:
            return Annotated[annotation, _FORMATTED[annotation]]
        origin = get_origin(annotation)
        if origin is Annotated:
            base, *metadata = get_args(annotation)
            return self._annotated(self.translate(base), metadata)
        if origin is Union or origin is types.UnionType:
            return self._union([self.translate(member) for member in get_args(annotation)])
        if origin in _FIELD_QUALIFIERS:
            return self.translate(get_args(annotation)[0])
        if origin is Literal:
            return annotation
        if hasattr(annotation, "__supertype__"):  # NewType
            return self.translate(annotation.__supertype__)
        if _TYPE_ALIAS is not None and isinstance(annotation, _TYPE_ALIAS):
            return self._alias(annotation)
        if origin is not None:
            bare = annotation is typing.Tuple  # noqa: UP006
            return tuple if bare else self._generic(origin, get_args(annotation))
        if isinstance(annotation, type):
            self._meet(annotation)
            return self._counted(_ARRAYS.get(annotation, annotation), annotation, (Any,))
        return annotation

    def _alias(self, alias: Any) -> Any:
        if alias in self._aliases:
            raise UnsupportedAnnotation(
                f"the type alias {alias} refers to itself; use a class for recursive data"
            )
        self._aliases.append(alias)
        try:
            return self.translate(alias.__value__)
        finally:
            self._aliases.pop()

    def _generic(self, origin: Any, args: tuple[Any, ...]) -> Any:
        args = tuple(arg if arg is ... else self.translate(arg) for arg in args)
        origin = _ARRAYS.get(origin, origin)
        if not args:
            return tuple[()] if origin is tuple else origin
        if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
            self.converted_keys |= args[0] not in (str, Any)
        alias = origin[args]
        self._meet(origin, alias)
        return self._counted(alias, origin, args)

    def _counted(self, annotation: Any, origin: Any, args: tuple[Any, ...]) -> Any:
        """Where an argument's entries are hashed, there are at most `MAX_HASHED`."""
        if not (self.incoming and isinstance(origin, type)):
            return annotation
        is_set = issubclass(origin, collections.abc.Set)
        is_mapping = issubclass(origin, collections.abc.Mapping) and len(args) == 2
        if (is_set or is_mapping) and _collides(args[0], in_set=is_set):
            return Annotated[annotation, _HASHED]
        return annotation

    def _union(self, members: list[Any]) -> Any:
        members = [m for member in members for m in _members(member) or (member,)]
        union = _UNION[tuple(members)]
        if _complaint(union) is None:
            return union
        for member in members:
            if complaint := _complaint(member):
                raise UnsupportedAnnotation(complaint)
        members.sort(key=_takes_any_string)
        choice = cast(type[Choice], _AnyInstance("Choice", (Choice,), {"members": tuple(members)}))
        self.choices.append(choice)
        self.custom = True
        return choice

    def _annotated(self, base: Any, metadata: Iterable[Any]) -> Any:
        metas = [meta for item in unfolded(metadata) if (meta := _as_meta(item)) is not None]
        if not metas:
            return base
        whole = Annotated[(base, *metas)]
        complaint = _complaint(whole)
        if complaint is None:
            return Annotated[(base, *map(_with_pattern_in_schema, metas))]
        members = _members(_without_metadata(base))
        if members is None:
            raise UnsupportedAnnotation(complaint)
        if get_origin(base) is Annotated:
            metas = [*base.__metadata__, *metas]
        words = [_part(meta, _WORDS) for meta in metas]
        limits = [{name: value} for meta in metas for name, value in _part(meta, _LIMITS).items()]
        return self._annotated(
            self._union(_distribute(members, limits)), [msgspec.Meta(**w) for w in words if w]
        )

    def _meet(self, cls: Any, alias: Any = None) -> None:
        if not isinstance(cls, type):
            return
        if issubclass(cls, pathlib.PurePath):
            self.custom = True
        if is_model(cls):
            self.custom = True
            self.models[cls] = None
            return
        owner = cls if alias is None else alias
        if not (has_fields(cls) or issubclass(cls, enum.Enum)) or owner in self.classes:
            return
        self.classes[owner] = None
        for field in fields_of(cls, class_hints(cls) if has_fields(cls) else {}):
            self._meet_field(owner, cls, field)

    def _meet_field(self, owner: Any, cls: type, field: Field) -> None:
        where = f"field {field.key!r} of class {cls.__name__}"
        if field.hidden:
            self.hidden.add((owner, field.key))
        if self.incoming and field.obstacle:
            raise UnsupportedAnnotation(
                f"{where} {field.obstacle}; take a class made for arguments, or plain parameters"
            )
        choices = len(self.choices)
        try:
            translated = self.translate(field.annotation)
        except UnsupportedAnnotation as error:
            raise UnsupportedAnnotation(f"{where}: {error}") from error
        if len(self.choices) > choices:
            raise UnsupportedAnnotation(
                f"{where} is a union whose members cannot be told apart from their JSON; "
                "give it one type, or make the members msgspec.Struct classes with tag=True"
            )
        if translated != field.annotation and not getattr(translated, "__parameters__", ()):
            self.overrides[owner, field.key] = translated


# -- annotations -----------------------------------------------------------------------------------


def _complaint(annotation: Any) -> str | None:
    """What `msgspec` has against an annotation."""
    try:
        msgspec.msgpack.Decoder(annotation)
    except REFUSALS as error:
        return str(error)
    return None


def _members(annotation: Any) -> tuple[Any, ...] | None:
    if isinstance(annotation, type) and issubclass(annotation, Choice):
        return annotation.members
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return None


def _without_metadata(annotation: Any) -> Any:
    return annotation.__origin__ if get_origin(annotation) is Annotated else annotation


def _takes_any_string(annotation: Any) -> bool:
    """Such members are tried last: a date is a string too."""
    kind = _without_metadata(annotation)
    return isinstance(kind, type) and issubclass(kind, (str, bytes, pathlib.PurePath))


def _as_meta(item: Any) -> msgspec.Meta | None:
    """One piece of ``Annotated`` metadata as `msgspec` wants it; None if it says nothing to us."""
    if isinstance(item, msgspec.Meta):
        return item
    if isinstance(item, str):
        return msgspec.Meta(description=item)
    if isinstance(item, McpHeader):
        return msgspec.Meta(extra_json_schema={HEADER_KEYWORD: item.name})
    if isinstance(item, type):
        return None
    bounds: dict[str, Any] = {}
    for name in _BOUNDS:
        value = getattr(item, name, None)
        if value is None or callable(value):
            continue
        bounds[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    try:
        return msgspec.Meta(**bounds) if bounds else None
    except (TypeError, ValueError) as error:
        raise UnsupportedAnnotation(f"the constraint {item!r} cannot be used: {error}") from error


def _with_pattern_in_schema(meta: msgspec.Meta) -> msgspec.Meta:
    """The validator alone matches patterns, in bounded time; `msgspec` would do it again by `re`,
    which takes exponential time for some patterns and texts."""
    if meta.pattern is None:
        return meta
    kept = _part(meta, tuple(name for name in (*_LIMITS, *_WORDS) if name != "pattern"))
    extra = {**(meta.extra_json_schema or {}), "pattern": meta.pattern}
    return msgspec.Meta(**{**kept, "extra_json_schema": extra})


def _part(meta: msgspec.Meta, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(meta, name)) is not None}


def _distribute(members: Iterable[Any], limits: list[dict[str, Any]]) -> list[Any]:
    """Put each limit on the members of a union that can have it; one at least must."""
    members = list(members)
    for limit in limits:
        limited = [Annotated[member, msgspec.Meta(**limit)] for member in members]
        fits = [_complaint(annotation) is None for annotation in limited]
        if not any(fits):
            raise UnsupportedAnnotation(str(_complaint(limited[0])))
        meta = _with_pattern_in_schema(msgspec.Meta(**limit))
        members = [
            Annotated[member, meta] if fit else member
            for member, fit in zip(members, fits, strict=True)
        ]
    return members


def _collides(annotation: Any, *, in_set: bool) -> bool:
    """Whether a peer can send many of these that have the same hash."""
    kind = _without_metadata(annotation)
    members = _members(kind)
    if members is not None:
        return any(_collides(member, in_set=in_set) for member in members)
    if get_origin(kind) is Literal:
        return False
    if kind is Any:
        return in_set  # as a key it stays a string
    return not (isinstance(kind, type) and issubclass(kind, _UNFORESEEN))
