"""What a server offers: the decorators and methods that applications fill it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from .handlers.caching import CacheHint
from .handlers.changes import Change, ChangeBus, ListKind
from .handlers.pagination import Cursors
from .handlers.registry import Registry
from .handlers.subscriptions import Subscriptions
from .handlers.tools import Tools, tool_failure
from .runtime.dispatch import Dispatcher, Method
from .runtime.models.base import (
    Icon,
    PaginatedRequestParams,
    ServerCapabilities,
    ToolsCapability,
)
from .runtime.models.subscriptions import SubscriptionsListenRequestParams
from .runtime.models.tools import CallToolRequestParams, ToolAnnotations

__all__ = ["Features"]

E = TypeVar("E")
F = TypeVar("F", bound=Callable[..., Any])


class Features:
    """The features of a server; see :class:`~trio_mcp.Server`.

    The methods of a feature are served, and its capability is told, from the first thing that is
    added to it; tools always.
    """

    def __init__(
        self, core: Dispatcher, cursors: Cursors, cache: CacheHint, bus: ChangeBus
    ) -> None:
        self._core = core
        self._cursors = cursors
        self._bus = bus
        self._subscriptions = Subscriptions(core, self.capabilities)
        bus.attach(self._subscriptions.deliver)
        self._tools = Tools(self._registry("tool", "tools", self._tools_changed), cache)
        core.methods.update(
            {
                "tools/list": Method(PaginatedRequestParams, self._tools.list),
                "tools/call": Method(
                    CallToolRequestParams,
                    self._tools.call,
                    target="name",
                    recover=tool_failure,
                    mirrored=self._tools.mirrored,
                ),
                "subscriptions/listen": Method(
                    SubscriptionsListenRequestParams, self._subscriptions.listen
                ),
            }
        )

    def _registry(self, kind: str, list_name: str, changed: Callable[[], None]) -> Registry[Any]:
        page_size = self._core.limits.page_size
        return Registry(kind, list_name, page_size, self._cursors, changed)

    def capabilities(self) -> ServerCapabilities:
        """What clients are told that this server can do, as it is now."""
        return ServerCapabilities(tools=ToolsCapability(list_changed=True))

    # Tools ----------------------------------------------------------------------------------------

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
        timeout: float | None = None,
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
        timeout: float | None = None,
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
        :param timeout: seconds from the request's arrival after which it is cancelled with cause
            DEADLINE, and answered with an error.

        Raises ``ValueError`` or ``TypeError``, at once, for what cannot be a tool. At run time,
        raise :class:`~trio_mcp.ToolError` for failures that the model should read; any other
        exception is logged and answered as an internal error, without its details.
        """
        if function is not None and not callable(function):
            raise TypeError(f"tool() takes a function; write tool(name={function!r})")

        def decorate(function: F) -> F:
            self._tools.add(
                function,
                name=name,
                title=title,
                description=description,
                annotations=annotations,
                icons=icons,
                timeout=timeout,
            )
            return function

        return decorate if function is None else decorate(function)

    def remove_tool(self, name: str) -> None:
        """Offer a tool no more. Calls that are running go on. Raises ``KeyError`` for no tool."""
        self._tools.remove(name)

    def _tools_changed(self) -> None:
        self._changed("tools")

    # Resources ------------------------------------------------------------------------------------

    # Prompts --------------------------------------------------------------------------------------

    # Completions ----------------------------------------------------------------------------------

    # Changes --------------------------------------------------------------------------------------

    def notify_resource_updated(self, uri: str) -> None:
        """Tell the clients that listen for this URI that reading it gives something else now.

        Call it after the change. Never waits, is no checkpoint, works the same in threads; if
        nobody listens, nothing happens. A client that has not been told of one change to a resource
        yet is told once for both. What is added or removed with the server's own methods needs no
        such call: the lists' listeners are told.

        Raises ``TypeError`` if ``uri`` is no string (specification: *Resources*, "Subscriptions").
        """
        self._bus.publish(Change("resource", uri))

    def _changed(self, kind: ListKind) -> None:
        """A list is another one now. What is added before the server serves is no change."""
        if self._core.has_served:
            self._bus.publish(Change(kind))
