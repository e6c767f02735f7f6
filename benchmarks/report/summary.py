"""The part of ``README.md`` between its marks: the last whole run, in short."""

from __future__ import annotations

from pathlib import Path

from ..contenders import NAMES, WIRES
from ..machine import Machine
from ..samples import Key, Results
from .numbers import NOTHING, compared, number, table, times
from .tables import machine_lines
from .targets import CROWD, targets_table

__all__ = ["replace"]

BEGIN = "<!-- The summary of the last run begins; `python -m benchmarks` writes it. -->"
END = "<!-- The summary ends. -->"

#: In flight of the main table.
IN_FLIGHT = 32
_OTHERS = ("official", "fastmcp", "typescript", "bare")


def replace(
    page: Path, results: Results, machine: Machine, rounds: int, folder: Path, files: list[Path]
) -> None:
    """Put the summary into the page. Raises ``ValueError`` if its marks are not there."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no marks for the summary")
    lines = _summary(results, machine, rounds, folder.relative_to(page.parent).as_posix(), files)
    page.write_text(
        "\n".join([before + begin, "", *lines, "", end]) + after,
        encoding="utf-8",
    )


def _summary(
    results: Results, machine: Machine, rounds: int, folder: str, files: list[Path]
) -> list[str]:
    pictures = [path for path in files if path.suffix == ".svg"]
    return [
        f"Run of {folder.rpartition('/')[2]}, median (least to greatest) of {rounds} rounds:",
        "",
        *(f"- {line}" for line in machine_lines(machine)),
        "",
        *targets_table(results),
        "",
        f"Calls per second with {IN_FLIGHT} in flight, and how many times those of others:",
        "",
        *_throughput(results),
        "",
        f"{CROWD:,} in flight (one cancelled: among 1,000), and how many times ours that is:",
        "",
        *_crowds(results),
        "",
        *_rest(results),
        "",
        f"[All tables]({folder}/tables.md), [data]({folder}/results.json).",
        "",
        *(f"![{path.stem}]({folder}/{path.name})" for path in pictures),
    ]


def _throughput(results: Results) -> list[str]:
    rows = []
    for wire, title in WIRES.items():
        ours = Key("throughput", wire, "ours", IN_FLIGHT, "calls_per_second")
        rows.append(
            [
                title,
                number(results.median(ours)),
                number(results.median(ours._replace(metric="p50_ms"))),
                number(results.median(ours._replace(metric="p99_ms"))),
                number(results.median(ours._replace(metric="cpu_us"))),
                *(times(results.ratio(ours, ours._replace(contender=name))) for name in _OTHERS),
            ]
        )
    head = ["", "trio-mcp", "p50, ms", "p99, ms", "CPU per call, µs"]
    return table([*head, *(NAMES[name] for name in _OTHERS)], rows)


def _crowds(results: Results) -> list[str]:
    rows = []
    for wire, title in WIRES.items():
        for name in ("ours", *_OTHERS):
            sizes = results.sizes("crowd", wire, name, "memory_per_request_kib")
            if not sizes:
                continue
            key = Key("crowd", wire, name, sizes[-1], "memory_per_request_kib")
            rows.append(
                [
                    f"{title}, {NAMES[name]}" + f", of {sizes[-1]:,}" * (sizes[-1] != CROWD),
                    compared(results, key, spread=False),
                    compared(results, key._replace(metric="probe_p99_ms"), spread=False),
                    _cancelled(results, wire, name),
                    _storm(results, key),
                    number(results.median(key._replace(metric="left_handlers"))),
                ]
            )
    head = ["", "KiB each", "probe p99, ms", "one cancelled, p99, ms", "all: idle after, s"]
    return table([*head, "handlers left"], rows)


def _rest(results: Results) -> list[str]:
    """Requests in sequence and start-up, a line each."""
    lines = []
    for wire in ("stdio", "http-json"):
        sizes = results.sizes("sequence", wire, "ours", "growth_mib")
        if sizes:
            growth = results.median(Key("sequence", wire, "ours", sizes[-1], "growth_mib"))
            lines.append(
                f"- {WIRES[wire]}: with {sizes[-1]:,} calls one after the other, the server's "
                f"memory grew by {number(growth)} MiB."
            )
    for label, metric in (("First answer on stdio", "first_answer_s"), ("Import", "import_s")):
        keys = [Key("startup", "stdio", name, 0, metric) for name in NAMES]
        told = [
            f"{NAMES[k.contender]} {compared(results, k, spread=False)}"
            for k in keys
            if k in results
        ]
        if told:
            lines.append(f"- {label}, seconds: " + "; ".join(told) + ".")
    return lines


def _cancelled(results: Results, wire: str, name: str) -> str:
    if results.sizes("crowd", wire, name, "cancel_never"):
        return "never"
    sizes = results.sizes("crowd", wire, name, "cancel_p99_ms")
    if not sizes:
        return NOTHING
    return compared(results, Key("crowd", wire, name, sizes[-1], "cancel_p99_ms"), spread=False)


def _storm(results: Results, key: Key) -> str:
    if results.median(key._replace(metric="left_handlers")):
        return "never"
    return compared(results, key._replace(metric="storm_idle_s"), spread=False)
