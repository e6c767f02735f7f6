"""``trio-mcp call``: one call of a tool."""

from __future__ import annotations

from collections.abc import Sequence

from ..client import Client
from ..runtime.models.tools import Tool
from .arguments import parse_arguments
from .failure import FAILED, no_such
from .interrupts import Interrupts
from .listing import all_of
from .options import RequestOptions
from .questions import Questions
from .show import print_json_of, print_result
from .targets import Target, connected
from .watching import watch

__all__ = ["call_tool"]


async def call_tool(
    interrupts: Interrupts, target: Target, name: str, words: Sequence[str], request: RequestOptions
) -> int:
    """Make the call, print its result; the exit status."""
    questions = Questions(request)
    async with connected(
        interrupts, target, "listing tools", verbose=request.verbose, **questions.callbacks
    ) as client:
        tool = await _find(client, name)
        arguments = parse_arguments(words, tool.input_schema)
        started = client.start_tool(
            tool.name, arguments, timeout=request.timeout, max_timeout=request.max_timeout
        )
        result, status = await watch(
            interrupts, target, tool.name, started, questions, request.cancel_after
        )
        if result is None:
            return status
        if request.as_json:
            print_json_of(client, result)
        else:
            print_result(result)
        questions.tell_unasked()
        return FAILED if result.is_error else 0


async def _find(client: Client, name: str) -> Tool:
    tools = {tool.name: tool for tool in await all_of(client.tools())}
    if name in tools:
        return tools[name]
    raise no_such("tool", name, tools)
