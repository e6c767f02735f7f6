"""One kind of work, stopped in one way: what came of it, as facts.

``python -m tests.peers.stopping`` tries all of them, and writes the table in the documentation.
"""

from __future__ import annotations

import platform
import statistics
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import attrs
import trio
from tests.peers.inspection import exchanges, offloaded
from tests.peers.postgres import postgres, programs
from tests.peers.raw import until
from tests.peers.stops import STOPS, Stop
from tests.peers.work import KINDS, Postgresql, Work

from trio_mcp import Limits, Record, Server

__all__ = ["WINDOW", "Stopped", "stop", "table"]

WINDOW = 0.3
"""Clean-up window of a thread, seconds."""

PAGE = Path(__file__).parents[2] / "docs" / "cancellation.md"
BEGIN, END = "<!-- the table begins -->\n", "<!-- the table ends -->\n"


@attrs.frozen
class Stopped:
    """What was seen. ``stopped`` and ``undone``: by the time at which the request had ended.

    ``seconds`` is from the cancellation until the request had ended, on the server's clock.
    ``left`` is what the scope tree still has then, ``left_at_last`` once nothing keeps the work.
    """

    record: Record
    stopped: bool
    undone: bool
    seconds: float
    heard: tuple[Any, ...]
    left: tuple[str, ...]
    left_at_last: tuple[str, ...]


async def stop(kind: type[Work], way: type[Stop]) -> Stopped:
    """Have the work done, cancel its request in the middle of it, and look."""
    server = Server("stopped", version="1", limits=Limits(cleanup=WINDOW, drain=0.05))
    work, stop = kind(), way(server)
    async with work.opened():
        server.tool(name="work", timeout=work.patience if way.has_deadline else None)(work.tool)
        async with stop.called():
            await until(work.is_begun, timeout=10)
            await stop.strike()
            await until(lambda: _calls(server), timeout=10)
            (record,) = _calls(server)
            if work.stops:
                # The kernel says that a process is dead, or a connection closed, a moment later.
                await until(work.stopped, timeout=1)
            stopped, undone = work.stopped(), work.undone()
            assert not exchanges(server)
            left = tuple(scope.state for scope in offloaded(server))
            work.let_go()
            await until(lambda: not offloaded(server))
            await until(lambda: way.answer is None or stop.heard)
        seconds = record.cleanup_duration
        assert seconds is not None
        left_at_last = tuple(scope.label for scope in server.scopes().children)
        return Stopped(record, stopped, undone, seconds, tuple(stop.heard), left, left_at_last)


def _calls(server: Server) -> list[Record]:
    return [record for record in server.journal if record.method == "tools/call"]


# The table ----------------------------------------------------------------------------------------

RUNS = 3


async def table() -> str:
    """Milliseconds from the cancellation until the work had stopped, of all kinds in all ways."""
    lines = [
        "| the work | " + " | ".join(way.name for way in STOPS) + " | undone | on the record |\n",
        "| --- | " + " | ".join("---" for _ in STOPS) + " | --- | --- |\n",
    ]
    for kind in KINDS:
        cells, words = [], set()
        for way in STOPS:
            seen = [await stop(kind, way) for _ in range(RUNS)]
            milliseconds = statistics.median(one.seconds for one in seen) * 1000
            cells.append(f"{milliseconds:.1f}")
            words |= {_on_record(one.record) for one in seen}
        (word,) = words
        line = " | ".join([kind.name, *cells, kind.what_is_undone, word])
        lines.append(f"| {line} |\n")
    return "".join(lines)


def _on_record(record: Record) -> str:
    """What the journal says of the work, whatever the cause is."""
    facts = [f"clean-up `{record.cleanup}`"]
    for work in record.work:
        outcome = "abandoned" if work.abandoned else work.outcome
        signals = f" by {', '.join(work.signals)}" if work.signals else ""
        facts.append(f"{work.kind.value} `{outcome}`{signals}")
    facts += [f"late `{late.kind}`" for late in record.late]
    return ", ".join(facts)


def main() -> None:
    with postgres() if programs() else nullcontext("") as Postgresql.address:
        text = trio.run(table)
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    where = f"Python {platform.python_version()}, {platform.system()}"
    note = f"Median of {RUNS} runs, milliseconds; {where}.\n\n"
    PAGE.write_text(before + BEGIN + note + text + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
