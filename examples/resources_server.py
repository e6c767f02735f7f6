"""A server with resources: fixed text, a function, a template, the files of a directory.

``python examples/resources_server.py`` serves standard input and output.
"""

from pathlib import Path

import attrs
import trio

from trio_mcp import CacheHint, Context, ResourceNotFound, Server

server = Server("bookshop", version="1.0.0")

server.add_resource("shop://hours", "9 to 17, but not on Sundays", title="Opening hours")

COPIES = {"Dune": 3, "Emma": 1}


@attrs.frozen
class Stock:
    """Copies of one book."""

    title: str
    copies: int


@server.resource("stock://all")
async def whole_stock() -> list[Stock]:
    """All books, as JSON."""
    return [Stock(title, copies) for title, copies in COPIES.items()]


@server.resource("stock://{title}{?at_least}", cache=CacheHint(ttl=10, scope="public"))
async def stock(title: str, at_least: int = 0) -> Stock:
    """One book, if there are so many copies of it."""
    copies = COPIES.get(title, 0)
    if not copies or copies < at_least:
        raise ResourceNotFound
    return Stock(title, copies)


@server.resource("cover://{title}", mime_type="image/svg+xml", timeout=5)
def cover(title: str) -> str:  # a plain def runs in a thread
    """A book's cover."""
    return f"<svg xmlns='http://www.w3.org/2000/svg'><!-- {len(title)} letters --></svg>"


@server.resource("report://year")
async def report(ctx: Context) -> str:
    """All sales of the year; takes a minute."""
    for month in range(12):
        ctx.progress(month, 12)
        await trio.sleep(5)  # a read that was given up ends here
    return "It was a good year."


server.add_directory(Path(__file__).parent, uri="examples:///", include=["*.py"])


if __name__ == "__main__":
    trio.run(server.serve_stdio)
