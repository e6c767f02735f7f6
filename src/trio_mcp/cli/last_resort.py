"""The last resort: once told to stop, a server process ends, whatever its handlers do.

A shutdown is bounded as long as handlers give way: requests are drained, then cancelled, clean-up
blocks have limits, threads are abandoned. Two kinds of handlers do not give way: one that blocks
the event loop, and one that shields itself without a limit. Trio has no means against either. So a
daemon thread waits for as long as a shutdown may take by the rules; then it says what is left and
ends the process.

This is the one place in the library where a thread of its own, a clock that is not Trio's and
``os._exit`` are right: the event loop, on whose scopes and clock everything else relies, is just
what may be stuck. For the same reason the thread does not need the loop to learn of a shutdown:

* a signal reaches it through the interpreter's wake-up descriptor, which is written to even while
  the main thread is deep in some C function;
* a peer that closes its end of a pipe or socket shows as a hang-up of our descriptor, where it is
  the only peer and its end is the server's;
* and where neither happens (end of file on a terminal or a regular file, a broken standard output)
  the loop itself says so with :meth:`LastResort.begin`.
"""

from __future__ import annotations

import math
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from ..runtime.scopes import Scope, ScopeKind
from ..server import Server
from .failure import FAILED

__all__ = ["LastResort"]

_HANG_UP: Final = select.POLLHUP | getattr(select, "POLLRDHUP", 0)
_BEGIN: Final = 0
"""Byte by which :meth:`LastResort.begin` speaks; no signal has this number."""
_STOPPING: Final = frozenset({_BEGIN, signal.SIGINT, signal.SIGTERM})


class LastResort:
    """Watches for the beginning of a shutdown, and ends the process if that takes too long.

    :param wire_in: the descriptor that the requests of the one peer come from; ``None`` for a
        server of a network, whose peers come and go.

    The process gets ``2 * Limits.drain + Limits.longest_cleanup + Limits.cleanup`` seconds: for the
    requests in flight, for their clean-up, for their threads, and for the last answers; over a
    network ``Limits.drain`` more, for the goodbyes of connections.
    """

    def __init__(self, server: Server, wire_in: int | None = None) -> None:
        limits = server.limits
        drains = 2 if wire_in is not None else 3
        self.seconds = drains * limits.drain + limits.longest_cleanup + limits.cleanup
        self._server = server
        self._wire_in = wire_in
        self._told, self._tell = socket.socketpair()
        self._tell.setblocking(False)
        self._trios_wakeup = -1
        self._token: trio.lowlevel.TrioToken

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around the serving, in the main thread. The watch itself lasts until the process ends."""
        self._token = trio.lowlevel.current_trio_token()
        trios = signal.set_wakeup_fd(self._tell.fileno(), warn_on_full_buffer=False)
        self._trios_wakeup = trios
        threading.Thread(target=self._watch, name="trio-mcp last resort", daemon=True).start()
        try:
            yield
        finally:
            self._trios_wakeup = -1
            signal.set_wakeup_fd(trios)

    def begin(self) -> None:
        """The shutdown begins. Never waits, may be called again."""
        try:
            self._tell.send(bytes([_BEGIN]))
        except BlockingIOError:
            pass  # full of bytes of which none has been read yet

    # In the thread --------------------------------------------------------------------------------

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._told, select.POLLIN)
        if self._wire_in is not None:
            poll.register(self._wire_in, _HANG_UP)
        ends_at = math.inf
        while (left := ends_at - time.monotonic()) > 0:
            began = False
            for descriptor, _ in poll.poll(None if left == math.inf else left * 1000):
                if descriptor == self._wire_in:
                    poll.unregister(descriptor)
                    began = True
                else:
                    began = not _STOPPING.isdisjoint(self._take_bytes()) or began
            if began:
                ends_at = min(ends_at, time.monotonic() + self.seconds)
        _say(self._last_words())
        os._exit(FAILED)

    def _take_bytes(self) -> bytes:
        """What was written to the wake-up descriptor, also handed on to where Trio expects it."""
        data = self._told.recv(4096)
        if self._trios_wakeup >= 0:
            try:
                os.write(self._trios_wakeup, data)
            except OSError:
                pass  # full, so the loop will wake up; or just closed, so nobody waits
        return data

    def _last_words(self) -> list[str]:
        words = [f"trio-mcp: not stopped {self.seconds:g} s after a shutdown began; left over:"]
        answers: queue.SimpleQueue[Scope] = queue.SimpleQueue()
        try:
            self._token.run_sync_soon(lambda: answers.put(self._server.scopes()))
            words += _described(answers.get(timeout=self._server.limits.drain))
        except queue.Empty:
            words.append("  the event loop, blocked by this:")
            words += _main_stack()
        except trio.RunFinishedError:
            words += [
                f"  thread {thread.name!r}, which is no daemon"
                for thread in threading.enumerate()
                if not thread.daemon and thread is not threading.main_thread()
            ]
        return words


def _described(root: Scope) -> list[str]:
    return [
        f"  {scope.kind.value} {scope.label}: {scope.state}, {scope.age:.1f} s old"
        for scope in root.walk()
        if scope.kind in (ScopeKind.EXCHANGE, ScopeKind.OFFLOAD)
    ]


def _main_stack() -> list[str]:
    """Where the main thread is, innermost frames last."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    stack = traceback.format_stack(frame)[-4:] if frame is not None else []
    return "".join(stack).splitlines()


def _say(words: list[str]) -> None:
    """To standard error, past Python's buffers and their locks; not at all if nobody reads it."""
    poll = select.poll()
    try:
        poll.register(2, select.POLLOUT)
        if any(event & select.POLLOUT for _, event in poll.poll(0)):
            os.write(2, ("\n".join(words) + "\n").encode(errors="replace")[: select.PIPE_BUF])
    except OSError:
        pass
