"""Where a client connects to over HTTP, and with what: its address, TLS, headers of the user's."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import httpx2

from ...runtime.limits import Limits
from ..hosts import check_host

__all__ = ["checked_headers", "http_client", "url_of"]

_OURS: Final = frozenset(
    ("accept", "accept-encoding", "content-length", "content-type", "transfer-encoding")
)


def http_client(
    url: httpx2.URL, limits: Limits, ssl_context: ssl.SSLContext | None
) -> httpx2.AsyncClient:
    """A pool of connections that sends what it is given, once, and follows nothing.

    Proxies are taken from the environment. There are no sessions, so no cookies are kept.
    """
    return httpx2.AsyncClient(
        verify=_tls(url, ssl_context),
        timeout=None,  # a call has its own, which hold while it waits for a connection too
        follow_redirects=False,
        limits=httpx2.Limits(
            max_connections=limits.http_pool,
            max_keepalive_connections=limits.http_pool,
            keepalive_expiry=limits.http_reuse,
        ),
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )


def url_of(address: str) -> httpx2.URL:
    try:
        url = httpx2.URL(address)
    except httpx2.InvalidURL as error:
        raise ValueError(f"{address!r} is no address: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"{address!r} is no address of the form http://host:port/path")
    check_host(url.host)
    return url.copy_with(fragment=None)


def _tls(url: httpx2.URL, ssl_context: ssl.SSLContext | None) -> ssl.SSLContext | bool:
    if ssl_context is not None:
        return ssl_context
    # Certificates are not loaded where they are of no use; this context trusts nobody.
    return True if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def checked_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    for name, value in headers.items():
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"{name!r} is no name of a header")
        if name.lower() in _OURS or name.lower().startswith("mcp-"):
            raise ValueError(f"the header {name} is set by the transport")
        if not value.isascii() or not (value.replace("\t", " ") or " ").isprintable():
            raise ValueError(f"the value of the header {name} has characters that HTTP forbids")
    return [*headers.items()]
