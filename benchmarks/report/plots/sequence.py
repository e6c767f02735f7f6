"""Memory while one call follows the other."""

from __future__ import annotations

from matplotlib.figure import Figure

from ...contenders import NAMES, WIRES
from ...plan import Plan
from ...samples import Results
from .style import COLOURS, caption, figure, grid, line_of, plain

__all__ = ["draw"]

_SHOWN = ("ours", "official", "bare")


def draw(results: Results, plan: Plan) -> Figure | None:
    """A flat line is a server that keeps nothing."""
    wires = [wire for wire in WIRES if results.sizes("sequence", wire, "ours", "growth_mib")]
    if not wires:
        return None
    drawn = figure(11, 4.4, "Memory stays: growth while one call follows the other")
    for at, wire in enumerate(wires):
        axes = drawn.add_subplot(1, len(wires), at + 1)
        found = [line_of(axes, results, "sequence", wire, name, "growth_mib") for name in _SHOWN]
        axes.set_xscale("log")
        axes.set_title(WIRES[wire])
        axes.set_xlabel("calls made, logarithmic")
        axes.set_ylabel("MiB above the beginning")
        axes.set_ylim(-0.5, max(5.0, axes.get_ylim()[1] * 1.2))
        plain(axes, "x")
        grid(axes)
        lines = [one for one in found if one is not None]
        for down, line in enumerate(lines):  # at their ends they lie on each other
            axes.text(
                0.03,
                0.95 - 0.08 * down,
                NAMES[line.name],
                transform=axes.transAxes,
                color=COLOURS[line.name],
                fontweight="bold" if line.name == "ours" else "normal",
                va="top",
            )
    caption(
        drawn,
        f"Resident memory of the server, over the first reading after 200 calls; once. Up to "
        f"{plan.sequences[-1]:,} calls, of others up to {plan.peers_sequences[-1]:,}.",
    )
    return drawn
