"""What a client does first: find out which revision the server speaks, and begin with it.

The server is asked in the way of 2026-07-28. What it answers decides; anything that a server of
that revision would not say, or silence, means that it is of an earlier one, and it is asked for a
session. A slow server may get both questions, and its first good answer counts. A launched one may
end at a question that it does not know: it is launched once more, and asked for a session alone.

Specification: *Discovery*; *Versioning*, "Protocol Version Negotiation" and "Backward
Compatibility"; *stdio* and *Streamable HTTP*, "Backward Compatibility".
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import attrs
import trio

from ..runtime.call import Call
from ..runtime.eras.earlier import VERSIONS as EARLIER
from ..runtime.eras.revision_2026_07_28 import VERSION
from ..runtime.errors import (
    ConnectionLost,
    ErrorCode,
    IncompatibleServer,
    ProtocolViolation,
    ServerError,
    TrioMcpError,
)
from ..runtime.lifecycle import State
from ..runtime.limits import Limits
from ..runtime.models.discovery import DiscoverResult
from ..runtime.server_errors import AuthorizationRequired, Overloaded
from ..transports.calling import CallConnection
from .calls import PendingCall, Timeouts, read_result
from .client import Client
from .eras.earlier import Earlier
from .retries import Retry

__all__ = ["Launch", "find_out", "find_out_again"]

logger = logging.getLogger("trio_mcp.connection")

Launch: TypeAlias = Callable[[], Awaitable[CallConnection]]
"""Launches a server's command once more; what it returns is run, and will be closed."""

_SAYS_NOTHING: Final = (401, 403, 407, 408, 421, 429)
"""HTTP statuses between 400 and 499 of a server that may know this revision."""

_NOT_NOW: Final = (ErrorCode.UNAUTHORIZED, ErrorCode.SHUTTING_DOWN, ErrorCode.OVERLOADED)
"""Errors that only servers of this library give, and that say nothing about revisions."""

_OF_THIS_REVISION: Final = (
    ErrorCode.HEADER_MISMATCH,
    ErrorCode.MISSING_CLIENT_CAPABILITY,
    ErrorCode.UNSUPPORTED_PROTOCOL_VERSION,
)
"""Errors that no earlier revision has."""


async def find_out(
    client: Client,
    connection: CallConnection,
    earlier: Earlier,
    opened: list[CallConnection],
    limits: Limits,
    retry: Retry | None = None,
    launch: Launch | None = None,
) -> None:
    """Find out, and have ``client`` speak that. The server has ``Limits.connect`` seconds for all,
    and as long again if it is launched once more.

    :param opened: gets what has to be closed besides ``connection``.
    :param retry: how discovery is made again where it was refused, or came to nobody.
    :param launch: for a server that was launched.
    """
    deadline = trio.current_time() + limits.connect
    call = await _ask(client, connection, limits, retry, deadline)
    try:
        await _find_out(client, connection, call, earlier, opened, limits, deadline)
    except ConnectionLost as lost:
        if launch is None or not _ended_unheard(connection, call):
            raise
        logger.info("%s: launching it once more, for a session: %s", connection.label, lost.message)
        await connection.close()
        await _begin_anew(client, launch, call, lost, earlier, opened, limits)


async def _ask(
    client: Client,
    connection: CallConnection,
    limits: Limits,
    retry: Retry | None,
    deadline: float,
) -> Call:
    """Ask ``server/discover``, again where ``retry`` says so. The last attempt, which has ended or
    was silent for ``Limits.probe``."""
    silence = min(limits.probe, limits.connect / 2)
    call = client._open("server/discover", {})
    began_at = call.began_at
    while True:
        await _until_one_ended((call,), trio.current_time() + silence)
        error = call.error
        if retry is None or connection.why_lost is not None:
            return call
        if not isinstance(error, (ConnectionLost, ServerError)):
            return call
        if call.attempt > 1:
            error.add_note(f"This was attempt {call.attempt}")
        pause = retry.pause_after(error, call.attempt, reads=True)
        again_at = math.inf if pause is None else trio.current_time() + pause
        if again_at >= min(deadline, began_at + retry.timeout):
            return call
        await trio.sleep_until(again_at)
        following = client._open("server/discover", {})
        following.repeat(call, call.attempt + 1)
        call = following


async def _find_out(
    client: Client,
    connection: CallConnection,
    call: Call,
    earlier: Earlier,
    opened: list[CallConnection],
    limits: Limits,
    deadline: float,
) -> None:
    refusal = _read(client, call)
    if refusal is not None and VERSION in refusal.supported:
        # Whatever it refused, it may know better now: behind an address there are often several.
        call = client._open("server/discover", {})
        await _until_one_ended((call,), deadline)
        refusal = _read(client, call)
        if refusal is not None:
            raise IncompatibleServer(
                f"the server says that it speaks {VERSION}, and refuses it", refusal.supported
            )
    if refusal is not None:
        probe = _Probe(client, connection, call, refusal, limits)
        await probe.begin_session(earlier, opened, deadline)


def _ended_unheard(connection: CallConnection, asked: Call) -> bool:
    """Whether the server's process has ended, and discovery was not answered before."""
    process = connection.process
    ended = process is not None and process.exit_status is not None
    return ended and isinstance(asked.error, ConnectionLost)


async def _begin_anew(
    client: Client,
    launch: Launch,
    asked: Call,
    lost: ConnectionLost,
    earlier: Earlier,
    opened: list[CallConnection],
    limits: Limits,
) -> None:
    """Ask the server for a session first thing, as servers of earlier revisions may want it."""
    connection = await launch()
    probe = _Probe(client, connection, asked, _Refusal(None), limits)
    try:
        await probe.begin_session(earlier, opened, trio.current_time() + limits.connect)
    except TrioMcpError as error:
        error.add_note(f"It was launched twice; the first time it ended at server/discover: {lost}")
        raise


async def find_out_again(client: Client, limits: Limits, connection: CallConnection) -> None:
    """What a restarted server is and can do; ``client`` forgets the one before.

    Raises what :func:`find_out` raises, also for a server that speaks another revision now.
    """
    anew = client._over(connection)
    call = anew._open("server/discover", {})
    await _until_one_ended((call,), trio.current_time() + limits.connect)
    refusal = _read(anew, call)
    if refusal is not None:
        why = refusal.error if refusal.error is not None else "no answer that names it"
        raise IncompatibleServer(
            f"the restarted server does not speak {VERSION} any more ({why})", refusal.supported
        )
    client._forget()
    client._learn(anew.discovered)


@attrs.frozen
class _Refusal:
    """Why a server seems to be of an earlier revision: its error, or ``None`` for silence or for
    an answer that does not name 2026-07-28; and what it names."""

    error: ServerError | ProtocolViolation | None
    supported: tuple[str, ...] = ()


@attrs.define
class _Probe:
    """A server that has not answered discovery as one of our revision, or not yet."""

    client: Client
    connection: CallConnection
    asked: Call
    refusal: _Refusal
    limits: Limits

    async def begin_session(
        self, earlier: Earlier, opened: list[CallConnection], deadline: float
    ) -> None:
        initialize = earlier.begin(self.connection)
        if earlier.connection is not self.connection:
            opened.append(earlier.connection)
        if await self._is_late(initialize, deadline):
            self.connection.session = None
            return
        if initialize.state is State.RUNNING:
            raise self._silent(earlier.connection)
        try:
            left = max(deadline - trio.current_time(), self.limits.probe)
            await earlier.go_on(initialize, Timeouts(left, left))
        except (ServerError, ProtocolViolation) as error:
            raise self._refused_both(error) from (self.refusal.error or error)
        self.client._speak(earlier, earlier.connection)
        self.client._learn(earlier.discovered)
        pending = PendingCall(self.connection, self.asked, Timeouts(left, left), self.limits)
        pending.abandon("the server is of an earlier revision")

    async def _is_late(self, initialize: Call, deadline: float) -> bool:
        """Wait for an answer to ``initialize``. True if discovery is answered before: the server
        is of our revision, and slow."""
        asked = self.asked
        if asked.state is State.RUNNING:
            await _until_one_ended((asked, initialize), deadline)
            if asked.state is not State.RUNNING:
                refusal = _read(self.client, asked)
                if refusal is None:
                    return True
                self.refusal = refusal
        await _until_one_ended((initialize,), deadline)
        return False

    def _silent(self, connection: CallConnection) -> IncompatibleServer:
        limit, error = self.limits.connect, self.refusal.error
        violation = connection.violation_since(self.asked.began_at)
        what = (
            f"refused server/discover ({error}) and did not answer initialize"
            if error is not None
            else "answered neither server/discover nor initialize"
        )
        sent = f"; it sent {violation}" if violation is not None else ""
        refused = IncompatibleServer(
            f"the server {what} within connect={limit:g} s{sent}; it may be none of MCP, or need "
            "longer to begin (Limits.connect)",
            self.refusal.supported,
        )
        refused.__cause__ = error
        return refused

    def _refused_both(self, error: ServerError | ProtocolViolation) -> Exception:
        first = self.refusal.error
        if isinstance(first, ServerError) and first.code == ErrorCode.INTERNAL_ERROR:
            return first  # it may be of any revision, and have failed
        if isinstance(error, ProtocolViolation):
            if not _says_unknown(error.status):
                return error
        elif _not_now(error):
            return error
        supported = self.refusal.supported
        if isinstance(error, ServerError):
            supported = supported or _named(error)
        at_first = f"server/discover ({first}) and " if first is not None else ""
        hint = (
            "; there is no MCP endpoint at this address, or one of the HTTP+SSE transport of "
            "2024-11-05, which this client does not speak"
            if isinstance(error, ProtocolViolation)
            else f"; this client speaks {', '.join((VERSION, *EARLIER))}"
        )
        return IncompatibleServer(
            f"the server refused {at_first}initialize ({error}){hint}", supported
        )


def _read(client: Client, asked: Call) -> _Refusal | None:
    """What has come of ``server/discover`` so far: ``None`` if the server speaks our revision.

    Raises what says nothing about revisions, and :class:`IncompatibleServer` for a server that is
    of none that this client speaks.
    """
    if asked.state is State.RUNNING:
        return _Refusal(None)
    try:
        result = asked.result()
        if "supportedVersions" not in result:
            return _Refusal(None)  # from a server that answers what it does not know
        discovered = read_result(DiscoverResult, result, asked.method)
        error: ServerError | None = None
        supported = tuple(discovered.supported_versions)
        if VERSION in supported:
            client._learn(discovered)
            return None
    except ProtocolViolation as violation:
        if not _says_unknown(violation.status):
            raise
        return _Refusal(violation)
    except ServerError as refused:
        if _not_now(refused):
            raise
        if refused.code not in _OF_THIS_REVISION:
            return _Refusal(refused)
        error, supported = refused, _named(refused)
    if VERSION in supported or not set(EARLIER).isdisjoint(supported):
        return _Refusal(error, supported)
    if error is not None and error.code != ErrorCode.UNSUPPORTED_PROTOCOL_VERSION:
        raise IncompatibleServer(f"the server refused server/discover ({error})") from error
    raise IncompatibleServer(
        f"the server speaks {', '.join(supported) or 'no revision it names'}; "
        f"this client speaks {', '.join((VERSION, *EARLIER))}",
        supported,
    )


def _not_now(error: ServerError) -> bool:
    """Whether it says nothing about revisions, whatever its code."""
    return isinstance(error, AuthorizationRequired | Overloaded) or error.code in _NOT_NOW


def _says_unknown(status: int | None) -> bool:
    """Whether an HTTP status may be that of a server that does not know a revision."""
    return status is not None and 400 <= status < 500 and status not in _SAYS_NOTHING


def _named(error: ServerError) -> tuple[str, ...]:
    data = error.data if isinstance(error.data, dict) else {}
    supported = data.get("supported")
    if not isinstance(supported, list):
        return ()
    return tuple(version for version in supported if isinstance(version, str))


async def _until_one_ended(calls: tuple[Call, ...], deadline: float) -> None:
    """Wait until one of them is answered or lost, or the time has come. Cancels none of them: what
    asks for a session must not be cancelled, and a late answer may be the better one."""
    with trio.CancelScope(deadline=deadline) as scope:
        async with trio.open_nursery() as nursery:

            async def wait(call: Call) -> None:
                await call.left_running()
                scope.cancel("one has ended")

            for call in calls:
                nursery.start_soon(wait, call)
