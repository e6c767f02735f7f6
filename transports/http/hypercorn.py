"""Hypercorn's Trio worker around the ASGI carrier: HTTP/1.1 and HTTP/2.

Imported when it is used: ``hypercorn`` comes with the extra ``trio-mcp[http2]``.
"""

from __future__ import annotations

import socket
from typing import Final

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from ...runtime.groups import leaf_of
from ...runtime.limits import Limits
from ..listening import listen
from .asgi import AsgiApp

__all__ = ["serve_hypercorn"]

_NEVER: Final = 2**31


async def serve_hypercorn(
    app: AsgiApp,
    host: str,
    port: int,
    limits: Limits,
    *,
    certfile: str | None = None,
    keyfile: str | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen, report the bound port, and serve until cancelled or drained; then drain, in bounded
    time.

    With a certificate it speaks TLS; without, HTTP/2 is for clients that know of it beforehand.
    ``keyfile`` may be left out if ``certfile`` has the key too. Raises ``OSError`` where it cannot
    listen or cannot use a file.
    """
    listeners, bound = await listen(host, port)
    config = _config(limits)
    config.certfile, config.keyfile = certfile, keyfile if keyfile is not None else certfile
    for listener in listeners:
        _end_those_who_never_read(listener.socket, limits.stall)
    config.bind = [f"fd://{listener.socket.detach()}" for listener in listeners]
    server = _Server(app)
    draining = app.service.core.draining
    try:
        async with trio.open_nursery() as outer:
            # Not start(): that, cancelled before it has begun, would wait for a drain.
            outer.start_soon(server.run, config)
            try:
                await server.begun.wait()
                draining.enter(server)
                task_status.started(bound)
                await server.ended.wait()
            finally:
                if not server.ended.is_set():
                    server.drain(trio.current_time() + limits.drain)
    except BaseExceptionGroup as group:
        raise leaf_of(group) from None
    finally:
        draining.leave(server, drained=True)


class _Server:
    """A :class:`...runtime.draining.Serving`."""

    def __init__(self, app: AsgiApp) -> None:
        self.begun = trio.Event()
        self.ended = trio.Event()
        self._app = app
        self._drain_asked = trio.Event()

    def drain(self, deadline: float) -> None:
        self._app.service.drain(deadline)
        self._drain_asked.set()

    async def run(self, config: Config) -> None:
        stopping = trio.Event()
        with trio.CancelScope(shield=True):  # for as long as a drain may take
            async with trio.open_nursery() as nursery:
                await nursery.start(_serve, self._app, config, stopping)
                self.begun.set()
                await self._drain_asked.wait()
                await self._app.drained()
                stopping.set()
        self.ended.set()


async def _serve(
    app: AsgiApp, config: Config, stopping: trio.Event, task_status: trio.TaskStatus[object]
) -> None:
    await serve(
        app,  # type: ignore[arg-type]  # its events are typed more narrowly than ours
        config,
        shutdown_trigger=stopping.wait,
        task_status=task_status,
        mode="asgi",
    )


def _config(limits: Limits) -> Config:
    config = Config()
    config.loglevel = "WARNING"
    config.graceful_timeout = limits.drain
    config.shutdown_timeout = limits.drain + limits.longest_cleanup
    config.keep_alive_timeout = limits.http_idle_time
    config.keep_alive_max_requests = _NEVER  # it would end an HTTP/2 connection in its middle
    config.ssl_handshake_timeout = limits.http_head_time
    config.h11_max_incomplete_size = limits.http_head_bytes
    config.h2_max_header_list_size = limits.http_head_bytes
    return config


def _end_those_who_never_read(listening: trio.socket.SocketType, seconds: float) -> None:
    """Hypercorn's writing cannot be cancelled, so the system has to give up on it. Connections
    inherit the option from the socket that listens; Linux only."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))
