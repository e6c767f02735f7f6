"""Sealed state without any input or output: what opens it, and that nothing else does."""

from __future__ import annotations

import base64
import os
from typing import Any

import attrs
import pytest
from cryptography.fernet import Fernet
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_mcp import ErrorCode, Limits, ProtocolError
from trio_mcp.handlers.input.request_state import Binding, Memory, RequestStates
from trio_mcp.handlers.input.used_states import UsedStates
from trio_mcp.handlers.pagination import Cursors
from trio_mcp.handlers.sealing import Seal, SecretKeys

BINDING = Binding("tools/call", "greet", "ab" * 32, "alice")
MEMORY = Memory({"n": 1}, {"who": {"action": "accept"}}, ["how"])
NOW = 1_800_000_000.0
AGE = Limits().request_state_age


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def states(secret: Any = "s", *, single_use: bool = False, **limits: Any) -> RequestStates:
    return RequestStates(secret, Limits(**limits), single_use=single_use, now=Clock())


def refusal(made: RequestStates, sealed: str, binding: Binding = BINDING) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        made.open(binding, sealed)
    return caught.value


SEALED = states().seal(BINDING, MEMORY)
REFUSAL = str(refusal(states(), ""))


def at(made: RequestStates, seconds: float) -> RequestStates:
    made.now = lambda: NOW + seconds
    return made


def test_a_state_opens_with_all_that_was_in_it() -> None:
    assert states().open(BINDING, SEALED) == MEMORY
    assert states().open(BINDING, states().seal(BINDING, Memory())) == Memory()
    assert len({states().seal(BINDING, MEMORY) for _ in range(10)}) == 10  # never the same twice
    assert "alice" not in SEALED
    assert b"alice" not in base64.urlsafe_b64decode(SEALED)


@given(st.integers(0, len(SEALED) * 8 - 1))
@settings(max_examples=300, deadline=None)
def test_a_flipped_bit_of_its_text_never_opens(bit: int) -> None:
    data = bytearray(SEALED, "ascii")
    data[bit // 8] ^= 1 << bit % 8
    text = data.decode("latin-1")
    error = refusal(states(), text)
    assert (error.code, str(error), error.data) == (ErrorCode.INVALID_PARAMS, REFUSAL, None)


def test_no_flipped_bit_of_its_bytes_opens() -> None:
    raw = base64.urlsafe_b64decode(SEALED)
    for bit in range(0, len(raw) * 8, 3):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        assert str(refusal(states(), base64.urlsafe_b64encode(changed).decode())) == REFUSAL


@given(st.one_of(st.text(max_size=200), st.integers(0, len(SEALED) - 1).map(SEALED.__getitem__)))
@settings(max_examples=200, deadline=None)
def test_no_other_text_opens(text: str) -> None:
    assert str(refusal(states(), text)) == REFUSAL


@given(st.integers(0, len(SEALED)), st.text(min_size=1, max_size=5), st.integers(0, 3))
@settings(max_examples=200, deadline=None)
def test_nothing_put_in_or_taken_out_opens(place: int, text: str, taken: int) -> None:
    changed = SEALED[:place] + text + SEALED[place + taken :]
    if changed != SEALED:
        assert str(refusal(states(), changed)) == REFUSAL


@pytest.mark.parametrize("more", ["=", "\n", " ", "====", "!", "\u0661", "\ud800"], ids=ascii)
def test_another_way_to_write_the_same_bytes_does_not_open(more: str) -> None:
    assert str(refusal(states(), SEALED + more)) == REFUSAL
    assert str(refusal(states(), more + SEALED)) == REFUSAL


def test_what_was_truncated_does_not_open() -> None:
    for end in range(len(SEALED)):
        assert str(refusal(states(), SEALED[:end])) == REFUSAL


@pytest.mark.parametrize(
    "other",
    [
        {"method": "prompts/get"},
        {"target": "other"},
        {"target": None},
        {"digest": "cd" * 32},
        {"principal": "bob"},
        {"principal": None},
        {"principal": ""},
    ],
    ids=repr,
)
def test_a_state_of_another_request_does_not_open(other: dict[str, Any]) -> None:
    fields = {name: getattr(BINDING, name) for name in BINDING.__struct_fields__}
    binding = Binding(**{**fields, **other})
    assert str(refusal(states(), SEALED, binding)) == REFUSAL
    assert states().open(binding, states().seal(binding, MEMORY)) == MEMORY


def test_nobody_is_not_somebody_without_a_name() -> None:
    nobody = Binding("tools/call", "greet", "ab" * 32, None)
    nameless = Binding("tools/call", "greet", "ab" * 32, "")
    assert str(refusal(states(), states().seal(nobody, MEMORY), nameless)) == REFUSAL


def test_a_state_is_good_for_its_time_by_the_systems_clock() -> None:
    assert at(states(), AGE).open(BINDING, SEALED) == MEMORY
    assert str(refusal(at(states(), AGE + 1), SEALED)) == REFUSAL
    short = at(states(request_state_age=5), 6)
    assert str(refusal(short, SEALED)) == REFUSAL
    assert at(states(request_state_age=7), 6).open(BINDING, SEALED) == MEMORY


def test_a_state_from_the_future_does_not_open() -> None:
    assert at(states(), -30).open(BINDING, SEALED) == MEMORY  # another server's clock
    assert str(refusal(at(states(), -61), SEALED)) == REFUSAL
    assert str(refusal(at(states(), -NOW), SEALED)) == REFUSAL


def test_a_state_that_is_too_long_is_refused_both_ways() -> None:
    size = len(SEALED)
    assert states(request_state_bytes=size).open(BINDING, SEALED) == MEMORY
    small = states(request_state_bytes=size - 1)
    assert str(refusal(small, SEALED)) == REFUSAL
    assert str(refusal(states(), "A" * 16_000_000)) == REFUSAL
    with pytest.raises(ProtocolError, match=f"has {size} bytes.*request_state_bytes={size - 1}"):
        small.seal(BINDING, MEMORY)


@pytest.mark.parametrize(
    "value",
    [(1,), {1: 2}, {1, 2}, b"x", float("nan"), float("inf"), object(), attrs, "\ud800", 1j],
)
def test_what_would_come_back_as_something_else_cannot_be_remembered(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        states().seal(BINDING, Memory({"value": value}))


# Secrets ------------------------------------------------------------------------------------------


def test_the_first_secret_seals_and_all_of_them_open() -> None:
    rotated = states([b"new", "s"])
    assert rotated.open(BINDING, SEALED) == MEMORY
    fresh = rotated.seal(BINDING, MEMORY)
    assert states("new").open(BINDING, fresh) == MEMORY
    assert str(refusal(states("s"), fresh)) == REFUSAL
    assert str(refusal(states(["new", "newer"]), SEALED)) == REFUSAL


def test_without_a_secret_each_server_has_its_own() -> None:
    one = states(None)
    sealed = one.seal(BINDING, MEMORY)
    assert one.open(BINDING, sealed) == MEMORY
    assert str(refusal(states(None), sealed)) == REFUSAL


def test_what_was_sealed_for_something_else_does_not_open() -> None:
    assert str(refusal(states(), Cursors("s").seal("tools", 3))) == REFUSAL
    with pytest.raises(ProtocolError, match="cursor"):
        Cursors("s").open("tools", SEALED, int)
    keys = SecretKeys("s")
    assert Seal(keys, "cursor").open(Seal(keys, "other").close(b"x", NOW), None, 0) is None
    bare = Fernet(base64.urlsafe_b64encode(b"s".ljust(32, b"\0"))).encrypt(b"[]").decode()
    assert str(refusal(states(), bare)) == REFUSAL
    # Sealed by us, and not what is in a state.
    for data in (b"", b"[]", b"null", b"[[1,2,3,4],[{},{},[]]]", b"[" * 10_000):
        odd = Seal(keys, "request state").close(data, NOW)
        assert str(refusal(states(), odd)) == REFUSAL


@pytest.mark.parametrize("secret", ["", b"", [], [""], ["s", b""], ()], ids=repr)
def test_an_empty_secret_is_refused(secret: Any) -> None:
    with pytest.raises(ValueError, match="secret is empty"):
        states(secret)


@pytest.mark.parametrize("secret", [[1], 5, [None], [["s"]]], ids=repr)
def test_a_secret_is_text_or_bytes(secret: Any) -> None:
    with pytest.raises(TypeError):
        states(secret)


# Single use ---------------------------------------------------------------------------------------


def test_a_state_for_a_single_use_opens_once() -> None:
    made = states(single_use=True)
    other = made.seal(BINDING, MEMORY)
    assert made.open(BINDING, SEALED) == MEMORY
    assert str(refusal(made, SEALED)) == REFUSAL
    assert made.open(BINDING, other) == MEMORY
    assert states().open(BINDING, SEALED) == states().open(BINDING, SEALED)


def test_what_does_not_open_is_not_used() -> None:
    made = states(single_use=True, single_use_states=1)
    for _ in range(3):
        refusal(made, SEALED[:-8])
        refusal(made, SEALED, Binding("tools/call", "x", "", None))
    assert made.open(BINDING, SEALED) == MEMORY


def test_used_states_are_never_forgotten_before_they_are_too_old() -> None:
    made = states(single_use=True, single_use_states=2)
    one, two, three = (made.seal(BINDING, MEMORY) for _ in range(3))
    made.open(BINDING, one)
    made.open(BINDING, two)
    error = refusal(made, three)
    assert error.code == ErrorCode.OVERLOADED
    assert error.data == {"retryAfterMs": 1000}
    assert str(refusal(made, one)) == str(refusal(made, two)) == REFUSAL
    at(made, AGE)
    assert refusal(made, three).code == ErrorCode.OVERLOADED
    assert str(refusal(made, one)) == REFUSAL  # not too old yet, and remembered still
    at(made, AGE + 100)
    fresh = made.seal(BINDING, MEMORY)
    assert made.open(BINDING, fresh) == MEMORY
    for old in (one, two, three, fresh):
        assert str(refusal(made, old)) == REFUSAL


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), max_size=60))
def test_used_states_are_bounded_and_complete(steps: list[tuple[int, int]]) -> None:
    used, model, now = UsedStates(5), dict[bytes, int](), 0
    for passed, age in steps:
        now += passed
        name = os.urandom(8)
        model = {key: expires for key, expires in model.items() if expires >= now}
        assert used.is_full(now) == (len(model) >= 5)
        if len(model) < 5:
            used.add(name, now + age)
            model[name] = now + age
        assert len(used) == len(model)
        assert all(key in used for key in model)
