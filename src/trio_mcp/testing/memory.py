"""A server and its client in this process, and a wire between them to be read and spoiled."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, Final

import attrs
import trio
import trio.testing

from ..client.client import Client
from ..client.connecting import connect
from ..runtime.lifecycle import State
from ..runtime.scopes import Scope, ScopeKind
from ..server import Server
from ..transports.wire import StreamWire
from .blocks import first_of
from .transcripts.recorded_stream import RecordedStream
from .transcripts.transcript import Transcript, given_transcript
from .wires.faults import Fault
from .wires.faulty_stream import FaultyStream

__all__ = ["InMemory", "LeftBehind", "MemoryServers", "Opening", "memory_server"]

_numbers: Final = count(1)


class LeftBehind(AssertionError):
    """Something is left of a server or a client whose connection has ended."""


@attrs.frozen(eq=False)
class InMemory:
    """What :func:`memory_server` gives: both ends, and what is between them."""

    client: Client
    server: Server
    transcript: Transcript
    wire: FaultyStream
    """The client's end of it; ``wire.happened`` has the faults that it has seen."""


@asynccontextmanager
async def memory_server(
    server: Server,
    *,
    sending: Iterable[Fault] = (),
    receiving: Iterable[Fault] = (),
    must_happen: bool = True,
    transcript: Transcript | None = None,
    **options: Any,
) -> AsyncGenerator[InMemory, None]:
    """Serve in memory, connect to it, and see to it that nothing is left in the end.

    :param sending, receiving: faults of the wire, for what the client sends and receives.
    :param must_happen: whether all of them have to happen before the end.
    :param transcript: is filled with what the client says and hears, instead of a new one.
    :param options: those of :func:`~trio_mcp.connect`.

    The wire is a stream of bytes with nothing in between: who sends waits until it is read. To
    enter raises what ``connect`` raises, and ``TypeError`` for what is no server, no schedule, no
    transcript and no option. What the block raises comes out as it is. Otherwise, after the
    clean-up of all handlers, which is waited for, raises :class:`LeftBehind` for calls that are
    in flight at the end of the block, for requests and threads that are left of this connection,
    and for an end of it that was not closed; and :class:`.FaultsMissed`. Both are an
    ``AssertionError``. Cancellation is that of ``connect``; if it comes while a call that the block
    has left in flight is ended, :class:`LeftBehind` says of which, in the place of it.
    """
    _check_server(server)
    _check_options(options)
    ours, theirs = trio.testing.lockstep_stream_pair()
    wire = FaultyStream(ours, sending=sending, receiving=receiving)
    far = FaultyStream(theirs)
    transcript = given_transcript(transcript)
    recorded = RecordedStream(wire, transcript)
    label = f"memory {next(_numbers)}"
    threads = _threads(server)
    left: list[str] = []
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            served = StreamWire(far, far, label, server.limits.message_bytes)
            nursery.start_soon(server.serve_wire, served)
            try:
                async with connect(recorded, **options) as client:
                    yield InMemory(client, server, transcript, wire)
                    left += _running(client)
            except BaseException as raised:
                failure = raised
            if not wire.closed:  # the client could not be made
                await trio.aclose_forcefully(wire)
    except BaseExceptionGroup as group:
        failure = first_of(failure, group)
    if left and isinstance(failure, trio.Cancelled):
        # By who waits for that call, as a rule: it has got ConnectionLost, and that is not the
        # reason.
        raise _left_behind(server, left)
    if failure is not None:
        raise failure
    left += _left_of(server, label, threads)
    left += [f"the open stream of the {who}" for who, end in _ends(wire, far) if not end.closed]
    if left:
        raise _left_behind(server, left)
    if must_happen:
        wire.check_happened()


def _left_behind(server: Server, left: list[str]) -> LeftBehind:
    return LeftBehind(f"left behind by {server.name!r}: {', '.join(left)}")


def _check_server(server: Any) -> None:
    if isinstance(server, Server):
        return
    named = getattr(server, "__name__", None)
    call = f": did you mean memory_server({named}())?" if callable(server) and named else ""
    raise TypeError(f"memory_server takes a Server, not {server!r:.200}{call}")


def _check_options(options: Mapping[str, Any]) -> None:
    """Those that are left for ``connect``."""
    known = [*inspect.signature(connect).parameters][1:]
    for name in options:
        if name == "faults":
            raise TypeError(
                "memory_server has no option 'faults', but sending=[…] and receiving=[…], for what "
                "the client sends and receives"
            )
        if name not in known:
            raise TypeError(
                f"memory_server has no option {name!r}; it has sending, receiving, must_happen, "
                f"transcript, and those of connect: {', '.join(known)}"
            )


def _ends(wire: FaultyStream, far: FaultyStream) -> list[tuple[str, FaultyStream]]:
    return [("client", wire), ("server", far)]


def _running(client: Client) -> list[str]:
    """The calls that somebody still waits for; others may be on their way out. For ``initialize``
    nobody does once there is a connection: it was asked beside the discovery, which was answered
    first, and no client may cancel it."""
    running = [
        call
        for call in client.calls()
        if call.state is not State.CANCELLING and call.method != "initialize"
    ]
    return [f"the client's call of {call.target or call.method}" for call in running]


def _threads(server: Server) -> set[tuple[int | None, str]]:
    return {(one.key, one.label) for one in _offloads(server)}


def _offloads(server: Server) -> list[Scope]:
    return [one for one in server.scopes().children if one.kind is ScopeKind.OFFLOAD]


def _left_of(server: Server, label: str, threads: set[tuple[int | None, str]]) -> list[str]:
    left = [f"the request {one.method}" for one in server.inflight() if one.connection == label]
    left += [one.describe() for one in server.scopes().children if one.label == label]
    left += [one.describe() for one in _offloads(server) if (one.key, one.label) not in threads]
    return left


class MemoryServers:
    """The fixture ``memory_server``: ``kitchen = await memory_server(server)``.

    Each is a :func:`memory_server` that lasts until the test has ended. They end in reverse order,
    and what one of them raises fails the test. ``async with memory_server(server)`` is that
    function, for the time of the block.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._open: list[tuple[trio.Event, trio.Event]] = []

    def __call__(self, server: Server, **options: Any) -> Opening:
        """Takes what :func:`memory_server` takes."""
        return Opening(self, server, options)

    async def open(self, server: Server, options: dict[str, Any]) -> InMemory:
        """Raises what entering a :func:`memory_server` raises."""
        leave, gone = trio.Event(), trio.Event()
        opened: InMemory | BaseException = await self._nursery.start(
            partial(self._hold, server, options, leave, gone)
        )
        if isinstance(opened, BaseException):
            raise opened
        self._open.append((leave, gone))
        return opened

    async def _hold(
        self,
        server: Server,
        options: dict[str, Any],
        leave: trio.Event,
        gone: trio.Event,
        *,
        task_status: trio.TaskStatus[InMemory | BaseException],
    ) -> None:
        entered = False
        try:
            async with memory_server(server, **options) as opened:
                entered = True
                task_status.started(opened)
                await leave.wait()
        except Exception as error:
            if entered:
                raise
            task_status.started(error)
        finally:
            gone.set()

    async def aclose(self) -> None:
        for leave, gone in reversed(self._open):
            leave.set()
            await gone.wait()


class Opening(AbstractAsyncContextManager[InMemory]):
    """What the fixture returns. To be awaited, and then it lasts as long as the test; or to be
    entered, and then it lasts as long as the block. Both raise what entering a
    :func:`memory_server` raises."""

    def __init__(self, servers: MemoryServers, server: Server, options: dict[str, Any]) -> None:
        self._servers = servers
        self._server = server
        self._options = options
        self._block: AbstractAsyncContextManager[InMemory]

    def __await__(self) -> Generator[Any, Any, InMemory]:
        return self._servers.open(self._server, self._options).__await__()

    async def __aenter__(self) -> InMemory:
        self._block = memory_server(self._server, **self._options)
        return await self._block.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._block.__aexit__(kind, error, traceback)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no {name!r} yet: await memory_server(…), or enter it")
