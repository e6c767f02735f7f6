"""The end of a server, asked for by the application that it is part of.

Whatever takes requests, a ``serve_*`` call or an application that is mounted elsewhere, is a
:class:`Serving` and enters itself here. A drain tells all of them, at once, to take no more, gives
what is in flight its time, and waits until nothing is left, in bounds. The end of one ``serve_*``
call by a cancellation is its own business; here it only says what it has left behind.

A server that has been drained stays so for the rest of the Trio run: it can be told from one that
has not begun, and a listener of the application's own, that knows nothing of the drain, serves
nobody by mistake.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import attrs
import trio

from .lifecycle import State
from .scopes import Scope, ScopeKind

if TYPE_CHECKING:
    from .dispatch import Dispatcher
    from .exchange import Exchange

__all__ = ["DrainReport", "Draining", "ServerState", "Serving"]

logger = logging.getLogger("trio_mcp.server")

ServerState: TypeAlias = Literal["idle", "ready", "draining", "drained"]


class Serving(Protocol):
    """What takes requests."""

    def drain(self, deadline: float) -> None:
        """Take no more requests, and let those in flight finish until ``deadline``, in seconds of
        Trio's clock; then cancel them, SHUTDOWN. Called again to bring that forward, and once it
        has come. Never waits."""


@attrs.frozen(eq=False, kw_only=True)
class DrainReport:
    """What became of the requests that were in flight when a drain began.

    ``finished`` were answered with what their handlers made, ``cancelled`` were not. ``abandoned``
    is what still runs: threads that do not stop, requests whose handlers do not. ``seconds``: since
    the drain began.
    """

    finished: int
    cancelled: int
    abandoned: tuple[Scope, ...]
    seconds: float

    def describe(self) -> str:
        """One line for a log, and one more for each thing that was abandoned."""
        counts = f"{self.finished} finished, {self.cancelled} cancelled"
        line = f"drained in {self.seconds:.1f} s: {counts}, {len(self.abandoned)} abandoned"
        return "\n".join([line, *("  " + _in_words(scope) for scope in self.abandoned)])


class Draining:
    """Of one server; ``begun``: it takes no more requests in this run."""

    def __init__(self, core: Dispatcher) -> None:
        self._core = core
        self.reset()

    def reset(self) -> None:
        """Another Trio run begins."""
        self.begun = False
        self._deadline = math.inf
        self._began_at = 0.0
        self._serving: set[Serving] = set()
        self._mounted: set[Serving] = set()
        self._inflight: list[Exchange] = []
        self._ended = {State.COMPLETED: 0, State.FAILED: 0, State.CANCELLED: 0}
        self._told: set[tuple[ScopeKind, int | None, str]] = set()
        self._changed: trio.Event | None = None

    @property
    def state(self) -> ServerState:
        if self.begun:
            return "drained" if self._over else "draining"
        return "ready" if self._serving or self._mounted else "idle"

    # Who serves -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises ``RuntimeError`` where it is too late to begin to listen."""
        if self.begun:
            raise RuntimeError(
                f"the server {self._core.name!r} has been drained, and serves no more in this run; "
                "make another one"
            )

    def enter(self, serving: Serving) -> None:
        """It takes requests from now on, if any are taken."""
        self._serving.add(serving)
        if self.begun:
            serving.drain(self._deadline)

    def leave(self, serving: Serving, *, drained: bool) -> None:
        """It has ended. If that was a drain, the last of them says what is left behind."""
        self._serving.discard(serving)
        self.note_change()
        if drained and not self._serving:
            self.tell_stragglers()

    def mount(self, serving: Serving) -> None:
        """The same, for what is served by others and has no end of its own."""
        self._mounted.add(serving)
        if self.begun:
            serving.drain(self._deadline)

    def note_change(self) -> None:
        """A connection, or what takes them, has ended."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    # The drain ------------------------------------------------------------------------------------

    async def drain(self, limit: float) -> DrainReport:
        """See :meth:`trio_mcp.Server.drain`."""
        core = self._core
        core.enter_run()
        self._begin(limit)
        limits = core.limits
        try:
            await trio.lowlevel.checkpoint()
            with trio.CancelScope(deadline=self._deadline):
                await self._until_over()
            self._shut_down()
            # For clean-up, for threads; for the last answers, and for goodbyes.
            longest = limits.longest_cleanup + limits.cleanup + 2 * limits.drain
            with trio.move_on_after(longest):
                await self._until_over()
        except BaseException:
            self._shut_down()
            raise
        report = self._report()
        self.tell_abandoned(report.abandoned)
        return report

    def _begin(self, limit: float) -> None:
        now = trio.current_time()
        if not self.begun:
            self.begun = True
            self._began_at = now
            self._inflight = list(self._core.exchanges())
        self._tell(min(self._deadline, now + limit))

    def _shut_down(self) -> None:
        if not self._over:
            self._tell(min(self._deadline, trio.current_time()))

    def _tell(self, deadline: float) -> None:
        self._deadline = deadline
        for serving in (*self._serving, *self._mounted):
            serving.drain(deadline)

    @property
    def _over(self) -> bool:
        return not self._serving and not self._core.connections

    async def _until_over(self) -> None:
        while not self._over:
            if self._changed is None:
                self._changed = trio.Event()
            await self._changed.wait()

    def _report(self) -> DrainReport:
        for exchange in self._inflight:
            if exchange.ended:
                self._ended[exchange.state] += 1
        self._inflight = [exchange for exchange in self._inflight if not exchange.ended]
        return DrainReport(
            finished=self._ended[State.COMPLETED] + self._ended[State.FAILED],
            cancelled=self._ended[State.CANCELLED],
            abandoned=tuple(_left_over(self._core.scopes())),
            seconds=trio.current_time() - self._began_at,
        )

    # What is left behind --------------------------------------------------------------------------

    def tell_stragglers(self) -> None:
        """Say in the log which threads outlive their requests, if any do."""
        children = self._core.scopes().children
        self.tell_abandoned(child for child in children if child.kind is ScopeKind.OFFLOAD)

    def tell_abandoned(self, abandoned: Iterable[Scope]) -> None:
        """Say in the log what is left behind, if anything is: each of it once."""
        new = {(scope.kind, scope.key, scope.label): scope for scope in abandoned}
        left = [_in_words(scope) for what, scope in new.items() if what not in self._told]
        self._told |= new.keys()
        if left:
            logger.warning("%s: left behind: %s", self._core.name, "; ".join(left))


def _left_over(scope: Scope) -> Iterator[Scope]:
    """Requests, with the threads below them, and threads that have outlived theirs."""
    for child in scope.children:
        if child.kind is ScopeKind.CONNECTION:
            yield from _left_over(child)
        else:
            yield child


def _in_words(scope: Scope) -> str:
    what = "work" if scope.kind is ScopeKind.OFFLOAD else "request"
    return f"{what} {scope.label!r} of exchange {scope.key}, {scope.state}, {scope.age:.1f} s old"
