"""Calls in flight, and their states as they change, for those who show them."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from tests.peers.processes import children
from tests.peers.raw import until
from tests.peers.scripted import Error, scripted
from tests.test_http_client import Post
from tests.test_http_client import scripted as scripted_http
from tests.test_process_cases import FIXTURE_SERVER

from trio_mcp import (
    CallStatus,
    CancelSource,
    ConnectionLost,
    ElicitResult,
    Limits,
    Restart,
    State,
    connect,
)
from trio_mcp.runtime.journal import Subscription

RESULT: dict[str, Any] = {"resultType": "complete", "content": []}
FORM = {"type": "object", "properties": {"a": {"type": "string"}}}


def silent(request: dict[str, Any]) -> None:
    return None


def taken(changes: Subscription[CallStatus]) -> list[CallStatus]:
    return [*changes._waiting]


def states(changes: Subscription[CallStatus]) -> list[tuple[str | None, str]]:
    return [(status.target, status.state.name) for status in taken(changes)]


async def test_calls_in_flight_are_listed_with_age_and_cause(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(silent) as (client, _):
        assert client.calls() == ()
        async with client.start_tool("a") as call:
            await trio.sleep(3)
            async with client.start_tool("b"):
                await trio.sleep(2)
                first, second = client.calls()
                assert (first.method, first.target, first.state) == (
                    "tools/call",
                    "a",
                    State.RUNNING,
                )
                assert first.age == pytest.approx(5)
                assert second.age == pytest.approx(2)
                assert first.cause is None
                assert first.sent
                call.cancel("enough")
                first, _ = client.calls()
                assert first.state is State.CANCELLING
                assert first.cause is not None
                assert (first.cause.source, first.cause.reason) == (CancelSource.CALLER, "enough")
                await call.ended()
                assert [status.target for status in client.calls()] == ["b"]
        await trio.testing.wait_all_tasks_blocked()
        assert client.calls() == ()


async def test_cancel_requested_and_stopped_are_told_apart(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(silent) as (client, _):
        with client.watch_calls() as changes:
            async with client.start_tool("a") as call:
                await trio.testing.wait_all_tasks_blocked()
                call.cancel()
                assert states(changes) == [("a", "RUNNING"), ("a", "CANCELLING")]
                await call.ended()
            assert states(changes)[2:] == [("a", "CANCELLED")]
            assert len({status.key for status in taken(changes)}) == 1
            assert (await anext(changes)).state is State.RUNNING
        async with client.start_tool("b"):
            assert len(taken(changes)) == 2  # nobody watches any more


async def test_watching_ends_with_the_client_once_all_was_told() -> None:
    told: list[tuple[str | None, str]] = []

    async def watch(changes: Subscription[CallStatus]) -> None:
        told.extend([(status.target, status.state.name) async for status in changes])

    with trio.fail_after(5), contextlib.ExitStack() as watching:
        async with trio.open_nursery() as nursery:
            async with scripted(silent) as (client, _):
                waits = watching.enter_context(client.watch_calls())
                late = watching.enter_context(client.watch_calls())
                nursery.start_soon(watch, waits)
                nursery.start_soon(watch, waits)  # all who wait are told
                async with client.start_tool("a") as call:
                    await trio.testing.wait_all_tasks_blocked()
                    call.cancel()
                async with client.start_tool("b"):
                    pass
        assert sorted(told) == [
            *(("a", state) for state in ("CANCELLED", "CANCELLING", "RUNNING")),
            *(("b", state) for state in ("CANCELLED", "CANCELLING", "RUNNING")),
        ]
        assert len([status async for status in late]) == 6
        with client.watch_calls() as changes:
            assert [status async for status in changes] == []


async def test_each_way_to_end_is_told_once(autojump_clock: trio.testing.MockClock) -> None:
    def answer(request: dict[str, Any]) -> Any:
        name = request["params"].get("name")
        return {"fine": RESULT, "bad": Error(-32603)}.get(name)

    async with scripted(answer) as (client, script):
        with client.watch_calls() as changes:
            await client.call_tool("fine")
            for name in ("bad", "mute"):
                with pytest.raises(Exception, match="no"):
                    await client.call_tool(name, timeout=1)
            async with client.start_tool("lost") as call:
                await script.end()
                await call.ended()
            told: dict[str | None, list[str]] = {}
            for target, state in states(changes):
                told.setdefault(target, []).append(state)
            assert told == {
                "fine": ["RUNNING", "COMPLETED"],
                "bad": ["RUNNING", "FAILED"],
                "mute": ["RUNNING", "CANCELLING", "CANCELLED"],
                "lost": ["RUNNING", "FAILED"],
            }


async def test_rounds_are_requests_of_one_call(autojump_clock: trio.testing.MockClock) -> None:
    def answer(request: dict[str, Any]) -> Any:
        if request["method"] == "server/discover":
            return None
        if "inputResponses" in request["params"]:
            return RESULT
        ask = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": FORM}}
        return {"resultType": "input_required", "inputRequests": {"q": ask}}

    async with scripted(answer, on_elicit=lambda asked: ElicitResult("decline")) as (client, _):
        with client.watch_calls() as changes:
            await client.call_tool("a")
            one, two, three, four = taken(changes)
            assert [one.state, two.state, three.state, four.state] == [
                State.RUNNING,
                State.RUNNING,
                State.COMPLETED,
                State.COMPLETED,
            ]
            assert one.key == three.key == two.first_key == four.first_key
            assert two.key == four.key != one.key


async def test_invariant_9_a_watcher_that_does_not_look_loses_the_oldest(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answer = {"server/discover": None, "tools/call": RESULT}
    limits = Limits(journal_backlog=3)
    async with scripted(lambda request: answer[request["method"]], limits=limits) as (client, _):
        with client.watch_calls() as changes:
            for name in "abc":
                await client.call_tool(name)
            assert states(changes) == [("b", "COMPLETED"), ("c", "RUNNING"), ("c", "COMPLETED")]
            assert changes.missed == 3


async def test_calls_over_http_are_told_too() -> None:
    async def hold(post: Post) -> None:
        await post.closed_by_client()

    async with scripted_http(hold) as (client, server):
        with client.watch_calls() as changes:
            async with client.start_tool("a") as call:
                await server.wait_for_calls(1)
                call.cancel("enough")
                [status] = client.calls()
                assert status.state is State.CANCELLING
                await call.ended()
            assert states(changes) == [
                ("a", "RUNNING"),
                ("a", "CANCELLING"),
                ("a", "CANCELLED"),
            ]
            assert client.calls() == ()


# Aborting -----------------------------------------------------------------------------------------


async def test_abort_ends_calls_in_flight_and_later_ones_at_once(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted(silent) as (client, script):
        async with client.start_tool("a") as call:
            await trio.testing.wait_all_tasks_blocked()
            client.abort()
            assert call.state is State.FAILED
            with pytest.raises(ConnectionLost, match="the client was aborted") as lost:
                await call.result()
            assert lost.value.sent
        assert client.calls() == ()
        with pytest.raises(ConnectionLost, match="the client was aborted") as refused:
            await client.call_tool("b")
        assert not refused.value.sent
        [asked] = script.sent("tools/call")
        await script.say({"jsonrpc": "2.0", "id": asked["id"], "result": RESULT})
        await trio.testing.wait_all_tasks_blocked()
        assert client._connection.violations == 0  # we know whom that was for
        client.abort()
    assert trio.current_time() == 0


async def test_abort_over_http_closes_the_streams_at_once() -> None:
    closed = trio.Event()

    async def hold(post: Post) -> None:
        await post.closed_by_client()
        closed.set()

    async with scripted_http(hold) as (client, server):
        async with client.start_tool("a") as call:
            await server.wait_for_calls(1)
            client.abort()
            with pytest.raises(ConnectionLost, match="the client was aborted") as lost:
                await call.result()
            assert lost.value.sent
            with trio.fail_after(5):
                await closed.wait()
        with pytest.raises(ConnectionLost, match="the client was aborted"):
            await client.call_tool("b")
        assert len(server.calls()) == 1


@pytest.mark.parametrize("restart", [None, Restart()])
async def test_abort_of_a_launched_server(restart: Restart | None) -> None:
    async with connect(FIXTURE_SERVER, restart=restart) as client:
        async with client.start_tool("sleep", {"s": 60}) as call:
            await until(lambda: call._call.sent)
            client.abort()
            with trio.fail_after(5), pytest.raises(ConnectionLost, match="the client was aborted"):
                await call.result()
    assert client.restarts == 0
    assert client.exit_status == -signal.SIGKILL
    assert children() == []


# The page's example -------------------------------------------------------------------------------

PAGE = Path(__file__).parents[1] / "docs" / "clients.md"


def blocks_of_the_page() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_the_pages_handle_on_a_call_does_the_same_on_every_wire(
    wire: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *others = blocks_of_the_page()
    (watching,) = [block for block in others if "async def watch()" in block]
    page: dict[str, Any] = {"__name__": "page"}
    exec(first.partition("async def main()")[0], page)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            if wire == "http":
                port = await nursery.start(partial(page["server"].serve_http, port=0))
                page["server"] = f"http://127.0.0.1:{port}/mcp"
            else:
                program = first.partition("async def main()")[0] + "trio.run(server.serve_stdio)"
                page["server"] = [sys.executable, "-c", program]
            exec(watching.replace("trio.run(watch)", ""), page)
            await page["watch"]()
            nursery.cancel_scope.cancel()
    *updates, requested, told = capsys.readouterr().out.splitlines()
    assert updates == ["1 of 600", "2 of 600"]
    assert requested == "CANCELLING by CALLER"
    assert told.startswith("CANCELLED - client #")
    assert "wait: cancelled by caller ('seen enough')" in told
