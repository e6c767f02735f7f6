"""What a peer's values may cost: bounded numbers of errors and entries, whatever is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import attrs
import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.handlers.caching import CacheHint
from trio_mcp.handlers.pagination import Cursors
from trio_mcp.handlers.registry import Registry
from trio_mcp.handlers.results import structured_result, unstructured_result
from trio_mcp.handlers.schema import problems, type_hints
from trio_mcp.handlers.schema.brief import errors_per_part, is_costly, without_alternatives
from trio_mcp.handlers.schema.given import GivenSchema
from trio_mcp.handlers.schema.problems import MAX_ERRORS, MAX_EXAMINED, MAX_PROBLEMS, Checker
from trio_mcp.handlers.schema.signature import (
    FunctionSchema,
    InvalidArguments,
    OutputError,
    inspect_function,
)
from trio_mcp.handlers.schema.type_hints import MAX_HASHED
from trio_mcp.handlers.tools import RegisteredTool, Tools
from trio_mcp.runtime.limits import Limits
from trio_mcp.runtime.models.content import TextContent
from trio_mcp.runtime.models.tools import ToolAnnotations

SAME_HASH = 2**61 - 1


class Context:
    """Stands for what handlers get."""


@attrs.frozen
class Cat:
    lives: int


@attrs.frozen
class Dog:
    bark: str


class Add(msgspec.Struct, tag=True):
    left: Add | Neg | int


class Neg(msgspec.Struct, tag=True):
    of: Add | Neg | int


class Node(msgspec.Struct):
    after: Node | None = None
    value: int = 0


def taking(annotation: Any) -> FunctionSchema:
    def tool(it: Any) -> None: ...

    tool.__annotations__["it"] = annotation
    return inspect_function(tool, context_type=Context)


def returning(annotation: Any) -> FunctionSchema:
    def tool() -> None: ...

    tool.__annotations__["return"] = annotation
    return inspect_function(tool, context_type=Context)


def problems_of(schema: FunctionSchema, value: Any) -> tuple[str, ...]:
    with pytest.raises(InvalidArguments) as caught:
        schema.bind({"it": value})
    return caught.value.problems


def all_errors(errors: Any) -> int:
    """How many errors the validator made, those inside of unions included."""
    count = 0
    for error in errors:
        count += 1
        for branch in getattr(error.kind, "context", ()):
            count += all_errors(branch)
    return count


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many errors each call of the validator has made."""
    counts: list[int] = []

    class Counting:
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.inner = jsonschema_rs.Draft202012Validator(*args, **kwargs)
            self.is_valid = self.inner.is_valid

        def iter_errors(self, value: Any) -> list[Any]:
            errors = [*self.inner.iter_errors(value)]
            counts.append(all_errors(errors))
            return errors

        def validate(self, value: Any) -> None:
            try:
                self.inner.validate(value)
            except jsonschema_rs.ValidationError as error:
                counts.append(all_errors([error]))
                raise

    class Module:
        Draft202012Validator = Counting
        ValidationError = jsonschema_rs.ValidationError

    monkeypatch.setattr(problems, "jsonschema_rs", Module)
    return counts


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "value", "says"),
    [
        (list[int], [""] * 20_000, "argument 'it[0]': expected integer, got \"\""),
        (list[int], [*range(20_000), ""], "argument 'it[20000]': expected integer, got \"\""),
        (list[int] | None, [""] * 20_000, "argument 'it[0]': expected integer, got \"\""),
        (str | list[int], [""] * 20_000, "argument 'it[0]': expected integer, got \"\""),
        (list[int | None], [""] * 20_000, "argument 'it[0]': expected integer or null, got \"\""),
        (list[Cat] | None, [{}] * 20_000, "'it[0]': missing required field 'lives' (integer)"),
        (
            list[Cat | Dog],
            [{}] * 20_000,
            "argument 'it[0]': fits no alternative (object), got an empty object",
        ),
        (
            list[int] | list[bool],
            [""] * 20_000,
            "argument 'it': fits no alternative (array of integers or array of booleans), "
            "got an array with 20000 items",
        ),
        (
            list[Literal["a"] | int],
            ["b"] * 20_000,
            'argument \'it[0]\': fits no alternative ("a" or integer), got "b"',
        ),
        (dict[str, int], {str(n): "" for n in range(20_000)}, ': expected integer, got ""'),
    ],
)
def test_of_a_large_value_only_the_first_problem_is_looked_for(
    annotation: Any, value: Any, says: str, made: list[int]
) -> None:
    (problem,) = problems_of(taking(annotation), value)
    assert says in problem
    assert sum(made) == 1


@pytest.mark.parametrize("size", [1, 100, 1000, 2000, 3000, 4999, 6000])
@pytest.mark.parametrize(
    ("annotation", "item"),
    [
        (list[int], ""),
        (list[int] | None, ""),
        (list[Cat | Dog | int | list[int]], {}),
        (list[list[int]] | list[list[bool]] | list[list[None]], [""]),
        (list[Cat], {}),
        (list[Node | None], {"value": ""}),
    ],
)
def test_no_value_makes_more_errors_than_the_bound(
    annotation: Any, item: Any, size: int, made: list[int]
) -> None:
    problems_of(taking(annotation), [item] * size)
    assert sum(made) <= MAX_ERRORS


@pytest.mark.parametrize("size", [20, 500])
def test_small_values_are_still_explained_in_full(size: int) -> None:
    found = problems_of(taking(list[int]), [str(n) for n in range(size)])
    assert found[0] == "argument 'it[0]': expected integer, got \"0\""
    assert len(found) == MAX_PROBLEMS
    assert found[-1] == "and more problems"


def test_recursive_alternatives_do_not_double_the_errors_on_each_level(made: list[int]) -> None:
    value: Any = "bad"
    for _ in range(60):
        value = {"type": "Add", "left": value}
    (problem,) = problems_of(taking(Add | Neg), value)
    assert problem == "argument 'it': fits no alternative (object), got an object with 2 keys"
    assert sum(made) == 1


def test_a_long_name_is_not_copied_into_thousands_of_errors(made: list[int]) -> None:
    schema = taking(dict[str, list[int]])
    assert len(problems_of(schema, {"k" * 1_000_000: [""] * 2000})) == 1
    assert sum(made) == 1


def test_problems_that_read_the_same_are_not_looked_at_without_end() -> None:
    looked = 0

    def same() -> Iterator[str]:
        nonlocal looked
        while True:
            looked += 1
            yield "the same"

    assert problems._chosen(same()) == ["the same", "and more problems"]
    assert looked == MAX_EXAMINED + 1


def test_counting_stops_early() -> None:
    class Trap(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            raise AssertionError("not to be looked into")

    assert is_costly([Trap(range(50)), *range(60)], 100)
    assert is_costly({"a": Trap(range(200))}, 100)
    assert not is_costly({"a": [1, 2], "b": {"c": None}}, 100)


def test_how_many_errors_a_part_may_have() -> None:
    def errors(annotation: Any) -> float:
        return errors_per_part(taking(annotation).input_schema)

    assert errors(list[int]) <= 2
    assert errors(list[Cat | Dog]) > errors(list[Cat]) >= 2
    assert errors(Node | None) < 10
    assert errors(Add | Neg) == float("inf")


UNIONS: tuple[Any, ...] = (
    list[int] | None,
    str | list[int] | dict[str, bool] | None,
    list[Cat | Dog | None] | Cat,
    int | Annotated[float, msgspec.Meta(ge=3)] | Literal["a"],
    Literal["a", 1, None] | list[int | str],
    Add | Neg,
    Node | int,
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([2.5, "a", "Add", "Neg"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "left", "of", "lives", "bark", "after", "value"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(st.sampled_from([taking(union).input_schema for union in UNIONS]), anything)
def test_the_brief_schema_accepts_the_same(schema: dict[str, Any], value: Any) -> None:
    full = jsonschema_rs.Draft202012Validator(schema)
    brief = jsonschema_rs.Draft202012Validator(without_alternatives(schema))
    assert full.is_valid({"it": value}) == brief.is_valid({"it": value})


@pytest.mark.parametrize("union", UNIONS, ids=str)
def test_the_brief_schema_is_final(union: Any) -> None:
    once = without_alternatives(taking(union).input_schema)
    assert without_alternatives(once) == once


def test_a_large_result_is_explained_briefly_too(made: list[int]) -> None:
    with pytest.raises(OutputError, match=r"result\[0\]: expected integer"):
        returning(list[int] | None).structure_output(["x"] * 20_000)
    assert sum(made) == 1


# -- conversion of unions --------------------------------------------------------------------------


def test_a_choice_is_prepared_once_and_tries_the_best_member_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared: list[Any] = []
    tried: list[Any] = []
    converter = type_hints._converter

    def counting(member: Any) -> Callable[[Any], Any]:
        prepared.append(member)
        convert = converter(member)

        def attempt(value: Any) -> Any:
            tried.append(member)
            return convert(value)

        return attempt

    monkeypatch.setattr(type_hints, "_converter", counting)
    bound = taking(list[Cat | Dog]).bind({"it": [{"bark": "wau"}, {"lives": 7}] * 500})
    assert bound["it"][:2] == [Dog("wau"), Cat(7)]
    assert len(prepared) == 2
    assert len(tried) == 1000


# -- numbers that hash alike -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation",
    [
        set[int],
        frozenset[int],
        set[int] | None,
        set[Any],
        set,
        set[tuple[int, int]],
        set[int | str],
    ],
)
def test_sets_of_numbers_have_a_bounded_number_of_items(annotation: Any) -> None:
    schema = taking(annotation)
    values = [[n, n] if "tuple" in str(annotation) else n for n in range(1, MAX_HASHED + 2)]
    assert len(schema.bind({"it": values[:-1]})["it"]) == MAX_HASHED
    (problem,) = problems_of(schema, values)
    assert "1000 items" in problem or "1001 items" in problem


ALIKE: dict[str, list[Any]] = {
    "long": [10**4000 + n for n in range(MAX_HASHED)],
    "beyond 64 bits": [10**20 + n for n in range(MAX_HASHED)],
    "64 bits": [2**63 + n for n in range(MAX_HASHED)],
    "negative": [-(2**70) - n for n in range(MAX_HASHED)],
}


@pytest.mark.parametrize("values", ALIKE.values(), ids=ALIKE)
def test_large_integers_that_are_one_number_as_floats_are_few(values: list[int]) -> None:
    """The validator hashes them alike: it compares each with all, the long ones for minutes."""
    (problem,) = problems_of(taking(set[int]), values)
    assert "too many large integers" in problem
    (problem,) = problems_of(taking(set[tuple[int, int]]), [[n, 1] for n in values])
    assert "too many large integers" in problem


def test_so_they_are_where_the_application_gave_the_schema() -> None:
    async def take(arguments: dict[str, Any]) -> None: ...

    unique = {"type": "array", "uniqueItems": True}
    properties = {"it": {"properties": {"inside": unique}}}
    schema = inspect_function(
        take,
        context_type=type(None),
        input_schema=GivenSchema.of({"properties": properties}, "it", Limits()),
    )
    (problem,) = problems_of(schema, {"inside": [2**63 + n for n in range(1_000_000)]})
    assert "too many large integers" in problem


@pytest.mark.parametrize(
    "values",
    [[10**4000], [2**63 + n for n in range(32)], [2**60 + (n << 22) for n in range(MAX_HASHED)]],
)
def test_other_large_integers_may_be_as_many_as_any(values: list[int]) -> None:
    assert taking(set[int]).bind({"it": values})["it"] == set(values)


def test_one_large_integer_may_occur_often() -> None:
    values = [[2**63, n] for n in range(MAX_HASHED)]
    assert len(taking(set[tuple[int, int]]).bind({"it": values})["it"]) == MAX_HASHED


@pytest.mark.parametrize("annotation", [dict[int, int], dict[int, int] | None])
def test_mappings_with_numbers_as_keys_have_a_bounded_number_of_entries(annotation: Any) -> None:
    schema = taking(annotation)
    value = {str(n * SAME_HASH): n for n in range(MAX_HASHED + 1)}
    (problem,) = problems_of(schema, value)
    assert "at most 1000 entries" in problem or "1001 keys" in problem
    del value["0"]
    assert len(schema.bind({"it": value})["it"]) == MAX_HASHED


@attrs.frozen
class Holder:
    numbers: set[int]


def test_fields_of_classes_are_bounded_as_well() -> None:
    problems_of(taking(Holder), {"numbers": [*range(MAX_HASHED + 1)]})


@pytest.mark.parametrize("annotation", [set[str], dict[str, int], dict[Any, Any], set[Literal[1]]])
def test_nothing_else_is_bounded(annotation: Any) -> None:
    text = str(taking(annotation).input_schema)
    assert "maxItems" not in text
    assert "maxProperties" not in text
    assert "x-hashed" not in text


def test_results_are_not_bounded() -> None:
    assert returning(set[int]).output_schema == {
        "type": "array",
        "items": {"type": "integer"},
        "uniqueItems": True,
    }


@pytest.mark.parametrize("bound", [5, 50_000])
def test_a_bound_of_the_annotation_s_own_holds_instead(bound: int) -> None:
    numbers = taking(Annotated[set[int], msgspec.Meta(max_length=bound)]).input_schema
    assert numbers["properties"]["it"]["maxItems"] == bound
    names = taking(Annotated[dict[int, str], msgspec.Meta(max_length=bound)]).input_schema
    assert names["properties"]["it"]["maxProperties"] == bound


# -- definitions that cannot be sent ---------------------------------------------------------------


async def hello() -> str:
    return "hello"


@pytest.mark.parametrize(
    "options",
    [
        {"description": "read \udcff"},
        {"title": "\udcff"},
        {"annotations": ToolAnnotations(title="\udcff")},
    ],
)
def test_a_definition_that_cannot_be_sent_is_refused_at_once(options: dict[str, Any]) -> None:
    changes: list[None] = []
    registry = Registry[RegisteredTool](
        "tool", "tools", 10, Cursors(None), lambda: changes.append(None)
    )
    tools = Tools(registry, CacheHint())
    with pytest.raises(ValueError, match=r"the definition of tool 'bad' .* cannot be sent as JSON"):
        tools.add(**{"function": hello, "name": "bad", **options})
    assert len(tools) == len(changes) == 0
    tools.add(hello, name="bad")
    assert len(tools) == len(changes) == 1


# -- results of subclasses -------------------------------------------------------------------------


class Markup(str):
    def __str__(self) -> str:
        raise ValueError("no")


class Name(str): ...


class Measure(float):
    def __float__(self) -> float:
        raise ValueError("no")


class Count(int):
    def __int__(self) -> int:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("annotation", "value", "built"),
    [
        (str, Markup("a"), "a"),
        (float, Measure(0.5), 0.5),
        (int, Count(3), 3),
        (list[float], [Measure(0.5)], [0.5]),
        (dict[str, int], {Name("a"): Count(3)}, {"a": 3}),
        (dict[int, str], {Count(3): Markup("a")}, {"3": "a"}),
        (Any, [Markup("a"), Measure(0.5), Count(3)], ["a", 0.5, 3]),
    ],
)
def test_subclasses_of_text_and_numbers_are_results(
    annotation: Any, value: Any, built: Any
) -> None:
    found = returning(annotation).structure_output(value)
    assert found == built
    assert type(found) is type(built)
    structured_result(found)


def test_a_measure_that_is_not_finite_is_named() -> None:
    with pytest.raises(OutputError, match="expected a finite number, got nan"):
        returning(float).structure_output(Measure("nan"))


@pytest.mark.parametrize(
    ("value", "text"),
    [(Markup("a"), "a"), (Measure(0.5), "0.5"), (Count(3), "3"), ([Markup("a")], '["a"]')],
)
def test_subclasses_are_unstructured_results_too(value: Any, text: str) -> None:
    (block,) = unstructured_result(value).content
    assert isinstance(block, TextContent)
    assert block.text == text
    assert type(block.text) is str


def test_a_checker_s_first_error_is_none_for_what_fits() -> None:
    checker = Checker.of("argument", {"type": "array", "items": {"type": "integer"}}, open=False)
    assert checker.explain([*range(20_000)]) == []


def test_patterns_are_matched_once_in_bounded_time() -> None:
    """Python's own `re` would never end with this one, and the validator says that it fits."""
    slow = msgspec.Meta(pattern="^(?:(a+)+b|a+)$", description="Many.")
    for annotation in (
        Annotated[str, slow],
        Annotated[str | None, slow],
        Annotated[str, slow] | int,
    ):
        schema = taking(annotation)
        assert "pattern" in str(schema.input_schema)
        assert schema.bind({"it": "a" * 5000}) == {"it": "a" * 5000}
        assert any("pattern" in problem for problem in problems_of(schema, "c"))
