"""Texts from numbers."""

from __future__ import annotations

from ..samples import Key, Results, Spread

__all__ = ["NOTHING", "compared", "number", "ranged", "row", "table", "times"]

NOTHING = "–"  # noqa: RUF001


def number(value: float | None, *, digits: int | None = None) -> str:
    """About three digits, unless a number of decimals is given; a dash for nothing."""
    if value is None:
        return NOTHING
    if digits is None:
        digits = next((d for d, least in enumerate((100, 10, 1)) if abs(value) >= least), 3)
        if not value:
            digits = 0
    return f"{value:,.{digits}f}"


def ranged(spread: Spread | None) -> str:
    """The median, and in brackets the least and the greatest of several rounds."""
    if spread is None:
        return NOTHING
    text = number(spread.median)
    if spread.rounds > 1:
        text += f" ({number(spread.low)}–{number(spread.high)})"  # noqa: RUF001
    return text


def compared(results: Results, key: Key, *, spread: bool = True) -> str:
    """A number of which less is better; of others also how many times ours it is."""
    found = results.spread(key)
    text = ranged(found) if spread else number(None if found is None else found.median)
    ratio = results.ratio(key, key._replace(contender="ours"))
    if key.contender != "ours" and ratio is not None:
        text += f", {_ratio(ratio.median)} ×"  # noqa: RUF001
    return text


def times(spread: Spread | None) -> str:
    """The same of a ratio."""
    if spread is None:
        return NOTHING
    text = f"{_ratio(spread.median)} ×"  # noqa: RUF001
    if spread.rounds > 1:
        text += f" ({_ratio(spread.low)}–{_ratio(spread.high)})"  # noqa: RUF001
    return text


def _ratio(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def row(*cells: str) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The first column is text, the others are numbers."""
    rule = row("---", *["---:"] * (len(head) - 1))
    return [row(*head), rule, *(row(*cells) for cells in rows)]
