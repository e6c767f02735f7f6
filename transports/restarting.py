"""A connection that is opened again when it was lost: its server died, or hung up.

Theory of operation
===================

A :class:`RestartingConnection` carries its calls over one connection after the other. The first one
is discovered by who made it; from :meth:`RestartingConnection.supervise` on, a loss does not end
it:

* Calls in flight fail with the connection that carried them, and are never sent again.
* Calls that are made in the meantime wait, within their own timeouts. They go out, for the first
  time, once there is a new connection whose server has been discovered.
* It is lost for good when too many attempts did not help, or when it is closed or aborted: what
  waits fails then.

One task, :meth:`RestartingConnection.run`, opens, greets and closes one connection at a time, so
that of a lost server nothing is left when the next one starts.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
import trio

from ..runtime.call import Call
from ..runtime.errors import ConnectionLost, TrioMcpError
from ..runtime.journal import Journal, printable
from ..runtime.lifecycle import CancelSource
from ..runtime.limits import Limits
from ..runtime.numbers import check_number, check_whole
from .calling import ClientConnection, OnLog, SessionConnection, encode_call
from .process import ServerProcess
from .sessions import Session

__all__ = ["Attempts", "Carried", "Restart", "RestartingConnection"]

logger = logging.getLogger("trio_mcp.connection")


def _whole(_: Any, attribute: attrs.Attribute[Any], value: int) -> None:
    check_whole(f"Restart.{attribute.name}", value)


def _positive(_: Any, attribute: attrs.Attribute[Any], value: float) -> None:
    check_number(f"Restart.{attribute.name}", value)
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"Restart.{attribute.name} must be a finite number above 0, not {value!r}")


@attrs.frozen(kw_only=True)
class Restart:
    """How a lost server is started again, or connected to again. Times are seconds.

    :param attempts: most attempts until it counts as lost.
    :param within: an attempt that helped is forgotten after so long; one that did not counts until
        one helps.
    :param backoff: pause before the first attempt; twice as long before each further one that
        counts.
    :param max_backoff: longest pause.
    """

    attempts: int = attrs.field(default=5, validator=[_whole, _positive])
    within: float = attrs.field(default=60.0, validator=_positive)
    backoff: float = attrs.field(default=0.1, validator=_positive)
    max_backoff: float = attrs.field(default=10.0, validator=_positive)


class Attempts:
    """When to try again. Reads no clock."""

    def __init__(self, restart: Restart) -> None:
        self._restart = restart
        self._made_at: list[float] = []

    @property
    def count(self) -> int:
        """Attempts that count."""
        return len(self._made_at)

    def lost(self, now: float) -> None:
        """A connection that was there has been lost."""
        since = now - self._restart.within
        self._made_at = [made_at for made_at in self._made_at if made_at > since]

    def pause(self, now: float) -> float | None:
        """Make an attempt, after so many seconds; ``None``: no more."""
        if self.count >= self._restart.attempts:
            return None
        doubled = self._restart.backoff * 2.0 ** min(self.count, 64)
        pause = min(doubled, self._restart.max_backoff)
        self._made_at.append(now + pause)
        return pause


@attrs.frozen
class Carried:
    """A connection, and what else has to run for it."""

    connection: ClientConnection
    serve: Callable[..., Awaitable[None]] | None = None


class RestartingConnection:
    """Calls over connections that follow each other: a :class:`.calling.CallConnection`.

    :param first: the connection to begin with, which nobody runs yet. Who made it serves it.
    :param reopen: opens another one. Raises ``OSError`` or one of our errors if it cannot.
    :param restart: how often and when.
    """

    def __init__(
        self,
        first: ClientConnection,
        reopen: Callable[[], Awaitable[Carried]],
        restart: Restart,
        limits: Limits,
    ) -> None:
        self.journal: Journal = first.journal
        self.restarts = 0
        self._first = first
        self._reopen = reopen
        self._restart = restart
        self._limits = limits
        self._attempts = Attempts(restart)
        self._greet: Callable[[ClientConnection], Awaitable[None]] | None = None
        self._supervised = trio.Event()
        self._current = first  # the newest one that calls go to
        self._newest = first  # maybe greeted only
        self._ids = first.ids = itertools.count(1)
        self._on_log: OnLog | None = None
        self._waiting: dict[int | str, Call] = {}
        self._failure: Exception | None = None  # of the newest attempt
        self._lost: str | None = None  # for good
        self._aborted = False
        self._changed = trio.Event()
        self._life = trio.CancelScope(shield=True)
        self._ended = trio.Event()

    # What it is now -------------------------------------------------------------------------------

    @property
    def label(self) -> str:
        return self._newest.label

    @property
    def process(self) -> ServerProcess | None:
        """The newest one, dead or alive."""
        return self._newest.process

    @property
    def violations(self) -> int:
        """Of the newest server."""
        return self._newest.violations

    @property
    def last_violation(self) -> str | None:
        return self._newest.last_violation

    def violation_since(self, when: float) -> str | None:
        """The newest violation, if it came after ``when``."""
        return self._newest.violation_since(when)

    @property
    def on_log(self) -> OnLog | None:
        return self._on_log

    @on_log.setter
    def on_log(self, on_log: OnLog | None) -> None:
        self._on_log = on_log
        self._newest.on_log = on_log

    @property
    def why_lost(self) -> str | None:
        return self._current.why_lost if self._greet is None else self._lost

    @property
    def gone(self) -> bool:
        """Whether it is lost for good."""
        return self._lost is not None or (self._greet is None and self._current.gone)

    @property
    def restarting(self) -> bool:
        """Whether calls wait for a new connection."""
        return self._greet is not None and self._lost is None and self._current.over.is_set()

    async def renewed(self, since: int) -> bool:
        """Wait for a new connection, if the one of ``since`` restarts was lost."""
        while self.restarts == since and self.restarting:
            await self._changed.wait()
        await trio.lowlevel.checkpoint()
        if self._lost is not None:
            raise self._loss(sent=True)  # what waits here was heard once
        return self.restarts != since

    # A session, which ends with the connection: it is not restarted -------------------------------

    @property
    def session(self) -> Session | None:
        return self._current.session

    @session.setter
    def session(self, session: Session | None) -> None:
        self._current.session = session

    def in_session(self, session: Session) -> SessionConnection:
        self._current.in_session(session)
        return self

    def say(self, frame: bytes) -> None:
        self._current.say(frame)

    async def begin(self, frame: bytes) -> None:
        await self._current.begin(frame)

    async def hears_changes(self) -> None:
        await self._current.hears_changes()

    # Its life -------------------------------------------------------------------------------------

    def supervise(self, greet: Callable[[ClientConnection], Awaitable[None]]) -> None:
        """The first connection has been discovered: from now on a lost one is replaced.

        ``greet`` discovers a new one; it raises what says that it is none.
        """
        self._greet = greet
        self._supervised.set()

    async def run(self) -> None:
        """Carry calls until :meth:`close`, which must follow. Shielded until then."""
        try:
            with self._life:
                await self._carry(Carried(self._first))
                await self._supervised.wait()
                while (carried := await self._next()) is not None:
                    await self._carry(carried)
        finally:
            self._ended.set()

    async def close(self) -> None:
        """End it, and the server that there is or that is being started.

        As bounded as :meth:`.calling.ClientConnection.close`, and not cut short by a cancellation.
        """
        self._lose("the client was closed")
        self._life.cancel("the client was closed")
        with trio.CancelScope(shield=True):  # run() ends with the close() of one connection
            await self._ended.wait()

    def abort(self) -> None:
        """What waits fails. No grace, and no restart. Never waits."""
        self._aborted = True
        self._lose("the client was aborted")
        self._newest.abort()

    async def _carry(self, carried: Carried) -> None:
        """One connection, from its greeting until it has been lost and closed."""
        connection = carried.connection
        async with trio.open_nursery() as nursery:
            try:
                if await self._begins(carried, nursery):
                    await connection.over.wait()
                    self._attempts.lost(trio.current_time())
            finally:
                await connection.close()
                nursery.cancel_scope.cancel("the connection was closed")

    async def _begins(self, carried: Carried, nursery: trio.Nursery) -> bool:
        """Whether calls can go out now. The first one is greeted by who has made it."""
        connection = carried.connection
        try:
            try:
                if carried.serve is not None:
                    await nursery.start(carried.serve)
            finally:  # its close() counts on it
                nursery.start_soon(connection.run)
            if connection is self._first:
                return True
            assert self._greet is not None
            await self._greet(connection)
        except (OSError, TrioMcpError) as error:
            self._failure = error
            return False
        if connection.over.is_set() or self._lost is not None:
            return False
        self._take_over(connection)
        return True

    def _take_over(self, connection: ClientConnection) -> None:
        """Calls go to this one now, those first that wait."""
        self._current = connection
        self._failure = None
        self.restarts += 1
        logger.info("%s: restarted, for the %d. time", connection.label, self.restarts)
        waiting, self._waiting = self._waiting, {}
        for call in waiting.values():
            connection.adopt(call)
        self._wake()

    async def _next(self) -> Carried | None:
        """Another connection, when it is time; ``None`` once it is lost for good."""
        while self._lost is None:
            pause = self._attempts.pause(trio.current_time())
            if pause is None:
                self._lose(f"{self._why()}, after {self._attempts.count} attempts to restart it")
                logger.warning("%s: %s", self._newest.label, printable(str(self._lost)))
                break
            logger.warning(
                "%s: %s; restart %d of %d in %.3g s",
                self._newest.label,
                printable(self._why()),
                self._attempts.count,
                self._restart.attempts,
                pause,
            )
            await trio.sleep(pause)
            if self._lost is not None:
                break
            try:
                carried = await self._reopen()
            except (OSError, TrioMcpError) as error:
                self._failure = error
                continue
            self._newest = carried.connection
            self._newest.ids = self._ids
            self._newest.on_log = self._on_log
            if self._aborted:  # while it was opened
                self._newest.abort()
            return carried
        return None

    def _why(self) -> str:
        """What went wrong last."""
        failure = self._failure
        if isinstance(failure, ConnectionLost):
            return failure.message  # the rest of it is said anyway
        return str(failure) if failure is not None else self._current.why_lost or "it was lost"

    def _lose(self, why: str) -> None:
        if self._lost is not None:
            return
        self._lost = why
        for call in [*self._waiting.values()]:
            call.lost(self._loss())
        self._wake()

    def _loss(self, *, sent: bool = False) -> ConnectionLost:
        process = self.process
        return ConnectionLost(
            self._lost or "it was lost",
            sent=sent,
            exit_status=process.exit_status if process is not None else None,
            stderr_tail=process.stderr_tail if process is not None else "",
        )

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # Calls ----------------------------------------------------------------------------------------

    @property
    def calls(self) -> tuple[Call, ...]:
        """Calls in flight, oldest first; those that wait are the youngest."""
        return (*self._current.calls, *self._waiting.values())

    def open(self, method: str, params: Mapping[str, Any], target: str | None = None) -> Call:
        """Start a call, or let it wait for a new connection. Never waits itself.

        Raises what :meth:`.calling.ClientConnection.open` raises; :class:`ConnectionLost` also if
        ``Limits.restart_calls`` wait already.
        """
        if self._lost is not None:
            raise self._loss()
        if not self.restarting:
            return self._current.open(method, params, target)
        self._check_room()
        request_id = next(self._ids)
        return self._wait(
            request_id, method, target, encode_call(request_id, method, params, self._limits)
        )

    def reserve(self, method: str, target: str | None = None) -> Call:
        """A call that is not sent yet, and does not wait for a new connection. Never waits."""
        if self._lost is not None:
            raise self._loss()
        if not self.restarting:
            return self._current.reserve(method, target)
        return self._wait(next(self._ids), method, target, None)

    def send(self, call: Call, params: Mapping[str, Any]) -> None:
        """Send a call that was reserved, and is RUNNING, when it can be. Never waits, and raises
        what :meth:`open` raises."""
        if call.id in self._waiting:
            self._check_room()
            call.load(encode_call(call.id, call.method, params, self._limits))
        else:
            self._current.send(call, params)

    def cancel(self, call: Call, source: CancelSource, reason: str | None = None) -> bool:
        """Cancel a call; nobody is told of one that waits. Never waits."""
        return self._current.cancel(call, source, reason)

    def _check_room(self) -> None:
        """Those that are reserved only have an owner who waits for something else."""
        limit = self._limits.restart_calls
        if sum(call.frame is not None for call in self._waiting.values()) >= limit:
            raise ConnectionLost(
                f"the server is being restarted, and restart_calls={limit} calls wait for it"
            )

    def _wait(self, request_id: int, method: str, target: str | None, frame: bytes | None) -> Call:
        call = Call(
            request_id,
            method,
            target,
            frame,
            self.label,
            self.journal,
            self._forget,
            self._limits,
        )
        self._waiting[request_id] = call
        return call

    def _forget(self, call: Call) -> None:
        self._waiting.pop(call.id, None)
