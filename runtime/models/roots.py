"""Directories and files that a client shows to a server. Specification 2026-07-28: *Roots*.

That revision deprecates all of it: new servers take paths as arguments, URIs or configuration.
"""

from __future__ import annotations

from attrs import define

from .base import JSONObject

__all__ = ["ListRootsResult", "Root"]


@define
class Root:
    """A directory or file; `uri` is a ``file://`` URI."""

    uri: str
    name: str | None = None
    meta: JSONObject | None = None


@define
class ListRootsResult:
    """The answer to ``roots/list``."""

    roots: list[Root]
