"""Memory of requests in flight, and how long cancelling them takes; a bar for each contender."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...contenders import NAMES, WIRES
from ...plan import Plan
from ...samples import Key, Results, Spread
from ..numbers import number
from ..targets import CHANNEL_KIB, CHANNELS, HTTP, HTTP_KIB, STORM_SECONDS
from .style import COLOURS, caption, figure, grid, plain

__all__ = ["cancellation", "memory"]

Bar = tuple[str, str]
_SHOWN = ("ours", "official", "typescript", "bare")


def memory(results: Results, plan: Plan) -> Figure | None:
    """Less is better."""
    metric = "memory_per_request_kib"
    bars = _bars(results, metric)
    if not bars:
        return None
    most = _most(results)
    drawn = figure(10, 1.6 + 0.33 * len(bars), f"Memory per request in flight, of {most:,}")
    axes = drawn.add_subplot()
    spreads = [_largest(results, wire, name, metric) for wire, name in bars]
    _draw(axes, bars, spreads)
    _names(axes, bars)
    for wires, bound in ((CHANNELS, CHANNEL_KIB), (HTTP, HTTP_KIB)):
        rows = [at for at, (wire, _) in enumerate(bars) if wire in wires]
        if rows:
            axes.plot([bound, bound], [rows[0] - 0.5, rows[-1] + 0.5], color="#222222", ls=":")
            _target(axes, bound, rows[0] - 0.62, f"{bound:g} KiB")
    axes.set_xlabel("KiB of the server's resident memory (less is better)")
    axes.set_xlim(left=0)
    caption(
        drawn,
        f"Growth of resident memory with tools that wait, median of {plan.rounds} rounds "
        "(other SDKs: once). Over HTTP each request has a connection of its own.",
    )
    return drawn


def cancellation(results: Results, plan: Plan) -> Figure | None:
    """Less is better."""
    bars = [(wire, name) for wire, name in _bars(results, "left_handlers") if name != "bare"]
    if not bars:
        return None
    drawn = figure(13, 1.9 + 0.36 * len(bars), "Cancellation: how long handlers run on")
    one, storm = drawn.subplots(1, 2, sharey=True)
    _single(one, results, bars)
    most = _most(results)
    _draw(storm, bars, [_largest(results, wire, name, "storm_idle_s") for wire, name in bars])
    _names(one, bars)
    storm.axvline(STORM_SECONDS, color="#222222", ls=":")
    _target(storm, STORM_SECONDS, -0.72, f"{STORM_SECONDS:g} s")
    storm.set_title(f"{most:,} at once, until the server is idle", pad=18)
    storm.set_xlabel("seconds (less is better)")
    storm.set_xlim(left=0)
    caption(
        drawn,
        "On channels by notifications/cancelled, over HTTP by the end of the connection. "
        f"One: among {plan.cancelled_among:,} in flight, from the event to the end of the "
        "handler's finally;\na dot is the median, the line ends at the 99th percentile. Idle: no "
        "handler and no connection is left. Never: two seconds later handlers were still alive.",
    )
    return drawn


def _target(axes: Axes, bound: float, height: float, text: str) -> None:
    """What the dotted line is."""
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.text(bound, height, f"target {text}", fontsize=9, ha="center", va="center", bbox=behind)


def _single(axes: Axes, results: Results, bars: list[Bar]) -> None:
    axes.set_xscale("log")
    least = 1.0
    for at, (wire, name) in enumerate(bars):
        sizes = results.sizes("crowd", wire, name, "cancel_p99_ms")
        if sizes:
            key = Key("crowd", wire, name, sizes[-1], "cancel_p99_ms")
            p50, p99 = results.median(key._replace(metric="cancel_p50_ms")), results.median(key)
            assert p50 is not None
            assert p99 is not None
            least = min(least, p50)
            axes.plot([p50, p99], [at, at], color=COLOURS[name], linewidth=2.5, marker="|", ms=9)
            axes.plot([p50], [at], color=COLOURS[name], marker="o", ms=7)
            axes.text(p99 * 1.12, at, f"{number(p50)} – {number(p99)}", fontsize=9, va="center")  # noqa: RUF001
        elif results.sizes("crowd", wire, name, "cancel_never"):
            axes.text(
                0.02,
                at,
                "never",
                transform=axes.get_yaxis_transform(),
                color=COLOURS[name],
                fontsize=9,
                va="center",
                fontweight="bold",
            )
    axes.set_title("one of many, until its handler has ended", pad=18)
    axes.set_xlabel("milliseconds, logarithmic (less is better)")
    axes.set_xlim(10 ** math.floor(math.log10(least)), axes.get_xlim()[1] * 3)
    plain(axes, "x")
    grid(axes)
    axes.grid(visible=False, axis="y")


def _bars(results: Results, metric: str) -> list[Bar]:
    return [
        (wire, name)
        for wire in WIRES
        for name in _SHOWN
        if results.sizes("crowd", wire, name, metric)
    ]


def _most(results: Results) -> int:
    return max(key.size for key, _ in results if key.measure == "crowd")


def _largest(results: Results, wire: str, name: str, metric: str) -> Spread | None:
    sizes = results.sizes("crowd", wire, name, "begin_s")
    return results.spread(Key("crowd", wire, name, sizes[-1], metric))


def _draw(axes: Axes, bars: list[Bar], spreads: list[Spread | None]) -> None:
    """A bar for each, the first on top; a word for who has none."""
    for at, ((_, name), spread) in enumerate(zip(bars, spreads, strict=True)):
        if spread is None:
            text, end = "never", 0.0
        else:
            text, end = number(spread.median), spread.high
            axes.barh(at, spread.median, color=COLOURS[name], height=0.72)
            if spread.rounds > 1:
                axes.plot([spread.low, spread.high], [at, at], color="#111111", linewidth=1.2)
        axes.annotate(
            text,
            (end, at),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            fontweight="bold" if name == "ours" else "normal",
            color="#111111" if spread else COLOURS[name],
        )
    axes.set_yticks(range(len(bars)), [f"{WIRES[wire]} · {NAMES[name]}" for wire, name in bars])
    axes.set_ylim(len(bars) - 0.4, -1.1)
    grid(axes)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _names(axes: Axes, bars: list[Bar]) -> None:
    """In the colours of the bars."""
    for label, (_, name) in zip(axes.get_yticklabels(), bars, strict=True):
        label.set_color(COLOURS[name])
        label.set_fontweight("bold" if name == "ours" else "normal")
