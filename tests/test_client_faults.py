"""What a caller gets, whatever the server does, whatever carries the call, whoever gives up first.

The tables say what is right; ``docs/outcomes.md`` says it to users. The servers are in
``peers/faulty.py``. In each case another call is in flight on the same client, and must not notice
but where the connection that they share is gone.
"""

from __future__ import annotations

import os
import signal
from typing import Any, Literal

import attrs
import msgspec
import pytest
import trio
from tests.peers.faulty import FAULTS, WIRES, Peer, faulty
from tests.peers.processes import alive
from tests.peers.raw import until

from trio_mcp import (
    CallCancelled,
    CallTimeout,
    CancelSource,
    Client,
    ConnectionLost,
    Limits,
    ProtocolViolation,
    Record,
    State,
    connect,
)

PATIENCE = 5.0
"""Seconds within which everything that has to happen must have happened, however slow we are."""

TIMEOUT = 0.2
NEVER = 60.0
"""Seconds of a timeout that is to pass, and of one that is not."""

LIMITS = Limits(message_bytes=1024 * 1024, exit_wait=0.2, terminate_wait=0.2)

# What is right ------------------------------------------------------------------------------------


@attrs.frozen
class GivenUp:
    """The call ends as its caller wants, see :data:`WAYS`."""

    late: int = 0
    """Answers that come all the same, and are counted."""
    violations: int | Literal["many"] = 0
    """What the server is found to have done against the specification."""
    found_afterwards: bool = False
    """Not while the call runs."""


@attrs.frozen
class Answered:
    """The first answer settles it; giving up comes too late."""

    violations: int = 0
    late = 0


@attrs.frozen
class Lost:
    """The call is lost before anybody gives up; ``shared``: and so is the call beside it."""

    why: str
    shared: bool = False
    exit_status: int | None = None
    late = violations = 0


@attrs.frozen
class Broken:
    """What came is no answer: nothing else will come, so nobody has to give up."""

    why: str
    status: int | None
    told: bool = False
    """Whether the server is hung up on, because it goes on."""
    violations = 1
    late = 0


Outcome = GivenUp | Answered | Lost | Broken

KILLED = -signal.SIGKILL

# fmt: off
TABLE: dict[str, tuple[Outcome, Outcome, Outcome, Outcome]] = {
    # stdio, WebSocket, HTTP JSON, HTTP SSE
    "silent": (GivenUp(), GivenUp(), GivenUp(), GivenUp()),
    "slow": (GivenUp(late=1), GivenUp(late=1), GivenUp(), GivenUp()),
    "killed": (
        Lost("the server closed the connection", shared=True, exit_status=KILLED),
        Lost("the WebSocket ended without a close frame", shared=True),
        Lost("Connection reset by peer", shared=True),
        Lost("Connection reset by peer", shared=True),
    ),
    "half an answer": (
        GivenUp(violations=1, found_afterwards=True),
        GivenUp(violations=1, found_afterwards=True),
        GivenUp(),
        GivenUp(),
    ),
    "closes": (
        Lost("the server closed the connection", shared=True, exit_status=0),
        Lost("the peer closed the WebSocket with code 1000", shared=True),
        Lost("Server disconnected without sending a response"),
        Lost("the event stream ended without a response"),
    ),
    "floods": (
        GivenUp(violations="many"),
        GivenUp(violations="many"),
        Broken("longer than message_bytes=1048576", status=None, told=True),
        GivenUp(violations="many"),
    ),
    "answers twice": (
        Answered(violations=1),
        Answered(violations=1),
        Answered(violations=1),  # and its connection is closed
        Answered(),  # nothing is looked for behind a response
    ),
    "answers late": (GivenUp(late=1), GivenUp(late=1), GivenUp(), GivenUp()),
    "wrong id": (
        GivenUp(violations=1),
        GivenUp(violations=1),
        Broken("its id is '1", status=200),
        GivenUp(violations=1),
    ),
    "garbage": (
        GivenUp(violations=1),
        GivenUp(violations=1),
        Broken("no JSON-RPC response to the request", status=200),
        GivenUp(violations=1),
    ),
}
"""Fault by wire: how the call ends. Where a whole wire is shared, what was begun is ended on it
before anything else is said; over HTTP nothing can come once the response is closed."""

WAYS: dict[str, tuple[type[BaseException], CancelSource, str]] = {
    "idle timeout": (CallTimeout, CancelSource.TIMEOUT, "no answer within timeout=0.2 s"),
    "total timeout": (CallTimeout, CancelSource.TIMEOUT, "no answer within max_timeout=0.2 s"),
    "scope cancelled": (trio.Cancelled, CancelSource.CALLER, "the caller was cancelled"),
    "call.cancel": (CallCancelled, CancelSource.CALLER, "enough"),
}
"""Ways of giving up: what the caller gets, and the cause in the call's record."""
# fmt: on


# Ways of giving up --------------------------------------------------------------------------------


@attrs.frozen
class Caller:
    """Makes the one call, and gives up in one way, if the server does not end it first."""

    peer: Peer
    client: Client
    fault: str
    right: Outcome

    async def outcome(self, way: str) -> Any:
        """What the call returned, or what it raised."""
        with trio.fail_after(PATIENCE):
            if way == "idle timeout":
                return await self.call(timeout=NEVER if self.settled else TIMEOUT)
            if way == "total timeout":
                return await self.call(max_timeout=NEVER if self.settled else TIMEOUT)
            if way == "scope cancelled":
                return await self.call_in_a_scope()
            return await self.call_by_hand()

    @property
    def settled(self) -> bool:
        """Whether the server ends the call."""
        return not isinstance(self.right, GivenUp)

    async def call(self, **timeouts: float) -> Any:
        return await outcome_of(self.client, self.fault, **timeouts)

    async def call_in_a_scope(self) -> Any:
        """Once it is settled, to cancel the scope changes nothing."""
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                if not self.settled:
                    nursery.start_soon(self.cancel_in_the_middle, scope)
                outcome = await self.call()
            scope.cancel("too late")
        if scope.cancelled_caught:
            return trio.Cancelled
        return outcome

    async def cancel_in_the_middle(self, scope: trio.CancelScope) -> None:
        await until(self.suffered)
        scope.cancel("no more")

    async def call_by_hand(self) -> Any:
        """Once it is settled, to cancel it changes nothing."""
        async with self.client.start_tool(self.fault, timeout=NEVER, max_timeout=NEVER) as call:
            if self.settled:
                await call.ended()
            else:
                await until(self.suffered)
            call.cancel("enough")
            try:
                return await call.result()
            except Exception as error:
                return error

    def suffered(self) -> bool:
        """The server has done it, and we have seen what there is to be seen."""
        right = self.right
        found = not isinstance(right, GivenUp) or not right.violations or right.found_afterwards
        return self.peer.done(self.client, self.fault) and (
            found or self.client._connection.violations > 0
        )


async def outcome_of(client: Client, tool: str, **timeouts: float) -> Any:
    timeouts = {"timeout": NEVER, "max_timeout": NEVER, **timeouts}
    try:
        return await client.call_tool(tool, **timeouts)  # type: ignore[arg-type]
    except Exception as error:
        return error


# What is looked at --------------------------------------------------------------------------------


def check_outcome(got: Any, right: Outcome, way: str) -> None:
    if isinstance(right, Answered):
        assert got.content[0].text == "first"
    elif isinstance(right, Lost):
        assert isinstance(got, ConnectionLost)
        assert right.why in str(got)
        assert got.sent
        assert got.exit_status == right.exit_status
    elif isinstance(right, Broken):
        assert isinstance(got, ProtocolViolation)
        assert right.why in str(got)
        assert got.status == right.status
    elif way == "scope cancelled":
        assert got is trio.Cancelled
    else:
        kind, _, reason = WAYS[way]
        assert type(got) is kind
        assert reason in str(got)
        if isinstance(got, CallTimeout):
            assert got.limit == ("timeout" if way == "idle timeout" else "max_timeout")
            assert got.seconds == TIMEOUT
            assert got.elapsed >= TIMEOUT
            assert got.outcome == "unknown"


def check_record(record: Record, got: Any, right: Outcome, way: str) -> None:
    assert record.started_at is not None
    assert len(record.late) == right.late
    if isinstance(right, GivenUp):
        assert record.state is State.CANCELLED
        assert record.error is None
        assert record.cause is not None
        assert (record.cause.source, record.cause.reason) == WAYS[way][1:]
    else:
        assert record.cause is None
        answered = isinstance(right, Answered)
        assert record.state is (State.COMPLETED if answered else State.FAILED)
        assert record.error == (None if answered else str(got))


class Beside:
    """Another call on the same client, in flight all the time."""

    outcome: Any = None

    def __init__(self, client: Client) -> None:
        self.client = client
        self.ended = trio.Event()

    async def call(self) -> None:
        self.outcome = await outcome_of(self.client, "hold")
        self.ended.set()

    async def check_answered(self, told: list[str]) -> None:
        """It is, with the next call, which says what the server was ``told`` to give up."""
        heard: Any = None
        with trio.fail_after(PATIENCE):
            while heard != told:
                result = await self.client.call_tool("release")
                heard = msgspec.json.decode(text_of(result))
            await self.ended.wait()
        assert text_of(self.outcome) == "held"

    async def check_lost(self, exit_status: int | None) -> None:
        with trio.fail_after(PATIENCE):
            await self.ended.wait()
            later = await outcome_of(self.client, "release")
        for error, sent in ((self.outcome, True), (later, False)):
            assert isinstance(error, ConnectionLost)
            assert error.sent is sent
            assert error.exit_status == exit_status


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


class Leftovers:
    """What there was before: tasks, descriptors. There must not be more afterwards."""

    def __init__(self) -> None:
        self.before = self._now()
        self.pid: int | None = None

    def _now(self) -> tuple[int, int]:
        tasks = trio.lowlevel.current_statistics().tasks_living
        return tasks, len(os.listdir("/proc/self/fd"))

    def of(self, client: Client) -> None:
        """The process of this client counts too."""
        process = client._connection.process
        self.pid = None if process is None else process._process.pid

    async def check_none(self) -> None:
        await until(
            lambda: all(now <= was for now, was in zip(self._now(), self.before, strict=True))
        )
        assert self.pid is None or not alive(self.pid)


def record_of(client: Client, tool: str) -> Record | None:
    for record in client.journal:
        if record.target == tool:
            return record
    return None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault(fault: str, wire: str, way: str) -> None:
    right = TABLE[fault][WIRES.index(wire)]
    leftovers = Leftovers()
    with trio.fail_after(4 * PATIENCE):
        async with faulty(wire) as peer, trio.open_nursery() as nursery:
            async with connect(peer.target, limits=LIMITS) as client:
                leftovers.of(client)
                beside = Beside(client)
                nursery.start_soon(beside.call)
                await until(lambda: len(client.calls()) == 1 and client.calls()[0].sent)

                caller = Caller(peer, client, fault, right)
                got = await caller.outcome(way)
                check_outcome(got, right, way)

                if isinstance(right, Lost) and right.shared:
                    await beside.check_lost(right.exit_status)
                else:
                    told = isinstance(right, GivenUp) or (isinstance(right, Broken) and right.told)
                    await beside.check_answered([fault] if told else [])
                await until(lambda: client.calls() == ())
                await until(lambda: not getattr(client._connection, "_posts", ()))

                record = record_of(client, fault)
                assert record is not None
                check_record(record, got, right, way)
                assert client.journal.late == right.late
                found = client._connection.violations
                assert found > 0 if right.violations == "many" else found == right.violations
    await leftovers.check_none()
