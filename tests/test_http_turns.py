"""Floods over HTTP: a turn of the event loop begins so many requests, in turns between clients."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
import trio
from tests.peers.raw import call, request, text_of, until
from tests.peers.raw_http import HttpPeer, post

from trio_mcp import Limits, Server
from trio_mcp.transports.http.hypercorn import serve_hypercorn
from trio_mcp.transports.http.turns import Turns


class Loop(trio.abc.Instrument):
    """``turn`` is the number of the event loop's turn."""

    turn = 0

    def after_io_wait(self, timeout: float) -> None:
        self.turn += 1


class Crowd:
    """Requests that take their turns. ``begun`` has clients, in order; ``in_turn`` how many began
    in each turn of the loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.turns = Turns(Limits(http_turn=most))
        self.loop = Loop()
        self.begun: list[str] = []
        self.in_turn: Counter[int] = Counter()
        self.waited = 0

    @asynccontextmanager
    async def served(self) -> AsyncGenerator[trio.Nursery, None]:
        trio.lowlevel.add_instrument(self.loop)
        async with trio.open_nursery() as serving:
            serving.start_soon(self.turns.give)
            with trio.fail_after(10):
                async with trio.open_nursery() as nursery:
                    yield nursery
            serving.cancel_scope.cancel("the test is over")
        trio.lowlevel.remove_instrument(self.loop)
        assert len(self.turns) == 0

    async def ask(self, client: str) -> None:
        if not self.turns.begin():
            self.waited += 1
            await self.turns.wait(client)
        self.begun.append(client)
        self.in_turn[self.loop.turn] += 1

    async def leave(self, client: str, after: int) -> None:
        """Ask, and give up some turns later."""
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.ask, client)
                for _ in range(after):
                    await trio.lowlevel.checkpoint()
                scope.cancel("it leaves")


async def test_a_turn_begins_so_many_and_the_others_wait() -> None:
    crowd = Crowd(8)
    async with crowd.served() as nursery:
        for _ in range(100):
            nursery.start_soon(crowd.ask, "crowd")
    assert len(crowd.begun) == 100
    assert max(crowd.in_turn.values()) == 8
    assert crowd.waited == 92


async def test_a_guest_is_in_the_next_turn_however_many_wait() -> None:
    crowd = Crowd(4)
    async with crowd.served() as nursery:
        for _ in range(100):
            nursery.start_soon(crowd.ask, "crowd")
        await trio.lowlevel.checkpoint()
        nursery.start_soon(crowd.ask, "guest")
    assert crowd.begun.index("guest") < 4 * 4


async def test_who_comes_now_and_then_never_waits() -> None:
    crowd = Crowd(2)
    async with crowd.served() as nursery:
        for _ in range(100):
            nursery.start_soon(crowd.ask, "client")
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
    assert crowd.waited == 0


@pytest.mark.parametrize("seed", range(20))
async def test_all_have_their_turns_whoever_comes_and_leaves_when(seed: int) -> None:
    rng = random.Random(seed)
    crowd = Crowd(rng.choice([1, 2, 3, 8]))
    stayed = 0
    async with crowd.served() as nursery:
        for _ in range(100):
            for _ in range(rng.choice([0, 0, 1, 2, 5, 30])):
                client = rng.choice("abcc")
                if rng.random() < 0.2:
                    nursery.start_soon(crowd.leave, client, rng.randrange(4))
                else:
                    nursery.start_soon(crowd.ask, client)
                    stayed += 1
            for _ in range(rng.choice([0, 1, 3])):
                await trio.lowlevel.checkpoint()
    assert len(crowd.begun) >= stayed
    # Where the count begins anew in the middle of a turn, twice as many may begin in that one.
    assert max(crowd.in_turn.values()) <= 2 * crowd.most


async def test_when_nobody_gives_turns_any_more_nobody_waits() -> None:
    turns, giving = Turns(Limits(http_turn=1)), trio.CancelScope()

    async def give() -> None:
        with giving:
            await turns.give()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give)
        await trio.lowlevel.checkpoint()
        assert turns.begin()
        assert not turns.begin()
        for _ in range(10):
            nursery.start_soon(turns.wait, "client")
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert len(turns) > 5
        giving.cancel("the server ends")
    assert len(turns) == 0
    assert turns.begin()


# Over real sockets --------------------------------------------------------------------------------


class Service:
    """``begun`` has the names of the requests whose handlers have begun, in order."""

    def __init__(self, **limits: float) -> None:
        self.server = Server("busy", version="1", limits=Limits(drain=0.3, **limits))  # type: ignore[arg-type]
        self.begun: list[str] = []

        @self.server.tool
        async def note(name: str) -> str:
            self.begun.append(name)
            return name

    @asynccontextmanager
    async def serving(self, carrier: str) -> AsyncGenerator[int, None]:
        start: Callable[..., Awaitable[None]]
        if carrier == "native":
            start = partial(self.server.serve_http, "127.0.0.1", 0)
        else:
            start = partial(serve_hypercorn, self.server.asgi(), "127.0.0.1", 0, self.server.limits)
        async with trio.open_nursery() as nursery:
            yield await nursery.start(start)
            nursery.cancel_scope.cancel("the test is over")
        core = self.server._core
        assert (core.inflight, core.connections) == (0, set())


async def connected(stack: AsyncExitStack, port: int, count: int, address: str) -> list[HttpPeer]:
    """Connections that the server has accepted: each has been answered."""
    peers = []
    for _ in range(count):
        stream = await trio.open_tcp_stream("127.0.0.1", port, local_address=address)
        peers.append(HttpPeer(await stack.enter_async_context(stream)))
        assert (await peers[-1].ask(request(0, "server/discover"))).status == 200
    return peers


def send_now(peer: HttpPeer, name: str) -> None:
    """Without a checkpoint: the server finds what all of them have sent in one turn."""
    stream = peer.stream
    assert isinstance(stream, trio.SocketStream)
    data = post(call(1, "note", name=name))
    assert stream.socket._sock.send(data) == len(data)  # type: ignore[attr-defined]


@pytest.mark.parametrize("carrier", ["native", "hypercorn"])
async def test_a_flood_of_connections_does_not_hold_up_another_address(carrier: str) -> None:
    service = Service(http_turn=2)
    async with service.serving(carrier) as port, AsyncExitStack() as stack:
        crowd = await connected(stack, port, 100, "127.0.0.2")
        guests = []
        for number in range(5):
            guests += await connected(stack, port, 1, f"127.0.0.{3 + number}")
        for number, peer in enumerate(crowd):
            send_now(peer, f"crowd {number}")
        for number, peer in enumerate(guests):
            send_now(peer, f"guest {number}")
        for peer in (*guests, *crowd):
            assert (await peer.response()).status == 200
    assert len(service.begun) == 105
    assert max(service.begun.index(f"guest {number}") for number in range(5)) < 50


async def test_who_leaves_while_it_waits_for_its_turn_never_begins() -> None:
    service = Service(http_turn=1)
    async with service.serving("native") as port, AsyncExitStack() as stack:
        leaving = await connected(stack, port, 100, "127.0.0.2")
        (stays,) = await connected(stack, port, 1, "127.0.0.2")
        for number, peer in enumerate(leaving):
            send_now(peer, f"leaving {number}")
            peer.stream.socket.close()
        assert text_of((await stays.ask(call(1, "note", name="stays"))).json) == "stays"
        await until(lambda: len(service.server._core.connections) == 1)
    assert len(service.begun) < 20


async def test_a_drain_does_not_leave_those_that_wait_without_an_answer() -> None:
    service = Service(http_turn=1)
    async with AsyncExitStack() as stack:
        async with service.serving("native") as port:
            crowd = await connected(stack, port, 50, "127.0.0.2")
            for number, peer in enumerate(crowd):
                send_now(peer, f"crowd {number}")
            await until(lambda: service.begun)
        statuses = Counter([(await peer.response()).status for peer in crowd])
    assert statuses[200] == len(service.begun) < 50
    assert statuses[503] == 50 - len(service.begun)
