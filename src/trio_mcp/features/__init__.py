"""What a server offers: the decorators and methods that applications fill it with."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

from ..handlers.caching import CacheHint
from ..handlers.changes import Change, ChangeBus, ListKind
from ..handlers.completions import Completions
from ..handlers.pagination import Cursors
from ..handlers.prompts.prompts import Prompts
from ..handlers.registry import Registry
from ..handlers.resources.resources import Resources
from ..handlers.subscriptions import Subscriptions
from ..handlers.tools import Tools, tool_failure
from ..runtime.dispatch import Dispatcher, Method
from ..runtime.models.base import (
    PaginatedRequestParams,
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    ToolsCapability,
)
from ..runtime.models.subscriptions import SubscriptionsListenRequestParams
from ..runtime.models.tools import CallToolRequestParams
from .prompts import PromptFeatures
from .resources import ResourceFeatures
from .tools import ToolFeatures

__all__ = ["Features"]


class Features(ToolFeatures, ResourceFeatures, PromptFeatures):
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
        self._tools = Tools(self._registry("tool", "tools", "tools"), cache, core.limits)
        self._prompts = Prompts(self._registry("prompt", "prompts", "prompts"), cache, core.limits)
        self._resources = Resources(
            self._registry("resource", "resources", "resources"),
            self._registry("directory", "directories", "resources"),
            self._registry("template", "templates", "resources"),
            cursors,
            cache,
            core.limits,
        )
        self._completions = Completions(self._prompts, self._resources.variables_of)
        core.methods.update(
            {
                "tools/list": Method(PaginatedRequestParams, self._tools.list),
                "tools/call": Method(
                    CallToolRequestParams,
                    self._tools.call,
                    target="name",
                    recover=tool_failure,
                    mirrored=self._tools.mirrored,
                    asks=True,
                ),
                "subscriptions/listen": Method(
                    SubscriptionsListenRequestParams, self._subscriptions.listen
                ),
            }
        )

    def _registry(self, kind: str, list_name: str, changed: ListKind) -> Registry[Any]:
        page_size = self._core.limits.page_size
        return Registry(kind, list_name, page_size, self._cursors, partial(self._changed, changed))

    def capabilities(self) -> ServerCapabilities:
        """What clients are told that this server can do, as it is now."""
        served = self._core.methods
        return ServerCapabilities(
            tools=ToolsCapability(list_changed=True),
            resources=(
                ResourcesCapability(subscribe=True, list_changed=True)
                if "resources/list" in served
                else None
            ),
            prompts=PromptsCapability(list_changed=True) if "prompts/list" in served else None,
            logging={},
            completions={} if "completion/complete" in served else None,
        )

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

    def notify_list_changed(self, kind: ListKind) -> None:
        """Tell the clients that listen for this list, ``"tools"``, ``"prompts"`` or
        ``"resources"``, that it is another one now.

        For what the application knows and the server cannot: files of a directory have come or
        gone. Like :meth:`notify_resource_updated`, it never waits and works the same in threads.

        Raises ``ValueError`` for another kind (specification: *Subscriptions*).
        """
        if kind not in get_args(ListKind):
            raise ValueError(f'a list is "tools", "prompts" or "resources", not {kind!r:.80}')
        self._bus.publish(Change(kind))

    def _changed(self, kind: ListKind) -> None:
        """A list is another one now. What is added before the server serves is no change."""
        if self._core.has_served:
            self._bus.publish(Change(kind))
