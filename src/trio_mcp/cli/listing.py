"""``trio-mcp tools``."""

from __future__ import annotations

from .interrupts import Interrupts
from .show import print_json, print_tools
from .targets import Target, connected

__all__ = ["list_tools"]


async def list_tools(
    interrupts: Interrupts, target: Target, *, as_json: bool, verbose: bool
) -> int:
    """Print the tools of a server; the exit status."""
    async with connected(target, verbose=verbose) as client:
        interrupts.at_once = client.abort
        tools = [tool async for tool in client.tools()]
    if as_json:
        print_json(tools)
    else:
        print_tools(tools)
    return 0
