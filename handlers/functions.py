"""A Python function as a handler: ``async def`` in the request's nursery, ``def`` in a thread."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ..runtime.admission.admission import FunctionLimit
from ..runtime.context import Context, exchange_of
from .soundness import check_timeout

__all__ = ["HandlerFunction"]


@attrs.frozen(eq=False)
class HandlerFunction:
    """A function that the application offers, and how it is run.

    ``context_parameter`` is the parameter that takes the :class:`~trio_mcp.Context`, if there is
    one; ``timeout`` is in seconds from the request's arrival, ``None`` for the server's; ``limit``
    is its own, if it has one; ``pool`` names the threads that a plain function runs in.
    """

    function: Callable[..., Any]
    context_parameter: str | None
    is_async: bool
    timeout: float | None
    limit: FunctionLimit | None
    pool: str | None = None

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        context_parameter: str | None,
        timeout: float | None,
        limit: FunctionLimit | None = None,
        pool: str | None = None,
    ) -> HandlerFunction:
        """Raises ``ValueError`` or ``TypeError`` for a timeout that is none, and for a pool of a
        function that needs no thread."""
        check_timeout(timeout)
        is_async = _is_async(function)
        if pool is not None and is_async:
            raise ValueError(
                f"pool={pool!r:.80} is for a plain def; an async def runs in no thread, and may "
                "pass a pool to ctx.run_sync()"
            )
        return cls(function, context_parameter, is_async, timeout, limit, pool)

    async def run(self, ctx: Context, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call it for a request, once that has its turn; ``name`` is what the scope tree calls its
        thread."""
        exchange = exchange_of(ctx)
        timeout = self.timeout if self.timeout is not None else exchange.core.timeout
        if timeout is not None:
            exchange.limit_time(timeout)
        await exchange.core.admission.enter(exchange, self.limit)
        if self.context_parameter is not None:
            arguments = {**arguments, self.context_parameter: ctx}
        if self.is_async:
            made = self.function(**arguments)
            # A plain wrapper around an async def may have awaited for itself, or know the answer.
            return self._finished(await made if hasattr(made, "__await__") else made)
        job = functools.partial(self._call, arguments)
        pool = exchange.core.pools.threads(self.pool)
        return await pool.run(exchange, name, job, is_handler=True)

    def _call(self, arguments: Mapping[str, Any]) -> Any:
        """In a thread."""
        return self._finished(self.function(**arguments))

    def _finished(self, value: Any) -> Any:
        if hasattr(value, "__await__"):
            raise self._not_awaited(value)
        return value

    def _not_awaited(self, value: Any) -> TypeError:
        """It returned something to await instead of a result, which nobody will await."""
        name = getattr(self.function, "__name__", None) or type(self.function).__name__
        kind = "a coroutine" if inspect.iscoroutine(value) else type(value).__name__
        if inspect.iscoroutine(value):
            value.close()
        if self.is_async:
            return TypeError(f"{name}() returned {kind}: was an await forgotten?")
        return TypeError(f"{name}() returned {kind}: make it async def, and await it there")


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine: also for partials, objects with ``__call__``, and what
    ``functools.wraps`` says that it wraps."""
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        if isinstance(function, functools.partial):
            function = function.func
        elif _makes_coroutines(function):
            return True
        else:
            function = function.__wrapped__
    return _makes_coroutines(function)


def _makes_coroutines(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )
