"""Slots and turns, held against a model that counts by hand."""

from __future__ import annotations

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trio_mcp.runtime.admission.fair_queue import FairQueue, Gate

CLIENTS = st.sampled_from("abcd")


@attrs.frozen(eq=False)
class Waiter:
    client: str
    number: int


class GateModel(RuleBasedStateMachine):
    """Requests of four clients come, end and give up in any order."""

    @initialize(
        limit=st.integers(1, 5), room=st.integers(0, 6), share=st.none() | st.integers(1, 5)
    )
    def begin(self, limit: int, room: int, share: int | None) -> None:
        self.gate: Gate[Waiter] = Gate(limit, room, share)
        self.limit, self.room = limit, room
        self.share = min(limit, share if share is not None else limit)
        self.running: list[str] = []
        self.waiting: list[Waiter] = []  # in the order in which they came
        self.turns: list[str] = []  # clients that wait, next turn first
        self.count = 0
        self.grants = 0
        self.granted_at: dict[str, int] = {}
        self.waits_since: dict[str, int] = {}

    def of(self, client: str) -> list[Waiter]:
        return [waiter for waiter in self.waiting if waiter.client == client]

    def may_run(self, client: str) -> bool:
        return len(self.running) < self.limit and self.running.count(client) < self.share

    def forget(self, waiter: Waiter) -> None:
        self.waiting.remove(waiter)
        if not self.of(waiter.client):
            self.turns.remove(waiter.client)
            self.waits_since.pop(waiter.client)

    @rule(client=CLIENTS)
    def one_comes(self, client: str) -> None:
        gate = self.gate
        runs = self.may_run(client)
        assert gate.enter(client) is runs
        if runs:
            self.running.append(client)
            return
        assert gate.full is (len(self.waiting) >= self.room)
        if gate.full and not self.somebody_gives_way_to(client):
            return
        self.count += 1
        waiter = Waiter(client, self.count)
        gate.queue.push(client, waiter)
        if client not in self.turns:
            self.turns.append(client)
            self.waits_since[client] = self.grants
        self.waiting.append(waiter)

    def somebody_gives_way_to(self, client: str) -> bool:
        waiter = self.gate.queue.who_gives_way(client)
        most = max((len(self.of(other)) for other in "abcd"), default=0)
        assert (waiter is not None) is (most >= len(self.of(client)) + 2)
        if waiter is None:
            return False
        assert len(self.of(waiter.client)) == most
        assert waiter is self.of(waiter.client)[-1]  # the newest
        self.gate.queue.remove(waiter.client, waiter)
        self.forget(waiter)
        return True

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def one_ends(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.running))
        self.running.remove(client)
        able = [other for other in self.turns if self.may_run(other)]
        waiter = self.gate.leave(client)
        assert (waiter is None) is (not able)
        if waiter is None:
            return
        assert waiter.client == able[0]
        assert waiter is self.of(waiter.client)[0]  # the oldest
        self.check_turn(waiter.client)
        self.forget(waiter)
        if waiter.client in self.turns:
            self.turns.remove(waiter.client)
            self.turns.append(waiter.client)
            self.waits_since[waiter.client] = self.grants
        self.running.append(waiter.client)

    def check_turn(self, client: str) -> None:
        """Nobody has two turns while another waits, unless that one has its share."""
        self.grants += 1
        last, self.granted_at[client] = self.granted_at.get(client, 0), self.grants
        if self.share == self.limit:
            for other, since in self.waits_since.items():
                assert other == client or last <= since

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def one_gives_up(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(self.waiting))
        self.gate.queue.remove(waiter.client, waiter)
        self.forget(waiter)

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "gate"):
            return
        gate = self.gate
        assert gate.running == len(self.running) <= self.limit
        assert len(gate.queue) == len(self.waiting) <= self.room
        for client in "abcd":
            assert self.running.count(client) <= self.share
            assert gate.queue.waiting(client) == len(self.of(client))
            assert not (self.of(client) and self.may_run(client)), (
                "a free slot, and who may have it"
            )


GateModel.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
test_a_gate_does_what_its_model_does = GateModel.TestCase


def test_a_flood_and_a_guest() -> None:
    gate: Gate[str] = Gate(1, 100)
    assert gate.enter("flood")
    for number in range(50):
        gate.queue.push("flood", f"flood {number}")
    for number in range(3):
        gate.queue.push("guest", f"guest {number}")
    served = [gate.leave(client) for client in ["flood", "flood", "guest", "flood", "guest"]]
    assert served == ["flood 0", "guest 0", "flood 1", "guest 1", "flood 2"]


def test_equals_do_not_change_places() -> None:
    queue: FairQueue[str] = FairQueue()
    assert queue.who_gives_way("b") is None
    queue.push("a", "a1")
    assert queue.who_gives_way("b") is None
    queue.push("a", "a2")
    assert queue.who_gives_way("b") == "a2"
    queue.push("b", "b1")
    assert queue.who_gives_way("b") is None


def test_who_does_not_wait_cannot_give_up() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push("a", "a1")
    queue.remove("a", "a1")
    with pytest.raises(KeyError):
        queue.remove("a", "a1")
    assert len(queue) == 0
