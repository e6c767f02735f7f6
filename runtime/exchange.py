"""One inbound request and everything it started.

The task of an exchange is :meth:`Exchange.run`: one nursery, in which the handler runs and in which
its children live. When the nursery has closed, the outcome is encoded and queued; it is *claimed*
when the transport takes it from the queue to write it (see :mod:`.lifecycle`). Until then a
cancellation wins.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol

import trio

from .errors import ProtocolError
from .exits import ExitCallbacks
from .failures import ANNOUNCED, failure_of, passes_on, refusal_of
from .journal import Record, printable
from .jsonrpc import Request, RequestId
from .lifecycle import ANSWERED, CancelCause, CancelSource, Lifecycle, State
from .logs import LogReporter
from .progress import Pacer, ProgressReporter, ProgressUpdate
from .records import record_of
from .rounds import InputRequired, Round, outcome_of
from .scopes import Scope, ScopeKind

if TYPE_CHECKING:
    from .admission.admission import Slots
    from .dispatch import Dispatcher, Method
    from .eras.base import Era, RequestMetadata
    from .offload.work import Work, WorkRecord
    from .principal import Principal
    from .tracing import GuardedExchangeSpan

__all__ = ["Exchange", "Outgoing", "Peer", "Reply"]


class Outgoing(Protocol):
    """Something to be written when its turn comes. ``size`` is what it holds in memory, bytes."""

    @property
    def size(self) -> int: ...

    def take(self) -> bytes | None:
        """The bytes, now that they start to go out; ``None``: not any more."""

    def written(self, delivered: bool) -> None:
        """What was taken has been handed to the peer's side, or was lost."""


class Reply(Protocol):
    """How an exchange speaks to its peer; made by the transport."""

    pacer: Pacer

    def notify(self, message: Outgoing) -> None:
        """Queue a message about the exchange. Never waits."""

    def finish(self, exchange: Exchange) -> None:
        """Queue the exchange's outcome. Never waits."""


class Peer(Protocol):
    """The connection that a request came over. ``client`` is whom its requests count for, where
    clients are to have equal chances and none has proved who it is."""

    label: str
    client: Hashable

    def hold(self, size: int) -> ProtocolError | None:
        """Count bytes that a request keeps in memory, beyond its own; or why it may not."""

    def forget(self, exchange: Exchange) -> None:
        """The exchange is over: its id may be used again."""


_keys = itertools.count(1)


class Exchange(Lifecycle):
    """A request being served. ``key`` is unique in this process; request ids are the peer's.

    ``endless``: its handler has no end of its own, so the server ends it; see :meth:`end_on_drain`.
    """

    __slots__ = (
        "_announced",
        "_answered",
        "_at_drain",
        "_exits",
        "_failed",
        "_frame",
        "_nursery",
        "_posted",
        "_record",
        "_unwinding",
        "asked",
        "changes_coalesced",
        "changes_sent",
        "cleanup_outcome",
        "cleanups",
        "core",
        "delivered",
        "draining",
        "ended_at",
        "endless",
        "era",
        "error_code",
        "error_data",
        "error_text",
        "gates",
        "held",
        "is_error",
        "key",
        "lingering",
        "logs",
        "metadata",
        "method",
        "peer",
        "principal",
        "progress",
        "progress_token",
        "queued",
        "received_at",
        "refused",
        "reply",
        "request",
        "round",
        "span",
        "started_at",
        "target",
        "unwound_at",
        "waiting_since",
        "work",
        "work_records",
    )

    def __init__(
        self,
        core: Dispatcher,
        request: Request,
        peer: Peer,
        reply: Reply,
        received_at: float,
        principal: Principal | None,
    ) -> None:
        super().__init__()
        self.key = next(_keys)
        self.core = core
        self.request = request
        self.peer = peer
        self.reply = reply
        self.received_at = received_at
        self.principal = principal
        self.era: Era | None = None
        self.metadata: RequestMetadata | None = None
        self.method: Method | None = None
        self.target: str | None = None
        self.progress_token: RequestId | None = None
        self.progress: ProgressReporter | None = None
        self.logs: LogReporter | None = None
        self.round: Round | None = None
        self.error_code: int | None = None
        self.error_data: Any = None
        self.gates: tuple[Slots, ...] = ()
        self.lingering = 0
        self.queued = 0.0
        self.waiting_since: float | None = None
        self.refused = False
        self.held = 0
        self.cleanups = 0
        self.cleanup_outcome: str | None = None
        self.work: tuple[Work, ...] = ()
        self.work_records: tuple[WorkRecord, ...] = ()
        self.span: GuardedExchangeSpan | None = None
        self.changes_sent = 0
        self.changes_coalesced = 0
        self.endless = False
        self.draining = False
        self._at_drain: Callable[[], None] | None = None
        self._nursery: trio.Nursery | None = None
        self._announced: float | None = None
        self._exits: ExitCallbacks | None = None
        self._unwinding = False
        self._posted: ProgressUpdate | None = None
        self.started_at: float | None = None
        self.unwound_at: float | None = None
        self.ended_at: float | None = None
        self._frame: bytes | None = None
        self._failed = False
        self._answered = False
        self.asked: tuple[str, ...] = ()
        self.is_error = False
        self.error_text: str | None = None
        self.delivered: bool | None = None
        self._record: Record | None = None

    # The task ---------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Serve the request. Raises only what belongs to a scope around the connection.

        A Ctrl-C may strike in what the application has written, and not in here: between two steps
        of Python it would leave a nursery open.
        """
        result: dict[str, Any] | None = None
        error: BaseException | None = None
        if self._state is State.RUNNING:
            self.started_at = trio.current_time()
            try:
                try:
                    async with trio.open_nursery() as nursery:
                        self._nursery = nursery
                        try:
                            result = await self.core.handle(self)
                        except BaseException as raised:
                            if passes_on(raised):
                                raise
                            error = raised
                            nursery.cancel_scope.cancel("the handler raised")
                except BaseExceptionGroup as group:
                    error = failure_of(group, error)
                if error is not None:
                    error = outcome_of(error)
                self._note_deadline()
                self._nursery = self._at_drain = None
                if self._exits is not None:
                    await self._exit(self._exits)
            except BaseException as raised:
                await self._tear_down(raised)
                raise
            self._leave()
        if self._state is State.RUNNING:
            self._queue_outcome(result, error)
        else:
            self._unwind(result, error)

    def cancel(self, source: CancelSource, reason: str | None = None) -> bool:
        """Cancel this request; only transports and the embedding application call this.

        The first cause wins: ``False`` if it was over or already being cancelled. Never waits: the
        work has stopped when the state is CANCELLED.
        """
        self._note_deadline()
        if not self.begin_cancel(CancelCause(source, reason, trio.current_time())):
            if self.silenced and self._state is State.CANCELLED and not self._answered:
                self._drop_answer()
            return False
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel(source.value)
        elif self._frame is not None:
            # The outcome waits in the writer, unclaimed: it is late.
            kind = "error" if self._failed else "result"
            self._frame = None
            self._stopped(kind, queued=True)
        return True

    def end_on_drain(self, end: Callable[[], None]) -> None:
        """For a handler without an end of its own: call ``end`` once the server drains. It should
        return its result soon then, and so does not hold the drain until its limit."""
        self.endless = True
        if self.draining:
            end()
        else:
            self._at_drain = end

    def drain(self) -> None:
        """The server is about to leave; the transport's call. Never waits."""
        self.draining = True
        if self._at_drain is not None:
            self._at_drain()

    # The outcome on its way out (an Outgoing) ---------------------------------------------------

    @property
    def size(self) -> int:
        return 0 if self._frame is None else len(self._frame)

    def take(self) -> bytes | None:
        """Claim the outcome: its bytes start to go out in this very step."""
        frame, self._frame = self._frame, None
        if frame is None or self._answered:
            return None
        if self._state is State.CANCELLED:
            if self.silenced:
                return None
        elif not self.claim(failed=self._failed):
            return None
        self._answered = True
        self.ended_at = trio.current_time()
        self.peer.forget(self)
        return frame

    def written(self, delivered: bool) -> None:
        self.delivered = delivered
        self._write_record()

    # What the context needs ---------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Method and target, for a line of a log."""
        clip = self.core.limits.text_length
        method = self.request.method[:clip]
        return printable(f"{method} {self.target[:clip]}" if self.target else method)

    @property
    def nursery(self) -> trio.Nursery:
        if self._nursery is None:
            raise RuntimeError(f"{_OVER}: its nursery has closed")
        return self._nursery

    @property
    def running(self) -> bool:
        """Whether the handler, anything that it started, or what undoes it, still runs."""
        return self._nursery is not None or self._unwinding

    @property
    def deadline(self) -> float:
        """When this request is cancelled with cause DEADLINE; Trio's clock, ``inf`` for never."""
        return float("inf") if self._nursery is None else self._nursery.cancel_scope.deadline

    def limit_time(self, seconds: float) -> None:
        """Give the request ``seconds`` from its arrival, unless it has less already."""
        scope = self.nursery.cancel_scope
        scope.deadline = min(scope.deadline, self.received_at + seconds)

    def heed_timeout(self, milliseconds: object) -> None:
        """The client has announced when it gives up, counted from the arrival as any other limit.
        What is no such time is ignored."""
        if not isinstance(milliseconds, (int, float)) or isinstance(milliseconds, bool):
            return
        if not 0 < milliseconds <= _LONGEST_ANNOUNCED:
            return
        self._announced = self.received_at + milliseconds / 1000
        scope = self.nursery.cancel_scope
        scope.deadline = min(scope.deadline, self._announced)

    @property
    def answered(self) -> bool:
        """Whether its answer has begun to go out."""
        return self._answered

    def hold(self, size: int) -> None:
        """Count ``size`` bytes that this request keeps in memory against its connection, until it
        ends. Raises OVERLOADED if these are too many."""
        refusal = self.peer.hold(size)
        if refusal is not None:
            raise refusal
        self.held += size

    @property
    def speaking(self) -> bool:
        """Whether bytes about this request may still start to go out."""
        return self._state is State.RUNNING

    def report(self, update: ProgressUpdate) -> None:
        """The handler reports progress; in the event loop's thread."""
        if self._state is not State.RUNNING or self._nursery is None:
            return
        if self.progress is None:
            self.progress = ProgressReporter(self)
        self.progress.report(update)

    def post_report(self, update: ProgressUpdate) -> None:
        """The same from a worker thread. Only the newest report is kept until the loop takes it."""
        self._posted = update
        self.core.call_soon(self._report_posted)

    def _report_posted(self) -> None:
        update, self._posted = self._posted, None
        if update is not None:
            self.report(update)

    def encode_progress(self, update: ProgressUpdate) -> bytes:
        assert self.era is not None
        assert self.progress_token is not None
        return self.era.encode_progress(self.progress_token, update)

    def on_exit(self, fn: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Call ``fn(*args)`` when all that the request has started has ended; in any thread."""
        exits = self._exits
        if exits is None:
            with _making_exits:
                if self._exits is None:
                    self._exits = ExitCallbacks()
                exits = self._exits
            if self._nursery is None:  # else the exchange's task will find them, once it is
                raise RuntimeError(_OVER)
        if not exits.add(fn, args):
            raise RuntimeError(_OVER)

    def note_cleanup(self, outcome: str) -> None:
        """A ``ctx.cleanup`` block, a thread's window or the exit callbacks have ended; the worst
        outcome is kept."""
        self.cleanups += 1
        self._keep_worst(outcome)

    def _keep_worst(self, outcome: str) -> None:
        if _CLEANUP_RANK[outcome] >= _CLEANUP_RANK[self.cleanup_outcome]:
            self.cleanup_outcome = outcome

    def begin_to_wait(self) -> None:
        """For a slot."""
        self.waiting_since = trio.current_time()

    def end_to_wait(self) -> None:
        if self.waiting_since is not None:
            self.queued += trio.current_time() - self.waiting_since
            self.waiting_since = None

    def refuse(self) -> None:
        """It is not to have its turn: it is in flight no more, though its error is to be told."""
        self.core.close(self)
        self.refused = True

    def thread_left(self) -> None:
        """A thread of this request, abandoned, has ended at last."""
        self.lingering -= 1
        self._leave()

    def _leave(self) -> None:
        """Give its slots back, once nothing of it runs any more."""
        if self.gates and not self.running and not self.lingering:
            self.core.admission.leave(self)

    # Work outside of the loop ---------------------------------------------------------------------

    @property
    def is_cancelled(self) -> bool:
        """Whether the request as a whole is to stop, and not only a scope within its handler."""
        self._note_deadline()
        return self.cause is not None

    def owns(self, task: trio.lowlevel.Task) -> bool:
        """Whether a task stops with this request: its handler's, and children of that."""
        if self._nursery is None:
            return True  # it is over, which others tell; or its callbacks for the end run
        own = self._nursery.parent_task
        above: trio.lowlevel.Task | None = task
        while above is not None and above is not own:
            nursery = above.parent_nursery
            above = None if nursery is None else nursery.parent_task
        return above is own

    def begin_work(self, work: Work) -> None:
        """A piece of work waits for its place; see :class:`.offload.work.Work`. The newest
        ``Limits.work_records`` of them are kept on the record. Raises ``RuntimeError`` once the
        request is over: nobody would stop it."""
        if not self.running:
            raise RuntimeError(_OVER)
        self.work += (work,)
        self.work_records = (*self.work_records, work.record)[-self.core.limits.work_records :]

    def end_work(self, work: Work) -> None:
        """Nobody waits for it any more."""
        self.work = tuple(other for other in self.work if other is not work)

    def note_straggler(self, kind: str) -> None:
        """Work of this request has ended with ``kind`` after it was told to stop."""
        since = self.cause.received_at if self.cause is not None else self.ended_at
        late = self.note_late(kind, trio.current_time() - (since or self.received_at))
        if self._record is not None:
            self.core.journal.add_late(self._record, late, self.late)

    # The scope tree -----------------------------------------------------------------------------

    def scope(self) -> Scope:
        self._note_deadline()
        return Scope(
            kind=ScopeKind.EXCHANGE,
            label=self.name,
            state=self._shown_state(),
            age=trio.current_time() - self.received_at,
            deadline=self.deadline,
            cause=self.cause,
            key=self.key,
            children=tuple(work.scope() for work in self.work),
        )

    def _shown_state(self) -> str:
        waits = self.waiting_since is not None and self._state is State.RUNNING
        return "queued" if waits else self._state.value

    # Inside -------------------------------------------------------------------------------------

    def _note_deadline(self) -> None:
        """Trio cancels at the deadline by itself; find out that it did."""
        nursery = self._nursery
        if nursery is None or self._state is not State.RUNNING:
            return
        deadline = nursery.cancel_scope.deadline
        if deadline != math.inf and deadline <= trio.current_time():
            reason = ANNOUNCED if deadline == self._announced else None
            self.begin_cancel(CancelCause(CancelSource.DEADLINE, reason, deadline))

    async def _exit(self, exits: ExitCallbacks) -> None:
        """Undo what the handler has asked to be undone. It is still part of the request: nothing is
        said before it has ended, and a cancellation that comes meanwhile wins."""
        self._unwinding = True
        try:
            await exits.run(self.key, self.core.limits.cleanup)
        finally:
            self._unwinding = False
            self.note_cleanup(exits.outcome or "error")

    async def _tear_down(self, raised: BaseException) -> None:
        """A scope around the connection is going down with all that is in it."""
        self._nursery = None
        exits = self._exits
        try:
            if (
                exits is not None
                and exits.outcome is None
                and not isinstance(raised, GeneratorExit)
            ):
                await self._exit(exits)
        finally:
            self._be_torn_down()

    def _be_torn_down(self) -> None:
        if self._state is State.RUNNING:
            cause = CancelCause(CancelSource.DISCONNECT, "torn down", trio.current_time())
            self.begin_cancel(cause)
        self.silenced = True
        self._stopped(None)
        self._leave()

    def _queue_outcome(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        core = self.core
        if isinstance(error, InputRequired):
            result, error = self._ask(error)
        elif error is not None and (recovered := core.recover(self, error)) is not None:
            result, error = recovered, None
        if error is None and result is not None:
            try:
                self._frame = core.encode_result(self, result)
            except Exception as raised:
                error = raised
            else:
                self.is_error = result.get("isError") is True
        if self._frame is None:
            refusal = core.explain(self, error)
            self.error_text = refusal.message
            self.error_code, self.error_data = refusal.code, refusal.data
            self._failed = True
            self._frame = core.encode_error(self, refusal)
        if self.progress is not None:
            self.progress.flush()
        self.reply.finish(self)

    def _ask(self, asked: InputRequired) -> tuple[dict[str, Any] | None, BaseException | None]:
        """The result that asks the client, or why it cannot be asked."""
        try:
            result = self.core.input_required(self, asked)
        except Exception as raised:
            return None, raised
        clip = self.core.limits.text_length
        self.asked = tuple(key[:clip] for key in asked.requests)
        return result, None

    def _unwind(self, result: dict[str, Any] | None, error: BaseException | None) -> None:
        if isinstance(error, InputRequired):
            result, error = {}, None  # it would have been a result
        if error is not None:
            self._keep_worst("error")
            self.error_text = self.core.explain(self, error).message
        elif self.cleanup_outcome is None:
            self.cleanup_outcome = "clean"
        self._stopped("error" if error is not None else None if result is None else "result")

    def _stopped(self, late: str | None, *, queued: bool = False) -> None:
        """The cancelled work has stopped: answer if the peer is to know, or end in silence.
        ``queued``: the exchange waits in the writer already, and has something else to say there.
        """
        assert self.cause is not None
        now = self.unwound_at = trio.current_time()
        if late is not None:
            self.note_late(late, now - self.cause.received_at)
        self.note_unwound()
        if self.cause.source in ANSWERED and not self.silenced:
            refusal = refusal_of(self.cause, self.received_at)
            if self.started_at is None and self.cause.source is CancelSource.SHUTDOWN:
                refusal = self.core.shutting_down()  # it has not run
            self.error_code, self.error_data = refusal.code, refusal.data
            self._frame = self.core.encode_error(self, refusal)
            if not queued:
                self.reply.finish(self)
        else:
            self._drop_answer()

    def _drop_answer(self) -> None:
        self._frame = None
        if self.ended_at is None:
            self.ended_at = trio.current_time()
            self.peer.forget(self)
            self._write_record()

    def _write_record(self) -> None:
        self._record = record = record_of(self)
        self.core.journal.add(record)
        if (span := self.span) is not None:
            span.end(record, self.error_code if self._answered else None)


_LONGEST_ANNOUNCED = 1e12  # milliseconds
_making_exits = threading.Lock()
_OVER = "this request is over"
_CLEANUP_RANK = {None: 0, "clean": 1, "error": 2, "timed out": 3, "abandoned": 4}
