"""The demo: fifty calls against the bookshop, and the account in the end."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from tests.peers.terminal import CTRL_C, on_terminal

from trio_mcp.cli.interrupts import Interrupts
from trio_mcp.demo import visit
from trio_mcp.demo.plan import plan

DEMO = [sys.executable, "-m", "trio_mcp", "demo"]

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


def test_demo_in_lines_where_there_is_no_terminal() -> None:
    result = subprocess.run(
        DEMO, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.stderr == ""
    assert result.stdout.endswith(SUMMARY)
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
    assert terminal.seen.replace("\r", "").endswith(SUMMARY)
    for state in ("running", "cancelling", "stopped", "done", "failed", "timed out"):
        assert re.search(rf"━+ {state}", terminal.seen), state
    widest = max(len(line) for line in terminal.seen.replace("\r", "").splitlines())
    assert widest <= columns


def test_ctrl_c_ends_the_demo_at_once() -> None:
    with on_terminal(DEMO) as terminal:
        terminal.until("stopped")
        terminal.type(CTRL_C)
        assert terminal.end(3) == 130


def test_the_plan_is_fifty_calls_that_start_at_different_times() -> None:
    starts = [at for at, _ in plan()]
    assert len(starts) == len(set(starts)) == 50
    assert max(starts) < 1


# That it would tell -------------------------------------------------------------------------------


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
