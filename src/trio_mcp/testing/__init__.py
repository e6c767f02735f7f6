"""For tests of what is written with this library: ``from trio_mcp.testing import cancel_sweep``.

Nothing of it is imported by ``trio_mcp`` itself.
"""

from .places import Place
from .report import CancelSweepFailed, Kind, Problem, SweepError, SweepReport
from .sweep import cancel_sweep

__all__ = [
    "CancelSweepFailed",
    "Kind",
    "Place",
    "Problem",
    "SweepError",
    "SweepReport",
    "cancel_sweep",
]
