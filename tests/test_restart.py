"""Servers that die, and are started again: with real processes, and in memory where time counts."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from tests.peers.processes import alive, children
from tests.peers.raw import until
from tests.peers.scripted import DISCOVERED, Answer, Error, Script
from tests.test_client_listening import LISTEN, acknowledging, note
from tests.test_process_cases import lines_of, pid_of, stub, text_of

from trio_mcp import (
    CallTimeout,
    Change,
    Client,
    ConnectionLost,
    Limits,
    ProtocolViolation,
    Restart,
    Retry,
    Server,
    State,
    connect,
)
from trio_mcp.client import connecting
from trio_mcp.runtime.journal import Journal
from trio_mcp.transports.calling import ClientConnection
from trio_mcp.transports.restarting import Attempts
from trio_mcp.transports.wire import StreamWire

AT_ONCE = Restart(backoff=0.01, max_backoff=0.01)
QUICK = Limits(exit_wait=0.2, terminate_wait=0.2)
CANCELLED = "notifications/cancelled"


def planned(tmp_path: Path, *plan: str) -> list[str]:
    """A server whose n-th start does the n-th word."""
    return stub("planned", tmp_path / "record", *plan)


async def kill(client: Client, tool: str = "kill", **arguments: Any) -> ConnectionLost:
    with pytest.raises(ConnectionLost) as lost:
        await client.call_tool(tool, arguments)
    return lost.value


async def echo(client: Client, text: str = "here", **options: Any) -> str:
    return text_of(await client.call_tool("echo", {"text": text}, **options))


# Real processes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "status"),
    [("kill", {}, -signal.SIGKILL), ("exit", {"status": 0}, 0), ("exit", {"status": 4}, 4)],
)
async def test_a_server_that_died_is_started_again(
    tool: str, arguments: dict[str, Any], status: int, tmp_path: Path
) -> None:
    async with connect(planned(tmp_path, "fine"), restart=AT_ONCE) as client:
        first = await pid_of(client)
        assert client.discovered.instructions == "start 1"
        lost = await kill(client, tool, **arguments)
        assert lost.sent
        assert lost.exit_status == status
        with trio.fail_after(5):
            second = await pid_of(client)  # waited for the restart
        assert second != first
        assert not alive(first)
        assert client.restarts == 1
        assert client.discovered.instructions == "start 2"
        assert await echo(client) == "here"
    assert not alive(second)
    assert children() == []


async def test_a_call_in_flight_is_never_sent_again(tmp_path: Path) -> None:
    async with connect(planned(tmp_path, "fine"), restart=AT_ONCE) as client:
        lost: list[ConnectionLost] = []

        async def count() -> None:
            with pytest.raises(ConnectionLost) as error:
                await client.call_tool("count")
            lost.append(error.value)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(count)
            await until(lambda: lines_of(tmp_path / "record").count("counted") == 5)
            os.kill(await pid_of(client), signal.SIGKILL)
        assert [error.sent for error in lost] == [True] * 5
        assert await echo(client) == "here"
    assert lines_of(tmp_path / "record").count("counted") == 5
    assert lines_of(tmp_path / "record").count("started") == 2


async def test_a_crash_loop_ends_with_the_last_words(tmp_path: Path) -> None:
    restart = Restart(attempts=3, backoff=0.01)
    async with connect(planned(tmp_path, "fine", "exit"), restart=restart) as client:
        await kill(client)
        with trio.fail_after(5):
            with pytest.raises(ConnectionLost, match="after 3 attempts to restart it") as waited:
                await echo(client)
        with pytest.raises(ConnectionLost) as later:
            await echo(client)
        for error in (waited.value, later.value):
            assert not error.sent
            assert error.exit_status == 3
            assert error.stderr_tail == "start 4: exit"
        assert client.restarts == 0
        assert client._connection.calls == ()
    assert lines_of(tmp_path / "record").count("started") == 4


async def test_crashes_during_discovery_and_slow_starts_are_waited_out(tmp_path: Path) -> None:
    plan = planned(tmp_path, "fine", "crash", "exit", "slow")
    async with connect(plan, restart=AT_ONCE) as client:
        await kill(client)
        with trio.fail_after(10):
            assert await echo(client) == "here"
        assert client.discovered.instructions == "start 4"
        assert client.restarts == 1
    assert children() == []


async def test_a_server_that_never_was_there_is_not_restarted(tmp_path: Path) -> None:
    with pytest.raises(ConnectionLost) as lost:
        async with connect(planned(tmp_path, "exit"), restart=AT_ONCE):
            raise AssertionError("connected")
    assert lost.value.exit_status == 3
    once_more = "started"  # as a server of an earlier revision, which discovery may have ended
    assert lines_of(tmp_path / "record") == ["started", once_more]


async def test_a_server_that_hangs_up_is_ended_before_the_next_one_starts() -> None:
    async with connect(stub("hangs_up_stdout"), restart=AT_ONCE, limits=QUICK) as client:
        first = client._connection.process
        assert first is not None
        await until(lambda: client.restarts, 10)
        assert first.exit_status == -signal.SIGTERM
    assert children() == []


async def test_of_a_lost_server_no_descendant_is_left(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with connect(stub("orphans", pids), restart=AT_ONCE, limits=QUICK) as client:
        await kill(client, "die")
        await until(lambda: client.restarts, 10)
        first, second = map(int, lines_of(pids))
        assert not alive(first)
        assert alive(second)
    assert not alive(second)


async def test_a_subscription_goes_on_with_a_visible_gap(tmp_path: Path) -> None:
    async with connect(planned(tmp_path, "fine"), restart=AT_ONCE) as client:
        async with client.listen(tools=True, resources=["shop://dune"]) as changes:
            await client.call_tool("change")
            assert await anext(changes) == Change("tools")
            assert changes.gaps == 0
            await kill(client)
            with trio.fail_after(5):
                assert await anext(changes) == Change("tools")  # it may have
                assert await anext(changes) == Change("resource", "shop://dune")
            assert changes.gaps == 1
            await client.call_tool("change")
            assert await anext(changes) == Change("tools")
            assert changes.gaps == 1


async def test_a_lost_server_is_not_started_again_while_closing(tmp_path: Path) -> None:
    async with connect(planned(tmp_path, "fine"), restart=AT_ONCE) as client:
        os.kill(await pid_of(client), signal.SIGKILL)
    assert lines_of(tmp_path / "record") == ["started"]
    assert children() == []


async def test_a_lost_server_is_not_started_again_after_abort(tmp_path: Path) -> None:
    async with connect(planned(tmp_path, "fine"), restart=AT_ONCE) as client:
        pid = await pid_of(client)
        client.abort()
        os.kill(pid, signal.SIGKILL)
        await until(lambda: client.exit_status)
        with pytest.raises(ConnectionLost, match="aborted") as lost:
            await echo(client)
        assert lost.value.exit_status == -signal.SIGKILL
    assert lines_of(tmp_path / "record") == ["started"]


async def test_leaving_while_a_slow_server_starts_leaves_nothing(tmp_path: Path) -> None:
    with trio.fail_after(5):
        plan = planned(tmp_path, "fine", "silent")
        async with connect(plan, restart=AT_ONCE, limits=QUICK) as client:
            await kill(client)
            await until(lambda: lines_of(tmp_path / "record") == ["started"] * 2)
    assert children() == []


async def test_two_servers_that_crash_at_once_are_both_started_again(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with (
        connect(planned(tmp_path / "a", "fine"), restart=AT_ONCE) as one,
        connect(planned(tmp_path / "b", "fine"), restart=AT_ONCE) as other,
    ):
        pids = [await pid_of(one), await pid_of(other)]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: one.restarts and other.restarts)
        assert await echo(one) == await echo(other) == "here"


async def test_invariant_4_many_restarts_leave_no_descriptor_and_no_task(tmp_path: Path) -> None:
    restart = Restart(attempts=20, backoff=0.001)
    before = len(os.listdir("/proc/self/fd"))
    async with connect(planned(tmp_path, "fine"), restart=restart) as client:
        await kill(client)
        await echo(client)
        descriptors = len(os.listdir("/proc/self/fd"))
        tasks = trio.lowlevel.current_statistics().tasks_living
        for _ in range(10):
            await kill(client)
            await echo(client)
        assert client.restarts == 11
        assert len(os.listdir("/proc/self/fd")) == descriptors
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert len(children()) == 1
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # a thread of Trio's cache may have one


async def test_a_websocket_is_connected_to_again() -> None:
    server = Server("shop", version="1")

    @server.tool
    async def name() -> str:
        return "shop"

    async with trio.open_nursery() as nursery:

        async def serve(port: int) -> tuple[trio.CancelScope, int]:
            scope = trio.CancelScope()

            async def task(*, task_status: trio.TaskStatus[Any]) -> None:
                with scope:
                    await server.serve_websocket("127.0.0.1", port, task_status=task_status)

            return scope, await nursery.start(task)

        scope, port = await serve(0)
        restart = Restart(attempts=100, backoff=0.01, max_backoff=0.05)
        async with connect(f"ws://127.0.0.1:{port}/mcp", restart=restart) as client:
            assert text_of(await client.call_tool("name")) == "shop"
            scope.cancel("test")
            await until(lambda: client._connection.restarting)
            scope, _ = await serve(port)
            with trio.fail_after(5):
                assert text_of(await client.call_tool("name")) == "shop"
            assert client.restarts == 1
        scope.cancel("test")


async def test_only_what_can_be_opened_again_is_restarted() -> None:
    ours, _ = trio.testing.memory_stream_pair()
    for target in ("http://127.0.0.1:9/mcp", Server("s", version="1"), ours):
        with pytest.raises(ValueError, match="restart="):
            connect(target, restart=Restart())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attempts": "x"}, "Restart.attempts is a whole number, not 'x'"),
        ({"attempts": 1.5}, r"Restart.attempts is a whole number, not 1\.5"),
        ({"backoff": "x"}, "Restart.backoff is a number, not 'x'"),
    ],
)
def test_restarts_of_wrong_types(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=f"^{words}$"):
        Restart(**options)


# In memory ----------------------------------------------------------------------------------------


@attrs.define
class World:
    """Servers in memory, one after the other, and when each was opened."""

    answer: Answer
    nursery: trio.Nursery
    opens: Callable[[int], bool] = lambda number: True
    scripts: list[Script] = attrs.Factory(list)
    opened_at: list[float] = attrs.Factory(list)

    async def open(
        self, target: object, limits: Limits, journal: Journal, options: object
    ) -> tuple[ClientConnection, None]:
        self.opened_at.append(trio.current_time())
        if not self.opens(len(self.opened_at)):
            raise FileNotFoundError("no such server")
        ours, theirs = trio.testing.memory_stream_pair()
        script = Script(self.answer, theirs)
        self.scripts.append(script)
        self.nursery.start_soon(script.serve)
        wire = StreamWire.over(ours, limits.message_bytes)
        return ClientConnection(wire, limits, journal), None

    async def crash(self) -> None:
        await self.scripts[-1].end()
        await trio.testing.wait_all_tasks_blocked()

    @property
    def pauses(self) -> list[float]:
        return [
            round(later - earlier, 6)
            for earlier, later in zip(self.opened_at, self.opened_at[1:], strict=False)
        ]


@asynccontextmanager
async def world(
    monkeypatch: pytest.MonkeyPatch,
    answer: Answer,
    restart: Restart,
    opens: Callable[[int], bool] = lambda number: True,
    **options: Any,
) -> AsyncGenerator[tuple[Client, World], None]:
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        servers = World(answer, nursery, opens)
        monkeypatch.setattr(connecting, "_open_connection", servers.open)
        try:
            async with connect(["server"], restart=restart, **options) as client:
                yield client, servers
        except Exception as raised:
            failure = raised
    if failure is not None:
        raise failure


def answering(request: dict[str, Any]) -> dict[str, Any] | None:
    """Tools called ``quiet`` are never answered."""
    if request["method"] != "tools/call" or request["params"]["name"] == "quiet":
        return None
    return {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


async def test_the_pauses_grow_up_to_a_limit_and_the_attempts_are_counted(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    restart = Restart(attempts=6, within=100, backoff=1, max_backoff=5)
    async with world(monkeypatch, answering, restart, lambda number: number == 1) as (client, it):
        await it.crash()
        with pytest.raises(ConnectionLost, match="no such server, after 6 attempts"):
            await client.call_tool("any")
        assert it.pauses == [1, 2, 4, 5, 5, 5]


async def test_attempts_that_helped_are_forgotten_after_a_while(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    restart = Restart(attempts=2, within=100, backoff=1)
    async with world(monkeypatch, answering, restart) as (client, it):
        for _ in range(10):  # never more than two within 100 s
            await it.crash()
            await client.call_tool("any")
            await trio.sleep(60)
        assert client.restarts == 10
        assert set(it.pauses[1:]) == {62}  # 60 s, and the pause of a second one
        await it.crash()
        await client.call_tool("any")
        await it.crash()
        with pytest.raises(ConnectionLost, match="after 2 attempts"):
            await client.call_tool("any")


async def test_a_call_waits_within_its_own_timeout_and_was_not_sent(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    restart = Restart(backoff=10)
    async with world(monkeypatch, answering, restart) as (client, it):
        await it.crash()
        began = trio.current_time()
        with pytest.raises(CallTimeout) as late:
            await client.call_tool("any", timeout=3)
        assert late.value.outcome == "not sent"
        assert trio.current_time() == began + 3
        async with client.start_tool("any") as call:
            assert call.state is State.RUNNING
            assert [waits.target for waits in client._connection.calls] == ["any"]
            call.cancel("enough")
            assert (await call.ended()).state is State.CANCELLED
        assert client._connection.calls == ()
        with trio.move_on_after(1) as scope:
            await client.call_tool("any")
        assert scope.cancelled_caught
        assert text_of(await client.call_tool("any", timeout=20)) == "done"
        assert trio.current_time() == began + 10
        sent = [message["method"] for message in it.scripts[1].check.sent]
        assert sent == ["server/discover", "tools/call"]  # nothing of the others
        assert client._connection.calls == ()
        keys = [record.key for record in client.journal]
        ids = [record.request_id for record in client.journal]
        assert len(set(keys)) == len(set(ids)) == len(ids) == 6


async def test_calls_that_wait_go_out_in_order_and_are_bounded(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    limits = Limits(restart_calls=3)
    async with world(monkeypatch, answering, Restart(), limits=limits) as (client, it):
        await it.crash()
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(partial(client.call_tool, f"tool{number}"))
                await trio.testing.wait_all_tasks_blocked(0)
            with pytest.raises(ConnectionLost, match="restart_calls=3") as refused:
                await client.call_tool("one more")
            assert not refused.value.sent
        calls = it.scripts[1].sent("tools/call")
        assert [call["params"]["name"] for call in calls] == ["tool0", "tool1", "tool2"]


async def test_a_call_reserved_while_restarting_goes_out_when_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with world(monkeypatch, answering, Restart()) as (client, it):
        await it.crash()
        early = client._connection.reserve("tools/call", "early")
        late = client._connection.reserve("tools/call", "late")
        params = {**dict(it.scripts[0].sent("server/discover")[0]["params"]), "arguments": {}}
        client._connection.send(early, {**params, "name": "early"})
        assert [*client._connection.calls] == [early, late]
        await until(lambda: early.state is State.COMPLETED)
        assert [*client._connection.calls] == [late]
        client._connection.send(late, {**params, "name": "late"})
        await until(lambda: late.state is State.COMPLETED)
        assert [call["params"]["name"] for call in it.scripts[1].sent("tools/call")] == [
            "early",
            "late",
        ]


async def test_arguments_that_are_none_are_refused_while_restarting(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with world(monkeypatch, answering, Restart()) as (client, it):
        await it.crash()
        with pytest.raises(ValueError, match="nan"):
            await client.call_tool("any", {"x": float("nan")})


async def test_a_crash_after_discovery_is_an_attempt_too(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """A server that dies as soon as it is there."""

    def discovered(it: World, number: int) -> bool:
        return len(it.scripts) > number and len(it.scripts[number].sent("server/discover")) > 0

    async def die_early(it: World) -> None:
        for number in range(1, 5):
            await until(partial(discovered, it, number), 1000)
            await it.scripts[-1].end()

    restart = Restart(attempts=4, within=1000, backoff=1)
    async with world(monkeypatch, answering, restart) as (client, it):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(die_early, it)
            await it.crash()
            await until(lambda: client._connection.why_lost, 1000)
        with pytest.raises(ConnectionLost, match="closed the connection, after 4 attempts"):
            await client.call_tool("any")
        assert len(it.scripts) == 5


@pytest.mark.parametrize("refusal", ["silent", "error", "revision"])
async def test_a_restarted_server_that_is_not_ours_any_more_is_tried_again(
    refusal: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    discoveries = 0

    def answer(request: dict[str, Any]) -> Any:
        nonlocal discoveries
        if request["method"] != "server/discover":
            return answering(request)
        discoveries += 1
        if discoveries != 2:
            return {**DISCOVERED, "instructions": f"discovery {discoveries}"}
        if refusal == "revision":
            return {**DISCOVERED, "supportedVersions": ["2099-01-01"]}
        return b"" if refusal == "silent" else Error(-32601)

    async with world(monkeypatch, answer, Restart()) as (client, it):
        assert client.discovered.instructions == "discovery 1"
        await it.crash()
        assert text_of(await client.call_tool("any")) == "done"
        assert client.discovered.instructions == "discovery 3"
        assert len(it.scripts) == 3
        assert client.restarts == 1


async def test_the_last_failure_is_named(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    first = True

    def answer(request: dict[str, Any]) -> Any:
        nonlocal first
        found, first = (None if first else Error(-32601, "what?")), False
        return found

    async with world(monkeypatch, answer, Restart(attempts=1)) as (client, it):
        await it.crash()
        with pytest.raises(ConnectionLost, match=r"does not speak 2026-07-28 any more \(what\?"):
            await client.call_tool("any")


async def test_a_subscription_listens_again_once_however_often_it_was_lost(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with world(monkeypatch, acknowledging(), Restart()) as (client, it):
        async with client.listen(tools=True, resources=["a"]) as changes:
            (listen,) = it.scripts[0].sent(LISTEN)
            await it.scripts[0].say(note(listen["id"], "notifications/resources/updated", uri="a"))
            await trio.testing.wait_all_tasks_blocked()
            for _ in range(3):  # the owner is busy
                await it.crash()
                await until(lambda: not client._connection.restarting, 100)
            assert await anext(changes) == Change("resource", "a")  # from before
            assert changes.gaps == 0
            assert await anext(changes) == Change("tools")
            assert await anext(changes) == Change("resource", "a")
            assert changes.gaps == 1
            assert [len(script.sent(LISTEN)) for script in it.scripts] == [1, 0, 0, 1]
        await until(lambda: it.scripts[-1].sent(CANCELLED))


async def test_a_subscription_that_the_server_itself_ended_is_lost(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with world(monkeypatch, acknowledging(), Restart()) as (client, it):
        async with client.listen(tools=True) as changes:
            (listen,) = it.scripts[0].sent(LISTEN)
            params = {"requestId": listen["id"]}
            await it.scripts[0].say({"jsonrpc": "2.0", "method": CANCELLED, "params": params})
            with pytest.raises(ConnectionLost, match="without a result"):
                await anext(changes)
        assert len(it.scripts) == 1


async def test_a_subscription_is_lost_with_the_server(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    restart = Restart(attempts=2)
    opens: Callable[[int], bool] = lambda number: number == 1  # noqa: E731
    async with world(monkeypatch, acknowledging(), restart, opens) as (client, it):
        async with client.listen(tools=True) as changes:
            await it.crash()
            with pytest.raises(ConnectionLost, match="after 2 attempts") as lost:
                await anext(changes)
            assert lost.value.sent


async def test_a_server_that_does_not_agree_again_in_time_is_a_timeout(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    listens = 0

    def answer(request: dict[str, Any]) -> Any:
        nonlocal listens
        listens += request["method"] == LISTEN
        return acknowledging()(request) if listens < 2 else None

    async with world(monkeypatch, answer, Restart()) as (client, it):
        async with client.listen(tools=True, timeout=7) as changes:
            await it.crash()
            with pytest.raises(CallTimeout, match="timeout=7 s"):
                await anext(changes)


async def test_closing_during_a_pause_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    began = 0.0
    async with world(monkeypatch, answering, Restart(backoff=1000, max_backoff=1000)) as (
        client,
        it,
    ):
        began = trio.current_time()
        await it.crash()
        async with trio.open_nursery() as nursery:
            waiting = await nursery.start(_lost_call, client)
            await client._connection.close()
            with trio.fail_after(1):
                await waiting.wait()
    assert trio.current_time() - began < 1
    assert len(it.scripts) == 1


async def _lost_call(client: Client, *, task_status: trio.TaskStatus[trio.Event]) -> None:
    over = trio.Event()
    task_status.started(over)
    with pytest.raises(ConnectionLost, match="the client was closed") as lost:
        await client.call_tool("any")
    assert not lost.value.sent
    over.set()


async def test_abort_during_a_pause_fails_what_waits(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with world(monkeypatch, answering, Restart(backoff=5)) as (client, it):
        await it.crash()
        async with client.start_tool("any") as call:
            client.abort()
            with pytest.raises(ConnectionLost, match="aborted"):
                await call.result()
        await trio.sleep(100)
    assert len(it.scripts) == 1


async def test_abort_while_a_server_is_opened_again_asks_it_nothing(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    clients: list[Client] = []

    def opens(number: int) -> bool:
        for client in clients:
            client.abort()
        return True

    async with world(monkeypatch, answering, Restart(backoff=1), opens) as (client, it):
        clients.append(client)
        await it.crash()
        await trio.sleep(2)
        assert [len(script.sent("server/discover")) for script in it.scripts] == [1, 0]
        assert client.restarts == 0
        with pytest.raises(ConnectionLost, match="aborted"):
            await client.call_tool("any")


async def test_a_question_that_comes_while_the_client_is_closed_ends_its_call_alone(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """It is lost for good a step before the connection that carries its calls is closed."""
    result = {"resultType": "input_required", "requestState": "s"}

    def asks(request: dict[str, Any]) -> dict[str, Any] | None:
        return result if request["method"] == "tools/call" else None

    async with world(monkeypatch, asks, Restart()) as (client, it):
        connection: Any = client._connection
        call = client.start_tool("any")
        async with call as started:
            connection._lose("the client was closed")
            with pytest.raises(ConnectionLost, match="closed") as lost:
                await started.result()
            assert lost.value.sent
            assert started.state is State.FAILED
        assert not connection._newest.gone
        assert connection.calls == ()
    assert len(it.scripts) == 1


async def test_a_cancelled_caller_is_heard_before_the_end(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """As without ``restart=``: the scope around the whole block is cancelled."""
    async with trio.open_nursery() as nursery:
        servers = World(answering, nursery)
        monkeypatch.setattr(connecting, "_open_connection", servers.open)
        with trio.move_on_after(1):
            async with connect(["server"], restart=Restart()) as client:
                await client.call_tool("quiet")
    (script,) = servers.scripts
    assert len(script.cancelled()) == 1


async def test_restarts_are_logged(
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "trio_mcp.connection")
    async with world(monkeypatch, answering, Restart(attempts=1)) as (client, it):
        await it.crash()
        await client.call_tool("any")
        await it.crash()
        with pytest.raises(ConnectionLost):
            await client.call_tool("any")
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(": ")[2] for line in said] == [
        "the server closed the connection; restart 1 of 1 in 0.1 s",
        "restarted, for the 1. time",
        "the server closed the connection, after 1 attempts to restart it",
    ]


# Rules, without a loop ----------------------------------------------------------------------------


def test_attempts_that_did_not_help_count_until_one_does() -> None:
    attempts = Attempts(Restart(attempts=3, within=10, backoff=1, max_backoff=100))
    assert [attempts.pause(0), attempts.pause(50), attempts.pause(100)] == [1, 2, 4]
    assert attempts.pause(1000) is None
    attempts.lost(105)  # it was there in between
    assert attempts.count == 1
    assert attempts.pause(105) == 2


@pytest.mark.parametrize("field", ["attempts", "within", "backoff", "max_backoff"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_bounds_are_finite_and_above_0(field: str, value: float) -> None:
    with pytest.raises((ValueError, TypeError)):
        Restart(**{field: value})  # type: ignore[arg-type]


async def test_what_was_sent_to_a_server_that_died_is_not_made_again_on_the_next(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """It may be what ended the server."""
    reads: list[str] = []

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] == "resources/read":
            reads.append(request["params"]["uri"])
            return None
        return answering(request)

    policy = Retry(attempts=5, wait_initial=5)
    async with world(monkeypatch, answer, Restart(backoff=1), retry=policy) as (client, it):
        async with trio.open_nursery() as nursery:

            async def read() -> None:
                with pytest.raises(ConnectionLost) as lost:
                    await client.read_resource("poison://x")
                assert lost.value.sent

            nursery.start_soon(read)
            await until(lambda: bool(reads))
            await it.crash()
        assert (await client.call_tool("any")).text == "done"
        assert client.restarts == 1
    assert reads == ["poison://x"]


async def test_what_was_known_of_a_server_is_forgotten_with_it(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    pages = 0

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        nonlocal pages
        if request["method"] != "tools/list":
            return answering(request)
        pages += 1
        number = {"type": "object", "required": ["n"]}
        tool = {"name": "any", "inputSchema": {"type": "object"}, "outputSchema": number}
        return {
            "resultType": "complete",
            "tools": [tool],
            "ttlMs": 10**6,
            "cacheScope": "private",
        }

    async with world(monkeypatch, answer, Restart(), cache=True) as (client, it):
        for _ in range(2):
            assert [tool.name async for tool in client.tools()] == ["any"]
        assert pages == 1
        with pytest.raises(ProtocolViolation):
            await client.call_tool("any")  # which is not what its schema promises
        await it.crash()
        assert (await client.call_tool("any")).text == "done"  # of another server, not listed yet
        assert [tool.name async for tool in client.tools()] == ["any"]
        assert pages == 2
