"""The native carrier: HTTP/1.1 on Trio streams, parsed by ``httptools``."""

from __future__ import annotations

import logging
import ssl

import trio

from ...runtime.groups import leaf_of
from ..listening import Listeners, open_listeners
from .clockwork import Clockwork
from .connection import HttpConnection
from .reader import Readers
from .service import HttpService

__all__ = ["serve_http"]

logger = logging.getLogger("trio_mcp.connection")


async def serve_http(
    service: HttpService,
    host: str,
    port: int,
    *,
    ssl_context: ssl.SSLContext | None,
    task_status: trio.TaskStatus[int],
) -> None:
    """Listen, report the bound port, and serve until cancelled or drained; then drain, in bounded
    time."""
    core = service.core
    core.enter_run()
    core.draining.check()
    listeners, bound = await open_listeners(host, port, ssl_context)
    server = _Server(service)
    try:
        async with trio.open_nursery() as outer:
            outer.start_soon(
                server.run, listeners
            )  # not start: cancelled, that would wait for ever
            try:
                await server.begun.wait()
                core.draining.enter(server)
                task_status.started(bound)
                await server.ended.wait()
            finally:
                if not server.ended.is_set():
                    server.drain(trio.current_time() + core.limits.drain)
    except BaseExceptionGroup as group:
        raise leaf_of(group) from None
    finally:
        core.draining.leave(server, drained=True)


class _Server:
    """All connections of one HTTP endpoint. A :class:`...runtime.draining.Serving`."""

    def __init__(self, service: HttpService) -> None:
        self.begun = trio.Event()
        self.ended = trio.Event()
        self._drain_asked = trio.Event()
        self._service = service
        self._accepting = trio.CancelScope()
        self._nursery: trio.Nursery
        self._clockwork: Clockwork
        self._readers: Readers

    def drain(self, deadline: float) -> None:
        self._service.drain(deadline)
        self._drain_asked.set()

    async def run(self, listeners: Listeners) -> None:
        """Serve until a drain is asked for. Shielded: connections outlive a cancelled scope, for as
        long as a drain may take."""
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._accept_all, listeners)  # closes them, whatever fails
                self._clockwork = Clockwork(self._nursery, self._service.core.limits)
                self._readers = Readers(self._nursery)
                self.begun.set()
                await self._drain_asked.wait()
                await self._service.drained()
                self._accepting.cancel("drained")
                await self._service.shut_down()
                self._nursery.cancel_scope.cancel("shut down")
        self.ended.set()

    async def _accept_all(self, listeners: Listeners) -> None:
        with self._accepting:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(self._accept, listener)

    async def _accept(
        self, listener: trio.SocketListener | trio.SSLListener[trio.SocketStream]
    ) -> None:
        async with listener:
            await trio.serve_listeners(
                self._serve_connection, [listener], handler_nursery=self._nursery
            )

    async def _serve_connection(self, stream: trio.abc.Stream) -> None:
        service = self._service
        if len(service) >= service.core.limits.http_connections:
            await trio.aclose_forcefully(stream)
            return
        connection = HttpConnection(service, self._clockwork, self._readers, stream)
        service.enter(connection)
        try:
            await connection.run()
        except Exception:
            logger.exception("%s ended by a bug", connection.label)
        finally:
            service.leave(connection)
