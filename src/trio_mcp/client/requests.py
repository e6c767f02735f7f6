"""How a client makes its requests: opened, awaited, kept, made again where that is safe."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import trio

from ..runtime.call import Call
from ..runtime.journal import printable
from ..runtime.limits import Limits
from ..runtime.models.base import META_IDEMPOTENCY_KEY, META_TIMEOUT
from ..runtime.server_errors import InvalidParams
from ..runtime.tracing import GuardedTracing, TraceContext, TracedRequest, trace_id_of
from ..transports.calling import CallConnection
from .calls import OnProgress, PendingCall, Timeouts, read_result
from .eras.base import ClientEra
from .known_tools import KnownTools
from .response_cache import CacheKey, ResponseCache
from .retries import Retry, finish_with_retries

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

    def _open_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        timeouts: Timeouts,
        trace: TraceContext | None = None,
        idempotency_key: str | None = None,
        earlier: PendingCall | None = None,
    ) -> PendingCall:
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}}
        meta = None if idempotency_key is None else _key_meta(idempotency_key)
        return self._start("tools/call", params, name, timeouts, trace, meta, earlier)

    def _start(
        self,
        method: str,
        params: Mapping[str, Any],
        target: str,
        timeouts: Timeouts,
        trace: TraceContext | None,
        meta: Mapping[str, Any] | None,
        earlier: PendingCall | None = None,
    ) -> PendingCall:
        """A call that may take several rounds, or its next attempt."""
        meta = _announced(timeouts, earlier, meta)
        call = self._open(method, params, target, trace, meta)
        return PendingCall(self._connection, call, timeouts, self._limits, self._answers, earlier)

    async def _finish(
        self,
        start: Callable[[PendingCall | None], PendingCall],
        on_progress: OnProgress | None,
        retry: Retry | None,
        reads: bool,
    ) -> dict[str, Any]:
        """The result of a call, in one attempt or, where it is safe, in several."""
        retry = self._retry if retry is None else retry
        if retry is None:
            return await start(None).finish(on_progress)
        return await finish_with_retries(start, on_progress, retry, reads, self._connection)

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any],
        model: type[M],
        timeouts: Timeouts,
        on_progress: OnProgress | None = None,
        trace: TraceContext | None = None,
        retry: Retry | None = None,
    ) -> M:
        """A call that takes one round and only reads."""

        def start(earlier: PendingCall | None) -> PendingCall:
            meta = _announced(timeouts, earlier, None)
            call = self._open(method, params, None, trace, meta)
            return PendingCall(self._connection, call, timeouts, self._limits, None, earlier)

        return read_result(model, await self._finish(start, on_progress, retry, True), method)

    async def _page(self, method: str, cursor: str | None, model: type[C]) -> C:
        params = {} if cursor is None else {"cursor": cursor}

        def start(earlier: PendingCall | None) -> PendingCall:
            call = self._open(method, params)
            connection, limits = self._connection, self._limits
            return PendingCall(connection, call, self._timeouts, limits, None, earlier)

        try:
            return await self._read((method, cursor), start, model, None, None)
        except InvalidParams:
            if cursor is not None and self._cache is not None:
                self._cache.forget(method)  # what has led to a cursor that is none
            raise

    async def _read(
        self,
        key: CacheKey,
        start: Callable[[PendingCall | None], PendingCall],
        model: type[C],
        on_progress: OnProgress | None,
        retry: Retry | None,
    ) -> C:
        """An answer that may be kept, or one that was."""
        cache, method = self._cache, key[0]
        if cache is None:
            data = await self._finish(start, on_progress, retry, reads=True)
            return read_result(model, data, method)
        kept = cache.get(key)
        if kept is not None:
            await trio.lowlevel.checkpoint()
            return read_result(model, kept, method)
        asked_at = cache.moment(method)
        attempts: list[PendingCall] = []

        def noted(earlier: PendingCall | None) -> PendingCall:
            attempts[:] = [start(earlier)]
            return attempts[0]

        data = await self._finish(noted, on_progress, retry, reads=True)
        result = read_result(model, data, method)
        if attempts[0].rounds == 0:
            cache.put(key, data, result.ttl_ms, asked_at)
        return result

    def _open(
        self,
        method: str,
        params: Mapping[str, Any],
        target: str | None = None,
        trace: TraceContext | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Call:
        """``meta`` goes with this request, besides what goes with every one."""
        all_meta = self._meta if meta is None else {**self._meta, **meta}
        if self._tracing is None and trace is None:
            return self._connection.open(method, {**params, "_meta": all_meta}, target)
        return self._open_traced(method, params, target, trace, all_meta)

    def _open_traced(
        self,
        method: str,
        params: Mapping[str, Any],
        target: str | None,
        trace: TraceContext | None,
        meta: Mapping[str, Any],
    ) -> Call:
        """The same, with ``_meta`` saying which trace the call belongs to."""
        span = None
        if self._tracing is not None:
            span = self._tracing.call(self._traced(method, target, trace))
        told = span.meta() if span is not None else {}
        if not told and trace is not None:
            told = trace.as_meta()
        params = {**params, "_meta": {**told, **meta}}
        try:
            call = self._connection.open(method, params, target)
        except Exception as error:
            if span is not None:
                span.end(None, type(error).__name__)
            raise
        call.span = span
        call.trace_id = (span and span.trace_id) or trace_id_of(told)
        return call

    def _traced(self, method: str, target: str | None, trace: TraceContext | None) -> TracedRequest:
        clip = self._limits.text_length
        return TracedRequest(
            method=method,
            target=printable(target[:clip]) if target is not None else None,
            request_id=None,
            connection=self._connection.label,
            protocol_version=self._era.version,
            meta={},
            trace=trace,
        )


def _announced(
    timeouts: Timeouts, earlier: PendingCall | None, meta: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """``meta``, with the time after which the call is given up, if the server is told of it."""
    if not timeouts.announced or timeouts.total == math.inf:
        return meta
    left = timeouts.total if earlier is None else earlier.left()
    return {**(meta or {}), META_TIMEOUT: max(1, math.ceil(left * 1000))}


def _key_meta(key: str) -> dict[str, str]:
    if not isinstance(key, str) or not key:
        raise ValueError(f"idempotency_key is a text that is not empty, not {key!r}")
    return {META_IDEMPOTENCY_KEY: key}
