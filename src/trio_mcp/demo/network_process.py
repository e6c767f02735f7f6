"""A server process that speaks over a network: launched, asked where it is, and ended.

It leads a session of its own: a Ctrl-C at our terminal does not reach it, and all that it starts
can be reached through its group. Nothing tells it that we have gone, so that whoever launches it
has to end it, on every way out.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from ..runtime.errors import ConnectionLost
from ..runtime.groups import leaf_of
from ..runtime.limits import Limits

__all__ = ["NetworkProcess", "network_process"]

_SERVING: Final = re.compile(rb": serving ([a-z]+://\S+);")
"""How ``trio-mcp run`` tells of its address."""

_CHUNK: Final = 4096
_KILL_WAIT: Final = 1.0
"""Seconds that a killed process may take to be gone."""


@asynccontextmanager
async def network_process(
    command: Sequence[str], limits: Limits
) -> AsyncGenerator[NetworkProcess, None]:
    """Launch a server that tells its address on standard error, for as long as the block runs.

    At the end of the block it gets SIGTERM, unless ``process.told`` says that it has been told to
    end by other means, and ``Limits.terminate_wait`` seconds; where the block is left otherwise, by
    an error or a cancellation, and when the time has passed, it is killed, with its whole process
    group. Raises ``OSError`` if it cannot be launched, and
    :class:`ConnectionLost` if it does not tell its address within ``Limits.connect`` seconds.
    """
    process = NetworkProcess(
        await trio.lowlevel.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ),
        limits,
    )
    try:
        async with trio.open_nursery() as nursery:
            try:
                nursery.start_soon(process.read_stderr)
                await process.find_address()
                yield process
                await process.terminate()
            finally:
                await process.kill()
                nursery.cancel_scope.cancel("the process has ended")
    except BaseExceptionGroup as group:
        raise leaf_of(group) from None


class NetworkProcess:
    """Made by :func:`network_process`.

    ``address``: where it serves. ``told``: to be set if it ends by itself and needs no SIGTERM.
    ``in_time``: whether it has ended within its time.
    """

    def __init__(self, process: trio.Process, limits: Limits) -> None:
        self.address: str
        self.told = False
        self.in_time = False
        self._process = process
        self._limits = limits
        self._stderr = bytearray()
        self._told: bytes | None = None
        self._news = trio.Event()

    @property
    def exit_status(self) -> int | None:
        """``None`` while it runs; negative for a signal."""
        return self._process.returncode

    @property
    def stderr_tail(self) -> str:
        """The end of what it wrote to standard error, at most ``Limits.stderr_bytes`` of it."""
        return self._stderr.decode(errors="replace").strip()

    async def read_stderr(self) -> None:
        """Always, so that it never blocks on it; a task beside the block."""
        stream = self._process.stderr
        assert stream is not None
        try:
            while data := await stream.receive_some(_CHUNK):
                self._stderr += data
                del self._stderr[: -self._limits.stderr_bytes]
                if self._told is None and (found := _SERVING.search(self._stderr)):
                    self._told = found[1]
                    self._news.set()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._news.set()

    async def find_address(self) -> None:
        """Wait until it tells."""
        limits = self._limits
        with trio.move_on_after(limits.connect) as waiting:
            await self._news.wait()
        if self._told is not None:
            self.address = self._told.decode()
            return
        with trio.move_on_after(limits.exit_wait):
            await self._process.wait()
        raise ConnectionLost(
            f"the server process did not tell its address within connect={limits.connect:g} s"
            if waiting.cancelled_caught
            else "the server process ended before it served",
            exit_status=self.exit_status,
            stderr_tail=self.stderr_tail,
        )

    async def terminate(self) -> None:
        """SIGTERM; returns once it has ended, or after ``Limits.terminate_wait`` seconds."""
        if not self.told:
            self._process.terminate()
        with trio.move_on_after(self._limits.terminate_wait):
            await self._process.wait()
            self.in_time = True

    async def kill(self) -> None:
        """SIGKILL to its group: nothing in it is left, also if we are cancelled."""
        process = self._process
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        with trio.CancelScope(shield=True, deadline=trio.current_time() + _KILL_WAIT):
            await process.wait()
        if isinstance(process.stderr, trio.lowlevel.FdStream):
            process.stderr.close()
