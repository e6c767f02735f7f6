"""A port before a port: what goes through it has faults. For what opens its own connections."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import trio

from ..blocks import first_of
from .faults import Fault, check_schedule
from .faulty_stream import FaultsMissed, FaultyStream, reset

__all__ = ["FaultyRelay", "faulty_relay"]


class FaultyRelay:
    """What :func:`faulty_relay` gives: its own ``port``, and the ``connections`` so far, from the
    client's point of view."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections: list[FaultyStream] = []


@asynccontextmanager
async def faulty_relay(
    port: int,
    *,
    sending: Iterable[Fault] = (),
    receiving: Iterable[Fault] = (),
    must_happen: bool = True,
) -> AsyncGenerator[FaultyRelay, None]:
    """Listen on a free port of 127.0.0.1 and pass on, byte by byte, to another one, for the time of
    the block: for WebSockets, for programs in other languages, for a client that connects again.

    :param sending, receiving: faults of what the client sends and receives, for the first
        connection; those after it have none. :class:`.Body` is behind the first head of HTTP, that
        of a WebSocket's handshake, for one.
    :param must_happen: whether all of them have to happen; :class:`.FaultsMissed` if not.

    Either side's end is passed on as one. Cancelling ends it at once. Raises ``TypeError`` for what
    is no port, and no schedule.
    """
    _check_port(port)
    sends, receives = check_schedule(sending, http=True), check_schedule(receiving, http=True)
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            relay = FaultyRelay(listener.socket.getsockname()[1])

            async def serve(client: trio.SocketStream) -> None:
                first = not relay.connections
                server = FaultyStream(
                    await trio.open_tcp_stream("127.0.0.1", port),
                    sending=sends if first else (),
                    receiving=receives if first else (),
                    http=True,
                )
                relay.connections.append(server)
                await _relay_both(client, server)

            nursery.start_soon(trio.serve_listeners, serve, [listener])
            try:
                yield relay
            except BaseException as raised:
                failure = raised
            nursery.cancel_scope.cancel("the relay is over")
    except BaseExceptionGroup as group:
        failure = first_of(failure, group)
    if failure is not None:
        raise failure
    if must_happen:
        if relay.connections:
            relay.connections[0].check_happened()
        elif sends or receives:
            raise FaultsMissed("nothing has connected")


def _check_port(port: Any) -> None:
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise TypeError(
            f"faulty_relay takes the number of a port of 127.0.0.1, such as 8000, not {port!r:.80}"
        )


async def _relay_both(client: trio.SocketStream, server: FaultyStream) -> None:
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_relay, client, server, nursery.cancel_scope)
            nursery.start_soon(_relay, server, client, nursery.cancel_scope)
    finally:
        await reset(client)  # after an end in both directions that changes nothing any more
        await reset(server)


async def _relay(
    source: trio.abc.HalfCloseableStream,
    target: trio.abc.HalfCloseableStream,
    both: trio.CancelScope,
) -> None:
    try:
        while data := await source.receive_some():
            await target.send_all(data)
        await target.send_eof()
    except trio.BrokenResourceError:
        both.cancel("the connection broke")
