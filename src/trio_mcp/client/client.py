"""The client that applications write: what can be done with a connection to a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ..runtime.call import Call
from ..runtime.journal import Journal, printable
from ..runtime.limits import Limits
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
from ..runtime.tracing import GuardedTracing, TraceContext, TracedRequest, trace_id_of
from ..transports.calling import CallConnection
from .calls import OnProgress, PendingCall, Timeouts, ToolCall, read_result
from .eras.base import ClientEra
from .pages import Pages
from .subscriptions import Changes, wanted_changes

__all__ = ["Client"]

M = TypeVar("M")


class Client:
    """A connection to one server. Made by :func:`.connecting.connect`; its methods may be used
    concurrently.

    Cancelling the Trio scope around any of them cancels the call: the server is told, the caller is
    released at once. ``server_info`` and ``discovered`` are what the server says about itself; they
    are not verified.

    All that wait for an answer take ``timeout`` and ``max_timeout``, in seconds, instead of the
    client's own (see :func:`.connecting.connect`), and raise :class:`~trio_mcp.ServerError`,
    :class:`~trio_mcp.CallTimeout`, :class:`~trio_mcp.ConnectionLost`,
    :class:`~trio_mcp.ProtocolViolation`; ``ValueError`` or ``TypeError`` for parameters that JSON
    cannot hold. ``on_progress`` is called, and awaited if it is async, in the caller's task with
    each update; what it raises cancels the call and comes out.

    ``trace`` is the trace that the call belongs to: a handler passes its ``ctx.trace`` on. Not
    needed where ``tracing`` knows of a current span, which goes before it.

    Where the server may ask for something before it answers (tools, prompts, resources), the
    callbacks of :func:`.connecting.connect` run in the caller's task, too.
    """

    def __init__(
        self,
        connection: CallConnection,
        era: ClientEra,
        limits: Limits,
        timeouts: Timeouts,
        tracing: GuardedTracing | None = None,
    ) -> None:
        self.server_info: Implementation | None = None
        self.discovered: DiscoverResult
        self._limits = limits
        self._timeouts = timeouts
        self._tracing = tracing
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
        on_progress: OnProgress | None = None,
        trace: TraceContext | None = None,
    ) -> CallToolResult:
        """Call a tool and wait for its result; a result with ``is_error`` is a result."""
        timeouts = self._timeouts.but(timeout, max_timeout)
        pending = self._open_tool(name, arguments, timeouts, trace)
        return read_result(CallToolResult, await pending.finish(on_progress), "tools/call")

    @asynccontextmanager
    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        trace: TraceContext | None = None,
    ) -> AsyncGenerator[ToolCall, None]:
        """Start a tool and get a handle on the call; leaving the block cancels it if it runs."""
        timeouts = self._timeouts.but(timeout, max_timeout)
        pending = self._open_tool(name, arguments, timeouts, trace)
        try:
            yield ToolCall(pending)
        finally:
            pending.abandon("the caller left")

    def tools(self) -> AsyncIterator[Tool]:
        """All tools of the server, page after page; see :class:`.pages.Pages`."""
        return Pages("tools/list", self.tools_page, lambda page: page.tools, self._limits.pages)

    async def tools_page(self, cursor: str | None = None) -> ListToolsResult:
        """One page of tools; ``cursor`` is ``next_cursor`` of the page before, opaque."""
        return await self._page("tools/list", cursor, ListToolsResult)

    # Resources ------------------------------------------------------------------------------------

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        trace: TraceContext | None = None,
    ) -> ReadResourceResult:
        """Read a resource. One that does not exist is a :class:`~trio_mcp.ServerError`, of code
        -32602, or -32002 from older servers."""
        timeouts = self._timeouts.but(timeout, max_timeout)
        pending = self._start("resources/read", {"uri": uri}, uri, timeouts, trace)
        return read_result(ReadResourceResult, await pending.finish(on_progress), "resources/read")

    def resources(self) -> AsyncIterator[Resource]:
        """All resources that the server lists, page after page."""
        return Pages(
            "resources/list", self.resources_page, lambda page: page.resources, self._limits.pages
        )

    async def resources_page(self, cursor: str | None = None) -> ListResourcesResult:
        """One page of resources, as :meth:`tools_page`."""
        return await self._page("resources/list", cursor, ListResourcesResult)

    def templates(self) -> AsyncIterator[ResourceTemplate]:
        """All resource templates that the server lists, page after page."""
        return Pages(
            "resources/templates/list",
            self.templates_page,
            lambda page: page.resource_templates,
            self._limits.pages,
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
        on_progress: OnProgress | None = None,
        trace: TraceContext | None = None,
    ) -> GetPromptResult:
        """Get a prompt with its arguments, which are texts, filled in."""
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = arguments
        timeouts = self._timeouts.but(timeout, max_timeout)
        pending = self._start("prompts/get", params, name, timeouts, trace)
        return read_result(GetPromptResult, await pending.finish(on_progress), "prompts/get")

    def prompts(self) -> AsyncIterator[Prompt]:
        """All prompts of the server, page after page."""
        return Pages(
            "prompts/list", self.prompts_page, lambda page: page.prompts, self._limits.pages
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
        on_progress: OnProgress | None = None,
        trace: TraceContext | None = None,
    ) -> Completion:
        """What an argument of a prompt, or a variable of a resource template, may be completed to.

        :param argument, value: its name, and what was typed so far.
        :param prompt, resource: the prompt's name, or the URI template; one of the two.
        :param arguments: other arguments, as far as they are known.
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
        timeouts = self._timeouts.but(timeout, max_timeout)
        result = await self._ask(
            "completion/complete", params, CompleteResult, timeouts, on_progress, trace
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
        block tells the server, and does not wait.
        """
        wanted = wanted_changes(tools, prompts, resources_list, resources)
        seconds = self._timeouts.idle if timeout is None else timeout
        timeouts = Timeouts(seconds, seconds)
        call = self._era.listen(self._open, wanted)
        pending = PendingCall(self._connection, call, timeouts, self._limits)
        changes = Changes(pending, wanted, self._limits.changes_backlog)
        try:
            await changes.acknowledged()
            yield changes
        finally:
            pending.abandon("the caller left")

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

    def abort(self) -> None:
        """End the connection without grace: leaving the block of
        :func:`.connecting.connect` then kills a
        launched server and its process group at once, clean-up or not. Never waits."""
        self._connection.abort()

    # Inside ---------------------------------------------------------------------------------------

    def _open_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        timeouts: Timeouts,
        trace: TraceContext | None = None,
    ) -> PendingCall:
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
        return self._start("tools/call", params, name, timeouts, trace)

    def _start(
        self,
        method: str,
        params: Mapping[str, Any],
        target: str,
        timeouts: Timeouts,
        trace: TraceContext | None,
    ) -> PendingCall:
        """A call that may take several rounds."""
        call = self._open(method, params, target, trace)
        return PendingCall(self._connection, call, timeouts, self._limits, self._answers)

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any],
        model: type[M],
        timeouts: Timeouts,
        on_progress: OnProgress | None = None,
        trace: TraceContext | None = None,
    ) -> M:
        """A call that takes one round."""
        call = self._open(method, params, None, trace)
        pending = PendingCall(self._connection, call, timeouts, self._limits)
        return read_result(model, await pending.finish(on_progress), method)

    async def _page(self, method: str, cursor: str | None, model: type[M]) -> M:
        params = {} if cursor is None else {"cursor": cursor}
        return await self._ask(method, params, model, self._timeouts)

    def _open(
        self,
        method: str,
        params: Mapping[str, Any],
        target: str | None = None,
        trace: TraceContext | None = None,
    ) -> Call:
        if self._tracing is None and trace is None:
            return self._connection.open(method, {**params, "_meta": self._meta}, target)
        return self._open_traced(method, params, target, trace)

    def _open_traced(
        self, method: str, params: Mapping[str, Any], target: str | None, trace: TraceContext | None
    ) -> Call:
        """The same, with ``_meta`` saying which trace the call belongs to."""
        span = None
        if self._tracing is not None:
            span = self._tracing.call(self._traced(method, target, trace))
        told = span.meta() if span is not None else {}
        if not told and trace is not None:
            told = trace.as_meta()
        params = {**params, "_meta": {**told, **self._meta}}
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
