"""A handler that asks another HTTP server: cancelling its request closes that connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest
import trio
from tests.peers.bench import Bench
from tests.peers.raw import until

from trio_mcp import Context, State


class Upstream:
    """An HTTP server that sends ``begin`` and nothing more; sees when its client leaves."""

    def __init__(self, begin: bytes) -> None:
        self.port = 0
        self.asked = 0
        self.left = 0
        self._begin = begin

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Upstream]:
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self.port = listener.socket.getsockname()[1]
            nursery.start_soon(trio.serve_listeners, self._serve, [listener])
            yield self
            nursery.cancel_scope.cancel()

    async def _serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive_some()
            await stream.send_all(self._begin)
            self.asked += 1
            assert await stream.receive_some() == b""
            self.left += 1


@pytest.mark.parametrize(
    "begin",
    [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nsome"],
    ids=["before the head", "in the body"],
)
async def test_a_cancelled_request_closes_its_upstream_connection(begin: bytes) -> None:
    async with Upstream(begin).served() as upstream, httpx2.AsyncClient(timeout=None) as http:
        bench = Bench()
        record = await bench.cancel(lambda ctx: http.get(upstream.url), lambda: upstream.asked)
        await until(lambda: upstream.left)
    assert (record.state, record.cleanup) == (State.CANCELLED, "clean")


async def test_the_pool_that_handlers_share_stays_usable() -> None:
    """The cancelled request was the pool's only connection."""
    limits = httpx2.Limits(max_connections=1)
    async with (
        Upstream(b"").served() as silent,
        Upstream(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").served() as other,
        httpx2.AsyncClient(timeout=None, limits=limits) as http,
    ):
        await Bench().cancel(lambda ctx: http.get(silent.url), lambda: silent.asked)

        async def body(ctx: Context) -> str:
            return (await http.get(other.url)).text

        assert await Bench().run(body) == "ok"
