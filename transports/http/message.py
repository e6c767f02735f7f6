"""What a carrier and the endpoint exchange: the head of a request, and whole answers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from .header_values import is_plain

__all__ = ["Answer", "RequestHead"]

_MIRRORS: Final = ("mcp-protocol-version", "mcp-method", "mcp-name")


def _only(values: list[str] | None) -> str | None:
    if values is None or len(values) != 1 or not is_plain(values[0]):
        return None
    return values[0]


@attrs.frozen
class RequestHead:
    """A request without its body. Names of ``headers`` are lower case, in the order they came;
    ``peer`` names the connection, as in records."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    peer: str
    _values: dict[str, list[str]] = attrs.field(init=False, eq=False, repr=False)

    @_values.default
    def _by_name(self) -> dict[str, list[str]]:
        values: dict[str, list[str]] = {}
        for name, value in self.headers:
            if name in values:
                values[name].append(value)
            else:
                values[name] = [value]
        return values

    @functools.cached_property
    def mirrors(self) -> tuple[str | None, str | None, str | None]:
        """The headers that say what the body says: version, method and name; ``None`` for one that
        is not there once, or that is not plain."""
        values = self._values
        version, method, name = map(values.get, _MIRRORS)
        return _only(version), _only(method), _only(name)

    def get(self, name: str) -> str | None:
        """The value of a header, several of one name joined by commas; ``None`` if absent. The name
        may be in any case."""
        values = self._values.get(name.lower())
        return None if values is None else ", ".join(values)

    def get_all(self, name: str) -> Sequence[str]:
        """The values of all headers of one name."""
        return tuple(self._values.get(name.lower(), ()))  # others will get the same


@attrs.frozen
class Answer:
    """A whole response. ``close``: the connection is of no further use; ``bare``: to HEAD."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    close: bool = False
    bare: bool = False

    def head(self) -> Iterable[tuple[str, str]]:
        """All its headers but those of the connection."""
        if self.body:
            yield "content-type", self.content_type
        if self.status != 204:
            yield "content-length", str(len(self.body))
        yield from self.headers
