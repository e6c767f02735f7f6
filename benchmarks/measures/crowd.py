"""Many requests in flight that wait: what each costs, how another caller fares, and their end.

Crowds of several sizes. Of each: how long it takes until all their handlers run; how much memory
they take up; the latency of a probe, a cheap call of another caller, among them; and, cancelled all
at once, how long it takes until no handler runs, and what is left. In one of them single requests
are cancelled, too, and it comes again: memory that grows from the second time to the third is what
an end has left, for what the allocator keeps is used again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..contenders import Contender
from ..load.crowds import Crowd, Unmoved, crowd
from ..load.process import ServerProcess, most_descriptors
from ..plan import Plan
from ..samples import Key, Sample, percentile

__all__ = ["fitting", "measure"]

#: Calls before idle memory is read.
WARMUP = 200
#: Descriptors that a process needs besides those of a crowd's connections.
SPARE_DESCRIPTORS = 200
#: Seconds until our silent answers over HTTP have become event streams.
STREAMS_OPEN = 1.5


def measure(contender: Contender, plan: Plan, number: int) -> Iterator[Sample]:
    """A fresh server for each crowd."""
    for wanted in plan.crowds_of(contender, number):
        size = fitting(wanted, contender)
        with ServerProcess(contender) as server, crowd(server, contender, plan.rest) as people:
            for _ in range(WARMUP):
                people.probe()
            numbers = dict(_measure(people, contender, plan, number, size))
        for metric, value in numbers.items():
            yield Sample(Key("crowd", contender.wire, contender.name, size, metric), value)


def _measure(
    people: Crowd, contender: Contender, plan: Plan, number: int, size: int
) -> Iterator[tuple[str, float]]:
    idle = _Idle(people.server)
    yield from _wait(people, contender, plan, size, idle)
    if contender.name == "bare":
        return  # it cannot cancel
    among = size == plan.cancelled_among
    if among:
        yield from _cancel_some(people, plan.cancels)
    left = False
    for metric, value in _end(people, idle):
        yield metric, value
        left |= metric == "left_handlers" and value > 0
    if among and number == 1 and not left:
        yield "again_mib", _again(people, size, idle)


def _again(people: Crowd, size: int, idle: _Idle) -> float:
    """How many MiB more a third crowd takes up than the second."""
    people.grow(size)
    second = people.server.resident()
    people.storm(idle.descriptors)
    people.grow(size)
    return (people.server.resident() - second) / 2**20


def fitting(size: int, contender: Contender) -> int:
    """So many, or as many as descriptors allow: a connection each over HTTP."""
    if contender.over_http:
        return min(size, most_descriptors() - SPARE_DESCRIPTORS)
    return size


class _Idle:
    """What a warm server without requests in flight holds."""

    def __init__(self, server: ServerProcess) -> None:
        self.resident = server.resident()
        self.descriptors = server.descriptors()


def _wait(
    people: Crowd, contender: Contender, plan: Plan, size: int, idle: _Idle
) -> Iterator[tuple[str, float]]:
    yield "begin_s", people.grow(size)
    if contender.ours and contender.wire == "http-sse":
        time.sleep(STREAMS_OPEN)
    grown = people.server.resident() - idle.resident
    yield "memory_bytes", grown
    yield "memory_per_request_kib", grown / size / 2**10
    yield "idle_mib", idle.resident / 2**20
    probes = [_probe(people) for _ in range(plan.probes)]
    yield "probe_p50_ms", percentile(probes, 50)
    yield "probe_p99_ms", percentile(probes, 99)
    yield "probe_max_ms", max(probes)


def _probe(people: Crowd) -> float:
    began = time.perf_counter()
    people.probe()
    return (time.perf_counter() - began) * 1000


def _cancel_some(people: Crowd, times: int) -> Iterator[tuple[str, float]]:
    """From the wire event to the end of the handler, among the others; or never."""
    size = people.size
    try:
        latencies = [people.time_cancel(f"cancel {n}") * 1000 for n in range(times)]
    except Unmoved:
        yield "cancel_never", 1.0
        return
    people.await_alive(size)  # nobody else's request has ended
    yield "cancel_p50_ms", percentile(latencies, 50)
    yield "cancel_p99_ms", percentile(latencies, 99)


def _end(people: Crowd, idle: _Idle) -> Iterator[tuple[str, float]]:
    late = people.late
    storm = people.storm(idle.descriptors)
    yield "storm_sent_s", storm.sent
    yield "storm_probe_s", storm.answered
    if storm.ended is not None and storm.idle is not None:
        yield "storm_ended_s", storm.ended
        yield "storm_idle_s", storm.idle
    yield "left_handlers", storm.left
    yield "left_mib", (people.server.resident() - idle.resident) / 2**20
    yield "left_descriptors", people.server.descriptors() - idle.descriptors
    yield "late_answers", people.late - late
