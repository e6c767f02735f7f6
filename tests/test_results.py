"""A result that breaks its annotation, or cannot be sent, is -32603 with the key, and logged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NewType

import pytest

from trio_mcp import (
    CallToolResult,
    ErrorCode,
    Limits,
    Server,
    ServerError,
    TextContent,
    ToolResult,
    connect,
)

Title = NewType("Title", str)


def returning(value: Any, annotation: Any) -> Callable[[], Any]:
    def make() -> Any:
        return value

    make.__annotations__ = {"return": annotation}
    return make


async def refused(function: Callable[[], Any], limits: Limits | None = None) -> ServerError:
    server = Server("s", version="1", limits=limits)
    server.add_tool(function)
    async with connect(server) as client:
        with pytest.raises(ServerError) as caught:
            await client.call_tool("make")
        (record,) = [item for item in server.journal if item.target == "make"]
    assert caught.value.code == ErrorCode.INTERNAL_ERROR
    assert f"the server's log has more under exchange {record.key}" in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("value", "annotation", "words"),
    [
        (None, str, "a str, not NoneType"),
        (3, str, "a str, not int"),
        (3, Annotated[str, "a remark"], "a str, not int"),
        (3, Title, "a str, not int"),
        (3, None, "None, not int"),
        ("x", None, "None, not str"),
        (3, str | None, "a str or None, not int"),
        ([TextContent("x")], list, "annotate it with what it is, as in `-> list[TextContent]`"),
        ([TextContent("x")], list[Any], "as in `-> list[TextContent]`"),
        ([TextContent("x")], Sequence, "as in `-> list[TextContent]`"),
        (TextContent("x"), dict, "as in `-> list[TextContent]`"),
        (TextContent("x"), dict[str, Any], "as in `-> list[TextContent]`"),
        (float("nan"), float, "expected a finite number, got nan"),
        ([float("inf")], list[float], "expected a finite number, got inf"),
        ({"x": float("nan")}, Any, "x is nan, which JSON does not have"),
    ],
)
async def test_a_result_that_breaks_its_annotation(
    value: Any, annotation: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    await refused(returning(value, annotation))
    assert "tools/call make failed" in caplog.text
    assert words in caplog.text


async def test_what_json_cannot_hold_is_told_to_the_caller() -> None:
    assert "got nan" in str(await refused(returning(float("nan"), float)))


async def test_a_result_that_is_too_long_is_told_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = await refused(returning("x" * 6000, str), Limits(message_bytes=5000))
    assert "message_bytes=5000" in str(error)
    assert "tools/call make failed: The result has" in caplog.text


@pytest.mark.parametrize(
    ("value", "annotation", "text"),
    [
        ("x", str, "x"),
        (None, str | None, ""),
        (None, None, ""),
        (TextContent("x"), str, "x"),
        (CallToolResult([TextContent("x")]), str, "x"),
        (ToolResult("x"), str, "x"),
        ([1], list, "[1]"),
        ({"a": 1}, dict[str, Any], '{"a":1}'),
        ([TextContent("x")], list[TextContent], "x"),
        ([TextContent("x")], Any, "x"),
    ],
)
async def test_a_result_that_keeps_its_annotation(value: Any, annotation: Any, text: str) -> None:
    server = Server("s", version="1")
    server.add_tool(returning(value, annotation))
    async with connect(server) as client:
        assert (await client.call_tool("make")).text == text
