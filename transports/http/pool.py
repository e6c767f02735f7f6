"""The connections of a client over HTTP, each of which is used again only if it is clean.

A server may write more than its answer. What is left over would be taken for the answer to the
next request on that connection, so such a connection is closed instead. ``httpx2`` does not look,
and takes no streams of ours; ``httpcore2`` below it does: so the pool is made here, of its public
parts.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final, cast
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2
import trio

from ...runtime.limits import Limits

__all__ = ["READ", "TURN", "http_client"]

TURN: Final = 32
"""Pieces of an answer that are handed on before other tasks have their turn."""

READ: Final = 16 * 1024
"""Bytes that are read at once: what they hold, however small its pieces are, is taken in one go."""

OnSurplus = Callable[[], None]

_FAILED: Final = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
)


def http_client(
    url: httpx2.URL, limits: Limits, ssl_context: ssl.SSLContext | None, on_surplus: OnSurplus
) -> httpx2.AsyncClient:
    """A pool of connections that sends what it is given, once, and follows nothing.

    A proxy is taken from the environment. There are no sessions, so no cookies are kept.

    :param on_surplus: called when a connection is given up because more than an answer has come.

    Raises ``ValueError`` for a proxy whose address is none.
    """
    pool = httpcore2.AsyncConnectionPool(
        ssl_context=_tls(url, ssl_context),
        proxy=_proxy_for(url),
        max_connections=limits.http_pool,
        max_keepalive_connections=limits.http_pool,
        keepalive_expiry=limits.http_reuse,
        network_backend=_Network(on_surplus),
    )
    return httpx2.AsyncClient(
        transport=_Transport(pool),
        timeout=None,  # a call has its own, which hold while it waits for a connection too
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )


def _tls(url: httpx2.URL, ssl_context: ssl.SSLContext | None) -> ssl.SSLContext:
    if ssl_context is not None:
        return ssl_context
    # Certificates are not loaded where they are of no use; this context trusts nobody.
    if url.scheme == "https":
        return httpx2.create_ssl_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _proxy_for(url: httpx2.URL) -> httpcore2.Proxy | None:
    named = getproxies()
    address = named.get(url.scheme) or named.get("all")
    if not address or proxy_bypass(url.host):
        return None
    proxy = httpx2.Proxy(address if "://" in address else f"http://{address}")
    return httpcore2.Proxy(str(proxy.url), auth=proxy.raw_auth)


class _Transport(httpx2.AsyncBaseTransport):
    """The pool, in the words of ``httpx2``."""

    def __init__(self, pool: httpcore2.AsyncConnectionPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=request.headers.raw,
            content=cast(httpx2.AsyncByteStream, request.stream),
            extensions=request.extensions,
        )
        try:
            response = await self._pool.handle_async_request(asked)
        except _FAILED as error:
            raise httpx2.TransportError(str(error)) from error
        return httpx2.Response(
            response.status,
            headers=response.headers,
            stream=_Answer(response),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Answer(httpx2.AsyncByteStream):
    """The body of a response as it comes."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        count = 0
        try:
            async for chunk in cast(AsyncIterable[bytes], self._response.stream):
                yield chunk
                count += 1
                if count % TURN == 0:  # not cancelled: that is for the innermost generator
                    await trio.lowlevel.cancel_shielded_checkpoint()
        except _FAILED as error:
            raise httpx2.TransportError(str(error)) from error

    async def aclose(self) -> None:
        await self._response.aclose()


class _Network(httpcore2.TrioBackend):
    """Opens connections that are watched."""

    def __init__(self, on_surplus: OnSurplus) -> None:
        self._on_surplus = on_surplus

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        stream = await super().connect_tcp(host, port, timeout, local_address, socket_options)
        return _Watched(stream, self._on_surplus)


class _Watched(httpcore2.AsyncNetworkStream):
    """A connection that knows whether more has come than an answer.

    Of what has come, the last byte is handed on only when more is asked for. Where it ends the
    answer it will be, since without it there is no whole one; where it does not, nobody asks, and
    it stays here. So nothing has to be known of where answers end.
    """

    def __init__(self, stream: httpcore2.AsyncNetworkStream, on_surplus: OnSurplus) -> None:
        self._stream = stream
        self._on_surplus = on_surplus
        self._last = b""
        self._asked = False  # what a SOCKS proxy says before the first request comes in one piece

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._last:
            data, self._last = self._last, b""
            return data
        data = await self._stream.read(min(max_bytes, READ), timeout)
        if self._asked and len(data) > 1:
            data, self._last = data[:-1], data[-1:]
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._asked = self._asked or buffer[:1].isalpha()
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            stream = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:  # the pool does not know of it yet
            with trio.CancelScope(shield=True) as scope:
                scope.cancel("the handshake has failed")
                await self._stream.aclose()
            raise
        return _Watched(stream, self._on_surplus)

    def get_extra_info(self, info: str) -> Any:
        """The pool asks an idle connection whether it ``is_readable``; then it is closed."""
        if info == "is_readable" and self._has_more():
            return True
        return self._stream.get_extra_info(info)

    def _has_more(self) -> bool:
        if not self._last:
            tls: ssl.SSLObject | None = self._stream.get_extra_info("ssl_object")
            if tls is None:
                return False
            try:
                self._last = tls.read(1)  # received, and not yet decrypted
            except ssl.SSLWantReadError:
                return False
            except ssl.SSLError:
                return True  # it has ended
        if self._last:
            self._on_surplus()
        return True
