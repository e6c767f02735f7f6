"""A black-box probe of cancellation, for any MCP server: raw JSON-RPC over its own transport.

What each check does is in ``checks``; what its verdicts stand on in ``evidence``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import trio

from ..runtime.groups import leaf_of
from .checks import steps_for
from .pace import Pace
from .report import Check, Report
from .runner import Runner
from .speech import speech_of
from .subject import Subject
from .work import Work

__all__ = ["check_names", "probe"]


def check_names(transport: str, revision: str) -> list[str]:
    """The names of all checks of a transport, in order."""
    return [s.name for s in steps_for(transport, in_session=speech_of(revision).in_session)]


async def probe(
    subject: Subject,
    works: Sequence[Work],
    *,
    target: str,
    revision: str,
    server: str,
    tools: Sequence[Mapping[str, Any]],
    pace: Pace,
    witness: Work | None = None,
    effect: Path | None = None,
    pid: int | None = None,
    crowd: int = 100,
    only: Collection[str] = (),
    on_check: Callable[[str, Check | None], None] = lambda name, check: None,
) -> Report:
    """Probe a server; bounded in time.

    :param works: its slow tools, at least one; the first is used where it is not about the tool.
    :param tools: all of its tools, as they were listed.
    :param witness: a tool that says how many runs of the slow ones are alive.
    :param effect: a file that the slow tools change while they run, or at their end.
    :param pid: of the server's process, if it is on this machine and not launched by the probe.
    :param only: names of checks; all if there is none.
    :param on_check: called with a check's name when it begins, and with it when it has ended.

    Raises ``OSError`` or :class:`~.asked.ConversationLost` if there is no speaking with the server
    at all. Cancellation ends it at once; launched servers are killed.
    """
    speech = speech_of(revision)
    steps = steps_for(subject.transport, in_session=speech.in_session)
    checks: list[Check] = []
    try:
        async with trio.open_nursery() as nursery:
            runner = Runner(
                subject,
                speech,
                tools,
                nursery,
                pace=pace,
                witness=witness,
                effect=effect,
                pid=pid,
                crowd=crowd,
            )
            await runner.main()
            for step in steps:
                for work in works if step.each else works[:1]:
                    if only and step.name not in only:
                        continue
                    on_check(step.name, None)
                    checks.append(await runner.check(step, work))
                    on_check(step.name, checks[-1])
            await runner.leave_all()
            nursery.cancel_scope.cancel("the probe is over")
    except BaseExceptionGroup as group:
        raise leaf_of(group) from None
    return Report(
        target=target,
        transport=subject.transport,
        revision=revision,
        server=server,
        tools=tuple(work.tool for work in works),
        witness=witness.tool if witness is not None else None,
        checks=tuple(checks),
    )
