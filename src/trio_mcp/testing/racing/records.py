"""What a record says of an exchange, held against what the wire and Trio's clock have shown."""

from __future__ import annotations

from collections.abc import Iterator

from ...runtime.journal import Record
from ...runtime.lifecycle import CancelSource, State
from .breach import Breach
from .playing import Play
from .raced import Script
from .traces import Trace, is_about, is_answer

__all__ = ["faults_of"]


def faults_of(play: Play, record: Record) -> Iterator[Breach]:
    """Where the journal tells another story than the trace."""
    for note in (*_times(play.trace, record), *_counts(play, record)):
        yield Breach("disagrees", note)
    if play.script is not None:
        for note in _clean_up(play.trace, record, play.script):
            yield Breach("disagrees", note)
    yield from _drain(play, record)
    yield from _last_report(play, record)


def _times(trace: Trace, record: Record) -> Iterator[str]:
    """Invariant 12: all of them are Trio's."""
    recorded = trace[_first(trace, "recorded")].at
    ends = [event.at for event in trace if event.what == "written" and is_answer(event.message)]
    ended = ends[0] if ends else recorded
    opened, began = trace.first("opened"), trace.first("began")
    if opened is not None and record.received_at != trace[opened].at:
        yield f"it came at {trace[opened].at:g} s, and the record says {record.received_at:g} s"
    if record.ended_at != ended:
        yield f"it ended at {ended:g} s, and the record says {record.ended_at:g} s"
    if (record.started_at is None) is not (began is None):
        how = "has not begun" if began is None else "has begun"
        yield f"its handler {how}, and the record says {record.started_at}"
    if record.started_at is not None and not record.received_at <= record.started_at <= ended:
        yield f"it came and ended before and after {record.started_at:g} s, when it began"
    cause, begun = record.cause, [event for event in trace if event.cause is not None]
    if cause is None or cause.source is CancelSource.DEADLINE or not begun:
        return  # a deadline is noted when somebody looks
    if cause.received_at != begun[0].at:
        at = begun[0].at
        yield f"it was cancelled at {at:g} s, and the record says {cause.received_at:g} s"


def _counts(play: Play, record: Record) -> Iterator[str]:
    trace = play.trace
    said = [event.message for event in trace if event.what == "written"]
    sent = sum(one.get("method") == "notifications/progress" and is_about(one) for one in said)
    if record.progress_sent != sent:
        yield f"{sent} reports were sent, and the record says {record.progress_sent}"
    cancelled = record.state is State.CANCELLED
    stopped = any(State.CANCELLING in (event.states or ()) for event in trace)
    if stopped and record.started_at is not None and record.cleanup is None:
        yield "it was cancelled, and the record does not say what became of its clean-up"
    again = _cancels_while_it_stops(trace) - 1
    if cancelled and record.extra_cancels < again:
        yield f"{again} more cancels came, and the record says {record.extra_cancels}"


def _cancels_while_it_stops(trace: Trace) -> int:
    """Those of the client that came before it had ended, for sure: in an earlier tick."""
    last = trace[_first(trace, "recorded")].tick
    return sum(
        event.what == "read"
        and event.message["method"] == "notifications/cancelled"
        and event.tick < last
        for event in trace
    )


def _clean_up(trace: Trace, record: Record, script: Script) -> Iterator[str]:
    """What the tool of the library's own has done: it knows."""
    if record.cleanups != script.cleanups:
        yield f"{script.cleanups} clean-ups have run, and the record says {record.cleanups}"
    wanted: tuple[str | None, ...] = (None,)
    if record.cause is not None:
        at = trace.first("outcome")
        failed = at is not None and trace[at].text == "error"  # then or before it was cancelled
        wanted = ("clean", "error") if failed else ("clean",)
    if record.cleanup not in wanted:
        yield f"all clean-up went well, and the record says {record.cleanup}"
    if script.was_cut_off and record.state is State.COMPLETED:
        yield "a child of the handler was cut off, and the record says completed"


def _drain(play: Play, record: Record) -> Iterator[Breach]:
    """A server that is shut down gives what is in flight its time."""
    cause, limit = record.cause, play.drain_limit
    if cause is None or cause.source is not CancelSource.SHUTDOWN or play.shut_down_at is None:
        return
    given = cause.received_at - play.shut_down_at
    if given < limit:
        note = f"the server was shut down, and gave it {given:g} s of its drain limit, {limit:g} s"
        yield Breach("disagrees", note)


def _last_report(play: Play, record: Record) -> Iterator[Breach]:
    """The last report of progress leaves before the answer."""
    newest = play.newest_report
    if newest is None or record.state not in (State.COMPLETED, State.FAILED):
        return
    for index in play.trace.indices("written"):
        message = play.trace[index].message
        if is_answer(message):
            yield Breach("progress", f"the answer came without the last report, {newest:g}", index)
            return
        progress = message.get("method") == "notifications/progress" and is_about(message)
        if progress and message["params"]["progress"] >= newest:
            return


def _first(trace: Trace, what: str) -> int:
    return next(index for index, event in enumerate(trace) if event.what == what)
