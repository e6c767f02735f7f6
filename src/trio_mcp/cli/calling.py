"""``trio-mcp call``: one call, watched, and stopped when its user says so."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from ..client import Client
from ..client.calls import ToolCall
from ..runtime.errors import CallTimeout, TrioMcpError
from ..runtime.groups import leaf_of
from ..runtime.lifecycle import State
from ..runtime.models.tools import CallToolResult, Tool
from .arguments import parse_arguments
from .failure import FAILED, INTERRUPTED, TIMED_OUT, USAGE, CommandError
from .interrupts import Interrupts
from .printable import one_line
from .show import CallView, call_view, print_json, print_result
from .targets import Target, connected

__all__ = ["CallRequest", "call_tool"]

_NAMES_SHOWN: Final = 12
"""Names of tools that an error message offers."""


@attrs.frozen(kw_only=True)
class CallRequest:
    """What the user asked for. Times are in seconds, ``None`` for the client's defaults."""

    target: Target
    tool: str
    arguments: Sequence[str]
    timeout: float | None
    max_timeout: float | None
    cancel_after: float | None
    as_json: bool
    verbose: bool


async def call_tool(interrupts: Interrupts, request: CallRequest) -> int:
    """Make the call, print its result; the exit status."""
    async with connected(request.target, verbose=request.verbose) as client:
        interrupts.at_once = client.abort
        tool = await _find(client, request.tool)
        arguments = parse_arguments(request.arguments, tool.input_schema)
        async with client.start_tool(
            tool.name, arguments, timeout=request.timeout, max_timeout=request.max_timeout
        ) as call:
            with call_view(tool.name) as view:
                watched = _WatchedCall(call, view)
                interrupts.gently = watched.cancel
                result = await watched.outcome(request.cancel_after)
        if result is None:
            interrupts.leaving(request.target.leave)
            return interrupts.status or watched.status
        if request.as_json:
            print_json(result)
        else:
            print_result(result)
        return FAILED if result.is_error else 0


class _WatchedCall:
    """A call with its view. ``status`` says how it ended, if not with a result."""

    def __init__(self, call: ToolCall, view: CallView) -> None:
        self.status = INTERRUPTED
        self._call = call
        self._view = view

    def cancel(self, why: str) -> bool:
        """Ask for the end; ``False`` if it has come already."""
        if self._call.state is not State.RUNNING:
            return False
        self._call.cancel(why)
        self._view.stands("cancelling", why)
        return True

    async def outcome(self, cancel_after: float | None) -> CallToolResult | None:
        """The result; ``None`` if there is none, and ``status`` is to be the exit status."""
        self._view.stands("running")
        result = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._view.animate)
                if cancel_after is not None:
                    nursery.start_soon(self._cancel_after, cancel_after)
                result = await self._follow()
                nursery.cancel_scope.cancel("the call is over")
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None
        return result

    async def _follow(self) -> CallToolResult | None:
        call, view = self._call, self._view
        try:
            async for update in call.progress:
                view.progress(update)
            if call.cause is not None:  # cancelled: there will be no result
                await call.ended()  # not only cancelling: the server has been told
                view.stands("stopped")
                return None
            result = await call.result()
        except CallTimeout as error:
            self.status = TIMED_OUT
            view.stands("timed out", f"{error.limit} of {error.seconds:g} s")
            return None
        except TrioMcpError:
            view.stands("failed")
            raise
        view.stands("failed" if result.is_error else "done")
        return result

    async def _cancel_after(self, seconds: float) -> None:
        await trio.sleep(seconds)
        self.cancel(f"--cancel-after {seconds:g}")


async def _find(client: Client, name: str) -> Tool:
    tools = {tool.name: tool async for tool in client.tools()}
    if name in tools:
        return tools[name]
    names = [one_line(name) for name in tools]
    if not names:
        raise CommandError("the server offers no tools", USAGE)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"it has {_some(names)}"
    raise CommandError(f"the server has no tool {name!r}; {hint}", USAGE)


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"{shown}, … and {rest} more" if rest > 0 else shown
