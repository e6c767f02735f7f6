"""The board that shows how each call stands: a live table on a terminal, elsewhere lines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import attrs
import trio
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..runtime.progress import ProgressUpdate

__all__ = ["STYLES", "Board", "PipedConsole", "Row", "board_on"]

STYLES: Final = {
    "waiting": "dim",
    "running": "cyan",
    "cancelling": "yellow",
    "stopped": "magenta",
    "done": "green",
    "timed out": "bright_red",
    "failed": "red",
}
"""How a call may stand, in the order of its life, and in which colour."""

_FRAME: Final = 0.1
"""Seconds from one picture to the next."""
_CELL: Final = 26
"""Least columns for one call: its tool, a short bar, how it stands."""
_BAR: Final = 16
"""Most columns of a bar."""


class PipedConsole(Console):
    """Lets its owner see that nobody reads any more, once: Rich would end the process itself."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise  # what Rich has caught, and calls this for


@attrs.define(eq=False)
class Row:
    """One call on the board."""

    number: int
    tool: str
    about: str
    how: str = "waiting"
    note: str = ""
    update: ProgressUpdate | None = None

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        if self.how == "done":
            return 1.0
        if self.update is None or not self.update.total:
            return 0.0
        return min(self.update.progress / self.update.total, 1.0)


class Board(Protocol):
    """Shows rows. Their owner changes ``update`` as it likes, and tells of all else."""

    def stands(self, row: Row, how: str, note: str = "") -> None:
        """A call stands differently now."""

    async def animate(self) -> None:
        """A task beside the calls, until it is cancelled."""


@contextmanager
def board_on(console: Console, rows: Sequence[Row]) -> Iterator[Board]:
    """A board for as long as the block runs; a live one leaves its last picture behind."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield _Lines(console)
        return
    picture = _Picture(rows)
    with Live(picture, console=console, auto_refresh=False) as live:
        yield _LiveBoard(live)


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._began_at = trio.current_time()

    def stands(self, row: Row, how: str, note: str = "") -> None:
        row.how, row.note = how, note
        line = f"{trio.current_time() - self._began_at:5.2f} s  #{row.number:<2} {row.tool} "
        line += f"({row.about}): {how}" + (f": {note}" if note else "")
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    async def animate(self) -> None:
        await trio.sleep_forever()


class _LiveBoard:
    def __init__(self, live: Live) -> None:
        self._live = live

    def stands(self, row: Row, how: str, note: str = "") -> None:
        row.how, row.note = how, note
        self._live.refresh()  # at once: some states last less than a frame

    async def animate(self) -> None:
        while True:
            self._live.refresh()
            await trio.sleep(_FRAME)


class _Picture:
    """All rows as a table of as many columns as the terminal's height asks for."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = max(console.height - 4, 1)  # the heading, two empty lines, the cursor's
        columns = min(
            max(math.ceil(len(self._rows) / height), 1), max(options.max_width // _CELL, 1)
        )
        lines = min(math.ceil(len(self._rows) / columns), height)
        gap = 2 if options.max_width >= columns * (_CELL + 2) else 1
        width = (options.max_width - gap * (columns - 1)) // columns
        grid = Table.grid(padding=(0, gap, 0, 0))
        for line in range(lines):
            grid.add_row(*(_cell(row, width) for row in self._rows[line::lines][:columns]))
        yield Group(self._heading(lines * columns), Text(), grid, Text())

    def _heading(self, shown: int) -> Text:
        counts = Counter(row.how for row in self._rows)
        heading = Text.assemble((f"{len(self._rows)} calls", "bold"), no_wrap=True)
        for how, style in STYLES.items():
            if counts[how]:
                heading.append(f"  {counts[how]} {how}", style)
        if shown < len(self._rows):
            heading.append(f"  (the first {shown} below)", "dim")
        return heading


def _cell(row: Row, width: int) -> Text:
    style = STYLES[row.how]
    state_width = max(map(len, STYLES))
    label_width = max(min(width - state_width - 2 - 4, len("print_catalogue 10 pages")), 1)
    bar_width = max(min(width - state_width - 2 - label_width, _BAR), 1)
    label = Text(row.tool)
    if label_width > len("print_catalogue"):
        label.append(f" {row.about}", "dim")
    label.truncate(label_width, overflow="ellipsis", pad=True)
    filled = round(row.share * bar_width)
    return Text.assemble(
        label,
        " ",
        ("━" * filled, style),
        ("━" * (bar_width - filled), "grey30"),
        " ",
        (f"{row.how:<{state_width}}", style),
    )
