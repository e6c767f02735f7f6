"""Defaults and context parameters that are mistakes are refused when a function is added."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pydantic
import pytest

from trio_mcp import Context, Server, connect

NOT_GIVEN = object()


def taking(annotation: Any, default: Any) -> Callable[..., Any]:
    def take(x: Any) -> str:
        return repr(x)

    take.__defaults__ = (default,)
    take.__annotations__ = {"x": annotation, "return": str}
    return take


@pytest.mark.parametrize(
    ("annotation", "default", "words"),
    [
        (int, "a", "its default 'a' does not fit its annotation"),
        (str, 3, "its default 3 does not fit"),
        (Literal["a", "b"], "c", "its default 'c' does not fit"),
        (list[int], ["a"], "does not fit"),
        (Annotated[int, pydantic.Field(ge=1)], pydantic.Field(default=3), "FieldInfo"),
        (int, pydantic.Field(3), "FieldInfo"),
        (int, attrs.field(default=3), "which would be passed as it is"),
        (int, msgspec.field(default=3), "which would be passed as it is"),
        (int, dataclasses.field(default=3), "which would be passed as it is"),
    ],
)
def test_a_default_that_does_not_fit(annotation: Any, default: Any, words: str) -> None:
    with pytest.raises(TypeError, match=r"parameter 'x' of .*take.*cannot be offered") as caught:
        Server("s", version="1").add_tool(taking(annotation, default))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (str, None),
        (int, None),
        (float, 1),
        (list[str], ()),
        (Any, 3),
        (inspect.Parameter.empty, "x"),
        (int, NOT_GIVEN),
        (bool, True),
        (Annotated[int, msgspec.Meta(ge=1)], 0),
        (dict[int, str], {1: "a"}),
    ],
)
async def test_a_default_that_is_passed(annotation: Any, default: Any) -> None:
    function = taking(annotation, default)
    if annotation is inspect.Parameter.empty:
        del function.__annotations__["x"]
    server = Server("s", version="1")
    server.add_tool(function)
    async with connect(server) as client:
        assert (await client.call_tool("take")).text == repr(default)


@pytest.mark.parametrize("name", ["ctx", "context"])
def test_a_context_without_its_annotation(name: str) -> None:
    def tool(x: int, ctx) -> str:  # type: ignore[no-untyped-def]
        return ""

    def prompt(context) -> str:  # type: ignore[no-untyped-def]
        return ""

    functions: dict[str, Callable[..., str]] = {"ctx": tool, "context": prompt}
    function = functions[name]
    server = Server("s", version="1")
    with pytest.raises(TypeError, match=f"write `{name}: Context` for the request's context"):
        server.add_tool(function)
    with pytest.raises(TypeError, match=f"write `{name}: Context`"):
        server.prompt()(function)


def test_an_argument_that_is_named_context() -> None:
    server = Server("s", version="1")

    def named(context: Any) -> str:
        return ""

    def beside(ctx: Context, context) -> str:  # type: ignore[no-untyped-def]
        return ""

    server.add_tool(named)
    server.add_tool(beside)


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Literal["z", "a", "m"], {"enum": ["z", "a", "m"]}),
        (Annotated[Literal[3, 1, 2], "a remark"], {"enum": [3, 1, 2]}),
        (list[Literal["z", "a"]], {"items": {"enum": ["z", "a"]}}),
        (Literal["z", "a"] | None, {"anyOf": [{"enum": ["z", "a"]}, {"type": "null"}]}),
    ],
)
async def test_choices_are_shown_as_they_were_written(
    annotation: Any, schema: dict[str, Any]
) -> None:
    def take(x: Any) -> Any: ...

    take.__annotations__ = {"x": annotation, "return": list[annotation]}
    server = Server("s", version="1")
    server.add_tool(take)
    async with connect(server) as client:
        (tool,) = [tool async for tool in client.tools()]
    assert tool.output_schema is not None
    for shown in (tool.input_schema["properties"]["x"], tool.output_schema["items"]):
        assert _choices(shown) == _choices(schema)


def _choices(schema: dict[str, Any]) -> list[Any]:
    """The first list of choices in a schema."""
    parts = [schema, schema.get("items", {}), *schema.get("anyOf", [])]
    return next(part["enum"] for part in parts if "enum" in part)
