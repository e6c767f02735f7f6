"""Prompts: what is offered, listed and got, on the level of bytes.

Specification: *Prompts*; *Pagination*; *Caching*. Every line of the server is held against the
official schema on the way.
"""

from __future__ import annotations

import datetime
import enum
import functools
import itertools
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from tests.peers.checked import check_schema, checked_client, checked_process
from tests.peers.inspection import about, record_of
from tests.peers.raw import RawPeer, cancel, raw_client, request, until
from tests.peers.raw_http import HttpPeer, post

from trio_mcp import (
    AudioContent,
    CacheHint,
    CancelSource,
    Context,
    EmbeddedResource,
    ErrorCode,
    GetPromptResult,
    Icon,
    ImageContent,
    Limits,
    PromptMessage,
    ProtocolError,
    ResourceLink,
    Server,
    State,
    TextContent,
    TextResourceContents,
    ToolError,
)
from trio_mcp.handlers.prompts.messages import prompt_result
from trio_mcp.handlers.schema.problems import MAX_PROBLEMS
from trio_mcp.handlers.schema.signature import InvalidArguments, inspect_function
from trio_mcp.handlers.schema.texts import MAX_DIGITS, TextArguments

_ids = itertools.count(1)


MOOD = msgspec.Meta(title="Your mood", description="As it is.")


class Genre(enum.Enum):
    CRIME = "crime"
    POETRY = "poetry"


class Floor(enum.IntEnum):
    GROUND = 0
    FIRST = 1


def make_server(**options: Any) -> Server:
    """One tool, for probes, and no prompt yet."""
    server = Server("prompts", version="1.0.0", **options)

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


async def ask(peer: RawPeer, method: str, **params: Any) -> dict[str, Any]:
    """Send a request, and wait for its answer."""
    request_id = f"ask {next(_ids)}"
    await peer.send(request(request_id, method, params))
    return await peer.answer(request_id, timeout=10)


async def get(peer: RawPeer, name: str, /, **arguments: Any) -> dict[str, Any]:
    """The result of a ``prompts/get``."""
    result: dict[str, Any] = (await ask(peer, "prompts/get", name=name, arguments=arguments))[
        "result"
    ]
    return result


async def refusal(peer: RawPeer, method: str, **params: Any) -> str:
    """The words of an error -32602."""
    error = (await ask(peer, method, **params))["error"]
    assert error["code"] == ErrorCode.INVALID_PARAMS
    message: str = error["message"]
    return message


async def listed(peer: RawPeer, **params: Any) -> list[dict[str, Any]]:
    prompts: list[dict[str, Any]] = (await ask(peer, "prompts/list", **params))["result"]["prompts"]
    return prompts


def texts(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Who says what, of a prompt that has only text."""
    return [(message["role"], message["content"]["text"]) for message in result["messages"]]


# What is offered ----------------------------------------------------------------------------------


async def test_prompts_are_served_and_told_from_the_first_one_on() -> None:
    server = make_server()
    async with checked_client(server) as peer:
        for method, params in (("prompts/list", {}), ("prompts/get", {"name": "greet"})):
            error = (await ask(peer, method, **params))["error"]
            assert error["code"] == ErrorCode.METHOD_NOT_FOUND
        capabilities = (await ask(peer, "server/discover"))["result"]["capabilities"]
        assert capabilities == {"tools": {"listChanged": True}, "logging": {}}

        server.prompt(name="greet")(lambda: "Hello.")
        capabilities = (await ask(peer, "server/discover"))["result"]["capabilities"]
        assert capabilities == {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "logging": {},
        }
        assert texts(await get(peer, "greet")) == [("user", "Hello.")]

        server.remove_prompt("greet")
        assert await listed(peer) == []
        capabilities = (await ask(peer, "server/discover"))["result"]["capabilities"]
        assert "prompts" in capabilities


async def test_a_definition_comes_from_the_function() -> None:
    server = make_server(cache=CacheHint(ttl=60, scope="public"))

    @server.prompt(title="Recommend a book", icons=[Icon("https://example.com/book.svg")])
    async def recommend(
        genre: Literal["crime", "poetry"],
        ctx: Context,
        copies: int = 1,
        mood: Annotated[str, msgspec.Meta(title="Your mood", description="As it is.")]
        | None = None,
    ) -> str:
        """Ask for a book.

        Args:
            genre: What kind of book.
            copies: How many.

        """
        return f"{genre} {copies} {mood} {ctx.method}"

    assert recommend.__name__ == "recommend"
    async with checked_client(server) as peer:
        result = (await ask(peer, "prompts/list"))["result"]
        assert (result["ttlMs"], result["cacheScope"]) == (60_000, "public")
        (prompt,) = result["prompts"]
        assert prompt == {
            "name": "recommend",
            "title": "Recommend a book",
            "description": "Ask for a book.",
            "icons": [{"src": "https://example.com/book.svg"}],
            "arguments": [
                {"name": "genre", "description": "What kind of book.", "required": True},
                {"name": "copies", "description": "How many.", "required": False},
                {
                    "name": "mood",
                    "title": "Your mood",
                    "description": "As it is.",
                    "required": False,
                },
            ],
        }
        got = await get(peer, "recommend", genre="crime", copies="3")
        assert got["description"] == "Ask for a book."
        assert texts(got) == [("user", "crime 3 None prompts/get")]


async def test_what_can_be_called_can_be_a_prompt() -> None:
    server = make_server()

    class Shop:
        def __call__(self, title: str) -> str:
            return f"object {title}"

        async def order(self, title: str) -> str:
            return f"method {title}"

    def any_of(first: str, title: str) -> str:
        return f"{first} {title} in {threading.current_thread().name != 'MainThread'}"

    server.prompt(name="object")(Shop())
    server.prompt(Shop().order)
    server.prompt(name="partial of one", description="D.")(functools.partial(any_of, "partial"))
    async with checked_client(server) as peer:
        prompts = await listed(peer)
        assert [prompt["name"] for prompt in prompts] == ["object", "order", "partial of one"]
        assert [len(prompt["arguments"]) for prompt in prompts] == [1, 1, 1]
        assert prompts[2]["description"] == "D."
        assert texts(await get(peer, "object", title="Dune")) == [("user", "object Dune")]
        assert texts(await get(peer, "order", title="Dune")) == [("user", "method Dune")]
        assert texts(await get(peer, "partial of one", title="Dune")) == [
            ("user", "partial Dune in True")
        ]


@attrs.frozen
class Shelf:
    name: str
    below: Shelf | None = None


def test_classes_are_refused_at_once_wherever_they_are_defined() -> None:
    def two(first: Shelf, second: Shelf) -> str:
        return ""

    def with_others(title: str, shelf: Shelf | None = None) -> str:
        return ""

    for prompt, name in ((two, "first"), (with_others, "shelf")):
        with pytest.raises(TypeError, match=f"parameter '{name}' cannot be offered"):
            make_server().prompt(prompt)


def generator() -> Any:
    yield "text"


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "x" * 129, "\ud800"])
def test_a_bad_name_is_refused_at_once(name: str) -> None:
    with pytest.raises(ValueError, match="printable characters"):
        make_server().prompt(name=name)(lambda: "text")


@pytest.mark.parametrize(
    "annotation",
    [list[str], dict[str, str], tuple[int, int], set[str], str | list[str], Genre | dict[str, int]],
    ids=str,
)
def test_what_no_text_can_be_is_refused_at_once(annotation: Any) -> None:
    def prompt(titles: Any) -> str:
        return ""

    prompt.__annotations__["titles"] = annotation
    with pytest.raises(TypeError, match=r"prompt 'prompt'.*'titles'.*take a str and parse it"):
        make_server().prompt(prompt)


def test_other_mistakes_are_refused_at_once() -> None:
    server = make_server()
    server.prompt(name="taken")(lambda: "text")
    with pytest.raises(ValueError, match="a prompt named 'taken' already"):
        server.prompt(name="taken")(lambda: "text")
    with pytest.raises(TypeError, match=r"write prompt\(name='review'\)"):
        server.prompt("review")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="timeout"):
        server.prompt(name="hurried", timeout=0)(lambda: "text")
    with pytest.raises(TypeError, match="generator"):
        server.prompt(generator)
    with pytest.raises(ValueError, match="cannot be sent as JSON"):
        server.prompt(name="odd", title="\ud800")(lambda: "text")
    with pytest.raises(KeyError, match="no prompt named 'review'"):
        server.remove_prompt("review")


# Lists --------------------------------------------------------------------------------------------


async def test_a_list_comes_in_pages_while_prompts_come_and_go() -> None:
    server = make_server(limits=Limits(page_size=2), secret="s")
    for name in "abcde":
        server.prompt(name=name)(lambda: "text")
    async with checked_client(server) as peer:
        first = (await ask(peer, "prompts/list"))["result"]
        assert [prompt["name"] for prompt in first["prompts"]] == ["a", "b"]
        server.remove_prompt("b")
        server.remove_prompt("c")
        server.prompt(name="f")(lambda: "text")
        second = (await ask(peer, "prompts/list", cursor=first["nextCursor"]))["result"]
        assert [prompt["name"] for prompt in second["prompts"]] == ["d", "e"]
        third = (await ask(peer, "prompts/list", cursor=second["nextCursor"]))["result"]
        assert [prompt["name"] for prompt in third["prompts"]] == ["f"]
        assert "nextCursor" not in third


async def test_a_foreign_cursor_is_refused() -> None:
    server = make_server(limits=Limits(page_size=1))
    for name in "ab":
        server.tool(name=name)(lambda: "text")
        server.prompt(name=name)(lambda: "text")
    async with checked_client(server) as peer:
        tools = (await ask(peer, "tools/list"))["result"]["nextCursor"]
        own = (await ask(peer, "prompts/list"))["result"]["nextCursor"]
        for cursor in ("", "forged", tools, own[:-2]):
            assert "cursor" in await refusal(peer, "prompts/list", cursor=cursor)
        await refusal(peer, "tools/list", cursor=own)
        await refusal(peer, "prompts/list", cursor=5)


# Arguments ----------------------------------------------------------------------------------------


def typed(
    text: str = "",
    number: int = 0,
    ratio: float = 0,
    flag: bool = False,
    choice: Literal["yes", "no", 3] = "no",
    genre: Genre = Genre.CRIME,
    floor: Floor = Floor.GROUND,
    day: datetime.date | None = None,
    either: int | str = "",
    few: Annotated[int, msgspec.Meta(ge=1, le=9)] | None = None,
    anything: object = None,
) -> None:
    """For what becomes of texts."""


TYPED = TextArguments.of(inspect_function(typed, context_type=Context))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("text", "5", "5"),
        ("text", "", ""),
        ("text", "true", "true"),
        ("number", "-12", -12),
        ("number", "+007", 7),
        ("number", "9" * MAX_DIGITS, int("9" * MAX_DIGITS)),
        ("ratio", "3", 3.0),
        ("ratio", ".5", 0.5),
        ("ratio", "-1.5e-3", -0.0015),
        ("flag", "true", True),
        ("flag", "False", False),
        ("choice", "yes", "yes"),
        ("choice", "3", 3),
        ("genre", "poetry", Genre.POETRY),
        ("floor", "1", Floor.FIRST),
        ("day", "2026-01-31", datetime.date(2026, 1, 31)),
        ("either", "5", 5),
        ("either", "five", "five"),
        ("few", "9", 9),
        ("anything", "5", "5"),
    ],
)
def test_a_text_becomes_what_the_annotation_says(name: str, text: str, value: Any) -> None:
    (read,) = TYPED.bind({name: text}).values()
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("number", "five", "argument 'number': expected integer, got 'five'"),
        ("number", "", "argument 'number': expected integer, got ''"),
        ("number", "1.5", "expected integer"),
        ("number", "\u0663", "expected integer"),
        ("number", "1_000", "expected integer"),
        ("number", "9" * (MAX_DIGITS + 1), "expected integer"),
        ("ratio", "nan", "argument 'ratio': expected number, got 'nan'"),
        ("ratio", "1e999", "argument 'ratio': expected number, got '1e999'"),
        ("ratio", "1,5", "expected number"),
        ("flag", "1", "argument 'flag': expected boolean, got '1'"),
        ("flag", "maybe", "expected boolean"),
        ("choice", "4", "argument 'choice': expected one of 'yes', 'no', 3, got '4'"),
        ("genre", "CRIME", "argument 'genre': expected one of 'crime', 'poetry', got 'CRIME'"),
        ("floor", "2", "argument 'floor': expected one of 0, 1, got '2'"),
        ("day", "tomorrow", "date such as 2026-01-31"),
        ("few", "10", "argument 'few': must be at most 9, got 10"),
        ("few", "null", "argument 'few': expected integer or null, got 'null'"),
    ],
)
def test_a_text_that_is_none_of_it_is_told(name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        TYPED.bind({name: text})
    assert words in str(refused.value).replace('"', "'")


@given(st.dictionaries(st.sampled_from(sorted(TYPED.by_name)) | st.text(), st.text()))
def test_any_texts_are_bound_or_refused(given: dict[str, str]) -> None:
    try:
        names = TYPED.bind(given).keys()
    except InvalidArguments as error:
        names, problems = given.keys(), len(error.problems)
    else:
        problems = 1
    assert names == given.keys()
    assert 1 <= problems <= MAX_PROBLEMS + 1


async def test_arguments_that_do_not_fit_are_told_all_at_once() -> None:
    server = make_server()
    ran: list[str] = []

    @server.prompt
    async def order(title: str, copies: int = 1) -> str:
        ran.append(title)
        return f"{copies}x{title}"

    async with checked_client(server) as peer:
        words = await refusal(
            peer, "prompts/get", name="order", arguments={"titel": "Dune", "copies": "many"}
        )
        assert "unknown argument 'titel' (known: title, copies)" in words
        assert "missing required argument 'title' (string)" in words
        assert "argument 'copies': expected integer, got \"many\"" in words
        assert "\n" not in words
        assert "missing required argument" in await refusal(peer, "prompts/get", name="order")
        for bad in ({"title": 5}, {"title": None}, "Dune", ["Dune"]):
            words = await refusal(peer, "prompts/get", name="order", arguments=bad)
            assert "params.arguments" in words
        many = {f"argument {n}": "x" * 1000 for n in range(1000)}
        assert len(await refusal(peer, "prompts/get", name="order", arguments=many)) < 5000
        assert ran == []
        assert texts(await get(peer, "order", title="Dune")) == [("user", "1xDune")]


async def test_an_unknown_prompt_is_refused() -> None:
    server = make_server()
    server.prompt(name="greet")(lambda: "text")
    async with checked_client(server) as peer:
        words = await refusal(peer, "prompts/get", name="great")
        assert words == "Unknown prompt: great (prompts/list names those there are)"
        assert len(await refusal(peer, "prompts/get", name="x" * 100_000)) < 250
        for params in ({}, {"name": 5}, {"name": None}):
            assert "params.name" in await refusal(peer, "prompts/get", **params)
        server.remove_prompt("greet")
        await refusal(peer, "prompts/get", name="greet")
        server.prompt(name="greet")(lambda: "again")
        assert texts(await get(peer, "greet")) == [("user", "again")]


# Results ------------------------------------------------------------------------------------------


IMAGE = ImageContent("aGk=", "image/png")


@pytest.mark.parametrize(
    ("returned", "messages"),
    [
        ("text", [("user", "text", "text")]),
        (Genre.CRIME, None),
        (TextContent("text"), [("user", "text", "text")]),
        (IMAGE, [("user", "image", "aGk=")]),
        (AudioContent("aGk=", "audio/wav"), [("user", "audio", "aGk=")]),
        (ResourceLink("file:///a", "a"), [("user", "resource_link", "file:///a")]),
        (PromptMessage("assistant", TextContent("so")), [("assistant", "text", "so")]),
        (
            ["one", PromptMessage("assistant", TextContent("two")), IMAGE],
            [("user", "text", "one"), ("assistant", "text", "two"), ("user", "image", "aGk=")],
        ),
        (("one",), [("user", "text", "one")]),
        ([], []),
        (None, None),
        (5, None),
        (b"bytes", None),
        ({"role": "user"}, None),
        (["one", None], None),
        (PromptMessage("system", TextContent("so")), None),  # type: ignore[arg-type]
        (PromptMessage("user", "text"), None),  # type: ignore[arg-type]
        (PromptMessage("user", TextContent(5)), None),  # type: ignore[arg-type]
        (GetPromptResult(["text"]), None),  # type: ignore[list-item]
        (TextContent("\ud800"), None),
        ("\ud800", None),
    ],
    ids=repr,
)
async def test_what_a_prompt_returns_becomes_messages(
    returned: Any, messages: list[tuple[str, str, str]] | None, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()

    @server.prompt
    async def say() -> Any:
        return returned

    async with checked_client(server) as peer:
        answer = await ask(peer, "prompts/get", name="say")
        if messages is None:
            assert answer["error"]["code"] == ErrorCode.INTERNAL_ERROR
            assert "exchange" in answer["error"]["message"]
            assert "failed" in caplog.text
        else:
            found = []
            for message in answer["result"]["messages"]:
                block = message["content"]
                shown = next(block[key] for key in ("text", "data", "uri") if key in block)
                found.append((message["role"], block["type"], shown))
            assert found == messages
        assert await peer.probe() == []


async def test_a_resource_may_be_embedded_and_a_result_be_whole() -> None:
    server = make_server()
    contents = TextResourceContents("stock://Dune", "3 copies", mime_type="text/plain")

    @server.prompt(description="The prompt's.")
    async def stock() -> EmbeddedResource:
        return EmbeddedResource(contents)

    @server.prompt(description="The prompt's.")
    def whole() -> GetPromptResult:
        return GetPromptResult(
            [PromptMessage("user", TextContent("hi"))], "Its own.", meta={"a": 1}
        )

    async with checked_client(server) as peer:
        (message,) = (await get(peer, "stock"))["messages"]
        assert message["content"]["resource"] == {
            "uri": "stock://Dune",
            "text": "3 copies",
            "mimeType": "text/plain",
        }
        result = await get(peer, "whole")
        assert result["description"] == "Its own."
        assert result["_meta"]["a"] == 1


def test_text_of_a_class_of_its_own_is_plain_text() -> None:
    class Shout(str):
        def __str__(self) -> str:
            return "never"

    (message,) = prompt_result(Shout("ahoy"), None).messages
    assert message == PromptMessage("user", TextContent("ahoy"))
    assert isinstance(message.content, TextContent)
    assert type(message.content.text) is str


async def test_failures_are_errors_and_bugs_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()

    @server.prompt
    async def fail(kind: str) -> str:
        if kind == "told":
            raise ProtocolError(-31050, "the shop is closed", {"until": "Monday"})
        if kind == "tool":
            raise ToolError("secret detail")
        raise RuntimeError("secret detail")

    async with checked_client(server) as peer:
        told = await ask(peer, "prompts/get", name="fail", arguments={"kind": "told"})
        assert told["error"] == {
            "code": -31050,
            "message": "the shop is closed",
            "data": {"until": "Monday"},
        }
        for kind in ("tool", "bug"):
            hidden = await ask(peer, "prompts/get", name="fail", arguments={"kind": kind})
            assert hidden["error"]["code"] == ErrorCode.INTERNAL_ERROR
            assert "secret" not in str(hidden)
        assert caplog.text.count("secret detail") >= 2
        assert await peer.probe() == []


# Running, and being stopped -----------------------------------------------------------------------


class Slow:
    """A server with prompts that last."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.server = make_server(limits=limits)
        self.begun: list[str] = []
        self.released: list[str] = []
        self.server.prompt(self.wait)
        self.server.prompt(self.thread)
        self.server.prompt(timeout=2)(self.hurried)

    async def wait(self, label: str, ctx: Context) -> str:
        self.begun.append(label)
        try:
            ctx.progress(1, 2, label)
            await trio.sleep_forever()
        finally:
            with ctx.cleanup(5):
                await trio.lowlevel.checkpoint()
                self.released.append(label)

    def thread(self, label: str, ctx: Context) -> str:
        self.begun.append(label)
        try:
            for _ in range(1000):
                ctx.check_cancelled()
                time.sleep(0.005)
            return "never"
        finally:
            self.released.append(label)

    async def hurried(self, label: str, ctx: Context) -> str:
        return await self.wait(label, ctx)


def getting(request_id: Any, name: str, /, *, token: Any = None, label: str = "") -> dict[str, Any]:
    params: dict[str, Any] = {"name": name, "arguments": {"label": label}}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return request(request_id, "prompts/get", params)


@pytest.mark.parametrize("name", ["wait", "thread"])
async def test_invariant_2_a_cancelled_prompt_stops_and_nothing_is_said(name: str) -> None:
    slow = Slow()
    async with checked_client(slow.server) as peer:
        await peer.send(getting(1, name, label="one"), getting(2, "wait", label="two"))
        await until(lambda: len(slow.begun) == 2)
        await peer.send(cancel(1, "no longer wanted"))
        await until(lambda: slow.released == ["one"])
        await until(lambda: len(slow.server.journal) == 1)
        assert about(await peer.probe(), 1) == []
        record = record_of(slow.server, 1)
        assert (record.state, record.method, record.target) == (
            State.CANCELLED,
            "prompts/get",
            name,
        )
        assert record.cause is not None
        assert (record.cause.source, record.cause.reason) == (
            CancelSource.NOTIFICATION,
            "no longer wanted",
        )
        await peer.send(cancel(2))
        await until(lambda: slow.released == ["one", "two"])
    assert [*slow.server.scopes().walk()][1:] == []


async def test_invariant_4_the_end_of_a_connection_stops_its_prompts() -> None:
    slow = Slow()
    async with raw_client(slow.server) as peer:
        await peer.send(getting(1, "wait"), getting(2, "thread"))
        await until(lambda: len(slow.begun) == 2)
    assert len(slow.released) == 2
    for record in slow.server.journal:
        assert record.cause is not None
        assert record.cause.source is CancelSource.DISCONNECT


async def test_a_prompt_has_its_time(autojump_clock: trio.testing.MockClock) -> None:
    slow = Slow()
    async with checked_client(slow.server) as peer:
        await peer.send(getting(1, "hurried", token="t"))
        error = (await peer.answer(1))["error"]
        assert error["code"] == ErrorCode.DEADLINE_EXCEEDED
        assert trio.current_time() == pytest.approx(2, abs=0.1)
        assert slow.released == [""]
        (progress,) = [m for m in peer.seen if "method" in m]
        assert progress["params"] == {
            "progressToken": "t",
            "progress": 1,
            "total": 2,
            "message": "",
        }
    record = record_of(slow.server, 1)
    assert record.cause is not None
    assert record.cause.source is CancelSource.DEADLINE


async def test_a_drain_stops_a_prompt_and_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    slow = Slow(Limits(drain=2))
    ours, theirs = trio.testing.memory_stream_pair()
    peer = RawPeer(ours, ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.server.serve_stream, theirs)
        await peer.send(getting(1, "wait"))
        await until(lambda: slow.begun)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            error = (await peer.answer(1))["error"]
    assert error["code"] == ErrorCode.SHUTTING_DOWN
    record = record_of(slow.server, 1)
    assert record.cause is not None
    assert record.cause.source is CancelSource.SHUTDOWN


# The example ------------------------------------------------------------------------------------


async def test_the_example_recommends_and_completes() -> None:
    command = [sys.executable, str(Path(__file__).parents[1] / "examples" / "prompts_server.py")]
    async with checked_process(command) as peer:
        (_, count) = (await listed(peer))[0]["arguments"]
        assert count == {"name": "count", "description": "How many.", "required": False}
        assert texts(await get(peer, "recommend", genre="poetry")) == [
            ("user", "Recommend 3 poetry books. We have Ariel, Leaves of Grass.")
        ]
        assert [role for role, _ in texts(await get(peer, "review", title="Ariel"))] == [
            "user",
            "assistant",
        ]
        for known, proposed in (
            ({}, ["The Big Sleep", "Leaves of Grass"]),
            ({"genre": "poetry"}, ["Leaves of Grass"]),
        ):
            answer = await ask(
                peer,
                "completion/complete",
                ref={"type": "ref/prompt", "name": "review"},
                argument={"name": "title", "value": "le"},
                context={"arguments": known},
            )
            assert answer["result"]["completion"]["values"] == proposed


# HTTP ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def over_http(
    server: Server,
) -> AsyncGenerator[Callable[[], Awaitable[HttpPeer]], None]:
    """A server that listens, and how to connect to it."""
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(server.serve_http, port=0))

        async def connect() -> HttpPeer:
            return HttpPeer(await trio.open_tcp_stream("127.0.0.1", port))

        yield connect
        nursery.cancel_scope.cancel("the test is over")


async def test_prompts_over_http() -> None:
    server = make_server(limits=Limits(page_size=1))

    @server.prompt(name="größe")
    async def size(title: str) -> str:
        return f"How long is {title}?"

    server.prompt(name="other")(lambda: "text")
    async with over_http(server) as connect:
        peer = await connect()
        first = await peer.ask(request(1, "prompts/list"))
        check_schema("ListPromptsResultResponse", first.json)
        cursor = first.json["result"]["nextCursor"]
        second = await peer.ask(request(2, "prompts/list", {"cursor": cursor}))
        assert [prompt["name"] for prompt in second.json["result"]["prompts"]] == ["other"]

        params = {"name": "größe", "arguments": {"title": "Dune"}}
        encoded = "=?base64?Z3LDtsOfZQ==?="
        got = await peer.ask(request(3, "prompts/get", params), mcp_name=encoded)
        check_schema("GetPromptResultResponse", got.json)
        assert texts(got.json["result"]) == [("user", "How long is Dune?")]

        wrong = await peer.ask(request(4, "prompts/get", params), mcp_name="other")
        assert (wrong.status, wrong.code) == (400, ErrorCode.HEADER_MISMATCH)
        unknown = await peer.ask(request(5, "prompts/get", {"name": "nobody"}))
        check_schema("JSONRPCErrorResponse", unknown.json)
        assert unknown.code == ErrorCode.INVALID_PARAMS
        for cursor in ("", "forged"):
            bad = await peer.ask(request(6, "prompts/list", {"cursor": cursor}))
            assert bad.code == ErrorCode.INVALID_PARAMS
        await peer.stream.aclose()


@pytest.mark.parametrize("name", ["wait", "thread"])
async def test_a_client_that_leaves_stops_its_prompt(name: str) -> None:
    slow = Slow()
    async with over_http(slow.server) as connect:
        peer, other = await connect(), await connect()
        await peer.send(post(getting(1, name, label="one")))
        await other.send(post(getting(1, "wait", label="two")))
        await until(lambda: len(slow.begun) == 2)
        await peer.stream.aclose()
        await until(lambda: slow.released == ["one"])
        await until(lambda: len(slow.server.journal) == 1)
        (record,) = slow.server.journal
        assert (record.state, record.target) == (State.CANCELLED, name)
        assert record.cause is not None
        assert record.cause.source is CancelSource.DISCONNECT
        await other.stream.aclose()
        await until(lambda: slow.released == ["one", "two"])
