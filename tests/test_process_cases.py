"""Faults from the field, client side: servers as processes of our own that misbehave.

Every kind of fault that took down clients elsewhere, with real processes and real pipes. The
servers are the fixture server, and a stub that misbehaves in one chosen way.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from tests.peers.processes import children

from trio_mcp import (
    CallTimeout,
    CallToolResult,
    Client,
    ConnectionLost,
    IncompatibleServer,
    Limits,
    ProgressUpdate,
    ServerError,
    State,
    TextContent,
    connect,
)

from .peers.limited_server import ROOT, environment
from .peers.processes import alive, resident_bytes, resident_bytes_anew
from .peers.raw import lines, until

FIXTURE_SERVER = [sys.executable, str(ROOT / "tests" / "peers" / "fixture_server.py")]
STUB = str(ROOT / "tests" / "peers" / "stubs" / "misbehaving.py")
MEBIBYTE = 1024 * 1024
QUICK = Limits(exit_wait=0.2, terminate_wait=0.2)


def stub(behaviour: str, *arguments: object) -> list[str]:
    """The command of a server that misbehaves."""
    return [sys.executable, "-I", "-S", STUB, behaviour, *map(str, arguments)]


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def pid_of(client: Client) -> int:
    return int(text_of(await client.call_tool("pid")))


async def probe(client: Client) -> None:
    """An echo, answered within a second."""
    with trio.fail_after(1):
        assert text_of(await client.call_tool("echo", {"text": "probe"})) == "probe"


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def violations(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says that the server did wrong."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "trio_mcp.connection" and record.levelno == logging.WARNING
    ]


class Outcomes:
    """Calls made side by side, and what came of each."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.of: dict[object, object] = {}

    async def call(self, key: object, tool: str, /, **options: Any) -> None:
        try:
            result = await self.client.call_tool(tool, **options)
        except Exception as error:
            self.of[key] = error
        else:
            self.of[key] = "isError" if result.is_error else text_of(result)


# A server that dies -------------------------------------------------------------------------------


async def test_a_killed_server_fails_all_pending_calls_at_once() -> None:
    async with connect(stub("swallow")) as client:
        outcomes = Outcomes(client)
        pid = await pid_of(client)
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(outcomes.call, number, "lost")
            await until(lambda: client.stderr_tail.count("swallowed lost") == 50)
            os.kill(pid, signal.SIGKILL)
            nursery.cancel_scope.deadline = trio.current_time() + 1
        assert len(outcomes.of) == 50
        for error in outcomes.of.values():
            assert isinstance(error, ConnectionLost)
            assert error.sent
            assert error.exit_status == -signal.SIGKILL
            assert "swallowed lost" in error.stderr_tail
            assert "exit status -9" in str(error)
        assert client._connection.calls == ()
        with pytest.raises(ConnectionLost) as later:
            await client.call_tool("echo", {"text": "x"})
        assert not later.value.sent
        assert later.value.exit_status == -signal.SIGKILL


async def test_a_killed_server_whose_child_holds_the_pipes_fails_the_calls_too(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    async with connect(stub("orphans", pids), limits=QUICK) as client:
        with trio.fail_after(1):
            with pytest.raises(ConnectionLost) as lost:
                await client.call_tool("die")
        assert lost.value.sent
        assert lost.value.exit_status == -signal.SIGKILL
    (child,) = map(int, lines_of(pids))
    await until(lambda: not alive(child), 1)


@pytest.mark.parametrize("behaviour", ["hangs_up_stdin", "hangs_up_stdout"])
async def test_a_server_that_hangs_up_one_side_is_lost(behaviour: str) -> None:
    async with connect(stub(behaviour), limits=QUICK) as client:
        with trio.fail_after(2):
            with pytest.raises(ConnectionLost):
                await client.call_tool("echo", {"text": "x"})
            with pytest.raises(ConnectionLost) as later:
                await client.call_tool("echo", {"text": "y"})
        assert not later.value.sent


async def test_a_drop_after_the_commit_is_one_execution_and_an_unknown_outcome(
    tmp_path: Path,
) -> None:
    record = tmp_path / "record"
    async with connect(stub("drops", record)) as client:
        with pytest.raises(ConnectionLost) as lost:
            await client.call_tool("order", {"title": "Dune"})
        assert lost.value.sent  # so the outcome is unknown
        assert lost.value.exit_status == 7
        (entry,) = [entry for entry in client.journal if entry.target == "order"]
        assert entry.state is State.FAILED
    assert lines_of(record) == ["committed {'title': 'Dune'}"]


async def test_plain_except_catches_a_loss_through_all_blocks() -> None:
    caught: Exception | None = None
    try:
        async with connect(stub("drops", os.devnull)) as client:
            async with client.start_tool("other") as call:
                await call.result()
    except ConnectionLost as error:
        caught = error
    assert isinstance(caught, ConnectionLost)
    assert not caught.__context__ or not isinstance(caught.__context__, BaseExceptionGroup)


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with connect(stub("fine")):
            raise ZeroDivisionError


# A server that never was --------------------------------------------------------------------------


async def test_a_command_that_is_not_found_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        async with connect(["/nonexistent/server"]):
            raise AssertionError("connected")


async def test_a_command_as_one_string_is_a_clear_error() -> None:
    with pytest.raises(TypeError, match=r"as a list, for example \['python', 'server.py'\]"):
        async with connect("python server.py"):
            raise AssertionError("connected")


async def test_a_server_that_exits_at_once_is_lost_with_its_last_words() -> None:
    with trio.fail_after(2):
        with pytest.raises(ConnectionLost) as lost:
            async with connect(stub("exits", 3)):
                raise AssertionError("connected")
    assert lost.value.exit_status == 3
    assert lost.value.stderr_tail == "cannot open the shop:\nno key"
    assert "no key" in str(lost.value)


@pytest.mark.parametrize("timeout", [60, 0.05])
async def test_a_server_that_ignores_discovery_is_incompatible_in_bounded_time(
    timeout: float,
) -> None:
    began = trio.current_time()
    with pytest.raises(IncompatibleServer, match=r"0\.3 s"):
        async with connect(stub("silent"), timeout=timeout, limits=Limits(connect=0.3)):
            raise AssertionError("connected")
    assert 0.3 <= trio.current_time() - began < 2


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -1])
async def test_a_legacy_server_is_incompatible(code: int) -> None:
    with trio.fail_after(2):
        with pytest.raises(IncompatibleServer) as refused:
            async with connect(stub("legacy", code)):
                raise AssertionError("connected")
    assert refused.value.supported == ()
    assert str(code) in str(refused.value)


async def test_a_server_of_another_revision_is_incompatible_and_says_which() -> None:
    with pytest.raises(IncompatibleServer) as refused:
        async with connect(stub("other_version")):
            raise AssertionError("connected")
    assert refused.value.supported == ("2099-01-01",)


@pytest.mark.parametrize("behaviour", ["pretty", "framed"])
async def test_a_server_with_other_framing_is_incompatible_and_reported(
    behaviour: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(IncompatibleServer, match="no message"):
        async with connect(stub(behaviour), limits=Limits(connect=0.3)):
            raise AssertionError("connected")
    assert violations(caplog)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
async def test_a_timeout_that_is_none_starts_no_process(timeout: float, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(ValueError, match="timeout must be more than 0"):
        async with connect(stub("stubborn", pids), timeout=timeout):
            raise AssertionError("connected")
    assert not children()


# A server that says strange things ----------------------------------------------------------------

ODDITIES = {
    "twice": 1,
    "strangers": 5,
    "id_null": 2,
    "result_without_id": 2,
    "requests": 2,
    "notifications": 2,  # malformed progress, a cancellation; unknown ones are no fault
    "prints": 4,
    "framed": 2,
}


@pytest.mark.parametrize("oddity", ODDITIES)
async def test_strange_words_are_recorded_and_touch_no_call(
    oddity: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(stub("oddly")) as client:
        with trio.fail_after(2):
            assert text_of(await client.call_tool(oddity)) == "done"
            await probe(client)
        assert client._connection.violations == ODDITIES[oddity]
        assert len(violations(caplog)) == min(ODDITIES[oddity], 5)
        assert client._connection.calls == ()


async def test_pretty_printed_json_is_reported_and_the_client_recovers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connect(stub("oddly")) as client:
        with trio.fail_after(2):
            assert text_of(await client.call_tool("pretty")) == "done"
            await probe(client)
        assert client._connection.violations > 10
        assert len(violations(caplog)) == 5  # not without end


async def test_a_late_answer_is_recorded_and_its_id_is_not_used_again() -> None:
    async with connect(stub("oddly")) as client:
        async with client.start_tool("late") as call:
            await until(lambda: call._call.sent)
        await probe(client)
        await until(lambda: call._call.late)
        assert call.state is State.CANCELLED
        assert [late.kind for late in call._call.late] == ["answer"]
        assert client._connection.violations == 0
        await probe(client)
        ids = [entry.request_id for entry in client.journal]
        assert len(ids) == len(set(map(repr, ids)))


@asynccontextmanager
async def hand_made_server() -> AsyncGenerator[tuple[Client, trio.StapledStream[Any, Any]], None]:
    """A client, and the server's end of its wire, for the test to write to."""
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_answer_discovery, theirs)
        async with connect(ours) as client:
            yield client, theirs


async def _answer_discovery(stream: trio.abc.Stream) -> None:
    request = json.loads(await stream.receive_some())
    result = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
    await stream.send_all(lines({"jsonrpc": "2.0", "id": request["id"], "result": result}))


HOSTILE = {
    "progress beyond floats": (
        b'{"jsonrpc":"2.0","method":"notifications/progress",'
        b'"params":{"progressToken":%(id)d,"progress":1%(zeros)s}}'
    ),
    "total beyond floats": (
        b'{"jsonrpc":"2.0","method":"notifications/progress",'
        b'"params":{"progressToken":%(id)d,"progress":1,"total":1%(zeros)s}}'
    ),
    "id beyond everything": b'{"jsonrpc":"2.0","id":1%(zeros)s,"result":{}}',
    "deep message": b'{"jsonrpc":"2.0","error":{"code":1,"message":%(deep)s}}',
    "deep error": b'{"jsonrpc":"2.0","id":%(id)d,"error":{"code":"x","data":%(deep)s}}',
    "deep progress": (
        b'{"jsonrpc":"2.0","method":"notifications/progress",'
        b'"params":{"progressToken":%(id)d,"progress":%(deep)s,"message":%(deep)s}}'
    ),
    "deep token": (
        b'{"jsonrpc":"2.0","method":"notifications/progress",'
        b'"params":{"progressToken":%(deep)s,"progress":1}}'
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_invariant_6_no_words_of_a_server_end_the_client(kind: str) -> None:
    async with hand_made_server() as (client, server):
        for depth in range(800, 1000):  # around what the decoder can bear
            async with client.start_tool("x") as call:
                request = json.loads(await server.receive_some())
                deep = b"[" * depth + b"]" * depth
                words = {b"id": request["id"], b"zeros": b"0" * 400, b"deep": deep}
                await server.send_all(HOSTILE[kind] % words + b"\n")
                await trio.testing.wait_all_tasks_blocked()
                if call.state is State.RUNNING:
                    await server.send_all(answer(request["id"]))
                with suppress(ServerError):
                    assert text_of(await call.result()) == "fine"


def answer(request_id: object) -> bytes:
    result = {"content": [{"type": "text", "text": "fine"}], "resultType": "complete"}
    return lines({"jsonrpc": "2.0", "id": request_id, "result": result})


@pytest.mark.parametrize("flood", ["lines", "line", "progress"])
async def test_invariant_9_a_flood_from_the_server_is_bounded_and_the_call_succeeds(
    flood: str,
) -> None:
    async with connect(stub("flood"), limits=Limits(message_bytes=MEBIBYTE)) as client:
        await probe(client)
        before = resident_bytes_anew()
        with trio.fail_after(10):
            assert text_of(await client.call_tool(flood)) == "done"
        assert resident_bytes(os.getpid(), "VmHWM") - before < 16 * MEBIBYTE
        await probe(client)


async def test_an_oversize_answer_names_the_limit_and_costs_only_its_own_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connect(stub("big"), limits=Limits(message_bytes=100_000)) as client:
        outcomes = Outcomes(client)
        async with trio.open_nursery() as nursery:
            big: dict[str, Any] = {"arguments": {"bytes": 100_000}, "timeout": 0.4}
            nursery.start_soon(lambda: outcomes.call("big", "big", **big))
            await until(lambda: violations(caplog))
            await probe(client)
        error = outcomes.of["big"]  # nobody can tell whose answer it was
        assert isinstance(error, CallTimeout)
        assert "message_bytes=100000" in error.__notes__[0]
        (logged,) = violations(caplog)
        assert "message_bytes=100000" in logged
        assert len(text_of(await client.call_tool("big", {"bytes": 90_000}))) == 90_000


async def test_an_oversize_request_is_refused_before_it_is_sent() -> None:
    async with connect(stub("fine"), limits=Limits(message_bytes=100_000)) as client:
        with pytest.raises(ValueError, match="message_bytes=100000"):
            await client.call_tool("echo", {"text": "x" * 100_000})
        await probe(client)


# Pipes that are full ------------------------------------------------------------------------------


async def test_a_server_that_stops_reading_holds_no_call_beyond_its_timeout(
    tmp_path: Path,
) -> None:
    go_on, record = tmp_path / "go on", tmp_path / "record"
    async with connect(stub("deaf", go_on, record)) as client:
        began = trio.current_time()
        with pytest.raises(CallTimeout) as stuck:
            await client.call_tool("echo", {"text": "x" * 512 * 1024}, timeout=1)
        assert 1 <= trio.current_time() - began < 1.9
        assert stuck.value.outcome == "unknown"

        began = trio.current_time()
        with pytest.raises(CallTimeout) as behind:
            await client.call_tool("echo", {"text": "behind"}, timeout=0.2)
        assert 0.2 <= trio.current_time() - began < 0.9
        assert behind.value.outcome == "not sent"

        go_on.touch()
        await probe(client)
    sent = [json.loads(line) for line in lines_of(record)]  # whole lines only
    assert [message["method"] for message in sent] == [
        "tools/call",
        "notifications/cancelled",
        "tools/call",
    ]
    assert len(sent[0]["params"]["arguments"]["text"]) == 512 * 1024
    assert sent[1]["params"]["requestId"] == sent[0]["id"]
    assert sent[2]["params"]["arguments"]["text"] == "probe"


async def test_a_loss_says_of_each_call_whether_it_was_sent(tmp_path: Path) -> None:
    never = tmp_path / "never"
    async with connect(stub("deaf", never, os.devnull)) as client:
        outcomes = Outcomes(client)
        process = client._connection.process
        assert process is not None
        async with trio.open_nursery() as nursery:
            for key, text in (("stuck", "x" * 512 * 1024), ("behind", "y")):
                arguments = {"text": text}
                nursery.start_soon(partial(outcomes.call, key, "echo", arguments=arguments))
                await trio.testing.wait_all_tasks_blocked()
            os.kill(process._process.pid, signal.SIGKILL)
        for key, sent in (("stuck", True), ("behind", False)):
            error = outcomes.of[key]
            assert isinstance(error, ConnectionLost)
            assert error.sent is sent
            assert error.exit_status == -signal.SIGKILL


async def test_invariant_11_leaving_a_server_that_stopped_reading_is_bounded(
    tmp_path: Path,
) -> None:
    async with connect(stub("deaf", tmp_path / "never", os.devnull), limits=QUICK) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("echo", {"text": "x" * 512 * 1024}, timeout=0.1)
        began = trio.current_time()
    assert trio.current_time() - began < 1.5


async def test_an_unread_stderr_never_blocks_the_server_and_is_kept_in_bounds() -> None:
    limits = Limits(stderr_bytes=1000)
    async with connect(stub("chatter", MEBIBYTE), limits=limits) as client:
        with trio.fail_after(5):
            for _ in range(4):
                await client.call_tool("talk")
        await until(lambda: client.stderr_tail.endswith("last words"))
        assert len(client.stderr_tail) == 1000


# The end of a server ------------------------------------------------------------------------------


def launcher(pids: Path) -> list[str]:
    """A shell that starts the server in the background, and waits; both ignore SIGTERM."""
    script = 'trap "" TERM; "$@" <&3 & wait'
    return ["sh", "-c", f"exec 3<&0; {script}", "sh", *stub("stubborn", pids)]


async def until_gone(pids: Path) -> None:
    family = [int(pid) for pid in lines_of(pids)]
    assert len(family) == 2
    await until(lambda: not any(map(alive, family)), 2)


async def test_no_descendant_is_left_of_a_stubborn_family(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with connect(launcher(pids), limits=QUICK) as client:
        await probe(client)
        began = trio.current_time()
    assert trio.current_time() - began < 2
    await until_gone(pids)


async def test_no_descendant_is_left_when_the_close_is_cancelled(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with trio.CancelScope() as scope:
        async with connect(launcher(pids), limits=QUICK) as client:
            await probe(client)
            scope.deadline = trio.current_time() + 0.1  # which strikes while it waits for the exit
    assert scope.cancelled_caught
    await until_gone(pids)


async def test_no_descendant_is_left_when_the_block_is_cancelled(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with trio.move_on_after(5) as scope:
        async with connect(launcher(pids), limits=QUICK) as client:
            await probe(client)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    await until_gone(pids)


async def test_no_descendant_is_left_when_connecting_is_cancelled(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = ["sh", "-c", 'trap "" TERM; sleep 1000 & echo $$ >>"$0"; echo $! >>"$0"; wait']
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_connect_in_vain, [*command, str(pids)])
            await until(lambda: len(lines_of(pids)) == 2)
            scope.cancel()
    await until_gone(pids)


async def _connect_in_vain(command: Sequence[str]) -> None:
    async with connect(command, limits=QUICK):
        raise AssertionError("connected")


DRIVER = """
import json, signal, sys, trio
from trio_mcp import connect

signal.signal(signal.SIGINT, signal.default_int_handler)  # for tests in the background

async def main():
    async with connect(json.loads(sys.argv[1])) as client:
        await client.call_tool("echo", {"text": "x"})
        print("ready", flush=True)
        await trio.sleep_forever()

try:
    trio.run(main)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


async def test_a_ctrl_c_at_the_terminal_does_not_reach_the_server(tmp_path: Path) -> None:
    record = tmp_path / "record"
    driver = await trio.lowlevel.open_process(
        [sys.executable, "-c", DRIVER, json.dumps(stub("witness", record))],
        stdout=subprocess.PIPE,
        env=environment(),
        start_new_session=True,
    )
    assert driver.stdout is not None
    said = b""
    try:
        async with driver.stdout:
            with trio.fail_after(20):
                async for data in driver.stdout:
                    said += data
                    if said == b"ready\n":
                        os.killpg(driver.pid, signal.SIGINT)  # as the terminal does
                assert await driver.wait() == 0
    finally:
        if driver.poll() is None:
            driver.kill()
    assert said == b"ready\ninterrupted\n"
    assert lines_of(record) == ["EOF"]


async def test_invariant_4_forty_connections_leave_nothing_behind(tmp_path: Path) -> None:
    async def connect_once(number: int) -> None:
        if number % 10 == 1:
            with trio.CancelScope() as scope:
                async with connect(stub("stubborn", tmp_path / "pids"), limits=QUICK):
                    scope.cancel()
        elif number % 10 == 0:
            with pytest.raises(ConnectionLost):
                async with connect(stub("exits", 1)):
                    raise AssertionError("connected")
        else:
            async with connect(stub("fine")) as client:
                await probe(client)

    await connect_once(0)
    before = sorted(os.listdir("/proc/self/fd"))
    for start in range(0, 40, 4):
        async with trio.open_nursery() as nursery:
            for number in range(start, start + 4):
                nursery.start_soon(connect_once, number)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert children() == []


# Many calls ---------------------------------------------------------------------------------------


async def test_two_hundred_cancelled_sleeps_are_cancelled_once_each(tmp_path: Path) -> None:
    wire = tmp_path / "wire"
    command = ["sh", "-c", 'tee "$0" | exec "$@"', str(wire), *FIXTURE_SERVER]
    async with connect(command) as client:
        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(client.call_tool, "sleep", {"s": 60, "label": str(number)})
            await until_stats(client, 200)
            nursery.cancel_scope.cancel()
        await until(lambda: client._connection.calls == ())
        await until_stats(client, 0)
        states = [entry.state for entry in client.journal if entry.target == "sleep"]
        assert states == [State.CANCELLED] * 200
        assert client._connection.violations == 0
    messages = [json.loads(line) for line in lines_of(wire)]
    sleeps = [message["id"] for message in messages if _tool_of(message) == "sleep"]
    cancelled = [
        message["params"]["requestId"]
        for message in messages
        if message["method"] == "notifications/cancelled"
    ]
    assert len(sleeps) == 200
    assert sorted(map(repr, cancelled)) == sorted(map(repr, sleeps))  # same ids of the same type
    ids = [repr(message["id"]) for message in messages if "id" in message]
    assert len(ids) == len(set(ids))


def _tool_of(message: dict[str, Any]) -> object:
    return message["params"]["name"] if message["method"] == "tools/call" else None


async def until_stats(client: Client, live: int) -> None:
    """Wait until so many handlers run in the server."""
    with trio.fail_after(10):
        while True:
            if text_of(await client.call_tool("stats")) == str(live):
                return
            await trio.sleep(0.005)


async def test_invariant_6_twenty_mixed_outcomes_are_each_its_own() -> None:
    async with connect(FIXTURE_SERVER) as client:
        outcomes = Outcomes(client)
        async with trio.open_nursery() as nursery:

            def start(key: object, tool: str, **options: Any) -> None:
                nursery.start_soon(lambda: outcomes.call(key, tool, **options))

            for number in range(4):
                start(f"echo {number}", "echo", arguments={"text": str(number)})
                start(f"tool {number}", "boom", arguments={"kind": "tool"})
                start(f"bug {number}", "boom", arguments={"kind": "bug"})
                start(f"slow {number}", "sleep", arguments={"s": 60}, timeout=0.2)
            start("unknown", "nope")
            start("arguments", "add", arguments={"a": "x"})
            start("nan", "boom", arguments={"kind": "nan"})
            start("exit", "boom", arguments={"kind": "exit"})
        of = outcomes.of
        assert len(of) == 20
        for number in range(4):
            assert of[f"echo {number}"] == str(number)
            assert of[f"tool {number}"] == "isError"
            assert isinstance(of[f"bug {number}"], ServerError)
            assert isinstance(of[f"slow {number}"], CallTimeout)
        assert of["arguments"] == "isError"
        for key, code in {"unknown": -32602, "nan": -32603, "exit": -32603}.items():
            error = of[key]
            assert isinstance(error, ServerError)
            assert error.code == code
        await probe(client)
        await until_stats(client, 0)


# Progress callbacks -------------------------------------------------------------------------------


async def test_a_raising_progress_callback_concerns_its_owner_only() -> None:
    def raises(update: ProgressUpdate) -> None:
        raise LookupError(f"no bar for {update.message}")

    async with connect(FIXTURE_SERVER) as client:
        outcomes = Outcomes(client)
        async with trio.open_nursery() as nursery:
            ticks = {"n": 1000, "dt": 0.01}
            nursery.start_soon(lambda: outcomes.call("nap", "sleep", arguments={"s": 0.2}))
            await outcomes.call("ticks", "tick", arguments=ticks, on_progress=raises)
            await probe(client)
        assert isinstance(outcomes.of["ticks"], LookupError)
        assert outcomes.of["nap"] == "slept"
        (entry,) = [entry for entry in client.journal if entry.target == "tick"]
        assert entry.state is State.CANCELLED  # the server was told
        await probe(client)


async def test_a_slow_progress_callback_blocks_no_other_call() -> None:
    seen: list[float] = []
    stuck, go_on = trio.Event(), trio.Event()

    async def slow(update: ProgressUpdate) -> None:
        seen.append(update.progress)
        stuck.set()
        await go_on.wait()

    async with connect(FIXTURE_SERVER) as client:
        outcomes = Outcomes(client)
        async with trio.open_nursery() as nursery:
            ticks = {"n": 4, "dt": 0.03}
            nursery.start_soon(
                lambda: outcomes.call("ticks", "tick", arguments=ticks, on_progress=slow)
            )
            await stuck.wait()
            for _ in range(20):
                await probe(client)
            assert seen == [1]  # all the while it was in the callback
            go_on.set()
        assert outcomes.of["ticks"] == "ticked"
        assert seen == [1, 2, 3, 4]


async def test_invariant_9_a_stuck_progress_callback_keeps_no_more_than_the_backlog() -> None:
    seen: list[float] = []
    done = trio.Event()

    async def stuck(update: ProgressUpdate) -> None:
        seen.append(update.progress)
        await done.wait()

    limits = Limits(progress_backlog=3)
    async with connect(FIXTURE_SERVER, limits=limits) as client:
        outcomes = Outcomes(client)
        async with trio.open_nursery() as nursery:
            ticks = {"n": 20, "dt": 0.025}
            nursery.start_soon(
                lambda: outcomes.call("ticks", "tick", arguments=ticks, on_progress=stuck)
            )
            await until(lambda: seen)
            (call,) = [call for call in client._connection.calls if call.target == "tick"]
            await until(lambda: call.ended)
            done.set()
        assert outcomes.of["ticks"] == "ticked"
        assert len(seen) == 4  # the one it was stuck in, and the newest three
        assert seen[-1] == 20


# Leaving in strange ways --------------------------------------------------------------------------


async def test_a_close_from_another_task_closes_and_is_a_clear_error() -> None:
    entered = connect(stub("fine"))
    client = await entered.__aenter__()
    pid = await pid_of(client)
    errors: list[BaseException] = []

    async def close() -> None:
        with pytest.raises(RuntimeError, match="in the task that entered it") as raised:
            await entered.__aexit__(None, None, None)
        errors.append(raised.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(close)
    assert len(errors) == 1
    assert not alive(pid)
    with pytest.raises(ConnectionLost, match="closed"):
        await client.call_tool("pid")
    await entered.__aexit__(None, None, None)


async def test_a_close_out_of_order_closes_and_is_a_clear_error() -> None:
    outer, inner = connect(stub("fine")), connect(stub("fine"))
    outer_client, inner_client = await outer.__aenter__(), await inner.__aenter__()
    outer_pid, inner_pid = await pid_of(outer_client), await pid_of(inner_client)
    with pytest.raises(RuntimeError, match="innermost first"):
        await outer.__aexit__(None, None, None)
    assert not alive(outer_pid)
    await probe(inner_client)
    await inner.__aexit__(None, None, None)
    assert not alive(inner_pid)
    await outer.__aexit__(None, None, None)
    await trio.lowlevel.checkpoint()


async def test_calls_in_flight_when_the_client_closes_end_in_their_owners_hands() -> None:
    errors: list[BaseException] = []

    async def call(client: Client) -> None:
        with pytest.raises(ConnectionLost, match="the client was closed") as lost:
            await client.call_tool("never")
        errors.append(lost.value)

    async with trio.open_nursery() as nursery:
        async with connect(stub("swallow")) as client:
            for _ in range(5):
                nursery.start_soon(call, client)
            await until(lambda: client.stderr_tail.count("swallowed") == 5)
    assert len(errors) == 5
    assert all(isinstance(error, ConnectionLost) and error.sent for error in errors)
