"""`trio-mcp probe` tells apart a server that stops and one that runs on, on every transport."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trustme
from tests.peers.commands import BOOKSHOP, COMMAND, only_line, run, write
from tests.peers.probed_server import server as probed_server
from tests.peers.processes import alive
from tests.peers.raw import until
from tests.peers.terminal import on_terminal
from tests.peers.typescript import TypeScriptSdk

from trio_mcp.cli.failure import CommandError
from trio_mcp.cli.probing import parse_probe_target
from trio_mcp.cli.targets import SocketTarget
from trio_mcp.probing import check_names, probe
from trio_mcp.probing.asked import Answer, Asked, ConversationLost
from trio_mcp.probing.evidence import Begun, Evidence, Rehearsal, alive_in
from trio_mcp.probing.pace import Pace
from trio_mcp.probing.report import Check, Report, Verdict
from trio_mcp.probing.runner import said
from trio_mcp.probing.speech import REVISIONS
from trio_mcp.probing.subject import (
    Command,
    HttpAddress,
    SocketAddress,
    Subject,
    WebSocketAddress,
)
from trio_mcp.probing.usage import Usage, usage_of
from trio_mcp.probing.work import Duration, Work, duration_of, found_work, named_work
from trio_mcp.runtime.models.tools import Tool, ToolAnnotations

PEERS = Path(__file__).parent / "peers"
PROBED = [sys.executable, str(PEERS / "probed_server.py")]
CARELESS = [sys.executable, str(PEERS / "raw_server.py")]
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


async def test_a_witness_that_returns_no_number_is_named() -> None:
    says = Work("slow", {"seconds": 0}, None)
    report = await probed(Command(PROBED), SLOW, pace=SHORT, witness=says, only=("stops",))
    (check,) = report.checks
    assert (check.verdict, check.evidence) == ("unknown", "none")
    assert check.seen.startswith("the witness 'slow' returned 'waited', no number; ")


async def test_a_witness_that_always_returns_the_same_is_named(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def five() -> int:
        return 5

    evidence = Evidence(Pace(), "alive", five, None)
    mark, asked = await evidence.mark(), asked_at(trio.current_time())
    begun = await evidence.begun(mark, [asked])
    finding = await evidence.stopped(mark, begun, [asked], trio.current_time())
    assert finding.stopped is None
    assert finding.seen.startswith("the witness 'alive' returned 5 before, meanwhile and")


def test_a_tool_without_its_arguments_is_told_how_to_get_them() -> None:
    told = run("probe", "--tool", "order_book", "--only", "stops", BOOKSHOP)
    assert "its arguments are given as --tool order_book='{\"title\": …}'" in told.stdout


async def test_work_that_swallows_its_cancellation_is_found_by_the_witness() -> None:
    only = ("stops", "silent")
    report = await probed(Command(PROBED), SLOW, STUBBORN, pace=BRIEF, only=only)
    assert verdicts(report) == {"stops slow": "pass", "stops stubborn": "fail", "silent": "pass"}
    assert report.counts == {"pass": 2, "fail": 1, "unknown": 0, "n/a": 0}


async def test_a_server_that_ends_at_a_cancel_is_a_failure_and_the_next_check_goes_on(
    tmp_path: Path,
) -> None:
    ends = (PEERS / "raw_server.py").read_text(encoding="utf-8")
    ends = ends.replace("self._cancelled.append(key)", "os._exit(7)")
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


# On every wire that a client can connect to, end to end -------------------------------------------


@attrs.frozen
class Wired:
    """How the raw server is told of a wire, how it is addressed there, and what a probe calls it.

    :param stops: the check that cancels a running tool there.
    """

    words: tuple[str, ...]
    address: str | None
    transport: str
    stops: str = "stops"


EVERY_WIRE = {
    "stdio": Wired((), None, "stdio"),
    "stdio-session": Wired(("--session",), None, "stdio"),
    "http-json": Wired(("--http",), "http://127.0.0.1:{}/mcp", "http"),
    "http-events": Wired(
        ("--http", "--events"),
        "http://127.0.0.1:{}/mcp",
        "http",
        stops="stops-in-stream",
    ),
    "http-session": Wired(("--http", "--session"), "http://127.0.0.1:{}/mcp", "http"),
    "http-session-events": Wired(
        ("--http", "--session", "--events"), "http://127.0.0.1:{}/mcp", "http"
    ),
    "https": Wired(("--http", "--tls"), "https://localhost:{}/mcp", "http"),
    "websocket": Wired(("--websocket",), "ws://127.0.0.1:{}/mcp", "websocket"),
    "websocket-tls": Wired(("--websocket", "--tls"), "wss://localhost:{}/mcp", "websocket"),
    "tcp": Wired(("--tcp",), "tcp://127.0.0.1:{}", "tcp"),
    "tcp-tls": Wired(("--tcp", "--tls"), "tls://localhost:{}", "tls"),
    "unix": Wired(("--unix",), "unix:{}", "unix"),
}


@attrs.frozen
class Launched:
    """A raw server that serves a wire, as the command is told of it."""

    target: list[str]
    pid: list[str]


@asynccontextmanager
async def launched(
    wire: Wired, folder: Path, *behaviour: str, effect: Path | None = None
) -> AsyncGenerator[Launched, None]:
    words = [*CARELESS, *wire.words, *behaviour]
    options: list[str] = []
    if "--tls" in words:
        authority = trustme.CA()
        trusted, both = (folder / f"{name}{len(behaviour)}.pem" for name in ("ca", "both"))
        authority.cert_pem.write_to_path(str(trusted))
        issued = authority.issue_cert("localhost").private_key_and_cert_chain_pem
        issued.write_to_path(str(both))
        words.insert(words.index("--tls") + 1, str(both))
        options = ["--cafile", str(trusted)]
    if "--unix" in words:
        words.insert(words.index("--unix") + 1, str(folder / f"socket{len(behaviour)}"))
    env = {**os.environ, "EFFECT": str(effect)}
    if wire.address is None:
        # Launched by the probe: what it is to know comes with its command line.
        yield Launched(["--", "env", f"EFFECT={effect}", *words], [])
        return
    process = await trio.lowlevel.open_process(words, stdout=subprocess.PIPE, env=env)
    assert process.stdout is not None
    try:
        with trio.fail_after(20):
            place = (await process.stdout.receive_some(1000)).decode().strip()
        yield Launched([*options, wire.address.format(place)], ["--pid", str(process.pid)])
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


async def told(*words: str) -> tuple[int, str]:
    """Exit status and standard output of ``trio-mcp probe``; nothing was said on the other one."""
    with trio.fail_after(60):
        ran = await trio.run_process(
            [*COMMAND, "probe", *words], capture_stdout=True, capture_stderr=True, check=False
        )
    assert ran.stderr == b""
    return ran.returncode, ran.stdout.decode()


def check_of(report: str, name: str) -> dict[str, Any]:
    """Of a report in JSON."""
    (check,) = (check for check in json.loads(report)["checks"] if check["name"] == name)
    return dict(check)


async def test_who_is_not_trusted_is_told(tmp_path: Path) -> None:
    async with launched(EVERY_WIRE["tcp-tls"], tmp_path) as server:
        line = await complaint(server.target[-1])
    assert line.endswith("; --cafile FILE trusts the authorities in FILE")


async def test_who_does_not_speak_tls_is_told() -> None:
    async def greet(stream: trio.SocketStream) -> None:
        await stream.send_all(b"hello\n" * 10)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, greet, [listener])
        line = await complaint(f"tls://localhost:{port}")
        nursery.cancel_scope.cancel("it was told")
    assert line.endswith(f"; did you mean tcp://localhost:{port}?")


async def complaint(address: str) -> str:
    """The only line that a probe of it says."""
    with trio.fail_after(20):
        ran = await trio.run_process([*COMMAND, "probe", address], capture_stderr=True, check=False)
    assert ran.returncode == 1
    line = only_line(ran.stderr.decode())
    assert f"cannot connect to {address}: no TLS: " in line
    return line


STOPS, RUNS_ON = ("--heed",), ()
MAIN = ("stdio", "http-json", "websocket", "tcp")


@pytest.mark.parametrize("name", EVERY_WIRE)
async def test_what_stops_and_what_runs_on_are_told_apart(name: str, tmp_path: Path) -> None:
    wire = EVERY_WIRE[name]
    words = ["--tool", "slow", "--witness", "alive", "--only", wire.stops]
    found: dict[bool, tuple[int, str]] = {}

    async def ask(stops: bool) -> None:
        behaviour, grace = (STOPS, "10") if stops else (RUNS_ON, "0.3")
        async with launched(wire, tmp_path, *behaviour) as server:
            found[stops] = await told(*words, "--grace", grace, "--json", *server.target)

    await both(ask)
    for stops, (status, printed) in found.items():
        report, check = json.loads(printed), check_of(printed, wire.stops)
        assert (report["transport"], report["revision"]) == (
            wire.transport,
            OLD if "session" in name else NEW,
        )
        assert (check["verdict"], check["evidence"]) == ("pass" if stops else "fail", "witness")
        assert status == (0 if stops else 1)


@pytest.mark.parametrize("name", ["stdio", "http-json"])
async def test_they_are_told_apart_in_words(name: str, tmp_path: Path) -> None:
    wire = EVERY_WIRE[name]
    words = ["--tool", "slow", "--witness", "alive", "--only", wire.stops]
    found: dict[bool, tuple[int, str]] = {}

    async def ask(stops: bool) -> None:
        behaviour, grace = (STOPS, "10") if stops else (RUNS_ON, "0.3")
        async with launched(wire, tmp_path, *behaviour) as server:
            found[stops] = await told(*words, "--grace", grace, *server.target)

    await both(ask)
    for stops, (status, printed) in found.items():
        verdict = "pass" if stops else "fail"
        head, _, line, counts = printed.splitlines()
        assert f", {wire.transport}, revision " in head
        assert line.startswith(f"{verdict:<8} {wire.stops} slow: alive: ")
        assert (counts, status) == (f"1 {verdict}", 0 if stops else 1)


@pytest.mark.parametrize(
    ("name", "tool"),
    [*((name, "write") for name in MAIN), ("stdio", "write_at_end"), ("http-json", "write_at_end")],
)
async def test_a_file_tells_them_apart_end_to_end(name: str, tool: str, tmp_path: Path) -> None:
    """Both keep late answers to themselves: the file is all that there is to see."""
    await told_apart(name, tool, tmp_path, "effect")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
@pytest.mark.parametrize("name", MAIN)
async def test_the_cpu_tells_them_apart_end_to_end(name: str, tmp_path: Path) -> None:
    await told_apart(name, "burn", tmp_path, "cpu")


async def told_apart(name: str, tool: str, folder: Path, evidence: str) -> None:
    wire = EVERY_WIRE[name]
    found: dict[bool, tuple[int, str]] = {}

    async def ask(stops: bool) -> None:
        effect = folder / f"effect-{stops}"
        words = ["--tool", tool, "--only", wire.stops, "--grace", "0.6", "--strict", "--json"]
        words += ["--effect", str(effect)] if evidence == "effect" else []
        behaviour = STOPS if stops else ("--mute",)
        async with launched(wire, folder, *behaviour, effect=effect) as server:
            words += server.pid if evidence == "cpu" else []
            found[stops] = await told(*words, *server.target)

    # Two that burn at the same time are too many for a small machine.
    await both(ask, at_once=evidence != "cpu")
    for stops, (status, printed) in found.items():
        check = check_of(printed, wire.stops)
        assert (check["verdict"], check["evidence"]) == (
            "pass" if stops else "fail",
            evidence,
        ), check["seen"]
        assert status == (0 if stops else 1)


async def both(ask: Callable[[bool], Awaitable[None]], *, at_once: bool = True) -> None:
    """With the server that stops, and with the one that runs on."""
    limiter = trio.CapacityLimiter(2 if at_once else 1)

    async def in_turn(stops: bool) -> None:
        async with limiter:
            await ask(stops)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_turn, True)
        nursery.start_soon(in_turn, False)


LATE = {
    "twice": "2 answers to 1 cancelled requests: 0 errors, 2 results",
    "reuse": r"\d+ answers that nothing waited for, at first an? ",
}


@pytest.mark.parametrize("how", LATE)
async def test_late_answers_that_come_twice_or_to_others_are_late(how: str, tmp_path: Path) -> None:
    """Without a witness: what is answered is all that there is to see."""
    found: dict[str, dict[str, Check]] = {}

    async def ask(name: str) -> None:
        wire, command = EVERY_WIRE[name], Command([*CARELESS, f"--{how}"])
        subject: Subject = command
        async with launched(wire, tmp_path, f"--{how}") as server:
            if wire.address is not None:
                subject = subject_at(server.target[-1])
            revision = OLD if "session" in name else NEW
            options: dict[str, Any] = {"only": ("stops", "silent"), "witness": None}
            report = await probed(subject, SLOW, pace=BRIEF, revision=revision, **options)
        found[name] = {check.name: check for check in report.checks}

    async with trio.open_nursery() as nursery:
        for name in ("stdio", "http-session-events", "websocket", "tcp"):
            nursery.start_soon(ask, name)
    for checks in found.values():
        assert checks["silent"].verdict == "fail"
        assert re.match(LATE[how], checks["silent"].seen)
        late = (checks["stops"].verdict, checks["stops"].evidence)
        assert late == (("fail", "late answer") if how == "twice" else ("unknown", "none"))


def subject_at(address: str) -> Subject:
    if address.startswith("tcp://"):
        return SocketAddress("127.0.0.1", int(address.rpartition(":")[2]))
    return (HttpAddress if address.startswith("http") else WebSocketAddress)(address)


async def test_a_server_that_stops_and_answers_all_else_twice() -> None:
    only = ("stops", "too-late", "silent")
    report = await probed(Command([*CARELESS, *STOPS, "--twice"]), SLOW, pace=PATIENT, only=only)
    assert verdicts(report) == {"stops slow": "pass", "too-late": "fail", "silent": "fail"}
    assert "a second answer to" in report.checks[-1].seen


async def test_ids_that_are_none_are_strays(tmp_path: Path) -> None:
    odd = (PEERS / "raw_server.py").read_text(encoding="utf-8")
    odd = odd.replace(
        "for _ in range(1 + TWICE):", "for answer['id'] in ([], {'a': [1]}, answer['id']):"
    )
    command = Command([sys.executable, str(write(tmp_path, "odd.py", odd)), *STOPS])
    report = await probed(command, SLOW, pace=PATIENT, only=("stops", "silent"))
    assert verdicts(report) == {"stops slow": "pass", "silent": "fail"}
    assert "an answer to nothing" in report.checks[-1].seen


async def test_a_server_that_does_not_exit_is_told_from_one_that_does() -> None:
    only = ("exits-running", "exits-idle")
    pace = Pace(grace=0.3, exit=1.5)
    for stays, verdict in ((False, "pass"), (True, "fail")):
        command = Command([*CARELESS, *(["--stay"] * stays)])
        report = await probed(command, SLOW, pace=pace, only=only, witness=None)
        assert verdicts(report) == {"exits-running slow": verdict, "exits-idle": verdict}


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
    evidence.rehearsal = Rehearsal([0.05 * n for n in range(100)], None)
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
    evidence.rehearsal = Rehearsal([4.01], 4)
    mark = await evidence.mark()
    begun = Begun(None, trio.current_time(), None)
    asked = asked_at(trio.current_time(), seconds=8)
    finding = await evidence.stopped(mark, begun, [asked], trio.current_time())
    assert finding.stopped is True
    assert trio.current_time() >= asked.sent_at + 8
    unknown = await evidence.stopped(mark, begun, [asked_at(0)], trio.current_time())
    assert unknown.stopped is None


REHEARSED = {
    "never": ([], "did not change in a run that nobody cancelled, so it proves nothing"),
    "at its beginning": (
        [0.1],
        "it changed for the last time 0.1 s after the call",
    ),
}


@pytest.mark.parametrize("when", REHEARSED)
@pytest.mark.parametrize("seen", ["effect", "progress", None])
async def test_a_file_that_would_not_have_changed_either_proves_nothing(
    when: str, seen: str | None, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async def nobody() -> None:
        raise AssertionError("there is no witness")

    changes, said = REHEARSED[when]
    evidence = Evidence(Pace(), None, nobody, tmp_path / "effect")
    evidence.rehearsal = Rehearsal(changes, 4.5)
    mark, begun = await evidence.mark(), Begun(seen, trio.current_time(), None)
    asked = asked_at(trio.current_time(), seconds=9)
    finding = await evidence.stopped(mark, begun, [asked], trio.current_time())
    assert (finding.stopped, finding.evidence) == (None, "none")
    assert said in finding.seen


async def test_the_file_of_a_tool_with_progress_is_waited_for_until_its_end(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async def nobody() -> None:
        raise AssertionError("there is no witness")

    evidence = Evidence(Pace(), None, nobody, tmp_path / "effect")
    evidence.rehearsal = Rehearsal([4.5], 4.5)
    mark, begun = await evidence.mark(), Begun("progress", trio.current_time(), None)
    asked = asked_at(trio.current_time(), seconds=4.5)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def runs_on() -> None:
            await trio.sleep(4.6)
            (tmp_path / "effect").write_text("done")

        finding = await evidence.stopped(mark, begun, [asked], trio.current_time())
    assert (finding.stopped, finding.evidence) == (False, "effect")


async def test_a_file_that_the_tool_never_touches_is_no_evidence(tmp_path: Path) -> None:
    """The tool swallows its cancellation, and another file is named."""
    effect = write(tmp_path, "other", "")
    only, pace = ("stops",), Pace(grace=0.2, settle=0.1)
    options: dict[str, Any] = {"witness": None, "only": only, "effect": effect}
    report = await probed(Command(PROBED), STUBBORN, pace=pace, **options)
    assert verdicts(report) == {"stops stubborn": "unknown"}
    assert "did not change in a run that nobody cancelled" in report.checks[0].seen


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


def used(cpu: float, waited: float = 0.0) -> Usage:
    return Usage(descriptors=1, threads=1, rss=1, cpu=cpu, waited=waited, processes=1)


def test_what_is_waited_for_counts_and_what_an_ended_thread_takes_with_it_does_not() -> None:
    assert used(2, waited=5).share(used(1, waited=4), seconds=4) == 0.5
    assert used(2, waited=0).share(used(1, waited=4), seconds=4) == 0.25


class Burning(Evidence):
    """Of a process that uses a core until ``idle_from``, and then little of it."""

    idle_from = 0.0

    def _usage(self) -> Usage:
        now = trio.current_time()
        return used(min(now, self.idle_from) + 0.02 * now)


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
    mine = usage_of(os.getpid())
    assert mine is not None
    before = mine.descriptors
    with open(os.devnull):
        more = usage_of(os.getpid())
    assert more is not None
    assert more.descriptors == before + 1
    assert min(mine.threads, mine.rss, mine.cpu) > 0
    assert mine.waited >= 0
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert usage_of(ended.pid) is None


class Starved(Evidence):
    """Of a process that gets little of a core for half a second, because others want it, too."""

    def _usage(self) -> Usage:
        now = trio.current_time()
        return used(0.2 * now if now < 0.5 else 0.1 + (now - 0.5))


async def test_a_busy_process_that_others_keep_from_its_core_is_looked_at_longer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def nobody() -> None:
        raise AssertionError("there is no witness")

    evidence = Starved(Pace(), None, nobody, None)
    mark = await evidence.mark()
    asked = asked_at(trio.current_time())
    begun = await evidence.begun(mark, [asked])
    assert Pace().settle < begun.at - mark.at < Pace().settle + Pace().busy
    finding = await evidence.stopped(mark, begun, [asked], trio.current_time())
    assert (finding.stopped, finding.evidence) == (False, "cpu")


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


def test_a_table_tells_what_stops_from_what_runs_on() -> None:
    words = ["--tool", "slow", "--tool", "stubborn", "--witness", "alive", "--grace", "0.4"]
    command = [*COMMAND, "probe", *words, "--only", "stops", "--", *PROBED]
    with on_terminal(command) as terminal:
        assert terminal.end(30) == 1
    rows = [line.split()[:3] for line in terminal.seen.splitlines()]
    assert ["stops", "slow", "pass"] in rows
    assert ["stops", "stubborn", "fail"] in rows


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


@pytest.mark.parametrize(
    ("word", "target"),
    [
        ("tcp://127.0.0.1:8000", SocketTarget("127.0.0.1", 8000)),
        ("tcp://[::1]:8000", SocketTarget("::1", 8000)),
        ("tls://localhost:8000", SocketTarget("localhost", 8000, secured=True)),
        ("unix:/run/x", SocketTarget("/run/x")),
    ],
)
def test_targets(word: str, target: SocketTarget) -> None:
    assert parse_probe_target(word) == target
    assert str(target) == word


@pytest.mark.parametrize("wrong", ["tcp://127.0.0.1", "tls://h", "tcp://h:99999", "unix:"])
def test_targets_that_are_none(wrong: str) -> None:
    with pytest.raises(CommandError):
        parse_probe_target(wrong)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cafile", BOOKSHOP, "tcp://h:1"], "--cafile is for TLS"),
        (["-H", "A: b", "tls://h:1"], "--header is for HTTP and WebSockets"),
        (["--cafile", BOOKSHOP, "tls://h:1"], "holds no certificate"),
    ],
)
def test_options_of_other_targets(words: list[str], said: str) -> None:
    refused = run("probe", *words)
    assert refused.returncode == 2
    assert said in refused.stderr


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
