"""The server that applications write: tools in, wires out."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import trio

from .handlers.caching import CacheHint
from .handlers.discovery import Discovery
from .handlers.pagination import Cursors
from .handlers.tools import Tools, tool_failure
from .runtime.dispatch import Dispatcher, Method
from .runtime.eras.revision_2026_07_28 import VERSION, Revision20260728
from .runtime.journal import Journal
from .runtime.limits import Limits
from .runtime.models.base import (
    Icon,
    Implementation,
    PaginatedRequestParams,
    RequestParams,
    ServerCapabilities,
    ToolsCapability,
)
from .runtime.models.tools import CallToolRequestParams, ToolAnnotations
from .runtime.scopes import Scope
from .transports.http.endpoint import LOOPBACK, Endpoint
from .transports.http.native import serve_http
from .transports.serving import serve_wire
from .transports.stdio import serve_stdio
from .transports.wire import StreamWire, Wire

__all__ = ["Server"]

F = TypeVar("F", bound=Callable[..., Any])


class Server:
    """An MCP server of revision 2026-07-28.

    :param name: what the server calls itself.
    :param version: its own version.
    :param title: the name for people.
    :param instructions: for the model: how to use this server.
    :param website_url: where people find more.
    :param icons: for user interfaces.
    :param limits: every bound of the runtime.
    :param secret: seals cursors; without one they are good for this process only.
    :param cache: the caching hint of discovery and lists.

    Serve it with one of the ``serve_*`` methods, or several at once. Cancelling the scope around
    one of them drains: requests in flight may finish within ``Limits.drain``, the rest is cancelled
    with cause SHUTDOWN, and then ``trio.Cancelled`` goes on.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str,
        title: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Sequence[Icon] | None = None,
        limits: Limits | None = None,
        secret: str | bytes | None = None,
        cache: CacheHint | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.limits = limits = limits if limits is not None else Limits()
        info = Implementation(
            name=name,
            version=version,
            title=title,
            website_url=website_url,
            icons=list(icons) if icons else None,
        )
        cache = cache if cache is not None else CacheHint()
        self._core = Dispatcher(name, Revision20260728(info, limits.id_length), limits)
        self._tools = Tools(limits.page_size, Cursors(secret), cache)
        discovery = Discovery(
            [VERSION], ServerCapabilities(tools=ToolsCapability()), instructions, cache
        )
        self._core.methods.update(
            {
                "server/discover": Method(RequestParams, discovery.discover),
                "tools/list": Method(PaginatedRequestParams, self._tools.list),
                "tools/call": Method(
                    CallToolRequestParams,
                    self._tools.call,
                    target="name",
                    recover=tool_failure,
                    mirrored=self._tools.mirrored,
                ),
            }
        )

    # What it offers -------------------------------------------------------------------------------

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

    # Serving --------------------------------------------------------------------------------------

    async def serve_stdio(
        self,
        *,
        signals: bool = True,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve this process's standard input and output, until the input ends.

        Meanwhile descriptors 0 and 1 do not lead to the wire: what the process prints goes to
        standard error. With ``signals``, SIGINT and SIGTERM drain (specification: *stdio*).
        """
        await serve_stdio(self._core, signals=signals, task_status=task_status)

    async def serve_stream(self, stream: trio.abc.Stream) -> None:
        """Serve one peer over any Trio stream, one JSON-RPC message per line; closes the stream.

        ``await trio.serve_tcp(server.serve_stream, 9000, host="127.0.0.1")`` serves many.
        """
        await serve_wire(self._core, StreamWire.over(stream, self.limits.message_bytes))

    async def serve_http(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        path: str = "/mcp",
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        ssl_context: ssl.SSLContext | None = None,
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve Streamable HTTP until cancelled. ``await nursery.start(server.serve_http)`` returns
        the bound port once it listens; ``port=0`` takes a free one.

        :param path: of the MCP endpoint; ``/healthz`` beside it tells load balancers ``ready`` or
            ``draining``.
        :param hosts: names, or ``name:port``, that the ``Host`` header may have, besides ``host``
            and the loopback names; ``"*"`` for any. Others are answered 403.
        :param origins: origins of web pages that may ask, besides those of loopback names.
        :param ssl_context: serves TLS.

        A request is cancelled when its connection ends, or when the client closes its side of it,
        before and after the headers of the answer are out, with cause DISCONNECT (specification:
        *Streamable HTTP*, "Cancellation").
        """
        endpoint = Endpoint(path, (*LOOPBACK, host, *hosts), tuple(origins))
        await serve_http(
            self._core, host, port, endpoint, ssl_context=ssl_context, task_status=task_status
        )

    async def serve_websocket(
        self,
        host: str = "127.0.0.1",
        port: int = 8001,
        *,
        path: str = "/mcp",
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        ssl_context: ssl.SSLContext | None = None,
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve WebSockets until cancelled: one JSON-RPC message per text frame.

        ``await nursery.start(server.serve_websocket)`` returns the bound port once it listens;
        ``port=0`` takes a free one. The parameters are those of :meth:`serve_http`; who may not
        come in is answered 403 before the WebSocket is open. The subprotocol ``mcp`` is accepted if
        it is offered.

        Many requests share a connection; ``notifications/cancelled`` cancels one of them, the end
        of the connection all of them, with cause DISCONNECT.
        """
        # What few need and takes long to import.
        from .transports.websocket.serving import serve_websocket

        endpoint = Endpoint(path, (*LOOPBACK, host, *hosts), tuple(origins))
        await serve_websocket(
            self._core, host, port, endpoint, ssl_context=ssl_context, task_status=task_status
        )

    async def serve_wire(self, wire: Wire) -> None:
        """Serve one peer over a wire of your own; see :class:`~trio_mcp.transports.wire.Wire`."""
        await serve_wire(self._core, wire)

    # Looking inside -------------------------------------------------------------------------------

    @property
    def journal(self) -> Journal:
        """What happened to each request."""
        return self._core.journal

    def scopes(self) -> Scope:
        """The scope tree as it is now: connections, requests in flight, their threads."""
        return self._core.scopes()
