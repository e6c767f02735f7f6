"""The client that applications write: what can be done with a connection to a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from ..runtime.call import Call
from ..runtime.journal import CallStatus, Journal, Subscription, printable
from ..runtime.limits import Limits
from ..runtime.models.base import META_IDEMPOTENCY_KEY, META_SERVER_INFO, Implementation
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
from ..runtime.server_errors import InvalidParams
from ..runtime.tracing import GuardedTracing, TraceContext, TracedRequest, trace_id_of
from ..transports.calling import CallConnection
from .calls import OnProgress, PendingCall, Timeouts, ToolCall, read_result
from .eras.base import ClientEra
from .known_tools import KnownTools
from .pages import Pages
from .response_cache import CacheKey, ResponseCache
from .retries import Retry, finish_with_retries
from .subscriptions import Changes, wanted_changes

__all__ = ["Client"]

M = TypeVar("M")


class _Cacheable(Protocol):
    ttl_ms: int


C = TypeVar("C", bound=_Cacheable)


class Client:
    """A connection to one server. Made by :func:`.connecting.connect`; its methods may be used
    concurrently.

    Cancelling the Trio scope around any of them cancels the call: the server is told, the caller is
    released at once. ``server_info`` and ``discovered`` are what the server says about itself; they
    are not verified.

    All that wait for an answer take ``timeout`` and ``max_timeout``, in seconds, and
    ``reset_on_progress`` instead of the client's own (see :func:`.connecting.connect`), and raise
    :class:`~trio_mcp.ServerError`, :class:`~trio_mcp.CallTimeout`,
    :class:`~trio_mcp.ConnectionLost`, :class:`~trio_mcp.ProtocolViolation`; ``ValueError`` or
    ``TypeError`` for parameters that JSON cannot hold. ``on_progress`` is called, and awaited if it
    is async, in the caller's task with each update; what it raises cancels the call and comes out.

    ``trace`` is the trace that the call belongs to: a handler passes its ``ctx.trace`` on. Not
    needed where ``tracing`` knows of a current span, which goes before it.

    ``retry`` is the client's own unless a call is given another one. ``idempotency_key`` is told to
    the server, in the request's metadata, the same with each attempt and round; what it makes of
    it is the server's business, and ``retry`` does not count on it.

    Where the server may ask for something before it answers (tools, prompts, resources), the
    callbacks of :func:`.connecting.connect` run in the caller's task, too.
    """

    def __init__(
        self,
        connection: CallConnection,
        era: ClientEra,
        limits: Limits,
        timeouts: Timeouts,
        tools: KnownTools,
        tracing: GuardedTracing | None = None,
        retry: Retry | None = None,
        cache: ResponseCache | None = None,
    ) -> None:
        self.server_info: Implementation | None = None
        self.discovered: DiscoverResult
        self._limits = limits
        self._timeouts = timeouts
        self._tracing = tracing
        self._tools = tools
        self._retry = retry
        self._cache = cache
        self._speak(era, connection)

    def _speak(self, era: ClientEra, connection: CallConnection) -> None:
        """From now on, speak like this."""
        self._connection = connection
        self._era = era
        self._meta = era.meta
        self._answers = era.answers

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
        timeouts = self._timeouts.but(timeout, max_timeout, reset_on_progress)
        start = partial(self._open_tool, name, arguments, timeouts, trace, idempotency_key)
        reads = self._tools.may_repeat(name)
        data = await self._finish(start, on_progress, retry, reads)
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
        timeouts = self._timeouts.but(timeout, max_timeout, reset_on_progress)
        pending = self._open_tool(name, arguments, timeouts, trace, idempotency_key)
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
        timeouts = self._timeouts.but(timeout, max_timeout, reset_on_progress)
        start = partial(self._start, "resources/read", {"uri": uri}, uri, timeouts, trace, None)
        key = ("resources/read", uri)
        return await self._read(key, start, ReadResourceResult, on_progress, retry)

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
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = arguments
        timeouts = self._timeouts.but(timeout, max_timeout, reset_on_progress)
        start = partial(self._start, "prompts/get", params, name, timeouts, trace, None)
        data = await self._finish(start, on_progress, retry, reads=True)
        return read_result(GetPromptResult, data, "prompts/get")

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
            params["context"] = {"arguments": arguments}
        timeouts = self._timeouts.but(timeout, max_timeout, reset_on_progress)
        result = await self._ask(
            "completion/complete", params, CompleteResult, timeouts, on_progress, trace, retry
        )
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
        backlog = self._limits.changes_backlog
        changes = Changes(ask, self._connection, wanted, backlog, on_change)
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
                lambda: self._ask("server/discover", {}, DiscoverResult, timeouts)
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
        status in changes``. Each is told once per state, and only from then on.

        At most ``Limits.journal_backlog`` wait to be taken; the oldest is dropped, and
        ``changes.missed`` counts it. Never slows a call.
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
        """End the connection without grace: leaving the block of :func:`.connecting.connect` then
        kills a launched server and its process group at once, clean-up or not. Never waits."""
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

    def _open_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        timeouts: Timeouts,
        trace: TraceContext | None = None,
        idempotency_key: str | None = None,
        earlier: PendingCall | None = None,
    ) -> PendingCall:
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
        meta = None if idempotency_key is None else _key_meta(idempotency_key)
        return self._start("tools/call", params, name, timeouts, trace, meta, earlier)

    def _start(
        self,
        method: str,
        params: Mapping[str, Any],
        target: str,
        timeouts: Timeouts,
        trace: TraceContext | None,
        meta: Mapping[str, Any] | None,
        earlier: PendingCall | None = None,
    ) -> PendingCall:
        """A call that may take several rounds, or its next attempt."""
        call = self._open(method, params, target, trace, meta)
        return PendingCall(self._connection, call, timeouts, self._limits, self._answers, earlier)

    async def _finish(
        self,
        start: Callable[[PendingCall | None], PendingCall],
        on_progress: OnProgress | None,
        retry: Retry | None,
        reads: bool,
    ) -> dict[str, Any]:
        """The result of a call, in one attempt or, where it is safe, in several."""
        retry = self._retry if retry is None else retry
        if retry is None:
            return await start(None).finish(on_progress)
        return await finish_with_retries(start, on_progress, retry, reads, self._connection)

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any],
        model: type[M],
        timeouts: Timeouts,
        on_progress: OnProgress | None = None,
        trace: TraceContext | None = None,
        retry: Retry | None = None,
    ) -> M:
        """A call that takes one round and only reads."""

        def start(earlier: PendingCall | None) -> PendingCall:
            call = self._open(method, params, None, trace)
            return PendingCall(self._connection, call, timeouts, self._limits, None, earlier)

        return read_result(model, await self._finish(start, on_progress, retry, True), method)

    async def _page(self, method: str, cursor: str | None, model: type[C]) -> C:
        params = {} if cursor is None else {"cursor": cursor}

        def start(earlier: PendingCall | None) -> PendingCall:
            call = self._open(method, params)
            connection, limits = self._connection, self._limits
            return PendingCall(connection, call, self._timeouts, limits, None, earlier)

        try:
            return await self._read((method, cursor), start, model, None, None)
        except InvalidParams:
            if cursor is not None and self._cache is not None:
                self._cache.forget(method)  # what has led to a cursor that is none
            raise

    async def _read(
        self,
        key: CacheKey,
        start: Callable[[PendingCall | None], PendingCall],
        model: type[C],
        on_progress: OnProgress | None,
        retry: Retry | None,
    ) -> C:
        """An answer that may be kept, or one that was."""
        cache, method = self._cache, key[0]
        if cache is None:
            data = await self._finish(start, on_progress, retry, reads=True)
            return read_result(model, data, method)
        kept = cache.get(key)
        if kept is not None:
            await trio.lowlevel.checkpoint()
            return read_result(model, kept, method)
        asked_at = cache.moment(method)
        attempts: list[PendingCall] = []

        def noted(earlier: PendingCall | None) -> PendingCall:
            attempts[:] = [start(earlier)]
            return attempts[0]

        data = await self._finish(noted, on_progress, retry, reads=True)
        result = read_result(model, data, method)
        if attempts[0].rounds == 0:
            cache.put(key, data, result.ttl_ms, asked_at)
        return result

    def _open(
        self,
        method: str,
        params: Mapping[str, Any],
        target: str | None = None,
        trace: TraceContext | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Call:
        """``meta`` goes with this request, besides what goes with every one."""
        all_meta = self._meta if meta is None else {**self._meta, **meta}
        if self._tracing is None and trace is None:
            return self._connection.open(method, {**params, "_meta": all_meta}, target)
        return self._open_traced(method, params, target, trace, all_meta)

    def _open_traced(
        self,
        method: str,
        params: Mapping[str, Any],
        target: str | None,
        trace: TraceContext | None,
        meta: Mapping[str, Any],
    ) -> Call:
        """The same, with ``_meta`` saying which trace the call belongs to."""
        span = None
        if self._tracing is not None:
            span = self._tracing.call(self._traced(method, target, trace))
        told = span.meta() if span is not None else {}
        if not told and trace is not None:
            told = trace.as_meta()
        params = {**params, "_meta": {**told, **meta}}
        try:
            call = self._connection.open(method, params, target)
        except Exception as error:
            if span is not None:
                span.end(None, type(error).__name__)
            raise
        call.span = span
        call.trace_id = (span and span.trace_id) or trace_id_of(told)
        return call

    def _traced(self, method: str, target: str | None, trace: TraceContext | None) -> TracedRequest:
        clip = self._limits.text_length
        return TracedRequest(
            method=method,
            target=printable(target[:clip]) if target is not None else None,
            request_id=None,
            connection=self._connection.label,
            protocol_version=self._era.version,
            meta={},
            trace=trace,
        )


def _key_meta(key: str) -> dict[str, str]:
    if not isinstance(key, str) or not key:
        raise ValueError(f"idempotency_key is a text that is not empty, not {key!r}")
    return {META_IDEMPOTENCY_KEY: key}
