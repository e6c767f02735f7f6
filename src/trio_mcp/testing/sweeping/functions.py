"""An async function, run and cancelled on its own, without the runtime around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import trio

from ..logs import describe_error
from .stepping import Stepper
from .subjects import Finding, Outcome, late_finding, until

__all__ = ["FunctionSubject"]

_AROUND: Final = "a scope around it is cancelled"


class FunctionSubject:
    """One run of a function."""

    root = "trio-mcp cancel_sweep"
    reason = "cancel_sweep"
    answers = False
    further: tuple[str, ...] = (_AROUND,)

    def __init__(self, name: str, start: Callable[[], Awaitable[object]], longest: float) -> None:
        self.name = name
        self.error: Exception | None = None
        self._start = start
        self._longest = longest
        self._returned = False
        self._scope = trio.CancelScope()
        self._around = trio.CancelScope()
        self._ended = trio.Event()

    def strike(self) -> None:
        self._scope.cancel(self.reason)

    def strike_again(self, how: str) -> None:
        self._around.cancel(self.reason)

    async def run(self, stepper: Stepper) -> None:
        async with trio.open_nursery() as nursery:
            stepper.nursery = nursery
            nursery.start_soon(self._run, name=self.root)
            await until(self._ended, stepper, self._longest)

    async def _run(self) -> None:
        try:
            with self._around, self._scope:
                started: Any = self._start()
                if not hasattr(started, "__await__"):
                    raise TypeError(f"{self.name} is to be an async function: got {started!r:.80}")
                await started
                self._returned = True
        except Exception as raised:
            self.error = raised
        finally:
            self._ended.set()

    def failure(self) -> str | None:
        return describe_error(self.error) if self.error is not None else None

    def ran_into_limit(self) -> bool:
        return False

    def outcome(self) -> Outcome | None:
        if self.error is not None:
            return "error"
        return "result" if self._returned else None

    def findings(self, stepper: Stepper, usual: Outcome | None) -> Iterator[Finding]:
        what = self.outcome()
        if what is not None:
            yield late_finding(what, self.failure(), stepper, usual)
