"""Caching hints of results. Specification: *Caching*."""

from __future__ import annotations

from typing import Literal

import attrs

__all__ = ["CacheHint"]


@attrs.frozen
class CacheHint:
    """How long a client may consider a result fresh, in seconds, and who may share it.

    ``"public"`` results hold nothing about a user and may be shared between callers. Raises
    ``ValueError`` for a negative ``ttl`` or another scope. Specification: *Caching*.
    """

    ttl: float = attrs.field(default=0.0, validator=attrs.validators.ge(0))
    scope: Literal["public", "private"] = attrs.field(
        default="private", validator=attrs.validators.in_(("public", "private"))
    )

    @property
    def ttl_ms(self) -> int:
        """Milliseconds, as they go out."""
        return int(self.ttl * 1000)
