"""The client that applications write: ``async with connect(target) as client``."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

import attrs
import trio

from .runtime.call import Call
from .runtime.eras.revision_2026_07_28 import VERSION, client_meta
from .runtime.errors import (
    CallCancelled,
    CallTimeout,
    ErrorCode,
    IncompatibleServer,
    ProtocolViolation,
    ServerError,
)
from .runtime.journal import Journal, Record
from .runtime.lifecycle import CancelCause, CancelSource, State
from .runtime.limits import Limits
from .runtime.models.base import META_SERVER_INFO, ClientCapabilities, Implementation
from .runtime.models.converter import ModelError, structure
from .runtime.models.discovery import DiscoverResult
from .runtime.models.results import InputRequiredResult
from .runtime.models.tools import CallToolResult, ListToolsResult, Tool
from .runtime.progress import ProgressUpdate
from .server import Server
from .transports.calling import ClientConnection
from .transports.memory import memory_wire_pair
from .transports.process import ServerProcess
from .transports.wire import StreamWire

__all__ = ["Client", "Target", "ToolCall", "connect"]

Target: TypeAlias = Sequence[str | os.PathLike[str]] | trio.abc.Stream | Server
"""What :func:`connect` connects to: a command to launch, a Trio stream, or a server in-process."""

OnProgress: TypeAlias = Callable[[ProgressUpdate], Awaitable[None] | None]

DEFAULT_TIMEOUT: Final = 60.0
DEFAULT_MAX_TIMEOUT: Final = 3600.0


@attrs.frozen
class _Timeouts:
    """Seconds; ``inf`` for none. ``idle`` begins anew with each progress notification."""

    idle: float
    total: float

    def expiry(self, call: Call) -> tuple[float, Literal["timeout", "max_timeout"], float]:
        """When the call times out as things stand, by which limit, and that limit."""
        idle_at, total_at = call.heard_at + self.idle, call.began_at + self.total
        if idle_at <= total_at:
            return idle_at, "timeout", self.idle
        return total_at, "max_timeout", self.total


def connect(
    target: Target,
    *,
    name: str = "trio-mcp",
    version: str = "0",
    timeout: float = DEFAULT_TIMEOUT,
    max_timeout: float = DEFAULT_MAX_TIMEOUT,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
) -> AbstractAsyncContextManager[Client]:
    """Connect to a server, find out what it is, and close the connection in bounded time.

    :param target: a command (list of strings), a Trio stream, or a :class:`~trio_mcp.Server` of
        this process.
    :param name, version: what this client calls itself.
    :param timeout: seconds of silence after which a call fails; progress counts as a sign of life.
    :param max_timeout: seconds after which a call fails in any case. Both are defaults for every
        call; ``math.inf`` switches one off.
    :param env, cwd: for a command: its environment (instead of ours) and working directory.

    Raises ``OSError`` if a command cannot be launched, :class:`~trio_mcp.IncompatibleServer` if the
    server does not answer discovery within ``Limits.connect`` or speaks no revision of ours, and
    :class:`~trio_mcp.ConnectionLost` if it ends. What the block raises comes out as it is, never in
    an exception group. On leaving, calls in flight end with ``ConnectionLost``; a launched server
    gets its stdin closed, then SIGTERM, then SIGKILL, with its whole process group. Leave the block
    in the task that entered it: elsewhere it closes too, but raises ``RuntimeError``.
    """
    timeouts = _Timeouts(_seconds("timeout", timeout), _seconds("max_timeout", max_timeout))
    info = Implementation(name, version)
    limits = limits if limits is not None else Limits()
    return _InOneTask(_connected(target, info, timeouts, limits, env, cwd))


@asynccontextmanager
async def _connected(
    target: Target,
    info: Implementation,
    timeouts: _Timeouts,
    limits: Limits,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
) -> AsyncGenerator[Client, None]:
    journal = Journal(limits.journal_records, limits.journal_backlog)
    # Outside of the nursery, which would put what this raises into a group.
    connection, serve = await _open_connection(target, limits, journal, env, cwd)
    client = Client(connection, info, limits, timeouts)
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            if serve is not None:
                nursery.start_soon(serve)
            nursery.start_soon(connection.run)
            await client._find_out()
            yield client
        except BaseException as raised:
            failure = raised
        try:
            await connection.close()
        except trio.Cancelled as raised:
            failure = failure if failure is not None else raised
        nursery.cancel_scope.cancel("the client was closed")
    if failure is not None:
        raise failure


async def _open_connection(
    target: Target,
    limits: Limits,
    journal: Journal,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
) -> tuple[ClientConnection, Callable[[], Awaitable[None]] | None]:
    """The connection; and for a server in-process, what serves the other end of it."""
    if isinstance(target, Server):
        ours, theirs = memory_wire_pair(limits.message_bytes)
        return ClientConnection(ours, limits, journal), partial(target.serve_wire, theirs)
    if isinstance(target, trio.abc.Stream):
        wire = StreamWire.over(target, limits.message_bytes)
        return ClientConnection(wire, limits, journal), None
    if isinstance(target, str):
        raise TypeError(
            f"connect takes a command as a list, for example {target.split()!r}; "
            "there is no transport for addresses yet"
        )
    process = await ServerProcess.launch(target, limits, env=env, cwd=cwd)
    return ClientConnection(process.wire, limits, journal, process), None


class _InOneTask(AbstractAsyncContextManager["Client"]):
    """What :func:`connect` returns. Trio's nurseries are left by the task that entered them, the
    innermost first; to try anything else would corrupt its state."""

    def __init__(self, connected: AbstractAsyncContextManager[Client]) -> None:
        self._connected = connected
        self._client: Client
        self._place: tuple[trio.lowlevel.Task, trio.Nursery]

    async def __aenter__(self) -> Client:
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
    released at once. ``server_info``, ``capabilities`` and ``instructions`` are what the server
    says about itself; they are not verified.
    """

    def __init__(
        self,
        connection: ClientConnection,
        info: Implementation,
        limits: Limits,
        timeouts: _Timeouts,
    ) -> None:
        self.server_info: Implementation | None = None
        self.discovered: DiscoverResult
        self._connection = connection
        self._limits = limits
        self._timeouts = timeouts
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
    ) -> CallToolResult:
        """Call a tool and wait for its result; a result with ``is_error`` is a result.

        :param timeout, max_timeout: seconds, instead of the client's own; see :func:`connect`.
        :param on_progress: called, and awaited if it is async, in this task with each update. What
            it raises cancels the call and comes out of here.

        Raises :class:`~trio_mcp.ServerError`, :class:`~trio_mcp.CallTimeout`,
        :class:`~trio_mcp.ConnectionLost`, :class:`~trio_mcp.ProtocolViolation`; ``ValueError`` or
        ``TypeError`` for arguments that JSON cannot hold.
        """
        call = self._open_tool(name, arguments)
        result = await self._finish(call, self._within(timeout, max_timeout), on_progress)
        return _tool_result(result)

    @asynccontextmanager
    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
    ) -> AsyncGenerator[ToolCall, None]:
        """Start a tool and get a handle on the call; leaving the block cancels it if it runs."""
        call = self._open_tool(name, arguments)
        try:
            yield ToolCall(self, call, self._within(timeout, max_timeout))
        finally:
            if call.state is State.RUNNING:
                self._connection.cancel(call, CancelSource.CALLER, "the caller left")

    def tools(self) -> AsyncIterator[Tool]:
        """All tools of the server, page after page.

        Raises :class:`~trio_mcp.ProtocolViolation` on a repeated cursor, or after ``Limits.pages``.
        """
        return self._tools()

    async def _tools(self) -> AsyncIterator[Tool]:
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(self._limits.pages):
            page = await self.tools_page(cursor)
            for tool in page.tools:
                yield tool
            cursor = page.next_cursor
            if cursor is None:
                return
            if cursor in seen:
                raise ProtocolViolation("tools/list: the server gave the same cursor twice")
            seen.add(cursor)
        raise ProtocolViolation(f"tools/list: more than pages={self._limits.pages} pages")

    async def tools_page(self, cursor: str | None = None) -> ListToolsResult:
        """One page of tools; ``cursor`` is ``next_cursor`` of the page before, opaque."""
        params = {} if cursor is None else {"cursor": cursor}
        result = await self._request("tools/list", params)
        page: ListToolsResult = _structured(ListToolsResult, result, "tools/list")
        return page

    # The server -----------------------------------------------------------------------------------

    async def discover(self) -> DiscoverResult:
        """Ask the server again what it is and can do (specification: *Discovery*)."""
        return await self._discover(self._timeouts)

    async def _discover(self, timeouts: _Timeouts) -> DiscoverResult:
        result = await self._request("server/discover", {}, timeouts)
        discovered: DiscoverResult = _structured(DiscoverResult, result, "server/discover")
        self.discovered = discovered
        info = (discovered.meta or {}).get(META_SERVER_INFO)
        if info is not None:
            self.server_info = _structured(Implementation, info, "server/discover serverInfo")
        return discovered

    @property
    def journal(self) -> Journal:
        """What became of each call."""
        return self._connection._journal

    @property
    def stderr_tail(self) -> str:
        """The end of what a launched server wrote to its standard error."""
        process = self._connection.process
        return process.stderr_tail if process is not None else ""

    # Inside ---------------------------------------------------------------------------------------

    async def _find_out(self) -> None:
        supported: tuple[str, ...]
        limit = self._limits.connect
        try:
            discovered = await self._discover(_Timeouts(idle=limit, total=limit))
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
        except ServerError as error:
            supported = _supported(error)
            if error.code != ErrorCode.UNSUPPORTED_PROTOCOL_VERSION:
                raise IncompatibleServer(
                    f"the server refused server/discover ({error}); it seems to be of a revision "
                    f"before {VERSION}, which this client does not speak"
                ) from error
        if VERSION not in supported:
            raise IncompatibleServer(
                f"the server speaks {', '.join(supported) or 'no revision it names'}; "
                f"this client speaks {VERSION}",
                supported,
            )

    def _open_tool(self, name: str, arguments: Mapping[str, Any] | None) -> Call:
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}, "_meta": self._meta}
        return self._connection.open("tools/call", params, name)

    async def _request(
        self, method: str, params: Mapping[str, Any], timeouts: _Timeouts | None = None
    ) -> dict[str, Any]:
        call = self._connection.open(method, {**params, "_meta": self._meta})
        return await self._finish(call, timeouts or self._timeouts, None)

    def _within(self, timeout: float | None, max_timeout: float | None) -> _Timeouts:
        default = self._timeouts
        return _Timeouts(
            default.idle if timeout is None else _seconds("timeout", timeout),
            default.total if max_timeout is None else _seconds("max_timeout", max_timeout),
        )

    async def _finish(
        self, call: Call, timeouts: _Timeouts, on_progress: OnProgress | None
    ) -> dict[str, Any]:
        """Wait for the end of a call. However this is left, the call is over or cancelled."""
        try:
            while True:
                while on_progress is not None and call.updates:
                    called = on_progress(call.updates.popleft())
                    if inspect.isawaitable(called):
                        await called
                if not await self._next_change(call, timeouts):
                    return call.result()
        except BaseException as error:
            if call.state is State.RUNNING:
                happened = "was cancelled" if isinstance(error, trio.Cancelled) else "failed"
                self._connection.cancel(call, CancelSource.CALLER, f"the caller {happened}")
            raise

    async def _next_change(self, call: Call, timeouts: _Timeouts) -> bool:
        """Wait until something happens to the call; ``False`` once it has its result or error."""
        if call.state is State.COMPLETED or call.state is State.FAILED:
            await trio.lowlevel.checkpoint()
            return False
        if call.state is not State.RUNNING:
            raise CallCancelled(_why(call))
        changed = call.changed
        at, limit, seconds = timeouts.expiry(call)
        if at == math.inf:
            await changed.wait()
            return True
        with trio.CancelScope(deadline=at) as scope:
            await changed.wait()
        if scope.cancelled_caught and call.state is State.RUNNING:
            sent = call.sent
            self._connection.cancel(
                call, CancelSource.TIMEOUT, f"no answer within {limit}={seconds:g} s"
            )
            error = CallTimeout(
                call.name,
                limit=limit,
                seconds=seconds,
                elapsed=trio.current_time() - call.began_at,
                last_progress=call.last_progress,
                outcome="unknown" if sent else "not sent",
            )
            if (violation := self._connection.violation_since(call.began_at)) is not None:
                error.add_note(f"In the meantime the server sent {violation}")
            raise error
        return True


class ToolCall:
    """A call in flight, as its owner sees it. Made by :meth:`Client.start_tool`."""

    def __init__(self, client: Client, call: Call, timeouts: _Timeouts) -> None:
        self._client = client
        self._call = call
        self._timeouts = timeouts

    @property
    def state(self) -> State:
        """CANCELLING: the cancellation is on its way. CANCELLED: the server has been told."""
        return self._call.state

    @property
    def cause(self) -> CancelCause | None:
        return self._call.cause

    @property
    def record(self) -> Record | None:
        """What became of the call, once it has ended. Late answers are counted here."""
        return self._call.record

    @property
    def last_progress(self) -> ProgressUpdate | None:
        return self._call.last_progress

    @property
    def progress(self) -> AsyncIterator[ProgressUpdate]:
        """Updates as they come, until the call ends: ``async for update in call.progress``.

        At most ``Limits.progress_backlog`` wait to be taken; the newest win.
        """
        return self._progress()

    async def _progress(self) -> AsyncIterator[ProgressUpdate]:
        call = self._call
        while True:
            while call.updates:
                yield call.updates.popleft()
            if call.state is not State.RUNNING:
                return
            await self._client._next_change(call, self._timeouts)

    async def result(self) -> CallToolResult:
        """Wait for the result. Raises what :meth:`Client.call_tool` raises, and
        :class:`~trio_mcp.CallCancelled` after :meth:`cancel`, at once."""
        result = await self._client._finish(self._call, self._timeouts, None)
        return _tool_result(result)

    def cancel(self, reason: str | None = None) -> None:
        """Cancel the call; the server is told why. Never waits, and may be called twice."""
        self._client._connection.cancel(self._call, CancelSource.CALLER, reason)


def _seconds(name: str, value: float) -> float:
    if not value > 0:
        raise ValueError(f"{name} must be more than 0 seconds, not {value!r}")
    return float(value)


def _why(call: Call) -> str:
    reason = call.cause.reason if call.cause is not None else None
    return f"{call.name} was cancelled" + (f": {reason}" if reason else "")


def _supported(error: ServerError) -> tuple[str, ...]:
    data = error.data if isinstance(error.data, dict) else {}
    supported = data.get("supported")
    if not isinstance(supported, list):
        return ()
    return tuple(version for version in supported if isinstance(version, str))


def _structured(model: type[Any], data: Any, what: str) -> Any:
    try:
        return structure(model, data, at="result")
    except ModelError as error:
        raise ProtocolViolation(f"{what}: {error}") from None


def _tool_result(data: dict[str, Any]) -> CallToolResult:
    result = _structured(CallToolResult | InputRequiredResult, data, "tools/call")  # type: ignore[arg-type]
    if isinstance(result, InputRequiredResult):
        raise ProtocolViolation(
            "tools/call: the server asks for input, for which this client declared no capability"
        )
    assert isinstance(result, CallToolResult)
    return result
