"""The pictures, as SVG: the same numbers make the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from ...plan import Plan
from ...samples import Results
from . import crowds, scaling, sequence, throughput
from .style import save

__all__ = ["draw"]

_PICTURES: dict[str, Callable[[Results, Plan], Figure | None]] = {
    "throughput": throughput.calls,
    "latency": throughput.latency,
    "memory": crowds.memory,
    "cancellation": crowds.cancellation,
    "scaling": scaling.draw,
    "sequence": sequence.draw,
}


def draw(results: Results, plan: Plan, folder: Path) -> list[Path]:
    """All pictures that there are numbers for."""
    drawn = []
    for name, picture in _PICTURES.items():
        figure = picture(results, plan)
        if figure is not None:
            drawn.append(folder / f"{name}.svg")
            save(figure, drawn[-1])
    return drawn
