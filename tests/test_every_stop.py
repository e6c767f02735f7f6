"""Each kind of work, cancelled in each way: it stops, what it began is undone, the journal says so.

The table of ``docs/cancellation.md`` has what was measured when this was run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.peers.postgres import postgres, programs
from tests.peers.stopping import BEGIN, END, PAGE, WINDOW, stop
from tests.peers.stops import STOPS, Stop
from tests.peers.work import KINDS, DeafThread, Postgresql, Work

from trio_mcp import ErrorCode, State


@pytest.fixture(scope="module", autouse=True)
def database() -> Iterator[None]:
    if programs() is None:
        yield
        return
    with postgres() as Postgresql.address:
        yield


@pytest.mark.parametrize("way", STOPS, ids=lambda way: way.name)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
async def test_work_stops_with_its_request(kind: type[Work], way: type[Stop]) -> None:
    if (reason := kind.missing()) is not None:
        pytest.skip(reason)
    seen = await stop(kind, way)
    record = seen.record

    assert record.state is State.CANCELLED
    assert record.cause is not None
    assert record.cause.source is way.source
    assert record.extra_cancels <= 1  # the end of the wire, once it has been cancelled
    codes = [message["error"]["code"] for message in seen.heard]
    assert codes == ([] if way.answer is None else [way.answer])
    assert seen.left_at_last in ((), ("memory",))

    if kind is DeafThread:
        assert not seen.stopped
        assert seen.left == ("abandoned",)
        assert record.cleanup == "abandoned"
        assert seen.seconds >= WINDOW
        assert [late.kind for late in record.late] == ["result"]
    else:
        assert seen.stopped
        assert seen.undone
        assert seen.left == ()
        assert record.cleanup == "clean"
        assert record.late == ()
        assert all(work.outcome in ("stopped", "result") for work in record.work)


def test_the_table_in_the_docs_has_all_of_them() -> None:
    text = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    head, _, *rows = re.findall(r"^\| (.+) \|$", text, flags=re.MULTILINE)
    ways = [way.name for way in STOPS]
    assert head.split(" | ") == ["the work", *ways, "undone", "on the record"]
    named = {}
    for row in rows:
        name, *times, undone, _ = row.split(" | ")
        assert len(times) == len(ways)
        named[name] = undone
    assert named == {kind.name: kind.what_is_undone for kind in KINDS}


def test_the_answers_are_those_of_the_table_of_sources() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for way in STOPS:
        (row,) = re.findall(rf"^\| `{way.source.name}` \| .+$", text, flags=re.MULTILINE)
        assert (str(ErrorCode(way.answer).value) in row) if way.answer else "nothing" in row
