"""What several checks do."""

from __future__ import annotations

from typing import Any, Final

import trio

from ..asked import Conversation, ConversationLost
from ..report import Finding
from ..runner import Outcome, Runner, Started, Unfit, said
from ..work import Work

__all__ = [
    "BIG",
    "IDS",
    "MALFORMED",
    "cancel_by_id",
    "goes_on",
    "named",
    "others_go_on",
    "quietly",
    "stops",
]

BIG: Final = 2**53 - 1
"""The largest integer that every JSON reader gets right."""

IDS: Final = (0, "", "é", -1, BIG, "x" * 200)

MALFORMED: Final[tuple[tuple[str, Any], ...]] = (
    ("no params", ...),
    ("params null", None),
    ("params []", []),
    ("no requestId", {"reason": "probe"}),
    ("requestId null", {"requestId": None}),
    ("requestId {}", {"requestId": {}}),
    ("requestId []", {"requestId": []}),
    ("requestId true", {"requestId": True}),
)
"""What may come instead of the params of a ``notifications/cancelled``."""


def named(value: Any) -> str:
    """An id, in a few characters."""
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 24 else f"a text of {len(value)}"


async def stops(runner: Runner, work: Work) -> Outcome:
    """Cancel one request, in the transport's own way."""
    conversation = await runner.main()
    started = await runner.start(conversation, work)
    return Outcome.of(await runner.stop(conversation, started))


async def goes_on(
    runner: Runner, conversation: Conversation, work: Work, *ids: Any, harmless: Any
) -> str:
    """Start work, do something that shall not touch it, and see that it goes on: its result comes,
    or it is alive. What was seen.

    :param harmless: awaited with what was started.

    Raises :class:`Unfit` if that cannot be told, :class:`ConversationLost` if it was stopped.
    """
    pace = runner.pace
    chosen = work.duration is not None
    seconds = pace.short + pace.settle if chosen else pace.work
    started = await runner.start(conversation, work, *ids, seconds=seconds)
    await harmless(started)
    if chosen:
        answer = await started.one.answer((started.one.seconds or seconds) + pace.answer)
        if answer is None:
            raise ConversationLost("the request was never answered: it was cancelled by that")
        if not answer.is_result:
            raise ConversationLost(f"the request was ended by that, with {said(started.one)}")
        return "its result came"
    before = started.mark.alive
    await trio.sleep(pace.settle)
    alive = (await runner.evidence.mark()).alive
    await runner.stop(conversation, started)
    if alive is None or before is None:
        raise Unfit("whether it went on cannot be told without a witness, or a known duration")
    if alive <= before:
        raise ConversationLost("the request was stopped by that")
    return f"it was alive {pace.settle:g} s later"


async def cancel_by_id(conversation: Conversation, request_id: Any) -> str:
    """Say that a request is cancelled, whether there is one or not."""
    params = {"requestId": request_id, "reason": "probe"}
    return await conversation.tell("notifications/cancelled", params)


async def quietly(
    runner: Runner, conversation: Conversation, before: int, seen: str, *more: str
) -> Outcome:
    """It has to answer the next request, and to have said nothing else since there were ``before``
    strays."""
    recovered = await runner.recovers(conversation)
    strays = conversation.strays[before:]
    if strays:
        return Outcome("fail", f"it said {len(strays)} times, at first {strays[0]}")
    return Outcome("pass", "; ".join(part for part in (seen, *more, recovered) if part))


async def others_go_on(runner: Runner, work: Work) -> Outcome:
    """Cancel one of two requests: the other has to end by itself."""
    conversation = await runner.main()
    started: Started = await runner.start(conversation, work)
    if work.duration is None:
        finding = await runner.stop(conversation, started)
        took = await runner.recovers(conversation)
        return Outcome("pass", f"{took}; {finding.seen}")
    other = await conversation.ask("tools/call", work.params(runner.pace.short))
    finding = await runner.stop(conversation, started)
    answer = await other.answer(runner.pace.short + runner.pace.answer)
    if answer is None:
        return Outcome("fail", "the other request was never answered")
    if not answer.is_result:
        return Outcome("fail", f"the other request was ended, too: {said(other)}")
    return Outcome(
        "pass", f"the other one's result came {answer.at - other.sent_at:.1f} s after it"
    )


def together(findings: list[Finding], outcome: Outcome) -> Outcome:
    """An outcome, unless work ran on."""
    for finding in findings:
        if finding.stopped is False:
            return Outcome.of(finding)
    return outcome
