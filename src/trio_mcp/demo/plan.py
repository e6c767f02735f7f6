"""What fifty customers of the bookshop want, and when they change their minds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

__all__ = ["PlannedCall", "plan"]

TITLES: Final = (
    "Dune", "Emma", "Ulysses", "Dracula", "Walden",
    "Candide", "Beloved", "Hamlet", "Solaris", "Middlemarch",
)  # fmt: skip

ARRIVAL: Final = 0.02
"""Seconds from one customer to the next."""
LONG_LIST: Final = TITLES * 10


@attrs.frozen(kw_only=True)
class PlannedCall:
    """One call. Times are in seconds.

    ``leaves_after``: the customer cancels, that long after the first sign of progress, so there is
    no doubt that the work had begun. ``timeout`` and ``max_timeout`` are the client's.
    """

    tool: str
    about: str
    arguments: dict[str, Any]
    leaves_after: float | None = None
    timeout: float | None = None
    max_timeout: float | None = None


def plan() -> list[tuple[float, PlannedCall]]:
    """All calls, grouped by tool, each with the time of its start: mixed, but always the same."""
    calls = [*_orders(), *_deliveries(), *_rebuilds(), *_catalogues(), *_refunds()]
    step = 7  # shares no factor with their number, so that every start is taken once
    return [(i * step % len(calls) * ARRIVAL, call) for i, call in enumerate(calls)]


def _orders() -> Iterator[PlannedCall]:
    for title in TITLES:
        yield PlannedCall(tool="order_book", about=title, arguments={"title": title})
    for i, title in enumerate(TITLES):
        by_transfer = {"title": title, "pay_by": "transfer"}
        leaves_after, timeout = (0.5 + 0.4 * i, None) if i < 6 else (None, 0.3 * i)
        yield PlannedCall(
            tool="order_book",
            about=title,
            arguments=by_transfer,
            leaves_after=leaves_after,
            timeout=timeout,
        )


def _deliveries() -> Iterator[PlannedCall]:
    for title in TITLES[:8]:
        yield PlannedCall(tool="ship_order", about=title, arguments={"title": title})
    for i, title in enumerate(TITLES[:4]):
        by_ship = {"title": title, "courier": "ship"}
        leaves_after, max_timeout = (1.0 + i, None) if i < 2 else (None, 1.0 + i)
        yield PlannedCall(
            tool="ship_order",
            about=title,
            arguments=by_ship,
            leaves_after=leaves_after,
            max_timeout=max_timeout,
        )


def _rebuilds() -> Iterator[PlannedCall]:
    for count in (4, 6, 8, 10):
        few = {"titles": TITLES[:count]}
        yield PlannedCall(tool="rebuild_index", about=f"{count} books", arguments=few)
    many, about = {"titles": LONG_LIST}, f"{len(LONG_LIST)} books"
    for leaves_after in (0.8, 1.6, 2.4):
        yield PlannedCall(
            tool="rebuild_index", about=about, arguments=many, leaves_after=leaves_after
        )
    yield PlannedCall(tool="rebuild_index", about=about, arguments=many, max_timeout=3.0)


def _catalogues() -> Iterator[PlannedCall]:
    yield PlannedCall(tool="print_catalogue", about="4 pages", arguments={"pages": 4})
    for leaves_after in (0.4, 0.8, 1.2):
        yield PlannedCall(
            tool="print_catalogue",
            about="10 pages",
            arguments={"pages": 10},
            leaves_after=leaves_after,
        )


def _refunds() -> Iterator[PlannedCall]:
    for title in TITLES[:6]:
        yield PlannedCall(tool="refund", about=title, arguments={"title": title})
