"""The checks of a probe, by how a request is cancelled there."""

from __future__ import annotations

from ..runner import Step
from .closing import CLOSING, CONNECTION_OF_MANY, STREAMS_OF_SESSIONS
from .crowds import CROWD, RESOURCES
from .ending import END_OF_INPUT
from .notifying import NOTIFYING, SILENT

__all__ = ["steps_for"]


def steps_for(transport: str, *, in_session: bool) -> list[Step]:
    """All checks for a transport, in order, in revisions with sessions or without."""
    if transport == "http" and not in_session:
        return [*CLOSING, CROWD, RESOURCES]
    steps = [*NOTIFYING, CROWD, RESOURCES]
    if transport == "http":
        return [*steps, *STREAMS_OF_SESSIONS, SILENT]
    if transport == "stdio":
        return [*steps, SILENT, *END_OF_INPUT]
    return [*steps, *CONNECTION_OF_MANY, SILENT]
