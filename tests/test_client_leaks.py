"""What a client keeps of what is over: nothing. Objects are counted: if one dict of each call were
kept, there would be hundreds. Those in sessions are in `test_session_cases.py`.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from tests.peers.fixture_server import Fixtures
from tests.peers.raw import until

from trio_mcp import Client, ClientGroup, Limits, Retry, ServerError, State, connect

SMALL = Limits(late_answers=10, journal_records=10, progress_interval=0.001)


@asynccontextmanager
async def serving(wire: str, fixtures: Fixtures) -> AsyncGenerator[Any, None]:
    """What to connect to."""
    if wire == "memory":
        yield fixtures.server
        return
    serve = fixtures.server.serve_http if wire == "http" else fixtures.server.serve_websocket
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(serve, port=0))
        yield f"{'http' if wire == 'http' else 'ws'}://127.0.0.1:{port}/mcp"
        nursery.cancel_scope.cancel("the test is over")


async def kept_after(some: Callable[[int], Awaitable[None]], count: int) -> int:
    """How many objects more there are after so much of it, once it has been warmed up: the least of
    three times. What pools and caches come to hold, they hold once; a leak is there each time."""
    await some(count // 5)
    grown: list[int] = []
    while len(grown) < 3 and min(grown, default=count) >= count / 4:
        before = objects()
        await some(count)
        grown.append(objects() - before)
    return min(grown)


def objects() -> int:
    """All but deadlines: Trio forgets those that are over when there are a thousand of them."""
    gc.collect()
    return sum(type(it) not in (tuple, trio.CancelScope) for it in gc.get_objects())


async def mixed_calls(client: Client, fixtures: Fixtures, count: int) -> None:
    """Answers, errors, failures, progress, pages, cancellations, timeouts."""
    for _ in range(count):
        await client.call_tool("echo", {"text": "x"})
        await client.call_tool("tick", {"n": 2, "dt": 0}, on_progress=lambda _: None)
        assert (await client.call_tool("boom", {"kind": "tool"})).is_error
        with pytest.raises(ServerError):
            await client.call_tool("no_such")
        assert await anext(client.tools())
        with trio.move_on_after(0):
            await client.call_tool("sleep", {"s": 60})
        async with client.start_tool("sleep", {"s": 60}) as call:
            await until(lambda: fixtures.live == 1)
            call.cancel("enough")
            assert (await call.ended()).state is State.CANCELLED
        await until(lambda: fixtures.live == 0)
    assert client.calls() == ()


@pytest.mark.parametrize(("wire", "count"), [("memory", 200), ("websocket", 100), ("http", 60)])
async def test_invariant_9_mixed_calls_leave_nothing(wire: str, count: int) -> None:
    fixtures = Fixtures(SMALL)
    async with serving(wire, fixtures) as target:
        async with connect(target, limits=SMALL, cache=True, retry=Retry()) as client:
            grown = await kept_after(partial(mixed_calls, client, fixtures), count)
    assert grown < count, f"{grown} objects more after {7 * count} calls"


@pytest.mark.parametrize(("wire", "count"), [("memory", 1000), ("http", 150)])
async def test_invariant_4_subscriptions_that_are_dropped_leave_nothing(
    wire: str, count: int
) -> None:
    fixtures = Fixtures(SMALL)

    async def some(number: int) -> None:
        for n in range(number):
            async with client.listen(tools=True, resources=[f"shop://{n}"]):
                pass
        await until(lambda: client.calls() == ())
        await until(lambda: not any(one.children for one in fixtures.server.scopes().children))

    async with serving(wire, fixtures) as target, connect(target, limits=SMALL) as client:
        grown = await kept_after(some, count)
    assert grown < count / 2, f"{grown} objects more after {count} subscriptions"


async def test_invariant_4_members_that_come_and_go_leave_nothing() -> None:
    fixtures = Fixtures(SMALL)

    async def some(number: int) -> None:
        for n in range(number):
            await group.add(f"m{n % 3}", fixtures.server)
            await group.call_tool(f"m{n % 3}.echo", {"text": "x"})
            await group.remove(f"m{n % 3}")

    async with ClientGroup() as group:
        grown = await kept_after(some, 100)
        assert group.members == {}
    assert grown < 100, f"{grown} objects more after 100 members"
