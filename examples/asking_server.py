"""A server that asks before it acts: ``python examples/asking_server.py`` serves it on stdin.

A handler that asks is run again from its beginning when the answer is there; what it wants to
remember from round to round goes into ``ctx.state``.
"""

from typing import Annotated, Literal

import attrs
import trio
from msgspec import Meta

from trio_mcp import Context, Elicit, Server, ToolError

server = Server("asking", version="1.0.0")

stock = {"Dune": 3, "Emma": 1}
orders: list[str] = []


@attrs.frozen
class Delivery:
    """Where a book goes."""

    street: Annotated[str, Meta(min_length=1, description="Street and number")]
    wrapping: Literal["none", "paper", "box"] = "none"
    day: Annotated[str, Meta(extra_json_schema={"format": "date"})] | None = None


@attrs.frozen
class Confirmation:
    """Whether to go on."""

    sure: bool


@server.tool
async def order_book(title: str, ctx: Context) -> str:
    """Order a book; asks where it goes, and then whether it is really wanted."""
    if title not in stock:
        raise ToolError(f"There is no {title!r}; there are {', '.join(stock)}.")
    if ctx.client_capabilities.elicitation is None:
        raise ToolError("This client cannot ask anybody where the book goes.")
    if "number" not in ctx.state:
        ctx.state["number"] = len(orders) + 1  # stays the same in the rounds that follow
    delivery = await ctx.elicit("delivery", f"Where shall {title!r} go?", Delivery)
    if delivery.content is None:
        return f"Nothing was ordered ({delivery.action})."
    question = f"Order {title!r} to {delivery.content.street}?"
    confirmation = await ctx.elicit("confirmation", question, Confirmation)
    if confirmation.content is None or not confirmation.content.sure:
        return f"Nothing was ordered ({confirmation.action})."
    # Nothing was changed before the last question: this runs once.
    stock[title] -= 1
    orders.append(title)
    return f"Order {ctx.state['number']}: {title!r}, wrapping: {delivery.content.wrapping}."


@server.tool
async def rate_books(ctx: Context) -> dict[str, bool]:
    """Ask about several books at once."""
    like = {"type": "object", "properties": {"like": {"type": "boolean"}}, "required": ["like"]}
    answers = await ctx.ask({title: Elicit(f"Do you like {title!r}?", like) for title in stock})
    return {title: answer.content["like"] for title, answer in answers.items() if answer.accepted}


if __name__ == "__main__":
    trio.run(server.serve_stdio)
