"""A Python function as a handler: ``async def`` in the request's nursery, ``def`` in a thread."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from ..runtime.context import Context, exchange_of
from .soundness import check_timeout

__all__ = ["HandlerFunction"]


@attrs.frozen(eq=False)
class HandlerFunction:
    """A function that the application offers, and how it is run.

    ``context_parameter`` is the parameter that takes the :class:`~trio_mcp.Context`, if there is
    one; ``timeout`` is in seconds from the request's arrival.
    """

    function: Callable[..., Any]
    context_parameter: str | None
    is_async: bool
    timeout: float | None

    @classmethod
    def of(
        cls, function: Callable[..., Any], context_parameter: str | None, timeout: float | None
    ) -> HandlerFunction:
        """Raises ``ValueError`` or ``TypeError`` for a timeout that is none."""
        check_timeout(timeout)
        return cls(function, context_parameter, _is_async(function), timeout)

    async def run(self, ctx: Context, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call it for a request; ``name`` is what the scope tree calls its thread."""
        exchange = exchange_of(ctx)
        if self.timeout is not None:
            exchange.limit_time(self.timeout)
        if self.context_parameter is not None:
            arguments = {**arguments, self.context_parameter: ctx}
        if self.is_async:
            return await self.function(**arguments)
        job = functools.partial(self.function, **arguments)
        return await exchange.core.threads.run(exchange, name, job)


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine: also for partials, and objects with ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )
