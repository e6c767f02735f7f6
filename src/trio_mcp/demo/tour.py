"""A look around the shop: all sights, a line for each, held against what has to come."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import trio
from rich.console import Console
from rich.text import Text

from ..cli.interrupts import Interrupts
from ..runtime.errors import TrioMcpError
from ..runtime.limits import Limits
from .board import STYLES
from .shop import Shop, Wire, open_shop
from .sights import SIGHTS, Sight, Visitor

__all__ = ["look_around"]

SHOWROOM: Final = str(Path(__file__).with_name("showroom.py"))

_PATIENCE: Final = 5.0
"""Seconds that one sight may take."""
_FEATURE: Final = 14
_ASKED: Final = 28
_CAME: Final = 38
"""Columns. In a terminal that has not so many the three stand one below the other."""


async def look_around(console: Console, interrupts: Interrupts, over: Wire = "stdio") -> bool:
    """Open the showroom, see all there is, and close it; whether all was as it has to be."""
    console.print(Text("A look around the shop", "bold"))
    console.print()
    visitor = Visitor()
    callbacks = {"on_elicit": visitor.answer, "on_log": visitor.hear, "log_level": "notice"}
    complaints = []
    async with open_shop(SHOWROOM, over, Limits(), **callbacks) as shop:
        interrupts.at_once = shop.client.abort
        visitor.client = shop.client
        async with shop.client.listen(resources=["stock://Dune"], timeout=_PATIENCE) as changes:
            visitor.changes = changes
            for sight in SIGHTS:
                came = await _see(sight, visitor)
                _print(console, sight, came)
                if came != sight.expected:
                    complaints.append(f"{sight.feature}: expected {sight.expected!r}")
        shop.told = True  # the last sight is how it closes
    complaints += _about_its_end(shop)
    console.print()
    for complaint in complaints:
        console.print(Text(f"WRONG: {complaint}", "bold red"))
    if complaints and shop.log:
        console.print("The shop's log:", shop.log, markup=False, sep="\n")
    return not complaints


async def _see(sight: Sight, visitor: Visitor) -> str:
    """What comes, in words, whatever that is."""
    with trio.move_on_after(_PATIENCE):
        try:
            return await sight.see(visitor)
        except TrioMcpError as error:
            return f"{type(error).__name__}: {error}"
    return f"nothing within {_PATIENCE:g} s"


def _print(console: Console, sight: Sight, came: str) -> None:
    style = STYLES["done" if came == sight.expected else "failed"]
    if console.width > _FEATURE + _ASKED + _CAME - 1:
        asked = f"{sight.asked:<{_ASKED}}"
        line = Text.assemble((f"{sight.feature:<{_FEATURE}}", "bold"), asked, (came, style))
    else:
        line = Text.assemble((sight.feature, "bold"), f"\n  {sight.asked}\n  ", (came, style))
    console.print(line)


def _about_its_end(shop: Shop) -> list[str]:
    if shop.exit_status != 0:
        return [f"the showroom's process ended with status {shop.exit_status}"]
    return [] if shop.in_time else ["the showroom's process did not end in time"]
