"""Deadlines of a whole server, and those that a client announces."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from tests.peers.inspection import record_of
from tests.peers.raw import call, raw_client, request, text_of
from tests.test_races import ScriptedWire

from trio_mcp import (
    CallTimeout,
    CancelSource,
    Context,
    DeadlineExceeded,
    ErrorCode,
    Server,
    ServerError,
    State,
    connect,
)


def slow_server(**options: Any) -> Server:
    server = Server("slow", version="1", **options)

    async def sleep(s: float) -> str:
        await trio.sleep(s)
        return "slept"

    server.tool(name="any")(sleep)
    server.tool(name="longer", timeout=20)(sleep)
    server.tool(name="shorter", timeout=2)(sleep)
    server.tool(name="endless", timeout=math.inf)(sleep)

    @server.tool
    async def deadline(ctx: Context) -> float:
        return min(ctx.deadline, 1e9)

    @server.resource("slow://resource")
    async def resource() -> str:
        return await sleep(100)

    @server.prompt
    async def prompt() -> str:
        return await sleep(100)

    return server


# Of a server --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "seconds"), [("any", 10), ("longer", 20), ("shorter", 2), ("endless", None)]
)
async def test_a_timeout_of_the_server_is_for_those_without_one_of_their_own(
    tool: str, seconds: float | None, autojump_clock: trio.testing.MockClock
) -> None:
    server = slow_server(timeout=10)
    async with raw_client(server) as peer:
        await peer.send(call(1, tool, s=1000))
        answer = await peer.answer(1, timeout=2000)
        if seconds is None:
            assert text_of(answer) == "slept"
            return
        assert answer["error"]["code"] == ErrorCode.DEADLINE_EXCEEDED
        assert f"the server's time limit of {seconds:g} s" in answer["error"]["message"]
        assert trio.current_time() == pytest.approx(seconds, abs=0.1)
    cause = record_of(server, 1).cause
    assert cause is not None
    assert (cause.source, cause.reason) == (CancelSource.DEADLINE, None)


async def test_resources_and_prompts_have_it_too(autojump_clock: trio.testing.MockClock) -> None:
    async with connect(slow_server(timeout=10)) as client:
        with pytest.raises(DeadlineExceeded):
            await client.read_resource("slow://resource")
        with pytest.raises(DeadlineExceeded):
            await client.get_prompt("prompt")
    assert trio.current_time() == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize("timeout", ["3", 0, -1, float("nan"), True])
def test_what_is_no_timeout(timeout: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="timeout"):
        Server("s", version="1", timeout=timeout)


# Announced by a client ----------------------------------------------------------------------------


def announcing(request_id: int, tool: str, value: Any, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments, "_meta": {"trio-mcp/timeoutMs": value}}
    return request(request_id, "tools/call", params)


@pytest.mark.parametrize(
    ("tool", "announced", "seconds"),
    [("any", 3000, 3), ("any", 1500.5, 1.5005), ("any", 60_000, 10), ("shorter", 5000, 2)],
)
async def test_the_shorter_of_the_announced_and_the_servers_own_holds(
    tool: str, announced: float, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    server = slow_server(timeout=10)
    async with raw_client(server) as peer:
        await peer.send(announcing(1, tool, announced, s=1000))
        error = (await peer.answer(1, timeout=100))["error"]
        assert trio.current_time() == pytest.approx(seconds, abs=0.01)
    assert error["code"] == ErrorCode.DEADLINE_EXCEEDED
    cause = record_of(server, 1).cause
    assert cause is not None
    assert cause.source is CancelSource.DEADLINE
    if seconds == announced / 1000:
        assert cause.reason == "announced by the client"
        assert error["message"] == f"Cancelled by the time limit of {seconds:g} s {cause.reason}"
    else:
        assert cause.reason is None


HOSTILE = ["0", "-1", "-0.5", "1" + "0" * 300, "1e300", '"5"', "true", "null", "[]", '{"a":1}']


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: text[:8])
async def test_a_hostile_announcement_is_ignored(
    hostile: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with raw_client(slow_server()) as peer:
        message = msgspec.json.encode(announcing(1, "deadline", "HOSTILE"))
        await peer.send(message.replace(b'"HOSTILE"', hostile.encode()))
        assert (await peer.answer(1))["result"]["structuredContent"] == 1e9


@pytest.mark.parametrize("announce", [True, False])
async def test_our_client_announces_if_asked_to(
    announce: bool, autojump_clock: trio.testing.MockClock
) -> None:
    server = Server("s", version="1")
    seen: list[Any] = []

    @server.tool
    async def meta(ctx: Context) -> None:
        seen.append(ctx.meta.get("trio-mcp/timeoutMs"))

    async with connect(server, announce_timeout=announce, max_timeout=math.inf) as client:
        await client.call_tool("meta")
        await client.call_tool("meta", max_timeout=2.5)
        await client.call_tool("meta", max_timeout=0.0001)
        async with client.start_tool("meta", max_timeout=7) as started:
            await started.result()
    assert seen == ([None, 2500, 1, 7000] if announce else [None] * 4)


async def test_a_server_whose_caller_is_silently_gone_gives_up_by_itself() -> None:
    """As through a proxy that does not tell: the cancellation never arrives."""
    server, wire = slow_server(), ScriptedWire()
    clock_began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_wire, wire)
        wire.feed(announcing(1, "any", 50, s=1000))
        with trio.fail_after(5):
            while not len(server.journal):  # noqa: ASYNC110
                await trio.sleep(0.01)
        wire.hang_up()
    assert trio.current_time() - clock_began >= 0.05
    assert record_of(server, 1).state is State.CANCELLED


async def test_the_caller_still_sees_its_own_timeout() -> None:
    async with connect(slow_server(), announce_timeout=True) as client:
        with pytest.raises((CallTimeout, ServerError)) as caught:
            await client.call_tool("any", {"s": 100}, max_timeout=0.1)
        assert isinstance(caught.value, (CallTimeout, DeadlineExceeded))
