"""Whether work has stopped, as far as that can be seen from outside.

What there is to stand on, the most trusted first:

* the *witness*, a tool of the server that says how many runs of the slow tool are alive;
* an *effect*, a file that the slow tool changes while it runs, or at its end, as it was seen to do
  in a run that nobody cancelled, the *rehearsal*;
* the *CPU* time of the server's process, if the tool keeps it busy.

Against all of these, a result that comes after the cancellation, and progress that keeps coming,
say that the work ran on. That both keep out says nothing: a server may hold its tongue, and work.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import trio

from .asked import Asked
from .pace import Pace
from .report import Finding
from .usage import Usage, usage_of

__all__ = ["Begun", "Count", "Evidence", "Mark", "Rehearsal", "alive_in"]

Count: TypeAlias = Callable[[], Awaitable[int | None]]
"""Asks the witness; ``None`` if it does not answer with a number."""

_BUSY: Final = 0.25
"""CPU seconds in a second, used or waited for, from which on a process is busy."""
_QUIET: Final = 0.05
"""The same, up to which it is not."""
_STILL: Final = 0.5
_IDLE: Final = 0.2
"""Of what it used before: from the one on it is still busy, below the other it is not. What would
make it busy by itself makes it so, too: it need not get the same share again."""
_LOOKS: Final = 3
"""At its CPU time, after the cancellation, as long as it is in between."""


def alive_in(result: Any) -> int | None:
    """The number in the result of a witness: structured content that is one or has one in
    ``result``, or a text that is one."""
    if not isinstance(result, dict) or result.get("isError") is True:
        return None
    structured = result.get("structuredContent")
    value = structured.get("result") if isinstance(structured, dict) else structured
    if type(value) is int:
        return value
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    text = texts[0].strip() if len(texts) == 1 and isinstance(texts[0], str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


@attrs.frozen
class Mark:
    """How things stood before a request was sent."""

    at: float
    alive: int | None
    stamp: tuple[int, int] | None
    usage: Usage | None


@attrs.define
class Begun:
    """How a request was seen to begin. ``seen`` is ``None`` if it was not: it was given time."""

    seen: str | None
    at: float
    usage: Usage | None


@attrs.frozen
class Rehearsal:
    """A run that nobody cancelled.

    :param changes: when the effect's file changed, in seconds from the request.
    :param seconds: how long its tool was to run; ``None`` if that is not known.
    """

    changes: Sequence[float]
    seconds: float | None

    def expects(self, asked: Asked, begin: float, end: float) -> bool:
        """Whether the file would have changed between these times if that request had not been
        cancelled. It may have been told to run for another time: then what changes in the middle
        comes when it did, or later in proportion, and what changes at the end comes at its end."""
        return any(
            begin < asked.sent_at + first and asked.sent_at + last <= end
            for first, last in (self._span(change, asked.seconds) for change in self.changes)
        )

    def _span(self, change: float, seconds: float | None) -> tuple[float, float]:
        if seconds is None or not self.seconds:
            return change, change
        if change >= self.seconds:
            return seconds, seconds
        scaled = change * seconds / self.seconds
        return min(change, scaled), max(change, scaled)


class Evidence:
    """The means to tell, for one server.

    :param witness: the name of that tool, and how to ask it.
    :param pid: of the server's process, on this machine.
    """

    def __init__(self, pace: Pace, witness: str | None, count: Count, effect: Path | None) -> None:
        self._pace = pace
        self._witness = witness
        self._count = count
        self._effect = effect
        self.pid: int | None = None
        self.rehearsal: Rehearsal | None = None
        """Of the tool that is looked at."""
        self.said: str | None = None
        """What the witness said the last time that it was no number."""

    async def mark(self) -> Mark:
        """How things stand."""
        alive = await self._count() if self._witness is not None else None
        return Mark(trio.current_time(), alive, self._stamp(), self._usage())

    async def begun(self, mark: Mark, asked: Sequence[Asked]) -> Begun:
        """Wait until the work of all requests is seen to have begun, or ``Pace.settle`` where there
        is nothing to see."""
        seen = None
        counts = self._witness is not None and mark.alive is not None
        bound = self._pace.begin if counts else self._pace.settle
        with trio.move_on_after(bound):
            while seen is None and not all(it.answers or it.lost for it in asked):
                seen = await self._seen_begun(mark, asked)
                if seen is None:
                    await trio.sleep(self._pace.poll)
        if seen is None and self._witness is not None and mark.alive is not None:
            alive = await self._count()  # perhaps of some: a server may run only so many at once
            if alive is not None and alive > mark.alive:
                seen = f"{alive - mark.alive} of {len(asked)} alive"
        if seen is None and not counts and self._effect is None:
            await self._look_at_cpu(mark, asked)
        return Begun(seen, trio.current_time(), self._usage())

    async def _look_at_cpu(self, mark: Mark, asked: Sequence[Asked]) -> None:
        """Until it is clear whether the process is busy, at most ``Pace.busy`` longer."""
        with trio.move_on_after(self._pace.busy):
            while not any(it.answers or it.lost for it in asked):
                share = self._share(mark, Begun(None, trio.current_time(), self._usage()))
                if not _QUIET < share <= _BUSY:
                    return
                await trio.sleep(self._pace.poll)

    async def _seen_begun(self, mark: Mark, asked: Sequence[Asked]) -> str | None:
        if self._witness is not None and mark.alive is not None:
            alive = await self._count()
            return (
                f"{alive} alive" if alive is not None and alive >= mark.alive + len(asked) else None
            )
        if all(it.progress for it in asked):
            return "progress"
        if self._effect is not None and self._stamp() != mark.stamp:
            return "effect"
        return None

    async def rested(self, mark: Mark, seconds: float) -> bool:
        """Wait until no more is alive than before; ``False`` if that takes longer. True at once
        without a witness."""
        if self._witness is None or mark.alive is None:
            return True
        with trio.move_on_after(seconds):
            while True:
                alive = await self._count()
                if alive is not None and alive <= mark.alive:
                    return True
                await trio.sleep(self._pace.poll)
        return False

    async def changes(self, mark: Mark, asked: Asked, seconds: float) -> list[float]:
        """Wait until a request that nobody cancels is answered, at most so long, and a little
        longer. When the file changed, in seconds from the request."""
        found: list[float] = []
        stamp, deadline, answered = mark.stamp, asked.sent_at + seconds, False
        while (now := trio.current_time()) < deadline and asked.lost is None:
            if (latest := self._stamp()) != stamp:
                stamp = latest
                found.append(now - asked.sent_at)
            if asked.answers and not answered:
                answered, deadline = True, min(deadline, now + self._pace.settle)
            await trio.sleep(self._pace.poll)
        return found

    # What became of it ----------------------------------------------------------------------------

    async def stopped(
        self, mark: Mark, begun: Begun, asked: Sequence[Asked], since: float
    ) -> Finding:
        """Whether the work of these requests, cancelled at ``since``, has stopped within
        ``Pace.grace``."""
        finding = self._with_witness_named(mark, await self._by_means(mark, begun, asked, since))
        ran_on = self._against(asked, since)
        for one in asked:
            one.stopped = finding.stopped if ran_on is None else False
        return finding if ran_on is None else ran_on

    async def _by_means(
        self, mark: Mark, begun: Begun, asked: Sequence[Asked], since: float
    ) -> Finding:
        if self._witness is not None and mark.alive is not None:
            return await self._by_witness(mark.alive, begun, since)
        await trio.sleep_until(since + self._pace.grace)
        if self._effect is not None:
            return await self._by_effect(begun, asked, since)
        if (before := self._share(mark, begun)) > _BUSY:
            return await self._by_cpu(before, asked)
        return await self._by_silence(asked, since)

    def _with_witness_named(self, mark: Mark, finding: Finding) -> Finding:
        """Nothing could be told: is it because the witness is none?"""
        if self._witness is None or mark.alive is not None or finding.stopped is not None:
            return finding
        seen = f"the witness {self._witness!r} returned {self.said or 'nothing'}, no number"
        return attrs.evolve(finding, seen=f"{seen}; {finding.seen}")

    async def _by_silence(self, asked: Sequence[Asked], since: float) -> Finding:
        """Wait for what would show that it works on: progress, or its result at its time."""
        end = max((it.sent_at + (it.seconds or 0) for it in asked), default=since)
        await trio.sleep_until(max(since + 2 * self._pace.grace, end + self._pace.settle))
        silent = "silent until after its time" if end > since else "silent"
        return Finding(None, "none", f"{silent}; nothing shows whether it worked on")

    async def _by_witness(self, before: int, begun: Begun, since: float) -> Finding:
        name, deadline = self._witness, since + self._pace.grace
        alive = await self._count()
        at = trio.current_time()
        while (alive is None or alive > before) and at < deadline:
            await trio.sleep(self._pace.poll)
            alive = await self._count()
            at = trio.current_time()
        if alive is None:
            said = f"the witness {name!r} returned {self.said or 'nothing'}, no number"
            return Finding(None, "none", said)
        after = at - since
        if alive > before:
            return Finding(False, "witness", f"{name}: {alive - before} alive {after:.1f} s later")
        if after > self._pace.grace + self._pace.settle:
            return Finding(
                False, "witness", f"{name}: none alive, but not until {after:.1f} s later"
            )
        if begun.seen is None:
            said = f"the witness {name!r} returned {alive} before, meanwhile and afterwards"
            return Finding(None, "none", f"{said}: it never saw it begin")
        return Finding(True, "witness", f"{name}: none alive", at - since)

    async def _by_effect(self, begun: Begun, asked: Sequence[Asked], since: float) -> Finding:
        """Look until the file would have changed again if nothing had been cancelled."""
        stamp, looked = self._stamp(), trio.current_time()
        ends = [it.sent_at + it.seconds for it in asked if it.seconds is not None]
        past_its_end = bool(ends) and len(ends) == len(asked)
        watch = since + 2 * self._pace.grace
        if past_its_end and not self._expected(asked, looked, watch):
            watch = max(watch, max(ends) + self._pace.grace)
        while trio.current_time() < watch:
            await trio.sleep(self._pace.poll)
            if self._stamp() != stamp:
                after = trio.current_time() - since
                return Finding(False, "effect", f"the file changed {after:.1f} s later")
        if not self._expected(asked, looked, watch):
            return Finding(None, "none", self._unproven())
        if begun.seen == "effect":
            return Finding(True, "effect", "the file changes no more")
        return Finding(True, "effect", "the file did not change until after its time")

    def _expected(self, asked: Sequence[Asked], begin: float, end: float) -> bool:
        rehearsal = self.rehearsal
        return rehearsal is not None and all(rehearsal.expects(it, begin, end) for it in asked)

    def _unproven(self) -> str:
        """Why it says nothing that the file has not changed."""
        file, changes = f"the file {self._effect}", self.rehearsal.changes if self.rehearsal else ()
        if not changes:
            return f"{file} did not change in a run that nobody cancelled, so it proves nothing"
        return (
            f"{file} did not change, but in a run that nobody cancelled it changed for the last "
            f"time {changes[-1]:.1f} s after the call, so that proves nothing"
        )

    async def _by_cpu(self, before: float, asked: Sequence[Asked]) -> Finding:
        """Look again while it is not clear, and none of the work would have ended by itself."""
        ends = min((it.sent_at + it.seconds for it in asked if it.seconds is not None), default=inf)
        finding = Finding(None, "none", "its time was over before its CPU could be looked at")
        for _ in range(_LOOKS):
            window = max(self._pace.grace, 0.5)
            if finding.stopped is not None or trio.current_time() + window > ends:
                break
            finding = await self._one_look(before, window)
        return finding

    async def _one_look(self, before: float, window: float) -> Finding:
        at, before_it = trio.current_time(), self._usage()
        await trio.sleep(window)
        now = self._usage()
        if before_it is None or now is None:
            return Finding(None, "none", "the process is gone")
        share = now.share(before_it, trio.current_time() - at)
        seen = f"its process wanted {before:.0%} of a core, then {share:.0%}"
        if share >= min(before * _STILL, _BUSY):
            return Finding(False, "cpu", seen)
        if share < before * _IDLE:
            return Finding(True, "cpu", seen)
        return Finding(None, "none", seen)

    def _share(self, mark: Mark, begun: Begun) -> float:
        """Of a core, that the process wanted from the beginning to the cancellation."""
        took = begun.at - mark.at
        if mark.usage is None or begun.usage is None or took < self._pace.settle / 2:
            return 0.0
        return begun.usage.share(mark.usage, took)

    def _against(self, asked: Sequence[Asked], since: float) -> Finding | None:
        """What says that work ran on, whatever else is said."""
        late = [answer.at - since for it in asked for answer in it.late() if answer.is_result]
        if late:
            return Finding(False, "late answer", f"its result came {max(late):.1f} s later")
        tolerated = since + self._pace.grace
        reports = sum(at > tolerated for it in asked for at in it.progress)
        if reports:
            return Finding(
                False, "progress", f"{reports} reports of progress after {tolerated - since:g} s"
            )
        return None

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._effect) if self._effect is not None else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size) if found is not None else None

    def _usage(self) -> Usage | None:
        return usage_of(self.pid) if self.pid is not None else None
