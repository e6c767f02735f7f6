"""Which callables can be offered, what is found in their signatures, and what is refused how.

This module uses postponed annotations on purpose: annotations below reach the code as strings.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import attrs
import msgspec
import pytest

from trio_mcp.handlers.schema.signature import (
    FunctionSchema,
    InvalidArguments,
    SignatureError,
    inspect_function,
)

if TYPE_CHECKING:
    from elsewhere import Missing  # type: ignore[import-not-found]


class Context:
    """Stands for what handlers get."""


def inspected(fn: Callable[..., Any]) -> FunctionSchema:
    return inspect_function(fn, context_type=Context)


def taking(annotation: Any) -> FunctionSchema:
    """A function with one parameter, ``it``."""

    def tool(it: Any) -> None: ...

    tool.__annotations__["it"] = annotation
    return inspected(tool)


@attrs.frozen
class Ge:
    """Looks like `annotated_types.Ge`, which the library does not import."""

    ge: float


# -- the context -----------------------------------------------------------------------------------


def test_the_context_parameter_is_found_by_its_annotation() -> None:
    def tool(a: int, whatever: Context) -> None: ...

    schema = inspected(tool)
    assert schema.context_parameter == "whatever"
    assert [*schema.input_schema["properties"]] == ["a"]
    with pytest.raises(InvalidArguments, match=r"unknown argument 'whatever' \(known: a\)"):
        schema.bind({"a": 1, "whatever": 2})


@pytest.mark.parametrize("annotation", [Context | None, Annotated[Context, "x"], "Context"])
def test_the_context_may_be_optional_or_annotated(annotation: Any) -> None:
    assert taking(annotation).context_parameter == "it"


def test_the_name_of_the_context_class_need_not_be_imported() -> None:
    """It often is under `if TYPE_CHECKING:` only."""
    names: dict[str, Any] = {}
    exec("def tool(a: int, ctx: 'Context') -> None: ...", names)
    assert inspected(names["tool"]).context_parameter == "ctx"


def test_no_context() -> None:
    assert taking(int).context_parameter is None


# -- what can be inspected -------------------------------------------------------------------------


class Shelf:
    """A shelf."""

    def find(self, title: str, ctx: Context) -> int:
        """Find it."""
        return 1

    async def __call__(self, title: str) -> int:
        """Call it."""
        return 1


def traced(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


async def search(root: str, title: str, limit: int = 3) -> int:
    """Search it."""
    return 1


@pytest.mark.parametrize(
    ("fn", "properties", "description"),
    [
        (Shelf().find, ["title"], "Find it."),
        (Shelf(), ["title"], "Call it."),
        (traced(search), ["root", "title", "limit"], "Search it."),
        (traced(Shelf().find), ["title"], "Find it."),
        (functools.partial(search, "/"), ["title", "limit"], "Search it."),
        (functools.partial(search, limit=5), ["root", "title"], "Search it."),
        (functools.partial(traced(search), "/", limit=5), ["title"], "Search it."),
        (search, ["root", "title", "limit"], "Search it."),
    ],
)
def test_callables(fn: Any, properties: list[str], description: str) -> None:
    schema = inspected(fn)
    assert [*schema.input_schema["properties"]] == properties
    assert schema.description == description
    assert schema.output_schema == {"type": "integer"}
    given = {"root": "/", "title": "Dune", "limit": 1}
    bound = schema.bind({name: given[name] for name in properties})
    if schema.context_parameter:
        bound[schema.context_parameter] = Context()
    inspect.signature(fn).bind(**bound)


def test_names_of_an_enclosing_function() -> None:
    def make(kind: type) -> Callable[..., Any]:
        def tool(it: kind) -> None:  # type: ignore[valid-type]
            kind()

        return tool

    assert inspected(make(int)).input_schema["properties"] == {"it": {"type": "integer"}}


def test_an_enclosing_function_that_is_not_finished_yet() -> None:
    def make() -> FunctionSchema:
        def tool(it: int) -> int:
            return later(it)

        schema = inspected(tool)

        def later(it: int) -> int:
            return it

        return schema

    assert make().bind({"it": 1}) == {"it": 1}


def positional(a: int, /) -> None: ...
def variadic(*titles: str) -> None: ...
def keywords(**options: str) -> None: ...
def mangled(__secret: int) -> None: ...
def two_contexts(a: Context, b: Context) -> None: ...
def only_for_type_checkers(it: Missing) -> None: ...
def nested_forward_reference(it: list[Missing]) -> None: ...
def returns_unknown() -> Missing: ...
def returns_nothing_json() -> complex: ...  # type: ignore[empty-body]


@attrs.define
class Converted:
    a: int = attrs.field(converter=int)


@dataclasses.dataclass
class Derived:
    a: int = dataclasses.field(init=False, default=1)


@attrs.define
class Ambiguous:
    a: str | datetime.date


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (positional, ["positional()", "'a'", "remove the `/`"]),
        (variadic, ["variadic()", "'*titles'", "a list instead"]),
        (keywords, ["keywords()", "'**options'", "dict[str"]),
        (mangled, ["mangled()", "'__secret'", "rename it"]),
        (two_contexts, ["two_contexts()", "'a' and 'b'", "keep one"]),
        (only_for_type_checkers, ["only_for_type_checkers()", "'it'", "Missing", "module level"]),
        (nested_forward_reference, ["'it'", "Missing", "module level"]),
        (returns_unknown, ["return annotation", "Missing", "module level"]),
        (returns_nothing_json, ["return annotation", "complex has no JSON Schema; use a builtin"]),
        (Ge, ["Ge is a class", "offer a function"]),
        (print, ["print()", "'*args'"]),
    ],
)
def test_refused_signatures_say_what_to_do(fn: Any, words: list[str]) -> None:
    with pytest.raises(SignatureError) as caught:
        inspected(fn)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (complex, "complex has no JSON Schema; use a builtin type, an attrs class"),
        (list[Shelf], "Shelf has no JSON Schema"),
        (Callable[[int], int], "Callable has no JSON Schema"),
        (7, "not supported"),
        (Literal[1.5], "Literal may only contain"),
        (Annotated[str, Ge(1)], "Can only set `ge` on a numeric type"),
        (Annotated[str | None, Ge(1)], "Can only set `ge` on a numeric type"),
        (Annotated[int, Ge("a")], "the constraint Ge(ge='a') cannot be used"),  # type: ignore[arg-type]
        (Annotated[str, msgspec.Meta(pattern=r"a\Z")], "regex"),
        (
            Annotated[str, msgspec.Meta(extra_json_schema={"$ref": "http://127.0.0.1:1/"})],
            "references to other documents are not followed",
        ),
        (Converted, "field 'a' of class Converted has a converter"),
        (dict[str, list[Derived]], "field 'a' of class Derived has init=False"),
        (Ambiguous, "field 'a' of class Ambiguous is a union whose members cannot be told apart"),
    ],
)
def test_refused_annotations_name_the_parameter(annotation: Any, words: str) -> None:
    def tool(fine: int, it: Any) -> None: ...

    tool.__annotations__["it"] = annotation
    with pytest.raises(SignatureError) as caught:
        inspected(tool)
    assert "parameter 'it' of tool() cannot be offered: " in str(caught.value)
    assert words in str(caught.value)


def test_a_class_in_a_function_cannot_be_named_by_a_postponed_annotation() -> None:
    @attrs.define
    class Local:
        a: int

    def tool(it: Local) -> None: ...

    with pytest.raises(SignatureError, match="'Local' is not defined"):
        inspected(tool)
    tool.__annotations__["it"] = Local
    assert inspected(tool).bind({"it": {"a": 1}}) == {"it": Local(1)}
