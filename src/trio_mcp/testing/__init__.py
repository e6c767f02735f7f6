"""For tests of what is written with this library: ``from trio_mcp.testing import cancel_sweep``,
or ``race``.

Nothing of it is imported by ``trio_mcp`` itself.
"""

from .actions import Action, Gap, Order, Step
from .places import Place
from .race import race
from .race_report import RaceError, RaceFailed, RaceProblem, RaceReport
from .report import CancelSweepFailed, Kind, Problem, SweepError, SweepReport
from .rules import RaceKind
from .sweep import cancel_sweep

__all__ = [
    "Action",
    "CancelSweepFailed",
    "Gap",
    "Kind",
    "Order",
    "Place",
    "Problem",
    "RaceError",
    "RaceFailed",
    "RaceKind",
    "RaceProblem",
    "RaceReport",
    "Step",
    "SweepError",
    "SweepReport",
    "cancel_sweep",
    "race",
]
