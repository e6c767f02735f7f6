"""``trio-mcp tools``, ``resources`` and ``prompts``: what a server offers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from ..runtime.errors import ErrorCode, ServerError
from ..runtime.models.converter import unstructure
from .interrupts import Interrupts
from .show import print_json, print_prompts, print_resources, print_tools
from .targets import Target, connected

__all__ = ["all_of", "list_prompts", "list_resources", "list_tools"]

T = TypeVar("T")


async def list_tools(
    interrupts: Interrupts, target: Target, *, as_json: bool, verbose: bool
) -> int:
    """Print the tools of a server; the exit status."""
    async with connected(interrupts, target, "listing tools", verbose=verbose) as client:
        tools = await all_of(client.tools())
    if as_json:
        print_json(tools)
    else:
        print_tools(tools)
    return 0


async def list_resources(
    interrupts: Interrupts, target: Target, *, as_json: bool, verbose: bool
) -> int:
    """Print the resources of a server and its templates; the exit status."""
    async with connected(interrupts, target, "listing resources", verbose=verbose) as client:
        resources = await all_of(client.resources())
        templates = await all_of(client.templates())
    if as_json:
        print_json(
            {"resources": unstructure(resources), "resourceTemplates": unstructure(templates)}
        )
    else:
        print_resources(resources, templates)
    return 0


async def list_prompts(
    interrupts: Interrupts, target: Target, *, as_json: bool, verbose: bool
) -> int:
    """Print the prompts of a server; the exit status."""
    async with connected(interrupts, target, "listing prompts", verbose=verbose) as client:
        prompts = await all_of(client.prompts())
    if as_json:
        print_json(prompts)
    else:
        print_prompts(prompts)
    return 0


async def all_of(entries: AsyncIterator[T]) -> list[T]:
    """None, of a server that does not know of such a list: not every one has resources."""
    try:
        return [entry async for entry in entries]
    except ServerError as error:
        if error.code != ErrorCode.METHOD_NOT_FOUND:
            raise
        return []
