"""Connections of the client over HTTP: used again if nothing is left on them, and only then."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
import trustme
from tests.peers.scripted import DISCOVERED
from tests.test_http_client import Post, Scripted, echo, scripted, text_of

from trio_mcp import AuthorizationRequired, CallTimeout, connect
from trio_mcp.transports.http import pool

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "


def answer(body: bytes) -> bytes:
    return OK + b"%d\r\n\r\n%b" % (len(body), body)


ERROR_OF_NOBODY = b'{"jsonrpc":"2.0","error":{"code":-32603,"message":"not yours"}}'


@pytest.mark.parametrize(
    "surplus",
    [
        answer(ERROR_OF_NOBODY),
        answer(ERROR_OF_NOBODY)[:-1],
        answer(b""),
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n",
        b"\r\n",
        b"H",
        b"\0",
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
async def test_what_is_left_behind_an_answer_is_not_taken_for_the_next(
    surplus: bytes, chunked: bool
) -> None:
    async def script(post: Post) -> None:
        body = post.text(post.tool)
        if post.tool != "too much":
            whole = answer(body)
        elif chunked:
            head = OK.replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\n\r\n")
            whole = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) + surplus
        else:
            whole = answer(body) + surplus
        await post.stream.send_all(whole)

    async with scripted(script) as (client, server):
        assert text_of(await client.call_tool("too much")) == "too much"
        assert client._connection.violations == 1
        assert text_of(await client.call_tool("next")) == "next"
        assert text_of(await client.call_tool("last")) == "last"
        assert [post.connection for post in server.calls()] == [1, 2, 2]
        assert client._connection.violations == 1


async def test_a_handshake_that_is_given_up_leaves_no_socket_open() -> None:
    """The first connection is served, and the others never get a word."""
    authority = trustme.CA()
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    ours = ssl.create_default_context()
    authority.configure_trust(ours)

    async def script(post: Post) -> None:
        await post.answer(post.text("once"), more="Connection: close\r\n")

    served = Scripted(script)
    hung_up = trio.Event()
    silent = iter([False])

    async def serve(stream: trio.SocketStream) -> None:
        if next(silent, True):
            while await stream.receive_some():
                pass
            hung_up.set()
            return
        tls: Any = trio.SSLStream(stream, theirs, server_side=True, https_compatible=True)
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await served.serve(tls)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        with trio.fail_after(10):
            async with connect(f"https://127.0.0.1:{port}/mcp", ssl_context=ours) as client:
                await client.call_tool("x")
                with pytest.raises(CallTimeout):
                    await client.call_tool("y", timeout=0.2)
                await hung_up.wait()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
async def test_an_answer_in_pieces_is_whole_and_leaves_nothing(size: int) -> None:
    async def script(post: Post) -> None:
        whole = answer(post.text("x" * 50))
        for start in range(0, len(whole), size):
            await post.stream.send_all(whole[start : start + size])
            await trio.testing.wait_all_tasks_blocked(0.0005)

    async with scripted(script) as (client, server):
        for _ in range(2):
            assert text_of(await client.call_tool("x")) == "x" * 50
        assert [post.connection for post in server.calls()] == [1, 1]
        assert client._connection.violations == 0


class Corked(trio.abc.Stream):
    """Sends what is written while it is corked in one piece."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.corked = False
        self._held = b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._held += data
        if not self.corked:
            data, self._held = self._held, b""
            await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


async def test_what_waits_encrypted_is_not_taken_for_the_next() -> None:
    """A second answer in a TLS record of its own has been received, and nobody has seen it."""
    authority = trustme.CA()
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(theirs)
    ours = ssl.create_default_context()
    authority.configure_trust(ours)
    calls: list[int] = []

    async def serve(stream: trio.SocketStream) -> None:
        corked = Corked(stream)
        tls = trio.SSLStream(corked, theirs, server_side=True)
        data = b""
        try:
            while True:
                while not data.endswith(b"}"):
                    data += (more := await tls.receive_some())
                    if not more:
                        return
                message = msgspec.json.decode(data.partition(b"\r\n\r\n")[2])
                data = b""
                if message["method"] == "server/discover":
                    await tls.send_all(answered(message["id"], DISCOVERED))
                    continue
                calls.append(id(stream))
                text = {"content": [{"type": "text", "text": str(message["id"])}]}
                corked.corked = message["params"]["name"] == "twice"
                await tls.send_all(answered(message["id"], {"resultType": "complete", **text}))
                if corked.corked:
                    corked.corked = False
                    await tls.send_all(answer(ERROR_OF_NOBODY))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def answered(request_id: int, result: dict[str, object]) -> bytes:
        message = {"jsonrpc": "2.0", "id": request_id, "result": result}
        return answer(msgspec.json.encode(message))

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        with trio.fail_after(10):
            address = f"https://localhost:{port}/mcp"
            async with connect(address, ssl_context=ours) as client:
                assert [text_of(await client.call_tool("once")) for _ in range(2)] == ["2", "3"]
                assert len(set(calls)) == 1
                assert client._connection.violations == 0
                assert text_of(await client.call_tool("twice")) == "4"
                assert client._connection.violations == 1
                assert text_of(await client.call_tool("once")) == "5"
                assert len(set(calls)) == 2
        nursery.cancel_scope.cancel()


# Proxies ------------------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize("scheme", ["", "http://"])
async def test_a_proxy_is_taken_from_the_environment(
    variable: str, scheme: str, environment: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        heads.append(await stream.receive_some())
        await stream.send_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        environment.setenv(variable, f"{scheme}us%65r:pass@localhost:{port}")
        with trio.fail_after(10):
            with pytest.raises(AuthorizationRequired):
                async with connect("http://mcp.example/mcp?a=b"):
                    pass
        nursery.cancel_scope.cancel()
    assert heads[0].startswith(b"POST http://mcp.example/mcp?a=b HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz\r\n" in heads[0]


@pytest.mark.parametrize("hosts", ["*", "127.0.0.1", "x.example, 127.0.0.1"])
async def test_but_not_for_hosts_that_need_none(
    hosts: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("HTTP_PROXY", "http://localhost:9")
    environment.setenv("NO_PROXY", hosts)
    async with scripted(echo) as (client, _):
        assert text_of(await client.call_tool("echo", {"text": "x"})) == "x"


async def test_an_address_of_a_proxy_that_is_none_is_told(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("ALL_PROXY", "ftp://localhost")
    with pytest.raises(ValueError, match="proxy"):
        async with connect("http://127.0.0.1:9/mcp"):
            pass


# A flood of small pieces --------------------------------------------------------------------------


class Pieces:
    """A response whose pieces have all come already."""

    @property
    def stream(self) -> AsyncGenerator[bytes]:
        return self._pieces()

    async def _pieces(self) -> AsyncGenerator[bytes]:
        for _ in range(100 * pool.TURN):
            yield b"x"


async def test_other_tasks_have_their_turn_while_pieces_are_taken() -> None:
    """And a cancellation does not leave a generator in its middle."""
    response: Any = Pieces()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        taken = [piece async for piece in pool._Answer(response)]
        assert turns > 50
        nursery.cancel_scope.cancel()
        assert [piece async for piece in pool._Answer(response)] == taken
    assert len(taken) == 100 * pool.TURN


async def test_what_is_read_at_once_is_bounded() -> None:
    asked: list[int] = []

    class Stream:
        async def read(self, max_bytes: int, timeout: float | None) -> bytes:
            asked.append(max_bytes)
            return b""

    stream: Any = Stream()
    watched = pool._Watched(stream, lambda: None)
    await watched.read(1000)
    await watched.read(10**9)
    assert asked == [1000, pool.READ]
