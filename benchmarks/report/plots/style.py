"""How all pictures look: colours that colour-blind people can tell apart, labels at the lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from ...contenders import NAMES
from ...samples import Key, Results

__all__ = ["COLOURS", "Line", "caption", "figure", "grid", "label_ends", "line_of", "plain", "save"]

COLOURS = {
    "ours": "#0072B2",
    "official": "#D55E00",
    "official-sse": "#E69F00",
    "fastmcp": "#B0508A",
    "typescript": "#009E73",
    "bare": "#6B6B6B",
}
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "svg.fonttype": "path",
    "svg.hashsalt": "trio-mcp",
    "path.simplify": False,
}
#: Least distance of two labels, in parts of an axis.
_APART = 0.085


class Line:
    """One contender's line in a panel."""

    def __init__(self, name: str, sizes: Sequence[float], medians: Sequence[float]) -> None:
        self.name = name
        self.sizes = sizes
        self.medians = medians


def figure(width: float, height: float, title: str) -> Figure:
    """An empty one, with what it shows above it."""
    mpl.rcParams.update(_STYLE)
    made = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    made.suptitle(title, x=0.008, ha="left", fontsize=14, fontweight="bold")
    return made


def caption(of: Figure, text: str) -> None:
    """What was measured, below it."""
    of.supxlabel(text, x=0.008, ha="left", fontsize=9, color="#444444")


def save(drawn: Figure, path: Path) -> None:
    """Without a date, so that it changes only when the numbers do."""
    with mpl.rc_context(_STYLE):
        drawn.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def grid(axes: Axes) -> None:
    """Lines behind the marks."""
    axes.grid(visible=True, which="major")
    axes.tick_params(colors="#444444", which="both")


def plain(axes: Axes, which: str = "both") -> None:
    """Numbers as people write them on logarithmic axes."""
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if which in (name, "both"):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
            axis.set_minor_locator(NullLocator())


def line_of(
    axes: Axes,
    results: Results,
    measure: str,
    wire: str,
    name: str,
    metric: str,
    scale: float = 1.0,
) -> Line | None:
    """Draw a contender's medians over its sizes, and a band from the least to the greatest."""
    sizes, medians, low, high = [], [], [], []
    for size in results.sizes(measure, wire, name, metric):
        spread = results.spread(Key(measure, wire, name, size, metric))
        if spread is not None and (spread.median > 0 or axes.get_yscale() == "linear"):
            sizes.append(size)
            medians.append(spread.median * scale)
            low.append(spread.low * scale)
            high.append(spread.high * scale)
    if not sizes:
        return None
    ours, raw = name == "ours", name == "bare"
    colour = COLOURS[name]
    axes.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(
        sizes,
        medians,
        color=colour,
        linewidth=2.4 if ours else 1.4,
        linestyle="--" if raw else "-",
        marker="o",
        markersize=5 if ours else 3.5,
        zorder=3 if ours else 2,
    )
    return Line(name, sizes, medians)


def label_ends(axes: Axes, lines: Iterable[Line]) -> None:
    """Write each contender's name where its line ends, apart from the others."""
    axes.autoscale_view()
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = sorted(
        ((to_axes.transform((one.sizes[-1], one.medians[-1])), one) for one in lines),
        key=lambda end: float(end[0][1]),
    )
    heights = _apart([float(at[1]) for at, _ in ends])
    for (at, one), height in zip(ends, heights, strict=True):
        axes.annotate(
            NAMES[one.name],
            xy=(float(at[0]), float(at[1])),
            xytext=(float(at[0]) + 0.03, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=COLOURS[one.name],
            fontsize=9,
            fontweight="bold" if one.name == "ours" else "normal",
            va="center",
            annotation_clip=False,
        )


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights in order, moved as little as will do, so that no two are too near each other."""
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + _APART) if moved else height)
    excess = max(0.0, moved[-1] - 1.0) if moved else 0.0
    for at in range(len(moved) - 1, -1, -1):
        limit = moved[at + 1] - _APART if at + 1 < len(moved) else moved[at] - excess
        moved[at] = min(moved[at], limit)
    return moved
