"""What a connection needs to know of a session, which servers of earlier revisions have.

In a session a server asks its client, and tells of changes that belong to no request. The face
gives a :class:`Session` to the connection, which hands all of that to it.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..runtime.call import Call
from ..runtime.jsonrpc import Request

__all__ = ["Session"]


class Session(Protocol):
    """One session with a server."""

    agreed: str | None
    """The revision that was agreed on; ``None`` until then."""

    def on_request(self, request: Request, call: Call | None) -> str | None:
        """The server asks; on the stream of ``call``, if it has one. Never waits. Returns what is
        wrong with it, if it is not even answered."""

    def on_malformed(self, refusal: bytes) -> None:
        """The server asks with something that is no request; ``refusal`` is the answer to it. Never
        waits."""

    def on_notification(self, method: str, params: dict[str, Any]) -> str | None:
        """The server tells something that is no progress. Never waits. Returns what is wrong with
        it, if anything is."""

    def call_ended(self, call: Call) -> None:
        """A call is over: whatever it came to. Never waits."""

    def deaf(self, why: str) -> None:
        """From now on the server cannot tell of changes. Never waits."""

    def lost(self) -> None:
        """The connection or the session has ended: nothing can be answered any more. Never
        waits."""
