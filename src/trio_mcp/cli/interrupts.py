"""Ctrl-C, for commands that have a server to take leave of."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import click
import trio

from ..runtime.groups import leaf_of

__all__ = ["Interrupts", "run_interruptible"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_PATIENCE: Final = 0.3
"""Seconds that leaving a server may take before its user is told what goes on."""


class Interrupts:
    """What SIGINT and SIGTERM do.

    ``gently`` is called with the signal's name. Where there is none, or it returns ``False`` since
    there is nothing left to be gentle about, ``at_once`` is called and everything ends. ``status``
    is that of a program ended by the last signal.
    """

    def __init__(self) -> None:
        self.gently: Callable[[str], bool] | None = None
        self.at_once: Callable[[], None] | None = None
        self.status: int | None = None
        self._leaving = trio.Event()
        self._awaited = ""

    async def obey(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        """Until the scope is cancelled; the task of :func:`run_interruptible`."""
        async for number in signals:
            self.status = 128 + number
            name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
            if self.gently is None or not self.gently(name):
                if self.at_once is not None:
                    self.at_once()
                scope.cancel(name)

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
                    nursery.start_soon(interrupts.obey, signals, nursery.cancel_scope)
                    nursery.start_soon(interrupts.explain)
                    status = await work(interrupts)
                    nursery.cancel_scope.cancel("the command is done")
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None
        if status is not None:
            return status
        assert interrupts.status is not None  # who else would have cancelled?
        return interrupts.status

    return trio.run(main)
