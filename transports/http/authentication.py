"""Who may ask: the application's ``authenticate``, run in bounds, and what its verdicts become.

Specification: *Authorization*, "Error Handling"; RFC 6750, section 3.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import attrs
import trio

from ...runtime.errors import ErrorCode, ProtocolError, Unauthorized
from ...runtime.limits import Limits
from ...runtime.principal import Principal
from .endpoint import answer_error
from .message import Answer, RequestHead

__all__ = ["Authenticate", "Authentication"]

logger = logging.getLogger("trio_mcp.connection")

Authenticate: TypeAlias = Callable[[RequestHead], Principal | Awaitable[Principal | None] | None]
"""Who has sent a request, by its head; ``None``: nobody who may. May be async."""


@attrs.frozen
class Authentication:
    """Asks ``authenticate``. ``challenge`` is the ``WWW-Authenticate`` of its ``None``."""

    authenticate: Authenticate
    challenge: str

    def __attrs_post_init__(self) -> None:
        if not callable(self.authenticate):
            raise TypeError(f"authenticate must be a function, not {self.authenticate!r}")
        Unauthorized(self.challenge)  # raises for what no header can hold

    async def identify(self, head: RequestHead, limits: Limits) -> Principal | Answer:
        """The sender, or the answer to one who is not let in."""
        with trio.move_on_after(limits.authentication) as scope:
            try:
                found = self.authenticate(head)
                if inspect.isawaitable(found):
                    found = await found
                if found is None:
                    return _refused(Unauthorized(self.challenge))
                if isinstance(found, Principal):
                    return found
                raise TypeError(f"authenticate returned {found!r}, neither a Principal nor None")
            except Unauthorized as refusal:
                return _refused(refusal)
            except Exception:
                logger.exception("%s: authenticate failed", head.peer)
        if scope.cancelled_caught:
            limit = limits.authentication
            logger.error("%s: authenticate took longer than authentication=%g s", head.peer, limit)
        return answer_error(
            ProtocolError(
                ErrorCode.INTERNAL_ERROR,
                "Internal error: it could not be found out who you are; the server's log has more",
            ),
            status=500,
        )


def _refused(refusal: Unauthorized) -> Answer:
    error = ProtocolError(ErrorCode.UNAUTHORIZED, refusal.message)
    answer = answer_error(error, status=refusal.status)
    return attrs.evolve(answer, headers=(("www-authenticate", refusal.challenge),))
