"""Who reads an HTTP connection: heads that came before, the time for each part, who looks out."""

from __future__ import annotations

import errno
import itertools
import math
import os
import socket
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from tests.peers.raw import call, text_of, until
from tests.peers.raw_http import HttpPeer, post

from trio_mcp import CancelSource, Limits, Principal, RequestHead, Server, State
from trio_mcp.transports.http import reader
from trio_mcp.transports.http.direct import DirectSocket
from trio_mcp.transports.http.endpoint import Endpoint
from trio_mcp.transports.http.heads import LONGEST, MOST_HEADERS, KnownHeads
from trio_mcp.transports.http.hypercorn import serve_hypercorn
from trio_mcp.transports.http.incoming import Continue, Incoming, Whole
from trio_mcp.transports.http.lookouts import BATCH, Lookouts
from trio_mcp.transports.http.patience import Patience
from trio_mcp.transports.http.reader import Readers, StreamReader

LIMITS = Limits(message_bytes=2_000, http_head_bytes=4_000, http_pipeline=100)


def incoming(heads: KnownHeads) -> Incoming:
    return Incoming(lambda head: Endpoint().check_head(head, LIMITS), LIMITS, "test", heads)


class Stranger(KnownHeads):
    """Knows nothing, ever."""

    def find(self, data: bytes) -> None:
        return None


def request(body: bytes = b"{}", *more: str, coding: str = "", version: str = "1.1") -> bytes:
    lines = [
        f"POST /mcp HTTP/{version}",
        "host: localhost",
        "content-type: application/json",
        coding or f"content-length: {len(body)}",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def taken(source: Incoming) -> Iterator[Any]:
    while source:
        item = source.take()
        if isinstance(item, Whole):
            yield item.head, bytes(item.body), item.keep_alive, item.chunked
        else:
            yield 100 if isinstance(item, Continue) else item


# Heads that came before ---------------------------------------------------------------------------

CHUNKED = request(b"2\r\n{}\r\n0\r\n\r\n", coding="transfer-encoding: chunked")

MESSAGES = st.sampled_from(
    [
        request(),
        request(b'{"a":1}'),
        request(b'{"b":2}'),
        request(b"\r\n\r\n{}"),
        request(b""),
        request(b"{}", "mcp-name: echo"),
        request(b"{}", "mcp-name: echo", "mcp-name: echo"),
        request(b"{}", "expect: 100-continue"),
        request(b"{}", "connection: upgrade", "upgrade: h2c"),
        request(b"{}", f"x: {'y' * LONGEST}"),
        CHUNKED,
        b"\r\n" + request(),
        b"\r",
        b"\n",
    ]
)
LAST = st.sampled_from(
    [
        b"",
        request(b"{}", "connection: close"),
        request(version="1.0"),
        request().replace(b"localhost", b"evil.example"),
        request().replace(b"/mcp", b"/elsewhere"),
        request(b"x" * 2_001),
        b"FOO /mcp HTTP/1.1\r\n\r\n",
        request()[:-1],
    ]
)


@given(st.lists(MESSAGES, max_size=6), LAST, st.lists(st.integers(0, 1_000), max_size=6))
def test_a_head_that_is_known_means_what_it_would_mean_to_the_parser(
    messages: list[bytes], last: bytes, cuts: list[int]
) -> None:
    data = b"".join([*messages, last, last])
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    # Once as the reads happen to come, and once message by message: what is known then.
    parts = [data[a:b] for a, b in itertools.pairwise(places)]
    known = KnownHeads(4)
    for reads in (parts, messages, [*messages, *messages, last]):
        found, parsed = incoming(known), incoming(Stranger(4))
        for read in reads:
            found.feed(read)
            parsed.feed(read)
            assert found.stage == parsed.stage
        assert list(taken(found)) == list(taken(parsed))


def test_a_head_is_remembered_for_other_connections_and_only_found_whole() -> None:
    known = KnownHeads(8)
    first, data = incoming(known), request(b'{"a":1}', "mcp-name: echo")
    assert known.find(data) is None
    first.feed(data)
    (head, _, _, _), *_ = taken(first)
    found = known.find(request(b'{"z":9}', "mcp-name: echo"))
    assert found is not None
    assert found.head is head
    assert head.get_all("Mcp-Name") == ("echo",)  # nothing that one request could change for others
    assert known.find(data[:-1]) is None
    assert known.find(data + b"P") is None
    assert known.find(request(b'{"a":12}', "mcp-name: echo")) is None


@pytest.mark.parametrize(
    "data",
    [
        CHUNKED,
        request(b"{}", "connection: close"),
        request(b"{}", "expect: 100-continue"),
        request(version="1.0"),
        request(b"{}", f"x: {'y' * LONGEST}"),
        request() + request(b'{"b":2}'),
        request().replace(b"/mcp", b"/elsewhere"),
    ],
)
def test_what_is_not_remembered(data: bytes) -> None:
    known = KnownHeads(8)
    incoming(known).feed(data)
    assert not known._known


def test_a_head_of_many_headers_is_not_remembered() -> None:
    """They would take forty times as much memory as their bytes."""
    for number, remembered in ((MOST_HEADERS - 3, True), (MOST_HEADERS - 2, False)):
        known = KnownHeads(8)
        incoming(known).feed(request(b"{}", *(f"x{n}:" for n in range(number))))
        assert bool(known._known) is remembered


def test_the_newest_heads_are_kept() -> None:
    known, source = KnownHeads(2), incoming(KnownHeads(2))
    source = incoming(known)
    for name in "abc":
        source.feed(request(b"{}", f"mcp-name: {name}"))
        list(taken(source))
    assert known.find(request(b"{}", "mcp-name: a")) is None
    assert known.find(request(b"{}", "mcp-name: b")) is not None
    assert known.find(request(b"{}", "mcp-name: c")) is not None


async def test_who_asks_is_found_out_anew_for_each_connection(nursery: trio.Nursery) -> None:
    asked: list[str] = []

    def authenticate(head: RequestHead) -> Principal:
        asked.append(head.peer)
        return Principal(head.get("authorization") or "nobody")

    server = Server("test", version="1")
    server.tool(echo)
    port = await nursery.start(lambda task_status: _serve(server, authenticate, task_status))
    for _ in range(2):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            for who in ("ann", "ann", "bob"):
                answer = await HttpPeer(stream).ask(call(1, "echo", text="x"), authorization=who)
                assert answer.status == 200
    assert len(set(asked)) == 2  # each head says which connection it came on
    names = [record.principal for record in server.journal]
    assert names == ["ann", "ann", "bob"] * 2


async def _serve(server: Server, authenticate: Any, task_status: trio.TaskStatus[int]) -> None:
    await server.serve_http(port=0, authenticate=authenticate, task_status=task_status)


async def echo(text: str) -> str:
    """Say it."""
    return text


@pytest.mark.parametrize("failure", [ZeroDivisionError, KeyboardInterrupt])
def test_a_failure_of_ours_while_parsing_is_no_fault_of_the_peer(
    failure: type[BaseException],
) -> None:
    def check_head(head: RequestHead) -> None:
        raise failure

    source = Incoming(check_head, LIMITS, "test", KnownHeads(1))
    with pytest.raises(failure):
        source.feed(request())
    assert not source


# The time for each part ---------------------------------------------------------------------------


class Waiting:
    """A :class:`~trio_mcp.transports.http.patience.Patient`."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def out_of_time(self) -> None:
        self.told.append(trio.current_time())

    def give_up(self) -> None:
        raise AssertionError("it has not failed")


class Failing:
    """One that is told and fails."""

    def __init__(self) -> None:
        self.gave_up_at: list[float] = []

    def out_of_time(self) -> None:
        raise ZeroDivisionError

    def give_up(self) -> None:
        self.gave_up_at.append(trio.current_time())


async def test_everybody_is_told_when_their_time_is_over(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    patience, began = Patience(), trio.current_time()
    nursery.start_soon(patience.run)
    slow, quick, freed, again, endless = (Waiting() for _ in range(5))
    patience.begin(slow, 60)
    patience.begin(freed, 60)
    await trio.sleep(1)
    patience.begin(quick, 10)  # before those that came earlier
    patience.begin(again, 10)
    patience.begin(endless, math.inf)
    await trio.sleep(2)
    patience.begin(again, 10, 10)  # as if it began now
    patience.begin(freed, math.inf, 60)
    await trio.sleep(1000)
    told = [[at - began for at in one.told] for one in (slow, quick, again, freed, endless)]
    assert told == [[60], [11], [13], [], []]


async def test_who_is_freed_by_another_one_that_is_told_is_not_told(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    class Freeing(Waiting):
        def out_of_time(self) -> None:
            super().out_of_time()
            patience.begin(freed, math.inf, 10)

    patience, freeing, freed, other = Patience(), Freeing(), Waiting(), Waiting()
    nursery.start_soon(patience.run)
    for one in (freeing, freed, other):
        patience.begin(one, 10)
    await trio.sleep(20)
    assert [len(one.told) for one in (freeing, freed, other)] == [1, 0, 1]


async def test_a_bug_in_one_that_is_told_is_its_own(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: Any
) -> None:
    patience, began = Patience(), trio.current_time()
    nursery.start_soon(patience.run)
    failing, other = Failing(), Waiting()
    patience.begin(failing, 10)
    patience.begin(other, 10)
    await trio.sleep(20)
    assert failing.gave_up_at == [began + 10]
    assert other.told == [began + 10]
    assert "ended by a bug" in caplog.text


# Who looks out ------------------------------------------------------------------------------------


class Desk:
    """A server over HTTP with a tool that waits until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = Server("desk", version="1", limits=Limits(http_pipeline=4))
        self.go_on = trio.Event()
        self.live = 0
        self.lookouts = Lookouts()
        monkeypatch.setattr(reader, "Lookouts", lambda: self.lookouts)
        self.server.tool(echo)
        self.server.tool(self.wait)

    async def wait(self) -> str:
        """Wait."""
        self.live += 1
        try:
            await self.go_on.wait()
        finally:
            self.live -= 1
        return "waited"

    async def tidy(self) -> str:
        """Clean up for as long as it takes."""
        self.live += 1
        try:
            return await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await self.go_on.wait()
            self.live -= 1

    @property
    def watched(self) -> int:
        return len(self.lookouts._selector.get_map())

    async def start(self, nursery: trio.Nursery) -> int:
        port: int = await nursery.start(
            lambda task_status: self.server.serve_http(port=0, task_status=task_status)
        )
        return port


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


async def test_a_request_that_is_done_at_once_is_not_watched(
    desk: Desk, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = await desk.start(nursery)
    watched: list[object] = []
    monkeypatch.setattr(desk.lookouts._selector, "register", watched.append)
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        peer = HttpPeer(stream)
        for n in range(20):
            assert text_of((await peer.ask(call(n, "echo", text="x"))).json) == "x"
    assert not watched


async def test_one_that_takes_longer_is_watched_until_it_is_over(
    desk: Desk, nursery: trio.Nursery
) -> None:
    port = await desk.start(nursery)
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        peer = HttpPeer(stream)
        for n in range(3):
            desk.go_on = trio.Event()
            await peer.send(post(call(n, "wait")))
            await until(lambda: desk.watched == 1)
            desk.go_on.set()
            assert text_of((await peer.response()).json) == "waited"
            await until(lambda: desk.watched == 0)
            assert text_of((await peer.ask(call("e", "echo", text="x"))).json) == "x"
        desk.go_on = trio.Event()
        await peer.send(post(call("last", "wait")))
        await until(lambda: desk.watched == 1)
    await until(lambda: not desk.live and not desk.watched and len(desk.server.journal) == 7)
    last = list(desk.server.journal)[-1]
    assert last.state is State.CANCELLED
    assert last.cause is not None
    assert last.cause.source is CancelSource.DISCONNECT


async def test_the_end_is_heard_once_however_long_the_clean_up_takes(
    desk: Desk, nursery: trio.Nursery
) -> None:
    desk.server.tool(desk.tidy)
    port = await desk.start(nursery)
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await HttpPeer(stream).send(post(call(1, "tidy")))
        await until(lambda: desk.watched == 1)
    await until(lambda: desk.watched == 0)  # else it would be told of the end again and again
    assert desk.live == 1
    desk.go_on.set()
    await until(lambda: not desk.live)


async def test_what_comes_early_waits_and_too_much_of_it_is_refused(
    desk: Desk, nursery: trio.Nursery
) -> None:
    port = await desk.start(nursery)
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        peer = HttpPeer(stream)
        await peer.send(post(call(0, "wait")))
        await until(lambda: desk.watched == 1)
        for n in range(1, 8):
            await peer.send(post(call(n, "echo", text="x")))
            await trio.sleep(0.01)
        desk.go_on.set()
        statuses: list[int] = []
        while not statuses or statuses[-1] == 200:
            statuses.append((await peer.response()).status)
        assert statuses == [200] * 6 + [503]
        assert await stream.receive_some() == b""


async def test_a_flood_while_it_is_busy_disturbs_nobody(desk: Desk, nursery: trio.Nursery) -> None:
    port = await desk.start(nursery)
    with socket.create_connection(("127.0.0.1", port)) as flooding:
        flooding.setblocking(False)
        flooding.send(post(call(0, "wait")))
        await until(lambda: desk.watched == 1)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            peer = HttpPeer(stream)
            for n in range(50):
                try:
                    flooding.send(b"x" * 100_000)
                except BlockingIOError:
                    pass
                assert text_of((await peer.ask(call(n, "echo", text="x"))).json) == "x"
    await until(lambda: not desk.live)


class Turns(trio.abc.Instrument):
    """How often something is done in each turn of the loop."""

    def __init__(self) -> None:
        self.counts = [0]

    def before_io_wait(self, timeout: float) -> None:
        self.counts.append(0)

    def count(self) -> None:
        self.counts[-1] += 1


async def test_many_that_close_at_once_are_not_all_heard_in_one_turn(
    desk: Desk, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, turns, size = await desk.start(nursery), Turns(), 3 * BATCH
    lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(size)]
    for line in lines:
        line.send(post(call(1, "wait")))
    await until(lambda: desk.watched == size)
    read_now = reader.SocketReader.read_now

    def count(self: reader.SocketReader) -> None:
        turns.count()
        read_now(self)

    monkeypatch.setattr(reader.SocketReader, "read_now", count)
    trio.lowlevel.add_instrument(turns)
    for line in lines:
        line.close()
    await until(lambda: not desk.live)
    trio.lowlevel.remove_instrument(turns)
    assert sum(turns.counts) == size
    assert 1 < max(turns.counts) <= BATCH


async def test_a_bug_while_reading_ends_that_connection_alone(
    desk: Desk, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    port = await desk.start(nursery)
    async with (
        await trio.open_tcp_stream("127.0.0.1", port) as one,
        await trio.open_tcp_stream("127.0.0.1", port) as other,
    ):
        await HttpPeer(one).send(post(call(1, "wait")))
        await until(lambda: desk.watched == 1)
        with monkeypatch.context() as broken:
            broken.setattr(Incoming, "feed", lambda self, data: 1 / 0)
            await one.send_all(b"x")
            assert await one.receive_some() == b""
        assert "ended by a bug" in caplog.text
        answer = await HttpPeer(other).ask(call(2, "echo", text="x"))
        assert text_of(answer.json) == "x"
    assert not desk.live


async def test_a_bug_while_reading_is_told_once_however_long_the_clean_up_takes(
    desk: Desk, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    desk.server.tool(desk.tidy)
    port = await desk.start(nursery)
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await HttpPeer(stream).send(post(call(1, "tidy")))
        await until(lambda: desk.watched == 1)
        monkeypatch.setattr(Incoming, "feed", lambda self, data: 1 / 0)
        await stream.send_all(b"x")
        await until(lambda: "ended by a bug" in caplog.text)
        assert desk.watched == 0
        assert desk.live == 1
        desk.go_on.set()
        assert await stream.receive_some() == b""


async def test_a_socket_that_the_system_does_not_watch_ends_its_connection_alone(
    desk: Desk, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def register(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    port = await desk.start(nursery)
    async with (
        await trio.open_tcp_stream("127.0.0.1", port) as one,
        await trio.open_tcp_stream("127.0.0.1", port) as other,
    ):
        with monkeypatch.context() as full:
            full.setattr(desk.lookouts._selector, "register", register)
            await HttpPeer(one).send(post(call(1, "wait")))
            assert await one.receive_some() == b""
        assert "cannot be watched" in caplog.text
        answer = await HttpPeer(other).ask(call(2, "echo", text="x"))
        assert text_of(answer.json) == "x"
    assert not desk.live


class Heard:
    """A :class:`~trio_mcp.transports.http.lookouts.Watched`."""

    def __init__(self, descriptor: int, lookouts: Lookouts) -> None:
        self.descriptor = descriptor
        self.lookouts = lookouts

    def read_now(self) -> None:
        self.lookouts.forget(self)

    def give_up(self) -> None:
        raise AssertionError("it has not failed")


async def test_who_has_been_heard_and_is_gone_is_not_kept(nursery: trio.Nursery) -> None:
    lookouts = Lookouts()
    nursery.start_soon(lookouts.post)
    nursery.start_soon(lookouts.watch)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        heard = Heard(ours.fileno(), lookouts)
        lookouts.note(heard)
        theirs.send(b"x")
        await until(lambda: not lookouts._fresh and not lookouts._selector.get_map())
        left = weakref.ref(heard)
        del heard
        assert left() is None


async def test_who_ends_later_than_the_lookouts_may_still_be_forgotten() -> None:
    lookouts = Lookouts()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        heard = Heard(ours.fileno(), lookouts)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lookouts.post)
            nursery.start_soon(lookouts.watch)
            lookouts.note(heard)
            await until(lambda: not lookouts._fresh)
            nursery.cancel_scope.cancel()
        lookouts.forget(heard)  # a handler that went on after a shutdown has ended


class Interrupting(trio.abc.Instrument):
    """Interrupts a reading task when it has been woken by something else, before it goes on."""

    def __init__(self, direct: DirectSocket, reading: trio.lowlevel.Task) -> None:
        self.direct = direct
        self.reading = reading

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.reading:
            self.direct.interrupt()


@pytest.mark.parametrize("alarm", ["true", "false"])
async def test_an_interrupt_is_not_lost_where_something_else_woke_the_reader(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, alarm: str
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        direct = DirectSocket(trio.SocketStream(trio.socket.from_stdlib_socket(ours)))
        if alarm == "false":
            monkeypatch.setattr(direct, "read_now", lambda most: None)
        read: list[bytes | None] = []

        async def reading() -> None:
            instrument = Interrupting(direct, trio.lowlevel.current_task())
            nursery.start_soon(begin, instrument)
            read.append(await direct.read(10))
            trio.lowlevel.remove_instrument(instrument)

        async def begin(instrument: Interrupting) -> None:
            await trio.testing.wait_all_tasks_blocked()
            trio.lowlevel.add_instrument(instrument)
            theirs.send(b"x")

        nursery.start_soon(reading)
        await until(lambda: bool(read))
        assert read == [b"x" if alarm == "true" else None]


async def test_nothing_of_the_lookouts_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    desk = Desk(monkeypatch)
    async with trio.open_nursery() as nursery:
        port = await desk.start(nursery)
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await HttpPeer(stream).send(post(call(1, "wait")))
            await until(lambda: desk.watched == 1)
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await until(lambda: not desk.live)
    await until(lambda: len(os.listdir("/proc/self/fd")) == descriptors)


async def test_a_server_that_gets_no_lookouts_does_not_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_more() -> Lookouts:
        raise OSError(errno.EMFILE, "Too many open files")

    descriptors = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(reader, "Lookouts", no_more)
    with pytest.raises(OSError, match="Too many open files") as failed:
        await Server("unlucky", version="1").serve_http(port=0)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    del failed


async def test_who_reads_a_stream_that_is_over_has_no_more_time() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        readers = Readers(nursery)
        read = StreamReader(ours, incoming(KnownHeads(1)), readers, lambda: None)
        read.start(nursery)
        await trio.testing.wait_all_tasks_blocked()
        await theirs.send_all(b"P")
        read.close()
        await trio.testing.wait_all_tasks_blocked()
        assert not any(readers.patience._lines.values())
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("carrier", ["native", "Hypercorn"])
async def test_a_server_that_is_cancelled_while_it_begins_ends(carrier: str) -> None:
    for steps in range(12):
        server = Server("short", version="1")
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                if carrier == "native":
                    nursery.start_soon(server.serve_http, "127.0.0.1", 0)
                else:
                    serve = partial(serve_hypercorn, server.asgi(), "127.0.0.1", 0, Limits())
                    nursery.start_soon(serve)
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
