"""Cancelling at the head of a chain of servers ends the command at its tail.

How long it takes is measured by ``python -m tests.peers.chain``.
"""

from __future__ import annotations

from pathlib import Path

from tests.peers.chain import TRACE, chain
from tests.peers.raw import until

from trio_mcp import CancelSource, Record, State


def calls(journal: object) -> list[Record]:
    return [record for record in journal if record.method == "tools/call"]  # type: ignore[attr-defined]


async def test_a_cancellation_reaches_the_end_of_the_chain(tmp_path: Path) -> None:
    async with chain(tmp_path) as made:
        await made.cancel()
        await until(lambda: made.tail_records and calls(made.middle.journal))

        (head,) = calls(made.head.journal)
        (middle,) = calls(made.middle.journal)
        (onward,) = calls(made.onward.journal)
        (tail,) = made.tail_records
        sources = []
        for record in (head, middle, onward):
            assert record.state is State.CANCELLED
            assert record.trace_id == TRACE.trace_id
            assert record.cause is not None
            sources.append(record.cause.source)
        assert sources == [CancelSource.CALLER, CancelSource.DISCONNECT, CancelSource.CALLER]
        state, source, trace_id, cleanup, work = tail
        assert (state, source, trace_id) == ("cancelled", "notification", TRACE.trace_id)
        assert (cleanup, work) == ("clean", ["process sh SIGTERM exit status -15"])


async def test_each_hop_stays_usable(tmp_path: Path) -> None:
    async with chain(tmp_path) as made:
        for count in range(1, 4):
            await made.cancel()
            await until(lambda: len(made.tail_records) == count)  # noqa: B023
        assert made.head.calls() == made.onward.calls() == ()
