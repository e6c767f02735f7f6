"""Connections that are closed: how a request over HTTP is cancelled, and how any channel ends."""

from __future__ import annotations

from typing import Final

import trio

from ..asked import ConversationLost
from ..evidence import Begun
from ..runner import Outcome, Runner, Started, Step, Unfit
from ..work import Work
from .common import MALFORMED, cancel_by_id, goes_on, others_go_on
from .notifying import cancel_ids

__all__ = ["CLOSING", "CONNECTION_OF_MANY", "STREAMS_OF_SESSIONS"]

_CLOSING: Final = "Cancellation, Transport-Specific Cancellation; Streamable HTTP, Cancellation"
_NO_NOTIFICATIONS: Final = "Streamable HTTP, Sending Messages"
_EVENTS: Final = "text/event-stream"


async def _at_once(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    mark = await runner.evidence.mark()
    asked = await conversation.ask("tools/call", work.params(runner.pace.work))
    asked.seconds = work.lasts(runner.pace.work)
    since = trio.current_time()
    await conversation.close(asked)
    await trio.sleep(runner.pace.settle)  # so that it has begun, if it begins at all
    started = Started([asked], mark, Begun("sent", since, None))
    return Outcome.of(await runner.stopped(conversation, started, since))


async def _before_head(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    started = await runner.start(conversation, work, token=False)
    if started.one.head_at is not None:
        finding = await runner.stop(conversation, started)
        what = started.one.media or "no content type"
        raise Unfit(f"the head of its answer ({what}) comes at once; {finding.seen}", "n/a")
    return Outcome.of(await runner.stop(conversation, started))


async def _in_stream(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    started = await runner.start(conversation, work)
    asked = started.one
    left = asked.sent_at + (asked.seconds or runner.pace.work) - trio.current_time()
    wait = min(runner.pace.begin, max(0.0, left - runner.pace.grace))
    if not await asked.until(lambda it: it.head_at is not None or it.over, wait):
        await runner.stop(conversation, started)
        raise Unfit("no event stream has begun; a tool that reports progress opens one", "n/a")
    if asked.media != _EVENTS:
        raise Unfit(f"it answers with {asked.media}, not with an event stream", "n/a")
    return Outcome.of(await runner.stop(conversation, started))


async def _reset(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    started = await runner.start(conversation, work)
    since = trio.current_time()
    await conversation.close(started.one, reset=True)
    return Outcome.of(await runner.stopped(conversation, started, since))


async def _next(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    mark = await runner.evidence.mark()
    asked = await conversation.ask("tools/call", work.params(runner.pace.work))
    await conversation.close(asked)
    recovered = await runner.recovers(conversation)
    await runner.evidence.rested(mark, runner.pace.work + runner.pace.grace)
    return Outcome("pass", recovered)


async def _posted(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    statuses: list[str] = []

    async def post(started: Started) -> None:
        other = await runner.aside()
        statuses.append(await cancel_by_id(other, started.one.id))

    went_on = await goes_on(runner, conversation, work, harmless=post)
    return _posts(statuses, went_on)


async def _posted_nonsense(runner: Runner, _: Work) -> Outcome:
    conversation = await runner.main()
    statuses = [await cancel_by_id(conversation, 424_242_424)]
    for _name, params in MALFORMED:
        statuses.append(await conversation.tell("notifications/cancelled", params))
    return _posts(statuses, await runner.recovers(conversation))


def _posts(statuses: list[str], seen: str) -> Outcome:
    said = ", ".join(sorted(set(statuses)))
    failed = any(status.startswith("HTTP 5") for status in statuses)
    return Outcome("fail" if failed else "pass", f"{said}; {seen}")


CLOSING: Final = (
    Step(
        "stops",
        "close the connection of a running tool",
        _before_head,
        f"{_CLOSING}; before headers, as in JSON mode",
        "MUST",
        each=True,
    ),
    Step(
        "stops-in-stream",
        "close the event stream of a running tool",
        _in_stream,
        f"{_CLOSING}; after headers, SSE mode",
        "MUST",
        each=True,
    ),
    Step("close-at-once", "close once the request is written", _at_once, _CLOSING, "MUST"),
    Step("reset", "reset the connection of a running tool", _reset, _CLOSING, "MUST"),
    Step("next", "call, close and the next request", _next, _CLOSING, "robust"),
    Step("others", "close one of two requests", others_go_on, _CLOSING, "MUST"),
    Step(
        "posted-cancel",
        "post a cancel for another client's running request",
        _posted,
        _NO_NOTIFICATIONS,
        "robust",
    ),
    Step(
        "posted-nonsense",
        "post unknown and malformed cancels",
        _posted_nonsense,
        _NO_NOTIFICATIONS,
        "robust",
    ),
    Step("ids", "close requests with ids of each kind", cancel_ids, _CLOSING, "MUST"),
)


# Sessions -----------------------------------------------------------------------------------------


async def _stream_of_session(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    started = await runner.start(conversation, work)
    since = trio.current_time()
    await conversation.close(started.one)
    finding = await runner.evidence.stopped(started.mark, started.begun, started.asked, since)
    await conversation.cancel(started.one)
    await runner.rest(started)
    return Outcome.of(finding, wanted=False)


STREAMS_OF_SESSIONS: Final = (
    Step(
        "stream-lost",
        "close the connection of a running tool, which is no cancel in a session",
        _stream_of_session,
        "2025-11-25, Transports, Sending Messages to the Server",
    ),
)


# Channels that several may have -------------------------------------------------------------------


async def _disconnect(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.open()
    try:
        started = await runner.start(conversation, work)
        since = trio.current_time()
    finally:
        await conversation.aclose()
    finding = await runner.evidence.stopped(started.mark, started.begun, started.asked, since)
    if finding.stopped is False:
        await runner.rest(started)
    try:
        recovered = await runner.recovers(await runner.main())
    except ConversationLost as lost:
        return Outcome("fail", f"the other connection: {lost}")
    outcome = Outcome.of(finding)
    seen = f"{finding.seen}; on another connection {recovered}"
    return Outcome(outcome.verdict, seen, outcome.evidence, finding.after)


CONNECTION_OF_MANY: Final = (
    Step(
        "disconnect",
        "close the connection while a tool runs",
        _disconnect,
        "Transports, Cancellation; Cancellation, Transport-Specific Cancellation",
        "SHOULD",
        each=True,
    ),
)
