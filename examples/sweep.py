"""Two tools are cancelled at each of their checkpoints: ``python examples/sweep.py``.

One of them forgets what it has to do then.
"""

import trio

from trio_mcp import Context, Server
from trio_mcp.testing import cancel_sweep

holds: set[str] = set()


def make_server() -> Server:
    """Anew for each run, so that one run cannot spoil the next."""
    holds.clear()
    server = Server("bookshop", version="1.0.0")
    server.tool(careful)
    server.tool(careless)
    return server


async def careful(title: str, ctx: Context) -> str:
    """Hold a book while the customer pays."""
    holds.add(title)
    try:
        await trio.sleep(1)  # pays
        return f"Ordered {title!r}."
    finally:
        with ctx.cleanup(5):
            await trio.sleep(0.1)  # a round trip
            holds.discard(title)


async def careless(title: str) -> str:
    """The same, as it is written when nobody thinks of cancellation."""
    holds.add(title)
    await trio.sleep(1)  # pays
    holds.discard(title)
    return f"Ordered {title!r}."


if __name__ == "__main__":
    for tool in ("careful", "careless"):
        report = cancel_sweep(make_server, tool, {"title": "Dune"}, check=lambda: not holds)
        print(report.describe())
        print("problems:", [(problem.kind, problem.checkpoint) for problem in report.problems])
