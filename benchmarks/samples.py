"""What was measured: numbers, by what they are about; medians of rounds, ratios within a round."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

__all__ = ["Failure", "Key", "Results", "Sample", "Spread", "percentile"]


class Key(NamedTuple):
    """What a number is about. `size`: in flight, or in sequence; 0 where there is no such thing.
    The name of the metric ends with its unit."""

    measure: str
    wire: str
    contender: str
    size: int
    metric: str


class Sample(msgspec.Struct, frozen=True):
    """One number, of one round."""

    key: Key
    value: float


class Failure(msgspec.Struct, frozen=True):
    """A contender that did not do what a measure needs, in its words."""

    measure: str
    contender: str
    round: int
    words: str


class Spread(msgspec.Struct, frozen=True):
    """The median of some rounds, the least and the greatest."""

    median: float
    low: float
    high: float
    rounds: int


class Results:
    """The numbers of a run. Each key has at most one for each round."""

    def __init__(self) -> None:
        self._values: defaultdict[Key, dict[int, float]] = defaultdict(dict)
        self.failures: list[Failure] = []

    def add(self, number: int, samples: Iterable[Sample]) -> None:
        """What one round brought."""
        for sample in samples:
            self._values[sample.key][number] = sample.value

    def __iter__(self) -> Iterator[tuple[Key, list[float]]]:
        for key, rounds in self._values.items():
            yield key, list(rounds.values())

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def spread(self, key: Key) -> Spread | None:
        """Of one number; `None` if it was not measured."""
        return _spread(list(self._values[key].values())) if key in self._values else None

    def median(self, key: Key) -> float | None:
        """The same, without its spread."""
        spread = self.spread(key)
        return None if spread is None else spread.median

    def ratio(self, over: Key, under: Key | Iterable[Key]) -> Spread | None:
        """One number by another, or by the greatest of several, round by round; `None` if there is
        no round with both."""
        keys = [under] if isinstance(under, Key) else list(under)
        ratios = []
        for number, value in self._values.get(over, {}).items():
            others = [self._values.get(key, {}).get(number, 0.0) for key in keys]
            if any(others):
                ratios.append(value / max(others))
        return _spread(ratios)

    def sizes(self, measure: str, wire: str, contender: str, metric: str) -> list[int]:
        """The sizes at which something was measured, in order."""
        about = (measure, wire, contender, metric)
        return sorted(key.size for key in self._values if (*key[:3], key.metric) == about)


def percentile(values: list[float], percent: int) -> float:
    """Of at least one value."""
    if len(values) < 2:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _spread(values: list[float]) -> Spread | None:
    if not values:
        return None
    return Spread(statistics.median(values), min(values), max(values), len(values))
