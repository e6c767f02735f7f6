"""How a client makes its requests: opened, awaited, kept, made again where that is safe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol, TypeVar

import attrs
import trio

from ..runtime.call import Call
from ..runtime.errors import ConnectionLost
from ..runtime.journal import printable
from ..runtime.jsonrpc import decode
from ..runtime.limits import Limits
from ..runtime.models.base import META_TIMEOUT
from ..runtime.server_errors import InvalidParams
from ..runtime.tracing import GuardedTracing, TracedRequest, trace_id_of
from ..transports.calling import CallConnection, encode_call
from .calls import OnProgress, PendingCall, Timeouts, read_result
from .checks import check_function, check_text
from .eras.base import ClientEra
from .known_tools import KnownTools
from .response_cache import CacheKey, ResponseCache
from .retries import Repeats, Retry, check_retry
from .wanted import Wanted, wanted_tool

__all__ = ["Requests"]

M = TypeVar("M")


class _Cacheable(Protocol):
    ttl_ms: int


C = TypeVar("C", bound=_Cacheable)


class Requests:
    """What all requests of one client have in common; see :class:`.client.Client`."""

    def __init__(
        self,
        connection: CallConnection,
        era: ClientEra,
        limits: Limits,
        timeouts: Timeouts,
        tools: KnownTools,
        tracing: GuardedTracing | None = None,
        retry: Retry | None = None,
        cache: ResponseCache | None = None,
    ) -> None:
        self._limits = limits
        self._timeouts = timeouts
        self._tracing = tracing
        self._tools = tools
        self._retry = retry
        self._cache = cache
        self._speak(era, connection)

    def _speak(self, era: ClientEra, connection: CallConnection) -> None:
        """From now on, speak like this."""
        self._connection = connection
        self._era = era
        self._meta = era.meta
        self._answers = era.answers

    # Calls, and what becomes of them --------------------------------------------------------------

    def _open_tool(
        self, name: str, arguments: Mapping[str, Any] | None, timeouts: Timeouts
    ) -> PendingCall:
        return self._start(wanted_tool(name, arguments), timeouts)

    def _start(
        self, wanted: Wanted, timeouts: Timeouts, retry: Retry | None = None, reads: bool = False
    ) -> PendingCall:
        """Make a call; with ``retry``, whoever waits for it has it made again. Never waits."""
        connection = self._connection
        gives_up_at = None
        if timeouts.announced and timeouts.total < math.inf:
            gives_up_at = trio.current_time() + timeouts.total
        repeats = None
        if retry is not None:
            repeats = Repeats(retry, reads, partial(self._send_again, wanted, gives_up_at))
        failure = None
        try:
            call = self._send(wanted, gives_up_at=gives_up_at)
        except ConnectionLost as error:
            if repeats is None:
                raise
            failure = error  # of the first attempt
            frame = encode_call(0, wanted.method, wanted.params, self._limits)
            call = connection.reserve(wanted.method, wanted.target)
            call.load(frame)  # what it would have sent, for the next one
        answers = self._answers if wanted.rounds else None
        pending = PendingCall(connection, call, timeouts, self._limits, answers, repeats)
        if failure is not None:
            call.lost(failure)
        return pending

    async def _finish(
        self,
        wanted: Wanted,
        timeouts: Timeouts,
        on_progress: OnProgress | None,
        retry: Retry | None,
        reads: bool,
    ) -> dict[str, Any]:
        """The result of a call, in one attempt or, where it is safe, in several."""
        policy = self._policy(retry, on_progress)
        return await self._start(wanted, timeouts, policy, reads).finish(on_progress)

    def _policy(self, retry: Retry | None, on_progress: OnProgress | None) -> Retry | None:
        """The call's, or else the client's. Raises ``TypeError`` for options that are none."""
        check_retry(retry)
        if on_progress is not None:
            check_function("on_progress", on_progress)
        return self._retry if retry is None else retry

    async def _ask(
        self,
        wanted: Wanted,
        model: type[M],
        timeouts: Timeouts,
        on_progress: OnProgress | None = None,
        retry: Retry | None = None,
    ) -> M:
        """A call that only reads."""
        data = await self._finish(wanted, timeouts, on_progress, retry, reads=True)
        return read_result(model, data, wanted.method)

    async def _page(self, method: str, cursor: str | None, model: type[C]) -> C:
        if cursor is not None:
            check_text("a cursor", cursor)
        wanted = Wanted(method, {} if cursor is None else {"cursor": cursor})
        try:
            return await self._read((method, cursor), wanted, model, self._timeouts)
        except InvalidParams:
            if cursor is not None and self._cache is not None:
                self._cache.forget(method)  # what has led to a cursor that is none
            raise

    async def _read(
        self,
        key: CacheKey,
        wanted: Wanted,
        model: type[C],
        timeouts: Timeouts,
        on_progress: OnProgress | None = None,
        retry: Retry | None = None,
    ) -> C:
        """An answer that may be kept, or one that was."""
        cache, method = self._cache, wanted.method
        if cache is None:
            return await self._ask(wanted, model, timeouts, on_progress, retry)
        policy = self._policy(retry, on_progress)
        kept = cache.get(key)
        if kept is not None:
            await trio.lowlevel.checkpoint()
            return read_result(model, kept, method)
        asked_at = cache.moment(method)
        pending = self._start(wanted, timeouts, policy, reads=True)
        data = await pending.finish(on_progress)
        result = read_result(model, data, method)
        if pending.rounds == 0:
            cache.put(key, data, result.ttl_ms, asked_at)
        return result

    # Requests -------------------------------------------------------------------------------------

    def _open(self, method: str, params: Mapping[str, Any]) -> Call:
        return self._send(Wanted(method, params))

    def _send(
        self, wanted: Wanted, reserved: Call | None = None, gives_up_at: float | None = None
    ) -> Call:
        """A request that goes out, as the call that was reserved for it, if one was. The server is
        told of ``gives_up_at``, if it is to be."""
        meta = self._meta if wanted.meta is None else {**self._meta, **wanted.meta}
        if gives_up_at is not None:
            meta = {**meta, **_announced(gives_up_at)}
        if self._tracing is None and wanted.trace is None:
            return self._put(wanted, {**wanted.params, "_meta": meta}, reserved)
        return self._send_traced(wanted, meta, reserved)

    def _send_again(
        self, wanted: Wanted, gives_up_at: float | None, call: Call, earlier: bytes
    ) -> Call:
        """With the very same parameters as in ``earlier``; only ``_meta`` is made anew."""
        params = decode(earlier)["params"]
        del params["_meta"]
        return self._send(attrs.evolve(wanted, params=params), call, gives_up_at)

    def _put(self, wanted: Wanted, params: Mapping[str, Any], reserved: Call | None) -> Call:
        if reserved is None:
            return self._connection.open(wanted.method, params, wanted.target)
        self._connection.send(reserved, params)
        return reserved

    def _send_traced(self, wanted: Wanted, meta: Mapping[str, Any], reserved: Call | None) -> Call:
        """The same, with ``_meta`` saying which trace the call belongs to."""
        span = None
        if self._tracing is not None:
            span = self._tracing.call(self._traced(wanted))
        told = span.meta() if span is not None else {}
        if not told and wanted.trace is not None:
            told = wanted.trace.as_meta()
        try:
            call = self._put(wanted, {**wanted.params, "_meta": {**told, **meta}}, reserved)
        except Exception as error:
            if span is not None:
                span.end(None, type(error).__name__)
            raise
        call.span = span
        call.trace_id = (span and span.trace_id) or trace_id_of(told)
        return call

    def _traced(self, wanted: Wanted) -> TracedRequest:
        clip, target = self._limits.text_length, wanted.target
        return TracedRequest(
            method=wanted.method,
            target=printable(target[:clip]) if target is not None else None,
            request_id=None,
            connection=self._connection.label,
            protocol_version=self._era.version,
            meta={},
            trace=wanted.trace,
        )


def _announced(gives_up_at: float) -> dict[str, int]:
    """What tells the server when the call is given up."""
    left = gives_up_at - trio.current_time()
    return {META_TIMEOUT: max(1, math.ceil(left * 1000))}
