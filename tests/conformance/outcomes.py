"""What became of the scenarios, and whether that is good enough.

The suite's own exit status is not: of a server's scenarios it looks at failures only, not at
warnings, at what was skipped or at what has not run.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs
import msgspec

from .scenarios import EXTENSIONS, SERVER, SKIPPED

__all__ = ["Check", "Outcome", "of_a_server", "read_outcomes", "report"]

_RESULTS: Final = re.compile(r"(?:server-)?(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
"""The name of a folder with results: of a server's scenarios, or of a client's."""


class Check(msgspec.Struct, rename="camel"):
    """One thing that a scenario has looked at.

    A ``WARNING`` is a SHOULD that was not done; ``INFO`` is no verdict. ``SKIPPED`` is what the
    suite could not look at: a failure too, except where :data:`SKIPPED` names it.
    """

    id: str
    name: str
    description: str
    status: str
    error_message: str | None = None

    @property
    def failed(self) -> bool:
        if self.status == "SKIPPED":
            return self.name not in SKIPPED
        return self.status not in ("SUCCESS", "INFO")


@attrs.frozen
class Outcome:
    """What became of a scenario; ``trouble`` is what has gone wrong beside its checks."""

    scenario: str
    checks: Sequence[Check] = ()
    trouble: str = ""

    @property
    def passed(self) -> bool:
        return bool(self.checks) and not self.trouble and not self.failures

    @property
    def failures(self) -> list[Check]:
        return [check for check in self.checks if check.failed]


def read_outcomes(results: Path) -> list[Outcome]:
    """What the suite has written into a folder: one folder for each scenario."""
    outcomes = []
    for checks in sorted(results.glob("*/checks.json")):
        match = _RESULTS.fullmatch(checks.parent.name)
        assert match is not None, checks
        read = msgspec.json.decode(checks.read_bytes(), type=list[Check])
        outcomes.append(Outcome(match["scenario"], read))
    return outcomes


def of_a_server(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """What a server has to pass; what was to run and did not counts as failed."""
    ran = [found for found in outcomes if not found.scenario.startswith(EXTENSIONS)]
    names = {found.scenario for found in ran}
    missing = [Outcome(name, trouble="it has not run") for name in SERVER if name not in names]
    order = {name: place for place, name in enumerate(SERVER)}
    return sorted([*ran, *missing], key=lambda found: order.get(found.scenario, len(order)))


def report(who: str, outcomes: Iterable[Outcome]) -> int:
    """Print a line for each scenario, with what has failed below it. Returns how many have."""
    failed = 0
    print(f"== {who}")
    for outcome in outcomes:
        failed += not outcome.passed
        verdict = "passed" if outcome.passed else "FAILED"
        print(f"{verdict}  {outcome.scenario} ({len(outcome.checks)} checks)")
        for check in outcome.failures:
            why = check.error_message or check.description
            print(_indented(f"{check.status}: {check.id} ({check.name}): {why}"))
        if outcome.trouble:
            print(_indented(outcome.trouble.strip()))
    return failed


def _indented(text: str) -> str:
    return textwrap.indent(text, "        ")
