"""The client that applications write: ``async with connect(target) as client``."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeGuard

import attrs
import trio

from .calls import (
    OnProgress,
    PendingCall,
    Timeouts,
    ToolCall,
    read_result,
    read_tool_result,
)
from .runtime.call import Call
from .runtime.eras.revision_2026_07_28 import VERSION, client_meta
from .runtime.errors import (
    CallTimeout,
    ErrorCode,
    IncompatibleServer,
    ProtocolViolation,
    ServerError,
)
from .runtime.groups import leaf_of
from .runtime.journal import Journal, printable
from .runtime.limits import Limits
from .runtime.models.base import META_SERVER_INFO, ClientCapabilities, Implementation
from .runtime.models.discovery import DiscoverResult
from .runtime.models.tools import CallToolResult, ListToolsResult, Tool
from .runtime.tracing import (
    GuardedTracing,
    TraceContext,
    TracedRequest,
    Tracing,
    guarded,
    trace_id_of,
)
from .server import Server
from .transports.calling import CallConnection, ClientConnection
from .transports.memory import memory_wire_pair
from .transports.process import ServerProcess
from .transports.wire import StreamWire, Wire

__all__ = ["Client", "Target", "connect"]

Target: TypeAlias = str | Sequence[str | os.PathLike[str]] | trio.abc.Stream | Server
"""What :func:`connect` connects to: an address, a command to launch, a Trio stream, or a server
in-process."""

_NOT_OURS: Final = (400, 404, 405, 406, 415)
"""HTTP statuses of servers that do not know this revision, without a JSON-RPC error."""

_NOT_NOW: Final = (
    ErrorCode.UNAUTHORIZED,
    ErrorCode.SHUTTING_DOWN,
    ErrorCode.OVERLOADED,
    ErrorCode.INTERNAL_ERROR,
)
"""Errors that say nothing about revisions."""

_HTTP: Final = re.compile(r"https?://", re.IGNORECASE)
_WEBSOCKET: Final = re.compile(r"wss?://", re.IGNORECASE)

DEFAULT_TIMEOUT: Final = 60.0
DEFAULT_MAX_TIMEOUT: Final = 3600.0


def connect(
    target: Target,
    *,
    name: str = "trio-mcp",
    version: str = "0",
    timeout: float = DEFAULT_TIMEOUT,
    max_timeout: float = DEFAULT_MAX_TIMEOUT,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
    ssl_context: ssl.SSLContext | None = None,
    limits: Limits | None = None,
    tracing: Tracing | None = None,
) -> AbstractAsyncContextManager[Client]:
    """Connect to a server, find out what it is, and close the connection in bounded time.

    :param target: the address of an MCP endpoint (``"https://example.com/mcp"``, or ``"wss://…"``
        for a WebSocket), a command (list of strings), a Trio stream, or a
        :class:`~trio_mcp.Server` of this process.
    :param name, version: what this client calls itself.
    :param timeout: seconds of silence after which a call fails; progress counts as a sign of life.
    :param max_timeout: seconds after which a call fails in any case. Both are defaults for every
        call; ``math.inf`` switches one off.
    :param env, cwd: for a command: its environment (instead of ours) and working directory.
    :param headers: for an address: sent with every request, ``Authorization`` for one.
    :param ssl_context: for an address: instead of one that verifies the server's certificate
        against the authorities that the system trusts.
    :param tracing: makes a span of each call, and tells the server which one:
        :class:`trio_mcp.otel.OpenTelemetry`, for one.

    Raises ``OSError`` if a command cannot be launched or a WebSocket not opened, ``ValueError`` for
    an address or headers that are none, :class:`~trio_mcp.IncompatibleServer` if the server does
    not answer discovery within ``Limits.connect`` or speaks no revision of ours, and
    :class:`~trio_mcp.ConnectionLost` if it ends. What the block raises comes out as it is, never in
    an exception group. On leaving, calls in flight end with ``ConnectionLost``; a launched server
    gets its stdin closed, then SIGTERM, then SIGKILL, with its whole process group. Leave the block
    in the task that entered it: elsewhere it closes too, but raises ``RuntimeError``.
    """
    timeouts = Timeouts(timeout, max_timeout)
    info = Implementation(name, version)
    limits = limits if limits is not None else Limits()
    options = _Options(env, cwd, headers, ssl_context)
    return _InOneTask(_connected(target, info, timeouts, limits, options, guarded(tracing)))


@attrs.frozen
class _Options:
    """What only some targets make use of."""

    env: Mapping[str, str] | None
    cwd: str | os.PathLike[str] | None
    headers: Mapping[str, str] | None
    ssl_context: ssl.SSLContext | None


@asynccontextmanager
async def _connected(
    target: Target,
    info: Implementation,
    timeouts: Timeouts,
    limits: Limits,
    options: _Options,
    tracing: GuardedTracing | None,
) -> AsyncGenerator[Client, None]:
    journal = Journal(limits.journal_records, limits.journal_backlog)
    # Outside of the nursery, which would put what this raises into a group.
    connection, serve = await _open_connection(target, limits, journal, options)
    client = Client(connection, info, limits, timeouts, tracing)
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                nursery.start_soon(connection.run)
                if serve is not None:
                    await nursery.start(serve)
                await client._find_out()
                yield client
            except BaseException as raised:
                failure = raised
            try:
                await connection.close()
            except BaseException as raised:  # Ctrl-C, for one
                failure = failure if failure is not None else raised
            nursery.cancel_scope.cancel("the client was closed")
    except BaseExceptionGroup as group:  # a Ctrl-C that struck in one of our tasks
        failure = failure if isinstance(failure, Exception) else leaf_of(group)
    if failure is not None:
        raise failure


async def _open_connection(
    target: Target,
    limits: Limits,
    journal: Journal,
    options: _Options,
) -> tuple[CallConnection, Callable[..., Awaitable[None]] | None]:
    """The connection, and what else has to be started for it: what serves the other end of it, in
    this process, or what opens a WebSocket and moves its bytes."""
    if isinstance(target, Server):
        ours, theirs = memory_wire_pair(limits.message_bytes)
        return ClientConnection(ours, limits, journal), partial(_serve, target, theirs)
    if isinstance(target, trio.abc.Stream):
        wire = StreamWire.over(target, limits.message_bytes)
        return ClientConnection(wire, limits, journal), None
    if isinstance(target, str):
        if _WEBSOCKET.match(target):
            # What few need and takes long to import.
            from .transports.websocket.opening import open_websocket

            socket = await open_websocket(target, limits, options.ssl_context, options.headers)
            return ClientConnection(socket, limits, journal), socket.run
        if _HTTP.match(target):
            # What few need and takes long to import.
            from .transports.http.client import HttpClientConnection

            over_http = HttpClientConnection(
                target, limits, journal, headers=options.headers, ssl_context=options.ssl_context
            )
            return over_http, None
    if not _is_command(target):
        raise TypeError(
            f"connect takes a command as a list, for example {_as_command(target)!r}, an address "
            "(http://, https://, ws:// or wss://), a Trio stream (for TCP: await "
            f"trio.open_tcp_stream(host, port)) or a Server of this process, not {target!r}"
        )
    process = await ServerProcess.launch(target, limits, env=options.env, cwd=options.cwd)
    return ClientConnection(process.wire, limits, journal, process), None


async def _serve(server: Server, wire: Wire, *, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await server.serve_wire(wire)


def _as_command(target: object) -> list[str]:
    return target.split() if isinstance(target, str) and target else ["python", "server.py"]


def _is_command(target: object) -> TypeGuard[Sequence[str | os.PathLike[str]]]:
    return (
        isinstance(target, (list, tuple))
        and len(target) > 0
        and all(isinstance(word, (str, os.PathLike)) for word in target)
    )


class _InOneTask(AbstractAsyncContextManager["Client"]):
    """What :func:`connect` returns. Trio's nurseries are left by the task that entered them, the
    innermost first; to try anything else would corrupt its state."""

    def __init__(self, connected: AbstractAsyncContextManager[Client]) -> None:
        self._connected = connected
        self._entered = False
        self._client: Client
        self._place: tuple[trio.lowlevel.Task, trio.Nursery]

    async def __aenter__(self) -> Client:
        if self._entered:
            raise RuntimeError("what connect() returns is entered once; call connect() again")
        self._entered = True
        self._client = await self._connected.__aenter__()
        task = trio.lowlevel.current_task()
        self._place = task, task.child_nurseries[-1]
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        task = trio.lowlevel.current_task()
        if (task, *task.child_nurseries[-1:]) != self._place:
            await self._client._connection.close()
            raise RuntimeError(
                "connect() must be left in the task that entered it, the innermost first; "
                "this connection has been closed, but its block has not been left"
            )
        return await self._connected.__aexit__(kind, error, traceback)


class Client:
    """A connection to one server. Made by :func:`connect`; its methods may be used concurrently.

    Cancelling the Trio scope around any of them cancels the call: the server is told, the caller is
    released at once. ``server_info`` and ``discovered`` are what the server says about itself; they
    are not verified.
    """

    def __init__(
        self,
        connection: CallConnection,
        info: Implementation,
        limits: Limits,
        timeouts: Timeouts,
        tracing: GuardedTracing | None = None,
    ) -> None:
        self.server_info: Implementation | None = None
        self.discovered: DiscoverResult
        self._connection = connection
        self._limits = limits
        self._timeouts = timeouts
        self._tracing = tracing
        self._meta = client_meta(info, ClientCapabilities())

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
        """Call a tool and wait for its result; a result with ``is_error`` is a result.

        :param timeout, max_timeout: seconds, instead of the client's own; see :func:`connect`.
        :param on_progress: called, and awaited if it is async, in this task with each update. What
            it raises cancels the call and comes out of here.
        :param trace: the trace that the call belongs to: a handler passes its ``ctx.trace`` on. Not
            needed where ``tracing`` knows of a current span, which goes before it.

        Raises :class:`~trio_mcp.ServerError`, :class:`~trio_mcp.CallTimeout`,
        :class:`~trio_mcp.ConnectionLost`, :class:`~trio_mcp.ProtocolViolation`; ``ValueError`` or
        ``TypeError`` for arguments that JSON cannot hold.
        """
        timeouts = self._timeouts.but(timeout, max_timeout)
        pending = self._open_tool(name, arguments, timeouts, trace)
        return read_tool_result(await pending.finish(on_progress))

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
        """All tools of the server, page after page.

        Raises :class:`~trio_mcp.ProtocolViolation` on a repeated cursor, or after ``Limits.pages``.
        """
        return _Pages(self, self._limits.pages)

    async def tools_page(self, cursor: str | None = None) -> ListToolsResult:
        """One page of tools; ``cursor`` is ``next_cursor`` of the page before, opaque."""
        params = {} if cursor is None else {"cursor": cursor}
        result = await self._request("tools/list", params)
        page: ListToolsResult = read_result(ListToolsResult, result, "tools/list")
        return page

    # The server -----------------------------------------------------------------------------------

    async def discover(self) -> DiscoverResult:
        """Ask the server again what it is and can do (specification: *Discovery*)."""
        return await self._discover(self._timeouts)

    async def _discover(self, timeouts: Timeouts) -> DiscoverResult:
        result = await self._request("server/discover", {}, timeouts)
        discovered: DiscoverResult = read_result(DiscoverResult, result, "server/discover")
        self.discovered = discovered
        info = (discovered.meta or {}).get(META_SERVER_INFO)
        if info is not None:
            self.server_info = read_result(Implementation, info, "server/discover serverInfo")
        return discovered

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
        """End the connection without grace: leaving the block of :func:`connect` then kills a
        launched server and its process group at once, clean-up or not. Never waits."""
        self._connection.abort()

    # Inside ---------------------------------------------------------------------------------------

    async def _find_out(self) -> None:
        supported: tuple[str, ...]
        limit = self._limits.connect
        try:
            discovered = await self._discover(Timeouts(idle=limit, total=limit))
            supported = tuple(discovered.supported_versions)
        except CallTimeout:
            violation = self._connection.last_violation
            raise IncompatibleServer(
                f"the server did not answer server/discover within {limit:g} s; "
                + (
                    f"it sent {violation}"
                    if violation is not None
                    else f"it seems to be of a revision before {VERSION}, "
                    "which this client does not speak"
                )
            ) from None
        except ProtocolViolation as error:
            if error.status not in _NOT_OURS:
                raise
            raise IncompatibleServer(
                f"the server refused server/discover ({error}); there is no MCP endpoint at this "
                f"address, or one of a revision before {VERSION}, which this client does not speak"
            ) from error
        except ServerError as error:
            if error.code in _NOT_NOW:
                raise
            supported = _supported(error)
            if error.code != ErrorCode.UNSUPPORTED_PROTOCOL_VERSION:
                raise IncompatibleServer(
                    f"the server refused server/discover ({error}); it may be of a revision "
                    f"before {VERSION}, which this client does not speak"
                ) from error
        if VERSION not in supported:
            raise IncompatibleServer(
                f"the server speaks {', '.join(supported) or 'no revision it names'}; "
                f"this client speaks {VERSION}",
                supported,
            )

    def _open_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        timeouts: Timeouts,
        trace: TraceContext | None = None,
    ) -> PendingCall:
        call = self._open("tools/call", {"name": name, "arguments": arguments or {}}, name, trace)
        return PendingCall(self._connection, call, timeouts)

    async def _request(
        self, method: str, params: Mapping[str, Any], timeouts: Timeouts | None = None
    ) -> dict[str, Any]:
        call = self._open(method, params)
        return await PendingCall(self._connection, call, timeouts or self._timeouts).finish()

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
            protocol_version=VERSION,
            meta={},
            trace=trace,
        )


class _Pages:
    """All entries of a list, page after page. No generator: leaving the loop early leaves nothing
    behind, and asks no further."""

    def __init__(self, client: Client, pages: int) -> None:
        self._client = client
        self._entries: list[Tool] = []
        self._cursor: str | None = None
        self._seen: set[str] = set()
        self._left = pages
        self._limit = pages
        self._more = True

    def __aiter__(self) -> _Pages:
        return self

    async def __anext__(self) -> Tool:
        while not self._entries:
            if not self._more:
                raise StopAsyncIteration
            await self._next_page()
        await trio.lowlevel.checkpoint()
        return self._entries.pop()

    async def _next_page(self) -> None:
        if not self._left:
            raise ProtocolViolation(f"tools/list: more than pages={self._limit} pages")
        self._left -= 1
        page = await self._client.tools_page(self._cursor)
        self._entries = page.tools[::-1]
        self._cursor = page.next_cursor
        self._more = self._cursor is not None
        if self._cursor is not None:
            if self._cursor in self._seen:
                self._entries, self._more = [], False
                raise ProtocolViolation("tools/list: the server gave the same cursor twice")
            self._seen.add(self._cursor)


def _supported(error: ServerError) -> tuple[str, ...]:
    data = error.data if isinstance(error.data, dict) else {}
    supported = data.get("supported")
    if not isinstance(supported, list):
        return ()
    return tuple(version for version in supported if isinstance(version, str))
