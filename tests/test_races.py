"""Races around requests in flight, explored by Hypothesis: what happens, and in which order.

A script of steps is played against one connection. Trio's scheduler takes its random order from
Hypothesis too, so that every example is one interleaving, and a failing one shrinks. The wire is
scripted: it notes the moment in which the writer hands it bytes, and can stop taking any. Time is a
mock clock that only moves when the script says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import attrs
import msgspec
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.peers.raw import call, cancel, same_id

from trio_mcp import Context, Limits, Server, State, ToolError
from trio_mcp.runtime.lifecycle import CancelSource
from trio_mcp.transports.framing import Frame

LIMITS = Limits(stall=30, drain=2, cleanup=3, progress_interval=0.5)

Kind = Literal["plain", "stubborn", "child", "cleanup", "speaking", "brief", "deadline"]
KINDS: list[Kind] = ["plain", "stubborn", "child", "cleanup", "speaking", "brief", "deadline"]


class ScriptedWire:
    """A wire in the test's hands. ``log`` has what happened, in the order it happened in."""

    label = "scripted"

    def __init__(self) -> None:
        self.log: list[tuple[str, Any]] = []
        self._to_server, self._incoming = trio.open_memory_channel[list[bytes]](1000)
        self._flowing = trio.Event()
        self._flowing.set()

    def feed(self, *messages: Any) -> None:
        self._to_server.send_nowait([msgspec.json.encode(message) for message in messages])

    def hang_up(self) -> None:
        self._to_server.close()

    def stop_taking(self) -> None:
        if self._flowing.is_set():
            self._flowing = trio.Event()

    def take_again(self) -> None:
        self._flowing.set()

    async def receive(self) -> list[Frame] | None:
        try:
            batch = await self._incoming.receive()
        except trio.EndOfChannel:
            return None
        for frame in batch:
            self.log.append(("read", msgspec.json.decode(frame)))
        return list(batch)

    async def send(self, frames: list[bytes], moved: Callable[[], None]) -> None:
        for frame in frames:
            self.log.append(("written", msgspec.json.decode(frame)))
        await self._flowing.wait()
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self._to_server.close()
        await trio.lowlevel.checkpoint()


class Shop:
    """A server whose one tool does what the script says, when it says so."""

    def __init__(self) -> None:
        self.server = Server("races", version="1", limits=LIMITS)
        self.doors: dict[str, trio.Event] = {}
        self.live = 0
        self.opened = 0
        self.server.tool(self.work)
        self.server.tool(timeout=5)(self.deadline)
        core = self.server._core
        really_open = core.open

        def count_and_open(*args: Any) -> Any:
            self.opened += 1
            return really_open(*args)

        core.open = count_and_open  # type: ignore[method-assign, assignment]

    def door(self, key: str) -> trio.Event:
        return self.doors.setdefault(key, trio.Event())

    async def deadline(self, key: str, kind: str, fail: bool, ctx: Context) -> str:
        return await self.work(key, kind, fail, ctx)

    async def work(self, key: str, kind: str, fail: bool, ctx: Context) -> str:
        self.live += 1
        try:
            await self._work(key, kind, ctx)
            if fail:
                raise (ToolError("closed") if kind == "plain" else RuntimeError("bug"))
            return key
        finally:
            self.live -= 1

    async def _work(self, key: str, kind: str, ctx: Context) -> None:
        door = self.door(key)
        if kind == "stubborn":
            with trio.CancelScope(shield=True):
                await door.wait()
        elif kind == "child":
            ctx.nursery.start_soon(door.wait)
        elif kind == "cleanup":
            try:
                await door.wait()
            finally:
                with ctx.cleanup(1):
                    await trio.lowlevel.checkpoint()
                    await trio.sleep(0.5)
        elif kind == "speaking":
            for i in range(100):
                ctx.progress(i)
                if door.is_set():
                    break
                with trio.move_on_after(0.2):
                    await door.wait()
        elif kind != "brief":
            await door.wait()


@attrs.frozen
class Step:
    """What the script does next, and how many times the scheduler may run before the next step."""

    action: str
    who: int
    pause: int


ACTIONS = ["cancel", "cancel", "again", "open", "open", "time", "stop", "take"]
ENDINGS = ["hang up", "drain", "drain then hang up"]

steps = st.lists(
    st.builds(Step, st.sampled_from(ACTIONS), st.integers(0, 3), st.integers(0, 4)), max_size=14
)
requests = st.lists(
    st.tuples(st.sampled_from(KINDS), st.booleans(), st.integers(0, 3)), min_size=1, max_size=4
)


@settings(max_examples=2500, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests, steps, st.sampled_from(ENDINGS))
def test_invariants_1_2_3_4_7_11_hold_in_every_order(
    asked: list[tuple[Kind, bool, int]], script: list[Step], ending: str
) -> None:
    clock = trio.testing.MockClock()
    trio.run(play, asked, script, ending, clock, clock=clock)


async def play(
    asked: list[tuple[Kind, bool, int]],
    script: list[Step],
    ending: str,
    clock: trio.testing.MockClock,
) -> None:
    shop, wire = Shop(), ScriptedWire()
    scope = trio.CancelScope()
    ended = trio.Event()

    async def serve() -> None:
        with scope:
            await shop.server.serve_wire(wire)
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        for who, (kind, fail, pause) in enumerate(asked):
            tool = "deadline" if kind == "deadline" else "work"
            wire.feed(call(who, tool, token=who, key=str(who), kind=kind, fail=fail))
            await _pause(pause)
        for step in script:
            _act(step, shop, wire, clock, len(asked))
            await _pause(step.pause)
        if ending != "hang up":
            scope.cancel("drain")
            await _pause(2)
        if ending != "drain":
            wire.hang_up()
        await _run_out(shop, wire, clock, ended)
    _check(shop, wire, len(asked))
    if ending == "drain" and not any(step.action == "stop" for step in script):
        _check_all_told(shop, wire)


def _act(
    step: Step, shop: Shop, wire: ScriptedWire, clock: trio.testing.MockClock, asked: int
) -> None:
    who = step.who % asked
    if step.action == "cancel":
        wire.feed(cancel(who, "stop pressed"))
    elif step.action == "again":  # the same id again: refused while the first is in flight
        wire.feed(call(who, "work", key=f"again {who}", kind="brief", fail=False))
    elif step.action == "open":
        shop.door(str(who)).set()
    elif step.action == "time":
        clock.jump(0.25 + step.pause)
    elif step.action == "stop":
        wire.stop_taking()
    else:
        wire.take_again()


async def _pause(ticks: int) -> None:
    for _ in range(ticks):
        await trio.lowlevel.checkpoint()
    if ticks == 4:
        await trio.testing.wait_all_tasks_blocked()


async def _run_out(
    shop: Shop, wire: ScriptedWire, clock: trio.testing.MockClock, ended: trio.Event
) -> None:
    """Let everything end. Invariant 11: in bounded time, also if the peer takes nothing."""
    began = trio.current_time()
    for _ in range(200):
        await trio.testing.wait_all_tasks_blocked()
        if ended.is_set():
            break
        for who in list(shop.doors):
            if trio.current_time() - began > LIMITS.drain:  # even a stubborn handler ends some day
                shop.door(who).set()
        clock.jump(0.5)
    bound = LIMITS.stall + LIMITS.drain + LIMITS.cleanup + 5
    assert ended.is_set()
    assert trio.current_time() - began <= bound


def _check(shop: Shop, wire: ScriptedWire, asked: int) -> None:
    core = shop.server._core
    records = list(shop.server.journal)
    # Invariant 4: nothing is left.
    assert shop.live == 0
    assert core.inflight == 0
    assert not core.connections
    assert shop.server.scopes().children == ()
    # Invariant 1: one record each, in a terminal state.
    assert all(record.state not in (State.RUNNING, State.CANCELLING) for record in records)
    assert len(records) == shop.opened
    for who in range(asked):
        mine = [record for record in records if record.request_id == who]
        answers = [m for what, m in wire.log if what == "written" and _answers(m, who)]
        # Invariant 3: at most one answer to a request; a claimed one was written, others not,
        # except for the errors that tell of a cancellation the peer did not ask for.
        claimed = [r for r in mine if r.state in (State.COMPLETED, State.FAILED)]
        told = [r for r in mine if r.state is State.CANCELLED and r.delivered is not None]
        assert len(answers) == len(claimed) + len(told)
        for record in mine:
            _check_record(record)
    _check_silence(wire)


def _check_all_told(shop: Shop, wire: ScriptedWire) -> None:
    """Invariant 3: the peer reads and has not hung up, so what it did not cancel is answered."""
    read = [message for what, message in wire.log if what == "read"]
    cancelled = {m["params"]["requestId"] for m in read if m["method"] != "tools/call"}
    for record in shop.server.journal:
        assert record.request_id in cancelled or record.delivered


def _check_record(record: Any) -> None:
    if record.state is State.CANCELLED:
        assert record.cause is not None
        assert record.cause.received_at <= record.unwound_at <= record.ended_at
        peer_knows = (CancelSource.NOTIFICATION, CancelSource.DISCONNECT, CancelSource.STALLED)
        if record.cause.source in peer_knows:
            assert record.delivered is None
        else:
            assert record.delivered is not None or record.extra_cancels
    else:
        assert record.cause is None
        assert record.delivered is not None


def _answers(message: Any, who: int) -> bool:
    """Whether it is the answer of a request that was accepted."""
    refused = "error" in message and message["error"]["message"] == "The server is shutting down"
    return "method" not in message and same_id(message.get("id"), who) and not refused


def _check_silence(wire: ScriptedWire) -> None:
    """Invariant 2: after a cancel was read, nothing about that request, until its id comes again.

    The reader handles what it has read before it waits for more, so "read" is "processed".
    """
    silent: set[int] = set()
    for what, message in wire.log:
        if what == "read":
            if message["method"] == "notifications/cancelled":
                silent.add(message["params"]["requestId"])
            elif message["id"] in silent:
                silent.discard(message["id"])
        elif message.get("method") == "notifications/progress":
            assert message["params"]["progressToken"] not in silent
        else:
            assert message.get("id") not in silent
