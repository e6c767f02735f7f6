"""The demo: a look around the showroom, fifty calls against the bookshop, and the account."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from rich.console import Console
from tests.peers.processes import alive
from tests.peers.terminal import CTRL_C, on_terminal

from trio_mcp.cli.interrupts import Interrupts
from trio_mcp.demo import tour, visit
from trio_mcp.demo.network_process import network_process
from trio_mcp.demo.plan import plan
from trio_mcp.runtime.errors import ConnectionLost
from trio_mcp.runtime.limits import Limits

DEMO = [sys.executable, "-m", "trio_mcp", "demo"]

TOUR = """\
A look around the shop

resource      shop://hours                9 to 17, but not on Sundays
template      stock://Dune                {"title":"Dune","copies":3}
prompt        recommend, liked: Dune      After Dune: Emma, Ulysses, Dracula?
completion    recommend, liked: d…        Dune, Dracula
pages         tools, two a page           order, look_up, close_shop; 2 pages
question      order Dune                  the shop asks: A gift? Which paper?
structured    its receipt, as JSON        {"title": "Dune", "paper": "stars"}
log           notice and above, of that   notice: 2 copies of Dune are left
subscription  stock://Dune, meanwhile     told; now {"title":"Dune","copies":2}
trace         4bf92f3577b34da6…           in both sides' journals
cancellation  catalogue://1904, given up  stopped, cleaned up; the light is off
closing time  close_shop                  the subscription ended in order

Fifty customers at once

"""

SUMMARY = """
                         customers      the shop
completed                       23            23
failed                           6             6
cancelled                       14 ┐
timed out                        7 ┘          21
late answers dropped                           3
clean-ups run                                 23
left over                                   none

Both sides agree. The server process has exited by itself, with status 0.
"""


@pytest.mark.parametrize("over", ["stdio", "http", "websocket"])
def test_demo_in_lines_where_there_is_no_terminal(over: str) -> None:
    options = [] if over == "stdio" else [f"--{over}"]
    result = subprocess.run(
        [*DEMO, *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.stderr == ""
    assert result.stdout.startswith(TOUR)
    summary = SUMMARY if over == "stdio" else SUMMARY.replace("by itself", "at SIGTERM")
    assert result.stdout.endswith(summary)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines_of(1, lines) == ["running", "done: Ordered 'Dune'."]
    assert lines_of(11, lines) == ["running", "cancelling: the customer left", "stopped"]
    assert lines_of(17, lines) == ["running", "timed out: timeout of 1.8 s"]
    assert lines_of(45, lines)[1].startswith("failed: There is no refund for 'Dune'")


def lines_of(number: int, lines: list[str]) -> list[str]:
    """How one call stood, one after the other."""
    matches = (re.match(rf" *[0-9.]+ s  #{number} .*?\): (.*)", line) for line in lines)
    return [match[1] for match in matches if match]


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (120, 60)])
def test_demo_as_a_live_table_on_a_terminal(columns: int, lines: int) -> None:
    with on_terminal(DEMO, columns=columns, lines=lines) as terminal:
        assert terminal.end(60) == 0
    assert terminal.seen.replace("\r", "").startswith(TOUR)
    assert terminal.seen.replace("\r", "").endswith(SUMMARY)
    for state in ("running", "cancelling", "stopped", "done", "failed", "timed out"):
        assert re.search(rf"━+ {state}", terminal.seen), state
    widest = max(len(line) for line in terminal.seen.replace("\r", "").splitlines())
    assert widest <= columns


@pytest.mark.parametrize("when", ["resource", "━ stopped"])
@pytest.mark.parametrize("options", [[], ["--http"], ["--websocket"]])
def test_ctrl_c_ends_the_demo_at_once_and_the_shop_too(options: list[str], when: str) -> None:
    with on_terminal([*DEMO, *options]) as terminal:
        terminal.until(when)
        threads = Path(f"/proc/{terminal.process.pid}/task").iterdir()
        shops = "".join((thread / "children").read_text() for thread in threads).split()
        terminal.type(CTRL_C)
        assert terminal.end(3) == 130
    assert when == "resource" or shops  # the showroom may have closed meanwhile
    assert not any(alive(int(shop)) for shop in shops)


# A server process over a network ------------------------------------------------------------------


async def test_a_shop_that_fails_at_its_start_is_quoted() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no bread')"]
    with pytest.raises(ConnectionLost, match="ended before it served") as lost:
        async with network_process(command, Limits()):
            pass
    assert (lost.value.exit_status, lost.value.stderr_tail) == (1, "no bread")


async def test_a_process_that_does_not_tell_its_address_is_killed() -> None:
    with pytest.raises(ConnectionLost, match="did not tell its address"):
        async with network_process(["sleep", "99"], Limits(connect=0.2, exit_wait=0.1)):
            pass


TELLS = "echo 'x: serving http://127.0.0.1:1/mcp; Ctrl-C' >&2; exec sleep 99"


async def test_a_process_is_ended_by_sigterm_or_killed() -> None:
    for ignore, status in (("", -15), ("trap '' TERM; ", -9)):
        limits = Limits(terminate_wait=0.3)
        async with network_process(["sh", "-c", ignore + TELLS], limits) as process:
            assert process.address == "http://127.0.0.1:1/mcp"
        assert (process.exit_status, process.in_time) == (status, not ignore)


async def test_a_process_that_was_told_to_end_gets_no_signal() -> None:
    ends_by_itself = TELLS.replace("sleep 99", "sleep 0.5")
    async with network_process(["sh", "-c", ends_by_itself], Limits()) as process:
        process.told = True
    assert (process.exit_status, process.in_time) == (0, True)


async def test_a_cancelled_block_leaves_no_process() -> None:
    with trio.CancelScope() as scope:
        async with network_process(["sh", "-c", TELLS], Limits()) as process:
            scope.cancel("enough")
            await trio.sleep_forever()
    assert process.exit_status == -9


def test_the_plan_is_fifty_calls_that_start_at_different_times() -> None:
    starts = [at for at, _ in plan()]
    assert len(starts) == len(set(starts)) == 50
    assert max(starts) < 1


# That it would tell -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "wrong", "complaints"),
    [
        ("page_size=2", "page_size=3", ["pages: expected 'order, look_up, close_shop; 2 pages'"]),
        ('notify_resource_updated(f"stock', 'notify_resource_updated(f"shop', ["subscription"]),
        ("with ctx.cleanup(5):", "if True:", ["cancellation"]),  # not shielded: the light stays on
        (
            'ctx.progress(1, 3, "in the cellar")',
            "return 'No.'",
            ["cancellation"],
        ),  # read to its end
        ('"notice"', '"info"', ["log"]),
        ("gift.content.paper", "None", ["structured"]),
        ("record.trace_id", "None", ["trace"]),
        ("signal.raise_signal(signal.SIGTERM)", "", ["closing time"]),
        (
            "signal.raise_signal(signal.SIGTERM)",
            "signal.raise_signal(signal.SIGKILL)",
            ["closing time", "the showroom's process ended with status -9"],
        ),
    ],
)
async def test_the_tour_complains_of_a_showroom_that_is_badly_written(
    right: str,
    wrong: str,
    complaints: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = await trio.Path(tour.SHOWROOM).read_text()
    assert right in text
    broken = tmp_path / "showroom.py"
    broken.write_text(text.replace(right, wrong))
    monkeypatch.setattr(tour, "SHOWROOM", str(broken))
    monkeypatch.setattr(tour, "_PATIENCE", 2)
    well, said = await look_around()
    assert not well
    told = re.findall("^WRONG: (.*)$", said, re.MULTILINE)
    assert len(told) == len(complaints), said
    for one, complaint in zip(told, complaints, strict=True):
        assert one.startswith(complaint)


async def look_around(width: int = 80) -> tuple[bool, str]:
    console = Console(width=width, file=io.StringIO())
    with console.capture() as capture:
        well = await tour.look_around(console, Interrupts())
    return well, capture.get()


async def test_the_tour_in_a_narrow_terminal() -> None:
    well, said = await look_around(40)
    assert well
    assert max(map(len, said.splitlines())) <= 40
    assert "\ncompletion\n  recommend, liked: d…\n  Dune, Dracula\n" in said


async def test_after_a_tour_with_complaints_there_are_no_customers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = await trio.Path(tour.SHOWROOM).read_text()
    broken = tmp_path / "showroom.py"
    broken.write_text(text.replace("9 to 17", "9 to 5"))
    monkeypatch.setattr(tour, "SHOWROOM", str(broken))
    assert await visit.visit(Interrupts()) == 1
    assert capsys.readouterr().out.endswith(
        "\nWRONG: resource: expected '9 to 17, but not on Sundays'\n"
    )


async def test_demo_fails_with_a_shop_that_is_badly_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = await trio.Path(visit.BOOKSHOP).read_text()
    for right, wrong in {
        "with ctx.cleanup(5):": "if True:",  # not shielded: the copies are never given back
        "rebuilds.discard(ctx.key)": "pass",
    }.items():
        assert right in text
        text = text.replace(right, wrong)
    broken = tmp_path / "bookshop.py"
    broken.write_text(text)
    monkeypatch.setattr(visit, "BOOKSHOP", str(broken))
    assert await visit.visit(Interrupts()) == 1
    said = capsys.readouterr().out
    assert "WRONG: left over: 10 holds, 8 rebuilds" in said
    assert "Both sides agree" not in said


GOOD = visit.Summary(
    seen=Counter({"done": 5, "failed": 1, "stopped": 3, "timed out": 1}),
    crossed=0,
    account={
        "completed": 5, "failed": 1, "cancelled": 4, "late": 1, "cleanups": 4,
        "unclean": 0, "holds": 0, "rebuilds": 0, "handlers": 0, "threads": 0,
    },
    exit_status=0,
    by_itself=True,
)  # fmt: skip


def test_a_good_summary_has_no_complaints() -> None:
    assert GOOD.complaints == []
    answers_crossed = {"completed": 6, "cancelled": 3}
    assert changed(crossed=1, account={**GOOD.account, **answers_crossed}).complaints == []


def changed(**changes: Any) -> visit.Summary:
    return attrs.evolve(GOOD, **changes)


@pytest.mark.parametrize(
    ("summary", "complaint"),
    [
        (changed(seen=Counter({"done": 6, "running": 4})), "some calls have not ended"),
        (changed(seen=Counter({"done": 4, "failed": 1, "stopped": 5})), "the shop answered other"),
        (changed(seen=Counter({"done": 5, "failed": 1, "stopped": 5})), "the shop stopped other"),
        (changed(account={**GOOD.account, "unclean": 1}), "1 clean-ups were not clean"),
        (changed(account={**GOOD.account, "holds": 2}), "left over: 2 holds"),
        (changed(account={**GOOD.account, "rebuilds": 1}), "left over: 1 rebuilds"),
        (changed(account={**GOOD.account, "handlers": 1}), "left over: 1 handlers"),
        (changed(account={**GOOD.account, "threads": 1}), "left over: 1 threads"),
        (changed(exit_status=1), "the server process ended with status 1"),
        (changed(exit_status=-9), "the server process ended with status -9"),
        (changed(by_itself=False), "the server process had to be told to end"),
    ],
)
def test_a_bad_summary_is_complained_of(summary: visit.Summary, complaint: str) -> None:
    assert any(said.startswith(complaint) for said in summary.complaints)
