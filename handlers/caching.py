"""Caching hints of results. Specification: *Caching*."""

from __future__ import annotations

import math
from typing import Any, Literal

import attrs

__all__ = ["CacheHint", "check_cache"]


def _ttl(_: Any, __: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"CacheHint.ttl is a number of seconds, not {value!r:.80}")
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"CacheHint.ttl must be finite and not below 0, not {value!r}")


def _scope(_: Any, __: attrs.Attribute[Any], value: Any) -> None:
    if value not in ("public", "private"):
        raise ValueError(f'CacheHint.scope is "public" or "private", not {value!r:.80}')


@attrs.frozen
class CacheHint:
    """How long a client may consider a result fresh, in seconds, and who may share it.

    ``"public"`` results hold nothing about a user and may be shared between callers. Raises
    ``ValueError`` or ``TypeError`` for another ``ttl`` than seconds, or another scope.
    Specification: *Caching*.
    """

    ttl: float = attrs.field(default=0.0, validator=_ttl)
    scope: Literal["public", "private"] = attrs.field(default="private", validator=_scope)

    @property
    def ttl_ms(self) -> int:
        """Milliseconds, as they go out."""
        return int(self.ttl * 1000)


def check_cache(cache: Any) -> None:
    """Raises ``TypeError`` for what is neither a hint nor ``None``."""
    if cache is not None and not isinstance(cache, CacheHint):
        raise TypeError(f"cache is a CacheHint(ttl=…, scope=…), not {cache!r:.80}")
