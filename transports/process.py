"""stdio, the client's side: a server process of our own, and its end in bounded time.

The process leads a group of its own, which ends with it. Its standard error is always drained, so
that it never blocks on it; the end of it is kept for error messages.

Specification: *stdio*, "Shutdown".
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

import trio

from ..runtime.limits import Limits
from ..runtime.offload.process_groups import ProcessGroup
from .wire import CHUNK, StreamWire

__all__ = ["ServerProcess"]

logger = logging.getLogger("trio_mcp.server_stderr")


class ServerProcess:
    """A launched server. Made by :meth:`launch`, ended by :meth:`shut_down`."""

    def __init__(self, process: trio.Process, limits: Limits) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._group = ProcessGroup(process)
        self._limits = limits
        self._stderr = bytearray()
        self._stderr_ended = trio.Event()
        label = f"process {process.pid}"
        self.wire = StreamWire(process.stdout, process.stdin, label, limits.message_bytes)

    @classmethod
    async def launch(
        cls,
        command: Sequence[str | os.PathLike[str]],
        limits: Limits,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
    ) -> ServerProcess:
        """Start ``command``. Raises ``OSError`` if it cannot be started."""
        process = await trio.lowlevel.open_process(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        return cls(process, limits)

    @property
    def pid(self) -> int:
        """Of the process, which leads a process group of the same number."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """``None`` while it runs; negative for a signal."""
        return self._process.returncode

    @property
    def stderr_tail(self) -> str:
        """The end of what it wrote to standard error, at most ``Limits.stderr_bytes`` of it."""
        return self._stderr.decode(errors="replace").strip()

    async def drain_stderr(self) -> None:
        """Read standard error until it ends; a task of the connection."""
        stream, keep = self._process.stderr, self._limits.stderr_bytes
        assert stream is not None
        try:
            while data := await stream.receive_some(CHUNK):
                self._stderr += data
                del self._stderr[:-keep]
                if logger.isEnabledFor(logging.DEBUG):
                    logger.debug("[%d] %s", self._process.pid, data.decode(errors="replace"))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._stderr_ended.set()

    async def ended(self) -> None:
        """Wait until the process has ended, whatever lives on of its group."""
        await self._group.leader_ended()

    async def settle(self) -> None:
        """It closed its stdout: wait a moment for its exit status and its last words."""
        with trio.move_on_after(self._limits.exit_wait):
            await self._group.leader_ended()
            await self._stderr_ended.wait()

    async def shut_down(self) -> None:
        """Close its stdin, wait, SIGTERM to its group, wait. Follow it with :meth:`kill`.

        Ends within ``Limits.exit_wait + Limits.terminate_wait``. May be cancelled.
        """
        assert self._process.stdin is not None
        await self._process.stdin.aclose()
        if not await self._group.ends_within(self._limits.exit_wait):
            self._group.send(signal.SIGTERM)
            await self._group.ends_within(self._limits.terminate_wait)

    async def kill(self) -> None:
        """SIGKILL to its group: no descendant in it is left, also if we are cancelled."""
        process = self._process
        self._group.send(signal.SIGKILL)
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if isinstance(stream, trio.lowlevel.FdStream):
                stream.close()
