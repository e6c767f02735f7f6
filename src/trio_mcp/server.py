"""The server that applications write: features in, wires out."""

from __future__ import annotations

import math
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from .features import Features
from .handlers.caching import CacheHint, check_cache
from .handlers.changes import ChangeBus, LocalBus
from .handlers.discovery import Discovery
from .handlers.input.request_state import RequestStates
from .handlers.input.rounds import HandlerRounds
from .handlers.pagination import Cursors
from .handlers.sealing import Secret
from .handlers.soundness import check_options, check_sendable, check_timeout
from .runtime.dispatch import Dispatcher, Method
from .runtime.draining import DrainReport, ServerState
from .runtime.eras.revision_2026_07_28 import VERSION, Revision20260728
from .runtime.exchange import Exchange
from .runtime.inflight import InFlight, in_flight
from .runtime.journal import Journal
from .runtime.lifecycle import CancelSource
from .runtime.limits import Limits, limits_or_default
from .runtime.models.base import Icon, Implementation, RequestParams
from .runtime.numbers import check_number, check_whole
from .runtime.offload.pools import check_pools
from .runtime.scopes import Scope
from .runtime.tracing import Tracing
from .transports.http.authentication import Authenticate, Authentication
from .transports.http.endpoint import LOOPBACK, Endpoint
from .transports.http.native import serve_http
from .transports.http.service import HttpService
from .transports.serving import serve_wire
from .transports.stdio import serve_stdio
from .transports.wire import StreamWire, Wire

if TYPE_CHECKING:
    from .transports.http.asgi import AsgiApp

__all__ = ["Server"]


class Server(Features):
    """An MCP server of revision 2026-07-28.

    :param name: what the server calls itself.
    :param version: its own version.
    :param title: the name for people.
    :param instructions: for the model: how to use this server.
    :param website_url: where people find more.
    :param icons: for user interfaces.
    :param limits: every bound of the runtime.
    :param timeout: seconds from its arrival for each request that a tool, a resource, a prompt or a
        completer serves; then it is cancelled with cause DEADLINE. One of their own, longer or
        shorter, goes before it; ``math.inf`` is for none.
    :param secret: seals cursors and the state of requests that take several rounds; without one
        they are good for this process only. Of a list, the first one seals and all of them open:
        that is how it is changed.
    :param single_use_state: accept the state of such a request once, and so no answers without one.
        What has been used is known to this process only.
    :param cache: the caching hint of discovery and lists.
    :param bus: carries changes to clients that listen, if not only this server's own; see
        :class:`~trio_mcp.ChangeBus`.
    :param tracing: makes a span of each request: :class:`trio_mcp.otel.OpenTelemetry`, for one.
    :param pools: thread pools besides the server's own, by name, with the number of their threads:
        ``{"database": 4}``. For ``@server.tool(pool="database")`` and ``ctx.run_sync``.

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
        timeout: float | None = None,
        secret: Secret | None = None,
        single_use_state: bool = False,
        cache: CacheHint | None = None,
        bus: ChangeBus | None = None,
        tracing: Tracing | None = None,
        pools: Mapping[str, int] | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.limits = limits = limits_or_default(limits)
        check_options(icons=icons)
        check_timeout(timeout)
        check_cache(cache)
        info = Implementation(
            name=name,
            version=version,
            title=title,
            website_url=website_url,
            icons=list(icons) if icons else None,
        )
        check_sendable(info, "the server")
        if instructions is not None and not isinstance(instructions, str):
            raise TypeError(f"instructions are a text, not {type(instructions).__name__}")
        cache = cache if cache is not None else CacheHint()
        era = Revision20260728(info, limits.id_length)
        core = Dispatcher(name, era, limits, tracing, check_pools(pools))
        core.timeout = timeout
        states = RequestStates(secret, limits, single_use=single_use_state)
        core.rounds = self._rounds = HandlerRounds(states)
        super().__init__(core, Cursors(secret), cache, bus if bus is not None else LocalBus())
        discovery = Discovery([VERSION], self.capabilities, instructions, cache)
        core.methods["server/discover"] = Method(RequestParams, discovery.discover)

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
        Returns when the peer has gone, which cancels its requests with cause DISCONNECT
        (specification: *Transports*, "Custom Transports").
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
        authenticate: Authenticate | None = None,
        challenge: str = "Bearer",
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
        :param authenticate: finds out who asks: called, and awaited if it is async, with the
            :class:`~trio_mcp.RequestHead` of each request for the endpoint, for at most
            ``Limits.authentication`` seconds. Returns a :class:`~trio_mcp.Principal`, which is
            ``ctx.principal`` then, or ``None``: answered 401 before its JSON is looked at. It may
            raise :class:`~trio_mcp.Unauthorized` with a challenge of its own.
        :param challenge: the ``WWW-Authenticate`` header of a 401.
        :param ssl_context: serves TLS.

        A request is cancelled when its connection ends, or when the client closes its side of it,
        before and after the headers of the answer are out, with cause DISCONNECT (specification:
        *Streamable HTTP*, "Cancellation").
        """
        service = self._http_service(path, (host,), hosts, origins, authenticate, challenge)
        await serve_http(service, host, port, ssl_context=ssl_context, task_status=task_status)

    def asgi(
        self,
        *,
        path: str = "/mcp",
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        authenticate: Authenticate | None = None,
        challenge: str = "Bearer",
    ) -> AsgiApp:
        """The HTTP endpoint as an ASGI 3 application, to be served by Hypercorn's Trio worker:
        over HTTP/2, or mounted next to another application.

        The parameters are those of :meth:`serve_http`; the name that the server listens on belongs
        into ``hosts``. ``path`` is below the place where the application is mounted. Under HTTP/2 a
        reset stream cancels its request and no other. To drain, ``await app.drain()`` before
        Hypercorn is stopped; Hypercorn by itself waits for ``Config.graceful_timeout`` and then
        cancels requests, which are answered with cause SHUTDOWN.

        What Hypercorn (0.18) does not allow, and :meth:`serve_http` does:

        - Over HTTP/1.1, a client that leaves is not noticed while bytes of a further request wait
          behind the one being served, until something has to be written: within
          ``Limits.http_silence + 2 * Limits.http_keep_alive`` seconds.
        - Over HTTP/2, a client can end the whole server with a WebSocket CONNECT and data behind it
          (an error of Hypercorn that nothing catches): not for clients that you do not know.
        - Over HTTP/2, events for a client that keeps its window closed pile up in Hypercorn: after
          ``Limits.bytes_per_connection`` bytes of them the request is STALLED.
        - Over HTTP/2, who sends the body of a refused request without end keeps that stream open.
        - A client that reads nothing holds Hypercorn's shutdown, unless the system ends its
          connection: see the page on HTTP for the socket option that makes it do so.
        - After ``Config.keep_alive_max_requests`` requests (1,000) Hypercorn ends an HTTP/2
          connection with what is in flight on it; set it high.
        - ``Limits.http_connections``, ``http_head_time`` and ``http_idle_time`` are Hypercorn's
          business.
        """
        from .transports.http.asgi import AsgiApp

        return AsgiApp(self._http_service(path, (), hosts, origins, authenticate, challenge))

    async def serve_websocket(
        self,
        host: str = "127.0.0.1",
        port: int = 8001,
        *,
        path: str = "/mcp",
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        authenticate: Authenticate | None = None,
        challenge: str = "Bearer",
        ssl_context: ssl.SSLContext | None = None,
        task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve WebSockets until cancelled: one JSON-RPC message per text frame.

        ``await nursery.start(server.serve_websocket)`` returns the bound port once it listens;
        ``port=0`` takes a free one. The parameters are those of :meth:`serve_http`; who may not
        come in is answered 403 or 401 before the WebSocket is open, and ``authenticate`` is asked
        once for a connection. The subprotocol ``mcp`` is accepted if it is offered.

        Many requests share a connection; ``notifications/cancelled`` cancels one of them, the end
        of the connection all of them, with cause DISCONNECT.
        """
        # What few need and takes long to import.
        from .transports.websocket.serving import serve_websocket

        service = self._http_service(path, (host,), hosts, origins, authenticate, challenge)
        await serve_websocket(
            self._core,
            host,
            port,
            service.endpoint,
            service.authentication,
            ssl_context=ssl_context,
            task_status=task_status,
        )

    def _http_service(
        self,
        path: str,
        here: Sequence[str],
        hosts: Sequence[str],
        origins: Sequence[str],
        authenticate: Authenticate | None,
        challenge: str,
    ) -> HttpService:
        if isinstance(hosts, str):
            raise TypeError(f"hosts are a list of texts: [{hosts!r}], not {hosts!r}")
        endpoint = Endpoint(path, (*LOOPBACK, *here, *hosts), origins)
        authentication = None
        if authenticate is not None:
            authentication = Authentication(authenticate, challenge)
        return HttpService(self._core, endpoint, authentication)

    async def serve_wire(self, wire: Wire) -> None:
        """Serve one peer over a wire of your own; see :class:`~trio_mcp.transports.wire.Wire`."""
        await serve_wire(self._core, wire)

    # Operating ------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether requests are taken: something serves, and no drain has begun."""
        return self.state == "ready"

    @property
    def state(self) -> ServerState:
        """``"idle"``: nothing serves; ``"ready"``; ``"draining"``: :meth:`drain` was called;
        ``"drained"``: and all has ended. That lasts for the rest of the Trio run."""
        return self._core.draining.state

    async def drain(self, limit: float | None = None) -> DrainReport:
        """Take no more requests, on any wire, and wait until all has ended; from any task of the
        application, in the run that serves.

        New requests are answered with error -31002, on HTTP with status 503, and ``/healthz`` says
        ``draining``, from this moment on. Those in flight have ``limit`` seconds
        (``Limits.drain``), then they are cancelled with cause SHUTDOWN. When clean-up is over and
        the answers are out, the ``serve_*`` calls return, without an exception, and so does this.
        A server that was drained serves no more in this Trio run: streams are closed at once, and
        ``serve_http`` and ``serve_websocket`` raise ``RuntimeError``. What :meth:`asgi` returned
        refuses, and whoever serves it is the application's to stop.

        Bounded: at most ``limit + Limits.longest_cleanup + Limits.cleanup + 2 * Limits.drain``
        seconds, whatever handlers do. What still runs then is in the report, and is logged as a
        warning of ``trio_mcp.server``: threads that do not stop; and requests whose handlers shield
        themselves, which Trio cannot end. A ``serve_*`` call does not return before these end.

        May be called again, also meanwhile: all wait for the same end, and an earlier one brings it
        forward. Cancelling it does not take it back: what is in flight is cancelled at once then,
        SHUTDOWN, and nobody waits. A handler that waits for it waits for itself, until ``limit``.

        Raises ``ValueError`` unless ``limit`` is a finite number that is not negative.
        """
        seconds = self.limits.drain if limit is None else limit
        check_number("limit", seconds)
        if not 0 <= seconds < math.inf:
            raise ValueError(f"limit is a finite number of seconds, not {limit!r}")
        return await self._core.draining.drain(seconds)

    def inflight(self) -> tuple[InFlight, ...]:
        """The requests in flight at this moment, the oldest first: those whose answer has not begun
        to go out, on whatever wire."""
        return tuple(in_flight(one) for one in sorted(self._core.exchanges(), key=_key_of))

    def cancel(self, key: int, reason: str | None = None) -> bool:
        """Cancel one request, whoever's it is, with cause OPERATOR; ``key`` is that of
        :meth:`inflight`, the journal and ``ctx.key``.

        Never waits: the request is answered with error -31003 and the reason, on HTTP with status
        200, once its clean-up is over. ``False`` if there is no such request, if it is over, or if
        it is being cancelled already: the first cause wins.

        In the event loop; from a thread ``trio.from_thread.run_sync(server.cancel, key)``. Raises
        ``TypeError`` for a key that is no whole number, and a reason that is no text.
        """
        check_whole("key", key)
        if reason is not None and not isinstance(reason, str):
            raise TypeError(f"reason is a text, not {reason!r:.80}")
        if reason is not None:
            reason = reason[: self.limits.text_length].encode(errors="backslashreplace").decode()
        for exchange in self._core.exchanges():
            if exchange.key == key:
                return exchange.cancel(CancelSource.OPERATOR, reason)
        return False

    # Looking inside -------------------------------------------------------------------------------

    @property
    def journal(self) -> Journal:
        """What happened to each request."""
        return self._core.journal

    def scopes(self) -> Scope:
        """The scope tree as it is now: connections, requests in flight, their threads."""
        return self._core.scopes()


def _key_of(exchange: Exchange) -> int:
    return exchange.key
