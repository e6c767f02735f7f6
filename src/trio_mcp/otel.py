"""Spans for OpenTelemetry: ``Server(…, tracing=OpenTelemetry())``, ``connect(…, tracing=…)``.

Needs ``trio-mcp[otel]``. Names and attributes are those of OpenTelemetry's semantic conventions for
MCP (in development there); what these have no word for, cancellation above all, begins with
``mcp.cancel``.
"""

from __future__ import annotations

import importlib.metadata
import re
import time
from collections.abc import Mapping
from typing import Any, Final

import trio

try:
    from opentelemetry import context as otel_context
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import Getter
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
    from opentelemetry.util.types import AttributeValue
except ImportError as error:  # pragma: no cover
    raise ImportError("trio_mcp.otel needs OpenTelemetry: pip install 'trio-mcp[otel]'") from error

from .runtime.journal import Record, printable
from .runtime.lifecycle import CancelCause, CancelSource, State
from .runtime.tracing import TraceContext, TracedRequest

__all__ = ["OpenTelemetry"]

_FAILURES: Final = frozenset(
    {
        CancelSource.STALLED,
        CancelSource.DEADLINE,
        CancelSource.SHUTDOWN,
        CancelSource.OPERATOR,
        CancelSource.TIMEOUT,
    }
)
"""Cancellations that make the span an error. That who has asked does not want it any more, is none.
"""

_LONGEST_TEXT: Final = 8192
"""Characters of an entry of ``_meta`` that a propagator is shown."""


class OpenTelemetry:
    """Makes OpenTelemetry spans of requests, for any number of servers and clients.

    :param tracer_provider: instead of the global one.

    A request that is served gets a span of kind SERVER, whose parent is the span that its ``_meta``
    names; it is current while the handler runs, in all tasks and threads that the handler starts. A
    call gets one of kind CLIENT, whose parent is the current span, and which its ``_meta`` names to
    the server. A span ends with the record of its request, and has its outcome. The context travels
    by the global propagators, by default W3C's for the trace and for baggage.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        version = importlib.metadata.version("trio-mcp")
        self._tracer = trace.get_tracer("trio_mcp", version, tracer_provider)

    def exchange(self, request: TracedRequest) -> _ServerSpan:
        ambient = otel_context.get_current()
        parent = propagate.extract(_carrier(request), ambient, _getter)
        span = self._tracer.start_span(
            _name(request),
            parent,
            SpanKind.SERVER,
            _attributes(request, "client"),
            _links(ambient, parent),
        )
        return _ServerSpan(span, parent)

    def call(self, request: TracedRequest) -> _ClientSpan:
        parent = otel_context.get_current()
        if (
            request.trace is not None
            and not trace.get_current_span(parent).get_span_context().is_valid
        ):
            parent = propagate.extract(request.trace.as_meta(), parent)
        span = self._tracer.start_span(
            _name(request), parent, SpanKind.CLIENT, _attributes(request, "server")
        )
        return _ClientSpan(span, parent)


class _RequestSpan:
    def __init__(self, span: Span, parent: Context) -> None:
        self._span = span
        self._context = trace.set_span_in_context(span, parent)

    @property
    def trace_id(self) -> str | None:
        context = self._span.get_span_context()
        return trace.format_trace_id(context.trace_id) if context.is_valid else None

    def end(self, record: Record | None, failure: int | str | None) -> None:
        span = self._span
        try:
            if record is not None and span.is_recording():
                _tell(span, record, failure)
            elif record is None:
                _fail(span, str(failure), None)
        finally:
            span.end()


class _ServerSpan(_RequestSpan):
    """See :class:`.runtime.tracing.ExchangeSpan`."""

    def attach(self) -> Any:
        return otel_context.attach(self._context)

    def detach(self, token: Any) -> None:
        otel_context.detach(token)

    def raised(self, error: BaseException) -> None:
        self._span.record_exception(error)


class _ClientSpan(_RequestSpan):
    """See :class:`.runtime.tracing.CallSpan`."""

    def meta(self) -> dict[str, str]:
        carrier: dict[str, str] = {}
        propagate.inject(carrier, self._context)
        return carrier


# The beginning ------------------------------------------------------------------------------------


def _name(request: TracedRequest) -> str:
    return request.method if request.target is None else f"{request.method} {request.target}"


def _attributes(request: TracedRequest, other_side: str) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {"mcp.method.name": request.method}
    if request.method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
        if request.target is not None:
            attributes["gen_ai.tool.name"] = request.target
    if request.request_id is not None:
        attributes["jsonrpc.request.id"] = _text(request.request_id)
    if version := request.protocol_version:
        attributes["mcp.protocol.version"] = version
    return attributes | _network(request.connection, other_side)


def _text(request_id: str | int) -> str:
    return printable(str(request_id)[:_LONGEST_TEXT])


_PLACE: Final = re.compile(r"(?P<kind>\S+) (?P<host>\S+):(?P<port>\d+)")
_ADDRESS: Final = re.compile(r"https?://(?P<host>\[[^]]*\]|[^/:]*)(?::(?P<port>\d+))?")


def _network(connection: str, other_side: str) -> dict[str, AttributeValue]:
    """What the name of the connection says; see the page on wires."""
    kind, _, _ = connection.partition(" ")
    attributes: dict[str, AttributeValue] = {}
    if kind in ("stdio", "process"):
        attributes["network.transport"] = "pipe"
    elif kind == "unix":
        attributes["network.transport"] = "unix"
    elif kind == "tcp" or kind.startswith(("http", "websocket")):
        attributes["network.transport"] = "tcp"
    if kind.startswith("http"):
        attributes["network.protocol.name"] = "http"
        if kind.startswith("http/"):
            attributes["network.protocol.version"] = kind.removeprefix("http/")
    elif kind == "websocket":
        attributes["network.protocol.name"] = "websocket"
    place = _PLACE.fullmatch(connection) or _ADDRESS.match(connection)
    if place is not None:
        attributes[f"{other_side}.address"] = place["host"].strip("[]")
        if place["port"] is not None:
            attributes[f"{other_side}.port"] = int(place["port"])
    return attributes


def _links(ambient: Context, parent: Context) -> list[Link]:
    """The span around the serving, an HTTP server's for one, if the client names another one."""
    around = trace.get_current_span(ambient).get_span_context()
    chosen = trace.get_current_span(parent).get_span_context()
    return [Link(around)] if around.is_valid and around.span_id != chosen.span_id else []


def _carrier(request: TracedRequest) -> Mapping[str, Any]:
    """The ``_meta`` with W3C's entries as they have been checked."""
    checked = (request.trace if request.trace is not None else TraceContext()).as_meta()
    return {**request.meta, "traceparent": None, "tracestate": None, "baggage": None, **checked}


class _MetaGetter(Getter[Mapping[str, Any]]):
    """For propagators, which expect headers: texts, and not too long."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        value = carrier.get(key)
        return [value] if isinstance(value, str) and len(value) <= _LONGEST_TEXT else None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        return [*carrier]


_getter: Final = _MetaGetter()


# The end ------------------------------------------------------------------------------------------


def _tell(span: Span, record: Record, failure: int | str | None) -> None:
    span.set_attribute("jsonrpc.request.id", _text(record.request_id))
    if version := record.protocol_version:
        span.set_attribute("mcp.protocol.version", version)
    if isinstance(failure, int):
        span.set_attribute("rpc.response.status_code", str(failure))
    if record.delivered is False:
        span.set_attribute("mcp.response.delivered", False)
    if record.cause is not None:
        _tell_cancellation(span, record, record.cause)
    error_type = _error_type(record, failure)
    if error_type is not None:
        _fail(span, error_type, record.error)


def _tell_cancellation(span: Span, record: Record, cause: CancelCause) -> None:
    attributes: dict[str, AttributeValue] = {"mcp.cancel.source": cause.source.value}
    if cause.reason is not None:
        attributes["mcp.cancel.reason"] = printable(cause.reason)
    # The wall clock's time of something that is noted on Trio's clock.
    since = trio.current_time() - cause.received_at
    span.add_event("mcp.cancel", attributes, time.time_ns() - int(since * 1e9))
    if record.cleanup is not None:
        attributes["mcp.cancel.cleanup"] = record.cleanup
    if record.cleanup_duration is not None:
        attributes["mcp.cancel.cleanup_duration"] = record.cleanup_duration
    if record.late:
        attributes["mcp.cancel.late"] = [late.kind for late in record.late]
    span.set_attributes(attributes)


def _error_type(record: Record, failure: int | str | None) -> str | None:
    if failure is not None:
        return str(failure)
    if record.is_error and record.state is State.COMPLETED:
        return "tool_error"
    if record.cause is not None and record.cause.source in _FAILURES:
        return record.cause.source.value
    if record.cleanup == "error":
        return "cleanup_error"
    return None


def _fail(span: Span, error_type: str, description: str | None) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(StatusCode.ERROR, printable(description) if description is not None else None)
