"""How much of everything: the whole run of about ten minutes, and the quick one of CI."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .contenders import NAMES, WIRES, Contender

__all__ = ["FULL", "MEASURES", "QUICK", "Plan"]

MEASURES = ("throughput", "crowd", "sequence", "startup")


@dataclass(frozen=True)
class Plan:
    """Sizes and seconds.

    `wrk_seconds`: whole ones; without them our own generator posts. `rest`: seconds after which a
    cancelled request runs on for good. `steps`: readings of memory on the way to each number of
    calls in sequence. `wires`: of all measures but throughput, which is for all.
    """

    rounds: int
    seconds: float
    warmup: float
    wrk_seconds: int
    in_flight: tuple[int, ...]
    few_in_flight: tuple[int, ...]
    crowds: tuple[int, ...]
    peers_crowds: tuple[int, ...]
    cancelled_among: int
    cancels: int
    probes: int
    rest: float
    sequences: tuple[int, ...]
    peers_sequences: tuple[int, ...]
    steps: int
    wires: tuple[str, ...]
    names: tuple[str, ...]
    installed: bool

    def in_flight_of(self, contender: Contender) -> tuple[int, ...]:
        """How many calls at once: few points where time is short and no target is at stake."""
        if contender.name == "official-sse":
            return tuple(size for size in self.few_in_flight if size <= 32)
        few = contender.name == "fastmcp" or (contender.peer and contender.wire == "http-sse")
        return self.few_in_flight if few else self.in_flight

    def takes_part(self, measure: str, contender: Contender) -> bool:
        """Whether a measure is for a contender. Crowds and sequences are not for fastmcp, which
        serves by the Python SDK; the second deployment of that SDK is for throughput alone."""
        name, wire = contender.name, contender.wire
        if measure == "throughput":
            return True
        if wire not in self.wires or wire == "memory" or name == "official-sse":
            return False
        if measure == "crowd":
            apart = ("fastmcp", "typescript", "bare") if wire == "http-sse" else ("fastmcp",)
            return name not in apart
        if measure == "sequence":
            return wire in ("stdio", "http-json") and name in ("ours", "official", "bare")
        return wire in ("stdio", "http-json")

    def rounds_of(self, measure: str) -> int:
        """How often a measure is repeated: sequences, which are long, are not."""
        return 1 if measure == "sequence" else self.rounds

    def crowds_of(self, contender: Contender, number: int) -> tuple[int, ...]:
        """How large crowds are in a round: most of peers, which take long, come once."""
        if contender.name == "bare":
            return self.crowds[-1:]
        if contender.ours:
            return self.crowds
        return self.peers_crowds if number == 1 else (self.cancelled_among,)

    def sequences_of(self, contender: Contender) -> tuple[int, ...]:
        """How many calls one after the other."""
        return self.sequences if contender.ours else self.peers_sequences


FULL = Plan(
    rounds=3,
    seconds=0.6,
    warmup=0.3,
    wrk_seconds=1,
    in_flight=(1, 32, 256, 1024),
    few_in_flight=(32, 256),
    crowds=(10, 100, 1_000, 10_000),
    peers_crowds=(100, 1_000, 10_000),
    cancelled_among=1_000,
    cancels=100,
    probes=100,
    rest=2.0,
    sequences=(1_000, 10_000, 100_000),
    peers_sequences=(1_000, 10_000),
    steps=6,
    wires=tuple(WIRES),
    names=tuple(NAMES),
    installed=True,
)

QUICK = replace(
    FULL,
    rounds=1,
    seconds=0.05,
    warmup=0.02,
    wrk_seconds=0,
    in_flight=(1, 32),
    few_in_flight=(32,),
    crowds=(10, 50),
    peers_crowds=(50,),
    cancelled_among=50,
    cancels=3,
    probes=5,
    rest=0.3,
    sequences=(100, 300),
    peers_sequences=(100,),
    steps=1,
    wires=("stdio", "http-json"),
    names=("ours", "official", "official-sse", "bare"),
    installed=False,
)
