"""stdio, the server's side: this process's own standard input and output as a wire.

While it serves, file descriptors 0 and 1 do not lead to the wire: reading from 0 gives end of file,
and what anything prints to 1 (``print``, a library, a child process) goes to standard error. So
nobody but the writer can write to the wire, and nobody but the reader can read from it.

Specification: *stdio*.
"""

from __future__ import annotations

import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import trio

from ..runtime.dispatch import Dispatcher
from .framing import Frame
from .serving import serve_wire
from .wire import CHUNK, StreamWire

__all__ = [
    "FileStream",
    "cancel_on_signal",
    "divert_stdio",
    "diverted_stdio",
    "flush_stdio",
    "serve_stdio",
    "stdio_wire",
]

logger = logging.getLogger("trio_mcp.connection")


async def serve_stdio(
    core: Dispatcher,
    *,
    signals: bool,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve this process's stdin and stdout until stdin ends, or a signal or a cancellation drains.

    :param signals: drain on SIGINT and SIGTERM, if this is the main thread.
    """
    with diverted_stdio() as (wire_in, wire_out):
        scope = trio.CancelScope()
        wire = stdio_wire(wire_in, wire_out, core.limits.message_bytes, at_end=scope.cancel)
        async with trio.open_nursery() as nursery:
            if signals and threading.current_thread() is threading.main_thread():
                await nursery.start(cancel_on_signal, scope)
            task_status.started()
            with scope:  # not around the nursery: a second signal, while it drains, is like one
                await serve_wire(core, wire)
            nursery.cancel_scope.cancel("the wire has ended")


async def cancel_on_signal(
    scope: trio.CancelScope, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Cancel a scope at SIGINT or SIGTERM, as long as this runs; in the main thread only."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
        task_status.started()
        async for number in received:
            logger.info("%s: draining", signal.Signals(number).name)
            scope.cancel(signal.Signals(number).name)


def divert_stdio() -> tuple[int, int]:
    """Take descriptors 0 and 1 for the wire, for good; returns the two that lead to it now.

    For a process that does nothing but serve: call it before any code of others is imported, and
    serve :func:`stdio_wire`. :func:`diverted_stdio` is the same for a while.
    """
    _check_standard_streams()
    wire_in, wire_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    _lead_stdout_to(_stderr_or_nothing())
    return wire_in, wire_out


@contextmanager
def diverted_stdio() -> Iterator[tuple[int, int]]:
    """Take descriptors 0 and 1 for the wire; yields the two it may use, which it closes in the end.

    Puts 0 and 1 back afterwards.
    """
    wire_in, wire_out = divert_stdio()
    try:
        yield wire_in, wire_out
    finally:
        flush_stdio()  # what was printed meanwhile belongs to standard error
        os.dup2(wire_in, 0)
        os.dup2(wire_out, 1)
        os.close(wire_in)
        os.close(wire_out)


def _check_standard_streams() -> None:
    """A descriptor that was closed at the start leads to something else by now, Trio's own say."""
    for name, stream in (("stdin", sys.__stdin__), ("stdout", sys.__stdout__)):
        if stream is None:
            raise RuntimeError(
                f"cannot serve stdio: {name} was closed when this process was started; "
                "give it a pipe, a socket or a file"
            )
    try:
        os.fstat(2)
    except OSError:  # so that no descriptor of the wire gets this number
        os.open(os.devnull, os.O_WRONLY)


def _stderr_or_nothing() -> int:
    if sys.__stderr__ is not None:  # not closed at the start either
        try:
            return os.dup(2)
        except OSError:
            pass
    return os.open(os.devnull, os.O_WRONLY)


def _lead_stdout_to(target: int) -> None:
    os.dup2(target, 1)
    os.close(target)
    flush_stdio()  # what was printed before, and still buffered, must not reach the wire either


def flush_stdio() -> None:
    """Write what Python has buffered for descriptors 1 and 2; drop it if nobody reads there.

    Whatever the buffers kept would be written later: to the wire, or in vain while the interpreter
    exits, which makes the exit status 120.
    """
    for fd, stream in ((1, sys.stdout), (1, sys.__stdout__), (2, sys.stderr), (2, sys.__stderr__)):
        try:
            _flush(stream)
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, fd)
            os.close(nothing)
            _flush(stream)


def _flush(stream: TextIO | None) -> None:
    try:
        if stream is not None:
            stream.flush()
    except (ValueError, AttributeError):
        pass  # closed, or nothing that could be flushed


def stdio_wire(
    wire_in: int,
    wire_out: int,
    message_bytes: int,
    *,
    at_end: Callable[[], object] | None = None,
) -> StreamWire:
    """The wire over two descriptors, of which it makes copies of its own.

    The end of a file is no peer that hangs up. With ``at_end`` the wire does not end there but
    calls it, which should drain: all requests in the file are answered, within ``Limits.drain``.
    """
    receive = _stream(wire_in)
    if at_end is not None and isinstance(receive, FileStream):
        return _FileWire(receive, _stream(wire_out), message_bytes, at_end)
    return StreamWire(receive, _stream(wire_out), "stdio", message_bytes)


class _FileWire(StreamWire):
    def __init__(
        self,
        receive: FileStream,
        send: trio.abc.SendStream,
        message_bytes: int,
        at_end: Callable[[], object],
    ) -> None:
        super().__init__(receive, send, "stdio", message_bytes)
        self._at_end = at_end

    async def receive(self) -> list[Frame] | None:
        frames = await super().receive()
        if frames is None:
            self._at_end()
            await trio.sleep_forever()
        return frames


def _stream(fd: int) -> trio.lowlevel.FdStream | FileStream:
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd):
        return trio.lowlevel.FdStream(os.dup(fd))
    return FileStream(os.dup(fd))


class FileStream(trio.abc.Stream):
    """A regular file or a device like ``/dev/null``: never blocks, and cannot be polled."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return os.read(self._fd, max_bytes or CHUNK)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        with memoryview(data) as view:
            sent = 0
            while sent < len(view):
                sent += os.write(self._fd, view[sent:])

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        await trio.lowlevel.checkpoint()
