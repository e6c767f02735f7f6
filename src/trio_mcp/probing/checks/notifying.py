"""``notifications/cancelled``: on channels, and in sessions over HTTP."""

from __future__ import annotations

from typing import Any, Final

import trio

from ..asked import Asked, ConversationLost
from ..channel import Channel, message_of
from ..runner import Outcome, Runner, Started, Step
from ..work import Work
from .common import (
    IDS,
    MALFORMED,
    cancel_by_id,
    goes_on,
    named,
    others_go_on,
    quietly,
    stops,
    together,
)

__all__ = ["NOTIFYING", "SILENT"]

_BEHAVIOUR: Final = "Cancellation, Behavior Requirements"
_ERRORS: Final = "Cancellation, Error Handling"
_TIMING: Final = "Cancellation, Timing Considerations"
_UNUSED: Final = (424_242_424, "never-used", "")


async def _next(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    mark = await runner.evidence.mark()
    if isinstance(conversation, Channel):
        call, frame = conversation.prepare("tools/call", work.params(runner.pace.work))
        params = {"requestId": call.id, "reason": "probe"}
        listed, probe = conversation.prepare("tools/list", {}, token=False)
        cancel = message_of("notifications/cancelled", params)
        call.cancelled_at = trio.current_time()
        await conversation.send([frame, cancel, probe])
        answer = await listed.answer(runner.pace.answer)
        took = answer.at - listed.sent_at if answer is not None else None
    else:
        call = await conversation.ask("tools/call", work.params(runner.pace.work))
        await conversation.cancel(call)
        took = await runner.quick(conversation)
    call.seconds = work.lasts(runner.pace.work)
    runner.cancelled.append(call)
    if mark.alive is not None:  # whether its answer has to be waited for
        call.stopped = await runner.evidence.rested(mark, runner.pace.grace)
        await runner.evidence.rested(mark, runner.pace.work)
    if took is None:
        return Outcome("fail", f"no answer within {runner.pace.answer:g} s")
    return Outcome("pass" if took < 1 else "fail", f"answered after {took * 1000:.0f} ms")


async def _unknown(runner: Runner, _: Work) -> Outcome:
    conversation = await runner.main()
    before = len(conversation.strays)
    statuses = {await cancel_by_id(conversation, unused) for unused in _UNUSED}
    return await quietly(runner, conversation, before, *sorted(statuses))


async def _malformed(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    before = len(conversation.strays)
    statuses: set[str] = set()

    async def say_all(_: Started) -> None:
        for _name, params in MALFORMED:
            statuses.add(await conversation.tell("notifications/cancelled", params))

    went_on = await goes_on(runner, conversation, work, harmless=say_all)
    seen = f"after {len(MALFORMED)} kinds {went_on}"
    return await quietly(runner, conversation, before, seen, *sorted(statuses))


async def _types(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    before = len(conversation.strays)
    for real, other in ((70_001, "70001"), ("70002", 70_002)):

        async def cancel_other(_: Started, other: Any = other) -> None:
            await cancel_by_id(conversation, other)

        try:
            await goes_on(runner, conversation, work, real, harmless=cancel_other)
        except ConversationLost as lost:
            return Outcome("fail", f"{named(real)}, while {named(other)} was cancelled: {lost}")
    return await quietly(runner, conversation, before, "either went on")


async def _twice(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    before = len(conversation.strays)
    started = await runner.start(conversation, work)
    since = trio.current_time()
    for _ in range(3):
        await conversation.cancel(started.one)
    finding = await runner.stopped(conversation, started, since)
    return together([finding], await quietly(runner, conversation, before, finding.seen))


async def _late(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    before = len(conversation.strays)
    if work.duration is not None:
        done = await conversation.ask("tools/call", work.params(runner.pace.short))
    else:
        done = await conversation.ask("tools/list", {}, token=False)
    if await done.answer(runner.pace.short + runner.pace.answer) is None:
        return Outcome("unknown", "the request did not end by itself", "none")
    await cancel_by_id(conversation, done.id)
    outcome = await quietly(runner, conversation, before, "nothing came of it")
    if len(done.answers) > 1:
        return Outcome("fail", f"the request was answered {len(done.answers)} times")
    return outcome


async def cancel_ids(runner: Runner, work: Work) -> Outcome:
    """Requests with ids of each kind, cancelled in the transport's own way."""
    conversation = await runner.main()
    started = await runner.start(conversation, work, *IDS)
    finding = await runner.stop(conversation, started)
    if finding.stopped is False:
        ran_on = [named(it.id) for it in started.asked if any(a.is_result for a in it.answers)]
        which = f"; answered in the end: {', '.join(ran_on)}" if ran_on else ""
        return Outcome("fail", finding.seen + which, finding.evidence)
    all_ids = ", ".join(named(request_id) for request_id in IDS)
    outcome = Outcome.of(finding)
    return Outcome(outcome.verdict, f"{all_ids}: {finding.seen}", outcome.evidence, finding.after)


async def _silent(runner: Runner, _: Work) -> Outcome:
    asked = [it for it in runner.cancelled if it.cancelled_at is not None and it.lost is None]
    if not asked:
        return Outcome("unknown", "nothing was cancelled whose answer could be seen", "none")
    await trio.sleep_until(_until(runner, asked))
    late = [answer for it in asked for answer in it.late()]
    errors = sum(not answer.is_result for answer in late)
    if late:
        kinds = f"{errors} errors, {len(late) - errors} results"
        return Outcome("fail", f"{len(late)} answers to {len(asked)} cancelled requests: {kinds}")
    unasked = runner.unasked()
    if unasked:
        first = f"at first {unasked[0]}"
        return Outcome("fail", f"{len(unasked)} answers that nothing waited for, {first}")
    return Outcome("pass", f"no answer to any of {len(asked)} cancelled requests")


def _until(runner: Runner, asked: list[Asked]) -> float:
    """When an answer would have come, of those that may be working."""
    pace = runner.pace
    ends = [
        it.sent_at + (it.seconds if it.seconds is not None else pace.work)
        for it in asked
        if it.stopped is not True
    ]
    return max([*ends, *(it.cancelled_at or 0 for it in asked)]) + pace.settle


NOTIFYING: Final = (
    Step(
        "stops",
        "cancel a running tool",
        stops,
        f"{_BEHAVIOUR}: stop processing the cancelled request",
        each=True,
    ),
    Step("next", "call, cancel and the next request at once", _next, _BEHAVIOUR, "robust"),
    Step("others", "cancel one of two requests", others_go_on, "Cancellation", "MUST"),
    Step("unknown-id", "cancel ids that no request has", _unknown, _ERRORS),
    Step("malformed", "malformed cancels while a tool runs", _malformed, _ERRORS),
    Step(
        "id-types",
        'cancel "1" while 1 runs, and 1 while "1" runs',
        _types,
        f"{_ERRORS}: unknown request IDs",
    ),
    Step("twice", "cancel a running tool three times", _twice, _ERRORS),
    Step("too-late", "cancel a request that has been answered", _late, _TIMING, "MUST"),
    Step("ids", "cancel requests with ids of each kind", cancel_ids, "Base Protocol"),
)

SILENT: Final = Step(
    "silent",
    "look for answers to all that was cancelled",
    _silent,
    f"{_BEHAVIOUR}: not send a response for the cancelled request",
)
