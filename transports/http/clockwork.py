"""What the replies of one carrier share that goes by time: silences, paced progress, the date."""

from __future__ import annotations

from email.utils import formatdate

import trio

from ...runtime.limits import Limits
from ...runtime.progress import Pacer
from .reply import HttpReply

__all__ = ["Clockwork"]


class Clockwork:
    """``replies`` are those that may fall silent. Its tasks live in ``nursery``."""

    def __init__(self, nursery: trio.Nursery, limits: Limits) -> None:
        self.pacer = Pacer(nursery)
        self.replies: set[HttpReply] = set()
        self._limits = limits
        self._date = ""
        self._dated_at = float("-inf")

    async def break_silences(self) -> None:
        """Look after all replies, now and then, until cancelled."""
        limits = self._limits
        while True:
            await trio.sleep(min(limits.http_silence, limits.http_keep_alive) / 4)
            now = trio.current_time()
            for reply in list(self.replies):
                reply.break_silence(now, limits.http_silence, limits.http_keep_alive)

    def date(self) -> str:
        """The ``Date`` header, made once a second."""
        now = trio.current_time()
        if now - self._dated_at >= 1:
            self._dated_at = now
            self._date = formatdate(usegmt=True)
        return self._date
