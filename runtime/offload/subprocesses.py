"""Commands: a process group of its own for each, which is gone when the call is over.

Nothing of the group outlives the call: neither what the command has left behind when it exits, nor
all of it when the call is cancelled. The end is graded: SIGTERM, ``Limits.process_grace`` seconds,
SIGKILL. Both outputs are always read, so that no command blocks on a full pipe, and the end of each
is kept.
"""

from __future__ import annotations

import fcntl
import inspect
import logging
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import trio

from ..groups import leaf_of
from .process_groups import ProcessGroup
from .work import Work, WorkKind

if TYPE_CHECKING:
    from ..exchange import Exchange

__all__ = ["Command", "OnOutput", "ProcessResult", "run_command"]

logger = logging.getLogger("trio_mcp.offload")

OnOutput: TypeAlias = Callable[[bytes], Awaitable[None] | None]

_CHUNK: Final = 64 * 1024
_PATIENCE: Final = 0.5
"""Seconds after which a pipe is closed that is still held outside of the group."""
_NOTED: Final = 2000
"""Bytes of standard error that go with the exception for a command that has failed."""
_REAP: Final = 1.0
"""Seconds that the system may take to end a process after SIGKILL."""


@attrs.frozen(kw_only=True)
class ProcessResult:
    """What became of a command. ``returncode`` is negative for a signal.

    ``stdout`` and ``stderr`` are the last ``Limits.output_bytes`` bytes of each;
    ``stdout_dropped`` and ``stderr_dropped`` count the bytes before them.
    """

    args: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes
    stdout_dropped: int = 0
    stderr_dropped: int = 0

    def check_returncode(self) -> None:
        """Raise ``subprocess.CalledProcessError`` unless it is 0."""
        if not self.returncode:
            return
        error = subprocess.CalledProcessError(
            self.returncode, list(self.args), self.stdout, self.stderr
        )
        if words := self.stderr[-_NOTED:].decode(errors="replace").strip():
            error.add_note(f"The end of its standard error: {words}")
        raise error


@attrs.frozen(kw_only=True)
class Command:
    """What to run, and how; see :meth:`.Context.run_process`."""

    args: tuple[str, ...]
    input: bytes | None
    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    on_stdout: OnOutput | None
    on_stderr: OnOutput | None
    grace: float
    check: bool

    @classmethod
    def of(cls, command: Any, data: Any, **options: Any) -> Command:
        """Raises ``TypeError`` or ``ValueError`` for what is no command."""
        if isinstance(command, (str, bytes, os.PathLike)) or not isinstance(command, Sequence):
            raise TypeError(
                f"a command is a list, ['ls', '-l'] or ['sh', '-c', 'ls | wc'], not {command!r:.80}"
            )
        if not command:
            raise ValueError("a command has at least a program: ['ls', '-l']")
        if data is not None and not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"input are bytes, not {type(data).__name__}")
        for part in command:
            if not isinstance(part, (str, os.PathLike)):
                raise TypeError(f"a command's parts are texts or paths, not {part!r:.80}")
        args = tuple(os.fspath(part) for part in command)
        for name, value in (options["env"] or {}).items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"environment variables are texts, not {name!r:.80}: {value!r:.80}")
        for name in ("on_stdout", "on_stderr"):
            if options[name] is not None and not callable(options[name]):
                raise TypeError(f"{name} is a function, not {options[name]!r:.80}")
        return cls(args=args, input=None if data is None else bytes(data), **options)


async def run_command(exchange: Exchange, command: Command) -> ProcessResult:
    """Run it for ``exchange``; wait for a free place first. Raises ``OSError`` if it cannot be
    started, ``subprocess.CalledProcessError`` if it fails and may not, and what a callback
    raises."""
    work = Work(exchange, WorkKind.PROCESS, os.path.basename(command.args[0]))
    try:
        async with exchange.core.pools.processes:
            work.start()
            result = await _Run(command, work).finish()
    finally:
        exchange.end_work(work)
    if command.check:
        result.check_returncode()
    return result


class _Run:
    """A command that runs."""

    def __init__(self, command: Command, work: Work) -> None:
        keep = work.exchange.core.limits.output_bytes
        self._command = command
        self._work = work
        self._stdout = _Output(keep, command.on_stdout)
        self._stderr = _Output(keep, command.on_stderr)
        self._feeding = trio.CancelScope()
        self._process: trio.Process
        self._group: ProcessGroup

    async def finish(self) -> ProcessResult:
        outcome: str | None = "error"
        try:
            await self._launch()
            try:
                await self._watch()
            except BaseException:
                outcome = "stopped"
                with trio.CancelScope(shield=True):  # bounded by the grace, and a second or two
                    await self._stop()
                raise
            outcome = "result"
        except trio.Cancelled:
            outcome = "stopped"
            raise
        finally:
            if not self._work.record.abandoned:
                self._work.end(outcome)
        process, stdout, stderr = self._process, self._stdout, self._stderr
        assert process.returncode is not None
        return ProcessResult(
            args=self._command.args,
            returncode=process.returncode,
            stdout=bytes(stdout.tail),
            stderr=bytes(stderr.tail),
            stdout_dropped=stdout.dropped,
            stderr_dropped=stderr.dropped,
        )

    async def _launch(self) -> None:
        command = self._command
        self._process = await trio.lowlevel.open_process(
            list(command.args),
            stdin=subprocess.DEVNULL if command.input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=command.cwd,
            env=command.env,
            start_new_session=True,
        )
        self._group = ProcessGroup(self._process)
        self._work.record.pid = self._process.pid
        for output, stream in (
            (self._stdout, self._process.stdout),
            (self._stderr, self._process.stderr),
        ):
            assert isinstance(stream, trio.lowlevel.FdStream)
            output.stream = stream

    async def _watch(self) -> None:
        """Until it has exited, all that it left behind has ended, and its outputs are read."""
        try:
            async with trio.open_nursery() as nursery:
                if self._process.stdin is not None:
                    nursery.start_soon(self._feed, self._process.stdin)
                nursery.start_soon(self._stdout.read)
                nursery.start_soon(self._stderr.read)
                await self._process.wait()
                self._work.record.exit_status = self._process.returncode
                await self._end_group()
                self._feeding.cancel("nobody is left to read it")
                self._stdout.finish_soon()
                self._stderr.finish_soon()
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None
        self._close()

    async def _feed(self, stdin: trio.abc.SendStream) -> None:
        assert self._command.input is not None
        try:
            with self._feeding:
                async with stdin:
                    await stdin.send_all(self._command.input)
        except trio.BrokenResourceError:
            pass  # it does not want to read all of it

    async def _stop(self) -> None:
        """The call is over before the command is."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stdout.drain)  # its last words must not block it
            nursery.start_soon(self._stderr.drain)
            await self._end_group()
            nursery.cancel_scope.cancel("the command has ended")
        self._close()
        work, returncode = self._work, self._process.returncode
        work.record.exit_status = returncode
        if returncode is None:
            work.record.abandoned = True
            trio.lowlevel.spawn_system_task(self._await_end, name="trio-mcp abandoned process")
            logger.warning(
                "exchange %d: process %d (%s) did not end at SIGKILL and is abandoned",
                work.exchange.key,
                self._process.pid,
                work.record.label,
            )
        work.exchange.note_cleanup("clean" if returncode is not None else "abandoned")

    async def _await_end(self) -> None:
        """Of a process that nobody waits for any more."""
        await self._process.wait()
        self._work.record.exit_status = self._process.returncode
        self._work.end("stopped")

    async def _end_group(self) -> None:
        group, ended = self._group, not self._group.lives
        if not ended and self._send(signal.SIGTERM):
            ended = await group.ends_within(self._command.grace)
        if not ended and self._send(signal.SIGKILL):
            await group.ends_within(_REAP)

    def _send(self, number: signal.Signals) -> bool:
        sent = self._group.send(number)
        if sent:
            self._work.record.signals += (number.name,)
        return sent

    def _close(self) -> None:
        process = self._process
        for stream in (process.stdin, process.stdout, process.stderr):
            if isinstance(stream, trio.lowlevel.FdStream):
                stream.close()


def _waiting_in(stream: trio.lowlevel.FdStream) -> int:
    """How many bytes can be read from a pipe at once."""
    count = fcntl.ioctl(stream.fileno(), termios.FIONREAD, bytes(4))
    return int.from_bytes(count, sys.byteorder)


class _Output:
    """One of the two outputs: read to its end, the last bytes kept."""

    stream: trio.lowlevel.FdStream

    def __init__(self, keep: int, callback: OnOutput | None) -> None:
        self.tail = bytearray()
        self.dropped = 0
        self._keep = keep
        self._callback = callback
        self._waiting = trio.CancelScope()
        self._until = float("inf")
        self._unread = 0

    async def read(self) -> None:
        """Until its end. A callback that is slow makes the command wait."""
        while data := await self._receive():
            self._keep_tail(data)
            if self._callback is not None:
                called = self._callback(bytes(data))
                if inspect.isawaitable(called):
                    await called

    async def drain(self) -> None:
        """The same without the callback, whose owner does not wait any more."""
        while data := await self._receive():
            self._keep_tail(data)

    def finish_soon(self) -> None:
        """All who should write to it have ended. What they wrote is read; whoever still holds it
        open is not waited for, however much he says."""
        self._unread = _waiting_in(self.stream)
        self._until = trio.current_time() + _PATIENCE
        self._waiting.deadline = self._deadline

    @property
    def _deadline(self) -> float:
        return float("inf") if self._unread > 0 else self._until

    async def _receive(self) -> bytes | bytearray:
        with trio.CancelScope(deadline=self._deadline) as self._waiting:
            data = await self.stream.receive_some(_CHUNK)
            self._unread -= len(data)
            return data
        return b""

    def _keep_tail(self, data: bytes | bytearray) -> None:
        self.tail += data
        if (excess := len(self.tail) - self._keep) > 0:
            del self.tail[:excess]
            self.dropped += excess
