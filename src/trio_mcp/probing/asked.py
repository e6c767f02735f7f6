"""A request as a probe sees it: everything that ever came about it, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs
import trio

__all__ = ["Answer", "Asked", "Conversation", "ConversationLost", "Key", "key_of"]

Key = tuple[type, Any]


def key_of(value: Any) -> Key:
    """An id or a token, to be compared by type and value: ``1``, ``1.0`` and ``"1"`` are three. A
    server may send a list or an object for one."""
    return type(value), repr(value) if isinstance(value, list | dict) else value


class ConversationLost(Exception):
    """The server has ended, or closed the connection; or it does not read any more."""


@attrs.frozen
class Answer:
    """A response. ``at`` is when it came."""

    at: float
    message: dict[str, Any]

    @property
    def is_result(self) -> bool:
        """Whether the work has come to its end: an error, also one of a tool, may say that it has
        not."""
        result = self.message.get("result")
        return isinstance(result, dict) and result.get("isError") is not True


@attrs.define(eq=False)
class Asked:
    """One request. All times are Trio's.

    :param seconds: how long its tool is to run; ``None`` if that is not known.
    :param head_at: over HTTP, when the head of its response came; ``status`` and ``media`` say what
        was in it.
    :param over: over HTTP, its response has ended or was closed.
    :param stopped: whether its work was seen to have stopped after it was cancelled.
    """

    id: Any
    token: Any
    sent_at: float
    seconds: float | None = None
    answers: list[Answer] = attrs.field(factory=list)
    progress: list[float] = attrs.field(factory=list)
    cancelled_at: float | None = None
    stopped: bool | None = None
    status: int | None = None
    media: str | None = None
    head_at: float | None = None
    over: bool = False
    lost: str | None = None
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def note(self) -> None:
        """Something has changed: wakes who waits in :meth:`until`."""
        self._changed.set()
        self._changed = trio.Event()

    async def until(self, condition: Callable[[Asked], object], seconds: float) -> bool:
        """Wait until it holds; ``False`` if it does not within that time."""
        with trio.move_on_after(seconds):
            while not condition(self):
                await self._changed.wait()
        return bool(condition(self))

    async def answer(self, seconds: float) -> Answer | None:
        """Its first answer; ``None`` if there is none within that time.

        Raises :class:`ConversationLost` if none can come any more.
        """
        await self.until(lambda it: it.answers or it.lost is not None or it.over, seconds)
        if self.answers:
            return self.answers[0]
        if self.lost is not None:
            raise ConversationLost(self.lost)
        if self.over and self.status is not None and self.cancelled_at is None:
            raise ConversationLost(f"HTTP {self.status} without an answer to the request")
        return None

    def take(self, answer: Answer) -> str | None:
        """Note an answer to it; what is wrong with that, if there was one before."""
        second = f"a second answer to {self.id!r:.40}" if self.answers else None
        self.answers.append(answer)
        self.note()
        return second

    def late(self) -> list[Answer]:
        """What was answered after the cancellation."""
        since = self.cancelled_at
        return [] if since is None else [answer for answer in self.answers if answer.at > since]


class Conversation(Protocol):
    """A connection, or a session over HTTP, as a probe uses it: it may say anything.

    :meth:`run` must be running. Sending is bounded, and raises :class:`ConversationLost` if the
    server is gone or does not read.
    """

    lost: str | None
    """Why no more can be said."""
    strays: list[str]
    """What came that is no answer to a request of ours, no progress, and nothing that a server may
    say of its own accord."""
    unasked: list[str]
    """Answers that nothing waited for: to a request that had been answered, and results under an
    id that is none or another's. Work that ran on may come out so."""
    closes: bool
    """Whether closing a response is how a request is cancelled; else it is a notification."""
    pid: int | None
    """Of a launched server."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Until :meth:`aclose`; leaves nothing behind, also if cancelled."""

    async def begin(self) -> None:
        """Begin a session, in revisions that have one. Raises :class:`ConversationLost`."""

    async def ask(
        self, method: str, params: dict[str, Any], request_id: Any = ..., *, token: bool = True
    ) -> Asked:
        """Send a request. ``...`` is an id that nobody has had."""

    async def tell(self, method: str, params: Any = ...) -> str:
        """Send a notification, with params of any kind or, as ``...``, none; what the transport
        answered to that: nothing, or an HTTP status."""

    async def cancel(self, asked: Asked, reason: str = "probe") -> None:
        """Cancel a request in this transport's own way, in this revision."""

    async def close(self, asked: Asked, *, reset: bool = False) -> None:
        """Over HTTP: close its connection, with FIN or with RST."""

    async def release(self, asked: Sequence[Asked]) -> None:
        """Nothing more is awaited of these requests: over HTTP, close their connections, as clients
        do with what they have cancelled. That is no cancellation."""

    async def aclose(self) -> None:
        """Hang up."""
