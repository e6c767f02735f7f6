"""Who runs, who waits, who is refused: limits of tools and of the server, fair between clients."""

from __future__ import annotations

import random
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from tests.peers.checked import checked_client
from tests.peers.raw import META, call, cancel, raw_client, request, text_of, until
from tests.peers.raw_http import HttpPeer, post

from trio_mcp import (
    CancelSource,
    Client,
    Context,
    Limits,
    Overloaded,
    Principal,
    Server,
    ServerError,
    ShuttingDown,
    State,
    connect,
    safe_to_repeat,
)
from trio_mcp.runtime.admission.fair_queue import Gate
from trio_mcp.runtime.context import exchange_of
from trio_mcp.runtime.scopes import ScopeKind
from trio_mcp.transports.http.hypercorn import serve_hypercorn
from trio_mcp.transports.serving import serve_wire
from trio_mcp.transports.wire import StreamWire

OVERLOADED, SHUTTING_DOWN, DEADLINE = -31004, -31002, -31001


class Desk:
    """A server whose tool ``work`` runs until it is told to end. ``begun`` has names in order."""

    def __init__(self, limits: Limits | None = None, **options: Any) -> None:
        self.server = Server("desk", version="1", limits=limits)
        self.begun: list[str] = []
        self.live = 0
        self.most = 0
        self.go_on: dict[str, trio.Event] = {}

        @self.server.tool(**options)
        async def work(name: str) -> str:
            self.begun.append(name)
            self.live += 1
            self.most = max(self.most, self.live)
            try:
                await self.go_on.setdefault(name, trio.Event()).wait()
            finally:
                self.live -= 1
            return name

        @self.server.tool
        async def echo(text: str) -> str:
            return text

    def end(self, *names: str) -> None:
        for name in names:
            self.go_on.setdefault(name, trio.Event()).set()

    async def end_all(self) -> list[str]:
        """Let one after the other end, in the order in which they began; that order."""
        for name in self.begun:  # which grows
            self.end(name)
            await settle()
        return self.begun

    def states(self) -> list[str]:
        scopes = self.server.scopes().walk()
        return [scope.state for scope in scopes if scope.kind is ScopeKind.EXCHANGE]

    def gates(self) -> list[Gate[Any]]:
        """That of the server, and that of the tool if it has one."""
        admission = self.server._core.admission
        tool = self.server._tools._tools.get("work")
        assert tool is not None
        limit = tool.function.limit
        return [admission._handlers, *([] if limit is None else [limit.gate(admission)])]

    def assert_nothing_left(self) -> None:
        core = self.server._core
        assert core.inflight == 0
        assert len(core.admission._waiting) == 0
        for gate in self.gates():
            assert (gate.running, len(gate.queue), gate._held) == (0, 0, {})


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def clients(server: Server, count: int) -> AsyncGenerator[list[Client], None]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(connect(server)) for _ in range(count)]


@asynccontextmanager
async def asking(*works: tuple[Client, str]) -> AsyncGenerator[dict[str, Any], None]:
    """Call ``work`` for each, one after the other; what comes of it, by name."""
    outcomes: dict[str, Any] = {}

    async def ask(client: Client, name: str) -> None:
        try:
            outcomes[name] = (await client.call_tool("work", {"name": name})).text
        except ServerError as error:
            outcomes[name] = error

    async with trio.open_nursery() as nursery:
        for client, name in works:
            nursery.start_soon(ask, client, name)
            await settle()
        yield outcomes


def many(client: Client, letter: str, count: int) -> list[tuple[Client, str]]:
    return [(client, f"{letter}{number}") for number in range(1, count + 1)]


def record_of(server: Server, request_id: Any) -> Any:
    (record,) = [record for record in server.journal if record.request_id == request_id]
    return record


def in_flight(server: Server, request_id: Any) -> Any:
    """The exchange of a request on a channel."""
    for connection in server._core.connections:
        for exchange in connection._exchanges.values():  # type: ignore[attr-defined]
            if exchange.request.id == request_id:
                return exchange
    raise AssertionError(request_id)


# A tool's own limit -------------------------------------------------------------------------------


async def test_as_many_as_the_limit_run_at_once_and_the_others_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    desk = Desk(limit=2, queue=3)
    async with clients(desk.server, 1) as (a,), asking(*many(a, "a", 5)) as outcomes:
        assert desk.begun == ["a1", "a2"]
        assert sorted(desk.states()) == ["queued"] * 3 + ["running"] * 2
        await trio.sleep(3)
        assert await desk.end_all() == ["a1", "a2", "a3", "a4", "a5"]
    assert outcomes == {name: name for name in desk.begun}
    assert desk.most == 2
    records = [record for record in desk.server.journal if record.target == "work"]
    assert [record.queued > 0 for record in records] == [False, False, True, True, True]
    waited = records[2]
    assert waited.queued == pytest.approx(3)
    assert waited.started_at == pytest.approx(waited.received_at + 3)
    assert f"queued for {waited.queued:.3f} s" in waited.describe()
    assert "queued" not in records[0].describe()
    desk.assert_nothing_left()


@pytest.mark.parametrize("queue", [0, 1, 3])
async def test_a_full_queue_refuses_at_once_and_what_is_refused_may_be_repeated(
    queue: int, autojump_clock: trio.testing.MockClock
) -> None:
    desk = Desk(Limits(retry_after=2.5), limit=1, queue=queue)
    async with clients(desk.server, 1) as (a,), asking(*many(a, "a", queue + 2)) as outcomes:
        (error,) = outcomes.values()
        assert type(error) is Overloaded
        assert (error.code, error.data) == (OVERLOADED, {"retryAfterMs": 2500})
        assert error.refused
        assert safe_to_repeat(error) == 2.5
        assert f"1 like it are running and {queue} waiting" in str(error)
        assert (await a.call_tool("echo", {"text": "x"})).text == "x"
        await desk.end_all()
    assert f"a{queue + 2}" not in desk.begun
    (record,) = [r for r in desk.server.journal if r.state is State.FAILED]
    assert (record.error, record.cause) == (str(error).partition(" (code")[0], None)
    assert record.started_at is None
    desk.assert_nothing_left()


async def test_without_a_queue_of_its_own_it_has_that_of_the_limits() -> None:
    desk = Desk(Limits(function_queue=2), limit=1)
    async with clients(desk.server, 1) as (a,), asking(*many(a, "a", 4)) as outcomes:
        assert [*outcomes] == ["a4"]
        await desk.end_all()


async def test_clients_have_turns_and_each_is_served_in_its_order() -> None:
    desk = Desk(limit=1, queue=20)
    async with (
        clients(desk.server, 3) as (a, b, c),
        asking(*many(a, "a", 5), *many(b, "b", 2), *many(c, "c", 3)),
    ):
        assert await desk.end_all() == ["a1", "a2", "b1", "c1", "a3", "b2", "c2", "a4", "c3", "a5"]
    desk.assert_nothing_left()


async def test_the_newest_of_the_flood_gives_way_to_a_guest() -> None:
    desk = Desk(limit=1, queue=4)
    async with (
        clients(desk.server, 2) as (a, b),
        asking(*many(a, "a", 5), *many(b, "b", 3)) as outcomes,
    ):
        # b3 would have made it three of b's and one of a's.
        assert sorted(outcomes) == ["a4", "a5", "b3"]
        for error in outcomes.values():
            assert type(error) is Overloaded
            assert error.refused
            assert error.retry_after == 1
        assert await desk.end_all() == ["a1", "a2", "b1", "a3", "b2"]
    desk.assert_nothing_left()


async def test_connections_of_one_principal_are_one_client() -> None:
    desk = Desk(limit=1, queue=20)
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        peers = []
        for name in ("ada", "ada", "bob"):
            ours, theirs = trio.testing.memory_stream_pair()
            wire = StreamWire.over(theirs, 1 << 20)
            nursery.start_soon(serve_wire, desk.server._core, wire, Principal(name))
            peers.append(await stack.enter_async_context(connect(ours)))
        ada, again, bob = peers
        async with asking(*many(ada, "a", 3), *many(again, "A", 2), *many(bob, "b", 2)):
            assert await desk.end_all() == ["a1", "a2", "b1", "a3", "b2", "A1", "A2"]
    desk.assert_nothing_left()


@pytest.mark.parametrize("kind", ["resource", "template", "prompt"])
async def test_resources_and_prompts_have_limits_too(kind: str) -> None:
    server = Server("s", version="1")
    go_on = trio.Event()
    begun = 0

    async def wait() -> str:
        nonlocal begun
        begun += 1
        await go_on.wait()
        return "x"

    async def wait_for(name: str) -> str:
        return await wait()

    if kind == "prompt":
        server.prompt(limit=1, queue=1)(wait)
    elif kind == "resource":
        server.resource("w://it", limit=1, queue=1)(wait)
    else:
        server.resource("w://{name}", limit=1, queue=1)(wait_for)
    async with connect(server) as client:

        async def ask() -> None:
            if kind == "prompt":
                await client.get_prompt("wait")
            else:
                await client.read_resource("w://it")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            nursery.start_soon(ask)
            await settle()
            assert begun == 1
            with pytest.raises(Overloaded):
                await ask()
            go_on.set()
    assert begun == 2


# How a wait ends ----------------------------------------------------------------------------------


async def queue_up(peer: Any, desk: Desk) -> None:
    """Request 1 runs, request 2 waits."""
    for number, name in ((1, "first"), (2, "second")):
        await peer.send(call(number, "work", name=name))
        await settle()  # requests of one write come at once: in any order
    assert desk.begun == ["first"]
    assert desk.states() == ["running", "queued"]


async def test_a_notification_ends_the_wait(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk(limit=1)
    async with checked_client(desk.server) as peer:
        await queue_up(peer, desk)
        await trio.sleep(2)
        await peer.send(cancel(2, "no more"))
        assert await peer.probe() == []
        desk.end("first")
        assert text_of(await peer.answer(1)) == "first"
        await peer.send(call(3, "work", name="third"))
        desk.end("third")
        assert text_of(await peer.answer(3)) == "third"
    record = record_of(desk.server, 2)
    assert (record.state, record.started_at, record.cleanup) == (State.CANCELLED, None, "clean")
    assert record.cause.source is CancelSource.NOTIFICATION
    assert record.queued == pytest.approx(2)
    assert desk.begun == ["first", "third"]
    desk.assert_nothing_left()


async def test_a_deadline_counts_from_the_arrival_and_ends_the_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    desk = Desk(limit=1, timeout=10)
    async with checked_client(desk.server) as peer:
        await queue_up(peer, desk)
        await trio.sleep(6)
        await peer.send(call(3, "work", name="third"))
        await trio.sleep(2)
        desk.end("first")
        await settle()
        assert desk.begun == ["first", "second"]  # two seconds are left
        error = (await peer.answer(2, timeout=3))["error"]
        assert error["code"] == DEADLINE
        assert trio.current_time() - record_of(desk.server, 2).received_at == pytest.approx(10)
        desk.end("third")
        await peer.answer(3)
        desk.begun.clear()
        await peer.send(call(4, "work", name="fourth"))
        await settle()
        await peer.send(call(5, "work", name="fifth"))
        answer = await peer.answer(5, timeout=11)
        assert answer["error"]["code"] == DEADLINE
        assert desk.begun == ["fourth"]
    record = record_of(desk.server, 5)
    assert (record.started_at, record.queued) == (None, pytest.approx(10))
    desk.assert_nothing_left()


async def test_a_disconnect_ends_the_wait(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk(limit=1)
    async with raw_client(desk.server) as peer:
        await queue_up(peer, desk)
    assert desk.begun == ["first"]
    record = record_of(desk.server, 2)
    assert (record.state, record.started_at) == (State.CANCELLED, None)
    assert record.cause.source is CancelSource.DISCONNECT
    desk.assert_nothing_left()


async def test_a_shutdown_refuses_what_waits_and_cancels_what_runs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    desk = Desk(Limits(drain=1), limit=1)
    ours, theirs = trio.testing.memory_stream_pair()
    serving = trio.CancelScope()

    async def serve() -> None:
        with serving:
            await desk.server.serve_stream(theirs)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        async with connect(ours) as client:
            async with asking((client, "first"), (client, "second")) as outcomes:
                serving.cancel("enough")
        first, second = outcomes["first"], outcomes["second"]
        assert type(first) is type(second) is ShuttingDown
        assert (first.refused, second.refused) == (False, True)
        assert safe_to_repeat(second) == 1
    assert desk.begun == ["first"]
    desk.assert_nothing_left()


async def test_during_a_drain_those_that_wait_still_have_their_turns(
    autojump_clock: trio.testing.MockClock,
) -> None:
    desk = Desk(Limits(drain=5), limit=1)
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.server.serve_stream, theirs)
        async with connect(ours) as client:
            async with asking((client, "first"), (client, "second")) as outcomes:
                (connection,) = desk.server._core.connections
                connection.drain(trio.current_time() + 5)  # type: ignore[attr-defined]
                await trio.sleep(1)
                await desk.end_all()
    assert outcomes == {"first": "first", "second": "second"}


async def test_who_is_cancelled_in_the_step_of_its_turn_never_runs_and_passes_it_on() -> None:
    desk = Desk(limit=1)
    async with checked_client(desk.server) as peer:
        await queue_up(peer, desk)
        await peer.send(call(3, "work", name="third"))
        await settle()
        second = in_flight(desk.server, 2)
        leave = desk.server._core.admission.leave

        def leave_and_cancel(exchange: Any) -> None:
            leave(exchange)
            if exchange.request.id == 1:
                assert second.gates  # it is its turn
                second.cancel(CancelSource.NOTIFICATION)

        desk.server._core.admission.leave = leave_and_cancel  # type: ignore[method-assign]
        desk.end("first", "third")
        assert text_of(await peer.answer(3)) == "third"
    assert desk.begun == ["first", "third"]
    assert record_of(desk.server, 2).started_at is None
    desk.assert_nothing_left()


async def test_who_is_refused_and_then_cancelled_hears_nothing() -> None:
    desk = Desk(limit=1, queue=2)
    async with checked_client(desk.server) as peer, connect(desk.server) as other:
        await queue_up(peer, desk)
        await peer.send(call(3, "work", name="third"))
        await settle()
        admission = desk.server._core.admission
        third = in_flight(desk.server, 3)
        refuse = admission._refuse

        def refuse_and_cancel(waiter: Any, why: str) -> None:
            refuse(waiter, why)
            assert waiter.exchange is third
            third.cancel(CancelSource.NOTIFICATION)

        admission._refuse = refuse_and_cancel  # type: ignore[method-assign]
        async with asking((other, "b")):
            await desk.end_all()
        assert [m["id"] for m in await peer.probe()] == [1, 2]
    assert desk.begun == ["first", "second", "b"]
    record = record_of(desk.server, 3)
    assert (record.state, record.late, record.cleanup) == (State.CANCELLED, (), "clean")
    desk.assert_nothing_left()


@pytest.mark.parametrize("seed", range(8))
async def test_slots_are_conserved_whoever_gives_up_when(
    seed: int, autojump_clock: trio.testing.MockClock
) -> None:
    dice = random.Random(seed)
    server = Server("s", version="1", limits=Limits(handlers=4, handlers_per_client=3))
    live = most = 0

    @server.tool(limit=3, queue=12)
    async def work(ctx: Context, seconds: float, child: bool) -> str:
        nonlocal live, most
        live += 1
        most = max(most, live)
        try:
            await trio.sleep(seconds)
            if child:
                ctx.nursery.start_soon(trio.sleep, seconds)
        finally:
            live -= 1
        return "done"

    async def ask(client: Client) -> None:
        await trio.sleep(dice.random() * 5)
        with trio.move_on_after(dice.choice([0, 0.1, 1, 50])):
            try:
                arguments = {"seconds": dice.random(), "child": dice.random() < 0.3}
                await client.call_tool("work", arguments)
            except Overloaded:
                pass

    async with clients(server, 4) as peers, trio.open_nursery() as nursery:
        for client in peers:
            for _ in range(40):
                nursery.start_soon(ask, client)
    assert most == 3
    admission = server._core.admission
    gates = {id(admission._handlers): admission._handlers}
    assert [(gate.running, len(gate.queue), gate._held) for gate in gates.values()] == [(0, 0, {})]
    assert len(admission._waiting) == server._core.inflight == 0
    states = {record.state for record in server.journal}
    assert states == {State.COMPLETED, State.CANCELLED, State.FAILED}


# What a slot is held for --------------------------------------------------------------------------


async def test_a_slot_is_held_as_long_as_children_run() -> None:
    server = Server("s", version="1")
    go_on = trio.Event()

    @server.tool(limit=1, queue=0)
    async def work(ctx: Context) -> str:
        ctx.nursery.start_soon(go_on.wait)
        return "done"

    async with connect(server) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "work")
        await settle()
        with pytest.raises(Overloaded):
            await client.call_tool("work")
        go_on.set()
        await settle()
        assert (await client.call_tool("work")).text == "done"


async def test_a_slot_is_held_until_an_abandoned_thread_has_ended() -> None:
    server = Server("s", version="1", limits=Limits(cleanup=0.05))
    release = threading.Event()
    begun: list[str] = []

    @server.tool(limit=2, queue=5)
    def stubborn(name: str) -> str:
        begun.append(name)
        release.wait(10)
        return name

    async def give_up(client: Client, name: str, when: Callable[[], object]) -> None:
        async with client.start_tool("stubborn", {"name": name}) as stubborn:
            await until(when)
            stubborn.cancel("enough")

    try:
        async with connect(server) as client:
            for name in ("a", "b"):
                await give_up(client, name, lambda n=name: n in begun)  # type: ignore[misc]
            await until(lambda: len(server._core.pools.threads().stragglers) == 2)
            await until(lambda: server._core.inflight == 0)
            records = [record for record in server.journal if record.target == "stubborn"]
            assert [record.cleanup for record in records] == ["abandoned"] * 2

            def queued() -> bool:
                return "queued" in [scope.state for scope in server.scopes().walk()]

            await give_up(client, "c", queued)  # although only two threads of forty are busy
            await until(lambda: not queued())
            async with client.start_tool("stubborn", {"name": "d"}) as last:
                await until(queued)
                assert begun == ["a", "b"]
                release.set()
                await last.result()
            assert begun == ["a", "b", "d"]
            await until(lambda: server._core.admission._handlers.running == 0)
    finally:
        release.set()


async def test_a_thread_that_ends_before_the_clean_up_does_not_free_the_slot_of_it() -> None:
    server = Server("s", version="1", limits=Limits(cleanup=0.05))
    thread, child_began, clean_up = threading.Event(), trio.Event(), trio.Event()

    async def child(ctx: Context) -> None:
        child_began.set()
        try:
            await trio.sleep_forever()
        finally:
            with ctx.cleanup(10):
                await clean_up.wait()

    @server.tool(limit=1, queue=0)
    def work(ctx: Context) -> str:
        trio.from_thread.run_sync(ctx.nursery.start_soon, child, ctx)
        thread.wait(10)
        return "done"

    try:
        async with connect(server) as client:
            async with client.start_tool("work") as first:
                await child_began.wait()
                first.cancel("enough")
            await until(lambda: server._core.pools.threads().stragglers)
            thread.set()
            await until(lambda: not server._core.pools.threads().busy)
            with pytest.raises(Overloaded):
                await client.call_tool("work")
            clean_up.set()
            await until(lambda: server._core.admission._handlers.running == 0)
    finally:
        thread.set()


async def test_threads_are_given_out_in_turns_too() -> None:
    server = Server("s", version="1", limits=Limits(threads=1))
    begun: list[str] = []
    release = threading.Event()

    @server.tool
    def work(name: str) -> str:
        begun.append(name)
        release.wait(10)
        return name

    @server.tool
    async def free() -> str:
        release.set()
        return ""

    async with clients(server, 2) as (a, b):
        async with asking(*many(a, "a", 4), *many(b, "b", 1)):
            await a.call_tool("free")
    assert begun == ["a1", "a2", "b1", "a3", "a4"]
    queued = {r.key: r.queued for r in server.journal if r.target == "work"}
    assert [seconds > 0 for _, seconds in sorted(queued.items())] == [False, *[True] * 4]
    assert server._core.pools.threads().busy == 0


async def test_who_gives_up_waiting_for_a_thread_leaves_nothing() -> None:
    server = Server("s", version="1", limits=Limits(threads=1))
    release = threading.Event()

    @server.tool
    def work(name: str) -> str:
        release.wait(10)
        return name

    async with connect(server) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "work", {"name": "first"})
        await settle()
        with trio.move_on_after(0.05):
            await client.call_tool("work", {"name": "second"})
        await until(lambda: len(list(server.journal)) == 2)
        assert len(server._core.pools.threads()._limiter._gate.queue) == 0
        release.set()
    assert server._core.pools.threads().busy == 0


# The server's limits ------------------------------------------------------------------------------


async def test_a_flood_of_long_requests_leaves_room_for_others() -> None:
    desk = Desk(Limits(handlers=4))
    async with (
        clients(desk.server, 3) as (a, b, c),
        asking(*many(a, "a", 6), *many(b, "b", 2), *many(c, "c", 2)) as outcomes,
    ):
        assert desk.begun == ["a1", "a2", "a3", "b1"]  # three quarters are for one
        desk.end("b1")
        await settle()
        assert desk.begun[4:] == ["b2"]  # a has its share
        desk.end("b2")
        await settle()
        assert desk.begun[5:] == ["c1"]
        desk.end("a1")
        await settle()
        assert desk.begun[6:] == ["a4"]
        await desk.end_all()
    assert len(outcomes) == len(desk.begun) == 10
    desk.assert_nothing_left()


async def test_a_tools_slot_comes_first_and_who_waits_for_one_has_none_of_the_servers() -> None:
    desk = Desk(Limits(handlers=2, handlers_per_client=2), limit=1)
    async with clients(desk.server, 1) as (a,), asking(*many(a, "a", 4)):
        assert (await a.call_tool("echo", {"text": "x"})).text == "x"
        await desk.end_all()
    desk.assert_nothing_left()


async def test_what_runs_no_function_needs_no_slot() -> None:
    desk = Desk(Limits(handlers=1))
    desk.server.add_resource("text://x", "x")
    async with clients(desk.server, 1) as (a,), asking(*many(a, "a", 2)):
        assert sorted(desk.states()) == ["queued", "running"]
        assert len([tool async for tool in a.tools()]) == 2
        assert (await a.read_resource("text://x")).contents[0].text == "x"  # type: ignore[union-attr]
        async with a.listen(tools=True):
            pass
        await a.discover()
        await desk.end_all()


async def test_when_the_server_is_full_the_newest_of_the_flood_gives_way() -> None:
    desk = Desk(Limits(exchanges=6, handlers=2, handlers_per_client=1))
    async with (
        clients(desk.server, 3) as (a, b, c),
        asking(*many(a, "a", 6), *many(b, "b", 3), *many(c, "c", 1)) as outcomes,
    ):
        # a1 runs and five of a's wait: the server is full. b1 runs, b2 waits, b3 waits; c1 waits.
        assert desk.begun == ["a1", "b1"]
        assert sorted(outcomes) == ["a3", "a4", "a5", "a6"]
        assert {type(error) for error in outcomes.values()} == {Overloaded}
        assert desk.server._core.inflight == 6
        with pytest.raises(Overloaded):
            await a.call_tool("echo", {"text": "x"})
        await desk.end_all()
    assert sorted(desk.begun) == ["a1", "a2", "b1", "b2", "b3", "c1"]
    desk.assert_nothing_left()


async def test_what_was_refused_and_is_not_read_takes_no_place() -> None:
    """A client that floods and reads nothing: its refusals wait in its own queue."""

    async def never_sends(*_: object) -> None:
        await trio.sleep_forever()

    desk = Desk(Limits(exchanges=6, handlers=1))
    async with raw_client(desk.server) as flood, connect(desk.server) as guest:
        for number in range(6):
            await flood.send(call(number, "work", name=f"f{number}"))
            await settle()
        (connection,) = [c for c in desk.server._core.connections if c._exchanges]  # type: ignore[attr-defined]
        connection._channel.wire.send = never_sends  # type: ignore[attr-defined]
        async with asking(*many(guest, "g", 3)) as outcomes:
            assert sorted(outcomes) == ["g3"]
            assert desk.server._core.inflight == 6
            await flood.send_stream.aclose()
            await desk.end_all()
    assert sorted(desk.begun) == ["f0", "g1", "g2"]
    desk.assert_nothing_left()


def test_slots_of_an_earlier_run_are_forgotten() -> None:
    desk = Desk(Limits(handlers=1), limit=1, queue=0)

    async def break_off() -> None:
        async with connect(desk.server) as client, trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "work", {"name": "x"})
            await settle()
            for gate in desk.gates():
                gate.running += 1  # of a thread that outlived its run
            nursery.cancel_scope.cancel("broken off")

    async def again() -> None:
        desk.end("y")
        async with connect(desk.server) as client:
            assert (await client.call_tool("work", {"name": "y"})).text == "y"

    trio.run(break_off)
    trio.run(again)


def test_the_defaults_let_one_client_run_ten_thousand() -> None:
    limits = Limits()
    assert min(limits.handlers_per_client, limits.exchanges_per_connection) > 10_000
    assert limits.handlers >= limits.exchanges
    assert Limits(handlers=1).handlers_per_client == 1
    assert Limits(handlers=100).handlers_per_client == 75
    assert Limits(handlers=100, handlers_per_client=100).handlers_per_client == 100


# HTTP ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(server: Server, carrier: str) -> AsyncGenerator[int, None]:
    start: Callable[..., Awaitable[None]]
    if carrier == "native":
        start = partial(server.serve_http, "127.0.0.1", 0)
    else:
        start = partial(serve_hypercorn, server.asgi(), "127.0.0.1", 0, server.limits)
    async with trio.open_nursery() as nursery:
        yield await nursery.start(start)
        nursery.cancel_scope.cancel("the test is over")


CARRIERS = pytest.mark.parametrize("carrier", ["native", "hypercorn"])


@CARRIERS
async def test_http_addresses_are_clients_and_refusals_are_503(carrier: str) -> None:
    desk = Desk(Limits(retry_after=1.2, drain=0.2), limit=1, queue=3)
    async with serving(desk.server, carrier) as port, AsyncExitStack() as stack:
        peers: dict[str, HttpPeer] = {}
        for name in ("a1", "a2", "a3", "a4", "b1", "b2", "b3"):
            address = "127.0.0.1" if name[0] == "a" else "127.0.0.2"
            stream = await trio.open_tcp_stream("127.0.0.1", port, local_address=address)
            peers[name] = HttpPeer(await stack.enter_async_context(stream))
            before = len(desk.states())
            await peers[name].send(post(call(1, "work", name=name)))
            if name == "b2":  # as many of both wait now as may: it is not to be taken
                break
            if name[0] == "a":
                await until(lambda n=before: len(desk.states()) == n + 1)  # type: ignore[misc]
            else:
                await settle_in_reality(desk)
        evicted = await peers["a4"].response()
        refused = await peers["b2"].response()
        for answer in (evicted, refused):
            assert (answer.status, answer.code) == (503, OVERLOADED)
            assert answer.headers["retry-after"] == "2"
            assert answer.json["error"]["data"] == {"retryAfterMs": 1200}
        assert desk.begun == ["a1"]
        for name in ("a1", "a2", "b1", "a3"):
            desk.end(name)
            answer = await peers[name].response()
            assert (answer.status, text_of(answer.json)) == (200, name)
        assert desk.begun == ["a1", "a2", "b1", "a3"]
        assert (await peers["a4"].ask(call(2, "echo", text="x"))).status == 200  # it is kept
    desk.assert_nothing_left()


async def settle_in_reality(desk: Desk) -> None:
    """Until the newest of the flood has given way."""
    await until(lambda: any(record.state is State.FAILED for record in desk.server.journal))


@CARRIERS
async def test_our_client_knows_a_refusal_over_http(carrier: str) -> None:
    desk = Desk(Limits(retry_after=1.2, drain=0.2), limit=1, queue=1)
    async with serving(desk.server, carrier) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        async with connect(url) as client, trio.open_nursery() as nursery:
            for name in ("first", "second"):
                count = len(desk.states())
                nursery.start_soon(client.call_tool, "work", {"name": name})
                await until(lambda n=count: len(desk.states()) == n + 1)  # type: ignore[misc]
            with pytest.raises(Overloaded) as caught:
                await client.call_tool("work", {"name": "third"})
            assert caught.value.refused
            assert safe_to_repeat(caught.value) == 1.2
            desk.end("first", "second")
    desk.assert_nothing_left()


@CARRIERS
async def test_an_http_client_that_leaves_waits_no_more(carrier: str) -> None:
    desk = Desk(Limits(drain=0.2), limit=1)
    async with serving(desk.server, carrier) as port, AsyncExitStack() as stack:
        for name in ("first", "second"):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            peer = HttpPeer(await stack.enter_async_context(stream))
            await peer.send(post(call(1, "work", name=name)))
            await until(lambda n=name: len(desk.states()) == (1 if n == "first" else 2))  # type: ignore[misc]
        await stream.aclose()
        await until(lambda: len(list(desk.server.journal)) == 1)
        (record,) = desk.server.journal
        assert record.cause is not None
        assert record.cause.source is CancelSource.DISCONNECT
        assert record.started_at is None
        desk.end("first")
        await until(lambda: len(list(desk.server.journal)) == 2)
    assert desk.begun == ["first"]
    desk.assert_nothing_left()


@CARRIERS
async def test_a_full_server_refuses_with_503_and_the_newest_of_the_flood_gives_way(
    carrier: str,
) -> None:
    desk = Desk(Limits(exchanges=4, handlers=1, drain=0.2))
    async with serving(desk.server, carrier) as port, AsyncExitStack() as stack:

        async def ask(name: str, address: str) -> HttpPeer:
            stream = await trio.open_tcp_stream("127.0.0.1", port, local_address=address)
            peer = HttpPeer(await stack.enter_async_context(stream))
            await peer.send(post(call(1, "work", name=name)))
            return peer

        flood = []
        for number in range(4):
            flood.append(await ask(f"a{number}", "127.0.0.1"))
            await until(lambda n=number: len(desk.states()) == n + 1)  # type: ignore[misc]
        fifth = await (await ask("a4", "127.0.0.1")).response()
        assert (fifth.status, fifth.code, fifth.headers["retry-after"]) == (503, OVERLOADED, "1")
        guest = await ask("b0", "127.0.0.2")
        evicted = await flood[3].response()
        assert (evicted.status, evicted.headers["retry-after"]) == (503, "1")
        desk.end("a0", "a1", "a2", "b0")
        assert text_of((await guest.response()).json) == "b0"
        for peer in flood[:3]:
            assert (await peer.response()).status == 200
    assert desk.begun.index("b0") < desk.begun.index("a2")
    desk.assert_nothing_left()


# Floods of progress and log messages --------------------------------------------------------------


FLOOD = 100_000


class Loud:
    """``shout`` reports and logs much, in the loop or in a thread. ``most`` has what waited."""

    def __init__(self) -> None:
        self.server = Server("loud", version="1")
        self.most = {"bytes": 0, "messages": 0}

        @self.server.tool
        async def shout(ctx: Context) -> str:
            for number in range(1, FLOOD + 1):
                self.say(ctx, number)
                if number % 100 == 0:
                    await trio.lowlevel.checkpoint()
            return "done"

        @self.server.tool
        def shout_in_thread(ctx: Context) -> str:
            for number in range(1, FLOOD + 1):
                self.say(ctx, number)
            return "done"

        @self.server.tool
        async def echo(text: str) -> str:
            return text

    def say(self, ctx: Context, number: int) -> None:
        ctx.progress(number, FLOOD, "so far")
        ctx.log("info", f"{number} of many")
        exchange: Any = exchange_of(ctx)
        waiting = len(exchange.peer._channel._queue)
        self.most["bytes"] = max(self.most["bytes"], exchange.logs._bytes)
        self.most["messages"] = max(self.most["messages"], waiting)


@pytest.mark.parametrize("tool", ["shout", "shout_in_thread"])
async def test_a_flood_is_bounded_and_does_not_hold_up_others(tool: str) -> None:
    loud = Loud()
    meta = {**META, "progressToken": "t", "io.modelcontextprotocol/logLevel": "debug"}
    async with raw_client(loud.server) as peer:
        await peer.send(request(1, "tools/call", {"name": tool, "_meta": meta}))
        await peer.receive()
        await peer.send(call(2, "echo", text="x"))
        await peer.answer(2, timeout=10)
        assert peer.seen[-1]["id"] == 2
        assert not any(message.get("id") == 1 for message in peer.seen)
        await peer.answer(1, timeout=60)
    record = record_of(loud.server, 1)
    limits = loud.server.limits
    assert record.logs_sent + record.logs_dropped == FLOOD
    assert record.progress_sent <= record.duration / limits.progress_interval + 2
    assert record.logs_sent <= (record.duration + 1) * limits.logs_per_second
    assert len(peer.seen) == record.logs_sent + record.progress_sent + 2
    # One message more is there for a moment, before the oldest makes room.
    assert loud.most["bytes"] <= limits.log_bytes
    assert loud.most["messages"] <= limits.log_bytes / 160 + 3


async def test_a_client_that_reads_everything_gets_so_many_messages_a_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server("s", version="1", limits=Limits(logs_per_second=10))

    @server.tool
    async def tell(ctx: Context) -> str:
        for number in range(400):  # 40 in a second, for ten seconds
            ctx.log("info", number)
            await trio.sleep(0.025)
        return "told"

    meta = {**META, "io.modelcontextprotocol/logLevel": "debug"}
    async with checked_client(server) as peer:
        await peer.send(request(1, "tools/call", {"name": "tell", "_meta": meta}))
        await peer.answer(1, timeout=20)
    told = [m["params"]["data"] for m in peer.seen if m.get("method") == "notifications/message"]
    assert told == sorted(told)
    assert len(told) == pytest.approx(10 + 10 * 10, abs=1)
    assert told[:10] == list(range(10))  # a second's worth may come at once
    record = record_of(server, 1)
    assert (record.logs_sent, record.logs_dropped) == (len(told), 400 - len(told))


# Options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"limit": 0}, ValueError, "limit must be 1 or more, not 0"),
        ({"limit": 1.5}, TypeError, "limit is a whole number of requests, not 1.5"),
        ({"limit": True}, TypeError, "limit is a whole number of requests, not True"),
        ({"limit": 1, "queue": -1}, ValueError, "queue must be 0 or more, not -1"),
        ({"limit": 1, "queue": "x"}, TypeError, "queue is a whole number of requests, not 'x'"),
        ({"queue": 1}, ValueError, "pass limit=, too"),
    ],
)
def test_limits_and_queues_are_whole_numbers(
    options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    server = Server("s", version="1")

    def wait() -> str:
        return ""

    adders: list[Callable[[], Any]] = [
        lambda: server.add_tool(wait, **options),
        lambda: server.prompt(**options)(wait),
        lambda: server.resource("w://it", **options)(wait),
    ]
    for add in adders:
        with pytest.raises(kind, match=words):
            add()
