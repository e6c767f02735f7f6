"""What a client does first: find out whether the server speaks a revision of ours.

Specification: *Discovery*; *Versioning*, "Protocol Version Negotiation".
"""

from __future__ import annotations

from typing import Final

from ..runtime.eras.revision_2026_07_28 import VERSION
from ..runtime.errors import (
    CallTimeout,
    ErrorCode,
    IncompatibleServer,
    ProtocolViolation,
    ServerError,
)
from ..runtime.server_errors import AuthorizationRequired
from ..transports.calling import CallConnection
from .client import Client

__all__ = ["find_out"]

_NOT_OURS: Final = (400, 404, 405, 406, 415)
"""HTTP statuses of servers that do not know this revision, without a JSON-RPC error."""

_NOT_NOW: Final = (
    ErrorCode.UNAUTHORIZED,
    ErrorCode.SHUTTING_DOWN,
    ErrorCode.OVERLOADED,
    ErrorCode.INTERNAL_ERROR,
)
"""Errors that say nothing about revisions."""


async def find_out(client: Client, connection: CallConnection, limit: float) -> None:
    """Discover; the server has ``limit`` seconds for its answer. One that refuses and says that it
    speaks our revision is asked once more."""
    supported = await _supported_by(client, connection, limit)
    if not hasattr(client, "discovered") and VERSION in supported:
        supported = await _supported_by(client, connection, limit)
        if not hasattr(client, "discovered"):
            raise IncompatibleServer(
                f"the server says that it speaks {VERSION}, and refuses it", supported
            )
    if VERSION not in supported:
        raise IncompatibleServer(
            f"the server speaks {', '.join(supported) or 'no revision it names'}; "
            f"this client speaks {VERSION}",
            supported,
        )


async def _supported_by(
    client: Client, connection: CallConnection, limit: float
) -> tuple[str, ...]:
    """The revisions that the server names, in its answer or in its refusal of ours."""
    try:
        discovered = await client.discover(timeout=limit, max_timeout=limit)
        return tuple(discovered.supported_versions)
    except CallTimeout:
        violation = connection.last_violation
        raise IncompatibleServer(
            f"the server did not answer server/discover within {limit:g} s; "
            + (
                f"it sent {violation}"
                if violation is not None
                else f"it seems to be of a revision before {VERSION}, "
                "which this client does not speak"
            )
        ) from None
    except ProtocolViolation as error:
        if error.status not in _NOT_OURS:
            raise
        raise IncompatibleServer(
            f"the server refused server/discover ({error}); there is no MCP endpoint at this "
            f"address, or one of a revision before {VERSION}, which this client does not speak"
        ) from error
    except ServerError as error:
        if isinstance(error, AuthorizationRequired) or error.code in _NOT_NOW:
            raise
        if error.code != ErrorCode.UNSUPPORTED_PROTOCOL_VERSION:
            raise IncompatibleServer(
                f"the server refused server/discover ({error}); it may be of a revision "
                f"before {VERSION}, which this client does not speak"
            ) from error
        return _named(error)


def _named(error: ServerError) -> tuple[str, ...]:
    data = error.data if isinstance(error.data, dict) else {}
    supported = data.get("supported")
    if not isinstance(supported, list):
        return ()
    return tuple(version for version in supported if isinstance(version, str))
