"""A question that is answered on a web page, not in a form: ``python examples/paying.py``.

What the server must not do twice it remembers in ``ctx.state``; that the page was visited it finds
out from its own books, never from the client.
"""

import itertools

import trio

from trio_mcp import Context, Elicitation, ElicitResult, Server, connect

server = Server("bookshop", version="1.0.0", secret="take 32 random bytes", single_use_state=True)

numbers = itertools.count(1)
paid: set[int] = set()


@server.tool
async def buy(title: str, ctx: Context) -> str:
    """Buy a book. The handler runs again from here with each answer."""
    if "order" not in ctx.state:
        ctx.state["order"] = next(numbers)  # once, however many rounds follow
    order = ctx.state["order"]
    for attempt in range(3):
        url = f"https://pay.example.com/orders/{order}"
        answer = await ctx.elicit_url(f"payment {attempt}", f"Pay for {title!r} there.", url)
        if not answer.accepted:
            return f"Order {order} was dropped ({answer.action})."
        if order in paid:  # "accept" says that the user went there, not that they paid
            return f"Order {order}: {title!r} is yours."
    return f"Order {order} is still not paid."


visits = itertools.count()


async def visit(question: Elicitation) -> ElicitResult:
    """The user sees the whole address and who asks, agrees, and opens it in a browser."""
    print(f"{question.key}: {question.message} {question.url}")
    if next(visits) == 1:  # the first time they only had a look
        paid.add(1)
    return question.accept()


async def main() -> None:
    async with connect(server, on_elicit=visit, elicit_modes=["url"]) as client:
        print((await client.call_tool("buy", {"title": "Dune"})).text)
    async with connect(server, on_elicit=Elicitation.decline, elicit_modes=["url"]) as client:
        print((await client.call_tool("buy", {"title": "Emma"})).text)


if __name__ == "__main__":
    trio.run(main)
