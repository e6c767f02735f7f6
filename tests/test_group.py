"""Many servers at once: none touches another, and nothing is left of any."""

from __future__ import annotations

import inspect
import math
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.peers.fixture_server import Fixtures
from tests.peers.processes import alive, children
from tests.peers.raw import until
from tests.peers.scripted import Answer, Error, Script
from tests.test_process_cases import FIXTURE_SERVER, stub, text_of

from trio_mcp import (
    CallCancelled,
    CallTimeout,
    CancelSource,
    Client,
    ClientGroup,
    ConnectionLost,
    IncompatibleServer,
    LeftOut,
    Limits,
    MemberState,
    ProgressUpdate,
    Restart,
    Retry,
    Server,
    State,
    TraceContext,
    connect,
)
from trio_mcp.client.group import Require

QUICK = Limits(exit_wait=0.2, terminate_wait=0.2)
IMPATIENT = Limits(connect=0.5, exit_wait=0.2, terminate_wait=0.2)


def fixtures() -> Server:
    return Fixtures().server


def shelf(text: str) -> Server:
    """A server with one tool, that says ``text``."""
    server = Server(text, version="1")

    @server.tool
    async def look() -> str:
        return text

    return server


def states(group: ClientGroup) -> dict[str, str]:
    return {name: member.state.value for name, member in group.members.items()}


class Scripted:
    """Scripted servers for a group, in a nursery of the test."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.scripts: list[Script] = []

    def server(self, answer: Answer) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        script = Script(answer, theirs)
        self.scripts.append(script)
        self.nursery.start_soon(script.serve)
        return ours

    def sent(self, method: str) -> int:
        return sum(len(script.sent(method)) for script in self.scripts)


@asynccontextmanager
async def scripted() -> AsyncGenerator[Scripted, None]:
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield Scripted(nursery)
        except Exception as raised:
            failure = raised
        nursery.cancel_scope.cancel("test")
    if failure is not None:
        raise failure


def never(request: dict[str, Any]) -> bytes:
    """Nothing is answered, discovery neither."""
    return b""


def tools_page(*names: str, cursor: str | None = None) -> dict[str, Any]:
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    page: dict[str, Any] = {"resultType": "complete", "tools": tools}
    page |= {"ttlMs": 0, "cacheScope": "private"}
    return page if cursor is None else {**page, "nextCursor": cursor}


def listing(*names: str) -> Answer:
    return lambda request: tools_page(*names) if request["method"] == "tools/list" else None


# Tools --------------------------------------------------------------------------------------------


async def test_tools_of_all_members_have_names_that_lead_back() -> None:
    members: dict[str, Any] = {
        "shop": shelf("books"),
        "files": connect(shelf("paper")),
        "both": fixtures(),
    }
    async with ClientGroup(members) as group:
        tools = await group.tools()
        assert [tool.name for tool in tools][:2] == ["shop.look", "files.look"]
        assert "both.echo" in {tool.name for tool in tools}
        assert tools.failures == {}
        assert tools.left_out == ()
        assert text_of(await group.call_tool("shop.look")) == "books"
        assert text_of(await group.call_tool("files.look")) == "paper"
        assert text_of(await group["files"].call_tool("look")) == "paper"
        assert group.split("both.echo") == ("both", "echo")


async def test_a_call_takes_what_a_clients_call_takes() -> None:
    for method in ("call_tool", "start_tool"):
        ours = inspect.signature(getattr(ClientGroup, method)).parameters
        theirs = inspect.signature(getattr(Client, method)).parameters
        assert list(ours.values()) == list(theirs.values())
    fixture = Fixtures()
    heard: list[ProgressUpdate] = []
    async with ClientGroup({"a": fixture.server}) as group:
        trace = TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        await group.call_tool(
            "a.tick", {"n": 2, "dt": 0.03}, on_progress=heard.append, trace=trace, max_timeout=9
        )
        (record,) = [entry for entry in group["a"].journal if entry.target == "tick"]
        assert record.trace_id == "0af7651916cd43dd8448eb211c80319c"
        assert heard
        with pytest.raises(CallTimeout, match=r"timeout=0\.05 s"):
            await group.call_tool("a.sleep", {"s": 60}, timeout=0.05)
        async with group.start_tool("a.sleep", {"s": 60}) as call:
            await until(lambda: fixture.live)
            call.cancel("enough")


async def test_a_call_of_the_group_passes_every_option_on(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[dict[str, Any]] = []

    async def take(name: str, arguments: Any, **options: Any) -> None:
        assert name == "echo"
        taken.append(options)

    given: dict[str, Any] = {
        "timeout": 1.5,
        "max_timeout": 2.5,
        "reset_on_progress": False,
        "trace": TraceContext("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        "idempotency_key": "key",
    }
    of_a_call = {**given, "on_progress": print, "retry": Retry()}
    async with ClientGroup({"a": Fixtures().server}) as group:
        for method, options in (("call_tool", of_a_call), ("start_tool", given)):
            monkeypatch.setattr(group["a"], method, take)
            await getattr(group, method)("a.echo", {}, **options)
    assert taken == [of_a_call, given]


@pytest.mark.parametrize("name", ["look", "shop", "nobody.look", "", ".look", "Shop.look"])
async def test_a_name_of_no_member_is_a_clear_error(name: str) -> None:
    async with ClientGroup({"shop": shelf("books")}) as group:
        with pytest.raises(ValueError, match="the members are shop"):
            await group.call_tool(name)
        with pytest.raises(KeyError):
            group["files"]


NAMES = st.text("ab_.-", min_size=1, max_size=6)


@settings(deadline=None)
@given(NAMES, NAMES, NAMES, NAMES, st.text("ab_.-", min_size=1, max_size=3))
def test_names_never_collide(one: str, other: str, tool: str, another: str, separator: str) -> None:
    try:
        ClientGroup({name: ["x"] for name in (one, other)}, separator=separator)
    except ValueError:
        assume(False)
    full = one + separator + tool
    assert full.partition(separator) == (one, separator, tool)
    assert (full == other + separator + another) == ((one, tool) == (other, another))


@pytest.mark.parametrize(
    ("name", "separator"),
    [("a.b", "."), ("a_", "__"), ("a__b", "__"), ("", "."), ("ä", "."), ("a b", "."), ("a/b", ".")],
)
def test_a_member_whose_name_is_unclear_is_refused(name: str, separator: str) -> None:
    with pytest.raises(ValueError, match="name"):
        ClientGroup({name: ["x"]}, separator=separator)


def test_a_member_whose_name_leaves_no_room_is_refused() -> None:
    ClientGroup({"a" * 62: ["x"]}, name_length=64)
    with pytest.raises(ValueError, match="short enough"):
        ClientGroup({"a" * 63: ["x"]}, name_length=64)


async def test_tools_without_a_proper_name_are_left_out_and_shown() -> None:
    async with scripted() as servers:
        long, fits = "x" * 60, "x" * 59
        stream = servers.server(listing(fits, long, "two words", "", "look", "look", "a.b"))
        async with ClientGroup({"shop": stream}, name_length=64) as group:
            tools = await group.tools()
            assert [tool.name for tool in tools] == [f"shop.{fits}", "shop.look", "shop.a.b"]
            assert [left.tool for left in tools.left_out] == [long, "two words", "", "look"]
            assert tools.left_out[3] == LeftOut(
                "shop", "look", "the server has listed another tool of this name"
            )
            assert group.split("shop.a.b") == ("shop", "a.b")


async def test_a_list_has_what_there_is_and_says_what_is_missing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One is silent, one lies, one has no end, one was never there; one is slow."""

    def slow(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "tools/list":
            return None
        return tools_page("late")

    def lying(request: dict[str, Any]) -> dict[str, Any] | None:
        return {"tools": 7} if request["method"] == "tools/list" else None

    def endless(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "tools/list":
            return None
        cursor = request["params"].get("cursor", "")
        return tools_page(cursor=cursor + "x" if len(cursor) < 1000 else cursor)

    async with scripted() as servers:
        members: dict[str, Any] = {
            "silent": servers.server(lambda request: None),
            "liar": servers.server(
                lambda request: {"tools": 7} if "list" in request["method"] else None
            ),
            "endless": servers.server(endless),
            "missing": servers.server(never),
            "slow": servers.server(slow),
            "good": servers.server(listing("a", "b")),
        }
        async with ClientGroup(members) as group:
            began = trio.current_time()
            tools = await group.tools(timeout=5)
            assert trio.current_time() == began + 5
            assert [tool.name for tool in tools] == ["slow.late", "good.a", "good.b"]
            assert {name: type(error).__name__ for name, error in tools.failures.items()} == {
                "silent": "CallTimeout",
                "liar": "ProtocolViolation",
                "endless": "ProtocolViolation",
                "missing": "ConnectionLost",
            }
            assert len(tools) == 3
            await until(lambda: servers.scripts[0].cancelled())  # the silent one was told


async def test_cancelling_a_list_asks_no_further(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted() as servers:
        members = {f"m{n}": servers.server(lambda request: None) for n in range(5)}
        async with ClientGroup(members) as group:
            with trio.move_on_after(1) as scope:
                await group.tools()
            assert scope.cancelled_caught
            await until(lambda: servers.sent("notifications/cancelled") == 5)
            assert group.calls() == ()


# Beginning ----------------------------------------------------------------------------------------


async def test_a_group_begins_with_those_that_answer_and_shows_the_others() -> None:
    members: dict[str, Any] = {
        "good": stub("fine"),
        "silent": connect(stub("silent"), limits=IMPATIENT),
        "dead": stub("exits", 3),
        "missing": ["/nonexistent/server"],
        "other": stub("other_version"),
        "refused": "http://127.0.0.1:9/mcp",
    }
    async with ClientGroup(members) as group:
        assert states(group) == dict.fromkeys(members, "failed") | {"good": "connected"}
        errors = {name: member.error for name, member in group.members.items()}
        assert errors["good"] is None
        assert isinstance(errors["silent"], IncompatibleServer)
        assert isinstance(errors["dead"], ConnectionLost)
        assert errors["dead"].exit_status == 3
        assert isinstance(errors["missing"], FileNotFoundError)
        assert isinstance(errors["other"], IncompatibleServer)
        assert isinstance(errors["refused"], ConnectionLost)
        assert errors["dead"].__notes__[-1] == "This is about 'dead' of the group"
        assert text_of(await group.call_tool("good.echo", {"text": "x"})) == "x"
        with pytest.raises(
            ConnectionLost, match="the member 'dead' of the group has failed: "
        ) as lost:
            await group.call_tool("dead.echo")
        assert lost.value.__cause__ is errors["dead"]
        assert not lost.value.sent
    assert children() == []


@pytest.mark.parametrize(
    ("require", "dead", "raises"),
    [
        ("none", 2, None),
        ("any", 2, ExceptionGroup),
        ("any", 1, None),
        ("all", 1, ConnectionLost),
        ("all", 0, None),
    ],
)
async def test_how_many_must_be_there_is_a_policy(
    require: Require, dead: int, raises: type[Exception] | None
) -> None:
    members = {f"m{n}": stub("exits", 3) if n < dead else stub("fine") for n in (0, 1)}
    entered, error = False, None
    try:
        async with ClientGroup(members, require=require):
            entered = True
    except Exception as raised:
        error = raised
    assert entered is (raises is None)
    assert error is None if raises is None else type(error) is raises
    if isinstance(error, ExceptionGroup):
        assert [type(leaf) for leaf in error.exceptions] == [ConnectionLost] * 2
    assert children() == []


async def test_if_all_must_be_there_the_first_failure_is_enough(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as servers:
        wrong = servers.server(lambda request: Error(-32601))
        began = trio.current_time()
        members = {"silent": servers.server(never), "wrong": wrong}
        with pytest.raises(IncompatibleServer):
            async with ClientGroup(members, require="all"):
                raise AssertionError("entered")
        assert trio.current_time() - began < 1


async def test_all_of_none_is_fine() -> None:
    for require in ("none", "any", "all"):
        async with ClientGroup(require=require) as group:
            assert len(await group.tools()) == 0
            assert group.cancel_all() == ()


async def test_all_are_asked_before_any_has_answered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Discovery, lists, calls: a server answers once thirty have been asked."""
    count = 30

    async with scripted() as servers:

        def answering(number: int) -> Answer:
            def answer(request: dict[str, Any]) -> bytes:
                servers.nursery.start_soon(answer_later, number, request)
                return b""

            return answer

        async def answer_later(number: int, request: dict[str, Any]) -> None:
            await trio.testing.wait_all_tasks_blocked()
            await until(lambda: servers.sent(request["method"]) == count, 5)
            result: dict[str, Any] = {"resultType": "complete"}
            if request["method"] == "server/discover":
                result |= {"supportedVersions": ["2026-07-28"], "capabilities": {}}
            elif request["method"] == "tools/list":
                result |= tools_page("look")
            else:
                result |= {"content": []}
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
            await servers.scripts[number].say(answer)

        members = {f"m{number}": servers.server(answering(number)) for number in range(count)}
        async with ClientGroup(members, require="all") as group:
            assert len(await group.tools()) == count
            async with trio.open_nursery() as nursery:
                for name in members:
                    nursery.start_soon(group.call_tool, f"{name}.look")


async def test_who_is_slow_joins_later(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted() as servers:
        discovery: list[Any] = []

        def slow(request: dict[str, Any]) -> bytes | None:
            if request["method"] == "server/discover":
                discovery.append(request["id"])
                return b""
            return None

        members: dict[str, Any] = {
            "slow": servers.server(slow),
            "good": servers.server(listing("a")),
        }
        began = trio.current_time()
        async with ClientGroup(members, wait=2) as group:
            assert trio.current_time() == began + 2
            assert states(group) == {"slow": "connecting", "good": "connected"}
            with pytest.raises(
                ConnectionLost, match="'slow' of the group is still being connected"
            ):
                group["slow"]
            assert [*(await group.tools()).failures] == ["slow"]
            result = {
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": {},
            }
            await servers.scripts[0].say({"jsonrpc": "2.0", "id": discovery[0], "result": result})
            await group.settled()
            assert states(group) == {"slow": "connected", "good": "connected"}
            assert group["slow"].discovered is not None


@pytest.mark.parametrize("require", ["any", "all"])
async def test_who_must_be_there_must_be_there_in_time(
    require: Require, autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted() as servers:
        with pytest.raises(ConnectionLost, match="within wait=2 s"):
            async with ClientGroup({"slow": servers.server(never)}, wait=2, require=require):
                raise AssertionError("entered")


@pytest.mark.parametrize(
    "options",
    [{"require": "most"}, {"wait": -1}, {"wait": math.nan}, {"separator": ""}, {"separator": "/"}],
)
def test_options_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"require|wait|separator"):
        ClientGroup({}, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"members": ["http://a"]}, r"members are a mapping of names to values, not \['http"),
        ({"members": {5: shelf("a")}}, "a member's name is a text, not 5"),
        ({"wait": "5"}, "wait is a number of seconds, not '5'"),
        ({"wait": True}, "wait is a number of seconds, not True"),
        ({"separator": 5}, "separator is a text, not 5"),
        ({"name_length": "x"}, "name_length is a whole number, not 'x'"),
    ],
)
def test_options_of_wrong_types_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        ClientGroup(**options)


async def test_calls_of_a_group_with_wrong_types_are_refused_before_anything_is_sent() -> None:
    async with ClientGroup({"a": shelf("a")}) as group:
        wrong: Any = 5
        with pytest.raises(TypeError, match="the name of a tool is a text, not 5"):
            await group.call_tool(wrong)
        with pytest.raises(TypeError, match="the name of a tool is a text, not 5"):
            group.start_tool(wrong)
        with pytest.raises(TypeError, match=r"retry= takes a Retry, .* not 5"):
            await group.call_tool("a.look", retry=wrong)
        with pytest.raises(TypeError, match="arguments are a mapping of names to values, not 5"):
            async with group.start_tool("a.look", wrong):
                pass
        with pytest.raises(TypeError, match="timeout is a number of seconds, not '5'"):
            await group.tools(timeout="5")  # type: ignore[arg-type]
        assert [record.method for record in group["a"].journal] == ["server/discover"]


async def test_aborting_a_group_ends_its_calls_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted() as servers:
        mute = {name: servers.server(lambda request: None) for name in "ab"}
        async with ClientGroup(mute) as group:
            async with trio.open_nursery() as nursery:
                for name in "ab":
                    nursery.start_soon(_lost, group, name)
                await trio.testing.wait_all_tasks_blocked()
                group.abort()
            assert trio.current_time() == 0
            assert states(group) == {"a": "lost", "b": "lost"}


# One goes wrong -----------------------------------------------------------------------------------


async def test_one_that_floods_dies_or_never_answers_touches_no_other() -> None:
    """Its own call is still in flight when a hundred calls of each other one have been answered."""
    members: dict[str, Any] = {
        "floods": connect(stub("floods"), limits=QUICK),
        "swallows": connect(stub("swallow"), limits=QUICK),
        "dies": stub("drops", os.devnull),
        "process": stub("fine"),
        "memory": fixtures(),
    }
    async with ClientGroup(members) as group:
        ends: dict[str, str] = {}

        async def bad(name: str) -> None:
            try:
                await group.call_tool(f"{name}.any", timeout=60)
            except (CallCancelled, ConnectionLost) as error:
                ends[name] = type(error).__name__

        async with trio.open_nursery() as nursery:
            for name in ("floods", "swallows", "dies"):
                nursery.start_soon(bad, name)
            with trio.fail_after(10):
                for number in range(100):
                    for name in ("process", "memory"):
                        said = await group.call_tool(f"{name}.echo", {"text": str(number)})
                        assert text_of(said) == str(number)
            assert ends.keys() <= {"dies"}
            assert {call.server for call in group.calls()} - {"dies"} == {"floods", "swallows"}
            await until(lambda: "dies" in ends)
            assert states(group)["dies"] == "lost"
            error = group.members["dies"].error
            assert isinstance(error, ConnectionLost)
            assert error.exit_status == 7
            cancelled = group.cancel_all("that was all")
            assert {call.server for call in cancelled} == {"floods", "swallows"}
        assert ends == {
            "floods": "CallCancelled",
            "swallows": "CallCancelled",
            "dies": "ConnectionLost",
        }
        with pytest.raises(ConnectionLost):
            await group.call_tool("dies.any")
    assert children() == []


async def test_a_member_that_is_restarted_is_there_again(tmp_path: Path) -> None:
    restart = Restart(backoff=0.01)
    members: dict[str, Any] = {
        "mortal": connect(stub("planned", tmp_path / "record", "fine", "slow"), restart=restart),
        "good": fixtures(),
    }
    async with ClientGroup(members) as group:
        with pytest.raises(ConnectionLost):
            await group.call_tool("mortal.kill")
        await until(lambda: states(group)["mortal"] == "restarting")
        assert text_of(await group.call_tool("good.echo", {"text": "meanwhile"})) == "meanwhile"
        assert states(group)["mortal"] == "restarting"
        assert text_of(await group.call_tool("mortal.echo", {"text": "again"})) == "again"
        assert states(group)["mortal"] == "connected"
    assert children() == []


async def test_a_member_that_breaks_by_itself_is_failed_and_the_others_live() -> None:
    broken = trio.Event()

    @asynccontextmanager
    async def breaking() -> AsyncGenerator[Client, None]:
        async with connect(fixtures()) as client:
            async with trio.open_nursery() as nursery:

                async def break_down() -> None:
                    await broken.wait()
                    raise OSError("the tunnel broke")

                nursery.start_soon(break_down)
                yield client

    async with ClientGroup({"tunnel": breaking(), "good": fixtures()}) as group:
        assert states(group) == {"tunnel": "connected", "good": "connected"}
        broken.set()
        await until(lambda: states(group)["tunnel"] == "failed")
        error = group.members["tunnel"].error
        assert isinstance(error, OSError)
        with pytest.raises(ConnectionLost, match="the tunnel broke"):
            await group.call_tool("tunnel.echo")
        assert text_of(await group.call_tool("good.echo", {"text": "x"})) == "x"


# All calls ----------------------------------------------------------------------------------------


async def test_cancel_all_reaches_every_server_with_the_reason() -> None:
    fixture = {name: Fixtures() for name in ("a", "b", "c")}
    async with ClientGroup({name: it.server for name, it in fixture.items()}) as group:
        stopped: list[str] = []

        async def sleep(name: str) -> None:
            with pytest.raises(CallCancelled, match="user pressed stop"):
                await group.call_tool(f"{name}.sleep", {"s": 60})
            stopped.append(name)

        async with trio.open_nursery() as nursery:
            for name in ("a", "a", "b"):
                nursery.start_soon(sleep, name)
            await until(lambda: fixture["a"].live == 2 and fixture["b"].live == 1)
            in_flight = group.calls()
            assert [(it.server, it.method, it.target, it.state) for it in in_flight] == [
                ("a", "tools/call", "sleep", State.RUNNING),
                ("a", "tools/call", "sleep", State.RUNNING),
                ("b", "tools/call", "sleep", State.RUNNING),
            ]
            cancelled = group.cancel_all("user pressed stop")
            assert [(it.server, it.target, it.sent) for it in cancelled] == [
                ("a", "sleep", True),
                ("a", "sleep", True),
                ("b", "sleep", True),
            ]
            assert group.cancel_all("again") == ()
        assert sorted(stopped) == ["a", "a", "b"]
        await until(lambda: group.calls() == ())  # once the servers have been told
        for name in ("a", "b"):
            for journal in (group[name].journal, fixture[name].server.journal):
                await until(lambda: any(it.target == "sleep" for it in journal))  # noqa: B023
                causes = {it.cause and it.cause.reason for it in journal if it.target == "sleep"}
                assert causes == {"user pressed stop"}
            told = {it.cause.source for it in fixture[name].server.journal if it.cause}
            assert told == {CancelSource.NOTIFICATION}
        assert {it.cause.source for it in group["a"].journal if it.cause} == {CancelSource.CALLER}


async def test_cancel_all_reaches_calls_that_pause_between_two_attempts(
    autojump_clock: trio.testing.MockClock,
) -> None:
    later = b'{"code":-31004,"message":"full","data":{"retryAfterMs":4000}}'

    def refuses(request: dict[str, Any]) -> Any:
        if request["method"] != "tools/call":
            return None
        return b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (request["id"], later)

    async with (
        scripted() as servers,
        ClientGroup({"a": connect(servers.server(refuses), retry=Retry())}) as group,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stopped, group, "a.x")
            await trio.testing.wait_all_tasks_blocked()
            [paused] = group.calls()
            assert (paused.server, paused.target, paused.sent) == ("a", "x", False)
            assert paused.state is State.RUNNING
            [cancelled] = group.cancel_all("stop")
            assert (cancelled.server, cancelled.target) == ("a", "x")
        assert group.calls() == ()
        assert trio.current_time() < 4


async def _stopped(group: ClientGroup, name: str) -> None:
    with pytest.raises(CallCancelled, match="stop"):
        await group.call_tool(name)


async def test_who_watches_a_group_sees_the_calls_of_all_members_until_it_closes() -> None:
    told: list[tuple[str, str | None, str]] = []
    causes: set[str | None] = set()

    async def watch() -> None:
        with group.watch_calls() as changes:
            watching.set()
            async for call in changes:
                assert call.age >= 0
                assert call.key == call.first_key
                told.append((call.server, call.target, call.state.name))
                causes.add(call.cause.reason if call.cause is not None else None)

    watching = trio.Event()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            async with ClientGroup({"a": Fixtures().server}) as group:
                nursery.start_soon(watch)
                await watching.wait()
                await group.add("b", Fixtures().server)  # who comes later is heard, too
                for name in ("a", "b"):
                    await group.call_tool(f"{name}.echo", {"text": "x"})
                async with group.start_tool("b.sleep", {"s": 60}) as call:
                    (running,) = group.calls()
                    group.cancel_all("stop")
                    await call.ended()
                assert not group["a"].journal._watchers
        with group.watch_calls() as changes:
            assert [call async for call in changes] == []
    assert told == [
        *(("a", "echo", state) for state in ("RUNNING", "COMPLETED")),
        *(("b", "echo", state) for state in ("RUNNING", "COMPLETED")),
        *(("b", "sleep", state) for state in ("RUNNING", "CANCELLING", "CANCELLED")),
    ]
    assert causes == {None, "stop"}
    assert running.attempt == 1
    assert not group._watchers


async def test_cancel_all_leaves_subscriptions_alone() -> None:
    server = shelf("books")
    async with ClientGroup({"shop": server}) as group:
        async with group["shop"].listen(tools=True) as changes:
            assert group.calls() == ()
            assert group.cancel_all("stop") == ()
            server.remove_tool("look")
            assert (await anext(changes)).kind == "tools"


async def test_cancel_all_reaches_calls_that_wait_for_a_restart(tmp_path: Path) -> None:
    restart = Restart(backoff=60, max_backoff=60)
    mortal = connect(stub("planned", tmp_path / "record", "fine"), restart=restart)
    async with ClientGroup({"mortal": mortal}) as group:
        with pytest.raises(ConnectionLost):
            await group.call_tool("mortal.kill")
        await until(lambda: states(group)["mortal"] == "restarting")
        async with group.start_tool("mortal.echo", {"text": "x"}) as call:
            (cancelled,) = group.cancel_all("stop")
            assert not cancelled.sent
            assert (await call.ended()).state is State.CANCELLED


# Members that come and go -------------------------------------------------------------------------


async def test_members_are_added_and_removed() -> None:
    async with ClientGroup({"a": fixtures()}) as group:
        client = await group.add("b", shelf("books"))
        assert group["b"] is client
        assert text_of(await group.call_tool("b.look")) == "books"
        with pytest.raises(ValueError, match="there is a member 'b' already"):
            await group.add("b", shelf("paper"))
        await group.remove("b")
        assert [*group.members] == ["a"]
        with pytest.raises(ValueError, match="the members are a"):
            await group.call_tool("b.look")
        with pytest.raises(ConnectionLost):
            await client.call_tool("look")
        await group.add("b", shelf("paper"))
        assert text_of(await group.call_tool("b.look")) == "paper"
        with pytest.raises(KeyError):
            await group.remove("c")
        with pytest.raises(ValueError, match="name"):
            await group.add("b.c", shelf("paper"))


async def test_removing_ends_the_calls_of_that_member_only() -> None:
    fixture = {name: Fixtures() for name in ("a", "b")}
    async with ClientGroup({name: it.server for name, it in fixture.items()}) as group:
        async with group.start_tool("a.sleep", {"s": 60}) as kept:
            async with group.start_tool("b.sleep", {"s": 60}) as lost:
                await until(lambda: fixture["a"].live and fixture["b"].live)
                await group.remove("b")
                with pytest.raises(ConnectionLost, match="closed"):
                    await lost.result()
            assert kept.state is State.RUNNING
            await until(lambda: not fixture["b"].live)


async def test_one_that_cannot_be_added_is_no_member() -> None:
    async with ClientGroup() as group:
        with pytest.raises(ConnectionLost) as lost:
            await group.add("dead", stub("exits", 3))
        assert lost.value.exit_status == 3
        with trio.move_on_after(0.1) as scope:
            await group.add("silent", stub("silent"))
        assert scope.cancelled_caught
        assert not group.members
        await group.add("dead", stub("fine"))
        await until(lambda: len(children()) == 1)


async def test_adding_to_a_group_that_closes_fails() -> None:
    group = ClientGroup({"good": fixtures()})
    with pytest.raises(RuntimeError, match="while the block"):
        await group.add("early", fixtures())
    async with trio.open_nursery() as nursery:

        async def add() -> None:
            with pytest.raises(ConnectionLost, match="'silent' was removed"):
                await group.add("silent", connect(stub("silent"), limits=Limits(exit_wait=0.2)))

        async with group:
            nursery.start_soon(add)
            await until(lambda: "silent" in group.members)
    with pytest.raises(RuntimeError, match="while the block"):
        await group.add("late", fixtures())
    with pytest.raises(RuntimeError, match="once"):
        async with group:
            pass
    assert states(group) == {"good": "closed"}
    with pytest.raises(ConnectionLost, match="closed"):
        group["good"]


# The end ------------------------------------------------------------------------------------------


async def test_all_members_close_at_the_same_time(autojump_clock: trio.testing.MockClock) -> None:
    """Ten servers that do not read: closing one takes ``exit_wait``, and so does closing ten."""

    @asynccontextmanager
    async def deaf(took: list[float]) -> AsyncGenerator[Client, None]:
        ours, theirs = trio.testing.lockstep_stream_pair()

        async def discover_only() -> None:
            request = await theirs.receive_some(65536)
            assert b"server/discover" in request
            answer = (
                b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","capabilities":{},'
                b'"supportedVersions":["2026-07-28"]}}\n'
            )
            await theirs.send_all(answer)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(discover_only)
            connection = connect(ours, limits=Limits(exit_wait=3))
            client = await connection.__aenter__()
            try:
                async with client.start_tool("unread"):
                    yield client
            finally:
                began = trio.current_time()
                try:
                    await connection.__aexit__(None, None, None)
                finally:
                    took.append(trio.current_time() - began)

    took: list[float] = []
    async with ClientGroup({f"m{number}": deaf(took) for number in range(10)}) as group:
        assert set(states(group).values()) == {"connected"}
        began = trio.current_time()
    assert took == [3] * 10
    assert trio.current_time() - began == 3


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with ClientGroup({"a": fixtures(), "b": stub("fine")}):
            raise ZeroDivisionError
    with trio.move_on_after(0) as scope:
        async with ClientGroup({"a": fixtures()}):
            raise AssertionError("not cancelled")
    assert scope.cancelled_caught
    with pytest.raises(ExceptionGroup) as own:
        async with ClientGroup({"a": fixtures()}):
            raise ExceptionGroup("mine", [ValueError(), OSError()])
    assert own.value.message == "mine"
    with pytest.raises(KeyboardInterrupt):
        async with ClientGroup({"a": fixtures()}):
            raise KeyboardInterrupt
    assert children() == []


@asynccontextmanager
async def fails_to_close(error: Exception) -> AsyncGenerator[Client, None]:
    async with connect(fixtures()) as client:
        try:
            yield client
        finally:
            raise error


async def test_one_failure_at_the_end_comes_out_as_it_is_and_several_as_a_group() -> None:
    one, two, three = OSError("one"), OSError("two"), ValueError("three")
    with pytest.raises(OSError, match="one"):
        async with ClientGroup({"a": fails_to_close(one), "b": fixtures()}):
            pass
    with pytest.raises(ExceptionGroup) as several:
        async with ClientGroup({"a": fails_to_close(one), "b": fails_to_close(two)}):
            pass
    assert set(several.value.exceptions) == {one, two}
    with pytest.raises(ExceptionGroup) as both:
        async with ClientGroup({"a": fails_to_close(one), "b": fixtures()}):
            raise three
    assert both.value.exceptions == (three, one)
    with pytest.raises(OSError, match="two"):
        async with ClientGroup({"a": fails_to_close(two)}) as group:
            await group.remove("a")


async def test_leaving_it_in_another_task_closes_it_and_says_so() -> None:
    group = ClientGroup({"a": fixtures()})
    await group.__aenter__()

    async def leave() -> None:
        with pytest.raises(RuntimeError, match="in the task that entered it"):
            await group.__aexit__(None, None, None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(leave)
    await until(lambda: states(group) == {"a": "closed"})
    await group.__aexit__(None, None, None)


def _leave_normally(group: ClientGroup) -> None:
    pass


def _raise(group: ClientGroup) -> None:
    raise ZeroDivisionError


def _abort(group: ClientGroup) -> None:
    group.abort()


@pytest.mark.parametrize("leave", [_leave_normally, _raise, _abort])
async def test_invariant_4_thirty_servers_leave_nothing(
    leave: Callable[[ClientGroup], None], tmp_path: Path
) -> None:
    """In this process, launched, over HTTP and WebSocket; some die, some never answer."""
    at_first = len(os.listdir("/proc/self/fd"))
    async with trio.open_nursery() as nursery:
        web = fixtures()
        http = await nursery.start(partial(web.serve_http, "127.0.0.1", 0))
        socket = await nursery.start(partial(web.serve_websocket, "127.0.0.1", 0))
        await trio.testing.wait_all_tasks_blocked()
        tasks = trio.lowlevel.current_statistics().tasks_living
        members: dict[str, Any] = {f"memory{number}": fixtures() for number in range(20)}
        members |= {f"http{number}": f"http://127.0.0.1:{http}/mcp" for number in range(2)}
        members |= {f"socket{number}": f"ws://127.0.0.1:{socket}/mcp" for number in range(2)}
        members |= {
            "process": FIXTURE_SERVER,
            "silent": connect(stub("silent"), limits=IMPATIENT),
            "dead": stub("exits", 3),
            "mortal": connect(stub("drops", os.devnull), restart=Restart(backoff=0.01)),
            "stubborn": connect(stub("stubborn", tmp_path / "pids"), limits=QUICK),
            "floods": connect(stub("floods"), limits=QUICK),
        }
        assert len(members) == 30
        with trio.fail_after(20):
            try:
                async with ClientGroup(members) as group:
                    failed = {
                        n for n, it in group.members.items() if it.state is MemberState.FAILED
                    }
                    assert failed == {"silent", "dead"}
                    async with trio.open_nursery() as calls:
                        for name in members.keys() - {"silent", "dead", "mortal", "floods"}:
                            calls.start_soon(partial(_echo, group, name))
                        calls.start_soon(partial(_lost, group, "mortal"))
                    async with (
                        group.start_tool("floods.any"),
                        group.start_tool("memory1.sleep", {"s": 9}),
                    ):
                        leave(group)
            except ZeroDivisionError:
                assert leave is _raise
        assert set(states(group).values()) == {"closed", "failed"}
        assert children() == []
        for pid in map(int, (tmp_path / "pids").read_text().split()):
            assert not alive(pid)
        await until(lambda: trio.lowlevel.current_statistics().tasks_living == tasks)
        nursery.cancel_scope.cancel("test")
    assert len(os.listdir("/proc/self/fd")) <= at_first + 2  # threads of Trio's cache


async def _echo(group: ClientGroup, name: str) -> None:
    assert text_of(await group.call_tool(f"{name}.echo", {"text": name})) == name


async def _lost(group: ClientGroup, name: str) -> None:
    with pytest.raises(ConnectionLost):
        await group.call_tool(f"{name}.any")


@pytest.mark.parametrize("moment", ["entering", "inside"])
async def test_invariant_4_a_cancelled_group_leaves_nothing(moment: str, tmp_path: Path) -> None:
    tasks = trio.lowlevel.current_statistics().tasks_living
    members: dict[str, Any] = {
        "silent": connect(stub("silent"), limits=Limits(exit_wait=0.2)),
        "good": stub("fine"),
        "memory": fixtures(),
    }
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel() -> None:
                await until(lambda: len(children()) == 2)
                scope.cancel("test")

            nursery.start_soon(cancel)
            async with ClientGroup(members, wait=math.inf if moment == "entering" else 0):
                assert moment == "inside"
                await trio.sleep_forever()
    assert scope.cancelled_caught
    assert children() == []
    assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_a_killed_member_is_lost_and_reaped() -> None:
    async with ClientGroup({"a": stub("fine"), "b": stub("fine")}) as group:
        pid = int(text_of(await group.call_tool("a.pid")))
        os.kill(pid, signal.SIGKILL)
        await until(lambda: states(group)["a"] == "lost")
        assert len(children()) == 1
        tools = await group.tools(timeout=0.1)
        assert isinstance(tools.failures["a"], ConnectionLost)
        assert text_of(await group.call_tool("b.echo", {"text": "x"})) == "x"
