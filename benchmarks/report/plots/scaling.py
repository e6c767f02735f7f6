"""How time and memory grow with the number in flight."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...contenders import WIRES
from ...plan import Plan
from ...samples import Results
from .style import Line, caption, figure, grid, label_ends, line_of, plain

__all__ = ["draw"]

_WIRES = ("stdio", "http-json")
_SHOWN = ("ours", "official", "typescript")
_COLUMNS = (
    ("begin_s", 1e3, "until all handlers run, ms"),
    ("storm_idle_s", 1e3, "all cancelled, until idle, ms"),
    ("memory_bytes", 2**-20, "memory, MiB"),
)


def draw(results: Results, plan: Plan) -> Figure | None:
    """A line as steep as the guide is linear growth."""
    wires = [wire for wire in _WIRES if results.sizes("crowd", wire, "ours", "begin_s")]
    if not wires:
        return None
    drawn = figure(13, 0.9 + 3.6 * len(wires), "Scaling: how time and memory grow with requests")
    for down, wire in enumerate(wires):
        for across, (metric, scale, title) in enumerate(_COLUMNS):
            axes = drawn.add_subplot(len(wires), 3, 3 * down + across + 1)
            axes.set_xscale("log")
            axes.set_yscale("log")
            found = [line_of(axes, results, "crowd", wire, name, metric, scale) for name in _SHOWN]
            lines = [one for one in found if one is not None]
            axes.set_title(f"{WIRES[wire]}: {title}")
            axes.set_xlabel("requests in flight")
            axes.margins(y=0.1)
            if lines:
                _guide(axes, lines[0])
            plain(axes)
            grid(axes)
            label_ends(axes, lines)
    caption(
        drawn,
        "Both axes logarithmic; the dotted guide has slope 1, which is linear growth from our "
        "first point. The Python SDK in JSON mode does not notice the end of a connection, so that "
        "it is never idle.",
    )
    return drawn


def _guide(axes: Axes, ours: Line) -> None:
    first, last = ours.sizes[0], ours.sizes[-1]
    start = ours.medians[0]
    axes.plot(
        [first, last],
        [start, start * last / first],
        color="#999999",
        linestyle=":",
        linewidth=1.6,
        zorder=1,
    )
