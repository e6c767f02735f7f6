"""Two tools, and all that can happen around a call of them: ``python examples/race.py``.

One of them is good wherever its customer cancels, but for one moment.
"""

import trio

from trio_mcp import Context, Server
from trio_mcp.testing import Action, race

holds: set[str] = set()


def make_server() -> Server:
    """Anew for each order of events, so that one cannot spoil the next."""
    holds.clear()
    server = Server("bookshop", version="1.0.0")
    server.tool(careful)
    server.tool(hasty)
    return server


async def careful(title: str, ctx: Context) -> str:
    """Hold a book while the customer pays."""
    holds.add(title)
    try:
        await trio.sleep(1)  # pays
        return f"Ordered {title!r}."
    finally:
        with ctx.cleanup(5):
            await release(title)


async def hasty(title: str, ctx: Context) -> str:
    """The same. Who thinks of a cancellation when all is paid?"""
    holds.add(title)
    try:
        await trio.sleep(1)  # pays
    except trio.Cancelled:
        with ctx.cleanup(5):
            await release(title)
        raise
    await release(title)
    return f"Ordered {title!r}."


async def release(title: str) -> None:
    """Let go of it."""
    await trio.sleep(0.1)  # a round trip
    holds.discard(title)


def is_released() -> bool:
    """What must be true whatever has happened."""
    return not holds


STOPS = [Action.CANCEL, Action.DISCONNECT, Action.SHUTDOWN]

if __name__ == "__main__":
    for tool in (careful, hasty):
        asked = tool.__name__, {"title": "Dune"}
        report = race(make_server, *asked, actions=STOPS, check=is_released, examples=20)
        print(report.describe())
    print("problems:", [(problem.kind, str(problem.order)) for problem in report.problems])

    # A tool of the library's own, which does as it is told: this tests the runtime.
    report = race([Action.CANCEL, Action.COMPLETE], examples=20)
    print("the runtime:", report.problems)
