"""Compare trio-mcp with the official SDKs over HTTP: `python -m benchmarks.http`.

Ours on its native carrier against the official Python SDK on uvicorn and the TypeScript SDK on
node; ours against the official Python SDK on Hypercorn's Trio worker. The servers run in turns,
under the same generator, and each number is the median of the rounds. A machine that does other
work at the same time makes the numbers worthless: see the load average that is printed with them.

The peers are installed at first, into a folder that git ignores; `wrk` and node must be there.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks import peers
from benchmarks.http_load import Closes, HttpMemory, HttpThroughput, closes, memory, throughput
from benchmarks.load import ROOT
from benchmarks.stdio import host

from trio_mcp import Server

PACKAGES = (
    "trio",
    "msgspec",
    "httptools",
    "hypercorn",
    "mcp",
    "anyio",
    "pydantic",
    "starlette",
    "uvicorn",
    "uvloop",
)
MEASUREMENTS = ("throughput", "memory", "closes")


@dataclass(frozen=True, slots=True)
class Peer:
    """A server to measure.

    `name` and `carrier` head its column, `arguments` follow its program. `measured` says what is
    measured: an official SDK that answers with JSON does not see a close, or has no say in it.
    """

    name: str
    carrier: str
    arguments: Sequence[str]
    measured: frozenset[str]

    def command(self) -> list[str]:
        """What starts it; a free port is appended."""
        if self.arguments[0] == "node":
            return [peers.tool("node", "nodejs"), str(peers.node_folder() / "server.mjs")]
        # With -P, a program's own folder does not hide the standard library's `http`.
        program, *rest = self.arguments
        return [peers.python(), "-P", str(ROOT / "benchmarks" / program), *rest]


_ALL = frozenset(MEASUREMENTS)
PEERS = {
    "ours": Peer("trio-mcp", "native", ["http_ours.py", "native"], _ALL),
    "official": Peer(
        "official", "uvicorn", ["http_official.py", "uvicorn"], frozenset({"throughput", "memory"})
    ),
    "typescript": Peer("TypeScript", "node", ["node"], _ALL),
    "ours-hypercorn": Peer("trio-mcp", "Hypercorn", ["http_ours.py", "hypercorn"], _ALL),
    "official-hypercorn": Peer(
        "official",
        "Hypercorn",
        ["http_official.py", "hypercorn"],
        frozenset({"throughput", "memory"}),
    ),
    "bare": Peer("bare Trio", "stream", ["http_bare.py"], frozenset({"memory"})),
}


@dataclass(slots=True)
class Results:
    """What the rounds measured of one server."""

    throughput: list[HttpThroughput] = field(default_factory=list)
    memory: list[HttpMemory] = field(default_factory=list)
    closes: list[Closes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: the median over the rounds of one value of one measurement."""

    label: str
    values: Callable[[Results], list[float]]
    digits: int


ROWS = (
    Row("tools/call per second", lambda r: [m.per_second for m in r.throughput], 0),
    Row("server CPU per call, µs", lambda r: [m.cpu_us for m in r.throughput], 0),
    Row("latency, median, ms", lambda r: [m.p50_ms for m in r.throughput], 2),
    Row("latency, 99th percentile, ms", lambda r: [m.p99_ms for m in r.throughput], 2),
    Row("memory, idle, MiB", lambda r: [m.idle / 2**20 for m in r.memory], 1),
    Row(
        "memory per request in flight, KiB", lambda r: [m.per_request / 2**10 for m in r.memory], 1
    ),
    Row(
        "… after 8 s of silence, KiB", lambda r: [m.per_silent_request / 2**10 for m in r.memory], 1
    ),
    Row("close to finally, median, ms", lambda r: [m.p50_ms for m in r.closes], 2),
    Row("close to finally, 99th percentile, ms", lambda r: [m.p99_ms for m in r.closes], 2),
)


def measure(peer: Peer, results: Results, wrk: str, options: argparse.Namespace) -> None:
    """Run every measurement of a server once, each against a fresh process."""
    command = peer.command()
    wanted = peer.measured & set(options.only or MEASUREMENTS)
    if "throughput" in wanted:
        measured = throughput(
            command,
            wrk,
            connections=options.connections,
            seconds=options.seconds,
            warmup=options.warmup,
        )
        results.throughput.append(measured)
    if "memory" in wanted:
        results.memory.append(memory(command, in_flight=options.in_flight))
    if "closes" in wanted:
        results.closes.append(closes(command, in_flight=options.others, times=options.closes))


def table(results: dict[str, Results]) -> Iterable[str]:
    """Yield the table's lines."""
    yield f"{'':38}" + "".join(f"{PEERS[name].name:>12}" for name in results)
    yield f"{'':38}" + "".join(f"{PEERS[name].carrier:>12}" for name in results)
    for row in ROWS:
        cells = [_cell(row.values(measured), row.digits) for measured in results.values()]
        yield f"{row.label:38}" + "".join(f"{cell:>12}" for cell in cells)


def ratios(results: dict[str, Results]) -> Iterable[str]:
    """Yield how many times more calls ours answers than the better of its peers."""
    for ours, theirs in (
        ("ours", ("official", "typescript")),
        ("ours-hypercorn", ("official-hypercorn",)),
    ):
        per_second = {
            name: _per_second(results[name]) for name in (ours, *theirs) if name in results
        }
        mine = per_second.pop(ours, 0.0)
        best = max(per_second.values(), default=0.0)
        if mine and best:
            peer = PEERS[max(per_second, key=per_second.__getitem__)]
            yield (
                f"calls per second, {PEERS[ours].carrier}: "
                f"{mine / best:.1f} times {peer.name} on {peer.carrier}"
            )


def _per_second(results: Results) -> float:
    rates = [measured.per_second for measured in results.throughput]
    return statistics.median(rates) if rates else 0.0


def _cell(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):,.{digits}f}" if values else ""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.http")
    parser.add_argument("--server", choices=PEERS, action="append", help="only this; repeatable")
    parser.add_argument("--only", choices=MEASUREMENTS, action="append", help="repeatable")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5, help="of calls to time per round")
    parser.add_argument("--warmup", type=int, default=2, help="seconds of calls before")
    parser.add_argument("--connections", type=int, default=32, help="kept open for the calls")
    parser.add_argument("--in-flight", type=int, default=2_000, help="for memory")
    parser.add_argument("--others", type=int, default=1_000, help="in flight during the closes")
    parser.add_argument("--closes", type=int, default=200, help="to time per round")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[str]:
    names = options.server or list(PEERS)
    if "ours-hypercorn" in names and not hasattr(Server, "asgi"):
        print("left out: trio-mcp on Hypercorn, for there is no Server.asgi yet", file=sys.stderr)
        names = [name for name in names if name != "ours-hypercorn"]
    wanted = set(options.only or MEASUREMENTS)
    return [name for name in names if PEERS[name].measured & wanted]


def main() -> None:
    """Measure, and print the table."""
    options = _options()
    names = _chosen(options)
    try:
        wrk = peers.tool("wrk", "wrk")
        for line in host():
            print(line)
        print(peers.python_versions(PACKAGES))
        if "typescript" in names:
            print(peers.node_versions())
        results = {name: Results() for name in names}
        for number in range(1, options.rounds + 1):
            for name in names:
                print(f"round {number}: {name}", file=sys.stderr, flush=True)
                measure(PEERS[name], results[name], wrk, options)
    except peers.Missing as missing:
        sys.exit(str(missing))
    print(
        f"{options.seconds} s of calls on {options.connections} connections; "
        f"{options.in_flight:,} in flight for memory; {options.closes} closes beside "
        f"{options.others:,} requests; median of {options.rounds} rounds"
    )
    print()
    for line in (*table(results), "", *ratios(results)):
        print(line)


if __name__ == "__main__":
    main()
