"""Calls per second and their latency, by how many are in flight; a panel for each wire."""

from __future__ import annotations

from matplotlib.figure import Figure

from ...contenders import WIRES
from ...plan import Plan
from ...samples import Results
from .style import caption, figure, grid, label_ends, line_of, plain

__all__ = ["calls", "latency"]

_SHOWN = ("ours", "official", "fastmcp", "typescript", "bare")


def calls(results: Results, plan: Plan) -> Figure | None:
    """More is better."""
    return _panels(
        results,
        plan,
        "calls_per_second",
        "Throughput: tools/call per second, by calls in flight (more is better)",
        "calls per second",
        f"Median of {plan.rounds} rounds, bands from the least to the greatest; both axes "
        "logarithmic. HTTP, SSE: each answer is a stream with three reports of progress. "
        "Raw limit: Trio and the same parsers, no MCP.",
    )


def latency(results: Results, plan: Plan) -> Figure | None:
    """Less is better."""
    return _panels(
        results,
        plan,
        "p99_ms",
        "Latency: 99th percentile of tools/call, by calls in flight (less is better)",
        "milliseconds",
        f"Median of {plan.rounds} rounds, bands from the least to the greatest; both axes "
        "logarithmic. At full load, so it contains the wait behind the other calls in flight.",
    )


def _panels(
    results: Results, plan: Plan, metric: str, title: str, unit: str, below: str
) -> Figure | None:
    wires = [wire for wire in WIRES if results.sizes("throughput", wire, "ours", metric)]
    if not wires:
        return None
    columns = min(3, len(wires))
    rows = -(-len(wires) // columns)
    drawn = figure(13, 0.9 + 3.5 * rows, title)
    first = None
    labelled = []
    for at, wire in enumerate(wires):
        axes = drawn.add_subplot(rows, columns, at + 1, sharey=first, sharex=first)
        first = first or axes
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        lines = [line_of(axes, results, "throughput", wire, name, metric) for name in _SHOWN]
        axes.set_title(WIRES[wire])
        axes.set_xlabel("in flight")
        if not at % columns:
            axes.set_ylabel(unit)
        axes.set_xticks(plan.in_flight)
        plain(axes)
        grid(axes)
        labelled.append((axes, [one for one in lines if one is not None]))
    for axes, ends in labelled:  # now that all have the same scale
        label_ends(axes, ends)
    caption(drawn, below)
    return drawn
