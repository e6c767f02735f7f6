"""The terminal-state guard, without a loop."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from docs.draw_lifecycle import PICTURE, draw
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.runtime.lifecycle import (
    ANSWERED,
    TRANSITIONS,
    CancelCause,
    CancelSource,
    Event,
    Lifecycle,
    LifecycleError,
    State,
)

TERMINAL = {State.COMPLETED, State.FAILED, State.CANCELLED}


def cause(source: CancelSource = CancelSource.NOTIFICATION) -> CancelCause:
    return CancelCause(source, "because", 1.0)


def test_the_table_is_complete_and_terminal_states_have_no_way_out() -> None:
    assert set(TRANSITIONS) == set(State)
    assert {state for state, events in TRANSITIONS.items() if not events} == TERMINAL
    assert {e for events in TRANSITIONS.values() for e in events} == set(Event)


def test_the_picture_is_drawn_from_the_table() -> None:
    assert Path(PICTURE).read_text() == draw(), "run: python docs/draw_lifecycle.py"


def test_first_cause_wins_and_the_others_are_counted() -> None:
    lifecycle = Lifecycle()
    assert lifecycle.begin_cancel(cause(CancelSource.DEADLINE))
    assert not lifecycle.begin_cancel(cause(CancelSource.NOTIFICATION))
    assert not lifecycle.begin_cancel(cause(CancelSource.SHUTDOWN))
    assert lifecycle.cause == cause(CancelSource.DEADLINE)
    assert lifecycle.extra_cancels == 2


def test_a_claim_after_a_cancel_is_refused() -> None:
    lifecycle = Lifecycle()
    lifecycle.begin_cancel(cause())
    assert not lifecycle.claim(failed=False)
    lifecycle.note_unwound()
    assert not lifecycle.claim(failed=True)
    assert lifecycle.state is State.CANCELLED


def test_unwinding_what_was_not_cancelled_is_a_bug() -> None:
    with pytest.raises(LifecycleError):
        Lifecycle().note_unwound()


@pytest.mark.parametrize(("first", "second"), [*itertools.product(CancelSource, repeat=2)])
def test_a_request_is_silenced_once_its_peer_knows(
    first: CancelSource, second: CancelSource
) -> None:
    lifecycle = Lifecycle()
    lifecycle.begin_cancel(cause(first))
    lifecycle.begin_cancel(cause(second))
    assert lifecycle.silenced == (first not in ANSWERED or second not in ANSWERED)


STEPS = st.lists(
    st.one_of(
        st.sampled_from(["complete", "fail", "unwound", "late"]),
        st.sampled_from(CancelSource),
    ),
    max_size=12,
)


@given(STEPS)
def test_invariant_1_one_terminal_state_through_the_table_only(
    steps: list[str | CancelSource],
) -> None:
    lifecycle = Lifecycle()
    seen = [lifecycle.state]
    claims = 0
    for step in steps:
        if isinstance(step, CancelSource):
            lifecycle.begin_cancel(cause(step))
        elif step == "unwound":
            if lifecycle.state is State.CANCELLING:
                lifecycle.note_unwound()
        elif step == "late":
            lifecycle.note_late("result", 0.0)
        else:
            claims += lifecycle.claim(failed=step == "fail")
        if lifecycle.state is not seen[-1]:
            seen.append(lifecycle.state)
    assert all(b in TRANSITIONS[a].values() for a, b in itertools.pairwise(seen))
    assert sum(state in TERMINAL for state in seen) <= 1
    assert claims == (seen[-1] in (State.COMPLETED, State.FAILED))
    assert lifecycle.ended == (seen[-1] in TERMINAL)
