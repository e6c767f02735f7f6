"""Lists and results from a server that a client must not trust: pages, cursors, kinds of result.

Specification: *Pagination*; *Base Protocol*, "ResultType". Every line that the client sends is held
against the official schema on the way.
"""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from tests.peers.raw import until
from tests.peers.scripted import DISCOVERED, Answer, Error, scripted

from trio_mcp import CallTimeout, Client, Limits, ProtocolViolation, ServerError, State, TextContent
from trio_mcp.client.pages import Pages
from trio_mcp.runtime.models.tools import ListToolsResult, Tool

TEXT: dict[str, Any] = {"type": "text", "text": "hello"}


def page(*names: str, **more: Any) -> dict[str, Any]:
    """A result of ``tools/list``."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    common = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return {**common, "tools": tools, **more}


def by_cursor(pages: dict[str | None, dict[str, Any] | None]) -> Answer:
    """A server with these pages; one that is None is never sent."""

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "tools/list":
            return None
        return pages[request["params"].get("cursor")]

    return answer


def always(method: str, result: dict[str, Any] | bytes | Error) -> Answer:
    return lambda request: result if request["method"] == method else None


async def names_of(client: Client) -> list[str]:
    return [tool.name async for tool in client.tools()]


async def collect(client: Client, names: list[str]) -> None:
    """The same, for lists that end badly."""
    async for tool in client.tools():
        names.append(tool.name)


# Pages --------------------------------------------------------------------------------------------


async def test_all_pages_are_followed_each_with_an_id_of_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pages = by_cursor(
        {None: page("a", "b", nextCursor="2"), "2": page(nextCursor="é 3"), "é 3": page("c")}
    )
    async with scripted(pages) as (client, script):
        assert await names_of(client) == ["a", "b", "c"]

        requests = script.sent("tools/list")
        assert [r["params"].get("cursor") for r in requests] == [None, "2", "é 3"]
        assert "cursor" not in requests[0]["params"]
        assert len({message["id"] for message in script.check.sent}) == len(script.check.sent)


async def test_an_empty_next_cursor_continues(autojump_clock: trio.testing.MockClock) -> None:
    pages = by_cursor({None: page("a", nextCursor=""), "": page("b")})
    async with scripted(pages) as (client, script):
        assert await names_of(client) == ["a", "b"]
        assert [r["params"].get("cursor") for r in script.sent("tools/list")] == [None, ""]


async def test_a_next_cursor_of_null_is_the_end(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(by_cursor({None: page("a", nextCursor=None)})) as (client, script):
        assert await names_of(client) == ["a"]
        assert len(script.sent("tools/list")) == 1


@pytest.mark.parametrize(
    "cursors",
    [["1", "1"], ["", ""], ["1", "2", "1"], ["1", "2", "3", "2"]],
    ids=["the same", "the empty one", "a circle", "a late circle"],
)
async def test_a_repeated_cursor_is_a_violation(
    cursors: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    following = iter(cursors)

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "tools/list":
            return None
        return page("again", nextCursor=next(following))

    async with scripted(answer) as (client, script):
        with pytest.raises(ProtocolViolation, match="cursor"):
            await names_of(client)
        assert len(script.sent("tools/list")) == len(cursors)
        assert (await client.discover()).supported_versions  # the connection is still good


async def test_endless_pages_stop_at_the_limit(autojump_clock: trio.testing.MockClock) -> None:
    count = iter(range(10))

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "tools/list":
            return None
        return page("another", nextCursor=str(next(count)))

    async with scripted(answer, limits=Limits(pages=3)) as (client, script):
        found: list[str] = []
        with pytest.raises(ProtocolViolation, match="pages=3"):
            await collect(client, found)
        assert found == ["another"] * 3
        assert len(script.sent("tools/list")) == 3


async def test_invariant_9_what_is_remembered_of_cursors_does_not_depend_on_their_length() -> None:
    length = 1_000_000

    async def ask(cursor: str | None) -> ListToolsResult:
        number = 0 if cursor is None else int(cursor[:2])
        following = f"{number + 1:02}" + "x" * length if number < 30 else None
        await trio.lowlevel.checkpoint()
        return ListToolsResult([Tool(f"t{number}", {})], next_cursor=following)

    pages = Pages("tools/list", ask, lambda page: page.tools, lambda tool: tool.name, Limits())
    tracemalloc.start()
    try:
        assert len([tool async for tool in pages]) == 31
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 3 * length


async def test_as_many_pages_as_the_limit_are_fine(autojump_clock: trio.testing.MockClock) -> None:
    pages = by_cursor({None: page("a", nextCursor="2"), "2": page("b")})
    async with scripted(pages, limits=Limits(pages=2)) as (client, _):
        assert await names_of(client) == ["a", "b"]


async def test_a_list_can_be_cancelled_midway(autojump_clock: trio.testing.MockClock) -> None:
    pages = by_cursor({None: page("a", "b", nextCursor="2"), "2": None})
    async with scripted(pages) as (client, script):
        found: list[str] = []
        start = trio.current_time()
        with trio.move_on_after(3) as scope:
            await collect(client, found)
        assert scope.cancelled_caught
        assert trio.current_time() == pytest.approx(start + 3)
        assert found == ["a", "b"]

        await until(script.cancelled)
        assert script.cancelled() == [script.sent("tools/list")[1]["id"]]
        assert list(client.journal)[-1].state is State.CANCELLED


async def test_a_list_that_is_left_early_asks_no_further(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Left as one leaves any loop: nothing warns, nothing is asked any more."""
    async with scripted(by_cursor({None: page("a", "b", nextCursor="2")})) as (client, script):
        async for tool in client.tools():
            assert tool.name == "a"
            break
        await client.discover()
        assert len(script.sent("tools/list")) == 1
        assert script.cancelled() == []


async def test_lists_do_not_share_what_they_have_seen(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pages = by_cursor({None: page("a", nextCursor="2"), "2": page("b")})
    async with scripted(pages) as (client, _):
        assert await names_of(client) == await names_of(client) == ["a", "b"]


async def test_a_page_at_a_time_is_the_callers_business(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(by_cursor({None: page("a"), "x": page(nextCursor="x")})) as (
        client,
        script,
    ):
        assert (await client.tools_page()).next_cursor is None
        assert (await client.tools_page("x")).next_cursor == "x"
        assert script.sent("tools/list")[1]["params"]["cursor"] == "x"


async def test_an_error_midway_comes_out_of_the_list(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any] | Error | None:
        if request["method"] != "tools/list":
            return None
        if "cursor" in request["params"]:
            return Error(-32602, "Invalid cursor")
        return page("a", nextCursor="expired")

    async with scripted(answer) as (client, _):
        found: list[str] = []
        with pytest.raises(ServerError) as raised:
            await collect(client, found)
        assert raised.value.code == -32602
        assert found == ["a"]


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"resultType": "complete"},
        page(tools=None),
        page(tools={}),
        page(tools=["a"]),
        page(tools=[{"name": "a"}]),
        page(tools=[{"inputSchema": {"type": "object"}}]),
        page(tools=[{"name": 7, "inputSchema": {"type": "object"}}]),
        page(tools=[{"name": "a", "inputSchema": None}]),
        page("a", nextCursor=7),
        page("a", nextCursor=["2"]),
        page("a", ttlMs="soon"),
    ],
    ids=json.dumps,
)
async def test_what_is_no_page_is_a_violation(
    result: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted(always("tools/list", result)) as (client, _):
        with pytest.raises(ProtocolViolation, match="tools/list"):
            await names_of(client)
        assert (await client.discover()).supported_versions


# Kinds of result ----------------------------------------------------------------------------------


def complete(result_type: Any, result: dict[str, Any]) -> dict[str, Any]:
    if result_type is ABSENT:
        return {name: value for name, value in result.items() if name != "resultType"}
    return {**result, "resultType": result_type}


ABSENT = object()
ASK: dict[str, tuple[dict[str, Any], Callable[[Client], Any]]] = {
    "tools/call": (
        {"content": [TEXT]},
        lambda client: client.call_tool("any"),
    ),
    "tools/list": (page("a"), lambda client: client.tools_page()),
    "server/discover": (DISCOVERED, lambda client: client.discover()),
}


def after_discovery(method: str, result: dict[str, Any]) -> Answer:
    """The answer to the first request of this method that is not the connection's own."""
    own = iter([True] if method == "server/discover" else [])

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != method or next(own, False):
            return None
        return result

    return answer


@pytest.mark.parametrize("method", ASK)
@pytest.mark.parametrize("result_type", ["task", "Complete", "", "partial", 7, True, ["complete"]])
async def test_an_unknown_result_type_is_a_violation(
    result_type: Any, method: str, autojump_clock: trio.testing.MockClock
) -> None:
    result, ask = ASK[method]
    wrong = after_discovery(method, complete(result_type, result))
    async with scripted(wrong) as (client, _):
        with pytest.raises(ProtocolViolation, match="resultType"):
            await ask(client)


@pytest.mark.parametrize("method", ASK)
@pytest.mark.parametrize("result_type", ["complete", ABSENT], ids=["complete", "absent"])
async def test_an_absent_result_type_means_complete(
    result_type: Any, method: str, autojump_clock: trio.testing.MockClock
) -> None:
    result, ask = ASK[method]
    async with scripted(after_discovery(method, complete(result_type, result))) as (client, _):
        assert (await ask(client)).result_type == "complete"


@pytest.mark.parametrize("method", ASK)
async def test_a_request_for_input_is_a_violation(
    method: str, autojump_clock: trio.testing.MockClock
) -> None:
    """This client declares no capability, so no server may ask it for anything."""
    asks = {
        "resultType": "input_required",
        "requestState": "opaque",
        "inputRequests": {"roots": {"method": "roots/list"}},
    }
    _, ask = ASK[method]
    async with scripted(after_discovery(method, asks)) as (client, script):
        with pytest.raises(ProtocolViolation):
            await ask(client)
        assert len(script.sent(method)) == (2 if method == "server/discover" else 1)  # no retry


async def test_an_unknown_result_type_of_the_first_discovery_is_a_violation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    wrong = always("server/discover", complete("task", DISCOVERED))
    with pytest.raises(ProtocolViolation, match="resultType"):
        async with scripted(wrong):
            pytest.fail("connected")


async def test_members_that_nobody_knows_are_ignored(
    autojump_clock: trio.testing.MockClock,
) -> None:
    result = {"content": [TEXT, {"type": "hologram", "beam": 1}], "later": {"deep": []}}
    async with scripted(always("tools/call", result)) as (client, _):
        first, second = (await client.call_tool("any")).content
        assert isinstance(first, TextContent)
        assert first.text == "hello"
        assert second.type == "hologram"


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"content": None},
        {"content": "hello"},
        {"content": ["hello"]},
        {"content": [{"text": "hello"}]},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "image", "data": "aGk="}]},
        {"content": [], "isError": "yes"},
    ],
    ids=json.dumps,
)
async def test_what_is_no_tool_result_is_a_violation(
    result: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted(always("tools/call", result)) as (client, _):
        with pytest.raises(ProtocolViolation, match="tools/call"):
            await client.call_tool("any")
        assert (await client.discover()).supported_versions


# Progress from a server that a client must not trust ----------------------------------------------


def progress(token: Any, value: bytes = b"1", more: bytes = b"") -> bytes:
    """A progress notification, of JSON that no encoder would write."""
    params = b'{"progressToken":' + json.dumps(token).encode() + b',"progress":' + value + more
    return b'{"jsonrpc":"2.0","method":"notifications/progress","params":' + params + b"}}"


@pytest.mark.parametrize(
    "line",
    [
        progress("unknown"),
        progress(10**30),
        progress(None),
        progress(2.0),
        progress("2"),
        progress([2]),
        progress(2, b"null"),
        progress(2, b'"1"'),
        progress(2, b"true"),
        progress(2, b"1e400"),
        progress(2, b"1" + b"0" * 400),
        progress(2, b"-1" + b"0" * 400),
        progress(2, b"1", b',"total":"2"'),
        progress(2, b"1", b',"total":1' + b"0" * 400),
        progress(2, b"1", b',"message":7'),
        b'{"jsonrpc":"2.0","method":"notifications/progress"}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":[]}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}',
    ],
    ids=lambda line: line[60:100].decode(),
)
async def test_progress_that_is_none_hurts_no_call(
    line: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    heard: list[float] = []
    async with scripted(always("tools/call", line)) as (client, script):

        async def answer_later() -> None:
            await until(lambda: script.sent("tools/call"))
            (request,) = script.sent("tools/call")
            assert request["id"] == 2  # whom these lines speak about
            await script.say(progress(2, b"0.5"))
            result = {"content": [TEXT]}
            await script.say({"jsonrpc": "2.0", "id": request["id"], "result": result})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_later)
            result = await client.call_tool(
                "any", on_progress=lambda update: heard.append(update.progress)
            )
        assert len(result.content) == 1
        assert heard == [0.5]


async def test_progress_after_the_answer_is_ignored(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        return {"content": [TEXT]} if request["method"] == "tools/call" else None

    async with scripted(answer) as (client, script):
        heard: list[float] = []
        await client.call_tool("any", on_progress=lambda update: heard.append(update.progress))
        await script.say(progress(2))
        await client.discover()
        assert heard == []


async def test_progress_is_a_sign_of_life_although_nobody_listens(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(lambda request: None) as (client, script):

        async def work_for_an_hour() -> None:
            await until(lambda: script.sent("tools/call"))
            (request,) = script.sent("tools/call")
            token = request["params"]["_meta"]["progressToken"]
            for minute in range(60):
                await trio.sleep(60)
                await script.say(progress(token, str(minute).encode()))
            result = {"content": [TEXT]}
            await script.say({"jsonrpc": "2.0", "id": request["id"], "result": result})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work_for_an_hour)
            result = await client.call_tool("any", timeout=90, max_timeout=4000)
            assert len(result.content) == 1
        assert script.cancelled() == []


async def test_the_longest_time_wins_over_progress(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(lambda request: None) as (client, script):

        async def work_for_ever() -> None:
            await until(lambda: script.sent("tools/call"))
            for minute in itertools.count():
                await trio.sleep(60)
                await script.say(progress(2, str(minute).encode()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work_for_ever)
            with pytest.raises(CallTimeout) as timeout:
                await client.call_tool("any", timeout=90, max_timeout=630)
            nursery.cancel_scope.cancel()
        assert timeout.value.limit == "max_timeout"
        assert timeout.value.elapsed == pytest.approx(630)
        assert timeout.value.last_progress is not None
        assert timeout.value.last_progress.progress == 9
        await until(script.cancelled)
        assert script.cancelled() == [2]


async def test_silence_is_a_timeout_of_its_own(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(lambda request: None) as (client, script):
        with pytest.raises(CallTimeout) as timeout:
            await client.call_tool("any", timeout=90, max_timeout=4000)
        assert (timeout.value.limit, timeout.value.outcome) == ("timeout", "unknown")
        assert timeout.value.elapsed == pytest.approx(90)
        await until(script.cancelled)
        assert script.cancelled() == [2]
