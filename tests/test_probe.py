"""`trio-mcp probe` tells apart a server that stops and one that runs on, on every transport."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.peers.commands import BOOKSHOP, COMMAND, run, write
from tests.peers.probed_server import server as probed_server
from tests.peers.processes import alive
from tests.peers.raw import until
from tests.peers.terminal import on_terminal
from tests.peers.typescript import TypeScriptSdk

from trio_mcp.cli.failure import CommandError
from trio_mcp.cli.probing import SocketTarget, parse_probe_target
from trio_mcp.probing import check_names, probe
from trio_mcp.probing.asked import Answer, Asked, ConversationLost
from trio_mcp.probing.evidence import Begun, Evidence, alive_in
from trio_mcp.probing.pace import Pace
from trio_mcp.probing.report import Report, Verdict
from trio_mcp.probing.runner import said
from trio_mcp.probing.speech import REVISIONS
from trio_mcp.probing.subject import (
    Command,
    HttpAddress,
    SocketAddress,
    Subject,
    WebSocketAddress,
)
from trio_mcp.probing.usage import usage_of
from trio_mcp.probing.work import Duration, Work, duration_of, found_work, named_work
from trio_mcp.runtime.models.tools import Tool, ToolAnnotations

PEERS = Path(__file__).parent / "peers"
PROBED = [sys.executable, str(PEERS / "probed_server.py")]
CARELESS = [sys.executable, str(PEERS / "careless_server.py")]
OFFICIAL = [sys.executable, str(PEERS / "official_server.py")]
WIRES = ("stdio", "http", "websocket", "tcp")
NEW, OLD = "2026-07-28", "2025-11-25"

SECONDS = Duration("seconds", 1, whole=False)
SLOW, STREAM, STUBBORN = (Work(name, {}, SECONDS) for name in ("slow", "stream", "stubborn"))
ALIVE = Work("alive", {}, None)

PATIENT = Pace(grace=10, settle=0.1, short=0.2)
"""For servers that stop: a busy machine makes none of them fail."""
BRIEF = Pace(grace=0.5, settle=0.1, work=3)
"""For servers that run on: to wait for that is all that takes time."""


@asynccontextmanager
async def subject_of(command: Sequence[str], wire: str) -> AsyncGenerator[Subject, None]:
    """A server on one of the wires, and how it is spoken to."""
    if wire == "stdio":
        yield Command(command)
        return
    process = await trio.lowlevel.open_process([*command, f"--{wire}"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        with trio.fail_after(20):
            port = int(await process.stdout.receive_some(100))
        if wire == "tcp":
            yield SocketAddress("127.0.0.1", port)
        elif wire == "http":
            yield HttpAddress(f"http://127.0.0.1:{port}/mcp")
        else:
            yield WebSocketAddress(f"ws://127.0.0.1:{port}/mcp")
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


async def probed(
    subject: Subject, *works: Work, pace: Pace, revision: str = NEW, **options: Any
) -> Report:
    options = {"crowd": 12, "witness": ALIVE, **options}
    return await probe(
        subject, works, target="", revision=revision, server="", tools=[], pace=pace, **options
    )


def verdicts(report: Report) -> dict[str, Verdict]:
    """Of each check, with its tool where it is about that."""
    return {f"{c.name} {c.tool}" if c.tool else c.name: c.verdict for c in report.checks}


async def probed_over_all(
    command: Sequence[str], *works: Work, pace: Pace, **options: Any
) -> dict[str, Report]:
    """On every wire, at the same time."""
    reports: dict[str, Report] = {}

    async def one(wire: str) -> None:
        async with subject_of(command, wire) as subject:
            reports[wire] = await probed(subject, *works, pace=pace, **options)

    async with trio.open_nursery() as nursery:
        for wire in WIRES:
            nursery.start_soon(one, wire)
    return reports


# Servers that stop, and servers that run on -------------------------------------------------------


async def test_our_own_server_passes_on_every_transport() -> None:
    reports = await probed_over_all(PROBED, SLOW, STREAM, pace=PATIENT)
    for wire, report in reports.items():
        assert report.transport == wire
        bad = [check for check in report.checks if check.verdict in ("fail", "unknown")]
        assert bad == []
        assert {check.name for check in report.checks} == set(check_names(wire, NEW))
        assert verdicts(report)["stops stream"] == "pass"
        (crowd,) = (check for check in report.checks if check.name == "crowd")
        assert (crowd.evidence, crowd.after is not None) == ("witness", True)
    assert verdicts(reports["http"])["stops-in-stream stream"] == "pass"
    assert verdicts(reports["http"])["stops-in-stream slow"] == "n/a"
    assert verdicts(reports["stdio"])["resources"] in ("pass", "n/a")


async def test_a_server_that_runs_on_and_answers_late_fails_on_every_transport() -> None:
    only = ("stops", "next", "silent", "disconnect", "unknown-id", "posted-cancel")
    reports = await probed_over_all(CARELESS, SLOW, pace=BRIEF, only=only)
    for wire, report in reports.items():
        found = verdicts(report)
        assert found.pop("stops slow") == "fail"
        assert found.pop("next") == "pass"
        if wire == "http":
            assert found == {"posted-cancel": "pass"}  # nothing else can be heard of it
            continue
        assert found.pop("silent") == "fail"
        assert found.pop("unknown-id") == "pass"
        assert found == ({} if wire == "stdio" else {"disconnect slow": "fail"})


async def test_a_unix_socket_is_a_transport(tmp_path: Path) -> None:
    with trio.socket.socket(trio.socket.AF_UNIX) as listening:
        await listening.bind(str(tmp_path / "socket"))
        listening.listen()
        async with trio.open_nursery() as nursery:
            listener = trio.SocketListener(listening)
            nursery.start_soon(trio.serve_listeners, probed_server.serve_stream, [listener])
            address = SocketAddress(str(tmp_path / "socket"), None)
            report = await probed(address, SLOW, pace=PATIENT, only=("stops", "disconnect"))
            nursery.cancel_scope.cancel("the probe is over")
    assert report.transport == "unix"
    assert verdicts(report) == {"stops slow": "pass", "disconnect slow": "pass"}


async def test_a_late_answer_is_evidence_enough_and_silence_is_none() -> None:
    only = ("stops", "twice")
    reports: dict[str, Report] = {}

    async def one(how: str) -> None:
        command = Command([*CARELESS, how])
        pace = Pace(grace=0.5, settle=0.1, work=1.5)
        reports[how] = await probed(command, SLOW, pace=pace, witness=None, only=only)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, "--mute")
        nursery.start_soon(one, "--loud")
    (late, _), (mute, _) = reports["--loud"].checks, reports["--mute"].checks
    assert (late.verdict, late.evidence) == ("fail", "late answer")
    assert (mute.verdict, mute.evidence) == ("unknown", "none")


async def test_work_that_swallows_its_cancellation_is_found_by_the_witness() -> None:
    only = ("stops", "silent")
    report = await probed(Command(PROBED), SLOW, STUBBORN, pace=BRIEF, only=only)
    assert verdicts(report) == {"stops slow": "pass", "stops stubborn": "fail", "silent": "pass"}
    assert report.counts == {"pass": 2, "fail": 1, "unknown": 0, "n/a": 0}


async def test_a_server_that_ends_at_a_cancel_is_a_failure_and_the_next_check_goes_on(
    tmp_path: Path,
) -> None:
    ends = (PEERS / "careless_server.py").read_text(encoding="utf-8")
    ends = ends.replace(
        'if "id" not in message:', 'if "id" not in message:\n            __import__("os")._exit(7)'
    )
    command = Command([sys.executable, str(write(tmp_path, "ends.py", ends))])
    report = await probed(command, SLOW, pace=BRIEF, only=("unknown-id", "too-late"))
    found = {check.name: check for check in report.checks}
    assert [check.verdict for check in report.checks] == ["fail", "fail"]
    assert "the server has exited with status 7" in found["too-late"].seen


# Servers of others --------------------------------------------------------------------------------


SHORT = Pace(grace=0.5, settle=0.1, short=0.3, work=1.5)


async def test_the_official_python_sdk_is_probed_in_either_revision() -> None:
    await their_probes(OFFICIAL, "http")


async def test_the_typescript_sdk_is_probed_in_either_revision(sdk: TypeScriptSdk) -> None:
    await their_probes(sdk.command("server.mjs", "--stdio"), "stdio")


async def their_probes(command: Sequence[str], wire: str) -> None:
    """What every release of theirs does, and no more."""
    sleep = Work("sleep", {}, SECONDS)
    only = ("next", "others", "posted-nonsense", "stream-lost")

    async def one(subject: Subject, revision: str) -> None:
        report = await probed(
            subject, sleep, pace=SHORT, revision=revision, witness=None, only=only
        )
        found = verdicts(report)
        assert (found["next"], found["others"]) == ("pass", "pass")
        assert ("stream-lost" in found) is (wire == "http" and revision == OLD)

    async with subject_of(command, wire) as subject, trio.open_nursery() as nursery:
        for revision in (NEW, OLD):
            nursery.start_soon(one, subject, revision)


# What is made of what is seen ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "count"),
    [
        ({"structuredContent": {"result": 3}, "content": []}, 3),
        ({"structuredContent": 0, "content": []}, 0),
        ({"content": [{"type": "text", "text": " 12\n"}]}, 12),
        ({"content": [{"type": "text", "text": "twelve"}]}, None),
        ({"content": [{"type": "text", "text": "1"}], "isError": True}, None),
        ({"structuredContent": {"result": True}, "content": []}, None),
        ({"content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]}, None),
        ({"content": 5}, None),
        (None, None),
    ],
)
def test_what_a_witness_says(result: Any, count: int | None) -> None:
    assert alive_in(result) == count


def tool(name: str, properties: Any, **options: Any) -> Tool:
    required = options.pop("required", [])
    schema = {"type": "object", "properties": properties, "required": required}
    return Tool(name, schema, **options)


READS = ToolAnnotations(read_only_hint=True)
NUMBER = {"type": "number"}


def test_only_a_tool_that_says_it_reads_is_run_by_guess() -> None:
    needs_more = tool(
        "render", {"seconds": NUMBER, "of": {}}, required=["seconds", "of"], annotations=READS
    )
    silent = tool("sleep", {"seconds": NUMBER})
    destroys = tool(
        "wipe",
        {"seconds": NUMBER},
        annotations=ToolAnnotations(read_only_hint=True, destructive_hint=True),
    )
    quick = tool("list", {"of": {"type": "string"}}, annotations=READS)
    odd = tool("odd", 7, annotations=READS)
    assert found_work([needs_more, silent, destroys, quick, odd]) is None
    wait = tool("wait", {"delay_ms": {"type": "integer"}}, annotations=READS)
    assert found_work([silent, wait]) == Work("wait", {}, Duration("delay_ms", 1000, whole=True))


def test_durations_are_told_in_the_tools_own_unit() -> None:
    said_ms = {"type": "number", "description": "How long, in milliseconds."}
    assert duration_of(tool("a", {"delay": said_ms})) == Duration("delay", 1000, whole=False)
    assert duration_of(tool("a", {"n": NUMBER})) is None
    assert duration_of(tool("a", {"n": NUMBER}), "n") == Duration("n", 1, whole=False)
    work = named_work(tool("a", {"ms": {"type": "integer"}, "of": {}}), {"of": "x"}, None)
    assert work.params(1.5) == {"name": "a", "arguments": {"of": "x", "ms": 1500}}
    assert (work.lasts(1.5), Work("a", {}, None).lasts(1.5)) == (1.5, None)


def asked_at(at: float, seconds: float | None = None) -> Asked:
    asked = Asked(1, "t", at, seconds)
    asked.cancelled_at = at
    return asked


@pytest.mark.parametrize("runs_on", [True, False])
async def test_a_file_that_changes_is_evidence(
    runs_on: bool, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async def nobody() -> None:
        raise AssertionError("there is no witness")

    effect = tmp_path / "effect"
    evidence = Evidence(Pace(), None, nobody, effect)
    async with trio.open_nursery() as nursery:
        mark = await evidence.mark()

        async def touch() -> None:
            for size in range(1 if not runs_on else 1000):
                effect.write_bytes(b"x" * (size + 1))
                await trio.sleep(0.05)

        nursery.start_soon(touch)
        asked = asked_at(trio.current_time())
        begun = await evidence.begun(mark, [asked])
        assert begun.seen == "effect"
        finding = await evidence.stopped(mark, begun, [asked], trio.current_time())
        nursery.cancel_scope.cancel()
    assert (finding.stopped, finding.evidence) == (not runs_on, "effect")


async def test_a_file_that_changes_at_the_end_is_waited_for(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async def nobody() -> None:
        raise AssertionError("there is no witness")

    evidence = Evidence(Pace(), None, nobody, tmp_path / "effect")
    mark = await evidence.mark()
    begun = Begun(None, trio.current_time(), None)
    asked = asked_at(trio.current_time(), seconds=8)
    finding = await evidence.stopped(mark, begun, [asked], trio.current_time())
    assert finding.stopped is True
    assert trio.current_time() >= asked.sent_at + 8
    unknown = await evidence.stopped(mark, begun, [asked_at(0)], trio.current_time())
    assert unknown.stopped is None


async def test_progress_after_the_grace_says_that_work_runs_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def none_alive() -> int:
        return 0

    evidence = Evidence(Pace(), "alive", none_alive, None)
    mark = await evidence.mark()
    asked = asked_at(trio.current_time())
    begun = Begun("1 alive", trio.current_time(), None)
    assert (await evidence.stopped(mark, begun, [asked], asked.sent_at)).stopped is True
    asked.progress.append(asked.sent_at + 5)
    finding = await evidence.stopped(mark, begun, [asked], asked.sent_at)
    assert (finding.stopped, finding.evidence) == (False, "progress")


class Burning(Evidence):
    """Of a process that uses a core until ``idle_from``, and then little of it."""

    idle_from = 0.0

    def _cpu(self) -> float:
        now = trio.current_time()
        return min(now, self.idle_from) + 0.02 * now


@pytest.mark.parametrize("runs_on", [True, False])
async def test_a_busy_process_that_goes_idle_is_evidence(
    runs_on: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async def nobody() -> None:
        raise AssertionError("there is no witness")

    evidence = Burning(Pace(), None, nobody, None)
    cancelled_at = trio.current_time() + Pace().settle
    evidence.idle_from = cancelled_at + (100 if runs_on else 0)
    mark = await evidence.mark()
    asked = asked_at(trio.current_time())
    begun = await evidence.begun(mark, [asked])
    finding = await evidence.stopped(mark, begun, [asked], cancelled_at)
    assert (finding.stopped, finding.evidence) == (not runs_on, "cpu")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
def test_what_a_process_uses() -> None:
    used = usage_of(os.getpid())
    assert used is not None
    before = used.descriptors
    with open(os.devnull):
        more = usage_of(os.getpid())
    assert more is not None
    assert more.descriptors == before + 1
    assert min(used.threads, used.rss, used.cpu) > 0
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert usage_of(ended.pid) is None


async def test_ids_and_tokens_are_compared_by_type() -> None:
    asked = Asked("1", "t", 0)
    asked.answers.append(Answer(1.0, {"id": "1", "error": {"message": "no"}}))
    assert said(asked) == "error: no"
    assert not asked.answers[0].is_result


async def test_a_revision_that_the_server_does_not_speak_is_told() -> None:
    with pytest.raises(ConversationLost, match="initialize"):
        await probed(Command(PROBED), SLOW, pace=PATIENT, revision=OLD)


# The command --------------------------------------------------------------------------------------


def test_json_and_the_exit_status_of_a_failure() -> None:
    words = ["--tool", "slow", "--tool", "stubborn", "--witness", "alive", "--grace", "0.4"]
    failed = run("probe", *words, "--only", "stops", "--json", "--", *PROBED)
    assert failed.returncode == 1, failed.stderr
    report = json.loads(failed.stdout)
    assert (report["revision"], report["server"]) == (NEW, "probed 1.0.0")
    assert report["tools"] == ["slow", "stubborn"]
    assert report["counts"] == {"pass": 1, "fail": 1, "unknown": 0, "n/a": 0}
    stops, runs_on = report["checks"]
    assert (stops["name"], stops["tool"], stops["verdict"]) == ("stops", "slow", "pass")
    assert (runs_on["tool"], runs_on["verdict"]) == ("stubborn", "fail")
    assert stops["specification"].startswith("Cancellation")


def test_a_line_for_each_check_and_a_tool_that_offers_itself() -> None:
    passed = run("probe", "--only", "unknown-id", "--", *PROBED)
    assert passed.returncode == 0, passed.stderr
    head, tools, line, counts = passed.stdout.splitlines()
    assert (head, tools) == (f"probed 1.0.0, stdio, revision {NEW}", "tools: slow; witness: none")
    assert line.startswith("pass     unknown-id: ")
    assert counts == "1 pass"


def test_a_table_on_a_terminal() -> None:
    words = ["probe", "--only", "unknown-id", "--", *PROBED]
    with on_terminal([*COMMAND, *words]) as terminal:
        assert terminal.end() == 0
    rows = [line.split() for line in terminal.seen.splitlines()]
    assert ["check", "what", "was", "seen", "evidence"] in rows
    assert any(row[:2] == ["unknown-id", "pass"] for row in rows)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tool", "slwo"], "did you mean slow?"),
        (["--tool", "slow=5"], "NAME=JSON"),
        (["--only", "everything"], "there is no check 'everything'"),
        (["--tool", "slow", "--duration", "minutes"], "has no parameter 'minutes'"),
        (["--grace", "0"], "more than 0 seconds"),
    ],
)
def test_what_makes_no_sense_is_exit_status_2(words: list[str], said: str) -> None:
    refused = run("probe", *words, "--", *PROBED)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert said in refused.stderr


def test_a_slow_tool_has_to_be_named_where_none_offers_itself() -> None:
    refused = run("probe", BOOKSHOP)
    assert refused.returncode == 2
    assert "--tool NAME" in refused.stderr


def test_targets() -> None:
    tcp = parse_probe_target("tcp://127.0.0.1:8000")
    assert tcp == SocketTarget(SocketAddress("127.0.0.1", 8000))
    assert (str(tcp), str(parse_probe_target("unix:/run/x"))) == (
        "tcp://127.0.0.1:8000",
        "unix:/run/x",
    )
    for wrong in ("tcp://127.0.0.1", "tcp://h:99999", "unix:"):
        with pytest.raises(CommandError):
            parse_probe_target(wrong)


async def test_ctrl_c_leaves_no_server_behind(tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    code = (
        "import os, sys, runpy; "
        f"open({str(noted)!r}, 'a').write(str(os.getpid()) + '\\n'); "
        f"sys.argv = ['x']; runpy.run_path({PROBED[1]!r}, run_name='__main__')"
    )
    words = ["probe", "--tool", "stubborn", "--witness", "alive", "--grace", "5"]
    process = await trio.lowlevel.open_process(
        [*COMMAND, *words, "--", sys.executable, "-c", code], stdin=subprocess.DEVNULL
    )
    with trio.fail_after(30):
        await until(lambda: noted.exists() and len(noted.read_text().split()) == 2, timeout=30)
        os.kill(process.pid, signal.SIGINT)
        assert await process.wait() == 130
    for pid in noted.read_text().split():
        assert not alive(int(pid))


def test_the_revisions_are_those_of_the_option() -> None:
    helped = run("probe", "--revision", "nonsense", "--", "true")
    assert all(revision in helped.stderr for revision in REVISIONS)
