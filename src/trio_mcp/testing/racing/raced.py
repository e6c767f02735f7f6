"""The tool of the library's own that is raced where no server is given: it does as it is told."""

from __future__ import annotations

import trio

from ...runtime.context import Context
from ...runtime.errors import ErrorCode, ProtocolError
from ...server import Server

__all__ = ["Script"]


class Script:
    """A server with one tool, told what to do from outside.

    The tool waits for its next line; it reports progress, one report that is to be sent and one
    that is not, or returns, after two last ones if there were any; it has clean-up that takes a
    round trip, in a ``finally`` and in ``ctx.on_exit``. A child in ``ctx.nursery`` outlives it, and
    cleans up, too. :meth:`is_clean` is the check.

    :param fails: it raises an error that the client is told, where it would return.
    """

    tool = "scripted"

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.was_cut_off = False
        """Whether the child was cancelled."""
        self.server = Server("race", version="1")
        self.server.tool(name=self.tool)(self._play)
        self._lines, self._waiting = trio.open_memory_channel[str](100)
        self._begun = 0
        self._cleaned = 0
        self._child_cleaned = 0
        self._undone = 0

    def tell(self, line: str) -> None:
        """``"progress"`` or ``"complete"``."""
        self._lines.send_nowait(line)

    async def _play(self, ctx: Context) -> str:
        """Do as the script says."""
        self._begun += 1
        ctx.on_exit(self._undo)
        over = trio.Event()
        ctx.nursery.start_soon(self._child, ctx, over)
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
        over.set()
        if self.fails:
            raise ProtocolError(ErrorCode.INTERNAL_ERROR, "failed, as it was told")
        return "completed"

    async def _child(self, ctx: Context, over: trio.Event) -> None:
        """End a while after the tool."""
        try:
            await over.wait()
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            self.was_cut_off = True
            raise
        finally:
            with ctx.cleanup(5):
                await trio.lowlevel.checkpoint()
                self._child_cleaned += 1

    async def _undo(self) -> None:
        await trio.lowlevel.checkpoint()
        self._undone += 1

    @property
    def cleanups(self) -> int:
        """How many have run."""
        return self._cleaned + self._child_cleaned + self._undone

    @property
    def to_clean(self) -> int:
        """How many have yet to run."""
        return 3 * self._begun - self.cleanups

    def is_clean(self) -> None:
        """Whether clean-up has run once for each time that the tool was."""
        assert (self._cleaned, self._child_cleaned, self._undone) == (self._begun,) * 3, (
            f"the tool ran {self._begun} times, its finally {self._cleaned} times, that of its "
            f"child {self._child_cleaned} times, its on_exit callback {self._undone} times"
        )
