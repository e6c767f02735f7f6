"""The client that applications write: what can be done with a connection to a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from ..runtime.journal import CallStatus, Journal, Subscription
from ..runtime.models.base import META_SERVER_INFO, Implementation
from ..runtime.models.completion import (
    CompleteResult,
    Completion,
    PromptReference,
    ResourceTemplateReference,
)
from ..runtime.models.converter import unstructure
from ..runtime.models.discovery import DiscoverResult
from ..runtime.models.prompts import GetPromptResult, ListPromptsResult, Prompt
from ..runtime.models.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from ..runtime.models.tools import CallToolResult, ListToolsResult, Tool
from ..runtime.tracing import TraceContext
from ..transports.calling import CallConnection
from .calls import OnProgress, PendingCall, Timeouts, read_result
from .checks import check_arguments, check_text, check_trace
from .handles import ToolCall
from .pages import Pages
from .requests import Requests
from .retries import Retry
from .subscriptions import Changes, wanted_changes
from .wanted import Wanted, wanted_prompt, wanted_resource, wanted_tool

__all__ = ["Client"]


class Client(Requests):
    """A connection to one server. Made by :func:`.connecting.connect`; its methods may be used
    concurrently.

    Cancelling the Trio scope around any of them cancels the call: the server is told, the caller is
    released at once. ``server_info`` and ``discovered`` are what the server says about itself; they
    are not verified.

    All that wait for an answer take ``timeout`` and ``max_timeout``, in seconds, and
    ``reset_on_progress`` instead of the client's own (see :func:`.connecting.connect`), and raise
    :class:`~trio_mcp.ServerError`, :class:`~trio_mcp.CallTimeout`,
    :class:`~trio_mcp.ConnectionLost`, :class:`~trio_mcp.ProtocolViolation`; ``ValueError`` or
    ``TypeError``, before anything is sent, for parameters that JSON cannot hold and for options of
    wrong types. ``on_progress`` is called, and awaited if it
    is async, in the caller's task with each update; what it raises cancels the call and comes out.

    ``trace`` is the trace that the call belongs to: a handler passes its ``ctx.trace`` on. Not
    needed where ``tracing`` knows of a current span, which goes before it.

    ``retry`` is the client's own unless a call is given another one. ``idempotency_key`` is told to
    the server, in the request's metadata, the same with each attempt and round; what it makes of
    it is the server's business, and ``retry`` does not count on it.

    Where the server may ask for something before it answers (tools, prompts, resources), the
    callbacks of :func:`.connecting.connect` run in the caller's task, too.
    """

    server_info: Implementation | None = None
    discovered: DiscoverResult

    # Tools ----------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        reset_on_progress: bool | None = None,
        on_progress: OnProgress | None = None,
        trace: TraceContext | None = None,
        retry: Retry | None = None,
        idempotency_key: str | None = None,
    ) -> CallToolResult:
        """Call a tool and wait for its result; a result with ``is_error`` is a result.

        If the tool has been listed, its result is held against its output schema, and one that
        does not fit is a :class:`~trio_mcp.ProtocolViolation`.

        Cancelled by the scope around it, at once; the outcome is unknown then (specification:
        *Tools*, "Calling Tools"; *Cancellation*).
        """
        wanted = wanted_tool(name, arguments, trace, idempotency_key)
        timeouts = self._timeouts.but(timeout, max_timeout, reset_on_progress)
        reads = self._tools.may_repeat(name)
        data = await self._finish(wanted, timeouts, on_progress, retry, reads)
        result = read_result(CallToolResult, data, "tools/call")
        return self._tools.check(name, result) if self._tools else result

    @asynccontextmanager
    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        reset_on_progress: bool | None = None,
        trace: TraceContext | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncGenerator[ToolCall, None]:
        """Start a tool and get a handle on the call: ``async with client.start_tool(…) as call``.

        The parameters are those of :meth:`call_tool`. Entering waits for nothing; leaving the block
        cancels the call if it runs, and does not wait. It is not made again, whatever ``retry`` the
        client has. Raises ``ValueError`` or ``TypeError`` for
        arguments that JSON cannot hold.
        """
        wanted = wanted_tool(name, arguments, trace, idempotency_key)
        timeouts = self._timeouts.but(timeout, max_timeout, reset_on_progress)
        pending = self._start(wanted, timeouts)
        try:
            yield ToolCall(pending, partial(self._tools.check, name))
        finally:
            pending.abandon("the caller left")

    def tools(self) -> AsyncIterator[Tool]:
        """All tools of the server, page after page: ``async for tool in client.tools()``.

        Raises what every call raises, and :class:`~trio_mcp.ProtocolViolation` after
        ``Limits.pages`` pages or for a cursor that comes twice. If it is cancelled while it waits,
        the page that was asked for is (specification: *Pagination*).
        """
        return Pages(
            "tools/list",
            self.tools_page,
            lambda page: page.tools,
            lambda tool: tool.name,
            self._limits,
        )

    async def tools_page(self, cursor: str | None = None) -> ListToolsResult:
        """One page of tools; ``cursor`` is ``next_cursor`` of the page before, opaque."""
        page = await self._page("tools/list", cursor, ListToolsResult)
        self._tools.learn(page.tools)
        return page

    # Resources ------------------------------------------------------------------------------------

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        reset_on_progress: bool | None = None,
        on_progress: OnProgress | None = None,
        trace: TraceContext | None = None,
        retry: Retry | None = None,
    ) -> ReadResourceResult:
        """Read a resource. One that does not exist is a :class:`~trio_mcp.NoSuchResource`.
        Cancelled as :meth:`call_tool` is (specification: *Resources*, "Reading Resources")."""
        wanted = wanted_resource(uri, trace)
        timeouts = self._timeouts.but(timeout, max_timeout, reset_on_progress)
        key = (wanted.method, uri)
        return await self._read(key, wanted, ReadResourceResult, timeouts, on_progress, retry)

    def resources(self) -> AsyncIterator[Resource]:
        """All resources that the server lists, page after page, as :meth:`tools`."""
        return Pages(
            "resources/list",
            self.resources_page,
            lambda page: page.resources,
            lambda resource: resource.uri,
            self._limits,
        )

    async def resources_page(self, cursor: str | None = None) -> ListResourcesResult:
        """One page of resources, as :meth:`tools_page`."""
        return await self._page("resources/list", cursor, ListResourcesResult)

    def templates(self) -> AsyncIterator[ResourceTemplate]:
        """All resource templates that the server lists, page after page, as :meth:`tools`."""
        return Pages(
            "resources/templates/list",
            self.templates_page,
            lambda page: page.resource_templates,
            lambda template: template.uri_template,
            self._limits,
        )

    async def templates_page(self, cursor: str | None = None) -> ListResourceTemplatesResult:
        """One page of resource templates, as :meth:`tools_page`."""
        return await self._page("resources/templates/list", cursor, ListResourceTemplatesResult)

    # Prompts --------------------------------------------------------------------------------------

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        reset_on_progress: bool | None = None,
        on_progress: OnProgress | None = None,
        trace: TraceContext | None = None,
        retry: Retry | None = None,
    ) -> GetPromptResult:
        """Get a prompt with its arguments, which are texts, filled in. Cancelled as
        :meth:`call_tool` is (specification: *Prompts*, "Getting a Prompt")."""
        wanted = wanted_prompt(name, arguments, trace)
        timeouts = self._timeouts.but(timeout, max_timeout, reset_on_progress)
        return await self._ask(wanted, GetPromptResult, timeouts, on_progress, retry)

    def prompts(self) -> AsyncIterator[Prompt]:
        """All prompts of the server, page after page, as :meth:`tools`."""
        return Pages(
            "prompts/list",
            self.prompts_page,
            lambda page: page.prompts,
            lambda prompt: prompt.name,
            self._limits,
        )

    async def prompts_page(self, cursor: str | None = None) -> ListPromptsResult:
        """One page of prompts, as :meth:`tools_page`."""
        return await self._page("prompts/list", cursor, ListPromptsResult)

    # Completions ----------------------------------------------------------------------------------

    async def complete(
        self,
        *,
        argument: str,
        value: str,
        prompt: str | None = None,
        resource: str | None = None,
        arguments: Mapping[str, str] | None = None,
        timeout: float | None = None,
        max_timeout: float | None = None,
        reset_on_progress: bool | None = None,
        on_progress: OnProgress | None = None,
        trace: TraceContext | None = None,
        retry: Retry | None = None,
    ) -> Completion:
        """What an argument of a prompt, or a variable of a resource template, may be completed to.

        :param argument, value: its name, and what was typed so far.
        :param prompt, resource: the prompt's name, or the URI template; one of the two.
        :param arguments: other arguments, as far as they are known.

        Cancel it when the next key is typed (specification: *Completion*). Raises ``TypeError``
        for neither or both of ``prompt`` and ``resource``.
        """
        if (prompt is None) is (resource is None):
            raise TypeError("complete() wants prompt= or resource=, one of the two")
        what = ("resource", resource) if prompt is None else ("prompt", prompt)
        for name, text in (what, ("argument", argument), ("value", value)):
            check_text(name, text)
        ref = (
            PromptReference(prompt)
            if prompt is not None
            else ResourceTemplateReference(resource or "")
        )
        params: dict[str, Any] = {
            "ref": unstructure(ref),
            "argument": {"name": argument, "value": value},
        }
        if arguments is not None:
            check_arguments(arguments)
            params["context"] = {"arguments": arguments}
        if trace is not None:
            check_trace(trace)
        wanted = Wanted("completion/complete", params, None, trace)
        timeouts = self._timeouts.but(timeout, max_timeout, reset_on_progress)
        result = await self._ask(wanted, CompleteResult, timeouts, on_progress, retry)
        return result.completion

    # Changes --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources_list: bool = False,
        resources: Sequence[str] = (),
        timeout: float | None = None,
    ) -> AsyncGenerator[Changes, None]:
        """Hear of changes until the block is left, or the server ends it.

        :param tools, prompts, resources_list: whether to hear that one of these lists changed.
        :param resources: URIs of resources, to hear that they were updated.
        :param timeout: seconds until the server has agreed; after that there is none.

        The server may agree to less, see ``changes.agreed``. Raises what every call raises; a
        server without subscriptions answers with a :class:`~trio_mcp.ServerError`. Leaving the
        block, by a cancellation or otherwise, tells the server, and does not wait. Raises
        ``ValueError`` or ``TypeError`` for nothing to listen for (specification: *Subscriptions*).
        """
        wanted = wanted_changes(tools, prompts, resources_list, resources)
        seconds = self._timeouts.idle if timeout is None else timeout
        timeouts = Timeouts(seconds, seconds)

        def ask() -> PendingCall:
            call = self._era.listen(self._open, wanted)
            return PendingCall(self._connection, call, timeouts, self._limits)

        on_change = self._cache.changed if self._cache is not None else None
        changes = Changes(ask, self._connection, wanted, self._limits, on_change)
        try:
            await changes.acknowledged()
            yield changes
        finally:
            changes.leave()

    # The server -----------------------------------------------------------------------------------

    async def discover(
        self, *, timeout: float | None = None, max_timeout: float | None = None
    ) -> DiscoverResult:
        """Ask the server again what it is and can do (specification: *Discovery*). A server of an
        earlier revision says it once, in the beginning, and is not asked again."""
        timeouts = self._timeouts.but(timeout, max_timeout)
        return self._learn(
            await self._era.discover(
                lambda: self._ask(Wanted("server/discover", {}), DiscoverResult, timeouts)
            )
        )

    def _learn(self, discovered: DiscoverResult) -> DiscoverResult:
        self.discovered = discovered
        info = (discovered.meta or {}).get(META_SERVER_INFO)
        if info is not None:
            self.server_info = read_result(Implementation, info, "server/discover serverInfo")
        return discovered

    @property
    def protocol_version(self) -> str:
        """The revision of the protocol that is spoken with this server."""
        return self._era.version

    @property
    def journal(self) -> Journal:
        """What became of each call."""
        return self._connection.journal

    def calls(self) -> tuple[CallStatus, ...]:
        """Calls in flight as they are now, oldest first: state, method, target, age, cause."""
        return tuple(call.status() for call in self._connection.calls)

    def watch_calls(self) -> Subscription[CallStatus]:
        """Calls as they come to another state: ``with client.watch_calls() as changes: async for
        status in changes``. Each is told once per state, and only from then on. Rounds and attempts
        of one call have one ``first_key``; the next is told before the one before has ended.

        At most ``Limits.journal_backlog`` wait to be taken; the oldest is dropped, and
        ``changes.missed`` counts it. Never slows a call. The loop ends once the client has closed.
        """
        return self._connection.journal.watch()

    @property
    def stderr_tail(self) -> str:
        """The end of what a launched server wrote to its standard error."""
        process = self._connection.process
        return process.stderr_tail if process is not None else ""

    @property
    def exit_status(self) -> int | None:
        """Of a launched server, once it has exited; negative for a signal."""
        process = self._connection.process
        return process.exit_status if process is not None else None

    @property
    def restarts(self) -> int:
        """How often the server was started again, or connected to again, by ``restart=``."""
        return self._connection.restarts

    def cache_clear(self) -> None:
        """Forget the answers that were kept; see ``cache`` of :func:`.connecting.connect`."""
        if self._cache is not None:
            self._cache.clear()

    def abort(self) -> None:
        """End the connection without grace: calls in flight end with
        :class:`~trio_mcp.ConnectionLost`, and so does every later one. Leaving the block of
        :func:`.connecting.connect` then kills a launched server and its process group at once,
        clean-up or not. Never waits."""
        self._connection.abort()

    # Inside ---------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """The server was restarted: what was known of it may have changed, unheard."""
        self._tools.clear()
        self.cache_clear()

    def _over(self, connection: CallConnection) -> Client:
        """The same client, over another connection."""
        return Client(
            connection,
            self._era,
            self._limits,
            self._timeouts,
            self._tools,
            self._tracing,
            self._retry,
            self._cache,
        )
