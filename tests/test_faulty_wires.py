"""Faulty wires do what their schedules say, and nothing else; our clients and servers bear it.

What callers get is what ``docs/outcomes.md`` promises them.
"""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import attrs
import httpx2
import pytest
import trio
import trio.testing
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.peers.raw import until

from trio_mcp import (
    CallTimeout,
    CancelSource,
    Client,
    ConnectionLost,
    Context,
    InvalidParams,
    Limits,
    Overloaded,
    ProtocolViolation,
    Record,
    Restart,
    Server,
    State,
    TrioMcpError,
    connect,
    safe_to_repeat,
)
from trio_mcp.testing import (
    Answer,
    Body,
    Break,
    Chunk,
    Corrupt,
    Delay,
    Drop,
    Duplicate,
    Fault,
    FaultsMissed,
    FaultyStream,
    HalfClose,
    Line,
    RecordedStream,
    Split,
    Stall,
    StubRequest,
    Transcript,
    faulty_relay,
    http_stub,
    memory_server,
)
from trio_mcp.testing.strategies import faults, positions, schedules
from trio_mcp.testing.wires.course import Course, LineMeter

PATIENCE = 5.0
TIMEOUT = 0.1
"""Seconds of real time within which what has to happen has, and of a timeout that is to pass."""


def make_server(limits: Limits | None = None) -> Server:
    server = Server("kitchen", version="1.0.0", limits=limits)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def count(ctx: Context) -> str:
        """Reports its progress, and so answers in a stream over HTTP."""
        ctx.progress(1, 2)
        await trio.sleep(0.01)
        return "done"

    @server.tool
    async def wait() -> str:
        await trio.sleep_forever()
        return "never"

    @server.tool
    async def big(size: int) -> str:
        return "x" * size

    return server


# The stream by itself -----------------------------------------------------------------------------

Pair = tuple[trio.abc.HalfCloseableStream, trio.abc.HalfCloseableStream]


async def tcp_pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        ours = await trio.open_tcp_stream(*listener.socket.getsockname())
        return ours, await listener.accept()


async def faulty_pair(
    pair: Callable[[], Awaitable[Any]], **schedule: Any
) -> tuple[FaultyStream, FaultyStream]:
    left, right = await pair()
    return FaultyStream(left, **schedule), FaultyStream(right, **schedule)


async def memory_pair() -> Any:
    await trio.lowlevel.checkpoint()
    return trio.testing.memory_stream_pair()


async def lockstep_pair() -> Any:
    await trio.lowlevel.checkpoint()
    return trio.testing.lockstep_stream_pair()


@pytest.mark.parametrize("pair", [memory_pair, tcp_pair])
@pytest.mark.parametrize(
    "schedule",
    [
        {},
        {"sending": [Split(3000)], "receiving": [Split(2000)]},
        {"sending": [Delay(0.001, at=1)], "receiving": [Delay(0.001, at=1), Stall(0.001, at=2)]},
    ],
    ids=["no faults", "splits", "delays"],
)
async def test_it_is_a_stream_as_trio_wants_them(pair: Any, schedule: Any) -> None:
    make = partial(faulty_pair, pair, **schedule)
    clogged = partial(faulty_pair, lockstep_pair) if pair is memory_pair else None
    await trio.testing.check_half_closeable_stream(make, clogged)


async def test_a_recorded_stream_is_one_too() -> None:
    async def make() -> tuple[RecordedStream, RecordedStream]:
        left, right = await memory_pair()
        transcript = Transcript()
        return RecordedStream(left, transcript), RecordedStream(right, transcript, far=True)

    await trio.testing.check_half_closeable_stream(make, None)


async def received(schedule: dict[str, Any], data: bytes) -> tuple[list[bytes], FaultyStream]:
    """The pieces in which it arrives, and the faulty side; ``b"!"`` for a break."""
    ours, theirs = trio.testing.memory_stream_pair()
    sender: Any = FaultyStream(ours, sending=schedule.get("sending", ()))
    receiver: Any = FaultyStream(theirs, receiving=schedule.get("receiving", ()))
    pieces: list[bytes] = []
    try:
        await sender.send_all(data)
        await sender.send_eof()
    except trio.BrokenResourceError:
        pieces.append(b"!")
    try:
        while piece := await receiver.receive_some():
            pieces.append(bytes(piece))
    except trio.BrokenResourceError:
        pieces.append(b"!")
    return pieces, sender if "sending" in schedule else receiver


LINES = b"one\ntwo\nthree\n"


@pytest.mark.parametrize("direction", ["sending", "receiving"])
@pytest.mark.parametrize(
    ("schedule", "arrived"),
    [
        ([], LINES),
        ([Drop()], b"two\nthree\n"),
        ([Drop(at=Line(2))], b"one\nthree\n"),
        ([Drop(2, at=Line(2, after=1))], b"one\nt\nthree\n"),
        ([Drop("rest", at=5)], b"one\nt"),
        ([Drop(at=Line(1)), Drop(at=Line(3))], b"two\n"),
        ([Duplicate(at=Line(2))], b"one\ntwo\ntwo\nthree\n"),
        ([Duplicate(2, at=1)], b"onene\ntwo\nthree\n"),
        ([Duplicate(at=Line(3, after=2))], b"one\ntwo\nthree\nree\n"),
        ([Duplicate(100, at=Line(3))], b"one\ntwo\nthree\nthree\n"),
        ([Corrupt(b"XY", at=Line(2))], b"one\nXYo\nthree\n"),
        ([Corrupt(b"long", "line", at=Line(2))], b"one\nlongthree\n"),
        ([Corrupt(b"more", 0, at=Line(2))], b"one\nmoretwo\nthree\n"),
        ([Corrupt(0x20, at=0)], b"One\ntwo\nthree\n"),
        ([Corrupt(0x20, "line", at=Line(2))], b"one\nTWO*three\n"),
        ([Corrupt(0x20, 1, at=0), Duplicate(at=0)], b"One\nOne\ntwo\nthree\n"),
        ([Drop(at=0), Corrupt(b"X", at=1)], b"two\nthree\n"),
        ([HalfClose(at=Line(2))], b"one\n"),
        ([HalfClose(at=6)], b"one\ntw"),
        ([HalfClose()], b""),
        ([Drop(at=0), HalfClose(at=6)], b"tw"),
        ([Split(2)], LINES),
    ],
    ids=lambda it: ascii(it)[:60],
)
async def test_what_arrives(direction: str, schedule: list[Fault], arrived: bytes) -> None:
    pieces, faulty = await received({direction: schedule}, LINES)
    assert b"".join(pieces) == arrived
    assert faulty.pending == ()
    assert sorted(map(repr, schedule)) == sorted(repr(one.fault) for one in faulty.happened)
    assert {one.direction for one in faulty.happened} <= {direction}


async def test_the_bytes_may_come_one_by_one() -> None:
    schedule = [Corrupt(b"X", 2, at=Line(2, after=1)), Duplicate(at=Line(3))]
    ours, theirs = trio.testing.memory_stream_pair()
    faulty = FaultyStream(ours, sending=schedule)
    for at in range(len(LINES)):
        await faulty.send_all(LINES[at : at + 1])
    await faulty.send_eof()
    assert await theirs.receive_some() == b"one\ntX\nthree\nthree\n"


async def test_pieces_are_as_small_as_was_said() -> None:
    pieces, _ = await received({"receiving": [Split(4, 10, at=1)]}, LINES)
    assert pieces == [b"o", b"ne\nt", b"wo\nt", b"hr", b"ee\n"]


async def test_a_break_is_seen_on_both_sides() -> None:
    pieces, faulty = await received({"receiving": [Break(at=Line(2))]}, LINES)
    assert pieces == [b"one\n", b"!"]
    for use in (faulty.receive_some, faulty.send_eof, partial(faulty.send_all, b"x")):
        with pytest.raises(trio.BrokenResourceError):
            await use()
    pieces, _ = await received({"sending": [Break(at=Line(2))]}, LINES)
    assert pieces == [b"!", b"one\n"]


@pytest.mark.parametrize("fault", [HalfClose, Break])
async def test_an_early_end_waits_for_no_next_byte(fault: type[HalfClose | Break]) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    late = FaultyStream(ours, sending=[fault(at=4)])
    await late.send_all(b"one\n")
    assert await theirs.receive_some() == b"one\n"
    assert late.pending == (fault(at=4),)

    ours, theirs = trio.testing.memory_stream_pair()
    early = FaultyStream(ours, sending=[fault(at=4, early=True)])
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            try:
                await early.send_all(b"one\n")
            except trio.BrokenResourceError:
                assert fault is Break

        nursery.start_soon(send)
        assert await theirs.receive_some() == b"one\n"
        assert await theirs.receive_some() == b""


async def test_a_break_ends_what_waits_in_the_other_direction() -> None:
    ours, _theirs = trio.testing.memory_stream_pair()
    faulty = FaultyStream(ours, sending=[Break()], receiving=[])
    async with trio.open_nursery() as nursery:

        async def receive() -> None:
            with pytest.raises(trio.BrokenResourceError):
                await faulty.receive_some()

        nursery.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BrokenResourceError):
            await faulty.send_all(b"x")


async def test_a_break_ends_a_stall_in_the_other_direction() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    faulty = FaultyStream(ours, sending=[Stall()], receiving=[Break()])
    await theirs.send_all(b"x")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                with pytest.raises(trio.BrokenResourceError):
                    await faulty.send_all(b"x")

            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BrokenResourceError):
                await faulty.receive_some()


async def test_over_tcp_a_break_is_a_reset() -> None:
    ours, theirs = await tcp_pair()
    faulty = FaultyStream(ours, sending=[Break(at=1)])
    async with theirs:
        with pytest.raises(trio.BrokenResourceError):
            await faulty.send_all(b"xy")
        assert await theirs.receive_some() == b"x"
        with pytest.raises(trio.BrokenResourceError) as broken:
            await theirs.receive_some()
        assert isinstance(broken.value.__cause__, ConnectionResetError)


async def test_delays_and_stalls_take_their_time(autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    sender = FaultyStream(ours, sending=[Delay(2, at=Line(2))])
    receiver = FaultyStream(theirs, receiving=[Stall(3, at=Line(2)), Delay(1, at=Line(3))])
    began = trio.current_time()
    arrived: list[tuple[float, bytes]] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.send_all, LINES)
        while len(b"".join(piece for _, piece in arrived)) < len(LINES):
            piece = await receiver.receive_some()
            arrived.append((trio.current_time() - began, piece))
    assert arrived == [(0, b"one\n"), (5, b"two\n"), (6, b"three\n")]
    assert [one.time - began for one in (*sender.happened, *receiver.happened)] == [0, 2, 5]
    assert [one.byte for one in receiver.happened] == [4, 8]


async def test_cancelled_in_a_delay_nothing_is_lost(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    receiver = FaultyStream(theirs, receiving=[Delay(10)])
    await ours.send_all(LINES)
    with trio.move_on_after(4) as gave_up:
        await receiver.receive_some()
    assert gave_up.cancelled_caught
    began = trio.current_time()
    assert await receiver.receive_some() == LINES
    assert trio.current_time() - began == 6


async def test_a_stall_lasts_until_its_event_or_the_end() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    go_on = trio.Event()
    faulty = FaultyStream(ours, sending=[Stall(go_on, at=1), Stall(at=2)])
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await faulty.send_all(b"xyz")

        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        assert await theirs.receive_some() == b"x"
        go_on.set()
        await trio.testing.wait_all_tasks_blocked()
        assert await theirs.receive_some() == b"y"
        nursery.cancel_scope.deadline = trio.current_time() + PATIENCE
        await faulty.aclose()
    assert not nursery.cancel_scope.cancelled_caught
    assert [type(one.fault) for one in faulty.happened] == [Stall, Stall]


async def test_a_stall_that_receives_holds_up_the_sender() -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    faulty = FaultyStream(theirs, receiving=[Stall(at=3)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.send_all, b"one")
        assert await faulty.receive_some() == b"one"
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(faulty.receive_some)
        await ours.send_all(b"two")  # has been taken off the wire, but no further
        nursery.start_soon(ours.send_all, b"three")
        await trio.testing.wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 2
        nursery.cancel_scope.cancel("the sender waits")


def test_what_did_not_happen_is_seen() -> None:
    ours, _ = trio.testing.memory_stream_pair()
    faulty = FaultyStream(ours, sending=[Drop(at=Line(7))], receiving=[Break(at=3)])
    assert faulty.pending == (Drop(at=Line(7)), Break(at=3))
    with pytest.raises(FaultsMissed, match=r"did not happen: Drop\(at=Line\(number=7.*Break"):
        faulty.check_happened()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Line(0), "number is a whole number, 1 or more, not 0"),
        (lambda: Drop(at=-1), "at is a whole number, 0 or more, not -1"),
        (lambda: Drop(at=True), "at is a whole number"),
        (lambda: Drop("all"), "much, where it is not 'line' or 'rest'"),  # type: ignore[arg-type]
        (lambda: Drop(0), "1 or more, not 0"),
        (lambda: Duplicate("rest"), "what has no end cannot come twice"),  # type: ignore[arg-type]
        (lambda: Corrupt(256), "the bits of one byte are 1 to 255"),
        (lambda: Corrupt(b""), "nothing in the place of nothing"),
        (lambda: Split(0), "size is a whole number, 1 or more"),
        (lambda: Delay(-1), "a finite number of seconds, not negative"),
        (lambda: Delay(float("inf")), "a finite number of seconds"),
        (lambda: Stall("long"), "a finite number of seconds"),  # type: ignore[arg-type]
        (lambda: Answer(result={}, error={}), "a result or an error"),
        (lambda: Answer(result={}, body=b""), "a body, or a result"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_what_is_no_fault_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def test_what_is_no_schedule_is_refused() -> None:
    ours, _ = trio.testing.memory_stream_pair()
    with pytest.raises(TypeError, match="a schedule has faults in it, such as Drop"):
        FaultyStream(ours, sending=["drop"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="is a place in an HTTP message"):
        FaultyStream(ours, sending=[Drop(at=Body())])
    one_way: Any = trio.SSLStream(ours, ssl.create_default_context(), server_hostname="x")
    with pytest.raises(TypeError, match="a SSLStream cannot be half-closed"):
        FaultyStream(one_way, sending=[HalfClose()])


def server_of_mine() -> Server:
    return make_server()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: http_stub(server_of_mine), r"did you mean http_stub\(server_of_mine\(\)\)\?"),  # type: ignore[arg-type]
        (lambda: http_stub([{"result": {}}]), r"has Answer\(result=…\) in it, not {'result'"),  # type: ignore[list-item]
        (lambda: http_stub(Answer(result={})), r"a list of Answers, such as \[Answer"),  # type: ignore[arg-type]
        (lambda: http_stub([], transcript="mine"), r"Transcript\('mine'\)"),  # type: ignore[arg-type]
        (lambda: http_stub([], faults=[Drop(at=Body(3))]), r"by the number .*{1: \[Drop"),  # type: ignore[arg-type]
        (lambda: http_stub([], faults=(1, [Drop()])), r"by the number .*{1: \[Drop"),  # type: ignore[arg-type]
        (lambda: http_stub([], faults=Drop()), r"by the number .*{1: \[Drop"),  # type: ignore[arg-type]
        (lambda: http_stub([], faults={"1": [Drop()]}), r"as in {1: \[…\]}, not '1'"),  # type: ignore[dict-item]
        (lambda: http_stub([], faults={0: [Drop()]}), "the numbers 1, 2, …"),
        (lambda: http_stub([], faults={True: [Drop()]}), "the numbers 1, 2, …"),
        (lambda: http_stub([], faults={1: [[Drop()]]}), r"has faults in it, .*not \[Drop"),  # type: ignore[list-item]
        (lambda: http_stub([], faults={1: Drop()}), "a schedule is a list of faults"),  # type: ignore[dict-item]
        (lambda: http_stub([], faults=server_of_mine), "called with the request"),  # type: ignore[arg-type]
        (lambda: faulty_relay("http://127.0.0.1:80"), "the number of a port"),  # type: ignore[arg-type]
        (lambda: faulty_relay("80"), "the number of a port"),  # type: ignore[arg-type]
        (lambda: faulty_relay(80_000), "the number of a port"),
        (lambda: faulty_relay(80, sending=Drop()), "a schedule is a list of faults"),  # type: ignore[arg-type]
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
async def test_what_no_block_can_be_made_of_is_told(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        async with make():
            raise AssertionError("never")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"body": "x"}, "body is bytes"),
        ({"status": "200"}, "status is a number"),
        ({"result": [1]}, "result is a dict"),
        ({"headers": [("a", "b")]}, "headers is a dict"),
        ({"events": b"data: x"}, "events is a list"),
        ({"events": ["data: x"]}, "an event is a message"),
    ],
)
def test_what_is_no_answer_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Answer(**options)


async def test_a_function_that_returns_no_answer_is_told() -> None:
    def answer(request: StubRequest) -> Any:
        return {"result": {}}

    with pytest.raises(TypeError, match=r"returns an Answer or None, and answer returned"):
        async with http_stub(answer) as stub, connect(stub.url):
            raise AssertionError("never")


# Our clients and servers, over every wire ---------------------------------------------------------

Place = Callable[..., Any]


@asynccontextmanager
async def over_memory(
    server: Server, sending: list[Fault], receiving: list[Fault]
) -> AsyncGenerator[Client, None]:
    async with memory_server(server, sending=sending, receiving=receiving) as kitchen:
        yield kitchen.client


@asynccontextmanager
async def over_tcp(
    server: Server, sending: list[Fault], receiving: list[Fault]
) -> AsyncGenerator[Client, None]:
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, server.serve_stream, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        stream = await trio.open_tcp_stream(*listener.socket.getsockname())
        faulty = FaultyStream(stream, sending=sending, receiving=receiving)
        async with connect(faulty) as client:
            yield client
        faulty.check_happened()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def over_tls(
    server: Server, sending: list[Fault], receiving: list[Fault]
) -> AsyncGenerator[Client, None]:
    authority = trustme.CA()
    served, trusted = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert("localhost").configure_cert(served)
    authority.configure_trust(trusted)
    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_ssl_over_tcp, server.serve_stream, 0, served, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        port = listener.transport_listener.socket.getsockname()[1]
        stream = await trio.open_ssl_over_tcp_stream("localhost", port, ssl_context=trusted)
        faulty = FaultyStream(stream, sending=sending, receiving=receiving)
        async with connect(faulty) as client:
            yield client
        faulty.check_happened()
        nursery.cancel_scope.cancel()


KITCHEN = """
import trio
from trio_mcp import Server

server = Server("kitchen", version="1.0.0")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

trio.run(server.serve_stdio)
"""


@asynccontextmanager
async def over_pipes(
    server: Server, sending: list[Fault], receiving: list[Fault]
) -> AsyncGenerator[Client, None]:
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", KITCHEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        pipes = trio.StapledStream(process.stdin, process.stdout)
        faulty = FaultyStream(pipes, sending=sending, receiving=receiving)
        async with connect(faulty) as client:
            yield client
        faulty.check_happened()
    finally:
        with trio.move_on_after(PATIENCE, shield=True):
            assert await process.wait() == 0


@asynccontextmanager
async def over_a_websocket(
    server: Server, sending: list[Fault], receiving: list[Fault]
) -> AsyncGenerator[Client, None]:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(server.serve_websocket, port=0))
        async with faulty_relay(port, sending=sending, receiving=receiving) as relay:
            address = f"ws://127.0.0.1:{relay.port}/mcp"
            async with connect(address, limits=Limits(exit_wait=0.1)) as client:
                yield client
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def over_http(
    server: Server, sending: list[Fault], receiving: list[Fault]
) -> AsyncGenerator[Client, None]:
    async with http_stub(server, faults={2: receiving}) as stub:
        async with connect(stub.url) as client:
            yield client


LINE_WIRES = {"memory": over_memory, "TCP": over_tcp, "TLS": over_tls, "pipes": over_pipes}


@attrs.frozen
class Right:
    """What the caller gets: a result, or an error and what it says."""

    error: type[Exception] | None = None
    says: str = ""
    violations: int | None = 0
    """What the server is found to have done; ``None`` if that depends on how fast we are."""


OK = Right()
GIVEN_UP = Right(CallTimeout, "no answer within")
LOST = Right(ConnectionLost)

# The second line that the client receives is the tool's answer.
ON_LINES: dict[str, tuple[list[Fault], Right]] = {
    "drop": ([Drop(at=Line(2))], GIVEN_UP),
    "drop the beginning": ([Drop(9, at=Line(2))], attrs.evolve(GIVEN_UP, violations=1)),
    "drop its end": ([Drop("rest", at=Line(2, after=20))], GIVEN_UP),
    "delay": ([Delay(0.02, at=Line(2, after=7))], OK),
    "duplicate": ([Duplicate(at=Line(2))], Right(violations=1)),
    "split": ([Split(1, at=Line(2))], OK),
    "half-close": ([HalfClose(at=Line(2))], Right(ConnectionLost, "the server closed")),
    "half-close within": (
        [HalfClose(at=Line(2, after=20))],
        Right(ConnectionLost, "the server closed", violations=1),
    ),
    "stall": ([Stall(at=Line(2))], GIVEN_UP),
    "stall within": ([Stall(at=Line(2, after=20))], GIVEN_UP),
    "stall for a while": ([Stall(0.02, at=Line(2))], OK),
    "corrupt": ([Corrupt(b"garbage\n", "line", at=Line(2))], attrs.evolve(GIVEN_UP, violations=1)),
    "corrupt UTF-8": ([Corrupt(0x80, at=Line(2, after=1))], attrs.evolve(GIVEN_UP, violations=1)),
    "an empty line more": ([Corrupt(b"\r\n\n", 0, at=Line(2))], OK),
    "break": ([Break(at=Line(2))], LOST),
    "break within": ([Break(at=Line(2, after=20))], LOST),
}


async def outcome_of(call: Awaitable[Any]) -> Any:
    with trio.fail_after(PATIENCE):
        try:
            return await call
        except TrioMcpError as error:
            return error


def check(got: Any, right: Right) -> None:
    if right.error is None:
        assert not isinstance(got, Exception), repr(got)
    else:
        assert type(got) is right.error, repr(got)
        assert right.says in str(got)
        assert safe_to_repeat(got) is False
    if isinstance(got, ConnectionLost):
        assert got.sent
    if isinstance(got, CallTimeout):
        assert got.outcome == "unknown"


ON_SLOW_WIRES = ["half-close within", "break within"]


@pytest.mark.parametrize(
    ("fault", "wire"),
    [
        (fault, wire)
        for fault in ON_LINES
        for wire in LINE_WIRES
        if wire in ("memory", "TCP") or fault in ON_SLOW_WIRES
    ],
)
async def test_an_answer_in_lines(fault: str, wire: str) -> None:
    schedule, right = ON_LINES[fault]
    timeout = TIMEOUT if right.error is CallTimeout else PATIENCE
    server = make_server()
    async with LINE_WIRES[wire](server, [], schedule) as client:
        got = await outcome_of(client.call_tool("add", {"a": 1, "b": 2}, max_timeout=timeout))
        check(got, right)
        if not isinstance(got, ConnectionLost) and fault not in (
            "drop its end",
            "stall",
            "stall within",
        ):  # the wire is still good
            assert (await client.call_tool("add", {"a": 3, "b": 4})).structured_content == 7
        await until(lambda: client.calls() == ())
        await until(lambda: client._connection.violations == right.violations)
    assert server.scopes().children == ()


# Of the answer to the call, which is the second request.
IN_JSON: dict[str, tuple[list[Fault], Right]] = {
    "drop": ([Drop("rest")], GIVEN_UP),
    "drop of the body": ([Drop(9, at=Body(20))], GIVEN_UP),
    "delay": ([Delay(0.02, at=Body(7))], OK),
    "duplicate": ([Duplicate(at=Body())], Right(violations=None)),
    "split": ([Split(1)], OK),
    "half-close": ([HalfClose()], Right(ConnectionLost, "without sending a response")),
    "half-close in the head": ([HalfClose(at=30)], LOST),
    "half-close in the body": ([HalfClose(at=Body(20))], LOST),
    "stall": ([Stall(at=Body(20))], GIVEN_UP),
    "stall for a while": ([Stall(0.02, at=20)], OK),
    "corrupt": ([Corrupt(b"x", at=Body())], Right(ProtocolViolation, violations=1)),
    "corrupt head": ([Corrupt(b"FTP", at=0)], Right(ConnectionLost, "illegal status line")),
    "break": ([Break()], Right(ConnectionLost, "reset")),
    "break in the body": ([Break(at=Body(20))], LOST),
}

IN_EVENTS: dict[str, tuple[list[Fault], Right]] = {
    "drop of an event": ([Drop("rest", at=Chunk(2))], GIVEN_UP),
    "delay": ([Delay(0.02, at=Chunk(2, after=9))], OK),
    "duplicate": ([Duplicate("line", at=Chunk(2))], Right(ConnectionLost, "malformed chunk")),
    "split": ([Split(1)], OK),
    "half-close": ([HalfClose(at=Chunk(2))], LOST),
    "half-close within": ([HalfClose(at=Chunk(2, after=30))], LOST),
    "stall": ([Stall(at=Chunk(2))], GIVEN_UP),
    "corrupt": ([Corrupt(b"x", at=Chunk(2))], Right(ConnectionLost, "illegal chunk header")),
    "corrupt event": (
        [Corrupt(b"!", at=Chunk(2, after=50))],
        Right(ConnectionLost, "ended without a response", violations=1),
    ),
    "break": ([Break(at=Chunk(2, after=30))], Right(ConnectionLost, "reset")),
}


@pytest.mark.parametrize(
    ("tool", "fault"),
    [*(("add", fault) for fault in IN_JSON), *(("count", fault) for fault in IN_EVENTS)],
)
async def test_an_answer_over_http(tool: str, fault: str) -> None:
    schedule, right = (IN_JSON if tool == "add" else IN_EVENTS)[fault]
    timeout = TIMEOUT if right.error is CallTimeout else PATIENCE
    server = make_server()
    arguments = {"a": 1, "b": 2} if tool == "add" else {}
    async with over_http(server, [], schedule) as client:
        got = await outcome_of(client.call_tool(tool, arguments, max_timeout=timeout))
        check(got, right)
        if right.violations is not None:
            assert client._connection.violations == right.violations
        assert (await client.call_tool("add", {"a": 3, "b": 4})).structured_content == 7
        assert client.calls() == ()
    assert server.scopes().children == ()


IN_FRAMES: dict[str, tuple[list[Fault], Right]] = {
    "delay": ([Delay(0.02, at=Body(9))], OK),
    "split": ([Split(1, at=Body())], OK),
    "half-close": ([HalfClose(at=Body(300))], Right(ConnectionLost, "without a close frame")),
    "stall": ([Stall(at=Body(300))], GIVEN_UP),
    "break": ([Break(at=Body(300))], Right(ConnectionLost, "without a close frame")),
}


@pytest.mark.parametrize("fault", IN_FRAMES)
async def test_an_answer_over_a_websocket(fault: str) -> None:
    """The answer to discovery has about 260 bytes, the one to the call ends behind 400."""
    schedule, right = IN_FRAMES[fault]
    timeout = TIMEOUT if right.error is CallTimeout else PATIENCE
    server = make_server()
    async with over_a_websocket(server, [], schedule) as client:
        call = client.call_tool("big", {"size": 300}, max_timeout=timeout)
        check(await outcome_of(call), right)
        await until(lambda: client.calls() == ())
    assert server.scopes().children == ()


async def test_a_websocket_that_broke_is_opened_again() -> None:
    server = make_server()
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(server.serve_websocket, port=0))
        async with faulty_relay(port, receiving=[Break(at=Body(300))]) as relay:
            address = f"ws://127.0.0.1:{relay.port}/mcp"
            async with connect(address, restart=Restart()) as client:
                got = await outcome_of(client.call_tool("big", {"size": 300}))
                assert isinstance(got, ConnectionLost)
                assert (await client.call_tool("add", {"a": 3, "b": 4})).structured_content == 7
                assert len(relay.connections) == 2
        nursery.cancel_scope.cancel()


# What the server sees -----------------------------------------------------------------------------

# The second line that the client sends is its call; the third one cancels it.
TO_THE_SERVER: dict[str, tuple[list[Fault], CancelSource | None]] = {
    "the call is dropped": ([Drop(at=Line(2))], None),
    "the cancellation is dropped": ([Drop(at=Line(3))], CancelSource.DISCONNECT),
    "the client's side is half-closed": ([HalfClose(at=Line(3))], CancelSource.DISCONNECT),
    "it breaks": ([Break(at=Line(3))], CancelSource.DISCONNECT),
    "the cancellation is late": ([Delay(5, at=Line(3))], CancelSource.NOTIFICATION),
    "the cancellation comes twice": ([Duplicate(at=Line(3))], CancelSource.NOTIFICATION),
    "the cancellation is garbage": (
        [Corrupt(b"{", "line", at=Line(3))],
        CancelSource.DISCONNECT,
    ),
}


def calls_in(server: Server) -> list[Record]:
    return [record for record in server.journal if record.method == "tools/call"]


@pytest.mark.parametrize("fault", TO_THE_SERVER)
async def test_what_the_server_makes_of_it(
    fault: str, autojump_clock: trio.testing.MockClock
) -> None:
    schedule, source = TO_THE_SERVER[fault]
    server = make_server()
    async with memory_server(server, sending=schedule) as kitchen:
        got = await outcome_of(kitchen.client.call_tool("wait", max_timeout=1))
        assert isinstance(got, CallTimeout)
        await trio.sleep(10)
    records = calls_in(server)
    assert [record.state for record in records] == ([] if source is None else [State.CANCELLED])
    assert [record.cause.source for record in records if record.cause] == [source] * len(records)


async def test_a_call_that_comes_twice_runs_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = make_server()
    async with memory_server(server, sending=[Duplicate(at=Line(2))]) as kitchen:
        got = await outcome_of(kitchen.client.call_tool("count"))
        assert got.text == "done"
        assert kitchen.client._connection.violations == 1  # what the server says of the other one
    assert len(calls_in(server)) == 1


async def test_a_client_that_does_not_read_is_cut_off(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = make_server(Limits(stall=7))
    async with memory_server(server, receiving=[Stall(at=Line(2))]) as kitchen:
        client = kitchen.client
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outcome_of, client.call_tool("add", {"a": 1, "b": 2}, timeout=3))
            await trio.sleep(0.1)
            nursery.start_soon(outcome_of, client.call_tool("wait", timeout=4))
            nursery.start_soon(outcome_of, client.call_tool("count", timeout=4))
            await trio.sleep(1)
        await trio.sleep(20)
    assert server.scopes().children == ()


# The stub for HTTP --------------------------------------------------------------------------------


async def test_answers_as_they_were_told() -> None:
    progress = {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": 2, "progress": 1},
    }
    text = {"content": [{"type": "text", "text": "hi"}]}
    answers = [
        Answer(events=[progress, b": nothing\n\n"], result=text),
        Answer(result=text, headers={"X-Way": "json"}),
        Answer(status=429, headers={"Retry-After": "7"}, body=b"later"),
        Answer(error={"code": -32602, "message": "no such tool"}),
    ]
    heard: list[Any] = []
    async with http_stub(answers) as stub, connect(stub.url) as client:
        assert (await client.call_tool("any", on_progress=heard.append)).text == "hi"
        assert (await client.call_tool("any", {"x": 1})).text == "hi"
        overloaded = await outcome_of(client.call_tool("any"))
        assert isinstance(overloaded, Overloaded)
        assert overloaded.retry_after == 7
        assert isinstance(await outcome_of(client.call_tool("any")), InvalidParams)
        lost = await outcome_of(client.call_tool("any"))
        assert isinstance(lost, ConnectionLost)
        assert "no answer is left" in str(lost)
    assert [one.progress for one in heard] == [1]
    assert [one.calls for one in stub.requests] == ["server/discover", *["tools/call any"] * 5]
    assert stub.requests[2].message["params"]["arguments"] == {"x": 1}
    assert stub.requests[2].headers["mcp-name"] == "any"
    assert [one.number for one in stub.requests] == [1, 2, 3, 4, 5, 6]


async def test_a_function_answers_and_names_the_faults() -> None:
    async def answer(request: StubRequest) -> Answer | None:
        await trio.lowlevel.checkpoint()
        if request.calls == "server/discover":
            return None
        return Answer(result={"content": [{"type": "text", "text": request.calls}]})

    def faults_of(request: StubRequest) -> list[Fault]:
        return [Break(at=Body(10))] if request.calls.endswith("bad") else []

    async with http_stub(answer, faults=faults_of) as stub, connect(stub.url) as client:
        assert (await client.call_tool("good")).text == "tools/call good"
        assert isinstance(await outcome_of(client.call_tool("bad")), ConnectionLost)
        assert (await client.call_tool("good")).text == "tools/call good"
    assert [(one.request, type(one.fault)) for one in stub.happened] == [(3, Break)]


@pytest.mark.parametrize("error", [KeyError("mine"), BrokenPipeError("mine")], ids=repr)
async def test_what_a_function_raises_comes_out(error: Exception) -> None:
    def answer(request: StubRequest) -> Answer | None:
        raise error

    with pytest.raises(type(error), match="mine"):
        async with http_stub(answer) as stub, connect(stub.url):
            raise AssertionError("never")


async def test_what_a_block_raises_comes_out_as_it_is() -> None:
    group = ExceptionGroup("mine", [KeyError("a"), ValueError("b")])
    for block in (http_stub([]), faulty_relay(9), memory_server(make_server())):
        with pytest.raises(ExceptionGroup) as raised:
            async with block:
                raise group
        assert raised.value is group


async def test_a_bug_of_a_wire_comes_out_where_it_was_opened() -> None:
    server = make_server()

    async def broken(wire: Any) -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("a bug")

    server.serve_wire = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="a bug"):
        async with memory_server(server, limits=Limits(exit_wait=0.1)):
            await trio.sleep_forever()


async def test_another_client_sees_the_same() -> None:
    server = make_server()
    async with http_stub(server, faults={1: [Corrupt(b"!", at=Body(3))]}) as stub:
        async with httpx2.AsyncClient() as client:
            answer = await client.post(
                stub.url, content=b"{}", headers={"Content-Type": "application/json"}
            )
            assert answer.status_code == 400
            assert answer.content[3:4] == b"!"
            assert (await client.get(stub.url)).status_code == 405
    assert [one.method for one in stub.requests] == ["POST", "GET"]


async def test_when_the_client_hangs_up_the_server_hears_of_it() -> None:
    server = make_server()
    async with http_stub(server) as stub, connect(stub.url) as client:
        assert isinstance(await outcome_of(client.call_tool("wait", timeout=TIMEOUT)), CallTimeout)
        await until(lambda: server.inflight() == ())
    (record,) = calls_in(server)
    assert record.cause is not None
    assert record.cause.source is CancelSource.DISCONNECT


async def test_it_listens_where_nobody_else_can_come_in() -> None:
    async with http_stub([]) as stub:
        port = int(stub.url.rpartition(":")[2].partition("/")[0])
        (other,) = await trio.open_tcp_listeners(port, host="127.0.0.2")  # which is still free
        await other.aclose()


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01", b"GET\r\n\r\n", b"GET / HTTP/2\r\n\r\n", b"A" * 70_000],
    ids=["TLS", "no version", "another version", "endless"],
)
async def test_what_is_no_http_is_refused(data: bytes) -> None:
    async with http_stub([]) as stub:
        port = int(stub.url.rpartition(":")[2].partition("/")[0])
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            await stream.send_all(data)
            with trio.fail_after(PATIENCE):
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 400")
                assert await stream.receive_some() == b""


async def test_trailers_without_end_are_refused() -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    async with http_stub([]) as stub:
        port = int(stub.url.rpartition(":")[2].partition("/")[0])
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(head)
            with trio.fail_after(2 * PATIENCE):
                async with trio.open_nursery() as nursery:

                    async def send() -> None:
                        with contextlib.suppress(trio.BrokenResourceError):
                            while True:
                                await stream.send_all(b"X: " + b"y" * 60_000 + b"\r\n")

                    nursery.start_soon(send)
                    assert (await stream.receive_some()).startswith(b"HTTP/1.1 413")
                    nursery.cancel_scope.cancel("it was refused")


async def test_a_request_that_is_too_long_is_refused() -> None:
    async with http_stub([]) as stub:
        async with httpx2.AsyncClient() as client:
            answer = await client.post(stub.url, content=b" " * (16 * 1024 * 1024 + 1))
    assert answer.status_code == 413
    assert not stub.requests


async def test_faults_that_did_not_happen_fail_the_test() -> None:
    answers = [Answer(result={"content": []})]
    missed: dict[int, list[Fault]] = {2: [Drop(at=Chunk(3))], 9: [Break()]}
    with pytest.raises(FaultsMissed, match=r"Drop.* in request 2, Break.* in request 9"):
        async with http_stub(answers, faults=missed) as stub, connect(stub.url) as client:
            await client.call_tool("any")
    async with http_stub([], faults={9: [Break()]}, must_happen=False):
        pass
    with pytest.raises(FaultsMissed, match="nothing has connected"):
        async with faulty_relay(9, sending=[Break()]):
            pass
    with pytest.raises(FaultsMissed, match="did not happen: Break"):
        async with memory_server(make_server(), receiving=[Break(at=10**6)]):
            pass


def test_only_strategies_import_hypothesis() -> None:
    code = "import sys, trio_mcp.testing; print('hypothesis' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_strategies_without_hypothesis_say_what_they_need() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; import trio_mcp.testing.strategies"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: trio_mcp.testing.strategies needs Hypothesis: "
        "install trio-mcp[testing]"
    )


# Any faults ---------------------------------------------------------------------------------------


async def use(server: Server, sending: list[Fault], receiving: list[Fault]) -> list[Any]:
    """What two calls and a list come to; each within its time, and nothing is left."""
    outcomes: list[Any] = []
    async with memory_server(
        server,
        sending=sending,
        receiving=receiving,
        must_happen=False,
        timeout=300,
        max_timeout=300,
    ) as kitchen:
        client = kitchen.client

        async def end(call: Awaitable[Any]) -> None:
            began = trio.current_time()
            try:
                outcomes.append(await call)
            except TrioMcpError as error:
                outcomes.append(error)
            assert trio.current_time() - began <= 300

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end, client.call_tool("count"))
            nursery.start_soon(end, client.call_tool("add", {"a": 1, "b": 2}))
            nursery.start_soon(end, client.tools_page())
        with trio.move_on_after(1):
            await end(client.call_tool("wait"))
    assert server.scopes().children == ()
    return outcomes


def run_on_a_mock_clock(sending: list[Fault], receiving: list[Fault]) -> list[Any]:
    clock = trio.testing.MockClock(autojump_threshold=0)
    return trio.run(use, make_server(), sending, receiving, clock=clock)


def course_of(schedule: list[Fault], pieces: list[bytes]) -> bytes:
    """What comes out, without the holds; it comes to an end."""
    course = Course(schedule, LineMeter(), lambda fault, byte: None)
    out = b""
    for piece in [*pieces, None]:
        if piece is None:
            course.finish()
        else:
            course.feed(piece)
        while (step := course.step()) is not None:
            out += step if isinstance(step, bytes) else b""
    return out


@settings(max_examples=60, deadline=None)
@given(
    schedules(faults(positions(bytes=60, lines=4)), most=6),
    st.lists(st.binary(max_size=20) | st.just(b"line\n"), max_size=6),
)
def test_in_what_pieces_bytes_come_does_not_matter(
    schedule: list[Fault], pieces: list[bytes]
) -> None:
    whole = b"".join(pieces)
    one_by_one = [whole[at : at + 1] for at in range(len(whole))]
    assert course_of(schedule, pieces) == course_of(schedule, [whole])
    assert course_of(schedule, one_by_one) == course_of(schedule, [whole])
    if all(isinstance(fault, (Delay, Split, Stall, HalfClose, Break)) for fault in schedule):
        assert course_of(schedule, pieces) == whole


@settings(max_examples=25, deadline=None)
@given(
    schedules(faults(lossless=True, longest=0.5)),
    schedules(faults(lossless=True, longest=0.5)),
)
def test_whatever_only_takes_time_changes_nothing(
    sending: list[Fault], receiving: list[Fault]
) -> None:
    outcomes = run_on_a_mock_clock(sending, receiving)
    assert len(outcomes) == 3
    assert not any(isinstance(one, Exception) for one in outcomes)


@settings(max_examples=50, deadline=None)
@given(schedules(), schedules())
def test_whatever_happens_each_call_ends_and_nothing_is_left(
    sending: list[Fault], receiving: list[Fault]
) -> None:
    try:
        run_on_a_mock_clock(sending, receiving)
    except TrioMcpError:
        pass  # there was no connection to be had
