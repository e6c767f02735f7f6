"""What is aimed at, and what was reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..contenders import WIRES
from ..samples import Key, Results, Spread
from .numbers import NOTHING, ranged, table, times

__all__ = [
    "CHANNELS",
    "CHANNEL_KIB",
    "CROWD",
    "HTTP",
    "HTTP_KIB",
    "STORM_SECONDS",
    "Reached",
    "reached",
    "targets_table",
]

#: In flight where throughput over HTTP is looked at, and where it is on standard streams.
CONNECTIONS = 32
ON_STDIO = (32, 256)
#: Requests in flight of the targets for crowds.
CROWD = 10_000
CHANNELS = ("stdio", "tcp", "websocket")
HTTP = ("http-json", "http-sse")

OF_PYTHON_HTTP, OF_RAW_HTTP = 4.0, 0.5
OF_PYTHON_STDIO, OF_TYPESCRIPT_STDIO = 12.0, 3.0
CHANNEL_KIB, HTTP_KIB = 8.0, 18.0
STORM_SECONDS = 1.0
PROBE_MS = 5.0


@dataclass(frozen=True)
class Reached:
    """One target: the numbers by where they were measured, and whether all are good enough; that
    is `None` if one was not measured."""

    target: str
    numbers: dict[str, Spread | None]
    met: bool | None
    ratio: bool

    def cells(self) -> list[str]:
        """Its line of a table."""
        show = times if self.ratio else ranged
        texts = [f"{where} {show(spread)}".strip() for where, spread in self.numbers.items()]
        met = NOTHING if self.met is None else "yes" if self.met else "**no**"
        return [self.target, "; ".join(texts), met]


def targets_table(results: Results) -> list[str]:
    """All of them, in Markdown."""
    lines = table(["target", "reached", "met"], [one.cells() for one in reached(results)])
    lines[1] = "| --- | --- | --- |"
    return lines


def reached(results: Results) -> Iterator[Reached]:
    """All of them."""
    at = f"{CONNECTIONS} connections"
    yield _at_least(
        f"HTTP JSON, {at}: ≥ {OF_PYTHON_HTTP:g} × the Python SDK's best deployment",  # noqa: RUF001
        OF_PYTHON_HTTP,
        {"": _ratio(results, "http-json", CONNECTIONS, "official", "official-sse")},
    )
    yield _at_least(
        f"HTTP JSON, {at}: ≥ {OF_RAW_HTTP:g} × the raw limit",  # noqa: RUF001
        OF_RAW_HTTP,
        {"": _ratio(results, "http-json", CONNECTIONS, "bare")},
    )
    for bound, other, name in (
        (OF_PYTHON_STDIO, "official", "Python SDK"),
        (OF_TYPESCRIPT_STDIO, "typescript", "TypeScript SDK"),
    ):
        ratios = {f"{size}:": _ratio(results, "stdio", size, other) for size in ON_STDIO}
        sizes = " and ".join(map(str, ON_STDIO))
        text = f"stdio, {sizes} in flight: ≥ {bound:g} × the {name}"  # noqa: RUF001
        yield _at_least(text, bound, ratios)
    yield _at_most(
        results,
        f"memory per request in flight on a channel ≤ {CHANNEL_KIB:g} KiB",
        CHANNEL_KIB,
        "memory_per_request_kib",
        CHANNELS,
    )
    yield _at_most(
        results,
        f"memory per request in flight over HTTP ≤ {HTTP_KIB:g} KiB",
        HTTP_KIB,
        "memory_per_request_kib",
        HTTP,
    )
    yield _at_most(
        results,
        f"storm: {CROWD:,} cancelled at once, idle in < {STORM_SECONDS:g} s",
        STORM_SECONDS,
        "storm_idle_s",
        CHANNELS + HTTP,
    )
    yield _at_most(
        results,
        f"probe among {CROWD:,} in flight, 99th percentile < {PROBE_MS:g} ms",
        PROBE_MS,
        "probe_p99_ms",
        CHANNELS + HTTP,
    )


def _ratio(results: Results, wire: str, size: int, *others: str) -> Spread | None:
    ours = Key("throughput", wire, "ours", size, "calls_per_second")
    return results.ratio(ours, [ours._replace(contender=other) for other in others])


def _at_least(target: str, bound: float, ratios: dict[str, Spread | None]) -> Reached:
    met = _all(None if spread is None else spread.median >= bound for spread in ratios.values())
    return Reached(target, ratios, met, ratio=True)


def _at_most(
    results: Results, target: str, bound: float, metric: str, wires: Iterable[str]
) -> Reached:
    numbers: dict[str, Spread | None] = {}
    for wire in wires:
        key = _largest(results, wire, "ours", metric)
        where = WIRES[wire] if key.size in (0, CROWD) else f"{WIRES[wire]}, of {key.size:,},"
        numbers[where] = results.spread(key)
    met = _all(None if spread is None else spread.median <= bound for spread in numbers.values())
    return Reached(target, numbers, met, ratio=False)


def _largest(results: Results, wire: str, contender: str, metric: str) -> Key:
    """At the greatest number in flight that descriptors allowed."""
    sizes = results.sizes("crowd", wire, contender, metric)
    return Key("crowd", wire, contender, sizes[-1] if sizes else 0, metric)


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    found = list(verdicts)
    return None if None in found else all(found)
