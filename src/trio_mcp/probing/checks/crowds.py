"""Many requests that are cancelled at once, and what is left of them."""

from __future__ import annotations

from typing import Final

import trio

from ..asked import Conversation
from ..report import Finding
from ..runner import Outcome, Runner, Started, Step, Unfit
from ..usage import Usage, usage_of
from ..work import Work

__all__ = ["CROWD", "RESOURCES"]

_TOLERATED: Final = 10
"""One descriptor, or thread, more for so many cancelled requests is no leak yet."""


async def _crowd(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    started, took, finding = await _cancelled_crowd(runner, conversation, work)
    await conversation.release(started.asked)
    outcome = Outcome.of(finding)
    begun = started.begun.seen or "not seen to begin"
    seen = f"{begun}; {finding.seen}; meanwhile the next request took {took * 1000:.0f} ms"
    return Outcome(outcome.verdict, seen, outcome.evidence, finding.after)


async def _cancelled_crowd(
    runner: Runner, conversation: Conversation, work: Work
) -> tuple[Started, float, Finding]:
    seconds = runner.pace.work + runner.pace.begin  # it takes a while until all are there
    started = await runner.start(conversation, work, *[...] * runner.crowd, seconds=seconds)
    await runner.cancel(conversation, started)
    since = trio.current_time()
    took = await runner.quick(conversation)
    return started, took, await runner.stopped(conversation, started, since)


async def _resources(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    pid = runner.evidence.pid
    if pid is None:
        raise Unfit("the server's process is not known; --pid PID names it", "n/a")
    before = await _left(runner, conversation, work, pid)  # with its pools and caches
    after = await _left(runner, conversation, work, pid)
    if before is None or after is None:
        raise Unfit("this system does not tell what a process uses", "n/a")
    return _compared(runner.crowd, before, after)


async def _left(runner: Runner, conversation: Conversation, work: Work, pid: int) -> Usage | None:
    """What is in use after a crowd."""
    started, _, _ = await _cancelled_crowd(runner, conversation, work)
    await trio.sleep(runner.pace.settle)
    await conversation.release(started.asked)
    await trio.sleep(runner.pace.settle)
    return usage_of(pid)


def _compared(crowd: int, before: Usage, after: Usage) -> Outcome:
    more = max(after.descriptors - before.descriptors, after.threads - before.threads)
    grown = (after.rss - before.rss) / 1024 / 1024
    seen = (
        f"descriptors {before.descriptors} → {after.descriptors}, threads {before.threads} → "
        f"{after.threads}, memory {before.rss / 1024 / 1024:.0f} MiB {grown:+.1f} MiB"
    )
    return Outcome("fail" if more * _TOLERATED > crowd else "pass", seen, "process")


CROWD: Final = Step(
    "crowd",
    "cancel many running requests at once",
    _crowd,
    "Cancellation, Behavior Requirements: free associated resources",
)
RESOURCES: Final = Step(
    "resources",
    "what a second such crowd leaves of descriptors and threads",
    _resources,
    "Cancellation, Behavior Requirements: free associated resources",
)
