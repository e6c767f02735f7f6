"""Verdicts of ``python -m tests.conformance``: only what the suite has looked at and found good.

The files in ``data/conformance`` are what the suite once wrote.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.conformance import __main__ as runner
from tests.conformance.outcomes import Check, Outcome, of_a_server, read_outcomes, report
from tests.conformance.scenarios import CLIENT, EARLIER_CLIENT, SERVER, SKIPPED
from tests.conformance.suite import Suite
from tests.conformance.witness import examine
from tests.peers.http_log import Connection, HttpLog, Said

RECORDED = Path(__file__).parent / "data" / "conformance"
WHEN = "2026-11-30T09-29-46-764Z"

LIST = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{'
    b'"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
)
TOOLS = (
    b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[],"ttlMs":0,'
    b'"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":'
    b'{"name":"some server","version":"1"}}}}'
)


def record(results: Path, scenario: str, recorded: str, *, prefix: str = "server-") -> None:
    """Put something recorded where the suite would have put it."""
    folder = results / f"{prefix}{scenario}-{WHEN}"
    folder.mkdir(parents=True)
    shutil.copy(RECORDED / f"{recorded}.json", folder / "checks.json")


def record_all(results: Path, *, but: str | None = None, recorded: str | None = None) -> None:
    """All scenarios have passed, but one; that one has not run unless it is said what became of
    it."""
    for scenario in SERVER:
        if scenario != but:
            record(results, scenario, "passed")
        elif recorded is not None:
            record(results, scenario, recorded)


def failed_in(results: Path) -> list[Outcome]:
    outcomes = of_a_server(read_outcomes(results))
    failed = [outcome for outcome in outcomes if not outcome.passed]
    assert report("somebody", outcomes) == len(failed)
    return failed


# A server's scenarios -----------------------------------------------------------------------------


def test_all_is_well_if_every_scenario_has_passed(tmp_path: Path) -> None:
    record_all(tmp_path)
    assert failed_in(tmp_path) == []


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ("failed", "FAILURE: prompts-list (PromptsList): Failed: Method not found: prompts/list"),
        ("warned", "WARNING: sep-2322-missing-response-rerequests ("),
        ("skipped", "SKIPPED: sep-2575-client-declares-roots-capability ("),
    ],
)
def test_what_did_not_pass_fails_and_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recorded: str, said: str
) -> None:
    record_all(tmp_path, but="prompts-list", recorded=recorded)
    assert [outcome.scenario for outcome in failed_in(tmp_path)] == ["prompts-list"]
    told = capsys.readouterr().out
    assert "FAILED  prompts-list (" in told
    assert said in told


@pytest.mark.parametrize("scenario", SERVER)
def test_a_scenario_that_did_not_run_fails(tmp_path: Path, scenario: str) -> None:
    record_all(tmp_path, but=scenario)
    assert failed_in(tmp_path) == [Outcome(scenario, trouble="it has not run")]


def test_a_scenario_without_checks_fails(tmp_path: Path) -> None:
    record_all(tmp_path, but="tools-list", recorded="passed")
    (checks,) = tmp_path.glob(f"server-tools-list-{WHEN}/checks.json")
    checks.write_text("[]")
    assert failed_in(tmp_path) == [Outcome("tools-list", [])]


def test_a_scenario_that_is_new_to_us_has_to_pass_too(tmp_path: Path) -> None:
    record_all(tmp_path)
    record(tmp_path, "tools-of-tomorrow", "failed")
    assert [outcome.scenario for outcome in failed_in(tmp_path)] == ["tools-of-tomorrow"]


def test_an_extension_that_we_do_not_offer_has_not(tmp_path: Path) -> None:
    record_all(tmp_path)
    record(tmp_path, "tasks-lifecycle", "failed")
    assert failed_in(tmp_path) == []


def test_information_is_no_verdict(tmp_path: Path) -> None:
    record_all(tmp_path, but="server-sse-multiple-streams", recorded="informed")
    assert failed_in(tmp_path) == []


def test_what_the_revision_does_not_have_may_be_skipped_and_nothing_else() -> None:
    for name in SKIPPED:
        assert not Check("an-id", name, "", "SKIPPED").failed
        assert Check("an-id", name, "", "FAILURE").failed
    assert Check(SKIPPED[0], "AnotherName", "", "SKIPPED").failed


# The suite, as a process --------------------------------------------------------------------------


def make_suite(folder: Path, *, recorded: Path, status: int) -> Suite:
    """A suite that asks nothing, and leaves what is recorded below the name of its scenario."""
    node = folder / "node_modules" / "node" / "bin" / "node"
    node.parent.mkdir(parents=True)
    lines = (
        "#!/bin/sh",
        'scenario=; results=; before=; for word; do case "$before" in',
        '--scenario) scenario="$word";; -o) results="$word";; esac; before="$word"; done',
        'mkdir -p "$results"',
        f'cp -r "{recorded}/$scenario/." "$results" && echo "these are my last words"',
        f"exit {status}",
    )
    node.write_text("\n".join(lines))
    node.chmod(0o755)
    return Suite(folder)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """What is recorded, and where results go."""
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    return recorded, tmp_path / "results"


async def test_a_suite_that_leaves_nothing_has_failed(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    recorded, results = folders
    suite = make_suite(tmp_path / "suite", recorded=recorded, status=0)
    server = await suite.check_server("http://127.0.0.1:1/mcp", results / "server")
    assert server == [Outcome("the suite itself", trouble="these are my last words\n")]
    assert len(of_a_server(server)) == len(SERVER) + 1
    (recorded / "tools_call").mkdir()
    client = await suite.check_client(["true"], "tools_call", results / "client")
    assert client == Outcome("tools_call", trouble="these are my last words\n")


async def test_a_suite_that_takes_too_long_has_failed(
    tmp_path: Path, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, results = folders
    suite = make_suite(tmp_path / "suite", recorded=recorded, status=0)
    node = tmp_path / "suite" / "node_modules" / "node" / "bin" / "node"
    node.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("tests.conformance.suite._RUN_SECONDS", 0.1)
    (outcome,) = await suite.check_server("http://127.0.0.1:1/mcp", results)
    assert "took longer" in outcome.trouble
    assert "took longer" in (await suite.check_client(["true"], "tools_call", results)).trouble


@pytest.mark.parametrize("errors", ["", "Traceback (most recent call last): …"])
async def test_a_client_that_fails_is_told_though_its_checks_have_passed(
    tmp_path: Path, folders: tuple[Path, Path], errors: str
) -> None:
    recorded, results = folders
    record(recorded / "tools_call", "tools_call", "passed", prefix="")
    (recorded / "tools_call" / f"tools_call-{WHEN}" / "stderr.txt").write_text(errors)
    suite = make_suite(tmp_path / "suite", recorded=recorded, status=1)
    outcome = await suite.check_client(["false"], "tools_call", results)
    assert not outcome.failures
    assert not outcome.passed
    assert outcome.trouble.strip() == (errors or "these are my last words")


# The command --------------------------------------------------------------------------------------


@pytest.mark.parametrize("only", [(), ("--only", "earlier")], ids=str)
def test_a_client_has_to_pass_at_the_earlier_revision_too(
    tmp_path: Path,
    folders: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    only: tuple[str, ...],
) -> None:
    recorded, _ = folders
    for scenario in {*CLIENT, *EARLIER_CLIENT}:
        what = "failed" if scenario == "sse-retry" else "passed"
        record(recorded / scenario, scenario, what, prefix="")
    suite = make_suite(tmp_path / "suite", recorded=recorded, status=0)
    monkeypatch.setattr(runner, "install", lambda folder: suite)
    result = CliRunner().invoke(runner.main, only)
    assert result.exit_code == 1
    _, earlier = result.output.split("== client, 2025-11-25\n")
    assert [line for line in earlier.splitlines() if line.startswith("FAILED")] == [
        "FAILED  sse-retry (2 checks)"
    ]


@pytest.mark.parametrize("recorded_for_one", ["passed", "failed", "warned", "skipped"])
def test_the_exit_status_says_whether_a_client_passes(
    tmp_path: Path,
    folders: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    recorded_for_one: str,
) -> None:
    recorded, _ = folders
    for scenario in {*CLIENT, *EARLIER_CLIENT}:
        what = recorded_for_one if scenario == "http-custom-headers" else "passed"
        record(recorded / scenario, scenario, what, prefix="")
    suite = make_suite(tmp_path / "suite", recorded=recorded, status=0)
    monkeypatch.setattr(runner, "install", lambda folder: suite)
    result = CliRunner().invoke(runner.main, ["--only", "client"])
    well = recorded_for_one == "passed"
    assert (result.exit_code, result.output.splitlines()[-1]) == (
        (0, "all passed") if well else (1, "1 scenarios failed")
    )


def test_a_suite_that_never_asked_our_servers_anything_is_no_success(
    tmp_path: Path, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, _ = folders
    record_all(recorded)
    suite = make_suite(tmp_path / "suite", recorded=recorded, status=0)
    monkeypatch.setattr(runner, "install", lambda folder: suite)
    result = CliRunner().invoke(runner.main, ["--only", "server"])
    assert result.exit_code == 1
    assert result.output.count("FAILED") == 2
    assert result.output.count("nobody came by") == 2


def test_without_npm_it_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.conformance"]
    ran = subprocess.run(
        command,
        cwd=Path(__file__).parents[1],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "it needs Node.js and npm, and node is not on PATH" in ran.stderr


# The witness --------------------------------------------------------------------------------------


def heard(*bodies: bytes, status: int = 200, complete: bool = True) -> Outcome:
    """What the witness says of a client that lists the tools and gets these answers."""
    log = HttpLog(0)
    answers = [Said(status=status, body=body, complete=complete) for body in bodies]
    log.connections.append(Connection([Said("POST", body=LIST, complete=True)], answers))
    return examine(log)


def test_an_answer_that_is_valid_passes() -> None:
    assert heard(TOOLS).passed


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (TOOLS.replace(b'"ttlMs":0', b'"ttlMs":-1'), "ttlMs"),
        (TOOLS.replace(b'"id":1', b'"id":"1"'), "nobody waits for this answer"),
        (TOOLS.replace(b'"tools"', b'"prompts"'), "tools"),
        (TOOLS[:-1], "was the answer to"),
        (
            b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
            "before its acknowledgement",
        ),
        (b"", "200 without an answer"),
    ],
)
def test_an_answer_that_is_not_fails(body: bytes, said: str) -> None:
    outcome = heard(body)
    assert not outcome.passed
    assert said in str(outcome.failures[0].error_message)


def test_one_answer_more_than_questions_fails() -> None:
    assert not heard(TOOLS, TOOLS).passed


def test_what_was_given_up_may_have_no_answer() -> None:
    assert heard(TOOLS[:20], complete=False).passed


def test_a_refused_request_has_no_answer_with_its_id() -> None:
    refusal = b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"this host is not served"}}'
    assert heard(refusal, status=403).passed
    assert not heard(refusal, status=200).passed
