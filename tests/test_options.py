"""Options of wrong types are refused at once, in words, and break no list."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest
from trio.testing import memory_stream_pair

from trio_mcp import (
    CacheHint,
    ClientGroup,
    Context,
    Elicit,
    Limits,
    ProtocolError,
    Server,
    ServerError,
    connect,
)
from trio_mcp.cli.printable import few
from trio_mcp.client.started import start_prompt, start_read
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


# Clients ------------------------------------------------------------------------------------------

WRONG_CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "tool": (lambda client: client.call_tool(5), "the name of a tool is a text, not 5"),
    "arguments": (
        lambda client: client.call_tool("w", []),
        r"arguments are a mapping of names to values, not \[\]",
    ),
    "uri": (lambda client: client.read_resource(5), "the URI of a resource is a text, not 5"),
    "prompt": (lambda client: client.get_prompt(5), "the name of a prompt is a text, not 5"),
    "prompt arguments": (
        lambda client: client.get_prompt("p", ["a"]),
        r"arguments are a mapping of names to values, not \['a'\]",
    ),
    "completed prompt": (
        lambda client: client.complete(prompt=5, argument="a", value=""),
        "prompt is a text, not 5",
    ),
    "completed resource": (
        lambda client: client.complete(resource=0, argument="a", value=""),
        "resource is a text, not 0",
    ),
    "argument": (
        lambda client: client.complete(prompt="p", argument=5, value=""),
        "argument is a text, not 5",
    ),
    "value": (
        lambda client: client.complete(prompt="p", argument="a", value=5),
        "value is a text, not 5",
    ),
    "context": (
        lambda client: client.complete(prompt="p", argument="a", value="", arguments=[1]),
        r"arguments are a mapping of names to values, not \[1\]",
    ),
    "cursor": (lambda client: client.tools_page(5), "a cursor is a text, not 5"),
    "on_progress": (
        lambda client: client.call_tool("w", on_progress=5),
        "on_progress is a function, not 5",
    ),
    "retry": (
        lambda client: client.call_tool("w", retry=3),
        r"retry= takes a Retry, such as Retry\(attempts=3\), not 3",
    ),
    "retry of a read": (lambda client: client.read_resource("a://b", retry=3), "retry= takes"),
    "timeout": (
        lambda client: client.call_tool("w", timeout="5"),
        "timeout is a number of seconds, not '5'",
    ),
    "a timeout that is none": (
        lambda client: client.read_resource("a://b", timeout=True),
        "timeout is a number of seconds, not True",
    ),
    "max_timeout": (
        lambda client: client.get_prompt("p", max_timeout="x"),
        "max_timeout is a number of seconds, not 'x'",
    ),
    "reset_on_progress": (
        lambda client: client.call_tool("w", reset_on_progress="no"),
        "reset_on_progress is True or False, not 'no'",
    ),
    "discover": (
        lambda client: client.discover(timeout="5"),
        "timeout is a number of seconds, not '5'",
    ),
    "start_tool": (
        lambda client: client.start_tool(5).__aenter__(),
        "the name of a tool is a text, not 5",
    ),
    "started arguments": (
        lambda client: client.start_tool("w", [1]).__aenter__(),
        "arguments are a mapping",
    ),
    "start_read": (
        lambda client: start_read(client, 5).__aenter__(),  # type: ignore[arg-type]
        "the URI of a resource is a text, not 5",
    ),
    "start_prompt": (
        lambda client: start_prompt(client, "p", [1]).__aenter__(),  # type: ignore[arg-type]
        "arguments are a mapping",
    ),
    "trace": (lambda client: client.call_tool("w", trace=3), "trace is a TraceContext, .* not 3"),
    "trace of a read": (lambda client: client.read_resource("a://b", trace="x"), "trace is a"),
    "trace of a prompt": (lambda client: client.get_prompt("p", trace="x"), "trace is a"),
    "trace of a completion": (
        lambda client: client.complete(prompt="p", argument="a", value="", trace=3),
        "trace is a",
    ),
    "idempotency_key": (
        lambda client: client.call_tool("w", idempotency_key=3),
        "idempotency_key is a text, not 3",
    ),
    "listen to yes": (
        lambda client: client.listen(tools="yes").__aenter__(),
        "tools is True or False, not 'yes'",
    ),
    "listen to numbers": (
        lambda client: client.listen(resources=[3]).__aenter__(),
        "the URI of a resource is a text, not 3",
    ),
    "keys": (
        lambda client: client.call_tool("w", {3: "x"}),
        "keys of arguments are texts, as in JSON; 3 is none",
    ),
    "inner keys": (
        lambda client: client.call_tool("w", {"a": [{None: "x"}]}),
        r"keys in a\[0\] are texts, as in JSON; None is none",
    ),
    "bytes": (
        lambda client: client.call_tool("w", {"a": b"x"}),
        "the argument a is a bytes, which JSON does not have: send a text, in base64",
    ),
    "a set": (
        lambda client: client.call_tool("w", {"a": {"b": (1, {2})}}),
        r"the argument a.b\[1\] is a set, which JSON does not have: send a list",
    ),
    "bytes of a prompt": (
        lambda client: client.get_prompt("p", {"a": bytearray()}),
        "the argument a is a bytearray",
    ),
    "bytes of a completion": (
        lambda client: client.complete(prompt="p", argument="a", value="", arguments={"b": b""}),
        "the argument b is a bytes",
    ),
    "listen": (
        lambda client: client.listen(tools=True, timeout="5").__aenter__(),
        "timeout is a number of seconds, not '5'",
    ),
}


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("what", WRONG_CALLS)
async def test_calls_with_wrong_types_are_refused_before_anything_is_sent(
    what: str, cache: bool
) -> None:
    make, words = WRONG_CALLS[what]
    async with connect(_server(), cache=cache) as client:
        with pytest.raises(TypeError, match=f"^{words}"):
            await make(client)
        assert client.calls() == ()
        assert [record.method for record in client.journal] == ["server/discover"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_elicit": 5}, "on_elicit is a function, not 5"),
        ({"on_sample": 5}, "on_sample is a function, not 5"),
        ({"on_log": 5}, "on_log is a function, not 5"),
        ({"cache": 5}, "cache is True or False, not 5"),
        ({"cache": CacheHint()}, "cache is True or False, not CacheHint"),
        ({"trusted": "yes"}, "trusted is True or False, not 'yes'"),
        ({"check_results": None}, "check_results is True or False, not None"),
        ({"sample_tools": 1}, "sample_tools is True or False, not 1"),
        ({"reset_on_progress": 1}, "reset_on_progress is True or False, not 1"),
        ({"timeout": "5"}, "timeout is a number of seconds, not '5'"),
        ({"timeout": True}, "timeout is a number of seconds, not True"),
        ({"max_timeout": "x"}, "max_timeout is a number of seconds, not 'x'"),
        ({"retry": 3}, r"retry= takes a Retry, such as Retry\(attempts=3\), not 3"),
        ({"name": 3}, "name is a text, not 3"),
        ({"version": 2}, "version is a text, not 2"),
        ({"tracing": 3}, "tracing is a Tracing, .* not 3"),
        ({"cwd": 3}, "cwd is the path of a directory, not 3"),
        ({"env": {"A": 1}}, "variables in env are texts by their names; 1 is none"),
        ({"env": ["A=b"]}, r"variables in env are a mapping of names to values, not \['A=b'\]"),
    ],
)
def test_what_a_client_is_made_of(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=f"^{words}"):
        connect(["server"], **options)


@pytest.mark.parametrize("address", ["http://a/mcp", "ws://a/mcp"])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"headers": {"a": 1}}, "headers are texts by their names; 1 is none"),
        ({"headers": {1: "a"}}, "headers are texts by their names; 1 is none"),
        ({"ssl_context": 3}, "ssl_context is an ssl.SSLContext, not 3"),
    ],
)
def test_what_an_address_is_connected_to_with(
    address: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError, match=f"^{words}"):
        connect(address, **options)


@pytest.mark.parametrize(
    "address",
    ["ftp://x", "127.0.0.1:1/mcp", "localhost:80", "[::1]:80/", " http://a/mcp", "http:/a/mcp"],
)
def test_what_looks_like_an_address_and_is_none(address: str) -> None:
    with pytest.raises(ValueError, match="is no address that connect knows"):
        connect(address)


@pytest.mark.parametrize("target", ["npx server", "server.py", "npx remote http://a/", 3, None, []])
def test_what_is_no_target_is_refused_before_anything_is_entered(target: Any) -> None:
    with pytest.raises(TypeError, match="connect takes a command as a list"):
        connect(target)
    with pytest.raises(TypeError, match="connect takes a command as a list"):
        ClientGroup({"a": target})


async def test_the_reason_of_a_cancellation_is_a_text() -> None:
    async with connect(_server()) as client, client.start_tool("x") as call:
        with pytest.raises(TypeError, match="the reason of a cancellation is a text, not 3"):
            call.cancel(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the reason of a cancellation is a text, not 3"):
        ClientGroup().cancel_all(3)  # type: ignore[arg-type]


async def test_arguments_that_json_has_go_out_as_they_are() -> None:
    server = _server()

    @server.tool
    async def tell(value: Any) -> str:
        return repr(value)

    value = {"a": (1, [None, {"b": True}]), "c": 0.5}
    async with connect(server) as client:
        told = await client.call_tool("tell", MappingProxyType({"value": value}))
        assert told.text == "{'a': [1, [None, {'b': True}]], 'c': 0.5}"
        circle: list[Any] = []
        circle.append(circle)
        with pytest.raises(ValueError, match="nested too deeply"):
            await client.call_tool("tell", {"value": circle})


@pytest.mark.parametrize("option", [{"env": {"A": "b"}}, {"cwd": "/"}, {"env": {}}])
@pytest.mark.parametrize("target", ["http://a/mcp", "wss://a", "server", "stream"])
def test_what_is_for_commands_is_refused_for_others(target: str, option: dict[str, Any]) -> None:
    targets: dict[str, Any] = {"server": _server(), "stream": memory_stream_pair()[0]}
    given = {"server": "a Server", "stream": "a Staple"}.get(target, "an address")
    with pytest.raises(ValueError, match=rf"^(env|cwd) is for a command \(a list.*given {given}"):
        connect(targets.get(target, target), **option)


@pytest.mark.parametrize("option", [{"headers": {"a": "b"}}, {"ssl_context": object()}])
@pytest.mark.parametrize("target", ["command", "server", "stream"])
def test_what_is_for_addresses_is_refused_for_others(target: str, option: dict[str, Any]) -> None:
    targets: dict[str, Any] = {"server": _server(), "stream": memory_stream_pair()[0]}
    with pytest.raises(ValueError, match=r"^(headers|ssl_context) is for an address"):
        connect(targets.get(target, ["server"]), **option)
