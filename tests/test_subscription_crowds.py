"""Many listeners, over real sockets: however they go, nothing of them stays; and one that never
reads costs nothing to the others, and little to the server."""

from __future__ import annotations

import gc
import socket
import ssl
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
import trustme
from tests.peers.channel_wires import LinePeer, Tcp, WebSocket
from tests.peers.http_wires import Http1Peer, HttpPeer, HypercornHttp1, HypercornHttp2, NativeHttp
from tests.peers.limited_server import ROOT, environment
from tests.peers.observed_server import Observed, Offering
from tests.peers.raw import lines, request, until
from tests.peers.raw_http import post
from tests.peers.wires import PATIENCE, InProcess, Peer

from trio_mcp import Limits

LINGER_NOT = struct.pack("ii", 1, 0)
WANTED: dict[str, Any] = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourceSubscriptions": ["shop://a", "shop://b", "shop://c"],
}


class Tls(Tcp):
    """Lines over TLS; a peer that leaves says no goodbye in TLS."""

    name = "tls"

    async def _serve(self, task_status: trio.TaskStatus[int]) -> None:
        authority = trustme.CA()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._trust = ssl.create_default_context()
        authority.configure_trust(self._trust)
        listeners = await trio.open_ssl_over_tcp_listeners(0, context, host="127.0.0.1")
        (listener,) = listeners
        assert isinstance(listener.transport_listener, trio.SocketListener)
        task_status.started(listener.transport_listener.socket.getsockname()[1])
        await trio.serve_listeners(self.server.serve_stream, listeners)

    async def _connect(self) -> Peer:
        stream = await trio.open_ssl_over_tcp_stream(
            "127.0.0.1", self.port, ssl_context=self._trust
        )
        peer = LinePeer(self, stream, stream)
        self.nursery.start_soon(peer.listen)
        return peer


@asynccontextmanager
async def one_server(*kinds: type[InProcess]) -> AsyncGenerator[list[InProcess], None]:
    """One server on several wires at once; in the end it is drained, and nothing may be left."""
    async with trio.open_nursery() as nursery:
        observed = Observed(Limits(drain=5))
        sites = [kind(nursery, {}) for kind in kinds]
        for site in sites:
            site.observed, site.server = observed, observed.server
            await site.begin()
        yield sites
        for site in sites:
            await site.shut_down()
        for site in sites:
            with trio.fail_after(PATIENCE):
                await site.ended.wait()
        nursery.cancel_scope.cancel("the test is over")


async def crowd(site: InProcess, peers: int, each: int) -> list[Peer]:
    """So many peers with so many subscriptions each, all of them acknowledged."""
    found = [await site.connect() for _ in range(peers)]
    for peer in found:
        for _ in range(each):
            await peer.start("subscriptions/listen", {"notifications": WANTED})
    for peer in found:
        for handle in peer.handles:
            await handle.notified()
    return found


async def by_cancelling(peer: Peer) -> None:
    for handle in peer.handles:
        await handle.cancel()


async def by_closing(peer: Peer) -> None:
    await peer.disconnect()


async def by_half_closing(peer: Peer) -> None:
    await peer.aclose()


async def by_resetting(peer: Peer) -> None:
    """With a TCP reset instead of an orderly end."""
    if isinstance(peer, Http1Peer):
        streams = [connection.stream for connection in peer._connections]
    else:
        assert isinstance(peer, LinePeer)
        assert isinstance(peer._send_stream, trio.SocketStream)
        streams = [peer._send_stream]
    for stream in streams:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    await peer.disconnect()


WAYS: list[tuple[type[InProcess], int, int, Callable[[Peer], Awaitable[None]]]] = [
    (Tcp, 2, 75, by_cancelling),
    (Tcp, 25, 2, by_closing),
    (Tcp, 25, 2, by_half_closing),
    (Tcp, 25, 2, by_resetting),
    (Tls, 25, 2, by_closing),
    (WebSocket, 2, 25, by_cancelling),
    (WebSocket, 25, 2, by_closing),
    (WebSocket, 25, 2, by_half_closing),
    (NativeHttp, 5, 20, by_cancelling),
    (NativeHttp, 2, 25, by_closing),
    (NativeHttp, 2, 25, by_resetting),
    (HypercornHttp1, 2, 25, by_cancelling),
    (HypercornHttp1, 2, 25, by_closing),
    (HypercornHttp2, 2, 50, by_cancelling),
    (HypercornHttp2, 2, 25, by_closing),
]
KINDS = (Tcp, Tls, WebSocket, NativeHttp, HypercornHttp1, HypercornHttp2)


async def test_a_thousand_listeners_dropped_in_every_way_leave_nothing() -> None:
    """Last of all, some whose process is killed, and some that the server leaves by itself."""
    assert sum(peers * each for _, peers, each, _ in WAYS) == 950
    async with one_server(*KINDS) as sites:
        server = sites[0].server
        subscriptions = server._subscriptions
        crowds = [
            (await crowd(site, peers, each), drop)
            for kind, peers, each, drop in WAYS
            for site in sites
            if type(site) is kind
        ]
        port = str(sites[0].port)
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "tests.peers.crowd_process", port, "50"],
            stdout=subprocess.PIPE,
            env=environment(),
            cwd=ROOT,
        )
        assert process.stdout is not None
        async with process.stdout as output:
            assert await output.receive_some() == b"listening\n"
            assert len(subscriptions) == 1000
            server.notify_resource_updated("shop://b")
            for peers, drop in crowds:
                for peer in peers:
                    for handle in peer.handles:
                        await handle.notified(2)
                async with trio.open_nursery() as nursery:
                    for peer in peers:
                        nursery.start_soon(drop, peer)
                server._changed("prompts")  # also while they go
                server.notify_resource_updated("shop://a")
            process.kill()
            await process.wait()
        await until(lambda: len(subscriptions) == 0, PATIENCE)
        assert subscriptions._watching == {}
        await until(lambda: server._core.inflight == 0, PATIENCE)
        assert len(server.journal) == 1000
        assert {record.state.name for record in server.journal} == {"CANCELLED"}
        stay = [peer for site in sites for peer in await crowd(site, 1, 10)]
        assert len(subscriptions) == 60
        for site in sites:
            await site.shut_down()
        for peer in stay:
            for handle in peer.handles:
                assert "result" in await handle.answer()
                if isinstance(peer, HttpPeer):
                    with trio.fail_after(PATIENCE):
                        await handle.over.wait()
            await peer.aclose()
            assert all(handle.after == [] for handle in peer.handles)
        for peers, _ in crowds:
            for peer in peers:
                await peer.aclose()
    assert len(subscriptions) == 0
    assert subscriptions._watching == {}
    assert list(server.scopes().walk())[1:] == []
    gc.collect()
    assert not [it for it in gc.get_objects() if type(it).__name__ == "Subscription"]


# One that never reads -----------------------------------------------------------------------------

URIS = [f"shop://{number}" for number in range(20)]
CHANGES = 10_000


def opening(kind: str) -> bytes:
    message = request(1, "subscriptions/listen", {"notifications": {"resourceSubscriptions": URIS}})
    return post(message) if kind == "http" else lines(message)


async def connect_narrow(port: int) -> trio.SocketStream:
    """A connection whose receive buffer is small, so that it is full soon."""
    sock = trio.socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await sock.connect(("127.0.0.1", port))
    return trio.SocketStream(sock)


def narrow(sock: trio.socket.SocketType) -> None:
    """Make the send buffer small; what a listening socket accepts inherits that."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)


class Reader:
    """A listener that looks at what it hears of."""

    def __init__(self, state: dict[str, int]) -> None:
        self.acknowledged = trio.Event()
        self.heard = 0
        self.seen: dict[str, int] = {}
        self._state = state

    async def listen(self, kind: str, port: int) -> None:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(opening(kind))
        rest = b""
        async with stream:
            async for data in stream:
                *found, rest = (rest + bytes(data)).split(b"\n")
                for line in found:
                    line = line.removeprefix(b"data: ").strip()
                    if line.startswith(b"{"):
                        self._hear(msgspec.json.decode(line))

    def _hear(self, message: Any) -> None:
        if message["method"] == "notifications/subscriptions/acknowledged":
            assert not self.acknowledged.is_set()
            self.acknowledged.set()
        else:
            assert self.acknowledged.is_set()
            uri = message["params"]["uri"]
            self.seen[uri] = self._state[uri]
            self.heard += 1


async def serve(kind: str, server: Offering, task_status: trio.TaskStatus[int]) -> None:
    if kind == "http":
        await server.serve_http(port=0, task_status=task_status)
        return
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    for listener in listeners:
        narrow(listener.socket)
    task_status.started(listeners[0].socket.getsockname()[1])
    await trio.serve_listeners(server.serve_stream, listeners)


@pytest.mark.parametrize("kind", ["tcp", "http"])
async def test_ten_thousand_changes_reach_99_listeners_beside_one_that_never_reads(
    kind: str,
) -> None:
    server = Offering("shop", version="1", limits=Limits(stall=600))
    subscriptions = server._subscriptions
    state = dict.fromkeys(URIS, 0)
    readers = [Reader(state) for _ in range(99)]
    async with trio.open_nursery() as nursery:
        port: int = await nursery.start(serve, kind, server)
        deaf = await connect_narrow(port)
        await deaf.send_all(opening(kind))
        await until(lambda: len(subscriptions) == 1)
        (ignored,) = subscriptions._live
        if kind == "http":
            (connection,) = server._core.connections
            narrow(connection._stream.socket)  # type: ignore[attr-defined]
        for reader in readers:
            nursery.start_soon(reader.listen, kind, port)
        for reader in readers:
            await reader.acknowledged.wait()
        assert len(subscriptions) == 100
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        most = 0
        for change in range(CHANGES):
            uri = URIS[change * 7 % len(URIS)]
            state[uri] += 1
            server.notify_resource_updated(uri)
            if change % 100 == 0:
                waiting = [len(subscription._pending) for subscription in subscriptions._live]
                most = max(most, sum(waiting))
                await trio.lowlevel.checkpoint()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await until(lambda: all(reader.seen == state for reader in readers), 60)
        assert set(state.values()) == {CHANGES // len(URIS)}
        assert all(reader.heard <= CHANGES for reader in readers)
        assert most <= 100 * len(URIS)
        assert 0 < len(ignored._pending) <= len(URIS)  # it really has not read
        assert peak - before < 16 * 1024 * 1024
        assert ignored._exchange.changes_sent + len(ignored._pending) < CHANGES
        await deaf.aclose()
        await until(lambda: len(subscriptions) == 99, 10)
        nursery.cancel_scope.cancel("the test is over")
    assert len(subscriptions) == 0
    assert subscriptions._watching == {}
