"""All tables of a run, as one page of Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ..contenders import ABSENT, NAMES, WIRES
from ..machine import BUSY, Machine
from ..plan import Plan
from ..samples import Key, Results
from .numbers import NOTHING, compared, number, ranged, table, times
from .targets import targets_table

__all__ = ["machine_lines", "page"]

_METRICS = {
    "calls per second": "calls_per_second",
    "latency, median, ms": "p50_ms",
    "latency, 99th percentile, ms": "p99_ms",
    "server CPU per call, µs": "cpu_us",
    "load generator busy, part of a core": "generator_busy",
}
_CROWD = {
    "all run after, s": "begin_s",
    "KiB per request": "memory_per_request_kib",
    "probe p50, ms": "probe_p50_ms",
    "p99": "probe_p99_ms",
    "longest": "probe_max_ms",
}
_END = {
    "one: p50, ms": "cancel_p50_ms",
    "p99": "cancel_p99_ms",
    "all: sent, s": "storm_sent_s",
    "next answer, s": "storm_probe_s",
    "handlers over, s": "storm_ended_s",
    "idle, s": "storm_idle_s",
    "late answers": "late_answers",
    "handlers left": "left_handlers",
    "descriptors left": "left_descriptors",
    "MiB kept": "left_mib",
    "MiB more with a third crowd": "again_mib",
}
_SEQUENCE = {"seconds": "sequence_s", "memory grew by, MiB": "growth_mib"}
_GROWTH = {
    "until all run": "begin_s",
    "until idle after all were cancelled": "storm_idle_s",
    "memory": "memory_bytes",
}
_NOT_COMPARED = ("calls_per_second", "generator_busy")
_START = {"first answer, s": "first_answer_s", "imports, s": "import_s"}


def page(results: Results, machine: Machine, plan: Plan) -> str:
    """What was measured, with its spread."""
    lines = [
        "# What was measured",
        "",
        *(f"- {line}" for line in machine_lines(machine)),
        f"- {plan.rounds} rounds, contenders in turn; a number is the median, in brackets are the "
        "least and the greatest. A ratio is taken within each round: of calls per second it is "
        "ours by theirs, of all else theirs by ours, so that more is better for us.",
        "- How it is measured is in [the README](../../README.md).",
    ]
    for heading, part in (
        ("Targets", targets_table(results)),
        ("Throughput and latency", _throughput(results)),
        ("Concurrency: crowds in flight", _crowds(results, _CROWD)),
        ("Cancellation", _crowds(results, _END)),
        ("Scaling", _scaling(results)),
        ("Requests in sequence", _sequences(results)),
        ("Start-up", _startup(results)),
        ("What is not there", _absent(results)),
        ("What failed", _failed(results)),
    ):
        lines += ["", f"## {heading}", "", *part]
    return "\n".join(lines) + "\n"


def machine_lines(machine: Machine) -> Iterator[str]:
    """What the numbers depend on."""
    busy = f", more than {BUSY:g}: **the machine was busy**" if machine.busy else ""
    yield (
        f"{machine.cpu}, {machine.cores} cores, {machine.kernel}, Python {machine.python}; load "
        f"average at the start {machine.load_average:g}{busy}; {machine.descriptors:,} descriptors "
        f"per process; commit {machine.commit or 'unknown'}"
    )
    for name, versions in machine.versions.items():
        yield f"{name}: " + ", ".join(f"{what} {version}" for what, version in versions.items())


def _throughput(results: Results) -> Iterator[str]:
    for wire, title in WIRES.items():
        names = _names(results, "throughput", wire)
        if not names:
            continue
        yield f"### {title}"
        for label, metric in _METRICS.items():
            sizes = _sizes(results, "throughput", wire, names, metric)
            if not sizes:
                continue
            yield ""
            head = [label, *(f"{size:,} in flight" for size in sizes)]
            rows = []
            for name in names:
                keys = [Key("throughput", wire, name, size, metric) for size in sizes]
                rows.append([NAMES[name], *(_cell(results, key) for key in keys)])
            if metric == "calls_per_second":
                rows += _ratios(results, wire, names, sizes)
            yield from table(head, rows)
        yield ""


def _ratios(
    results: Results, wire: str, names: Iterable[str], sizes: list[int]
) -> Iterator[list[str]]:
    for name in names:
        if name == "ours":
            continue
        ours = [Key("throughput", wire, "ours", size, "calls_per_second") for size in sizes]
        spreads = [results.ratio(key, key._replace(contender=name)) for key in ours]
        yield [f"trio-mcp : {NAMES[name]}", *map(times, spreads)]


def _crowds(results: Results, columns: dict[str, str]) -> Iterator[str]:
    for wire, title in WIRES.items():
        rows = []
        for name in _names(results, "crowd", wire):
            for size in _sizes(results, "crowd", wire, [name], *columns.values()):
                keys = [Key("crowd", wire, name, size, metric) for metric in columns.values()]
                rows.append([f"{NAMES[name]}, {size:,}", *(_crowd_cell(results, k) for k in keys)])
        if rows:
            yield from (f"### {title}", "", *table(["in flight", *columns], rows), "")


def _crowd_cell(results: Results, key: Key) -> str:
    """Who does not stop has no time in which it does."""
    if key.metric.startswith("cancel_p") and key._replace(metric="cancel_never") in results:
        return "never"
    if key.metric in ("storm_ended_s", "storm_idle_s") and key not in results:
        return "never" if results.median(key._replace(metric="left_handlers")) else NOTHING
    return _cell(results, key)


def _cell(results: Results, key: Key) -> str:
    if key.metric in _NOT_COMPARED or key.metric.startswith(("left_", "late_", "again_")):
        return ranged(results.spread(key))
    return compared(results, key)


def _scaling(results: Results) -> Iterator[str]:
    """The exponent of growth over two orders of magnitude: 1 is linear."""
    rows = []
    for wire, title in WIRES.items():
        for name in _names(results, "crowd", wire):
            sizes = results.sizes("crowd", wire, name, "begin_s")
            low, high = sizes[-1] // 100, sizes[-1]
            cells = [
                _exponent(results, wire, name, metric, low, high) for metric in _GROWTH.values()
            ]
            if any(cell != NOTHING for cell in cells):
                rows.append([f"{title}, {NAMES[name]}: {low:,} to {high:,}", *cells])
    yield "How the logarithm of each grows with that of the number in flight; 1 is linear growth."
    yield from ("", *table(["", *_GROWTH], rows))


def _exponent(results: Results, wire: str, name: str, metric: str, low: int, high: int) -> str:
    key = Key("crowd", wire, name, high, metric)
    ratio = results.ratio(key, key._replace(size=low))
    if ratio is None:
        return NOTHING
    return f"{math.log(ratio.median) / math.log(high / low):.2f}"


def _sequences(results: Results) -> Iterator[str]:
    rows = []
    for wire, title in WIRES.items():
        for name in _names(results, "sequence", wire):
            for size in _sizes(results, "sequence", wire, [name], "sequence_s"):
                if str(size).strip("0") == "1":
                    keys = [Key("sequence", wire, name, size, m) for m in _SEQUENCE.values()]
                    cells = [number(results.median(key)) for key in keys]
                    rows.append([f"{title}, {NAMES[name]}: {size:,} calls", *cells])
    yield from table(["one after the other", *_SEQUENCE], rows)


def _startup(results: Results) -> Iterator[str]:
    rows = []
    for wire, title in WIRES.items():
        for name in _names(results, "startup", wire):
            keys = [Key("startup", wire, name, 0, metric) for metric in _START.values()]
            rows.append([f"{title}, {NAMES[name]}", *(compared(results, key) for key in keys)])
    yield from table(["", *_START], rows)


def _absent(results: Results) -> Iterator[str]:
    measured = {key.contender for key, _ in results}
    for (name, wire), why in ABSENT.items():
        if name in measured:
            yield f"- {WIRES[wire]}, {NAMES[name]}: {why}."
    yield "- Crowds: fastmcp, which serves by the Python SDK; the raw limit does not cancel."
    yield (
        "- Crowds, HTTP SSE: the TypeScript SDK and the raw limit, which hold what they do for "
        "HTTP JSON until the first event."
    )


def _failed(results: Results) -> Iterator[str]:
    if not results.failures:
        yield "Nothing."
    for failure in results.failures:
        yield f"- {failure.measure}, {failure.contender}, round {failure.round}:"
        yield from ("", "  ```text", *(f"  {line}" for line in failure.words.splitlines()), "  ```")


def _names(results: Results, measure: str, wire: str) -> list[str]:
    found = {key.contender for key, _ in results if key[:2] == (measure, wire)}
    return [name for name in NAMES if name in found]


def _sizes(
    results: Results, measure: str, wire: str, names: Iterable[str], *metrics: str
) -> list[int]:
    found: set[int] = set()
    for name in names:
        for metric in metrics:
            found.update(results.sizes(measure, wire, name, metric))
    return sorted(found)
