"""Races around subscriptions, explored by Hypothesis: what happens, and in which order.

The same scripted wire as in ``test_races``: it notes what is read and what starts to go out, and
can stop taking any. Registrations and changes are noted in the same log.
"""

from __future__ import annotations

from typing import Any

import attrs
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.peers.observed_server import Offering
from tests.peers.raw import cancel, request
from tests.test_races import ScriptedWire

from trio_mcp import Change, Limits, State

LIMITS = Limits(stall=30, drain=2)
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

CHANGES = [
    Change("tools"),
    Change("prompts"),
    Change("resource", "shop://a"),
    Change("resource", "shop://" + "b" * 70_000),  # fills a write by itself
]


def wanted(chosen: set[int]) -> dict[str, Any]:
    uris = [change.uri for n, change in enumerate(CHANGES) if n in chosen and change.uri]
    return {
        "notifications": {
            "toolsListChanged": 0 in chosen,
            "promptsListChanged": 1 in chosen,
            "resourceSubscriptions": uris,
        }
    }


@attrs.frozen
class Step:
    """What happens next, and how many times the scheduler may run before the next step."""

    action: str
    which: int
    pause: int


ACTIONS = ["publish"] * 6 + ["thread", "cancel", "stop", "take", "time", "listen"]
ENDINGS = ["hang up", "drain", "drain then hang up"]

steps = st.lists(
    st.builds(Step, st.sampled_from(ACTIONS), st.integers(0, 3), st.integers(0, 4)), max_size=25
)
filters = st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=4)


@settings(max_examples=800, deadline=None, suppress_health_check=list(HealthCheck))
@given(filters, steps, st.sampled_from(ENDINGS), st.booleans())
def test_subscriptions_keep_their_promises_in_every_order(
    asked: list[set[int]], script: list[Step], ending: str, flowing: bool
) -> None:
    clock = trio.testing.MockClock()
    trio.run(play, asked, script, ending, flowing, clock, clock=clock)


async def play(
    asked: list[set[int]],
    script: list[Step],
    ending: str,
    flowing: bool,
    clock: trio.testing.MockClock,
) -> None:
    server, wire = Offering("races", version="1", limits=LIMITS), ScriptedWire()
    scope, ended = trio.CancelScope(), trio.Event()
    _note_registrations(server, wire)

    async def serve() -> None:
        with scope:
            await server.serve_wire(wire)
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        waiting = list(enumerate(asked))
        _listen(wire, waiting)
        for step in script:
            await _act(step, server, wire, clock, waiting)
            await _pause(step.pause)
        if flowing:
            wire.take_again()
        if ending != "hang up":
            scope.cancel("drain")
            await _pause(2)
        if ending != "drain":
            wire.hang_up()
        for _ in range(100):
            await trio.testing.wait_all_tasks_blocked()
            if ended.is_set():
                break
            clock.jump(0.5)
        assert ended.is_set()
        wire.take_again()
    _check_nothing_left(server)
    for who in range(len(asked)):
        _check_order(who, [CHANGES[n] for n in asked[who]], wire)
    if ending == "drain" and flowing:
        _check_all_told(asked, wire)


def _note_registrations(server: Offering, wire: ScriptedWire) -> None:
    subscriptions = server._subscriptions
    really_enter = subscriptions._enter

    def enter(subscription: Any) -> None:
        wire.log.append(("registered", subscription._exchange.request.id))
        really_enter(subscription)

    subscriptions._enter = enter  # type: ignore[method-assign]


def _listen(wire: ScriptedWire, waiting: list[tuple[int, set[int]]]) -> None:
    if waiting:
        who, chosen = waiting.pop(0)
        wire.feed(request(who, "subscriptions/listen", wanted(chosen)))


async def _act(
    step: Step,
    server: Offering,
    wire: ScriptedWire,
    clock: trio.testing.MockClock,
    waiting: list[tuple[int, set[int]]],
) -> None:
    if step.action == "publish":
        wire.log.append(("changed", CHANGES[step.which]))
        server._bus.publish(CHANGES[step.which])
    elif step.action == "thread":
        change = CHANGES[step.which]
        await trio.to_thread.run_sync(server._bus.publish, change)
        await trio.testing.wait_all_tasks_blocked()  # the loop has heard of it by now
    elif step.action == "cancel":
        wire.feed(cancel(step.which))
    elif step.action == "stop":
        wire.stop_taking()
    elif step.action == "take":
        wire.take_again()
    elif step.action == "time":
        clock.jump(0.2)
    else:
        _listen(wire, waiting)


async def _pause(ticks: int) -> None:
    for _ in range(ticks):
        await trio.lowlevel.checkpoint()
    if ticks == 4:
        await trio.testing.wait_all_tasks_blocked()


def _check_nothing_left(server: Offering) -> None:
    subscriptions = server._subscriptions
    assert len(subscriptions) == 0
    assert subscriptions._watching == {}
    assert subscriptions._posted == {}
    assert server._core.inflight == 0
    assert all(r.state in (State.COMPLETED, State.CANCELLED) for r in server.journal)


def _about(who: int, message: Any) -> bool:
    params = message.get("params", {})
    about = params.get("_meta", {}).get(SUBSCRIPTION, params.get("requestId"))
    return bool(message.get("id", about) == who)


def _change_of(message: Any) -> Change:
    if message["method"] == "notifications/resources/updated":
        return Change("resource", message["params"]["uri"])
    return Change(message["method"].split("/")[1])


def _check_order(who: int, changes: list[Change], wire: ScriptedWire) -> None:
    """The acknowledgement first, what was asked for and changed, nothing after the end."""
    phase = "new"
    for what, message in wire.log:
        if what == "read" and _about(who, message):
            phase = "silent" if message["method"] == "notifications/cancelled" else "new"
        elif what == "written" and _about(who, message):
            assert phase not in ("silent", "over")
            if "method" not in message:
                assert ("result" in message) <= (phase == "acknowledged")
                phase = "answered"
            elif message["method"] == "notifications/cancelled":
                assert phase == "answered"
                phase = "over"
            elif message["method"] == ACKNOWLEDGED:
                assert phase == "new"
                phase = "acknowledged"
            else:
                assert phase == "acknowledged"
                assert _change_of(message) in changes


def _check_all_told(asked: list[set[int]], wire: ScriptedWire) -> None:
    """Whoever has a graceful end has been told, after it happened, of each change; and who has
    been told nothing of the end has cancelled."""
    log = wire.log
    for who, chosen in enumerate(asked):
        if ("registered", who) not in log:
            continue
        own = [(n, m) for n, (what, m) in enumerate(log) if what == "written" and _about(who, m)]
        begun = min([log.index(("registered", who)), *(n for n, _ in own)])
        if not any("result" in message for _, message in own):
            assert any(w == "read" and _about(who, m) and "id" not in m for w, m in log)
            continue
        told = [
            (n, _change_of(m))
            for n, m in own
            if "_meta" in m.get("params", {}) and m["method"] != ACKNOWLEDGED
        ]
        for n, (what, change) in enumerate(log):
            if what == "changed" and n > begun and CHANGES.index(change) in chosen:
                assert any(later > n and again == change for later, again in told)
