"""Prompts, and completions for their arguments: ``python examples/prompts_server.py`` serves them
on stdin and stdout."""

from collections.abc import Mapping
from typing import Literal

import trio

from trio_mcp import PromptMessage, Server, TextContent

BOOKS = {
    "crime": ["Gaudy Night", "The Big Sleep", "The Nine Tailors"],
    "poetry": ["Ariel", "Leaves of Grass"],
}

server = Server("bookshop", version="1.0.0")


@server.prompt(title="Recommend books")
async def recommend(genre: Literal["crime", "poetry"], count: int = 3) -> str:
    """Ask for books to read next.

    Args:
        genre: What kind of book.
        count: How many.
    """
    return f"Recommend {count} {genre} books. We have {', '.join(BOOKS[genre])}."


@server.prompt
async def review(title: str, genre: Literal["crime", "poetry"] = "crime") -> list[PromptMessage]:
    """Talk about a book that was read."""
    return [
        PromptMessage("user", TextContent(f"I have read {title!r}. What do you make of it?")),
        PromptMessage("assistant", TextContent(f"Among {genre} it stands out, because")),
    ]


@server.completion(prompt="review", argument="title")
async def titles(typed: str, known: Mapping[str, str]) -> list[str]:
    """Of the genre, if that is known already."""
    await trio.sleep(0.1)  # looks into a catalogue; the next key stroke ends it here
    shelves = [BOOKS[known["genre"]]] if known.get("genre") in BOOKS else [*BOOKS.values()]
    return [title for shelf in shelves for title in shelf if typed.lower() in title.lower()]


if __name__ == "__main__":
    trio.run(server.serve_stdio)
