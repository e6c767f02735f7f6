"""A rule that an order has shown not to hold."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from ..places import Place

__all__ = ["Breach", "RaceKind"]

RaceKind: TypeAlias = Literal[
    "terminal state",
    "answers",
    "spoke",
    "progress",
    "disagrees",
    "late outcome",
    "connection",
    "crashed",
    "unbounded",
    "leaked",
    "swallowed",
    "raised",
    "clean-up",
]
"""What an order can find wrong; see :class:`RaceProblem`."""


@attrs.frozen
class Breach:
    """A rule that does not hold. ``at`` is the event that breaks it, if it is one that does."""

    kind: RaceKind
    note: str
    at: int | None = None
    struck_at: Place | None = None  # where the cancellation has found the handler, if that matters
