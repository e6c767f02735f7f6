"""The bookshop over stdio: a server as an application would write it, for interoperability tests.

Run it as ``python tests/peers/bookshop_server.py``.

| tool | what it does |
| --- | --- |
| `order_book(title, seconds)` | holds a copy for so long, and always releases the hold |
| `rebuild_index(titles)` | in a thread: reports progress for each title |
| `stock(title)` | structured content: the number of copies |
| `refuse()`, `crash()` | fail: by the shop's own rules, or by a bug |

Resources: ``shop://hours`` is text, ``shop://logo`` binary, ``stock://{title}{?branch}`` JSON.

Prompts: `recommend(genre, copies)`, with completions for `genre` by annotation, and
`review(title, author)`, with completers for both; and a completer for the template's `title`.

What happens is appended to the file that ``PEER_LOG`` names: ``hold TITLE``, ``release TITLE``. The
journal's records go to the file that ``JOURNAL_LOG`` names, as lines of JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Literal

import attrs
import trio

from trio_mcp import (
    Context,
    PromptMessage,
    Record,
    ResourceNotFound,
    Server,
    TextContent,
    ToolError,
)

__all__ = ["server"]

server = Server("bookshop", version="1.0.0", instructions="Ask for books by their title.")


@attrs.frozen
class Stock:
    """How many copies there are."""

    title: str
    copies: int


@server.tool
async def order_book(title: str, ctx: Context, seconds: float = 0) -> str:
    """Hold a copy of a book while the customer pays for it."""
    _note("PEER_LOG", f"hold {title}")
    try:
        await trio.sleep(seconds)
        return f"Ordered {title!r}."
    finally:
        with ctx.cleanup(5):
            await trio.sleep(0.01)
            _note("PEER_LOG", f"release {title}")


@server.tool
def rebuild_index(titles: list[str], ctx: Context) -> str:
    """Index all books anew."""
    for done, title in enumerate(titles, 1):
        ctx.check_cancelled()
        ctx.progress(done, len(titles), title)
    return f"Indexed {len(titles)} books."


@server.tool
async def stock(title: str) -> Stock:
    """How many copies of a book there are."""
    return Stock(title, len(title))


@server.tool
async def refuse() -> str:
    """Fail by the shop's own rules."""
    raise ToolError("the shop is closed; try again tomorrow")


@server.tool
async def crash() -> str:
    """Fail by a bug."""
    raise RuntimeError("the secret of the shop")


server.add_resource("shop://hours", "9 to 17", title="Opening hours")


@server.resource("shop://logo", mime_type="image/png")
def logo() -> bytes:
    """The shop's logo."""
    return b"\x89PNG\r\n\x1a\n"


@server.resource("stock://{title}{?branch}")
async def stock_of(title: str, branch: int = 1) -> Stock:
    """How many copies of a book a branch has."""
    if title == "Emma":
        raise ResourceNotFound
    return Stock(title, branch)


@server.prompt(title="Recommend a book")
async def recommend(genre: Literal["crime", "poetry", "politics"], copies: int = 1) -> str:
    """Ask for a book.

    Args:
        genre: What kind of book.
    """
    return f"Recommend {copies + 1} books of {genre}."


@server.prompt
def review(title: str, author: str = "nobody") -> list[PromptMessage]:
    """Talk about a book."""
    return [
        PromptMessage("user", TextContent(f"Review {title!r} by {author}.")),
        PromptMessage("assistant", TextContent("I have read it.")),
    ]


@server.completion(prompt="review", argument="title")
@server.completion(resource="stock://{title}{?branch}", argument="title")
async def titles(value: str) -> list[str]:
    """300 books."""
    return [title for n in range(300) if (title := f"Dune {n}").startswith(value)]


@server.completion(prompt="review", argument="author")
def authors(value: str, arguments: Mapping[str, str]) -> list[str]:
    """Only those who have written the book."""
    return ["Frank Herbert"] if arguments.get("title", "").startswith("Dune") else []


def _note(variable: str, line: str) -> None:
    path = os.environ.get(variable)
    if path:
        with open(path, "a", encoding="utf-8") as log:
            log.write(line + "\n")


def _line(record: Record) -> str:
    cause = record.cause
    return json.dumps(
        {
            "id": record.request_id,
            "target": record.target,
            "state": record.state.name,
            "source": cause.source.name if cause is not None else None,
            "reason": cause.reason if cause is not None else None,
            "cleanup": record.cleanup,
            "peer": record.peer,
        }
    )


async def _write_journal(
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    with server.journal.subscribe() as records:
        task_status.started()
        async for record in records:
            _note("JOURNAL_LOG", _line(record))


async def main() -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(_write_journal)
        await server.serve_stdio()
        nursery.cancel_scope.cancel("nobody is left to serve")


if __name__ == "__main__":
    trio.run(main)
