"""The tool of the library's own that is raced where no server is given: it does as it is told."""

from __future__ import annotations

import trio

from ...runtime.context import Context
from ...server import Server

__all__ = ["Script"]


class Script:
    """A server with one tool, told what to do from outside.

    The tool waits for its next line; it reports progress, one report that is to be sent and one
    that is not, or returns, after two last ones if there were any; it has clean-up that takes a
    round trip, in a ``finally`` and in ``ctx.on_exit``. :meth:`is_clean` is the check.
    """

    tool = "scripted"

    def __init__(self) -> None:
        self.server = Server("race", version="1")
        self.server.tool(name=self.tool)(self._play)
        self._lines, self._waiting = trio.open_memory_channel[str](100)
        self._begun = 0
        self._undone = 0
        self._cleaned = 0

    def tell(self, line: str) -> None:
        """``"progress"`` or ``"complete"``."""
        self._lines.send_nowait(line)

    async def _play(self, ctx: Context) -> str:
        """Do as the script says."""
        self._begun += 1
        ctx.on_exit(self._undo)
        reported = 0
        try:
            async for line in self._waiting:
                if line == "complete":
                    break
                reported += 1
                ctx.progress(reported)
                ctx.progress(0.5)  # less than before: it is dropped
        finally:
            with ctx.cleanup(5):
                await trio.sleep(0.1)  # a round trip
                self._cleaned += 1
        if reported:  # one that is sent at once, and one that has to wait, or to be flushed
            ctx.progress(reported + 0.5)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            ctx.progress(reported + 0.75)
        return "completed"

    async def _undo(self) -> None:
        await trio.lowlevel.checkpoint()
        self._undone += 1

    def is_clean(self) -> None:
        """Whether clean-up has run once for each time that the tool was."""
        assert (self._cleaned, self._undone) == (self._begun, self._begun), (
            f"the tool ran {self._begun} times, its finally {self._cleaned} times, "
            f"its on_exit callback {self._undone} times"
        )
