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
from tests.peers.processes import alive
from tests.peers.terminal import CTRL_C, on_terminal

from trio_mcp.cli.interrupts import Interrupts
from trio_mcp.demo import visit
from trio_mcp.demo.network_process import network_process
from trio_mcp.demo.plan import plan
from trio_mcp.runtime.errors import ConnectionLost
from trio_mcp.runtime.limits import Limits

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
    assert terminal.seen.replace("\r", "").endswith(SUMMARY)
    for state in ("running", "cancelling", "stopped", "done", "failed", "timed out"):
        assert re.search(rf"━+ {state}", terminal.seen), state
    widest = max(len(line) for line in terminal.seen.replace("\r", "").splitlines())
    assert widest <= columns


@pytest.mark.parametrize("options", [[], ["--http"], ["--websocket"]])
def test_ctrl_c_ends_the_demo_at_once_and_the_shop_too(options: list[str]) -> None:
    with on_terminal([*DEMO, *options]) as terminal:
        terminal.until("stopped")
        threads = Path(f"/proc/{terminal.process.pid}/task").iterdir()
        shop = "".join((thread / "children").read_text() for thread in threads)
        terminal.type(CTRL_C)
        assert terminal.end(3) == 130
    assert not alive(int(shop))


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
