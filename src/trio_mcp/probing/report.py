"""What a probe found out."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, Literal, TypeAlias

import attrs

__all__ = ["VERDICTS", "Check", "Finding", "Report", "Verdict"]

Verdict: TypeAlias = Literal["pass", "fail", "unknown", "n/a"]
VERDICTS: Final[tuple[Verdict, ...]] = ("pass", "fail", "unknown", "n/a")


@attrs.frozen
class Finding:
    """Whether work has stopped, and how that is known.

    :param stopped: ``None`` if it cannot be told.
    :param evidence: what it stands on, in a word or two: ``witness``, ``late answer`` …
    :param seen: the same in a clause.
    :param after: seconds from the cancellation until it was seen to have stopped.
    """

    stopped: bool | None
    evidence: str
    seen: str
    after: float | None = None


@attrs.frozen(kw_only=True)
class Check:
    """One check: what was done, what was seen, and what to make of it.

    :param tool: the slow tool it was done with, if its verdict is about that.
    :param level: ``MUST`` or ``SHOULD`` of the specification; ``robust`` where it leaves it open
        and a server is expected to stand it.
    :param after: seconds from the cancellation to its effect, where that was seen.
    """

    name: str
    done: str
    verdict: Verdict
    seen: str
    evidence: str
    specification: str
    level: str
    tool: str | None = None
    after: float | None = None

    def as_json(self) -> dict[str, Any]:
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class Report:
    """All checks of one server over one transport."""

    target: str
    transport: str
    revision: str
    server: str
    tools: tuple[str, ...]
    witness: str | None
    checks: tuple[Check, ...]

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many checks there are of each verdict."""
        counted = Counter(check.verdict for check in self.checks)
        return {verdict: counted[verdict] for verdict in VERDICTS}

    def as_json(self) -> dict[str, Any]:
        """As ``trio-mcp probe --json`` prints it, but for date and version."""
        said = attrs.asdict(self, recurse=False)
        return {**said, "checks": [c.as_json() for c in self.checks], "counts": self.counts}
