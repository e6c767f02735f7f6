"""Tools, as applications add them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from ..handlers.tools import Tools
from ..runtime.dispatch import Dispatcher
from ..runtime.models.base import Icon
from ..runtime.models.tools import ToolAnnotations

__all__ = ["ToolFeatures"]

F = TypeVar("F", bound=Callable[..., Any])


class ToolFeatures:
    """The tools of a server."""

    _core: Dispatcher
    _tools: Tools

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        limit: int | None = None,
        queue: int | None = None,
        pool: str | None = None,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        limit: int | None = None,
        queue: int | None = None,
        pool: str | None = None,
    ) -> Any:
        """Offer a function as a tool; a decorator with or without options.

        The schema comes from the signature, the description from the docstring. An ``async def``
        function runs in the request's own nursery; a plain ``def`` in a worker thread. A parameter
        annotated ``Context`` gets the request's context. The function is returned unchanged.

        :param name: instead of the function's own name.
        :param title: the name for people.
        :param description: instead of the docstring.
        :param annotations: hints for clients about what the tool does.
        :param icons: for user interfaces.
        :param meta: ``_meta`` of the tool's definition.
        :param timeout: seconds from the request's arrival after which it is cancelled with cause
            DEADLINE, and answered with an error.
        :param limit: how many calls of it may run at once; more wait, in turns between clients.
            A call runs until all that it started has ended, threads that were abandoned included.
        :param queue: how many may wait because of ``limit``; one more is answered OVERLOADED. 0:
            all that come over the limit. ``Limits.function_queue`` unless it is given.
        :param pool: the thread pool of a plain ``def``, one of ``Server(pools=…)``; the server's
            own without.

        Raises ``ValueError`` or ``TypeError``, at once, for what cannot be a tool. At run time,
        raise :class:`~trio_mcp.ToolError` for failures that the model should read; any other
        exception is logged and answered as an internal error, without its details. When the call is
        cancelled, the function is, with all it has started in ``ctx.nursery``; a thread is told,
        and abandoned after ``Limits.cleanup`` (specification: *Tools*).
        """
        if function is not None and not callable(function):
            raise TypeError(f"tool() takes a function; write tool(name={function!r})")
        self._core.pools.threads(pool)  # there is one

        def decorate(function: F) -> F:
            self._tools.add(
                function,
                name=name,
                title=title,
                description=description,
                annotations=annotations,
                icons=icons,
                meta=meta,
                timeout=timeout,
                limit=limit,
                queue=queue,
                pool=pool,
            )
            return function

        return decorate if function is None else decorate(function)

    def add_tool(
        self,
        function: Callable[..., Any],
        /,
        *,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        limit: int | None = None,
        queue: int | None = None,
        pool: str | None = None,
    ) -> None:
        """Offer a function as a tool, also while the server is served. See :meth:`tool`.

        :param input_schema: JSON Schema of the arguments, published as it is, instead of one from
            the signature. The function takes all arguments in one parameter, of any name, as a
            ``dict``, and may have a context besides. ``"type"`` must be ``"object"``.
        :param output_schema: JSON Schema of the structured content, published as it is, instead of
            one from the return annotation. Any JSON value may be structured content.

        Raises ``ValueError`` or ``TypeError``, at once, for what cannot be a tool.

        Schemas are of JSON Schema 2020-12, or 2019-09 or draft-07 if ``$schema`` says so. They are
        bounded by ``Limits.schema_bytes``, ``schema_depth`` and ``schema_visits``, the values they
        are for by ``value_depth``. References to other documents are refused, never fetched, and so
        are patterns that cannot be matched in linear time.
        """
        if not callable(function):
            raise TypeError(f"add_tool() takes a function, not {function!r:.80}")
        self._core.pools.threads(pool)
        self._tools.add(
            function,
            name=name,
            title=title,
            description=description,
            annotations=annotations,
            icons=icons,
            meta=meta,
            timeout=timeout,
            limit=limit,
            queue=queue,
            pool=pool,
            input_schema=input_schema,
            output_schema=output_schema,
        )

    def remove_tool(self, name: str) -> None:
        """Offer a tool no more. Calls that are running go on. Raises ``KeyError`` for no tool."""
        self._tools.remove(name)
