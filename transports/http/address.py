"""Where a client connects to over HTTP, and with what: its address, headers of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httpx2

from ..hosts import check_host, check_port

__all__ = ["checked_headers", "url_of"]

_OURS: Final = frozenset(
    ("accept", "accept-encoding", "content-length", "content-type", "transfer-encoding")
)


def url_of(address: str) -> httpx2.URL:
    try:
        url = httpx2.URL(address)
    except httpx2.InvalidURL as error:
        raise ValueError(f"{address!r} is no address: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"{address!r} is no address of the form http://host:port/path")
    check_host(url.host)
    check_port(url.port)
    return url.copy_with(fragment=None)


def checked_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    for name, value in headers.items():
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"{name!r} is no name of a header")
        if name.lower() in _OURS or name.lower().startswith("mcp-"):
            raise ValueError(f"the header {name} is set by the transport")
        if not value.isascii() or not (value.replace("\t", " ") or " ").isprintable():
            raise ValueError(f"the value of the header {name} has characters that HTTP forbids")
    return [*headers.items()]
