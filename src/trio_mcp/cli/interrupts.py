"""Ctrl-C, for commands that have a server to take leave of."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import click
import trio

from ..runtime.groups import leaf_of
from .failure import complain

__all__ = ["Interrupts", "run_interruptible"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_PATIENCE: Final = 0.3
"""Seconds that leaving a server may take before its user is told what goes on."""


class Interrupts:
    """What SIGINT and SIGTERM do.

    The first one cancels: it calls ``gently`` with the signal's name, or else cancels ``scope`` and
    says what was being done there. Where that has been done, or ``gently`` returns ``False`` since
    there is nothing left to be gentle about, ``at_once`` is called and everything ends. ``status``
    is that of a program ended by the last signal.
    """

    def __init__(self) -> None:
        self.gently: Callable[[str], bool] | None = None
        self.at_once: Callable[[], None] | None = None
        self.status: int | None = None
        self.scope = trio.CancelScope()
        self._doing: str | None = None
        self._leaving = trio.Event()
        self._awaited = ""

    async def obey(self, signals: AsyncIterator[int]) -> None:
        """Until it is cancelled; a task of :func:`run_interruptible`."""
        async for number in signals:
            self.status = 128 + number
            name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
            if not self._cancel(name):
                if self.at_once is not None:
                    self.at_once()
                self.scope.cancel(name)

    def _cancel(self, name: str) -> bool:
        """Gently; ``False`` if there is nothing to cancel, or not any more."""
        if self.gently is not None:
            return self.gently(name)
        if self._doing is None or self.scope.cancel_called:
            return False
        complain(f"cancelling: {self._doing}")
        self.scope.cancel(name)
        self.leaving(self._awaited)
        return True

    def doing(self, what: str, awaited: str) -> None:
        """What goes on from here, "connecting to …" for one, for who cancels it; and what is then
        ``awaited``, as of :meth:`leaving`."""
        self._doing = what
        self._awaited = awaited

    def leaving(self, awaited: str) -> None:
        """All is said; what is left is to wait for what is ``awaited``: "the server to exit", for
        one. Ctrl-C would end that."""
        self._awaited = awaited
        if self.status == 128 + signal.SIGINT:  # somebody is there who may press it again
            self._leaving.set()

    async def explain(self) -> None:
        """Once leaving takes long, say so; a task of :func:`run_interruptible`."""
        await self._leaving.wait()
        await trio.sleep(_PATIENCE)
        click.echo(f"trio-mcp: waiting for {self._awaited}; Ctrl-C again ends it at once", err=True)


def run_interruptible(work: Callable[[Interrupts], Awaitable[int]]) -> int:
    """``trio.run`` for a command: its exit status, or 128 + the signal that ended it."""

    async def main() -> int:
        interrupts = Interrupts()
        status = None
        try:
            with trio.open_signal_receiver(*_SIGNALS) as signals:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(interrupts.obey, signals)
                    nursery.start_soon(interrupts.explain)
                    with interrupts.scope:
                        status = await work(interrupts)
                    nursery.cancel_scope.cancel("the command is done")
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None
        if status is not None:
            return status
        assert interrupts.status is not None  # who else would have cancelled?
        return interrupts.status

    return trio.run(main)
