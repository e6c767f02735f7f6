"""How long a probe waits for what."""

from __future__ import annotations

import attrs

__all__ = ["Pace"]


@attrs.frozen(kw_only=True)
class Pace:
    """Times of a probe, in seconds. Nothing in a probe waits longer than one of these for anything
    that the server has to do."""

    grace: float = 1.0
    """How long work may go on after its cancellation and still count as stopped."""
    settle: float = 0.3
    """How long a tool is given to begin where nothing shows that it has; also how long something
    must stay as it is to be taken for so."""
    begin: float = 5.0
    """How long a tool may take until it is seen to have begun."""
    busy: float = 1.0
    """How much longer the CPU time of a process is looked at before its work is cancelled, if that
    is all there is to see and it is neither busy nor idle: others want the same cores."""
    answer: float = 5.0
    """How long a quick request may take: a list of tools, the witness."""
    open: float = 10.0
    """How long a connection and a session may take to begin."""
    exit: float = 5.0
    """How long a launched server may take to exit once its standard input has ended."""
    poll: float = 0.02
    """Pause between two looks at the witness, or at a file."""
    check: float = 60.0
    """How long one check may take in all."""

    short: float = attrs.Factory(lambda pace: min(1.0, pace.grace), takes_self=True)
    """How long a tool is asked to run that is to end by itself, where that can be chosen."""
    work: float = attrs.Factory(lambda pace: 1.5 + 3 * pace.grace, takes_self=True)
    """How long any other is asked to run: past all that is watched of it."""
