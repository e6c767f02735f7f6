"""Compare trio-mcp with the official SDK over stdio: `python -m benchmarks.stdio`.

Both servers run in turns, under the same generator, and each number is the median of the rounds.
A machine that does other work at the same time makes the numbers worthless: see the load average
that is printed with them.
"""

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

if not __package__:  # started as a script: the folder above holds the package; this one hides
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the standard library's `http`

from benchmarks.load import Memory, Storm, Throughput, cancel_storm, memory, throughput

#: The servers to compare; each ratio says how much better the first is than the second.
SERVERS = {"ours": "benchmarks/stdio_ours.py", "official": "benchmarks/stdio_official.py"}
NAMES = {"ours": "trio-mcp", "official": "official SDK"}
PACKAGES = ("trio-mcp", "trio", "msgspec", "mcp", "anyio", "pydantic")


@dataclass(frozen=True, slots=True)
class Round:
    """What one round measured of one server."""

    throughput: Throughput
    memory: Memory
    storm: Storm


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    label: str
    value: Callable[[Round], float]
    digits: int
    more_is_better: bool = False


def rows(in_flight: int) -> list[Row]:
    """Return the lines of the table for so many calls in flight."""
    return [
        Row("tools/call per second", lambda r: r.throughput.per_second, 0, more_is_better=True),
        Row("latency, median, ms", lambda r: r.throughput.p50_ms, 2),
        Row("latency, 99th percentile, ms", lambda r: r.throughput.p99_ms, 2),
        Row("memory, idle, MiB", lambda r: r.memory.idle / 2**20, 1),
        Row("memory per call in flight, KiB", lambda r: r.memory.per_call / 2**10, 1),
        Row(f"cancel {in_flight:,}: next answer after, s", lambda r: r.storm.responsive, 3),
        Row(f"cancel {in_flight:,}: all ended after, s", lambda r: r.storm.ended, 3),
        Row(f"cancel {in_flight:,}: answers too late", lambda r: r.storm.late_answers, 0),
    ]


def measure(script: str, options: argparse.Namespace) -> Round:
    """Run every measurement once, each against a fresh server."""
    command = [sys.executable, "-P", script]  # or its own folder would hide `http`
    return Round(
        throughput(command, calls=options.calls, window=options.window),
        memory(command, in_flight=options.in_flight),
        cancel_storm(command, in_flight=options.in_flight),
    )


def table(results: dict[str, list[Round]], in_flight: int) -> Iterable[str]:
    """Yield the table's lines: medians, and the ratio if there are two servers."""
    compare = len(results) == 2
    yield "".join(
        [f"{'':38}", *(f"{NAMES[name]:>15}" for name in results), f"{'ratio':>10}" * compare]
    )
    for row in rows(in_flight):
        values = [statistics.median(map(row.value, rounds)) for rounds in results.values()]
        line = f"{row.label:38}" + "".join(f"{value:>15,.{row.digits}f}" for value in values)
        if compare and all(values):
            ours, theirs = values
            line += f"{ours / theirs if row.more_is_better else theirs / ours:>9.1f}x"
        yield line


def machine() -> Iterable[str]:
    """Yield what the numbers depend on."""
    yield from host()
    yield ", ".join(f"{package} {_version(package)}" for package in PACKAGES)


def host() -> Iterable[str]:
    """Yield what the numbers depend on, whatever is measured."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    yield f"{_processor()}, {os.cpu_count()} cores, load average {load}"
    yield f"{platform.system()} {platform.release()}, Python {platform.python_version()}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.stdio")
    parser.add_argument("--server", choices=SERVERS, help="measure only this one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=10_000, help="calls to time per round")
    parser.add_argument("--window", type=int, default=100, help="calls in flight meanwhile")
    parser.add_argument("--in-flight", type=int, default=5_000, help="for memory and storm")
    return parser.parse_args()


def main() -> None:
    """Measure, and print the table."""
    options = _options()
    for line in machine():
        print(line)
    names = [options.server] if options.server else list(SERVERS)
    results: dict[str, list[Round]] = {name: [] for name in names}
    for number in range(1, options.rounds + 1):
        for name in names:
            print(f"round {number}: {NAMES[name]}", file=sys.stderr, flush=True)
            results[name].append(measure(SERVERS[name], options))
    print(f"{options.calls:,} calls, {options.window} in flight; median of {options.rounds}")
    print()
    for line in table(results, options.in_flight):
        print(line)


if __name__ == "__main__":
    main()
