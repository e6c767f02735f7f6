"""What must hold after every order, whatever it was: held against what the wire has shown.

The wire's word counts. What the server has read, and when, decides what it may still say; the
journal, the client's view and the handler's own outcome have to agree with that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...runtime.journal import Record
from ...runtime.lifecycle import ANSWERED, TRANSITIONS, CancelSource, State
from .breach import Breach
from .playing import Play
from .records import faults_of
from .traces import PROBE, Trace, is_about, is_answer

__all__ = ["breaches"]

_SILENT = (CancelSource.NOTIFICATION, CancelSource.DISCONNECT, CancelSource.STALLED)


def breaches(
    play: Play, usual: str | None, leaks: list[str], check_failed: str | None
) -> Iterator[Breach]:
    """All of one order. ``usual`` is the handler's outcome if nothing happens to it."""
    watch = play.watch
    if watch.unbounded is not None:
        place, note = watch.unbounded
        where = f", at {place}: {place.source}" if place is not None else ""
        yield Breach("unbounded", note + where)
    if watch.given_up:
        return  # what follows is our own doing
    if play.crash is not None:
        error = play.crash
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        yield Breach("crashed", f"the server ended with {type(error).__name__}: {error}")
    yield from _terminal_state(play)
    yield from _answers(play)
    yield from _words(play.trace)
    yield from _progress(play.trace)
    if len(play.records) == 1:
        (record,) = play.records
        yield from _agreement(play, record)
        yield from _late(play.trace, record)
        yield from _clean_up(play, record, usual)
        yield from faults_of(play, record)
    yield from _connection(play)
    yield from _beside(play)
    yield from _late_request(play)
    for at, what in play.outlived:
        end = "in the journal" if play.trace[at].what == "recorded" else "answered"
        yield Breach("leaked", f"the request is {end}, and {what}", at)
    for leak in [*play.left, *leaks]:
        yield Breach("leaked", leak)
    if check_failed is not None:
        yield Breach("clean-up", check_failed, None, play.struck_at)


def _terminal_state(play: Play) -> Iterator[Breach]:
    """Invariant 1: one terminal state, reached through the table; one record."""
    if play.exchange is None:
        if not play.shut_down:
            yield Breach("terminal state", "the server has not taken the request")
        return
    for index in play.trace.indices("state"):
        before, after = play.trace[index].states or (State.RUNNING, State.RUNNING)
        if not _leads(before, after):
            yield Breach("terminal state", f"it went from {before.value} to {after.value}", index)
    state = play.exchange.state
    if TRANSITIONS[state]:
        yield Breach("terminal state", f"all is over, and it is still {state.value}")
    records = play.trace.indices("recorded")
    if len(records) != 1:
        at = records[1] if len(records) > 1 else None
        yield Breach("terminal state", f"the journal has {len(records)} records of it", at)
    for record in play.records:
        if record.state is not state:
            note = f"it is {state.value}, and its record says {record.state.value}"
            yield Breach("terminal state", note)


def _leads(before: State, after: State) -> bool:
    """Whether the table leads from one state to the other; in one step of a task, maybe two."""
    nexts = set(TRANSITIONS[before].values())
    return after in nexts or any(after in TRANSITIONS[one].values() for one in nexts)


def _answers(play: Play) -> Iterator[Breach]:
    """Invariant 3: at most one; one if it has ended, and the client has neither cancelled nor
    left by then."""
    trace = play.trace
    answers = _answered(trace)
    if len(answers) > 1:
        yield Breach("answers", f"the client has got {len(answers)} answers", answers[1])
    settled, stop = trace.first("settled"), _stop(trace)
    stays = settled is not None and (stop is None or stop > settled)
    if answers and stays and not play.answer_is_whole:
        yield Breach("answers", "the answer has come, and its HTTP response has no end", answers[0])
    if answers or settled is None or trace.first("read") is None:
        return
    outcome = trace.first("outcome")
    waits = stop is None or stop > settled
    over = play.shut_down or (outcome is not None and outcome < settled)
    if waits and over:
        yield Breach("answers", "the client waits, and has got no answer", settled)


def _words(trace: Trace) -> Iterator[Breach]:
    """Invariant 2: nothing about it after the client's cancel, nor after its answer."""
    stop = _stop(trace)
    answers = _answered(trace)
    for index in trace.indices("written"):
        message = trace[index].message
        if not is_about(message):
            if message.get("id") != PROBE:
                note = f"the server sent {_in_words(message)}, which belongs to no request"
                yield Breach("spoke", note, index)
            continue
        what = _in_words(message)
        if stop is not None and _is_heeded(trace, stop, index):
            why = "closed the connection" if trace[stop].what == "eof" else "cancelled it"
            yield Breach("spoke", f"the server sent {what} after the client had {why}", index)
        elif answers and index > answers[0] and not is_answer(message):
            yield Breach("spoke", f"the server sent {what} after the answer", index)

    for index in trace.indices("bytes"):
        if stop is not None and _is_heeded(trace, stop, index):
            note = f"the server sent {trace[index].text} after the client had closed the connection"
            yield Breach("spoke", note, index)


def _is_heeded(trace: Trace, stop: int, index: int) -> bool:
    """Whether what has stopped it must have had its effect by then. A cancel has it as it is read.
    An end of the connection has it a tick later, and does not concern a request that was refused.
    """
    if index < stop:
        return False
    if trace[stop].what != "eof":
        return True
    return trace[index].tick > trace[stop].tick + 1 and trace.first("opened") is not None


def _in_words(message: Any) -> str:
    if not is_answer(message):
        return str(message.get("method") or "an error that names it")
    return "an error" if "error" in message else "a result"


def _progress(trace: Trace) -> Iterator[Breach]:
    last = float("-inf")
    for index in trace.indices("written"):
        message = trace[index].message
        if message.get("method") == "notifications/progress" and is_about(message):
            value = message["params"]["progress"]
            if value <= last:
                yield Breach("progress", f"it went from {last:g} to {value:g}", index)
            last = value


def _agreement(play: Play, record: Record) -> Iterator[Breach]:
    """The journal says what the client has seen, and the first cause has won."""
    trace = play.trace
    answers = _answered(trace)
    if answers:
        failed = "error" in trace[answers[0]].message
        fits = record.state is State.COMPLETED
        if failed:
            fits = record.state is State.FAILED or _is_told(record)
        if not fits or record.delivered is not play.delivered:
            what = "an error" if failed else "a result"
            yield Breach("disagrees", f"the client has got {what}, and {_says(record)}", answers[0])
        is_told = record.is_error or (record.error is not None and failed)
        if _fails(trace[answers[0]].message) and not is_told and record.cause is None:
            note = "the client has got an error, and the record says nothing of one"
            yield Breach("disagrees", note, answers[0])
    elif (
        record.state is not State.CANCELLED
        or record.delivered is not None
        or (record.cause is not None and record.cause.source in ANSWERED and _stop(trace) is None)
    ):
        yield Breach("disagrees", f"the client has got no answer, and {_says(record)}")
    yield from _cause(play, record)


def _fails(message: Any) -> bool:
    """Whether an answer tells of an error of the handler."""
    result = message.get("result")
    return "error" in message if result is None else result.get("isError") is True


def _cause(play: Play, record: Record) -> Iterator[Breach]:
    trace, cause = play.trace, record.cause
    if (cause is not None) != (record.state is State.CANCELLED):
        yield Breach("disagrees", f"the cause is {cause}, and {_says(record)}")
    stop = _stop(trace)
    if stop is not None and _runs_at(trace, stop):
        yield from _cause_is(trace, stop, record)
    elif cause is not None and cause.source in _SILENT and stop is None:
        yield Breach("disagrees", f"no client has asked for it, and {_says(record)}")
    if cause is not None and cause.source is CancelSource.SHUTDOWN and not play.shut_down:
        yield Breach("disagrees", f"nobody has shut the server down, and {_says(record)}")
    for index in trace.indices("state"):
        begun = trace[index].cause
        if begun is not None and cause is not None and begun != cause:
            note = f"its first cause was {begun.source.value}, and {_says(record)}"
            yield Breach("disagrees", note, index)


def _runs_at(trace: Trace, stop: int) -> bool:
    """Whether it runs when something stops it; if that has its effect later, still then."""
    opened = trace.first("opened")
    if opened is None:
        return False
    for index in trace.indices("state"):
        states = trace[index].states
        if states is not None and states[0] is State.RUNNING:
            return index > stop and (
                trace[stop].what != "eof"
                or trace[index].tick > trace[stop].tick + 1
                or _source_at(trace, index) in _SILENT
            )
    return True


def _cause_is(trace: Trace, stop: int, record: Record) -> Iterator[Breach]:
    cause = record.cause
    wanted = CancelSource.NOTIFICATION
    if trace[stop].what == "eof":
        wanted = CancelSource.DISCONNECT
    if cause is None or cause.source not in (wanted, CancelSource.DEADLINE):
        yield Breach("disagrees", f"it ran when {wanted.value} came, and {_says(record)}", stop)
    elif cause.source is CancelSource.NOTIFICATION:
        reason = trace[stop].message["params"].get("reason")
        if cause.reason != reason:
            note = f"the reason was {reason!r}, and the record says {cause.reason!r}"
            yield Breach("disagrees", note, stop)


def _source_at(trace: Trace, index: int) -> CancelSource | None:
    cause = trace[index].cause
    return None if cause is None else cause.source


def _late(trace: Trace, record: Record) -> Iterator[Breach]:
    """An outcome that does not leave is in the record, and nowhere else."""
    at = trace.first("outcome")
    outcome = trace[at].text if at is not None else "cancelled"
    kinds = [late.kind for late in record.late]
    if record.state is State.CANCELLED and outcome != "cancelled" and not kinds:
        note = f"the handler's {outcome} came too late, and is not in the record"
        yield Breach("late outcome", note, at)
    state = trace.first("state")
    failed = at is not None and state is not None and at < state  # a child of it has, if it was not
    if kinds.count("result") > (outcome != "cancelled" or failed):  # an error may be told as one
        note = f"the handler's outcome: {outcome}; late in the record: {', '.join(kinds)}"
        yield Breach("late outcome", note, at)
    if record.state is not State.CANCELLED and kinds:
        yield Breach("late outcome", f"one is recorded as late, and {_says(record)}", at)


def _clean_up(play: Play, record: Record, usual: str | None) -> Iterator[Breach]:
    """The handler has let its cancellation through."""
    at = play.trace.first("outcome")
    error = play.failures.describe() or record.error
    delivered = play.watch.delivered
    late = [one.kind for one in record.late]
    if delivered and "result" in late:
        note = "trio.Cancelled was raised in the handler, and it returned a result"
        yield Breach("swallowed", note, at, play.struck_at)
    if "error" in late:
        state = play.trace.first("state")
        in_time = at is not None and state is not None and at < state  # and only late to be told
        if not in_time and (delivered or usual != "error"):
            yield Breach("raised", f"the handler was cancelled, and out came {error}", at)
    elif record.cleanup == "error":
        yield Breach("raised", f"its clean-up raised {error}", at)
    if record.cleanup == "timed out":
        note = "a clean-up block, or on_exit, ran into its limit"
        yield Breach("clean-up", note, at, play.struck_at)
    if record.cleanup == "abandoned":
        yield Breach("leaked", "work that was abandoned", at)


def _connection(play: Play) -> Iterator[Breach]:
    """Invariant 6: another request on it is served as ever."""
    if not play.asked_for_probe:
        return
    for index in play.trace.indices("written"):
        message = play.trace[index].message
        if message.get("id") == PROBE and "result" in message:
            return
    yield Breach("connection", "a second request on the same connection has got no answer")


def _late_request(play: Play) -> Iterator[Breach]:
    """A server that drains takes no more requests."""
    if any("result" in message for message in play.said_late):
        yield Breach("connection", "a request was served that came while the server drained")


def _beside(play: Play) -> Iterator[Breach]:
    """Invariant 6: what happens to a request is nothing to the one beside it."""
    beside = play.beside
    if beside is None:
        return  # it was refused, as the server has no room, or ended first
    cause = beside.cause
    if play.closes_for_all and cause is not None and cause.source is CancelSource.DISCONNECT:
        return
    if play.closes_for_all and not play.shut_down:
        yield Breach("disagrees", "the client has left, and a request beside it was not cancelled")
        return
    results = sum("result" in message for message in play.said_beside)
    if beside.state is State.COMPLETED and results == len(play.said_beside) == 1:
        return
    why = f" by {cause.source.value}" if cause is not None else ""
    note = f"a request beside it is {beside.state.value}{why}, and has got {results} results"
    yield Breach("connection", note)


def _answered(trace: Trace) -> list[int]:
    return [index for index in trace.indices("written") if is_answer(trace[index].message)]


def _stop(trace: Trace) -> int | None:
    """When the server has first read that the client wants no answer."""
    for index, event in enumerate(trace):
        if event.what == "eof":
            return index
        if event.what == "read" and event.message["method"] == "notifications/cancelled":
            return index
    return None


def _is_told(record: Record) -> bool:
    """Whether the client is to hear that it was cancelled."""
    cause = record.cause
    return record.state is State.CANCELLED and cause is not None and cause.source in ANSWERED


def _says(record: Record) -> str:
    """What a record says, for people."""
    cause = f" by {record.cause.source.value}" if record.cause is not None else ""
    delivered = {None: "nothing to deliver", True: "delivered", False: "not delivered"}
    return f"the journal says {record.state.value}{cause}, {delivered[record.delivered]}"
