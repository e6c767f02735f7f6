"""What the checks of a probe share: conversations with the server, its tools, the evidence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import trio

from ..runtime.groups import leaf_of
from .asked import Asked, Conversation, ConversationLost
from .evidence import Begun, Evidence, Mark, Rehearsal, alive_in
from .pace import Pace
from .report import Check, Finding, Verdict
from .speech import InSession, Stateless
from .subject import Subject
from .work import Work

__all__ = ["Outcome", "Runner", "Started", "Step", "Unfit", "said"]

_PROMPT: Final = 1.0
"""Seconds within which a request is answered that has nothing to wait for."""


class Unfit(Exception):
    """A check cannot be done with this server or this tool; says why."""

    def __init__(self, why: str, verdict: Verdict = "unknown") -> None:
        super().__init__(why)
        self.verdict = verdict


@attrs.frozen
class Outcome:
    """What a check came to."""

    verdict: Verdict
    seen: str
    evidence: str = "protocol"
    after: float | None = None

    @classmethod
    def of(cls, finding: Finding, *, wanted: bool = True) -> Outcome:
        """Work had to stop, or to go on if that is ``wanted`` not to be."""
        if finding.stopped is None:
            return cls("unknown", finding.seen, finding.evidence)
        verdict: Verdict = "pass" if finding.stopped is wanted else "fail"
        return cls(verdict, finding.seen, finding.evidence, finding.after)


@attrs.frozen
class Started:
    """Requests whose work has begun, and how things stood before."""

    asked: Sequence[Asked]
    mark: Mark
    begun: Begun

    @property
    def one(self) -> Asked:
        return self.asked[0]


@attrs.frozen
class Step:
    """A check: what it does, in words and in code.

    :param each: whether it is done with each slow tool; else with the first.
    """

    name: str
    done: str
    run: Callable[[Runner, Work], Awaitable[Outcome]]
    specification: str
    level: str = "SHOULD"
    each: bool = False


Tools: TypeAlias = Sequence[Mapping[str, Any]]


class Runner:
    """A probe of one server over one transport.

    :param tools: its tools as they were listed.
    :param witness: a tool that says how many runs are alive, and its arguments.
    :param effect: a file that the slow tools change.
    :param pid: of the server's process on this machine; a launched one's is known.
    :param crowd: how many requests are cancelled at once.
    """

    def __init__(
        self,
        subject: Subject,
        speech: Stateless | InSession,
        tools: Tools,
        nursery: trio.Nursery,
        *,
        pace: Pace,
        witness: Work | None,
        effect: Path | None,
        pid: int | None,
        crowd: int,
    ) -> None:
        self.subject = subject
        self.speech = speech
        self.pace = pace
        self.crowd = crowd
        self.evidence = Evidence(pace, witness.tool if witness else None, self._count, effect)
        self.evidence.pid = pid
        self.cancelled: list[Asked] = []
        """What was cancelled by a notification, and has to stay unanswered."""
        self._unasked: list[str] = []
        self._tools = tools
        self._witness = witness
        self._nursery = nursery
        self._pid = pid
        self._rehearsals: dict[str, Rehearsal] | None = {} if effect is not None else None
        self._main: Conversation | None = None
        self._aside: Conversation | None = None

    # Conversations --------------------------------------------------------------------------------

    async def open(self) -> Conversation:
        """A conversation that has begun. Raises ``OSError`` or :class:`ConversationLost`."""
        conversation = await self.subject.open(self.speech, self.pace, self._tools)
        try:
            with trio.fail_after(self.pace.open):
                await self._nursery.start(conversation.run)
        except (BaseExceptionGroup, trio.TooSlowError) as error:
            leaf = leaf_of(error)
            raise (ConversationLost(str(leaf)) if isinstance(leaf, OSError) else leaf) from None
        try:
            await conversation.begin()
            await self._greet(conversation)
        except ConversationLost:
            await conversation.aclose()
            raise
        return conversation

    async def _greet(self, conversation: Conversation) -> None:
        """Ask for the tools: a launched server is there once it has answered, and one that does not
        speak this revision says so."""
        asked = await conversation.ask("tools/list", {}, token=False)
        answer = await asked.answer(self.pace.open)
        if answer is None or not answer.is_result:
            what = "nothing" if answer is None else said(asked)
            raise ConversationLost(f"it answers {what} to tools/list")

    async def main(self) -> Conversation:
        """The one that most checks share; a new one if it was lost."""
        if self._main is not None and self._main.lost is not None:
            await self.leave()
        if self._main is None:
            self._main = await self.open()
            if self._pid is None:
                self.evidence.pid = self._main.pid
        return self._main

    async def aside(self) -> Conversation:
        """Another one with the same server, where there can be one."""
        if not self.subject.shared:
            return await self.main()
        if self._aside is not None and self._aside.lost is not None:
            self._unasked += self._aside.unasked
            self._aside = None
        if self._aside is None:
            self._aside = await self.open()
        return self._aside

    def unasked(self) -> list[str]:
        """Answers that nothing waited for, of all conversations so far."""
        live = [it for it in (self._main, self._aside) if it is not None]
        return self._unasked + [said for it in live for said in it.unasked]

    async def leave(self) -> None:
        """Hang up the one that checks share."""
        if self._main is not None:
            self._unasked += self._main.unasked
            await self._main.aclose()
        self._main = None

    async def leave_all(self) -> None:
        """Hang up."""
        await self.leave()
        if self._aside is not None:
            await self._aside.aclose()
        self._aside = None

    # Requests -------------------------------------------------------------------------------------

    async def quick(self, conversation: Conversation) -> float:
        """Ask for the list of tools; seconds until it was there.

        Raises :class:`ConversationLost` if it does not come within ``Pace.answer``.
        """
        asked = await conversation.ask("tools/list", {}, token=False)
        answer = await asked.answer(self.pace.answer)
        if answer is None:
            raise ConversationLost(f"tools/list was not answered within {self.pace.answer:g} s")
        return answer.at - asked.sent_at

    async def recovers(self, conversation: Conversation) -> str:
        """As :meth:`quick`, in words. Raises :class:`ConversationLost` if it takes long, too."""
        took = await self.quick(conversation)
        if took > _PROMPT:
            raise ConversationLost(f"the next request took {took:.1f} s")
        return f"the next request took {took * 1000:.0f} ms"

    async def start(
        self,
        conversation: Conversation,
        work: Work,
        *ids: Any,
        seconds: float | None = None,
        token: bool = True,
    ) -> Started:
        """Call a slow tool, once for each of the ids, and wait until it is seen to have begun.

        Raises :class:`Unfit` if one ended by itself before.
        """
        seconds = self.pace.work if seconds is None else seconds
        mark = await self.evidence.mark()
        asked = []
        for request_id in ids or (...,):
            params = work.params(seconds)
            one = await conversation.ask("tools/call", params, request_id, token=token)
            one.seconds = work.lasts(seconds)
            asked.append(one)
        begun = await self.evidence.begun(mark, asked)
        for one in asked:
            if one.lost is not None:
                raise ConversationLost(one.lost)
            if one.answers:
                raise Unfit(f"{work.tool} ended by itself: {said(one)}{self._missing(work)}")
        return Started(asked, mark, begun)

    async def stop(self, conversation: Conversation, started: Started) -> Finding:
        """Cancel what was started in the transport's own way, all at once; whether it has stopped,
        once all cancels are out."""
        await self.cancel(conversation, started)
        return await self.stopped(conversation, started, trio.current_time())

    async def cancel(self, conversation: Conversation, started: Started) -> None:
        """Cancel it, all at once. Raises :class:`ConversationLost`."""
        try:
            async with trio.open_nursery() as nursery:
                for asked in started.asked:
                    nursery.start_soon(conversation.cancel, asked)
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None

    async def stopped(self, conversation: Conversation, started: Started, since: float) -> Finding:
        """Whether what was cancelled at ``since`` has stopped; waits, in bounds, until it has
        ended in any case, for the checks that follow."""
        if not conversation.closes:
            self.cancelled += started.asked
        evidence = self.evidence
        finding = await evidence.stopped(started.mark, started.begun, started.asked, since)
        if finding.stopped is False:
            await self.rest(started)
        return finding

    async def rest(self, started: Started) -> None:
        """Wait until what was started is no more alive, as far as there is a witness, at most until
        its time is over."""
        now, pace = trio.current_time(), self.pace
        ends = [it.sent_at + it.seconds for it in started.asked if it.seconds is not None]
        await self.evidence.rested(
            started.mark, max(ends, default=now + pace.work) - now + pace.grace
        )

    def _missing(self, work: Work) -> str:
        """How to give a tool the arguments that it requires, if it was called without them."""
        for tool in self._tools:
            schema = tool.get("inputSchema")
            required = schema.get("required") if isinstance(schema, dict) else None
            if tool.get("name") != work.tool or not isinstance(required, list):
                continue
            given = work.params(0)["arguments"]
            missing = [name for name in required if isinstance(name, str) and name not in given]
            if missing:
                example = ", ".join(f'"{name}": …' for name in missing)
                return f"; its arguments are given as --tool {work.tool}='{{{example}}}'"
        return ""

    async def _rehearse(self, work: Work) -> None:
        """Run a slow tool once, and let it end by itself, to see when it changes the file. One that
        goes on for longer than others are asked to run is cancelled."""
        if self._rehearsals is None:
            return
        if work.tool not in self._rehearsals:
            conversation, seconds = await self.main(), self.pace.work
            mark = await self.evidence.mark()
            asked = await conversation.ask("tools/call", work.params(seconds))
            asked.seconds = work.lasts(seconds)
            longest = seconds if asked.seconds is None else asked.seconds + self.pace.answer
            changes = await self.evidence.changes(mark, asked, longest)
            if asked.lost is not None:
                raise ConversationLost(asked.lost)
            if not asked.answers and not asked.over:
                await conversation.cancel(asked)
            self._rehearsals[work.tool] = Rehearsal(changes, asked.seconds)
        self.evidence.rehearsal = self._rehearsals[work.tool]

    async def _count(self) -> int | None:
        assert self._witness is not None
        conversation = await self.aside()
        params = self._witness.params(0)
        asked = await conversation.ask("tools/call", params, token=False)
        answer = await asked.answer(self.pace.answer)
        alive = alive_in(answer.message.get("result")) if answer is not None else None
        if alive is None:
            self.evidence.said = said(asked).removeprefix("a result: ") if answer else None
        return alive

    # Checks ---------------------------------------------------------------------------------------

    async def check(self, step: Step, work: Work) -> Check:
        """Do it, in bounded time; nothing of it is left but what the server leaves."""
        outcome = Outcome("fail", f"it did not come to an end within {self.pace.check:g} s")
        try:
            await self._rehearse(work)
            with trio.move_on_after(self.pace.check):
                outcome = await step.run(self, work)
        except Unfit as why:
            outcome = Outcome(why.verdict, str(why), "none")
        except (ConversationLost, OSError) as error:
            outcome = Outcome("fail", str(error))
        return Check(
            name=step.name,
            done=step.done,
            verdict=outcome.verdict,
            seen=outcome.seen,
            evidence=outcome.evidence,
            specification=step.specification,
            level=step.level,
            tool=work.tool if step.each else None,
            after=outcome.after,
        )


def said(asked: Asked) -> str:
    """The first answer, in a few words."""
    message = asked.answers[0].message
    if "error" in message:
        error = message["error"]
        text = error.get("message") if isinstance(error, dict) else error
        return f"error: {text}"
    result = message.get("result")
    content = result.get("content") if isinstance(result, dict) else None
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text", "") if isinstance(first, dict) else ""
    return f"{'an error' if not asked.answers[0].is_result else 'a result'}: {str(text)[:80]!r}"
