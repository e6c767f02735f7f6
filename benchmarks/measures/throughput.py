"""Calls per second, their latency, and the CPU time that they cost the server."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Iterator

from ..contenders import Contender
from ..load import wrk
from ..load.channel import Channel, Driven
from ..load.posting import Line, drive
from ..load.process import ROOT, STEP_LIMIT, LoadError, ServerProcess
from ..plan import Plan
from ..samples import Key, Sample, percentile

__all__ = ["measure"]

#: Calls whose answers are looked at as a whole, before and after.
SAMPLE = 20
#: How much the size of an answer under load may differ from that of one by itself.
TOLERANCE = 0.05
#: Calls that each connection makes at least, about: so slow servers are measured longer, for at
#: most so many seconds.
TURNS, MOST_SECONDS = 3, 6
#: Seconds in which a server that has something left to do would do some of it.
PAUSE = 0.02


def measure(contender: Contender, plan: Plan, number: int) -> Iterator[Sample]:
    """One server; the numbers in flight, one after the other."""
    if contender.wire == "memory":
        yield from _in_memory(contender, plan)
    elif contender.over_http:
        yield from _over_http(contender, plan)
    else:
        yield from _on_channel(contender, plan)


def _samples(contender: Contender, size: int, numbers: dict[str, float]) -> Iterator[Sample]:
    for metric, value in numbers.items():
        yield Sample(Key("throughput", contender.wire, contender.name, size, metric), value)


def _numbers(driven: Driven, cpu: float) -> dict[str, float]:
    return {
        "calls_per_second": driven.calls / driven.seconds,
        "p50_ms": percentile(driven.latencies, 50) * 1000,
        "p99_ms": percentile(driven.latencies, 99) * 1000,
        "cpu_us": cpu / driven.calls * 1e6,
        "generator_busy": driven.busy,
    }


def _on_channel(contender: Contender, plan: Plan) -> Iterator[Sample]:
    with ServerProcess(contender) as server:
        channel = Channel.to(server, contender)
        try:
            channel.ask_stock()
            channel.drive(32, plan.warmup)
            for size in plan.in_flight_of(contender):
                cpu = server.cpu()
                driven = channel.drive(size, plan.seconds)
                yield from _samples(contender, size, _numbers(driven, server.cpu() - cpu))
            called = float(channel.ask("calls"))
            if called != channel.answered + 1:
                raise LoadError(f"{channel.answered} answers to {called:.0f} calls")
        finally:
            channel.close()


def _over_http(contender: Contender, plan: Plan) -> Iterator[Sample]:
    search = contender.wire == "http-sse"
    with ServerProcess(contender) as server, Line(server) as line:
        usual = _check(line, search=search)
        seconds = plan.wrk_seconds
        if seconds:
            counted = wrk.run(server, 32, seconds, search=search)
        for size in plan.in_flight_of(contender):
            called, cpu = _calls(line), server.cpu()
            line.close()
            if seconds:
                longer = math.ceil(TURNS * size * counted.seconds / counted.answers)
                counted = wrk.run(
                    server, size, max(seconds, min(longer, MOST_SECONDS)), search=search
                )
                numbers = _counted(counted, server.cpu() - cpu)
                _check_count(counted, _calls(line) - called, size, usual)
            else:
                driven = drive(server, size, plan.seconds, search=search)
                numbers = _numbers(driven, server.cpu() - cpu)
            yield from _samples(contender, size, numbers)
        _check(line, search=search)


def _calls(line: Line) -> float:
    """How often the server was called, once it has done what ``wrk`` left when it hung up."""
    deadline = time.monotonic() + STEP_LIMIT
    count = math.nan
    while (now := float(line.ask("calls"))) != count and time.monotonic() < deadline:
        count = now
        time.sleep(PAUSE)
    return now


def _check(line: Line, *, search: bool) -> int:
    """Look at some whole answers; return the size of the last one if it was measured."""
    size = 0
    for _ in range(SAMPLE):
        if search:
            size = line.search()
        else:
            line.ask_stock()
    return size


def _check_count(counted: wrk.Counted, called: float, connections: int, usual: int) -> None:
    """``wrk`` looks at the status alone. What is under way when it hangs up may still run, and is
    not counted; answers with all their reports have their usual size."""
    if not -1 <= called - counted.answers <= 2 * connections:
        raise LoadError(f"the server ran {called:.0f} calls, wrk counted {counted}")
    size = counted.bytes / counted.answers
    if usual and abs(size / usual - 1) > TOLERANCE and counted.answers > 100 * connections:
        raise LoadError(f"an answer has {usual} bytes, but {size:.0f} under load")


def _counted(counted: wrk.Counted, cpu: float) -> dict[str, float]:
    return {
        "calls_per_second": counted.answers / counted.seconds,
        "p50_ms": counted.p50_ms,
        "p99_ms": counted.p99_ms,
        "cpu_us": cpu / counted.answers * 1e6,
        "generator_busy": counted.busy,
    }


def _in_memory(contender: Contender, plan: Plan) -> Iterator[Sample]:
    """Server, client and callers are one process, which measures itself."""
    sizes = plan.in_flight_of(contender)
    words = [str(plan.seconds), str(plan.warmup), *map(str, sizes)]
    done = subprocess.run(
        [*contender.command, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=STEP_LIMIT,
    )
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(sizes):
        raise LoadError(f"it said: {done.stdout}{done.stderr[-2000:]}")
    for size, line in zip(sizes, lines, strict=True):
        yield from _samples(contender, size, json.loads(line))
