"""One order, played in one Trio run against a server, over a wire in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import trio
import trio.testing

from ...runtime.context import Context
from ...runtime.dispatch import Method
from ...runtime.exchange import Exchange
from ...runtime.groups import leaf_of
from ...runtime.journal import Record
from ...runtime.lifecycle import CancelCause, LateOutcome, State
from ...runtime.models.base import RequestParams
from ...runtime.models.results import Result
from ...runtime.rounds import InputRequired
from ...server import Server
from ...transports.serving import ServerConnection
from ..logs import Failures
from ..places import Place, place_of
from ..refusals import refusal
from ..requests import Request
from ..watching import tasks_below
from .actions import Action, Gap, Order, Step
from .http import HttpWire
from .raced import Script
from .traces import BESIDE, EXCHANGE, LATE, PROBE, Event, Trace, What, is_answer
from .watch import RaceWatch
from .wire import ChannelWire

__all__ = ["Play"]

_BESIDE: Final = "race/beside"
"""The method of a request beside it, which waits until the order is over, or the server leaves."""

_IDLE: Final = 2
"""Ticks without a step of anybody, after which nobody is ready: one may end before the others had
their turn."""

_MOVES_IN_VAIN: Final = 20
"""Moves of the clock, after which a handler that they are nothing to is taken to be endless."""

_TINY: Final = 1e-9
"""Seconds that a clock moves at least: less may be lost in its digits."""


class Play:
    """Plays an order. What came of it is in the attributes; :mod:`.rules` judges it.

    :param script: the tool that does as it is told; ``None``: the handler is the user's.
    :param bound: virtual seconds for the end, once the exchange is to stop.
    :param longest: virtual seconds for a handler that nobody stops.
    :param limit: steps of the handler's tasks.
    """

    root = "trio-mcp exchange"

    def __init__(
        self,
        server: Server,
        request: Request,
        script: Script | None,
        order: Order,
        bound: float,
        longest: float,
        limit: int,
        made: Callable[[Callable[..., None]], ChannelWire | HttpWire],
    ) -> None:
        self.order = order
        self.trace = Trace()
        self.exchange: Exchange | None = None
        self.records: list[Record] = []
        self.left: list[str] = []
        self.outlived: list[tuple[int, str]] = []  # the event before which all should have ended
        self.script = script
        self.beside: Exchange | None = None
        self.said_beside: list[Any] = []
        self.said_late: list[Any] = []
        self.crash: Exception | None = None
        self.failures = Failures()
        self.watch = RaceWatch(self, bound, limit)
        self.struck_at: Place | None = None  # where the first cancellation has found the handler
        self.shut_down = False
        self.shut_down_at: float | None = None
        self.drain_limit = server.limits.drain
        self.newest_report: float | None = None
        self.asked_for_probe = False
        self.closes_for_all = False  # the client has left before the order was over
        self.answer_is_whole = True
        self.was_quiet = False  # before the last tick of the last gap
        self.waits_for_ever = False  # there was no time to move to in it
        self._server = server
        self._core = server._core
        self._inflight_before = self._core.inflight
        self._request = request
        self._longest = longest
        self._wire: ChannelWire | HttpWire = made(self.note)
        self._let_go = trio.Event()  # the one beside it
        self._tasks_then: set[trio.lowlevel.Task] = set()
        self._asked_too_late = False
        self._is_to_be_told = False  # that its scope was cancelled: who serves
        self._serving_before = set(server._core.draining._serving)
        self._seen = State.RUNNING
        self._reported = 0
        self._handler_over = False
        self._is_adopted = False
        self._steps_then = 0
        self._moves_in_vain = 0
        self._must_end = math.inf
        self._around = trio.CancelScope()
        self._closed = False
        self._clock: trio.testing.MockClock

    @property
    def delivered(self) -> bool:
        return self._wire.delivered

    @property
    def reason(self) -> str:
        """What the handler's ``trio.Cancelled`` says."""
        cause = self.exchange.cause if self.exchange is not None else None
        return cause.source.value if cause is not None else ""

    # Running --------------------------------------------------------------------------------------

    async def run(self, clock: trio.testing.MockClock) -> None:
        self._clock = clock
        self.watch.driver = trio.lowlevel.current_task()
        with self.failures.taken(), self._taps():
            async with trio.open_nursery() as nursery:
                self.watch.nursery = nursery
                nursery.start_soon(self._serve, name="trio-mcp race: the server")
                await self._play()
                await self._probe()
                await self._leave()
        self._look_for_leftovers()

    async def _serve(self) -> None:
        with self._around:
            try:
                await self._wire.serve(self._server)
            except Exception as error:
                self.crash = error
        if self._is_to_be_told and not self._around.cancelled_caught:
            self.left.append("the cancellation of the scope around the server was swallowed")
        self._closed = True
        self.note("closed")

    async def _play(self) -> None:
        self._wire.ask(self._request.encode(self._core.era.version, EXCHANGE, "race"))
        beside = Request(BESIDE, _BESIDE, {})
        self._wire.ask(beside.encode(self._core.era.version, BESIDE, "race"))
        for number, step in enumerate(self.order.steps, start=1):
            await self._wait(step.gap)
            self.note("action", f"{number}. {step.action.value}, {step.gap}")
            await self._act(step)
        await self._settle()
        self.note("settled")

    async def _act(self, step: Step) -> None:
        action = step.action
        if action is Action.CANCEL:
            self._wire.cancel()
        elif action is Action.DUPLICATE_CANCEL:
            self._wire.cancel_twice()
        elif action is Action.DISCONNECT:
            self.closes_for_all = True
            self._wire.hang_up()
        elif action is Action.SHUTDOWN:
            self.shut_down, self.shut_down_at = True, trio.current_time()
            self._stop_within(self._core.limits.drain + self.watch.bound)
            self._is_to_be_told = step.gap.quiet and not step.gap.moves and not self._closed
            self._let_go.set()
            self._around.cancel("shutdown")
        elif self.script is not None:
            self.script.tell(action.value)
        elif action is Action.COMPLETE:
            await self._run_until(lambda: self._handler_over)
        else:
            before = self._reported
            await self._run_until(lambda: self._reported > before or self._handler_over)

    # Waiting --------------------------------------------------------------------------------------

    async def _wait(self, gap: Gap) -> None:
        if gap.quiet or gap.moves:
            await trio.testing.wait_all_tasks_blocked()
        for move in range(gap.moves):
            if move:
                await trio.testing.wait_all_tasks_blocked()
            self.waits_for_ever = not self._move_time(self._longest)
        idle = 0
        for _ in range(gap.ticks):
            idle = await self._tick(idle)
        self.was_quiet = idle >= _IDLE

    async def _tick(self, idle: int) -> int:
        """Each task that is ready has its turn. Returns how many ticks it is, counted on from
        ``idle``, that nobody was."""
        before = self.watch.steps
        await trio.lowlevel.checkpoint()
        return idle + 1 if self.watch.steps == before else 0

    async def _run_until(self, reached: Callable[[], bool]) -> None:
        """Tick by tick; time moves on where nobody has anything to do."""
        idle = 0
        while not reached() and not self._has_ended():
            idle = await self._tick(idle)
            if idle >= _IDLE:
                idle = 0
                if not self._move_time(self._longest):
                    return

    def _move_time(self, latest: float) -> bool:
        """To the next deadline. False: there is none until ``latest``; or the handler, which nobody
        stops, has done so much by now that it is taken to be endless."""
        if self._must_end == math.inf and (self.watch.has_done_much or self._is_in_vain()):
            return False
        seconds = trio.lowlevel.current_statistics().seconds_to_next_deadline
        now = trio.current_time()
        if math.isinf(seconds) or now + seconds > latest:
            return False
        self._clock.jump(max(seconds, 0) if now + seconds > now else _TINY)
        return True

    def _is_in_vain(self) -> bool:
        """Whether it is others that time has moved on for, again and again, keep-alives for one,
        while the handler waits for what has no deadline."""
        watch = self.watch
        if watch.struck or watch.handler_steps != self._steps_then or watch.has_deadline():
            self._steps_then, self._moves_in_vain = watch.handler_steps, 0
            return False
        self._moves_in_vain += 1
        return self._moves_in_vain > _MOVES_IN_VAIN

    async def _settle(self) -> None:
        """Until the exchange has ended, or it is plain that it does not."""
        while True:
            await trio.testing.wait_all_tasks_blocked()
            await self._ask_too_late()
            latest = min(self._must_end, self.watch.latest, self._longest)
            if self._has_ended() or not self._move_time(latest + _TINY):
                break
        stops = self.watch.struck or self._must_end < math.inf
        if stops and self.watch.tasks:
            self.watch.note_endless()
            self.watch.give_up()
            await trio.lowlevel.checkpoint()

    async def _ask_too_late(self) -> None:
        """A request while the server drains."""
        if self.shut_down and not self._asked_too_late and not self._wire.closed_by_client:
            self._asked_too_late = True
            late = Request(LATE, "server/discover", {})
            self._wire.ask(late.encode(self._core.era.version, LATE, "race"))
            await trio.testing.wait_all_tasks_blocked()

    async def _probe(self) -> None:
        """A second request on the same connection, if there is one."""
        if self._wire.closed_by_client or self.shut_down:
            return
        self.asked_for_probe = True
        if isinstance(self._wire, ChannelWire):
            self._wire.cancel_others()
        probe = Request("probe", "server/discover", {})
        self._wire.ask(probe.encode(self._core.era.version, PROBE, "race"))
        self._let_go.set()
        await trio.testing.wait_all_tasks_blocked()
        if isinstance(self._wire, ChannelWire) and self._has_ended():
            await self._look_for_tasks()

    async def _leave(self) -> None:
        """The client leaves, and all has to end."""
        self._look_for_exchange()
        if isinstance(self._wire, HttpWire):
            self.answer_is_whole = self._wire.is_whole
        self._let_go.set()
        if not self.shut_down:
            self._wire.hang_up()
        limits = self._core.limits
        begun = trio.current_time()
        # The clean-up of what still runs; the last answers, and goodbyes.
        latest = begun + self.watch.bound + limits.cleanup + 3 * limits.drain
        while True:
            await trio.testing.wait_all_tasks_blocked()
            if self._closed:
                return
            if not self._move_time(latest):
                break
        why = "the server does not end, though it was shut down"
        if not self.shut_down:
            why = "its connection does not end, though the client has left"
        if self.watch.unbounded is None:
            place = next(filter(None, map(place_of, self.watch.tasks)), None)
            self.watch.unbounded = (place, why)
        self.watch.give_up()
        await trio.lowlevel.checkpoint()

    async def _look_for_tasks(self) -> None:
        """Those that were made for the requests, and are still there. One that paces progress ends
        by itself."""
        latest = trio.current_time() + 2 * self._core.limits.progress_interval
        while True:
            left = set(tasks_below(self.watch.nursery)) - self._tasks_then
            if not left or not self._move_time(latest):
                break
            await trio.testing.wait_all_tasks_blocked()
        left -= self.watch.tasks
        self.left += sorted(f"a task still runs: {task.name}" for task in left)

    def let_time_pass(self) -> None:
        """From now on by itself: the order is over, and what still runs is to end."""
        self._clock.autojump_threshold = 0

    def _stop_within(self, seconds: float) -> None:
        self._must_end = min(self._must_end, trio.current_time() + seconds)

    def _has_ended(self) -> bool:
        exchange = self.exchange
        if exchange is None or self.watch.tasks:
            return exchange is None and self._closed
        return bool(self.records) or exchange.ended_at is not None

    # Looking --------------------------------------------------------------------------------------

    def note(
        self, what: What, text: str = "", message: Any = None, place: Place | None = None
    ) -> None:
        """One more event. What the exchange's state has become before it comes first."""
        self.look()
        if message is not None and _is_of_others(message):
            if what == "written":
                (self.said_late if message.get("id") == LATE else self.said_beside).append(message)
            return
        self._append(what, text=text, message=message, place=place)
        if what == "recorded" or (what == "written" and is_answer(message)):
            self._look_what_still_runs()
        gone = what == "eof" or (what == "read" and _is_cancel(message))
        if gone and self.exchange is not None and self.exchange.ended_at is None:
            self._stop_within(self.watch.bound)

    def _look_what_still_runs(self) -> None:
        """All that the request has started is to have ended by now."""
        at = len(self.trace) - 1
        if tasks := len(self.watch.tasks - {self.watch.root}):
            self.outlived.append((at, f"work of {tasks} task{'s' * (tasks > 1)} still runs"))
        elif self.script is not None and self.script.to_clean:
            self.outlived.append((at, f"{self.script.to_clean} clean-ups have yet to run"))

    def _append(self, what: What, **more: Any) -> None:
        self.trace.append(Event(what, trio.current_time(), self.watch.ticks, **more))

    def look(self) -> None:
        """See whether the exchange has another state, or its handler has reported."""
        exchange = self.exchange
        if exchange is None:
            return
        if self._is_adopted and not exchange.running:
            self.watch.let_go()
        progress = exchange.progress
        if progress is not None and progress.reported > self._reported:
            self._reported = progress.reported
            self._append("reported")
            pending = progress._pending
            self.newest_report = progress._last if pending is None else pending.progress
        if exchange.state is not self._seen:
            states = (self._seen, exchange.state)
            self._seen = exchange.state
            self._append("state", states=states, cause=exchange.cause)
            if states[0] is State.RUNNING and exchange.cause is not None:
                self._note_strike(exchange, exchange.cause)

    def _note_strike(self, exchange: Exchange, cause: CancelCause) -> None:
        self.watch.begin()
        root = self.watch.root
        self.struck_at = self.watch.place_in(root) if root in self.watch.tasks else None
        if exchange._nursery is not None:
            self.watch.look_whom_it_reached()

    @contextmanager
    def _taps(self) -> Iterator[None]:
        """Listen at the runtime, for as long as this lasts."""
        core: Any = self._core
        journal: Any = core.journal
        opened, handled = core.open, core.handle
        added, added_late = journal.add, journal.add_late

        def open_(request: Any, *args: Any) -> Exchange:
            exchange: Exchange = opened(request, *args)
            if request.id == EXCHANGE and self.exchange is None:
                self.exchange = exchange
                self._tasks_then = set(tasks_below(self.watch.nursery))
                self.note("opened")
            elif request.id == BESIDE:
                self.beside = exchange
            return exchange

        async def handle(exchange: Exchange) -> Any:
            if exchange is not self.exchange:
                return await handled(exchange)
            return await self._handle(handled, exchange)

        def add(record: Record) -> None:
            added(record)
            if self.exchange is not None and record.key == self.exchange.key:
                self.records.append(record)
                for late in record.late:
                    self.note("late", late.kind)
                self.note("recorded", record.state.value)

        def add_late(record: Record, late: LateOutcome, all_late: Any) -> None:
            added_late(record, late, all_late)
            if record in self.records:
                self.note("late", late.kind)

        async def wait(ctx: Context, params: Any) -> Result:
            await self._let_go.wait()
            return Result()

        core.methods[_BESIDE] = Method(RequestParams, wait)
        core.open, core.handle = open_, handle
        journal.add, journal.add_late = add, add_late
        try:
            yield
        finally:
            del core.methods[_BESIDE]
            del core.open, core.handle, journal.add, journal.add_late

    async def _handle(self, handled: Callable[[Exchange], Any], exchange: Exchange) -> Any:
        self.note("began")
        if self.watch.root is None:  # HTTP: its connection's task runs it
            self.watch.adopt(trio.lowlevel.current_task(), exchange._nursery)
            self._is_adopted = True
        outcome = "cancelled"
        try:
            result = await handled(exchange)
            outcome = "result"
            return result
        except BaseException as raised:
            if isinstance(leaf_of(raised), InputRequired):
                outcome = "result"  # it asks the client
            elif not _is_cancellation(raised):
                outcome = "error"
            raise
        finally:
            self._handler_over = True
            was_told = outcome == "cancelled" or self.watch.delivered
            self.note("outcome", outcome, place=self.struck_at if was_told else None)

    def refusal(self) -> str:
        """Why the request came to nothing, though nothing has happened to it."""
        answers = [event.message for event in self.trace if event.what == "written"]
        answer = next(filter(is_answer, answers), None)
        request, failure = self._request, self.failures.describe()
        return refusal(self._server, request.method, request.params, answer, failure)

    def _look_for_exchange(self) -> None:
        """Whether it is still listed, while its connection goes on."""
        if not self._has_ended():
            return
        for connection in self._core.connections:
            if any(exchange is self.exchange for exchange in connection.exchanges()):
                self.left.append("it has ended, and its connection still lists it")
            if not isinstance(connection, ServerConnection) or list(connection.exchanges()):
                continue
            if held := connection._request_bytes + connection._channel.queued_bytes:
                self.left.append(f"its connection has no request, and counts {held} bytes for some")

    def _look_for_leftovers(self) -> None:
        core = self._core
        if running := core.admission._handlers.running:
            self.left.append(f"{running} slots for handlers were not given back")
        if core.draining._serving - self._serving_before:
            self.left.append("a connection that has ended is still to be drained")
        if self._closed and not self._wire.closed_by_server:
            self.left.append("the server has left, and has not closed the connection")
        inflight = self._core.inflight - self._inflight_before
        if inflight:
            self.left.append(f"the server still counts {inflight} requests in flight")
        self.left += [
            f"still in the scope tree: {scope.kind.value} {scope.label}"
            for scope in self._server.scopes().walk()
        ][1:]


def _is_of_others(message: Any) -> bool:
    """A request beside it, or an answer to that; or a cancellation of none."""
    if _is_cancel(message):
        return (message.get("params") or {}).get("requestId") != EXCHANGE
    return message.get("id") in (BESIDE, LATE)


def _is_cancel(message: Any) -> bool:
    return bool(message.get("method") == "notifications/cancelled")


def _is_cancellation(raised: BaseException) -> bool:
    """Whether it is ``trio.Cancelled``, or a group of nothing else."""
    if isinstance(raised, BaseExceptionGroup):
        return raised.split(trio.Cancelled)[1] is None
    return isinstance(raised, trio.Cancelled)
