"""For tests of what is written with this library: ``from trio_mcp.testing import cancel_sweep``,
or ``race``.

Nothing of it is imported by ``trio_mcp`` itself. What needs Hypothesis is in
``trio_mcp.testing.strategies``.
"""

from .memory import InMemory, LeftBehind, memory_server
from .places import Place
from .racing.actions import Action, Gap, Order, Step
from .racing.breach import RaceKind
from .racing.race import race
from .racing.report import RaceError, RaceFailed, RaceProblem, RaceReport
from .sweeping.report import CancelSweepFailed, Kind, Problem, SweepError, SweepReport
from .sweeping.sweep import cancel_sweep
from .transcripts.recorded_stream import RecordedStream
from .transcripts.transcript import Transcript, TranscriptDiffers
from .wires.faults import (
    Body,
    Break,
    Chunk,
    Corrupt,
    Delay,
    Drop,
    Duplicate,
    Fault,
    HalfClose,
    Line,
    Split,
    Stall,
)
from .wires.faulty_relay import FaultyRelay, faulty_relay
from .wires.faulty_stream import FaultsMissed, FaultyStream, Happened
from .wires.http_answers import Answer, StubRequest
from .wires.http_stub import HttpStub, http_stub

__all__ = [
    "Action",
    "Answer",
    "Body",
    "Break",
    "CancelSweepFailed",
    "Chunk",
    "Corrupt",
    "Delay",
    "Drop",
    "Duplicate",
    "Fault",
    "FaultsMissed",
    "FaultyRelay",
    "FaultyStream",
    "Gap",
    "HalfClose",
    "Happened",
    "HttpStub",
    "InMemory",
    "Kind",
    "LeftBehind",
    "Line",
    "Order",
    "Place",
    "Problem",
    "RaceError",
    "RaceFailed",
    "RaceKind",
    "RaceProblem",
    "RaceReport",
    "RecordedStream",
    "Split",
    "Stall",
    "Step",
    "StubRequest",
    "SweepError",
    "SweepReport",
    "Transcript",
    "TranscriptDiffers",
    "cancel_sweep",
    "faulty_relay",
    "http_stub",
    "memory_server",
    "race",
]
