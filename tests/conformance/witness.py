"""Our own look at what a server says to the suite: all of it, and by the same schema.

The suite leaves out the scenarios that make their requests by hand.
"""

from __future__ import annotations

from typing import Final

from tests.peers.checked import WireCheck
from tests.peers.http_log import Connection, HttpLog, Said

from .outcomes import Check, Outcome

__all__ = ["examine"]

_NAME: Final = "our own witness"
_REFUSED: Final = 403
"""Without a look at the request: the error names no id."""


def examine(log: HttpLog) -> Outcome:
    """One check for each request: what came back is valid by the official schema, belongs to this
    request, and was asked for. Nothing heard at all is no success."""
    checks = [check for connection in log.connections for check in _check_all(connection)]
    return Outcome(_NAME, checks, trouble="" if checks else "nobody came by")


def _check_all(connection: Connection) -> list[Check]:
    pairs = zip(connection.requests, connection.responses, strict=False)
    checks = [_check(request, response) for request, response in pairs]
    if len(connection.responses) > len(connection.requests):
        checks.append(_verdict("an answer that nobody asked for"))
    return checks


def _check(request: Said, response: Said) -> Check:
    """An answer without an end was given up by the suite: then only what is there must be right."""
    check = WireCheck()
    check.client_line(request.body)
    try:
        for message in response.messages:
            check.server_line(message)
        if response.complete and check.unanswered and response.status != _REFUSED:
            return _verdict(f"{response.status} without an answer to {request.body[:500]!r}")
    except (AssertionError, ValueError) as error:
        return _verdict(f"{error}\nwas the answer to {request.body[:500]!r}")
    return _verdict(None)


def _verdict(wrong: str | None) -> Check:
    status = "SUCCESS" if wrong is None else "FAILURE"
    return Check("wire", "Witness", "What a server sends is valid", status, wrong)
