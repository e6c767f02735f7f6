"""The bookshop's showroom: an example of a server with every feature, and the first one that
``trio-mcp demo`` visits.

Serve it with ``trio-mcp run showroom.py``, or look at it with ``trio-mcp tools showroom.py``.

What can be read, picked and asked for runs as tools do, and is cancelled as they are: see
``catalogue``. How to write tools that are cancelled well is what ``bookshop.py`` is about.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

import trio

from trio_mcp import Context, Limits, Record, ResourceNotFound, Server, ToolError

server = Server(
    "showroom",
    version="1.0.0",
    instructions="Look around: what is in stock is a resource, and changes when books are ordered.",
    limits=Limits(page_size=2),  # so that even these lists have pages
)

copies = {"Dune": 3, "Emma": 1, "Ulysses": 2, "Dracula": 1}
"""What is in stock, by title."""
lights: set[int] = set()
"""The requests that need light in the cellar."""


# To be read ---------------------------------------------------------------------------------------

server.add_resource("shop://hours", "9 to 17, but not on Sundays", title="Opening hours")


@dataclass(frozen=True)
class Stock:
    """Copies of one book."""

    title: str
    copies: int


@server.resource("stock://{title}")
async def stock(title: str) -> Stock:
    """How many copies of a book there are."""
    if title not in copies:
        raise ResourceNotFound
    return Stock(title, copies[title])


@server.resource("catalogue://{year}")
async def catalogue(year: int, ctx: Context) -> str:
    """An old catalogue. Somebody has to go down and look for it."""
    lights.add(ctx.key)
    try:
        ctx.progress(1, 3, "in the cellar")
        await trio.sleep(30)
        return f"All books of {year}."
    finally:
        with ctx.cleanup(5):  # whoever does not want it any more: nobody leaves the light on
            await trio.sleep(0.1)
            lights.discard(ctx.key)


@server.resource("shop://cellar")
async def cellar() -> str:
    """How it looks down there."""
    return "the light is on" if lights else "the light is off"


# To be picked -------------------------------------------------------------------------------------


@server.prompt
async def recommend(liked: str) -> str:
    """Ask for the book to read next.

    :param liked: a book that was a good one.
    """
    return f"After {liked}: {', '.join(title for title in copies if title != liked)}?"


@server.completion(prompt="recommend", argument="liked")
async def titles(typed: str) -> list[str]:
    """Those that begin like this."""
    return [title for title in copies if title.lower().startswith(typed.lower())]


# To be ordered ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gift:
    """How a gift is wrapped."""

    paper: Literal["plain", "stars"]


@dataclass(frozen=True)
class Receipt:
    """What was ordered.

    :param paper: that it is wrapped in, if it is a gift.
    """

    title: str
    paper: str | None


@server.tool
async def order(title: str, ctx: Context) -> Receipt:
    """Order a book, and say whether it is a gift."""
    if not copies.get(title):
        raise ToolError(f"There is no copy of {title!r}.")
    ctx.log("info", f"somebody wants {title}")
    paper = None
    if ctx.client_capabilities.elicitation is not None:
        # A question ends this run of the function: it runs again, from its beginning, with the
        # answer. So nothing is taken from the shelf before.
        gift = await ctx.elicit("gift", "A gift? Which paper?", Gift)
        paper = gift.content.paper if gift.content is not None else None
    copies[title] -= 1
    server.notify_resource_updated(f"stock://{title}")  # who listens looks again
    ctx.log("notice", f"{copies[title]} copies of {title} are left")
    return Receipt(title, paper)


# The office ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ending:
    """How a request ended, as the shop's journal has it.

    :param state: completed, failed or cancelled.
    :param cleanup: of one that was cancelled: clean, or what was wrong with it.
    :param trace: the trace that it belonged to.
    """

    state: str
    cleanup: str | None
    trace: str | None


@server.tool(timeout=10)
async def look_up(target: str) -> Ending:
    """Wait until a request has ended, and say how.

    :param target: what it was about: a tool, a prompt, the URI of a resource.
    """
    with server.journal.subscribe() as endings:
        while (record := newest(target)) is None:
            await anext(endings)
    return Ending(record.state.value, record.cleanup, record.trace_id)


def newest(target: str) -> Record | None:
    """The newest record about something."""
    return next((r for r in reversed(list(server.journal)) if r.target == target), None)


@server.tool
async def close_shop() -> str:
    """Close, as at SIGTERM: requests in flight may finish, and who listens is told.

    A server of yours asks who wants that (``ctx.principal``), or has no such tool.
    """
    signal.raise_signal(signal.SIGTERM)
    return "Good night."


if __name__ == "__main__":
    trio.run(server.serve_stdio)
