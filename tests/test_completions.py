"""Completions: proposals for the arguments of prompts and the variables of templates.

Specification: *Completion*. Every line of the server is held against the official schema on the
way, on the level of bytes.
"""

from __future__ import annotations

import enum
import functools
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
import trio
import trio.testing
from tests.peers.checked import check_schema, checked_client
from tests.peers.inspection import about, record_of
from tests.peers.raw import RawPeer, cancel, raw_client, request, until
from tests.peers.raw_http import HttpPeer, post

from trio_mcp import (
    CancelSource,
    Completion,
    Context,
    ErrorCode,
    Limits,
    ProtocolError,
    Record,
    Server,
    State,
)
from trio_mcp.handlers.completions import Completions
from trio_mcp.runtime.models.completion import (
    CompleteRequestParams,
    CompletionArgument,
    ResourceTemplateReference,
)

_ids = itertools.count(1)
TEMPLATE = "stock://{shelf}/{title}{?branch,max*}"


class Mood(enum.StrEnum):
    DARK = "dark"
    DREAMY = "dreamy"
    LIGHT = "light"


def make_server(**options: Any) -> Server:
    """One tool, for probes, and one prompt with arguments of many kinds."""
    server = Server("completions", version="1.0.0", **options)

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.prompt
    async def recommend(
        genre: Literal["Crime", "poetry", "Politics"],
        title: str = "",
        signed: bool = False,
        mood: Mood | None = None,
        copies: Literal[1, 2, 12] = 1,
        either: Literal["some"] | bool | None = None,
    ) -> str:
        return f"{genre} {title} {signed} {mood} {copies} {either}"

    @server.resource(TEMPLATE)
    async def stock(shelf: str, title: str, max: list[str], branch: str = "") -> str:
        return f"{shelf} {title} {max} {branch}"

    return server


def completing(
    request_id: Any,
    subject: str,
    argument: str,
    value: str = "",
    arguments: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A ``completion/complete`` for an argument of a prompt, or of a template if it looks so."""
    is_uri = "://" in subject
    params: dict[str, Any] = {
        "ref": {"type": "ref/resource", "uri": subject}
        if is_uri
        else {"type": "ref/prompt", "name": subject},
        "argument": {"name": argument, "value": value},
    }
    if arguments is not None:
        params["context"] = {"arguments": dict(arguments)}
    return request(request_id, "completion/complete", params)


async def ask(peer: RawPeer, message: dict[str, Any]) -> dict[str, Any]:
    await peer.send(message)
    return await peer.answer(message["id"])


async def complete(peer: RawPeer, *what: Any) -> dict[str, Any]:
    """What is proposed."""
    answer = await ask(peer, completing(f"complete {next(_ids)}", *what))
    completion: dict[str, Any] = answer["result"]["completion"]
    return completion


async def values(peer: RawPeer, *what: Any) -> list[str]:
    """All that is proposed, where that is all there is."""
    completion = await complete(peer, *what)
    assert completion["total"] == len(completion["values"])
    assert completion["hasMore"] is False
    proposed: list[str] = completion["values"]
    return proposed


async def refusal(peer: RawPeer, message: dict[str, Any]) -> str:
    """The words of an error -32602."""
    error = (await ask(peer, message))["error"]
    assert error["code"] == ErrorCode.INVALID_PARAMS
    words: str = error["message"]
    return words


# What is offered ----------------------------------------------------------------------------------


async def test_completions_are_told_once_there_is_something_to_complete() -> None:
    server = Server("shop", version="1.0.0")
    async with checked_client(server) as peer:

        async def told() -> bool:
            discovered = await ask(peer, request(f"told {next(_ids)}", "server/discover"))
            capabilities = discovered["result"]["capabilities"]
            answer = await ask(peer, completing(f"told {next(_ids)}", "nobody", "title"))
            served: bool = answer["error"]["code"] != ErrorCode.METHOD_NOT_FOUND
            assert ("completions" in capabilities) is served
            return served

        assert not await told()
        server.prompt(name="greet")(lambda: "Hello.")
        assert not await told()
        server.prompt(name="order")(lambda title: f"Order {title}.")
        assert await told()


async def test_a_completer_of_a_template_is_told_too_and_goes_with_it() -> None:
    server = Server("shop", version="1.0.0")
    server.resource("stock://{title}")(lambda title: title)
    server.completion(resource="stock://{title}", argument="title")(lambda value: [value + "!"])
    async with checked_client(server) as peer:
        assert await values(peer, "stock://{title}", "title", "Dune") == ["Dune!"]
        server.remove_resource_template("stock://{title}")
        words = await refusal(peer, completing("gone", "stock://{title}", "title"))
        assert "Unknown resource template" in words
        server.resource("stock://{title}")(lambda title: title)
        assert await values(peer, "stock://{title}", "title", "Dune") == []


def nothing() -> list[str]:
    return []


def three(value: str, arguments: Mapping[str, str], limit: int) -> list[str]:
    return []


def untold(*values: str) -> list[str]:
    return []


@pytest.mark.parametrize("function", [nothing, three, untold, "titles", 5])
def test_what_takes_no_text_or_too_much_is_refused_at_once(function: Any) -> None:
    with pytest.raises(TypeError):
        make_server().completion(prompt="recommend", argument="title")(function)


def test_other_mistakes_are_refused_at_once() -> None:
    server = make_server()
    with pytest.raises(ValueError, match="no prompt named 'recomend'; add it before"):
        server.completion(prompt="recomend", argument="title")(lambda value: [])
    with pytest.raises(ValueError, match=r"no argument 'titel' \(known: genre, title, signed"):
        server.completion(prompt="recommend", argument="titel")(lambda value: [])
    with pytest.raises(ValueError, match=r"no argument 'titel' .known: shelf, title, branch, max"):
        server.completion(resource=TEMPLATE, argument="titel")(lambda value: [])
    for prompt, resource in ((None, None), ("recommend", TEMPLATE)):
        with pytest.raises(TypeError, match=r"either prompt=… or resource=…"):
            server.completion(argument="title", prompt=prompt, resource=resource)
    server.completion(prompt="recommend", argument="title")(lambda value: [])
    with pytest.raises(ValueError, match="a completer for 'title' of 'recommend' already"):
        server.completion(prompt="recommend", argument="title")(lambda value: [])
    with pytest.raises(ValueError, match="timeout"):
        server.completion(resource=TEMPLATE, argument="max", timeout=-1)(lambda value: [])
    server.completion(resource=TEMPLATE, argument="max")(lambda value: [])


# By annotation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "value", "proposed"),
    [
        ("genre", "", ["Crime", "poetry", "Politics"]),
        ("genre", "po", ["poetry", "Politics"]),
        ("genre", "POE", ["poetry"]),
        ("genre", "poetry", ["poetry"]),
        ("genre", "poetry!", []),
        ("genre", "x" * 100_000, []),
        ("title", "", []),
        ("signed", "", ["true", "false"]),
        ("signed", "T", ["true"]),
        ("mood", "d", ["dark", "dreamy"]),
        ("copies", "1", ["1", "12"]),
        ("either", "", ["some", "true", "false"]),
    ],
)
async def test_arguments_of_few_texts_are_completed_by_themselves(
    argument: str, value: str, proposed: list[str]
) -> None:
    async with checked_client(make_server()) as peer:
        assert await values(peer, "recommend", argument, value) == proposed


async def test_what_is_proposed_is_accepted() -> None:
    async with checked_client(make_server()) as peer:
        for argument in ("signed", "mood", "copies", "either"):
            for text in await values(peer, "recommend", argument):
                arguments = {"genre": "poetry", argument: text}
                params = {"name": "recommend", "arguments": arguments}
                assert "result" in await ask(peer, request(text, "prompts/get", params))


# By completers ------------------------------------------------------------------------------------


async def test_a_completer_gets_the_text_the_known_arguments_and_the_context() -> None:
    server = make_server()
    seen: list[Any] = []

    @server.completion(prompt="recommend", argument="title")
    async def titles(ctx: Context, typed: str, known: Mapping[str, str]) -> list[str]:
        seen.append((typed, dict(known), ctx.method))
        return [typed.upper()]

    assert titles.__name__ == "titles"
    async with checked_client(server) as peer:
        assert await values(peer, "recommend", "title", "du") == ["DU"]
        known = {"genre": "crime", "secret": "x", "title": "old"}
        assert await values(peer, "recommend", "title", "é\u2028", known) == ["É\u2028"]
    assert seen == [
        ("du", {}, "completion/complete"),
        ("é\u2028", {"genre": "crime", "title": "old"}, "completion/complete"),
    ]


async def test_what_can_be_called_can_be_a_completer() -> None:
    server = make_server()

    class Shelf:
        def titles(self, value: str) -> list[str]:
            return [f"{value} in a thread"]

    async def after(first: str, value: str, ctx: Context) -> tuple[str, ...]:
        return (first, value)

    server.completion(prompt="recommend", argument="title")(Shelf().titles)
    server.completion(prompt="recommend", argument="genre")(functools.partial(after, "best"))
    server.completion(resource=TEMPLATE, argument="max")(lambda value: [Mood.DARK])
    async with checked_client(server) as peer:
        assert await values(peer, "recommend", "title", "x") == ["x in a thread"]
        assert await values(peer, "recommend", "genre", "x") == ["best", "x"]
        assert await values(peer, TEMPLATE, "max", "x") == ["dark"]
        assert await values(peer, TEMPLATE, "shelf", "x") == []


HUNDRED = [str(n) for n in range(100)]
MORE = [str(n) for n in range(101)]


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        ([], {"values": [], "total": 0, "hasMore": False}),
        (HUNDRED, {"values": HUNDRED, "total": 100, "hasMore": False}),
        (MORE, {"values": HUNDRED, "total": 101, "hasMore": True}),
        (Completion(["a"]), {"values": ["a"]}),
        (Completion(MORE), {"values": HUNDRED, "hasMore": True}),
        (Completion(["a"], total=1), {"values": ["a"], "total": 1, "hasMore": False}),
        (Completion(["a"], total=7), {"values": ["a"], "total": 7, "hasMore": True}),
        (Completion(["a"], has_more=True), {"values": ["a"], "hasMore": True}),
        (Completion(["a"], has_more=False), {"values": ["a"], "total": 1, "hasMore": False}),
        (
            Completion(MORE, has_more=False),
            {"values": HUNDRED, "total": 101, "hasMore": True},
        ),
        (Completion(MORE, total=500), {"values": HUNDRED, "total": 500, "hasMore": True}),
    ],
    ids=lambda it: repr(it)[:60],
)
async def test_at_most_100_are_sent_and_the_numbers_are_true(answer: Any, sent: Any) -> None:
    server = make_server()
    server.completion(prompt="recommend", argument="title")(lambda value: answer)
    async with checked_client(server) as peer:
        assert await complete(peer, "recommend", "title") == sent


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "title",
        {"a": 1},
        iter(["a"]),
        [5],
        ["a", None],
        ["fine", "\ud800"],
        Completion("title"),  # type: ignore[arg-type]
        Completion([b"title"]),  # type: ignore[list-item]
        Completion(["a"], total=0),
        Completion(["a"], total=1.0),  # type: ignore[arg-type]
        Completion(["a"], total=True),
        Completion(["a"], has_more=1),  # type: ignore[arg-type]
        Completion(["a"], total=5, has_more=False),
        Completion(["a"], total=1, has_more=True),
    ],
)
async def test_what_cannot_be_sent_is_logged_and_not_told(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()
    server.completion(prompt="recommend", argument="title")(lambda value: answer)
    async with checked_client(server) as peer:
        error = (await ask(peer, completing(1, "recommend", "title")))["error"]
        assert error["code"] == ErrorCode.INTERNAL_ERROR
        assert "exchange" in error["message"]
        assert "completion/complete failed" in caplog.text
        assert await peer.probe() == []


async def test_a_bug_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()

    @server.completion(prompt="recommend", argument="title")
    async def titles(value: str) -> list[str]:
        raise LookupError("secret detail")

    async with checked_client(server) as peer:
        answer = await ask(peer, completing(1, "recommend", "title"))
        assert answer["error"]["code"] == ErrorCode.INTERNAL_ERROR
        assert "secret" not in str(answer)
        assert "secret detail" in caplog.text


# What is refused ----------------------------------------------------------------------------------


async def test_what_there_is_not_is_refused() -> None:
    server = make_server()
    server.completion(resource=TEMPLATE, argument="title")(lambda value: ["Dune"])
    async with checked_client(server) as peer:
        assert "Unknown prompt: nobody" in await refusal(peer, completing(1, "nobody", "title"))
        words = await refusal(peer, completing(2, "recommend", "titel"))
        assert "unknown argument 'titel' (known: genre, title, signed, mood" in words
        words = await refusal(peer, completing(3, "stock://{name}", "name"))
        assert "Unknown resource template: stock://{name}" in words
        words = await refusal(peer, completing(4, TEMPLATE, "titel"))
        assert "unknown argument 'titel' (known: shelf, title, branch, max)" in words
        for long in (completing(5, "x" * 10**5, "y"), completing(6, "recommend", "y" * 10**5)):
            assert len(await refusal(peer, long)) < 300
        assert await values(peer, TEMPLATE, "title") == ["Dune"]


async def test_templates_of_the_server_are_known_and_a_plain_resource_has_nothing() -> None:
    known = {TEMPLATE: ["shelf", "title"], "stock://all": []}
    completions = Completions(make_server()._prompts, known.get)

    async def values(uri: str, argument: str) -> list[str]:
        params = CompleteRequestParams(
            ResourceTemplateReference(uri), CompletionArgument(argument, "")
        )
        ctx: Any = None  # for completers only
        return (await completions.complete(ctx, params)).completion.values

    assert await values(TEMPLATE, "shelf") == []
    assert await values("stock://all", "shelf") == []
    for uri, argument in ((TEMPLATE, "branch"), ("stock://none", "shelf")):
        with pytest.raises(ProtocolError, match=r"Unknown|unknown") as refused:
            await values(uri, argument)
        assert refused.value.code == ErrorCode.INVALID_PARAMS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ref": None}, "params.ref"),
        ({"ref": "recommend"}, "params.ref"),
        ({"ref": {"name": "recommend"}}, "params.ref"),
        ({"ref": {"type": "ref/tool", "name": "recommend"}}, "params.ref"),
        ({"ref": {"type": "ref/prompt"}}, "params.ref.name"),
        ({"ref": {"type": "ref/prompt", "name": 5}}, "params.ref.name"),
        ({"ref": {"type": "ref/resource", "name": "recommend"}}, "params.ref.uri"),
        ({"argument": None}, "params.argument"),
        ({"argument": {"name": "title"}}, "params.argument.value"),
        ({"argument": {"name": "title", "value": 5}}, "params.argument.value"),
        ({"argument": {"name": None, "value": ""}}, "params.argument.name"),
        ({"context": "title"}, "params.context"),
        ({"context": {"arguments": ["title"]}}, "params.context.arguments"),
        ({"context": {"arguments": {"genre": 5}}}, "params.context.arguments.genre"),
    ],
)
async def test_params_of_another_shape_are_refused(change: dict[str, Any], words: str) -> None:
    message = completing(1, "recommend", "title")
    message["params"] |= change
    async with checked_client(make_server()) as peer:
        assert words in await refusal(peer, message)
        assert await peer.probe() == []


async def test_a_prompt_takes_its_completers_along() -> None:
    server = make_server()
    server.completion(prompt="recommend", argument="title")(lambda value: ["Dune"])
    async with checked_client(server) as peer:
        assert await values(peer, "recommend", "title") == ["Dune"]
        server.remove_prompt("recommend")
        await refusal(peer, completing(1, "recommend", "title"))
        server.prompt(name="recommend")(lambda title: title)
        assert await values(peer, "recommend", "title") == []
        server.completion(prompt="recommend", argument="title")(lambda value: ["Emma"])
        assert await values(peer, "recommend", "title") == ["Emma"]


# Running, and being stopped -----------------------------------------------------------------------


class Slow:
    """A server with completers that last."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.server = make_server(limits=limits)
        self.begun: list[str] = []
        self.released: list[str] = []
        self.server.completion(prompt="recommend", argument="title")(self.wait)
        self.server.completion(prompt="recommend", argument="genre")(self.thread)
        self.server.completion(resource=TEMPLATE, argument="max", timeout=2)(self.wait)

    async def wait(self, value: str, ctx: Context) -> list[str]:
        self.begun.append(value)
        try:
            await trio.sleep_forever()
        finally:
            with ctx.cleanup(5):
                await trio.lowlevel.checkpoint()
                self.released.append(value)

    def thread(self, value: str, ctx: Context) -> list[str]:
        self.begun.append(value)
        try:
            for _ in range(1000):
                ctx.check_cancelled()
                time.sleep(0.005)
            return ["never"]
        finally:
            self.released.append(value)


def cause_of(record: Record) -> CancelSource:
    assert record.state is State.CANCELLED
    assert record.cause is not None
    return record.cause.source


@pytest.mark.parametrize("argument", ["title", "genre"])
async def test_invariant_2_each_key_stroke_may_cancel_the_one_before(argument: str) -> None:
    slow = Slow()
    async with checked_client(slow.server) as peer:
        typed = ["d", "du", "dun"]
        for n, value in enumerate(typed, 1):
            await peer.send(completing(n, "recommend", argument, value))
            await until(lambda: len(slow.begun) == n)  # noqa: B023
            await peer.send(cancel(n))
            await until(lambda: len(slow.released) == n)  # noqa: B023
        assert slow.begun == slow.released == typed
        await until(lambda: len(slow.server.journal) == 3)
        seen = await peer.probe()
        for n in (1, 2, 3):
            assert about(seen, n) == []
            record = record_of(slow.server, n)
            assert record.method == "completion/complete"
            assert cause_of(record) is CancelSource.NOTIFICATION
    assert [*slow.server.scopes().walk()][1:] == []


async def test_invariant_4_the_end_of_a_connection_stops_its_completers() -> None:
    slow = Slow()
    async with raw_client(slow.server) as peer:
        await peer.send(completing(1, "recommend", "title"), completing(2, "recommend", "genre"))
        await until(lambda: len(slow.begun) == 2)
    assert len(slow.released) == 2
    assert {cause_of(record) for record in slow.server.journal} == {CancelSource.DISCONNECT}


async def test_a_completer_has_its_time(autojump_clock: trio.testing.MockClock) -> None:
    slow = Slow()
    async with checked_client(slow.server) as peer:
        error = (await ask(peer, completing(1, TEMPLATE, "max")))["error"]
        assert error["code"] == ErrorCode.DEADLINE_EXCEEDED
        assert trio.current_time() == pytest.approx(2, abs=0.1)
    assert slow.released == [""]
    assert cause_of(record_of(slow.server, 1)) is CancelSource.DEADLINE


async def test_a_drain_stops_a_completer_and_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    slow = Slow(Limits(drain=2))
    ours, theirs = trio.testing.memory_stream_pair()
    peer = RawPeer(ours, ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slow.server.serve_stream, theirs)
        await peer.send(completing(1, "recommend", "title"))
        await until(lambda: slow.begun)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            error = (await peer.answer(1))["error"]
    assert error["code"] == ErrorCode.SHUTTING_DOWN
    assert cause_of(record_of(slow.server, 1)) is CancelSource.SHUTDOWN


# HTTP ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def over_http(server: Server) -> AsyncGenerator[Callable[[], Awaitable[HttpPeer]], None]:
    """A server that listens, and how to connect to it."""
    async with trio.open_nursery() as nursery:
        port = await nursery.start(functools.partial(server.serve_http, port=0))

        async def connect() -> HttpPeer:
            return HttpPeer(await trio.open_tcp_stream("127.0.0.1", port))

        yield connect
        nursery.cancel_scope.cancel("the test is over")


async def test_completions_over_http() -> None:
    server = make_server()
    server.completion(resource=TEMPLATE, argument="title")(lambda value: MORE)
    async with over_http(server) as connect:
        peer = await connect()
        answer = await peer.ask(completing(1, "recommend", "genre", "c"))
        check_schema("CompleteResultResponse", answer.json)
        assert answer.json["result"]["completion"]["values"] == ["Crime"]
        answer = await peer.ask(completing(2, TEMPLATE, "title"))
        check_schema("CompleteResultResponse", answer.json)
        assert answer.json["result"]["completion"]["hasMore"] is True
        unknown = await peer.ask(completing(3, "nobody", "genre"))
        check_schema("JSONRPCErrorResponse", unknown.json)
        assert unknown.code == ErrorCode.INVALID_PARAMS
        await peer.stream.aclose()


@pytest.mark.parametrize("argument", ["title", "genre"])
async def test_a_client_that_leaves_stops_its_completer(argument: str) -> None:
    slow = Slow()
    async with over_http(slow.server) as connect:
        peer, other = await connect(), await connect()
        await peer.send(post(completing(1, "recommend", argument, "one")))
        await other.send(post(completing(1, "recommend", "title", "two")))
        await until(lambda: len(slow.begun) == 2)
        await peer.stream.aclose()
        await until(lambda: slow.released == ["one"])
        await until(lambda: len(slow.server.journal) == 1)
        (record,) = slow.server.journal
        assert cause_of(record) is CancelSource.DISCONNECT
        await other.stream.aclose()
        await until(lambda: slow.released == ["one", "two"])
