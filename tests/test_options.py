"""Options of wrong types are refused at once, in words, and break no list."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from trio_mcp import (
    CacheHint,
    Context,
    Elicit,
    Limits,
    ProtocolError,
    Server,
    ServerError,
    connect,
)
from trio_mcp.cli.printable import few
from trio_mcp.handlers.input.rounds import _culprit


def answer() -> str:
    return "x"


def variable(d: str) -> str:
    return d


def _server() -> Server:
    return Server("s", version="1")


ADD: dict[str, Callable[..., Any]] = {
    "tool": lambda server, **options: server.add_tool(answer, **options),
    "prompt": lambda server, **options: server.prompt(**options)(answer),
    "resource": lambda server, **options: server.resource("t://d", **options)(answer),
    "template": lambda server, **options: server.resource("t://{d}", **options)(variable),
    "content": lambda server, **options: server.add_resource("t://c", "x", **options),
}


@pytest.mark.parametrize("what", ADD)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"title": 3}, "title: expected a string"),
        ({"description": 3}, "description: expected a string"),
        ({"icons": "x.png"}, "icons are a list of Icon"),
        ({"icons": ["x.png"]}, "icons are a list of Icon"),
    ],
)
def test_what_is_told_of_a_feature(what: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        ADD[what](_server(), **options)


@pytest.mark.parametrize("what", ["tool", "prompt", "resource", "template"])
def test_a_timeout_is_a_number(what: str) -> None:
    with pytest.raises(TypeError, match="timeout is a number of seconds, not '3'"):
        ADD[what](_server(), timeout="3")


@pytest.mark.parametrize("what", ["resource", "template", "content"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mime_type": 3}, "mimeType: expected a string"),
        ({"annotations": {}}, "annotations are an object Annotations"),
        ({"cache": 60}, "cache is a CacheHint"),
    ],
)
def test_what_is_told_of_a_resource(what: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        ADD[what](_server(), **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"annotations": {"title": "x"}}, "annotations are an object ToolAnnotations"),
        ({"meta": "x"}, "meta is a dict"),
    ],
)
def test_what_is_told_of_a_tool(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        ADD["tool"](_server(), **options)


@pytest.mark.parametrize("nothing", ["hello", 3, None])
def test_a_tool_is_a_function(nothing: Any) -> None:
    with pytest.raises(TypeError, match=r"add_tool\(\) takes a function"):
        _server().add_tool(nothing)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cache": 60}, "cache is a CacheHint"),
        ({"limits": {}}, "limits are a Limits"),
        ({"version": 1}, "version: expected a string"),
        ({"instructions": 1}, "instructions are a text"),
        ({"icons": ["x.png"]}, "icons are a list of Icon"),
    ],
)
def test_what_a_server_is_made_of(options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        Server("s", **{"version": "1", **options})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Limits(page_size=1.5), "Limits.page_size is a whole number, not 1.5"),  # type: ignore[arg-type]
        (lambda: Limits(stall="3"), "Limits.stall is a number, not '3'"),  # type: ignore[arg-type]
        (lambda: CacheHint(ttl="3"), "CacheHint.ttl is a number of seconds, not '3'"),  # type: ignore[arg-type]
        (lambda: CacheHint(ttl=float("nan")), "CacheHint.ttl must be finite"),
        (lambda: CacheHint(scope="pub"), 'CacheHint.scope is "public" or "private", not \'pub\''),  # type: ignore[arg-type]
    ],
)
def test_numbers_and_words_of_bounds(make: Callable[[], object], words: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        make()
    assert str(caught.value).startswith(words)


async def test_what_was_refused_is_not_listed() -> None:
    server = _server()
    server.add_tool(answer)
    with pytest.raises(ValueError, match="title"):
        server.add_tool(answer, name="broken", title=3)  # type: ignore[arg-type]
    async with connect(server) as client:
        assert [tool.name async for tool in client.tools()] == ["answer"]


@pytest.mark.parametrize(
    ("code", "message", "words"),
    [
        ("a", "m", "code .* is an integer, not 'a'"),
        (True, "m", "code"),
        (-1, 3, "message .* not 3"),
    ],
)
def test_a_protocol_error_is_a_code_and_a_text(code: Any, message: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        ProtocolError(code, message)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"seen": {1, 2}}, "its entry 'seen' is, or holds, something else than dict"),
        ({"fine": 1, "when": object()}, "its entry 'when' is, or holds, .*: a object"),
        ({3: "x"}, "its key 3 is a int, and keys are text"),
    ],
)
def test_a_state_that_cannot_be_remembered_names_the_entry(
    entry: dict[Any, Any], words: str
) -> None:
    culprit = _culprit(entry)
    assert culprit is not None
    assert re.match(words, culprit)


def test_a_state_that_can_be_remembered_has_no_culprit() -> None:
    assert _culprit({"a": [1, {"b": None}], "c": 0.5}) is None


async def test_ask_takes_a_dict(caplog: pytest.LogCaptureFixture) -> None:
    server = _server()

    @server.tool
    async def question(ctx: Context) -> str:
        await ctx.ask(Elicit("Your name?", {}))  # type: ignore[arg-type]
        return ""

    async with connect(server) as client:
        with pytest.raises(ServerError, match="Internal error"):
            await client.call_tool("question")
    assert "ask() takes a dict of questions by keys" in caplog.text


async def test_an_unknown_tool_is_told_where_the_known_ones_are() -> None:
    async with connect(_server()) as client:
        with pytest.raises(ServerError, match=r"Unknown tool: x \(tools/list names those"):
            await client.call_tool("x")


def test_a_long_list_of_names_is_cut() -> None:
    assert few(["a", "b"]) == "a, b"
    assert few([str(n) for n in range(45)]).endswith("10, 11 … and 33 more")
