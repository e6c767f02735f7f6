"""Who asks: what an application has found out about the sender of a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

__all__ = ["Principal"]


def _names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(names)


@attrs.frozen
class Principal:
    """Made by the application's ``authenticate``; on ``ctx.principal``, by name in the journal.

    The runtime looks into none of it: what a principal may do is the handlers' business.
    Raises ``TypeError`` for a name that is no text.

    :param name: unique among those who may ask, for example a token's ``sub``.
    :param scopes: what it has been granted.
    :param claims: whatever else is known.
    """

    name: str = attrs.field(validator=attrs.validators.instance_of(str))
    scopes: frozenset[str] = attrs.field(default=frozenset(), converter=_names)
    claims: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
