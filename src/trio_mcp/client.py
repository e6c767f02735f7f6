"""The client that applications write: what can be done with a connection to a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from .calls import (
    OnProgress,
    PendingCall,
    Timeouts,
    ToolCall,
    read_result,
    read_tool_result,
)
from .pages import Pages
from .runtime.eras.revision_2026_07_28 import VERSION, client_meta
from .runtime.errors import (
    CallTimeout,
    ErrorCode,
    IncompatibleServer,
    ProtocolViolation,
    ServerError,
)
from .runtime.journal import Journal
from .runtime.limits import Limits
from .runtime.models.base import META_SERVER_INFO, ClientCapabilities, Implementation
from .runtime.models.discovery import DiscoverResult
from .runtime.models.tools import CallToolResult, ListToolsResult, Tool
from .transports.calling import CallConnection

__all__ = ["Client"]

_NOT_OURS: Final = (400, 404, 405, 406, 415)
"""HTTP statuses of servers that do not know this revision, without a JSON-RPC error."""

_NOT_NOW: Final = (
    ErrorCode.UNAUTHORIZED,
    ErrorCode.SHUTTING_DOWN,
    ErrorCode.OVERLOADED,
    ErrorCode.INTERNAL_ERROR,
)
"""Errors that say nothing about revisions."""


class Client:
    """A connection to one server. Made by :func:`.connecting.connect`; its methods may be used
    concurrently.

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

        :param timeout, max_timeout: seconds, instead of the client's own; see
            :func:`.connecting.connect`.
        :param on_progress: called, and awaited if it is async, in this task with each update. What
            it raises cancels the call and comes out of here.

        Raises :class:`~trio_mcp.ServerError`, :class:`~trio_mcp.CallTimeout`,
        :class:`~trio_mcp.ConnectionLost`, :class:`~trio_mcp.ProtocolViolation`; ``ValueError`` or
        ``TypeError`` for arguments that JSON cannot hold.
        """
        pending = self._open_tool(name, arguments, self._timeouts.but(timeout, max_timeout))
        return read_tool_result(await pending.finish(on_progress))

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
        pending = self._open_tool(name, arguments, self._timeouts.but(timeout, max_timeout))
        try:
            yield ToolCall(pending)
        finally:
            pending.abandon("the caller left")

    def tools(self) -> AsyncIterator[Tool]:
        """All tools of the server, page after page.

        Raises :class:`~trio_mcp.ProtocolViolation` on a repeated cursor, or after ``Limits.pages``.
        """

        async def ask(cursor: str | None) -> tuple[list[Tool], str | None]:
            page = await self.tools_page(cursor)
            return page.tools, page.next_cursor

        return Pages("tools/list", ask, self._limits.pages)

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
        """End the connection without grace: leaving the block of
        :func:`.connecting.connect` then kills a
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
        self, name: str, arguments: Mapping[str, Any] | None, timeouts: Timeouts
    ) -> PendingCall:
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}, "_meta": self._meta}
        call = self._connection.open("tools/call", params, name)
        return PendingCall(self._connection, call, timeouts)

    async def _request(
        self, method: str, params: Mapping[str, Any], timeouts: Timeouts | None = None
    ) -> dict[str, Any]:
        call = self._connection.open(method, {**params, "_meta": self._meta})
        return await PendingCall(self._connection, call, timeouts or self._timeouts).finish()


def _supported(error: ServerError) -> tuple[str, ...]:
    data = error.data if isinstance(error.data, dict) else {}
    supported = data.get("supported")
    if not isinstance(supported, list):
        return ()
    return tuple(version for version in supported if isinstance(version, str))
