"""A member of a group: one server, from the attempt to connect to it until it is closed."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

import attrs
import trio

from ..runtime.errors import ConnectionLost
from ..runtime.groups import leaf_of
from ..runtime.journal import CallStatus
from ..runtime.lifecycle import CancelCause, State
from .client import Client

__all__ = ["GroupCall", "Member", "MemberState"]


class MemberState(Enum):
    """How a member of a group stands."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RESTARTING = "restarting"
    """It was lost, and ``restart=`` tries to have it back. Calls wait for it."""
    LOST = "lost"
    """It was connected, and has gone. Every call fails at once."""
    FAILED = "failed"
    """It could not be connected to, or ended with an error."""
    CLOSING = "closing"
    CLOSED = "closed"


_WHY_UNUSABLE: Final = {
    MemberState.CONNECTING: "is still being connected to (group.settled() waits for it)",
    MemberState.FAILED: "has failed",
    MemberState.CLOSING: "is being closed",
    MemberState.CLOSED: "has been closed",
}


@attrs.frozen
class GroupCall:
    """A call of a member as it was at one moment: the member's name, and what
    :class:`~trio_mcp.CallStatus` says of it. Times are seconds on Trio's clock."""

    server: str
    key: int
    first_key: int
    method: str
    target: str | None
    state: State
    cause: CancelCause | None
    sent: bool
    attempt: int
    began_at: float
    at: float

    @property
    def age(self) -> float:
        """Seconds since the request began, at that moment."""
        return self.at - self.began_at

    @classmethod
    def of(cls, server: str, call: CallStatus) -> GroupCall:
        return cls(
            server,
            call.key,
            call.first_key,
            call.method,
            call.target,
            call.state,
            call.cause,
            call.sent,
            call.attempt,
            call.began_at,
            call.at,
        )


class Member:
    """One server of a :class:`.group.ClientGroup`. What its attributes say changes while it lives.

    ``client`` is ``None`` until it is connected.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.client: Client | None = None
        self.scope = trio.CancelScope()
        self.settled = trio.Event()  # connected, or over
        self.over = trio.Event()
        self._error: Exception | None = None
        self._leaving = False

    def __repr__(self) -> str:
        return f"<Member {self.name!r} {self.state.value}>"

    @property
    def state(self) -> MemberState:
        """How it stands now."""
        if self.over.is_set():
            return MemberState.FAILED if self._error is not None else MemberState.CLOSED
        if self._leaving:
            return MemberState.CLOSING
        if self.client is None:
            return MemberState.CONNECTING
        connection = self.client._connection
        if connection.restarting:
            return MemberState.RESTARTING
        return MemberState.LOST if connection.why_lost is not None else MemberState.CONNECTED

    @property
    def error(self) -> Exception | None:
        """Why it is FAILED or LOST; ``None`` while it is neither."""
        if self._error is not None or self.client is None or self._leaving:
            return self._error
        why = self.client._connection.why_lost
        if why is None:
            return None
        return ConnectionLost(
            why, exit_status=self.client.exit_status, stderr_tail=self.client.stderr_tail
        )

    def connected(self, client: Client) -> None:
        """The group has connected it."""
        self.client = client
        self.settled.set()

    def leave(self, why: Literal["the group was closed", "it was removed"]) -> None:
        """Close it, now or while it is being connected to. Never waits."""
        self._leaving = True
        self.scope.cancel(why)

    def failed(self, error: Exception) -> Exception:
        """It ended with this error, and says whose it is."""
        leaf = leaf_of(error)
        self._error = leaf if isinstance(leaf, Exception) else error
        self._error.add_note(f"This is about {self.name!r} of the group")
        return self._error

    def ended(self) -> None:
        """It is over, in whatever way."""
        self.over.set()
        self.settled.set()

    def usable(self) -> Client:
        """Its client. Raises :class:`~trio_mcp.ConnectionLost` if it has none (any more)."""
        client = self.client
        if client is None or self._leaving or self.over.is_set():
            why = f"the member {self.name!r} of the group {_WHY_UNUSABLE[self.state]}"
            raise ConnectionLost(f"{why}: {self._error}" if self._error else why) from self._error
        return client
