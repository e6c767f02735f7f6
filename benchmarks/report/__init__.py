"""What a run leaves: data, tables and plots in its folder, a summary in ``README.md``.

| module | what it makes |
| --- | --- |
| ``numbers.py`` | texts from numbers |
| ``targets.py`` | what is aimed at, and what was reached |
| ``tables.py`` | all tables |
| ``plots/`` | the pictures |
| ``summary.py`` | the part of ``README.md`` between its marks |
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..machine import Machine
from ..plan import Plan
from ..samples import Results
from . import plots, tables

__all__ = ["write"]


def write(results: Results, machine: Machine, plan: Plan, folder: Path) -> list[Path]:
    """Write all files of a run into its folder, which is made; return them."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "results.json"
    data.write_text(_json(results, machine, plan), encoding="utf-8")
    text = folder / "tables.md"
    text.write_text(tables.page(results, machine, plan), encoding="utf-8")
    return [data, text, *plots.draw(results, plan, folder)]


def _json(results: Results, machine: Machine, plan: Plan) -> str:
    """One line for each number, with its value in each round."""
    head = {
        "machine": machine,
        "rounds": plan.rounds,
        "failures": results.failures,
        "columns": ["measure", "wire", "contender", "size", "metric", "values"],
    }
    rows = [
        msgspec.json.encode([*key, [_short(value) for value in values]]).decode()
        for key, values in results
    ]
    text = msgspec.json.format(msgspec.json.encode(head)).decode()
    return text.removesuffix("\n}") + ',\n  "series": [\n    ' + ",\n    ".join(rows) + "\n  ]\n}\n"


def _short(value: float) -> float:
    return float(f"{value:.6g}")
