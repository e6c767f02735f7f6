"""The end of a launched server's standard input."""

from __future__ import annotations

from typing import Final

from ..channel import Channel
from ..runner import Outcome, Runner, Step
from ..work import Work

__all__ = ["END_OF_INPUT"]

_SHUTDOWN: Final = "stdio, Shutdown"


async def _while_idle(runner: Runner, _: Work) -> Outcome:
    conversation = await runner.main()
    await runner.quick(conversation)
    return await _end(runner, conversation)


async def _while_running(runner: Runner, work: Work) -> Outcome:
    conversation = await runner.main()
    # Longer than all that is waited for: to exit when it has ended is no prompt exit.
    await runner.start(conversation, work, seconds=runner.pace.work + 4 * runner.pace.exit)
    return await _end(runner, conversation)


async def _end(runner: Runner, conversation: object) -> Outcome:
    assert isinstance(conversation, Channel)
    took = await conversation.end_of_input()
    process = conversation.process
    status = process.exit_status if process is not None else None
    await runner.leave()
    if took is None:
        ended = f"then SIGTERM, status {status}" if status is not None else "nor at SIGTERM"
        return Outcome("fail", f"no exit within {runner.pace.exit:g} s, {ended}", "process")
    return Outcome("pass", f"exit status {status} after {took:.2f} s", "process", took)


END_OF_INPUT: Final = (
    Step(
        "exits-running",
        "end standard input while a tool runs",
        _while_running,
        _SHUTDOWN,
        each=True,
    ),
    Step("exits-idle", "end standard input of an idle server", _while_idle, _SHUTDOWN),
)
