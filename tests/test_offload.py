"""Work that leaves the event loop: ``ctx.run_sync``, ``ctx.run_process``, ``ctx.run_in_process``.

Threads and processes are real ones. How long something takes is asserted only where it would take
for ever, or a limit of the runtime says how long.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
import trio_parallel
from tests.peers.bench import Bench, called, the_work
from tests.peers.burning import burn
from tests.peers.inspection import offloaded
from tests.peers.processes import alive, children
from tests.peers.raw import until

from trio_mcp import (
    CancelSource,
    Context,
    ErrorCode,
    Limits,
    ProcessResult,
    ProtocolError,
    Scope,
    Server,
    State,
    TextContent,
    WorkKind,
    connect,
)
from trio_mcp.runtime.admission.fair_limiter import FairLimiter
from trio_mcp.runtime.exchange import Exchange


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """In the end no thread is left waiting for it."""
    made = threading.Event()
    yield made
    made.set()


# Threads ------------------------------------------------------------------------------------------


async def test_a_function_runs_in_a_thread_and_is_written_down() -> None:
    bench = Bench()
    assert await bench.run(lambda ctx: ctx.run_sync(divmod, 7, 3)) == (2, 1)
    work = the_work(bench.record)
    assert (work.kind, work.label, work.outcome) == (WorkKind.THREAD, "divmod", "result")
    assert work.started_at is not None
    assert work.ended_at is not None
    assert not work.abandoned


async def test_what_a_function_raises_is_raised() -> None:
    bench = Bench()
    with pytest.raises(ZeroDivisionError):
        await bench.run(lambda ctx: ctx.run_sync(divmod, 7, 0))
    assert the_work(bench.record).outcome == "error"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"fn": 5}, TypeError, "takes a plain function, not 5"),
        ({"fn": trio.sleep}, TypeError, "takes a plain function"),
        ({"fn": len, "interrupt": 5}, TypeError, "interrupt is a function, not 5"),
        ({"fn": len, "pool": "none"}, ValueError, "no thread pool 'none'.*there are: 'mine'"),
        ({"fn": len, "pool": []}, ValueError, "no thread pool"),
    ],
)
async def test_what_cannot_run_is_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    bench = Bench(pools={"mine": 1})
    with pytest.raises(error, match=message):
        await bench.run(lambda ctx: ctx.run_sync(**arguments))


async def test_an_interrupt_stops_a_function_at_once(gate: threading.Event) -> None:
    def wait() -> None:
        gate.wait()
        raise RuntimeError("interrupted")

    bench = Bench(Limits(cleanup=60))
    record = await bench.cancel(
        lambda ctx: ctx.run_sync(wait, interrupt=gate.set), lambda: offloaded(bench.server)
    )
    work = the_work(record)
    assert (work.interrupts, work.outcome, work.abandoned) == (1, "stopped", False)
    assert (record.cleanup, record.late) == ("clean", ())
    assert isinstance(bench.error, trio.Cancelled)


async def test_an_interrupt_is_repeated_until_the_function_returns(gate: threading.Event) -> None:
    """The first one may come before there is anything to interrupt."""
    interrupts = []

    def interrupt() -> None:
        interrupts.append(trio.current_time())
        if len(interrupts) == 4:
            gate.set()

    bench = Bench(Limits(cleanup=60, interrupt_pause=0.01))
    record = await bench.cancel(
        lambda ctx: ctx.run_sync(gate.wait, interrupt=interrupt), lambda: offloaded(bench.server)
    )
    assert the_work(record).interrupts == len(interrupts) == 4
    pauses = [late - early for early, late in itertools.pairwise(interrupts)]
    assert all(pause >= least for pause, least in zip(pauses, [0.01, 0.02, 0.04], strict=True))
    assert [late.kind for late in record.late] == ["result"]  # it returned, in spite of it all


async def test_an_interrupt_may_be_async(gate: threading.Event) -> None:
    async def interrupt() -> None:
        await trio.lowlevel.checkpoint()
        gate.set()

    bench = Bench(Limits(cleanup=60))
    record = await bench.cancel(
        lambda ctx: ctx.run_sync(gate.wait, interrupt=interrupt), lambda: offloaded(bench.server)
    )
    assert the_work(record).interrupts == 1


async def test_an_interrupt_that_hangs_is_bounded_by_the_window(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(Limits(cleanup=0.05))
    record = await bench.cancel(
        lambda ctx: ctx.run_sync(gate.wait, interrupt=trio.sleep_forever),
        lambda: offloaded(bench.server),
    )
    assert (record.cleanup, the_work(record).abandoned) == ("abandoned", True)
    assert "failed" not in caplog.text  # it was told to stop


async def test_an_interrupt_that_fails_is_told_and_the_window_goes_on(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt() -> None:
        threading.Timer(0.05, gate.set).start()
        raise ValueError("no such query")

    bench = Bench(Limits(cleanup=60, interrupt_pause=0.001))
    record = await bench.cancel(
        lambda ctx: ctx.run_sync(gate.wait, interrupt=interrupt), lambda: offloaded(bench.server)
    )
    assert (record.cleanup, the_work(record).interrupts) == ("error", 1)
    assert "no such query" in caplog.text


class Odd(BaseException):
    """No ``Exception``."""


@pytest.mark.parametrize(
    "error",
    [
        Odd(),
        SystemExit(3),
        ExceptionGroup("two", [ValueError(), OSError()]),
        BaseExceptionGroup("odd", [Odd(), ValueError()]),
    ],
    ids=repr,
)
async def test_whatever_an_interrupt_raises_the_thread_is_not_lost(
    gate: threading.Event, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupt() -> None:
        raise error

    bench = Bench(Limits(cleanup=0.05))
    record = await bench.cancel(
        lambda ctx: ctx.run_sync(gate.wait, interrupt=interrupt), lambda: offloaded(bench.server)
    )
    assert isinstance(bench.error, trio.Cancelled)
    assert (record.cleanup, the_work(record).abandoned) == ("abandoned", True)
    assert "the interrupt of Event.wait failed" in caplog.text
    assert [scope.state for scope in offloaded(bench.server)] == ["abandoned"]


async def test_an_interrupt_that_fails_when_the_window_ends_changes_nothing(
    gate: threading.Event,
) -> None:
    async def fail() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError

    async def interrupt() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()

    bench = Bench(Limits(cleanup=0.05))
    record = await bench.cancel(
        lambda ctx: ctx.run_sync(gate.wait, interrupt=interrupt), lambda: offloaded(bench.server)
    )
    assert isinstance(bench.error, trio.Cancelled)
    assert (record.cleanup, the_work(record).abandoned) == ("abandoned", True)


async def test_a_keyboard_interrupt_in_an_interrupt_goes_on_and_the_thread_is_listed(
    gate: threading.Event,
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    bench = Bench(Limits(cleanup=60))
    with pytest.raises(KeyboardInterrupt):
        await bench.cancel(
            lambda ctx: ctx.run_sync(gate.wait, interrupt=interrupt),
            lambda: offloaded(bench.server),
        )
    assert isinstance(bench.error, KeyboardInterrupt)
    assert [scope.state for scope in offloaded(bench.server)] == ["abandoned"]


@pytest.mark.parametrize(
    "work",
    [
        lambda ctx: ctx.run_sync(len, []),
        lambda ctx: ctx.run_process(["true"]),
        lambda ctx: ctx.run_in_process(os.getpid),
    ],
    ids=["thread", "command", "worker"],
)
async def test_a_request_that_is_over_begins_no_work(work: Callable[[Context], Any]) -> None:
    """Nobody would stop it."""
    kept: list[Context] = []

    async def keep(ctx: Context) -> None:
        kept.append(ctx)

    bench = Bench()
    await bench.run(keep)
    with pytest.raises(RuntimeError, match="this request is over"):
        await work(kept[0])
    assert (bench.record.work, offloaded(bench.server)) == ((), [])


@pytest.mark.parametrize("pool", [None, "mine"])
async def test_a_function_that_does_not_stop_is_abandoned_and_its_end_is_written_down(
    gate: threading.Event, pool: str | None
) -> None:
    bench = Bench(Limits(cleanup=0.05), pools={"mine": 1})
    record = await bench.cancel(
        lambda ctx: ctx.run_sync(gate.wait, pool=pool), lambda: offloaded(bench.server)
    )
    work = the_work(record)
    assert (work.abandoned, work.outcome, work.ended_at) == (True, None, None)
    (scope,) = offloaded(bench.server)
    assert (scope.state, scope.cause, scope.key) == ("abandoned", record.cause, record.key)
    assert "abandoned" in record.describe()
    gate.set()
    await until(lambda: not offloaded(bench.server))
    assert work.outcome == "result"
    assert work.ended_at is not None
    assert [late.kind for late in record.late] == ["result"]


async def test_a_scope_of_the_handler_stops_a_function_and_not_the_request(
    gate: threading.Event,
) -> None:
    async def body(ctx: Context) -> str:
        with trio.move_on_after(0.01) as scope:
            await ctx.run_sync(gate.wait, interrupt=gate.set)
        assert scope.cancelled_caught
        return "went on"

    bench = Bench()
    assert await bench.run(body) == "went on"
    assert (bench.record.state, bench.record.late) == (State.COMPLETED, ())
    assert bench.record.cleanup is None


async def test_what_a_function_raises_too_late_is_an_error_of_the_clean_up(
    gate: threading.Event,
) -> None:
    def fail() -> None:
        gate.wait()
        raise RuntimeError

    bench = Bench(Limits(cleanup=60))

    async def body(ctx: Context) -> None:
        async def open_later() -> None:
            try:
                await trio.sleep_forever()
            finally:
                gate.set()

        ctx.nursery.start_soon(open_later)
        await ctx.run_sync(fail)

    record = await bench.cancel(body, lambda: offloaded(bench.server))
    assert isinstance(bench.error, trio.Cancelled)
    assert (record.cleanup, the_work(record).outcome) == ("error", "error")
    assert [late.kind for late in record.late] == ["error"]


async def test_a_function_waits_for_a_free_thread_and_may_be_cancelled_there(
    gate: threading.Event, mock_clock: trio.testing.MockClock
) -> None:
    """It has not begun: there is nothing to wait for, and nothing to interrupt."""
    bench = Bench(Limits(threads=1))
    interrupts: list[int] = []

    def scopes() -> list[Scope]:
        return trio.from_thread.run_sync(offloaded, bench.server)

    async def body(ctx: Context) -> None:
        async def look() -> None:
            (scope,) = await ctx.run_sync(scopes)
            assert (scope.state, scope.age) == ("running", 0)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.run_sync, gate.wait)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(look)
            with trio.move_on_after(1) as scope:
                nursery.start_soon(pass_by, 3)
                await ctx.run_sync(len, [], interrupt=functools.partial(interrupts.append, 1))
            assert scope.cancelled_caught
            gate.set()

    async def pass_by(seconds: float) -> None:
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(seconds)

    await bench.run(body)
    assert interrupts == []
    _, cancelled, after = bench.record.work
    assert (cancelled.started_at, cancelled.abandoned, cancelled.outcome) == (None, False, None)
    assert (after.queued, after.outcome) == (3, "result")


async def test_a_function_that_is_cancelled_in_the_step_in_which_it_gets_its_thread_never_runs(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, scope, ran = Bench(Limits(threads=1)), trio.CancelScope(), threading.Event()
    release = FairLimiter.release

    def release_and_cancel(limiter: FairLimiter, exchange: Exchange) -> None:
        release(limiter, exchange)
        scope.cancel()

    async def body(ctx: Context) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.run_sync, gate.wait)
            await trio.testing.wait_all_tasks_blocked()
            monkeypatch.setattr(FairLimiter, "release", release_and_cancel)
            nursery.start_soon(open_gate)
            with scope:
                await ctx.run_sync(ran.set)
        assert scope.cancelled_caught

    async def open_gate() -> None:
        await trio.testing.wait_all_tasks_blocked()
        gate.set()

    await bench.run(body)
    assert not ran.is_set()
    assert bench.record.work[-1].started_at is None
    assert bench.server._core.pools.threads().busy == 0


async def test_a_function_of_a_peer_that_has_too_many_answers_runs_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request has begun already."""
    bench = Bench()

    async def body(ctx: Context) -> int:
        (exchange,) = bench.server._core.exchanges()
        refusal = ProtocolError(ErrorCode.OVERLOADED, "too many")
        monkeypatch.setattr(type(exchange.peer), "hold", lambda *_: refusal)
        return await ctx.run_sync(len, [])

    assert await bench.run(body) == 0


async def test_a_name_is_clipped_on_the_record() -> None:
    def function() -> None: ...

    function.__qualname__ = "x" * 100
    bench = Bench(Limits(text_length=10))
    await bench.run(lambda ctx: ctx.run_sync(function))
    assert the_work(bench.record).label == "x" * 10


async def test_check_cancelled_works_in_the_function() -> None:
    def ask(ctx: Context) -> None:
        while True:
            ctx.check_cancelled()
            time.sleep(0.001)

    bench = Bench(Limits(cleanup=60))
    record = await bench.cancel(lambda ctx: ctx.run_sync(ask, ctx), lambda: offloaded(bench.server))
    assert (the_work(record).outcome, record.late) == ("stopped", ())


async def test_a_pool_has_threads_of_its_own(gate: threading.Event) -> None:
    """A full pool holds up neither another one nor the server's own threads."""
    server = Server("pools", version="1", limits=Limits(threads=1), pools={"slow": 2, "other": 1})

    @server.tool(pool="slow")
    def slow() -> None:
        gate.wait()

    @server.tool(pool="other")
    def other() -> str:
        return "other"

    @server.tool
    def own() -> str:
        return "own"

    async with connect(server) as client, trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(client.call_tool, "slow")
        await until(lambda: len(offloaded(server)) == 5)
        states = sorted(scope.state for scope in offloaded(server))
        assert states == ["running"] * 2 + ["waiting"] * 3
        for name in ("other", "own"):
            (said,) = (await client.call_tool(name)).content
            assert isinstance(said, TextContent)
            assert said.text == name
        gate.set()


@pytest.mark.parametrize(
    ("pools", "error", "message"),
    [
        (["a"], TypeError, r"a dict of names and sizes, not \['a'\]"),
        ({5: 1}, TypeError, "a pool's name is a text, not 5"),
        ({"": 1}, TypeError, "a pool's name is a text"),
        ({"a": 0}, ValueError, "pool 'a' has at least one thread, not 0"),
        ({"a": 1.5}, TypeError, "a whole number of threads, not 1.5"),
        ({"a": True}, TypeError, "a whole number of threads"),
    ],
)
def test_pools_that_are_none_are_refused(pools: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Server("pools", version="1", pools=pools)


def test_a_tool_names_a_pool_that_there_is_and_needs_one() -> None:
    server = Server("pools", version="1", pools={"there": 1})
    with pytest.raises(ValueError, match=r"no thread pool 'none'"):
        server.tool(pool="none")
    with pytest.raises(ValueError, match=r"no thread pool 'none'"):
        server.add_tool(len, pool="none")

    async def needs_none() -> None: ...

    with pytest.raises(ValueError, match=r"is for a plain def"):
        server.tool(pool="there")(needs_none)


async def test_only_the_newest_pieces_of_work_are_written_down() -> None:
    async def body(ctx: Context) -> None:
        for function in (len, sum, max, min):
            await ctx.run_sync(function, [1])

    bench = Bench(Limits(work_records=2))
    await bench.run(body)
    assert [work.label for work in bench.record.work] == ["max", "min"]


async def test_clean_up_may_use_a_thread(gate: threading.Event) -> None:
    """A transaction is rolled back in a call of its own, after the interrupted one."""
    rolled_back: list[bool] = []

    async def body(ctx: Context) -> None:
        try:
            await ctx.run_sync(gate.wait, interrupt=gate.set)
        finally:
            with ctx.cleanup(5):
                await ctx.run_sync(rolled_back.append, True)

    bench = Bench()
    record = await bench.cancel(body, lambda: offloaded(bench.server))
    assert rolled_back == [True]
    assert (record.cleanup, len(record.work)) == ("clean", 2)


async def test_clean_up_never_waits_behind_others_for_a_thread(gate: threading.Event) -> None:
    """The pool's only thread, which the cancelled function gives up, is another request's then."""
    server = Server("full", version="1", limits=Limits(cleanup=30), pools={"database": 1})
    others = threading.Event()
    rolled_back: list[bool] = []

    @server.tool
    async def first(ctx: Context) -> None:
        try:
            await ctx.run_sync(gate.wait, interrupt=gate.set, pool="database")
        finally:
            with ctx.cleanup(10):
                await ctx.run_sync(rolled_back.append, True, pool="database")

    @server.tool
    async def second(ctx: Context) -> None:
        await ctx.run_sync(others.wait, interrupt=others.set, pool="database")

    async with connect(server) as client, trio.open_nursery() as nursery:
        async with client.start_tool("first") as call:
            await until(lambda: offloaded(server))
            nursery.start_soon(client.call_tool, "second")
            await until(lambda: len(offloaded(server)) == 2)
            call.cancel()
            await until(lambda: called(server))
        assert rolled_back == [True]
        assert called(server)[0].cleanup == "clean"
        nursery.cancel_scope.cancel()


async def test_work_is_refused_where_it_would_not_stop_with_the_request() -> None:
    said: list[str] = []
    server = Server("places", version="1")

    def attempt(start: Callable[[], object]) -> None:
        try:
            start()
        except RuntimeError as error:
            said.append(str(error))

    @server.tool
    def plain(ctx: Context) -> None:
        for start in (
            lambda: ctx.run_sync(len, []),
            lambda: ctx.run_process(["true"]),
            lambda: ctx.run_in_process(len, []),
            lambda: trio.from_thread.run(ctx.run_process, ["true"]),
        ):
            attempt(start)

    @server.tool
    async def child(ctx: Context) -> str:
        done = []

        async def run() -> None:
            done.append((await ctx.run_process(["true"])).returncode)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            ctx.nursery.start_soon(run)
        return str(len(done) or "")

    async with connect(server) as client:
        assert not (await client.call_tool("plain")).is_error
        assert not (await client.call_tool("child")).is_error
    assert [text.partition("()")[0] for text in said] == [
        "run_sync",
        "run_process",
        "run_in_process",
        "run_process",
    ]
    assert ["async code" in text for text in said] == [True, True, True, False]
    assert "does not belong to the request" in said[-1]


async def test_clean_up_that_is_cut_off_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def body(ctx: Context) -> None:
        with ctx.cleanup(0.01):
            await trio.sleep_forever()

    await Bench().run(body)
    assert "clean-up of tools/call work was not over within 0.01 s" in caplog.text


# Commands -----------------------------------------------------------------------------------------


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


async def test_a_command_runs_and_its_outputs_come_back() -> None:
    bench = Bench()
    result: ProcessResult = await bench.run(
        lambda ctx: ctx.run_process(sh("cat; echo problem >&2"), input=b"text")
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"text", b"problem\n")
    work = the_work(bench.record)
    assert (work.kind, work.label, work.exit_status) == (WorkKind.PROCESS, "sh", 0)
    assert (work.outcome, work.signals) == ("result", ())
    assert work.pid is not None


async def test_a_command_has_no_input_unless_it_is_given_some() -> None:
    result = await Bench().run(lambda ctx: ctx.run_process(["cat"]))
    assert result.stdout == b""


async def test_a_command_may_leave_its_input_unread() -> None:
    result = await Bench().run(lambda ctx: ctx.run_process(["true"], input=b"x" * 1_000_000))
    assert result.returncode == 0


async def test_who_leaves_the_group_with_the_input_is_not_waited_for() -> None:
    code = (
        "import subprocess\n"
        "print(subprocess.Popen(['sleep', '60'], start_new_session=True, stdout=2).pid)\n"
    )
    with trio.fail_after(10):
        result = await Bench().run(
            lambda ctx: ctx.run_process(python(code), input=b"x" * 1_000_000)
        )
    os.kill(int(result.stdout), signal.SIGKILL)


async def test_where_and_with_what_a_command_runs(tmp_path: Any) -> None:
    result = await Bench().run(
        lambda ctx: ctx.run_process(
            sh("pwd; echo $NAME"), cwd=tmp_path, env={"NAME": "value", "PATH": os.environ["PATH"]}
        )
    )
    assert result.stdout.decode().split() == [str(tmp_path), "value"]


async def test_a_command_that_fails_is_an_error_unless_it_may() -> None:
    bench = Bench()
    with pytest.raises(subprocess.CalledProcessError) as caught:
        await bench.run(lambda ctx: ctx.run_process(sh("echo out; echo err >&2; exit 3")))
    assert caught.value.returncode == 3
    assert (caught.value.stdout, caught.value.stderr) == (b"out\n", b"err\n")
    assert caught.value.__notes__ == ["The end of its standard error: err"]
    result = await bench.run(lambda ctx: ctx.run_process(sh("exit 3"), check=False))
    assert result.returncode == 3


async def test_a_command_that_is_not_there() -> None:
    bench = Bench()
    with pytest.raises(FileNotFoundError):
        await bench.run(lambda ctx: ctx.run_process(["no-such-command-at-all"]))
    assert the_work(bench.record).outcome == "error"


@pytest.mark.parametrize(
    ("command", "options", "error", "message"),
    [
        ("ls -l", {}, TypeError, r"a command is a list, \['ls', '-l'\]"),
        ([], {}, ValueError, "has at least a program"),
        (["ls", 5], {}, TypeError, "texts or paths, not 5"),
        ([b"ls"], {}, TypeError, "texts or paths"),
        (["ls"], {"input": "text"}, TypeError, "input are bytes, not str"),
        (["ls"], {"env": {"A": 1}}, TypeError, "environment variables are texts, not 'A': 1"),
        (["ls"], {"grace": "1"}, TypeError, "grace is a number, not '1'"),
        (["ls"], {"on_stdout": 5}, TypeError, "on_stdout is a function, not 5"),
        (["ls"], {"on_stderr": "x"}, TypeError, "on_stderr is a function, not 'x'"),
        (["ls\0"], {}, ValueError, "null byte"),
        (["ls"], {"env": {1: 2}}, TypeError, "environment variables are texts, not 1: 2"),
        (["ls"], {"cwd": "/no/such/folder"}, FileNotFoundError, "no/such/folder"),
        (["ls"], {"grace": -1}, ValueError, "grace is 0 to 60 seconds"),
        (["ls"], {"grace": float("nan")}, ValueError, "grace is 0 to 60 seconds"),
        (["ls"], {"grace": 61}, ValueError, "grace is 0 to 60 seconds"),
    ],
)
async def test_what_is_no_command_is_refused(
    command: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await Bench().run(lambda ctx: ctx.run_process(command, **options))


async def test_outputs_are_bounded_and_their_ends_kept() -> None:
    bench = Bench(Limits(output_bytes=100))
    result = await bench.run(
        lambda ctx: ctx.run_process(
            python("import sys; print('x' * 1_000_000 + 'end'); sys.stderr.write('y' * 300_000)")
        )
    )
    assert (len(result.stdout), result.stdout_dropped) == (100, 1_000_004 - 100)
    assert result.stdout.endswith(b"xend\n")
    assert (result.stderr, result.stderr_dropped) == (b"y" * 100, 300_000 - 100)


async def test_output_comes_as_it_is_written() -> None:
    """A callback may be async; the command waits for a slow one."""
    pieces: list[bytes] = []
    errors: list[bytes] = []

    async def on_stdout(data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        pieces.append(data)

    await Bench().run(
        lambda ctx: ctx.run_process(
            sh("echo one; echo two; echo three >&2"), on_stdout=on_stdout, on_stderr=errors.append
        )
    )
    assert b"".join(pieces) == b"one\ntwo\n"
    assert b"".join(errors) == b"three\n"


async def test_a_callback_that_fails_ends_the_command() -> None:
    def on_stdout(data: bytes) -> None:
        raise ZeroDivisionError

    bench = Bench()
    with pytest.raises(ZeroDivisionError):
        await bench.run(lambda ctx: ctx.run_process(sh("echo x; sleep 60"), on_stdout=on_stdout))
    work = the_work(bench.record)
    assert (work.signals, work.exit_status) == (("SIGTERM",), -signal.SIGTERM)


def reported(pids: list[int]) -> Callable[[bytes], None]:
    """Takes down the numbers that a command prints."""

    def on_stdout(data: bytes) -> None:
        pids.extend(map(int, data.split()))

    return on_stdout


async def test_cancelled_a_command_is_terminated() -> None:
    pids: list[int] = []
    bench = Bench()
    record = await bench.cancel(
        lambda ctx: ctx.run_process(sh("echo $$; exec sleep 60"), on_stdout=reported(pids)),
        lambda: pids,
    )
    work = the_work(record)
    assert (work.signals, work.exit_status) == (("SIGTERM",), -signal.SIGTERM)
    assert (work.outcome, work.pid, record.cleanup) == ("stopped", pids[0], "clean")
    assert not alive(pids[0])


async def test_a_command_that_ignores_sigterm_is_killed_after_its_grace() -> None:
    pids: list[int] = []
    bench = Bench()
    record = await bench.cancel(
        lambda ctx: ctx.run_process(
            sh("trap '' TERM; echo $$; while :; do sleep 0.05; done"),
            on_stdout=reported(pids),
            grace=0.1,
        ),
        lambda: pids,
    )
    work = the_work(record)
    assert (work.signals, work.exit_status) == (("SIGTERM", "SIGKILL"), -signal.SIGKILL)
    assert record.cleanup_duration is not None
    assert record.cleanup_duration >= 0.1
    assert not alive(pids[0])


@pytest.mark.parametrize("output", ["stdout", "stderr"])
async def test_a_command_that_cleans_up_within_its_grace_is_left_to(output: str) -> None:
    """Its last words are read, however many."""
    begun: list[bytes] = []
    code = (
        "import signal, sys, time\n"
        "def leave(*_):\n"
        f"    sys.{output}.write('x' * 1_000_000)\n"
        f"    sys.{output}.flush()\n"
        "    time.sleep(0.3)\n"
        "    sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "print('begun', flush=True)\n"
        "time.sleep(60)\n"
    )
    bench = Bench(Limits(process_grace=30))
    record = await bench.cancel(
        lambda ctx: ctx.run_process(python(code), on_stdout=begun.append), lambda: begun
    )
    work = the_work(record)
    assert (work.signals, work.exit_status) == (("SIGTERM",), 7)


async def test_cancelled_the_whole_group_of_a_command_ends() -> None:
    """What forks too, and what forks and ignores SIGTERM."""
    pids: list[int] = []
    script = (
        "sleep 60 & echo $!; sh -c 'trap \"\" TERM; sleep 60 & echo $!; sleep 60' & echo $!; "
        "echo $$; wait"
    )
    bench = Bench()
    record = await bench.cancel(
        lambda ctx: ctx.run_process(sh(script), on_stdout=reported(pids), grace=0.1),
        lambda: len(pids) == 4,
    )
    await until(lambda: not any(map(alive, pids)), timeout=1)
    assert the_work(record).signals == ("SIGTERM", "SIGKILL")


async def test_nothing_that_a_command_has_left_behind_outlives_the_call() -> None:
    """It holds the pipes open, too."""
    bench = Bench()
    result = await bench.run(lambda ctx: ctx.run_process(sh("sleep 60 & echo $!")))
    assert not alive(int(result.stdout))
    work = the_work(bench.record)
    assert (work.exit_status, work.signals) == (0, ("SIGTERM",))


@pytest.mark.parametrize("says", ["", "x"], ids=["silent", "talks"])
@pytest.mark.parametrize("output", ["stdout", "stderr"])
async def test_who_leaves_the_group_with_a_pipe_is_not_waited_for(output: str, says: str) -> None:
    """However much it says."""
    number = {"stdout": 1, "stderr": 2}[output]
    script = f"while sleep 0.02; do printf '{says}' >&{number}; done"
    code = (
        "import subprocess\n"
        "streams = dict.fromkeys(['stdout', 'stderr'], subprocess.DEVNULL)\n"
        f"del streams[{output!r}]\n"
        f"command = ['sh', '-c', {script!r}]\n"
        "print(subprocess.Popen(command, start_new_session=True, **streams).pid)\n"
    )
    with trio.fail_after(10):
        result = await Bench().run(lambda ctx: ctx.run_process(python(code)))
    with contextlib.suppress(ProcessLookupError):  # if it did not survive the end of its pipe
        os.killpg(int(result.stdout.replace(b"x", b"")), signal.SIGKILL)
    assert result.returncode == 0


@pytest.mark.parametrize("output", ["stdout", "stderr"])
async def test_cancelled_who_has_left_the_group_with_a_pipe_is_not_waited_for(output: str) -> None:
    pids: list[int] = []
    script = "setsid sh -c 'echo $$; exec sleep 60' & wait"
    command = sh(script if output == "stdout" else f"({script}) >&2")
    options: dict[str, Any] = {f"on_{output}": reported(pids)}
    bench = Bench(Limits(process_grace=30))
    with trio.fail_after(10):
        record = await bench.cancel(lambda ctx: ctx.run_process(command, **options), lambda: pids)
    os.kill(pids[0], signal.SIGKILL)
    assert the_work(record).signals == ("SIGTERM",)


async def test_a_command_that_outlives_sigkill_is_abandoned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The system may take its time, with a disk that is stuck for one."""
    pids: list[int] = []
    bench = Bench()

    def is_begun() -> bool:
        if pids:
            monkeypatch.setattr(os, "killpg", lambda *_: None)
        return bool(pids)

    record = await bench.cancel(
        lambda ctx: ctx.run_process(
            sh("echo $$; exec sleep 60"), on_stdout=reported(pids), grace=0.01
        ),
        is_begun,
    )
    work = the_work(record)
    assert (work.abandoned, work.ended_at, record.cleanup) == (True, None, "abandoned")
    assert work.signals == ("SIGTERM", "SIGKILL")
    assert f"process {pids[0]} (sh) did not end at SIGKILL" in caplog.text
    assert record.cleanup_duration is not None
    assert record.cleanup_duration >= 1  # what the system may take
    os.kill(pids[0], signal.SIGKILL)
    await until(lambda: work.ended_at)
    assert (work.outcome, work.exit_status) == ("stopped", -signal.SIGKILL)
    assert pids[0] not in children()


async def test_to_see_that_a_leader_lives_no_other_process_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The system may run thousands, and the loop waits meanwhile."""
    looked: list[str] = []
    listdir = os.listdir

    def look(path: str) -> list[str]:
        looked.append(path)
        return listdir(path)

    pids: list[int] = []
    bench = Bench()

    def is_begun() -> bool:
        if pids:
            monkeypatch.setattr(os, "listdir", look)
        return bool(pids)

    await bench.cancel(
        lambda ctx: ctx.run_process(sh("echo $$; exec sleep 60"), on_stdout=reported(pids)),
        is_begun,
    )
    assert looked == []
    assert not alive(pids[0])


class AtStep(trio.abc.Instrument):
    """Cancels a scope before so many steps of tasks have been made."""

    def __init__(self, steps: int, scope: trio.CancelScope) -> None:
        self.steps = steps
        self._scope = scope

    def before_task_step(self, _: trio.lowlevel.Task) -> None:
        self.steps -= 1
        if self.steps == 0:
            self._scope.cancel()


@pytest.mark.parametrize(
    "work",
    [
        lambda ctx: ctx.run_process(sh("echo x; echo y >&2; cat"), input=b"z"),
        lambda ctx: ctx.run_process(sh("sleep 60 & trap '' TERM; echo x"), grace=0.01),
        lambda ctx: ctx.run_process(["true"], input=b"z" * 1_000_000),
        lambda ctx: ctx.run_sync(time.sleep, 0.001),
        lambda ctx: ctx.run_in_process(time.sleep, 0.001),
    ],
    ids=["command", "ignores", "unread", "thread", "worker"],
)
async def test_invariant_4_a_cancel_at_any_step_leaves_nothing(
    work: Callable[[Context], Any], request: pytest.FixtureRequest
) -> None:
    bench, is_worker = Bench(), request.node.callspec.id == "worker"

    async def body(ctx: Context) -> None:
        (exchange,) = bench.server._core.exchanges()
        pools = exchange.core.pools
        before = set(children())
        for step in itertools.count(1):
            with trio.CancelScope() as scope:
                instrument = AtStep(step, scope)
                trio.lowlevel.add_instrument(instrument)
                try:
                    await work(ctx)
                finally:
                    trio.lowlevel.remove_instrument(instrument)
            assert len(set(children()) - before) <= is_worker  # one that is idle
            assert (pools.processes.borrowed_tokens, pools.threads().busy) == (0, 0)
            assert exchange.work == ()
            if instrument.steps > 0:
                break
            for record in exchange.work_records:
                assert (record.started_at is None) == (record.ended_at is None)
                assert record.outcome in (None, "stopped", "result")
        assert step > 2

    await bench.run(body)


async def test_what_a_command_wrote_is_read_however_slowly() -> None:
    """Also when somebody who has left its group holds the pipe."""
    read = 0

    async def on_stdout(data: bytes) -> None:
        nonlocal read
        if not read:
            await trio.sleep(0.8)  # until well after it has ended
        read += len(data)

    code = (
        "import subprocess, sys\n"
        "process = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        "print(process.pid, file=sys.stderr)\n"
        "sys.stdout.write('x' * 100_000)\n"
    )
    result = await Bench().run(lambda ctx: ctx.run_process(python(code), on_stdout=on_stdout))
    os.kill(int(result.stderr), signal.SIGKILL)
    assert (len(result.stdout), read) == (100_000, 100_000)


async def test_a_group_that_has_ended_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be that of others by then."""
    signals: list[int] = []
    bench = Bench()

    async def body(ctx: Context) -> None:
        async def on_stdout(data: bytes) -> None:
            await trio.sleep_forever()

        await ctx.run_process(sh("echo x"), on_stdout=on_stdout)

    def has_ended() -> bool:
        for exchange in bench.server._core.exchanges():
            if any(work.record.exit_status == 0 for work in exchange.work):
                monkeypatch.setattr(os, "killpg", lambda _, number: signals.append(number))
                return True
        return False

    record = await bench.cancel(body, has_ended)
    assert signals == []
    assert (the_work(record).signals, the_work(record).exit_status) == ((), 0)


async def test_commands_beyond_the_limit_wait_and_can_be_cancelled() -> None:
    pids: list[int] = []
    server = Server("commands", version="1", limits=Limits(processes=2))

    @server.tool
    async def run(ctx: Context) -> None:
        await ctx.run_process(sh("echo $$; exec sleep 60"), on_stdout=reported(pids))

    async with connect(server) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(client.call_tool, "run")
            await until(lambda: len(pids) == 2)
            states = sorted(scope.state for scope in offloaded(server))
            assert states == ["running"] * 2 + ["waiting"] * 2
            nursery.cancel_scope.cancel()
        await until(lambda: len(called(server)) == 4)
    starts = [the_work(record).started_at for record in called(server)]
    assert starts.count(None) == 2
    assert not any(map(alive, pids))


async def test_a_command_leaves_no_descriptor_behind() -> None:
    bench = Bench()

    async def body(ctx: Context) -> None:
        await ctx.run_process(["true"], input=b"x")
        with trio.move_on_after(0.05):
            await ctx.run_process(["sleep", "60"], input=b"x")

    await bench.run(body)
    before = sorted(os.listdir("/proc/self/fd"))
    await bench.run(body)
    assert sorted(os.listdir("/proc/self/fd")) == before


# Worker processes ---------------------------------------------------------------------------------


def fail(message: str) -> None:
    raise ValueError(message)


async def test_a_function_runs_in_a_worker_process() -> None:
    bench = Bench()
    pid = await bench.run(lambda ctx: ctx.run_in_process(os.getpid))
    assert pid != os.getpid()
    work = the_work(bench.record)
    assert (work.kind, work.label, work.outcome) == (WorkKind.WORKER, "getpid", "result")

    with pytest.raises(ValueError, match="no good"):
        await bench.run(lambda ctx: ctx.run_in_process(fail, "no good"))
    with pytest.raises(TypeError, match="takes a plain function"):
        await bench.run(lambda ctx: ctx.run_in_process(5))  # type: ignore[arg-type]


async def test_cancelled_a_worker_is_killed_and_replaced(tmp_path: Any) -> None:
    path = tmp_path / "pid"
    bench = Bench(Limits(workers=1))
    record = await bench.cancel(
        lambda ctx: ctx.run_in_process(burn, str(path)),
        lambda: path.exists() and path.read_text().endswith("\n"),
    )
    killed = int(path.read_text())
    assert not alive(killed)
    work = the_work(record)
    assert (work.outcome, work.signals, record.cleanup) == ("stopped", ("SIGKILL",), "clean")
    assert record.cause is not None
    assert record.cause.source is CancelSource.NOTIFICATION
    assert await bench.run(lambda ctx: ctx.run_in_process(os.getpid)) not in (killed, os.getpid())


async def test_calls_beyond_the_limit_of_workers_wait_and_can_be_cancelled() -> None:
    bench = Bench(Limits(workers=1))

    async def body(ctx: Context) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(ctx.run_in_process, time.sleep, 60)
            await until(lambda: len(offloaded(bench.server)) == 2)
            await trio.testing.wait_all_tasks_blocked()
            assert [scope.state for scope in offloaded(bench.server)] == ["running", "waiting"]
            nursery.cancel_scope.cancel()

    await bench.run(body)
    assert [(work.outcome, work.signals) for work in bench.record.work] == [
        ("stopped", ("SIGKILL",)),
        (None, ()),
    ]


async def test_workers_are_bounded_by_the_server_alone_and_leave_when_they_are_idle() -> None:
    """The application's own calls of ``trio-parallel`` take no place from it."""
    bench = Bench(Limits(worker_idle=0.05))

    async def body(ctx: Context) -> None:
        limiter = trio_parallel.current_default_worker_limiter()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(int(limiter.total_tokens)):
                await stack.enter_async_context(_borrowed(limiter))
            with trio.fail_after(10):
                worker = await ctx.run_in_process(os.getpid)
        await until(lambda: not alive(worker))

    await bench.run(body)


@contextlib.asynccontextmanager
async def _borrowed(limiter: trio.CapacityLimiter) -> AsyncIterator[None]:
    await limiter.acquire_on_behalf_of(token := object())
    try:
        yield
    finally:
        limiter.release_on_behalf_of(token)


async def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trio_parallel", None)
    with pytest.raises(RuntimeError, match=r"pip install 'trio-mcp\[cpu\]'"):
        await Bench().run(lambda ctx: ctx.run_in_process(os.getpid))


def test_workers_leave_with_the_trio_run() -> None:
    bench = Bench()
    worker = trio.run(bench.run, lambda ctx: ctx.run_in_process(os.getpid))
    assert not alive(worker)
    assert trio.run(bench.run, lambda ctx: ctx.run_in_process(os.getpid)) != worker
