"""What the requests of one carrier share that goes by time: turns, silences, progress, dates."""

from __future__ import annotations

from email.utils import formatdate
from http import HTTPStatus

import trio

from ...runtime.limits import Limits
from ...runtime.progress import Pacer
from .reply import HttpReply
from .turns import Turns

__all__ = ["Clockwork"]


class Clockwork:
    """``replies`` are those that may fall silent. Its tasks live in ``nursery``."""

    def __init__(self, nursery: trio.Nursery, limits: Limits) -> None:
        self.pacer = Pacer(nursery)
        self.turns = Turns(limits)
        self.replies: set[HttpReply] = set()
        self._limits = limits
        self._openings: dict[int, bytes] = {}
        self._dated_at = float("-inf")
        nursery.start_soon(self.turns.give)
        nursery.start_soon(self._break_silences)

    async def _break_silences(self) -> None:
        """Look after all replies, now and then, until cancelled."""
        limits = self._limits
        while True:
            await trio.sleep(min(limits.http_silence, limits.http_keep_alive) / 4)
            now = trio.current_time()
            for reply in list(self.replies):
                reply.break_silence(now, limits.http_silence, limits.http_keep_alive)

    def opening(self, status: int, now: float) -> bytes:
        """Status line and ``Date`` header, made once a second."""
        if now - self._dated_at >= 1:
            self._dated_at = now
            self._openings.clear()
        opening = self._openings.get(status)
        if opening is None:
            line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
            opening = f"{line}\r\ndate: {formatdate(usegmt=True)}\r\n".encode()
            self._openings[status] = opening
        return opening
