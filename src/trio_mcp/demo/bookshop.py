"""A bookshop: an example of a server, and the one that ``trio-mcp demo`` visits.

Serve it with ``trio-mcp run bookshop.py``, or look at it with ``trio-mcp tools bookshop.py``.

Each tool shows one way to be cancelled well:

* ``order_book`` awaits, and holds something that must be given back: a ``finally`` with a shielded,
  bounded clean-up.
* ``ship_order`` awaits, and has nothing to clean up: it needs no code for it at all.
* ``rebuild_index`` is a plain function in a thread: it asks between two books.
* ``print_catalogue`` is one that never asks. It runs to its end, and what it returns is dropped.
* ``refund`` fails in its own business: the model should read why.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import trio

from trio_mcp import Context, Record, ScopeKind, Server, State, ToolError

server = Server(
    "bookshop",
    version="1.0.0",
    instructions="Order books, have them shipped, ask for refunds. Every request may be cancelled.",
)

PAYMENT = {"card": 1.5, "transfer": 30.0}
"""Seconds that customers take to pay."""
COURIER = {"bicycle": 0.3, "ship": 3.0}
"""Seconds from one stop to the next."""

holds: Counter[str] = Counter()
"""Copies on hold, by title."""
rebuilds: set[int] = set()
"""The requests that rebuild the index. While there are any, the search is offline."""


# Orders -------------------------------------------------------------------------------------------


@server.tool
async def order_book(title: str, ctx: Context, pay_by: Literal["card", "transfer"] = "card") -> str:
    """Hold a copy of a book while the customer pays for it.

    :param title: which book.
    :param pay_by: a bank transfer takes its time.
    """
    holds[title] += 1
    try:
        ctx.progress(1, 3, "a copy is on hold")
        await take_payment(pay_by)
        ctx.progress(2, 3, "paid")
        return f"Ordered {title!r}."
    finally:
        with ctx.cleanup(5):  # shielded, bounded, recorded
            await release_hold(title)


async def take_payment(pay_by: str) -> None:
    """The customer is typing a number."""
    await trio.sleep(PAYMENT[pay_by])


async def release_hold(title: str) -> None:
    """A round trip to the stock system."""
    await trio.sleep(0.1)
    holds[title] -= 1


@server.tool
async def ship_order(
    title: str, ctx: Context, courier: Literal["bicycle", "ship"] = "bicycle"
) -> str:
    """Send a book on its way, and say where it is.

    :param title: which book.
    :param courier: a ship takes its time.
    """
    stops = ["packed", "picked up", "at the depot", "in town", "in your street", "at your door"]
    for done, stop in enumerate(stops, start=1):
        ctx.progress(done, len(stops), stop)
        await trio.sleep(COURIER[courier])
    return f"Delivered {title!r}."


@server.tool
async def refund(title: str, receipt: str | None = None) -> str:
    """Give the money back.

    :param receipt: the number on it.
    """
    await trio.sleep(0.6)  # looks through the drawer
    if receipt is None:
        raise ToolError(f"There is no refund for {title!r} without a receipt: pass its number.")
    return f"Refunded {title!r}."


# The back office ----------------------------------------------------------------------------------


@server.tool
def rebuild_index(titles: list[str], ctx: Context) -> str:
    """Take the search offline and rebuild its index, one book at a time."""
    rebuilds.add(ctx.key)
    try:
        for done, title in enumerate(titles, start=1):
            ctx.check_cancelled()
            ctx.progress(done, len(titles), title)
            index_book(title)
        return f"Indexed {len(titles)} books."
    finally:
        rebuilds.discard(ctx.key)  # nothing to await in a thread, so nothing to shield


def index_book(title: str) -> None:
    """Slow work with nothing to await."""
    time.sleep(0.2)


@server.tool
def print_catalogue(pages: int, ctx: Context) -> str:
    """Print the catalogue. The printer has no button to stop it."""
    for page in range(1, pages + 1):
        ctx.progress(page, pages, f"page {page}")
        time.sleep(0.4)
    return f"Printed {pages} pages."


# Closing time -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Account:
    """What became of the requests so far, and what of them is still there.

    :param completed: answered with a result.
    :param failed: answered with a failure of the tool.
    :param cancelled: cancelled, and stopped.
    :param late: outcomes that came after the cancellation and were dropped.
    :param cleanups: clean-ups that ran.
    :param unclean: clean-ups that failed, ran out of time, or were given up.
    :param holds: copies still on hold.
    :param rebuilds: rebuilds of the index that still keep the search offline.
    :param handlers: requests still in flight.
    :param threads: threads still at work.
    """

    completed: int
    failed: int
    cancelled: int
    late: int
    cleanups: int
    unclean: int
    holds: int
    rebuilds: int
    handlers: int
    threads: int


@server.tool(timeout=60)
async def audit(ctx: Context, patience: float = 10) -> Account:
    """Wait until nothing else is going on, then account for everything.

    :param patience: seconds to wait at most; what is still going on then is in the account.
    """
    with trio.move_on_after(patience), server.journal.subscribe() as endings:
        while any(still_there(ctx).values()):
            with trio.move_on_after(0.1):  # an ending may be told just before it is all over
                await anext(endings)
    calls = [record for record in server.journal if is_customers(record)]
    there = still_there(ctx)
    return Account(
        completed=sum(r.state is State.COMPLETED and not r.is_error for r in calls),
        failed=sum(r.state is State.FAILED or r.is_error for r in calls),
        cancelled=sum(r.state is State.CANCELLED for r in calls),
        late=sum(len(r.late) for r in calls),
        cleanups=sum(r.cleanups for r in calls),
        unclean=sum(r.cleanup not in (None, "clean") for r in calls),
        holds=holds.total(),
        rebuilds=len(rebuilds),
        handlers=there[ScopeKind.EXCHANGE],
        threads=there[ScopeKind.OFFLOAD],
    )


def still_there(ctx: Context) -> Counter[ScopeKind]:
    """How many requests are in flight, and threads at work, beside the one that asks."""
    found: Counter[ScopeKind] = Counter()
    for scope in server.scopes().walk():
        if scope.kind in (ScopeKind.EXCHANGE, ScopeKind.OFFLOAD) and scope.key != ctx.key:
            found[scope.kind] += 1
    return found


def is_customers(record: Record) -> bool:
    """Whether it is about a tool; discovery, lists and audits are not."""
    return record.method == "tools/call" and record.target != "audit"


if __name__ == "__main__":
    trio.run(server.serve_stdio)
