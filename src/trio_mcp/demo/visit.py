"""Fifty customers visit the bookshop at once; in the end both sides compare notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import trio
from rich.console import Console
from rich.text import Text

from ..cli.interrupts import Interrupts
from ..client import Client
from ..client.handles import ToolCall
from ..runtime.errors import CallTimeout, ServerError
from ..runtime.lifecycle import State
from ..runtime.limits import Limits
from ..runtime.models.content import TextContent
from ..runtime.models.tools import CallToolResult
from .board import STYLES, Board, PipedConsole, Row, board_on
from .plan import PlannedCall, plan
from .shop import Wire, open_shop
from .tour import look_around

__all__ = ["visit"]

BOOKSHOP: Final = str(Path(__file__).with_name("bookshop.py"))


async def visit(interrupts: Interrupts, over: Wire = "stdio") -> int:
    """Look around, launch the shop, make all calls, print the summary; the exit status."""
    console = PipedConsole()
    if not await look_around(console, interrupts, over):
        return 1
    console.print(Text("Fifty customers at once", "bold"))
    console.print()
    planned = plan()
    rows = [Row(i, call.tool, call.about) for i, (_, call) in enumerate(planned, start=1)]
    async with open_shop(BOOKSHOP, over, Limits()) as shop:
        client = shop.client
        interrupts.at_once = client.abort
        with board_on(console, rows) as board:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(board.animate)
                async with trio.open_nursery() as customers:
                    for (arrives_at, call), row in zip(planned, rows, strict=True):
                        customers.start_soon(_serve, client, arrives_at, call, row, board)
                nursery.cancel_scope.cancel("all have left")
        console.print("Closing time: the shop waits until everything has stopped.")
        account = await _ask_for_account(client)
    summary = Summary(
        seen=Counter(row.how for row in rows),
        crossed=client.journal.late,
        account=account,
        exit_status=shop.exit_status,
        by_itself=shop.in_time,
        signalled=shop.signalled,
    )
    _print_summary(console, summary)
    if summary.complaints and shop.log:
        console.print("The shop's log:", shop.log, markup=False, sep="\n")
    return 1 if summary.complaints else 0


# One customer -------------------------------------------------------------------------------------


async def _serve(
    client: Client, arrives_at: float, planned: PlannedCall, row: Row, board: Board
) -> None:
    await trio.sleep(arrives_at)
    async with client.start_tool(
        planned.tool,
        planned.arguments,
        timeout=planned.timeout,
        max_timeout=planned.max_timeout,
    ) as call:
        board.stands(row, "running")
        async with trio.open_nursery() as nursery:
            has_begun = trio.Event()
            if planned.leaves_after is not None:
                nursery.start_soon(_leave, call, has_begun, planned.leaves_after, row, board)
            how, note = await _outcome(call, has_begun, row)
            board.stands(row, how, note)
            nursery.cancel_scope.cancel("the call is over")


async def _outcome(call: ToolCall, has_begun: trio.Event, row: Row) -> tuple[str, str]:
    """Follow a call to its end: how it stands then, and a note."""
    try:
        async for update in call.progress:
            row.update = update
            has_begun.set()
        if call.cause is not None:  # cancelled: there will be no result
            await call.ended()  # not only cancelling: the shop has been told
            return "stopped", ""
        result = await call.result()
    except CallTimeout as error:
        return "timed out", f"{error.limit} of {error.seconds:g} s"
    except ServerError as error:
        return "failed", str(error)
    return ("failed" if result.is_error else "done"), _text_of(result)


async def _leave(
    call: ToolCall, has_begun: trio.Event, seconds: float, row: Row, board: Board
) -> None:
    """The customer changes their mind."""
    await has_begun.wait()
    await trio.sleep(seconds)
    if call.state is State.RUNNING:
        call.cancel("the customer left")
        board.stands(row, "cancelling", "the customer left")


def _text_of(result: CallToolResult) -> str:
    return " ".join(block.text for block in result.content if isinstance(block, TextContent))


# Closing time -------------------------------------------------------------------------------------


async def _ask_for_account(client: Client) -> dict[str, int]:
    """The shop's own account of all calls; ``audit`` in the bookshop says what is in it."""
    account: dict[str, int] = (await client.call_tool("audit")).structured_content
    return account


@attrs.frozen(kw_only=True)
class Summary:
    """Both sides' counts. ``crossed`` answers were on their way when their call was given up.

    ``by_itself``: the server process has ended in time, once its input had ended; or at SIGTERM, if
    it was ``signalled``, since a server of a network has no such input.
    """

    seen: Counter[str]
    crossed: int
    account: dict[str, int]
    exit_status: int | None
    by_itself: bool
    signalled: bool = False

    @property
    def left_over(self) -> str:
        """What is still there and should not be."""
        found = {name: self.account[name] for name in ("holds", "rebuilds", "handlers", "threads")}
        return ", ".join(f"{count} {name}" for name, count in found.items() if count)

    @property
    def complaints(self) -> list[str]:
        """What is not as it must be; empty if all is well."""
        return list(self._complaints())

    def _complaints(self) -> Iterator[str]:
        seen, shop = self.seen, self.account
        if seen.keys() - {"done", "failed", "stopped", "timed out"}:
            yield f"some calls have not ended: {dict(seen)}"
        if shop["completed"] + shop["failed"] != seen["done"] + seen["failed"] + self.crossed:
            yield "the shop answered other calls than the customers saw answered"
        if shop["cancelled"] != seen["stopped"] + seen["timed out"] - self.crossed:
            yield "the shop stopped other calls than the customers gave up"
        if shop["unclean"]:
            yield f"{shop['unclean']} clean-ups were not clean"
        if self.left_over:
            yield f"left over: {self.left_over}"
        if self.exit_status != 0:
            yield f"the server process ended with status {self.exit_status}"
        elif not self.by_itself:
            yield (
                "the server process did not end in time after SIGTERM"
                if self.signalled
                else "the server process had to be told to end"
            )


def _print_summary(console: Console, summary: Summary) -> None:
    seen, shop, left_over = summary.seen, summary.account, summary.left_over
    console.print()
    for label, here, there, style in (
        ("", "customers", "the shop", "dim"),
        ("completed", seen["done"], shop["completed"], STYLES["done"]),
        ("failed", seen["failed"], shop["failed"], STYLES["failed"]),
        ("cancelled", f"{seen['stopped']} ┐", "", STYLES["stopped"]),
        ("timed out", f"{seen['timed out']} ┘", shop["cancelled"], STYLES["timed out"]),
        ("late answers dropped", "", shop["late"], ""),
        ("clean-ups run", "", shop["cleanups"], ""),
        ("left over", "", left_over or "none", "bold red" if left_over else ""),
    ):
        console.print(Text(f"{label:<22}{_in_column(here)}{_in_column(there)}".rstrip(), style))
    console.print()
    for complaint in summary.complaints:
        console.print(Text(f"WRONG: {complaint}", "bold red"))
    if not summary.complaints:
        how = "at SIGTERM" if summary.signalled else "by itself"
        console.print(f"Both sides agree. The server process has exited {how}, with status 0.")


def _in_column(value: object) -> str:
    """To the right, with room for a bracket."""
    text = str(value)
    return f"{text:>14}" if text.endswith(("┐", "┘")) else f"{text:>12}  "
