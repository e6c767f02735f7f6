"""Callers of a server in their own process, whatever runs them; and what they print."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Awaitable, Callable

__all__ = ["ARGUMENTS", "STOCK", "Callers"]

ARGUMENTS = {"title": "Dune"}
STOCK = {"title": "Dune", "copies": 3, "price": 12.5}


class Callers:
    """So many at once, each with one call after the other, until the time is over.

    ``call`` makes one and returns what it brought. What a warm-up brings does not count.
    """

    def __init__(self, call: Callable[[], Awaitable[object]]) -> None:
        self._call = call
        self._latencies: list[float] = []
        self._until = 0.0
        self._began = self._cpu = 0.0

    def begin(self, seconds: float) -> None:
        """From now on it counts."""
        self._latencies = []
        self._began, self._cpu = time.perf_counter(), time.process_time()
        self._until = self._began + seconds

    async def run(self) -> None:
        """One caller."""
        while (sent := time.perf_counter()) < self._until:
            said = await self._call()
            if said != STOCK:
                raise SystemExit(f"stock was answered with {said!r}")
            self._latencies.append(time.perf_counter() - sent)

    def end(self) -> None:
        """Print what came of it, as one line of JSON."""
        seconds = time.perf_counter() - self._began
        cpu = time.process_time() - self._cpu
        calls = len(self._latencies)
        cuts = statistics.quantiles(self._latencies, n=100, method="inclusive")
        print(
            json.dumps(
                {
                    "calls_per_second": calls / seconds,
                    "p50_ms": cuts[49] * 1000,
                    "p99_ms": cuts[98] * 1000,
                    "cpu_us": cpu / calls * 1e6,
                }
            ),
            flush=True,
        )
