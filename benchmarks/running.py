"""A run: measure after measure, wire after wire, and in each round all contenders in turn."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator

from .contenders import WIRES, Contender, contenders
from .load.process import LoadError, most_descriptors
from .measures import crowd, sequence, startup, throughput
from .peers import Missing
from .plan import MEASURES, Plan
from .samples import Failure, Results, Sample

__all__ = ["gather", "run"]

Measure = Callable[[Contender, Plan, int], Iterator[Sample]]

_MEASURES: dict[str, Measure] = {
    "throughput": throughput.measure,
    "crowd": crowd.measure,
    "sequence": sequence.measure,
    "startup": startup.measure,
}


def gather(plan: Plan, results: Results) -> list[Contender]:
    """All contenders of a plan, wire after wire; installs peers. Who cannot be installed has
    failed."""
    found: list[Contender] = []
    for name in plan.names:
        try:
            found += contenders(name, installed=plan.installed)
        except Missing as missing:
            _say(str(missing))
            results.failures.append(Failure("installation", name, 0, str(missing)))
    return sorted(found, key=lambda one: list(WIRES).index(one.wire))


def run(
    plan: Plan, chosen: Iterable[Contender], results: Results, only: Collection[str] = MEASURES
) -> None:
    """Measure. A contender that fails a measure is out of its other rounds; the rest goes on."""
    most_descriptors()
    everyone = list(chosen)
    began = time.monotonic()
    gc.disable()  # of the generator
    for measure in only:
        for wire in WIRES:
            here = [one for one in everyone if one.wire == wire and plan.takes_part(measure, one)]
            for number in range(1, plan.rounds_of(measure) + 1):
                for contender in list(here):
                    elapsed = int(time.monotonic() - began)
                    _say(
                        f"[{elapsed // 60}:{elapsed % 60:02}] {measure}, round {number}: "
                        f"{contender.label}"
                    )
                    failure = _measure(measure, contender, plan, number, results)
                    if failure is not None:
                        _say(f"failed: {failure.words}")
                        results.failures.append(failure)
                        here.remove(contender)
                    gc.collect()


def _measure(
    measure: str, contender: Contender, plan: Plan, number: int, results: Results
) -> Failure | None:
    try:
        results.add(number, _MEASURES[measure](contender, plan, number))
    except (LoadError, OSError, ValueError, subprocess.SubprocessError) as error:
        words = "\n".join([str(error) or repr(error), *getattr(error, "__notes__", ())])
        return Failure(measure, contender.label, number, words)
    return None


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
