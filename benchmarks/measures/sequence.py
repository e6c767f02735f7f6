"""One call after the other, on one connection: how long they take, and whether memory stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ..contenders import Contender
from ..load.channel import Channel
from ..load.posting import Line
from ..load.process import ServerProcess
from ..plan import Plan
from ..samples import Key, Sample

__all__ = ["measure"]

#: Calls before memory is read for the first time.
WARMUP = 200


def measure(contender: Contender, plan: Plan, number: int) -> Iterator[Sample]:
    """One server, the numbers of calls reached one after the other.

    `sequence_s` is the time of all calls so far, `growth_mib` the memory above what it was at the
    beginning.
    """
    with ServerProcess(contender) as server:
        caller = Line(server) if contender.over_http else Channel.to(server, contender)
        try:
            yield from _measure(contender, server, caller.ask_stock, plan)
        finally:
            caller.close()


def _measure(
    contender: Contender, server: ServerProcess, call: Callable[[], None], plan: Plan
) -> Iterator[Sample]:
    for _ in range(min(WARMUP, plan.sequences[0])):
        call()
    before = server.resident()
    made = 0
    spent = 0.0
    for target in plan.sequences_of(contender):
        begun = made
        for step in range(1, plan.steps + 1):
            began = time.perf_counter()
            goal = begun + (target - begun) * step // plan.steps
            for _ in range(goal - made):
                call()
            made = goal
            spent += time.perf_counter() - began
            for metric, value in (
                ("sequence_s", spent),
                ("growth_mib", (server.resident() - before) / 2**20),
            ):
                key = Key("sequence", contender.wire, contender.name, made, metric)
                yield Sample(key, value)
