"""How Python signatures become tools: schemas, arguments, results.

This module uses postponed annotations on purpose: annotations below reach the code as strings.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import inspect
import json
import math
import pathlib
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
    TypeVar,
)

import attrs
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_mcp.handlers.schema.signature import (
    FunctionSchema,
    InvalidArguments,
    OutputError,
    SignatureError,
    inspect_function,
)


class Context:
    """Stands for what handlers get."""


class Content:
    """Stands for a content block."""


def inspected(fn: Callable[..., Any]) -> FunctionSchema:
    return inspect_function(fn, context_type=Context, unstructured_types=(Content,))


def taking(annotation: Any) -> FunctionSchema:
    """A function with one parameter, ``it``."""

    def tool(it: Any) -> None: ...

    tool.__annotations__["it"] = annotation
    return inspected(tool)


def returning(annotation: Any) -> FunctionSchema:
    def tool() -> None: ...

    tool.__annotations__["return"] = annotation
    return inspected(tool)


def refusal(schema: FunctionSchema, arguments: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        schema.bind(arguments)
    return str(caught.value)


# -- the classes of the examples -------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Shade(enum.StrEnum):
    DARK = "dark"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@attrs.frozen
class Book:
    """A printed book.

    Attributes:
        title: What is printed on it.
    """

    title: str
    year: Annotated[int, msgspec.Meta(ge=1450)] = 2000


@dataclasses.dataclass
class Record:
    title: str
    artist: str


class Point(NamedTuple):
    x: int
    y: int = 0


class Movie(TypedDict):
    name: str
    actors: NotRequired[list[str]]


class Leaf(msgspec.Struct):
    name: str
    leaves: list[Leaf] = []


Item = TypeVar("Item")


@attrs.define
class Box(Generic[Item]):
    item: Item


UserId = NewType("UserId", int)


@attrs.frozen
class Ge:
    """Looks like `annotated_types.Ge`, which the library does not import."""

    ge: float


@attrs.frozen
class Len:
    min_length: int
    max_length: int | None = None


def string(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


def array(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def mapping(values: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values, **more}


INTEGER = {"type": "integer"}
STRING = string()
NULL = {"type": "null"}
BOOK = {
    "type": "object",
    "properties": {
        "title": string(description="What is printed on it."),
        "year": {"type": "integer", "minimum": 1450, "default": 2000},
    },
    "required": ["title"],
    "description": "A printed book.",
}
RECORD = {
    "type": "object",
    "properties": {"title": STRING, "artist": STRING},
    "required": ["title", "artist"],
}
MOVIE = {
    "type": "object",
    "properties": {"name": STRING, "actors": array(STRING)},
    "required": ["name"],
}
POINT = {
    "type": "array",
    "prefixItems": [INTEGER, {"type": "integer", "default": 0}],
    "minItems": 1,
    "maxItems": 2,
}
PAIR = {"type": "array", "prefixItems": [INTEGER, STRING], "items": False}
DECIMAL = string(format="decimal", pattern=r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$")
DAY = datetime.date(2026, 1, 31)
NOON = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
FEW = msgspec.Meta(ge=1, le=9, description="How many.")
LOWER = msgspec.Meta(pattern="^[a-z]+$")
NOT_ROOT = {"not": {"const": "root"}, "format": "email"}


@attrs.frozen
class Kind:
    """An annotation, its schema, a good value and what it becomes, a bad one and what is said."""

    annotation: Any
    schema: dict[str, Any]
    good: tuple[Any, Any]
    bad: tuple[Any, str]


KINDS = {
    "int": Kind(int, INTEGER, (5, 5), ("5", 'expected integer, got "5"')),
    "int, not bool": Kind(int, INTEGER, (0, 0), (True, "expected integer, got true")),
    "float": Kind(float, {"type": "number"}, (2, 2.0), ("2", 'expected number, got "2"')),
    "str": Kind(str, STRING, ("a", "a"), (5, "expected string, got 5")),
    "bool": Kind(bool, {"type": "boolean"}, (True, True), (1, "expected boolean, got 1")),
    "None": Kind(None, NULL, (None, None), (0, "expected null, got 0")),
    "Any": Kind(Any, {}, ({"a": [1]}, {"a": [1]}), (math.nan, "expected a finite number, got nan")),
    "object": Kind(object, {}, ([1.5], [1.5]), ([math.inf], "argument 'it[0]'")),
    "NewType": Kind(UserId, INTEGER, (1, 1), ("x", "expected integer")),
    # Alternatives
    "Literal": Kind(
        Literal["a", "b"], string(enum=["a", "b"]), ("a", "a"), ("c", 'one of "a", "b", got "c"')
    ),
    "Literal of kinds": Kind(
        Literal[1, None], {"enum": [None, 1]}, (None, None), (2, "expected one of null, 1, got 2")
    ),
    "Enum": Kind(
        Colour, string(enum=["red", "blue"]), ("red", Colour.RED), ("RED", 'one of "red", "blue"')
    ),
    "StrEnum": Kind(Shade, string(enum=["dark"]), ("dark", Shade.DARK), ("", 'expected "dark"')),
    "IntEnum": Kind(
        Size,
        {"type": "integer", "enum": [1, 2]},
        (2, Size.LARGE),
        (3, "expected one of 1, 2, got 3"),
    ),
    "Optional": Kind(
        int | None, {"anyOf": [INTEGER, NULL]}, (None, None), ("x", 'integer or null, got "x"')
    ),
    "Union": Kind(
        typing.Union[int, str],  # noqa: UP007
        {"anyOf": [INTEGER, STRING]},
        ("x", "x"),
        (1.5, "expected integer or string, got 1.5"),
    ),
    "several classes": Kind(
        Book | Record,
        {"anyOf": [BOOK, RECORD]},
        ({"title": "Blue", "artist": "Joni"}, Record("Blue", "Joni")),
        (5, "expected object, got 5"),
    ),
    "text beside a date": Kind(
        list[str | datetime.date],
        array({"anyOf": [string(format="date"), STRING]}),
        (["2026-01-31", "soon"], [DAY, "soon"]),
        ([5], "expected date such as 2026-01-31 or string, got 5"),
    ),
    # Collections
    "list": Kind(
        list[int], array(INTEGER), ([1, 2], [1, 2]), ([1, "x"], "'it[1]': expected integer")
    ),
    "bare list": Kind(list, {"type": "array"}, ([1, "x"], [1, "x"]), ({}, "got an empty object")),
    "set": Kind(
        set[str],
        array(STRING, uniqueItems=True),
        (["a"], {"a"}),
        (["a", "a"], "the same item twice"),
    ),
    "frozenset": Kind(
        frozenset[int],
        array(INTEGER, uniqueItems=True, maxItems=1000),
        ([1], frozenset({1})),
        ("x", "expected array of integers"),
    ),
    "tuple": Kind(
        tuple[int, str],
        {**PAIR, "minItems": 2, "maxItems": 2},
        ([1, "a"], (1, "a")),
        ([1], "must have at least 2 items, got 1"),
    ),
    "variadic tuple": Kind(
        tuple[int, ...], array(INTEGER), ([1, 2, 3], (1, 2, 3)), ([None], "argument 'it[0]'")
    ),
    "dict": Kind(
        dict[str, int],
        mapping(INTEGER),
        ({"a": 1}, {"a": 1}),
        ({"a": None}, "argument 'it.a': expected integer, got null"),
    ),
    "dict with keys of another type": Kind(
        dict[int, str],
        mapping(STRING, maxProperties=1000),
        ({"7": "a"}, {7: "a"}),
        ({"x": "a"}, "argument 'it'"),
    ),
    "Mapping": Kind(
        Mapping[str, bool],
        mapping({"type": "boolean"}),
        ({"a": True}, {"a": True}),
        ([], "expected object, got an empty array"),
    ),
    "Sequence": Kind(
        Sequence[str], array(STRING), (["a"], ["a"]), ("a", 'expected array of strings, got "a"')
    ),
    "Iterable": Kind(
        collections.abc.Iterable[int], array(INTEGER), ([1], [1]), (1, "array of integers, got 1")
    ),
    # Text with a meaning
    "datetime": Kind(
        datetime.datetime,
        string(format="date-time"),
        ("2026-01-31T12:00:00Z", NOON),
        ("tomorrow", "expected date and time such as 2026-01-31T12:00:00Z"),
    ),
    "date": Kind(
        datetime.date,
        string(format="date"),
        ("2026-01-31", DAY),
        ("31.1.2026", "expected date such as 2026-01-31"),
    ),
    "time": Kind(
        datetime.time,
        string(format="time"),
        ("12:30:00", datetime.time(12, 30)),
        ("noon", "expected time such as 12:00:00Z"),
    ),
    "timedelta": Kind(
        datetime.timedelta,
        string(format="duration"),
        ("PT90S", datetime.timedelta(seconds=90)),
        (90, "expected duration such as PT1H30M, got 90"),
    ),
    "UUID": Kind(uuid.UUID, string(format="uuid"), (str(ID), ID), ("1234", "expected UUID")),
    "Decimal": Kind(
        decimal.Decimal,
        DECIMAL,
        ("12.50", decimal.Decimal("12.50")),
        (12.5, 'expected decimal number in a string, such as "12.50", got 12.5'),
    ),
    "Decimal, finite": Kind(
        decimal.Decimal, DECIMAL, ("1e3", decimal.Decimal("1e3")), ("NaN", "decimal number")
    ),
    "Path": Kind(
        pathlib.Path,
        string(format="path"),
        ("/a/b", pathlib.Path("/a/b")),
        (5, "expected string with a path, got 5"),
    ),
    "PurePosixPath": Kind(
        pathlib.PurePosixPath,
        string(format="path"),
        ("a", pathlib.PurePosixPath("a")),
        (None, "expected string with a path"),
    ),
    "bytes": Kind(
        bytes, string(contentEncoding="base64"), ("aGk=", b"hi"), ("!", "'it': Invalid base64")
    ),
    # Annotated
    "Meta": Kind(
        Annotated[int, FEW],
        {**INTEGER, "minimum": 1, "maximum": 9, "description": "How many."},
        (1, 1),
        (10, "must be at most 9, got 10"),
    ),
    "Meta, pattern": Kind(
        Annotated[str, LOWER],
        string(pattern="^[a-z]+$"),
        ("abc", "abc"),
        ("ABC", "must match the pattern '^[a-z]+$', got \"ABC\""),
    ),
    "Meta, more JSON Schema is enforced": Kind(
        Annotated[str, msgspec.Meta(extra_json_schema=NOT_ROOT)],
        string(**NOT_ROOT),
        ("a@example.com", "a@example.com"),
        ("nobody", 'expected email address such as ann@example.com, got "nobody"'),
    ),
    "a string as description": Kind(
        Annotated[str, "Look for."],
        string(description="Look for."),
        ("a", "a"),
        (1, "expected string"),
    ),
    "annotated_types: bound": Kind(
        Annotated[int, Ge(1.0)], {**INTEGER, "minimum": 1}, (1, 1), (0, "must be at least 1, got 0")
    ),
    "annotated_types: length": Kind(
        Annotated[list[int], Len(1, 2)],
        array(INTEGER, minItems=1, maxItems=2),
        ([1], [1]),
        ([], "must have at least 1 item, got 0"),
    ),
    "a constraint on a union": Kind(
        Annotated[int | None, Ge(1), "How many."],
        {"anyOf": [{"type": "integer", "minimum": 1}, NULL], "description": "How many."},
        (None, None),
        (0, "must be at least 1, got 0"),
    ),
    # Classes
    "attrs": Kind(
        Book,
        BOOK,
        ({"title": "Dune"}, Book("Dune")),
        ({"title": "Dune", "year": 3}, "argument 'it.year': must be at least 1450"),
    ),
    "dataclass": Kind(
        Record,
        RECORD,
        ({"title": "Blue", "artist": "Joni"}, Record("Blue", "Joni")),
        ({"title": "Blue"}, "argument 'it': missing required field 'artist' (string)"),
    ),
    "TypedDict, in order": Kind(
        Movie,
        MOVIE,
        ({"name": "Heat"}, {"name": "Heat"}),
        ({"actors": []}, "missing required field 'name'"),
    ),
    "NamedTuple": Kind(
        Point, POINT, ([1, 2], Point(1, 2)), ([1, 2, 3], "must have at most 2 items, got 3")
    ),
    "generic class": Kind(
        Box[int],
        {"type": "object", "properties": {"item": INTEGER}, "required": ["item"]},
        ({"item": 1}, Box(1)),
        ({"item": "x"}, "argument 'it.item'"),
    ),
    "nested": Kind(
        dict[str, list[Book]],
        mapping(array(BOOK)),
        ({"a": [{"title": "Dune"}]}, {"a": [Book("Dune")]}),
        ({"a": [{}]}, "argument 'it.a[0]': missing required field 'title'"),
    ),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
class TestEveryKindOfAnnotation:
    def test_schema(self, kind: Kind) -> None:
        schema = taking(kind.annotation).input_schema
        assert schema["properties"]["it"] == kind.schema

    def test_schema_is_valid_2020_12(self, kind: Kind) -> None:
        schema = taking(kind.annotation).input_schema
        assert jsonschema_rs.meta.is_valid({"$schema": DIALECT, **schema})

    def test_good_value_is_converted(self, kind: Kind) -> None:
        value, converted = kind.good
        bound = taking(kind.annotation).bind({"it": value})
        assert bound == {"it": converted}
        assert type(bound["it"]) is type(converted)

    def test_bad_value_is_explained(self, kind: Kind) -> None:
        value, says = kind.bad
        text = refusal(taking(kind.annotation), {"it": value})
        assert text.startswith("argument 'it")
        assert says in text

    def test_what_goes_in_comes_out(self, kind: Kind) -> None:
        _, converted = kind.good
        returned = returning(kind.annotation).structure_output(converted)
        assert json.dumps(returned)
        assert taking(kind.annotation).bind({"it": returned}) == {"it": converted}


DIALECT = "https://json-schema.org/draft/2020-12/schema"


# -- the input schema as a whole -------------------------------------------------------------------


def test_parameters_keep_their_order_and_defaults() -> None:
    def tool(  # type: ignore[no-untyped-def]
        title: str,
        where: pathlib.Path = pathlib.Path("/tmp"),
        size: Size = Size.SMALL,
        *,
        limit: int,
        nothing: int | None = None,
        anything=(1, 2),
    ) -> None: ...

    schema = inspected(tool).input_schema
    assert [*schema["properties"]] == ["title", "where", "size", "limit", "nothing", "anything"]
    assert schema == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "where": {"type": "string", "format": "path", "default": "/tmp"},
            "size": {"type": "integer", "enum": [1, 2], "default": 1},
            "limit": {"type": "integer"},
            "nothing": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
            "anything": {"default": (1, 2)},
        },
        "required": ["title", "limit"],
        "additionalProperties": False,
    }


def test_without_parameters() -> None:
    schema = inspected(lambda: None)
    assert schema.input_schema == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert schema.bind({}) == {}
    assert refusal(schema, {"x": 1}) == "unknown argument 'x' (known: none)"


def test_defaults_that_a_peer_could_not_send_are_not_published() -> None:
    def tool(
        marker: int = object(),  # type: ignore[assignment]
        infinite: float = math.inf,
        implicit: int = None,  # type: ignore[assignment]  # noqa: RUF013
        small: Annotated[int, Ge(5)] = 1,
    ) -> None: ...

    schema = inspected(tool).input_schema
    assert not [name for name, part in schema["properties"].items() if "default" in part]
    assert "required" not in schema


def test_defaults_are_left_to_python() -> None:
    def tool(a: int, b: int = 5) -> None: ...

    assert inspected(tool).bind({"a": 1}) == {"a": 1}
    assert inspected(tool).bind({"b": 2, "a": 1}) == {"a": 1, "b": 2}


def test_the_arguments_are_neither_kept_nor_changed() -> None:
    def tool(a: list[int], it: Any) -> None: ...

    arguments = {"a": [1.0], "it": {}}
    bound = inspected(tool).bind(arguments)
    bound["ctx"] = Context()
    assert arguments == {"a": [1.0], "it": {}}


def test_a_definition_used_twice_or_recursive_is_a_local_reference() -> None:
    def tool(a: Book, b: list[Book], leaf: Leaf) -> None: ...

    schema = inspected(tool).input_schema
    assert schema["properties"]["a"] == {"$ref": "#/$defs/Book"}
    assert schema["properties"]["leaf"] == {"$ref": "#/$defs/Leaf"}
    assert schema["$defs"]["Book"] == BOOK
    assert schema["$defs"]["Leaf"]["properties"]["leaves"]["items"] == {"$ref": "#/$defs/Leaf"}


def test_recursive_values_are_bound() -> None:
    bound = taking(Leaf).bind({"it": {"name": "a", "leaves": [{"name": "b"}]}})
    assert bound == {"it": Leaf("a", [Leaf("b")])}


def test_other_metadata_stays_in_the_schema() -> None:
    """Specification: *Tools*, "x-mcp-header"; the annotation must not hide behind a reference."""
    region = msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})
    schema = taking(Annotated[Colour, region]).input_schema
    assert schema["properties"]["it"] == {
        "type": "string",
        "enum": ["red", "blue"],
        "x-mcp-header": "Region",
    }


def test_fields_of_a_class_can_have_constraints_and_descriptions() -> None:
    @attrs.define
    class Order:
        count: Annotated[int | None, Ge(1), "How many."] = None

    schema = taking(Order)
    assert schema.input_schema["properties"]["it"]["properties"]["count"] == {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
        "description": "How many.",
        "default": None,
    }
    assert refusal(schema, {"it": {"count": 0}}) == "argument 'it.count': must be at least 1, got 0"


# -- unions ----------------------------------------------------------------------------------------


def test_of_several_classes_the_one_that_knows_most_keys_wins() -> None:
    schema = taking(Book | Record | None)
    assert schema.bind({"it": {"title": "a"}}) == {"it": Book("a")}
    assert schema.bind({"it": {"title": "a", "artist": "b"}}) == {"it": Record("a", "b")}
    assert schema.bind({"it": None}) == {"it": None}


def test_a_tag_says_which_alternative_is_meant() -> None:
    @attrs.define
    class Cat:
        kind: Literal["cat"]
        lives: int

    @attrs.define
    class Dog:
        kind: Literal["dog"]
        bark: str

    schema = taking(Cat | Dog)
    assert schema.bind({"it": {"kind": "dog", "bark": "wau"}}) == {"it": Dog("dog", "wau")}
    text = refusal(schema, {"it": {"kind": "dog", "lives": 7}})
    assert text == "argument 'it': missing required field 'bark' (string)"
    text = refusal(schema, {"it": {"kind": "cow"}})
    assert 'it.kind\': expected "cat", got "cow"; or' in text


# -- refused arguments -----------------------------------------------------------------------------


def order(
    title: str, count: int, book: Book | None = None, when: datetime.date | None = None
) -> None: ...


def test_one_problem_is_one_line() -> None:
    text = refusal(inspected(order), {"count": 1})
    assert text == "missing required argument 'title' (string)"


def test_every_problem_is_named() -> None:
    arguments = {
        "count": "three",
        "colour": "red",
        "size": 4,
        "book": {"title": "a", "year": 3},
        "when": "soon",
    }
    with pytest.raises(InvalidArguments) as caught:
        inspected(order).bind(arguments)
    assert sorted(caught.value.problems) == [
        "argument 'book.year': must be at least 1450, got 3",
        "argument 'count': expected integer, got \"three\"",
        "argument 'when': expected date such as 2026-01-31, got \"soon\"",
        "missing required argument 'title' (string)",
        "unknown argument 'colour' (known: title, count, book, when)",
        "unknown argument 'size' (known: title, count, book, when)",
    ]
    assert str(caught.value).startswith("6 problems:\n- ")


@pytest.mark.parametrize("arguments", [None, [], "title", 5])
def test_arguments_that_are_no_object(arguments: Any) -> None:
    assert refusal(inspected(order), arguments).startswith("the arguments: expected object, got ")


def test_messages_are_bounded_whatever_the_peer_sends() -> None:
    long = "x" * 100_000
    hostile = {
        "title": [long],
        "count": long,
        "book": {"title": {long: long}},
        long: long,
        **{f"{n}{long}": 1 for n in range(100)},
    }
    text = refusal(inspected(order), hostile)
    assert len(text) < 3000
    assert "x" * 101 not in text
    assert text.count("\n- ") == 8
    assert text.endswith("and more problems")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Literal["a"], 10**5000),
        (dict[str, int], {"k" * 10_000: "v" * 10_000}),
        (list[list[str]], [["a"]] * 1000 + [[5]]),
        (Annotated[str, msgspec.Meta(max_length=3)], "x" * 10_000),
        (Annotated[int, msgspec.Meta(le=3)], 10**5000),
        (dict[Literal["a"], int], {"k" * 10_000: 1}),
    ],
    ids=lambda _: "",
)
def test_no_value_is_echoed_at_length(annotation: Any, value: Any) -> None:
    with pytest.raises(InvalidArguments) as caught:
        taking(annotation).bind({"it": value})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("annotation", [float, Any, dict[str, Any], list[float | None], object])
def test_numbers_that_are_not_finite_are_refused(annotation: Any, number: float) -> None:
    values = {dict[str, Any]: {"a": [number]}, list[float | None]: [number]}
    text = refusal(taking(annotation), {"it": values.get(annotation, number)})
    assert "expected a finite number" in text


def test_whole_floats_are_integers_as_in_json_schema() -> None:
    def tool(n: int, sizes: list[Size], f: float, either: int | float) -> None: ...

    bound = inspected(tool).bind({"n": 5.0, "sizes": [2.0], "f": 1.5, "either": 2.5})
    assert bound == {"n": 5, "sizes": [Size.LARGE], "f": 1.5, "either": 2.5}
    assert [type(bound["n"]), type(bound["f"])] == [int, float]
    assert "expected integer, got 5.5" in refusal(taking(int), {"it": 5.5})


def test_validators_of_attrs_classes_have_their_say() -> None:
    @attrs.define
    class Even:
        n: int = attrs.field()

        @n.validator
        def _check(self, attribute: object, value: int) -> None:
            if value % 2:
                raise ValueError(f"{value} is odd")

    assert taking(Even).bind({"it": {"n": 2}}) == {"it": Even(2)}
    assert refusal(taking(Even), {"it": {"n": 3}}) == "argument 'it': 3 is odd"


def nested(levels: int, inside: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(levels):
        inside = wrap(inside)
    return inside


@pytest.mark.parametrize("levels", [300, 5000, 200_000])
@pytest.mark.parametrize("annotation", [Leaf, set[Any], int, Literal["a"]])
def test_deep_nesting_is_refused_and_never_a_crash(annotation: Any, levels: int) -> None:
    if annotation is Leaf:
        value = nested(levels, {"name": "a"}, lambda leaf: {"name": "a", "leaves": [leaf]})
    elif annotation == set[Any]:
        value = [nested(levels, [], lambda part: [part])]
    else:
        value = nested(levels, [], lambda part: {"a": part})
    text = refusal(taking(annotation), {"it": value})
    assert "nested more than 200 levels deep" in text or "expected a hashable value" in text.lower()


def test_text_that_is_no_unicode_is_refused_where_it_matters() -> None:
    assert "not valid Unicode" in refusal(taking(set[str]), {"it": ["\ud800", "\ud800", 5]})


# -- results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation",
    [
        inspect.Signature.empty,
        None,
        str,
        bytes,
        Any,
        str | None,
        Annotated[str, "text"],
        Content,
        list[Content],
        tuple[Content, ...],
        list[Content | str],
        Content | dict[str, int],
        typing.NoReturn,
    ],
)
def test_content_has_no_output_schema(annotation: Any) -> None:
    def tool() -> None: ...

    tool.__annotations__["return"] = annotation
    if annotation is inspect.Signature.empty:
        del tool.__annotations__["return"]
    assert inspected(tool).output_schema is None


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (int, {"type": "integer"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, Any], {"type": "object"}),
        (dict, {"type": "object"}),
        (Book, BOOK),
        (Book | Record, {"anyOf": [BOOK, RECORD]}),
        (Book | None, {"anyOf": [BOOK, {"type": "null"}]}),
        (str | int, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        (datetime.date, {"type": "string", "format": "date"}),
        (Literal["a"], {"type": "string", "enum": ["a"]}),
    ],
)
def test_everything_else_has_one(annotation: Any, schema: dict[str, Any]) -> None:
    assert returning(annotation).output_schema == schema
    assert jsonschema_rs.meta.is_valid({"$schema": DIALECT, **schema})


def test_a_recursive_result() -> None:
    schema = returning(Leaf)
    assert schema.output_schema is not None
    assert schema.output_schema["$ref"] == "#/$defs/Leaf"
    built = schema.structure_output(Leaf("a", [Leaf("b")]))
    assert built == {"name": "a", "leaves": [{"name": "b", "leaves": []}]}


@pytest.mark.parametrize(
    ("annotation", "value", "built"),
    [
        (int, 5, 5),
        (float, 5, 5),
        (float, 1.5, 1.5),
        (bool, False, False),
        (int, Size.LARGE, 2),
        (Book, Book("a"), {"title": "a", "year": 2000}),
        (Book, {"title": "a"}, {"title": "a"}),
        (list[datetime.date], [DAY], ["2026-01-31"]),
        (list[pathlib.Path], [pathlib.PurePosixPath("a")], ["a"]),
        (list[Book | Record], [Record("a", "b")], [{"title": "a", "artist": "b"}]),
        (dict[int, str], {1: "a"}, {"1": "a"}),
        (set[int], {1}, [1]),
        (str, "text", "text"),
        (Any, {1: [DAY, b"hi"]}, {"1": ["2026-01-31", "aGk="]}),
        (None, None, None),
    ],
)
def test_results_become_json(annotation: Any, value: Any, built: Any) -> None:
    assert returning(annotation).structure_output(value) == built


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (int, "5", 'the result: expected integer, got "5"'),
        (int, True, "the result: expected integer, got true"),
        (int, None, "the result: expected integer, got null"),
        (dict[str, int], {"a": "x"}, 'result.a: expected integer, got "x"'),
        (list[Book], [Book("a"), Book("b", 3)], "result[1].year: must be at least 1450, got 3"),
        (list[Book], [{}], "result[0]: missing required field 'title' (string)"),
        (Book, Record, "the result cannot be represented as JSON"),
        (dict[str, Any], {"a": Context()}, "objects of type Context have no JSON form"),
        (datetime.date, "soon", "the result: expected date such as 2026-01-31"),
        (float, math.nan, "the result: expected a finite number, got nan"),
        (list[float], [1.0, math.inf], "result[1]: expected a finite number, got inf"),
        (dict[str, Any], {"a": {"b": math.nan}}, "result.a.b: expected a finite number"),
        (Any, {"a": [math.nan]}, "result.a[0]: expected a finite number"),
        (Movie, {"name": "a", "extra": math.nan}, "result.extra: expected a finite number"),
        (decimal.Decimal, decimal.Decimal("NaN"), "expected decimal number"),
        (Any, nested(300, [], lambda part: [part]), "the result: nested more than 200 levels"),
        (Any, nested(200_000, [], lambda part: [part]), "cannot be represented as JSON"),
        (Leaf, nested(300, Leaf("a"), lambda leaf: Leaf("a", [leaf])), "more than 200 levels"),
    ],
)
def test_broken_promises_are_named(annotation: Any, value: Any, says: str) -> None:
    schema = returning(annotation)
    with pytest.raises(OutputError) as caught:
        schema.structure_output(value)
    assert says in str(caught.value)
    assert str(caught.value).startswith("tool() did not return what it promises:")


def test_private_attributes_stay_private() -> None:
    @attrs.define
    class Account:
        name: str
        _secret: str = "x"

    schema = returning(Account)
    assert schema.output_schema is not None
    assert [*schema.output_schema["properties"]] == ["name"]
    assert schema.structure_output(Account("a")) == {"name": "a"}
    with pytest.raises(SignatureError, match="field '_secret' of class Account is private"):
        taking(Account)


# -- the schema and the binding agree --------------------------------------------------------------


ORIGIN = Point(0)


def scalars(a: int, b: float, c: str, d: bool, e: None = None) -> None: ...
def bounded(
    a: Annotated[int, msgspec.Meta(ge=-3, lt=4)],
    b: Annotated[str, msgspec.Meta(min_length=1, max_length=3)] = "",
    c: Annotated[list[int] | None, Len(1, 2)] = None,
) -> None: ...
def collections_(
    a: list[int],
    b: set[str] = set(),  # noqa: B006
    c: tuple[int, str] = (1, ""),
    d: tuple[float, ...] = (),
    e: dict[str, int] | None = None,
) -> None: ...
def choices(
    a: Literal["x", 1, None], b: Colour, c: Size = Size.SMALL, d: dict[Shade, int] | None = None
) -> None: ...
def classes(a: Book, b: Record | None, c: Movie, d: Leaf, e: Point = ORIGIN) -> None: ...
def unions(
    a: Book | Record | int, b: str | list[int] | None = None, c: int | float = 0
) -> None: ...
def open_(a: Any, b, c: dict[str, Any], d: Decimal_ = None) -> None: ...  # type: ignore[no-untyped-def]


Decimal_ = decimal.Decimal | None
TOOLS = [inspected(fn) for fn in (scalars, bounded, collections_, choices, classes, unions, open_)]

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, 1.0, 2.0, -0.0, 1e300, "x", "red", "dark", "1.5", "title"])
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def nearly(schema: Any, root: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that mostly fit a schema: every part may be replaced by anything."""
    return st.integers(0, 15).flatmap(lambda dice: fitting(schema, root) if dice else anything)


def fitting(schema: Any, root: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return fitting(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.sampled_from(schema["anyOf"]).flatmap(lambda option: fitting(option, root))
    match schema.get("type"):
        case "integer":
            return st.integers(-5, 5) | st.integers(1450, 2**70) | st.sampled_from([2.0, -1.0])
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False) | st.integers()
        case "string":
            return st.text(max_size=4) if "pattern" not in schema else st.just("1.50")
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array" if "prefixItems" in schema:
            return st.tuples(*(nearly(part, root) for part in schema["prefixItems"])).map(list)
        case "array":
            return st.lists(st.deferred(lambda: nearly(schema.get("items", {}), root)), max_size=3)
        case "object" if "properties" in schema:
            parts = {
                name: st.deferred(lambda part=part: nearly(part, root))  # type: ignore[misc]
                for name, part in schema["properties"].items()
            }
            required = {name: parts.pop(name) for name in schema.get("required", ())}
            return st.fixed_dictionaries(required, optional=parts)
        case "object":
            keys = st.text(max_size=2) | st.just("dark")
            return st.dictionaries(keys, nearly(schema.get("additionalProperties", {}), root))
    return anything


@st.composite
def calls(draw: st.DrawFn) -> tuple[FunctionSchema, Any]:
    tool = draw(st.sampled_from(TOOLS))
    return tool, draw(nearly(tool.input_schema, tool.input_schema))


def binds(tool: FunctionSchema, arguments: Any) -> bool:
    try:
        bound = tool.bind(arguments)
    except InvalidArguments:
        return False
    assert bound.keys() == arguments.keys()
    return True


@settings(deadline=None, max_examples=500)
@given(calls())
def test_bind_accepts_exactly_what_the_schema_allows(call: tuple[FunctionSchema, Any]) -> None:
    """For everything that JSON Schema can say.

    Conversion asks for more than a plain validator where the schema only has a remark: ``format``
    (dates, times, durations, UUIDs, and what a user's own ``extra_json_schema`` names),
    ``contentEncoding`` (base64), keys of mappings other than strings, hashable members of
    ``set[Any]``, `attrs` validators, and values nested deeper than 200 levels in recursive schemas.
    """
    tool, arguments = call
    plain = jsonschema_rs.Draft202012Validator(tool.input_schema)
    assert binds(tool, arguments) == plain.is_valid(arguments)


def remarks(
    a: datetime.datetime | None = None,
    b: datetime.timedelta | None = None,
    c: uuid.UUID | None = None,
    d: bytes | None = None,
    e: dict[int, str] | None = None,
) -> None: ...


REMARKS = inspected(remarks)
texts = st.sampled_from(
    ["2026-01-31T12:00:00Z", "2026-01-31", "PT5S", "aGk=", "aGk", str(uuid.UUID(int=5))]
)


@settings(deadline=None)
@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys("abcd", texts | anything))
    | nearly(REMARKS.input_schema, REMARKS.input_schema)
)
def test_bind_accepts_nothing_else_where_the_schema_has_only_a_remark(arguments: Any) -> None:
    plain = jsonschema_rs.Draft202012Validator(REMARKS.input_schema)
    if binds(REMARKS, arguments):
        assert plain.is_valid(arguments)
