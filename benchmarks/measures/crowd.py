"""Many requests in flight that wait: what each costs, how another caller fares, and their end.

Crowds of growing size on one server. Of each: how long it takes until all their handlers run; how
much memory they take up; the latency of a probe, a cheap call of another caller, among them; and,
cancelled all at once, how long it takes until no handler runs, and what is left. In one of them
single requests are cancelled, too.
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
    """Crowds on one server, as long as all of each can be cancelled; on a fresh one after that."""
    sizes = [fitting(size, contender) for size in plan.crowds_of(contender, number)]
    while sizes:
        with ServerProcess(contender) as server, crowd(server, contender, plan.rest) as people:
            for _ in range(WARMUP):
                people.probe()
            idle = _Idle(server)
            while sizes:
                size = sizes.pop(0)
                yield from _wait(people, contender, plan, size, idle)
                if contender.name == "bare":
                    break  # it cannot cancel
                samples = dict(_end(people, contender, size, idle))
                yield from _named(contender, size, samples)
                if samples["left_handlers"]:
                    break


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


def _named(contender: Contender, size: int, numbers: dict[str, float]) -> Iterator[Sample]:
    for metric, value in numbers.items():
        yield Sample(Key("crowd", contender.wire, contender.name, size, metric), value)


def _wait(
    people: Crowd, contender: Contender, plan: Plan, size: int, idle: _Idle
) -> Iterator[Sample]:
    begun = people.grow(size)
    if contender.ours and contender.wire == "http-sse":
        time.sleep(STREAMS_OPEN)
    grown = people.server.resident() - idle.resident
    probes = [_probe(people) for _ in range(plan.probes)]
    yield from _named(
        contender,
        size,
        {
            "begin_s": begun,
            "memory_bytes": grown,
            "memory_per_request_kib": grown / size / 2**10,
            "idle_mib": idle.resident / 2**20,
            "probe_p50_ms": percentile(probes, 50),
            "probe_p99_ms": percentile(probes, 99),
            "probe_max_ms": max(probes),
        },
    )
    if size == plan.cancelled_among and contender.name != "bare":
        yield from _cancel_some(people, contender, plan.cancels, size)


def _probe(people: Crowd) -> float:
    began = time.perf_counter()
    people.probe()
    return (time.perf_counter() - began) * 1000


def _cancel_some(people: Crowd, contender: Contender, times: int, size: int) -> Iterator[Sample]:
    """From the wire event to the end of the handler, among the others; or never."""
    try:
        latencies = [people.time_cancel(f"cancel {n}") * 1000 for n in range(times)]
    except Unmoved:
        yield from _named(contender, size, {"cancel_never": 1.0})
        return
    people.await_alive(size)  # nobody else's request has ended
    yield from _named(
        contender,
        size,
        {
            "cancel_p50_ms": percentile(latencies, 50),
            "cancel_p99_ms": percentile(latencies, 99),
        },
    )


def _end(
    people: Crowd, contender: Contender, size: int, idle: _Idle
) -> Iterator[tuple[str, float]]:
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
