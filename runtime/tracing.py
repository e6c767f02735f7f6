"""Trace context: which trace a request belongs to; and the hook through which spans are made.

Specification: *Base Protocol*, "``_meta``", "OpenTelemetry trace context". The values are those of
W3C *Trace Context* and W3C *Baggage*. They come from the peer, so reading them is bounded and never
fails: what is malformed counts as absent, as W3C demands.

The hook: a :class:`Tracing` is asked for a span of each request, and told how that ended. It is not
trusted to work. :func:`guarded` stands between: what a hook raises is logged and goes no further.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import attrs

from .jsonrpc import RequestId

if TYPE_CHECKING:
    from .context import Context
    from .journal import Record

__all__ = [
    "CallSpan",
    "ExchangeSpan",
    "GuardedCallSpan",
    "GuardedExchangeSpan",
    "GuardedTracing",
    "Span",
    "TraceContext",
    "TracedRequest",
    "Tracing",
    "guarded",
    "read_trace",
    "trace_id_of",
]

logger = logging.getLogger("trio_mcp.tracing")

T = TypeVar("T")

# The formats ------------------------------------------------------------------------------------

TRACESTATE_LENGTH: Final = 512
"""Characters of ``tracestate`` that are kept; whole members go, the longest and the last first."""
TRACESTATE_MEMBERS: Final = 32
"""With more members a ``tracestate`` is malformed."""
BAGGAGE_LENGTH: Final = 8192
"""Characters of ``baggage`` that are kept; whole members go, the last first."""
BAGGAGE_MEMBERS: Final = 180
"""Members of ``baggage`` that are kept, the first ones; and each only up to half its length."""

_LONGEST_TRACESTATE: Final = TRACESTATE_MEMBERS * 520  # 256 each for key and value, and some space
_LONGEST_MEMBER: Final = 128  # of a tracestate that is too long, longer ones go first

_TRACEPARENT: Final = re.compile(
    r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r"(?P<more>-.*)?",
    re.DOTALL,
)
_STATE_MEMBER: Final = re.compile(
    r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
# Each repetition takes all it can and gives nothing back: there is one way to read a member, so one
# that does not match is known as such in linear time.
_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_VALUE: Final = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*+"
_BLANK: Final = r"[ \t]*+"
_SAYS: Final = rf"={_BLANK}{_VALUE}{_BLANK}"
_BAGGAGE_MEMBER: Final = re.compile(
    rf"{_TOKEN}{_BLANK}{_SAYS}(?:;{_BLANK}{_TOKEN}{_BLANK}(?:{_SAYS})?+)*+"
)


def _must_be(read: Callable[[object], str | None]) -> Any:
    def check(_: Any, attribute: attrs.Attribute[Any], value: object) -> None:
        if value is not None and read(value) != value:
            raise ValueError(f"{attribute.name} is not in W3C's format: {value!r:.200}")

    return check


def _read_traceparent(value: object) -> str | None:
    """As version 00. A later version may have more fields, of which nothing is known here."""
    found = _TRACEPARENT.fullmatch(value) if type(value) is str else None
    if found is None or found["version"] == "ff":
        return None
    trace, parent = found["trace"], found["parent"]
    if trace == "0" * 32 or parent == "0" * 16:
        return None
    if found["version"] == "00":
        return None if found["more"] else found[0]
    return f"00-{trace}-{parent}-{int(found['flags'], 16) & 1:02x}"


def _read_tracestate(value: object) -> str | None:
    if type(value) is not str or not 0 < len(value) <= _LONGEST_TRACESTATE:
        return None
    members = [member for part in value.split(",") if (member := part.strip(" \t"))]
    if not 0 < len(members) <= TRACESTATE_MEMBERS:
        return None
    if not all(map(_STATE_MEMBER.fullmatch, members)):
        return None
    _shorten(members)
    return ",".join(members) or None


def _shorten(members: list[str]) -> None:
    length = len(members) - 1 + sum(map(len, members))
    for shortest in (_LONGEST_MEMBER, 0):
        for at in reversed(range(len(members))):
            if length <= TRACESTATE_LENGTH:
                return
            if len(members[at]) > shortest:
                length -= len(members.pop(at)) + 1


def _read_baggage(value: object) -> str | None:
    if type(value) is not str:
        return None
    if len(value) > BAGGAGE_LENGTH:
        value, _, _ = value[: BAGGAGE_LENGTH + 1].rpartition(",")
    members = [
        member
        for part in value.split(",")
        if len(member := part.strip(" \t")) <= BAGGAGE_LENGTH // 2
        and _BAGGAGE_MEMBER.fullmatch(member)
    ]
    return ",".join(members[:BAGGAGE_MEMBERS]) or None


@attrs.frozen
class TraceContext:
    """Which trace a request belongs to, as its ``_meta`` says it: texts in the formats of W3C.

    ``traceparent`` is of version 00, ``tracestate`` says more about it for the tracing systems.
    ``baggage`` is the application's own and may come alone. Raises ``ValueError`` for what is in
    another format, for more than 512 characters of ``tracestate`` or 8,192 of ``baggage``, and for
    a ``tracestate`` alone.
    """

    traceparent: str | None = attrs.field(default=None, validator=_must_be(_read_traceparent))
    tracestate: str | None = attrs.field(default=None, validator=_must_be(_read_tracestate))
    baggage: str | None = attrs.field(default=None, validator=_must_be(_read_baggage))

    def __attrs_post_init__(self) -> None:
        if self.traceparent is None and self.tracestate is not None:
            raise ValueError("a tracestate says nothing without a traceparent")

    @property
    def trace_id(self) -> str | None:
        """32 hexadecimal digits: the id of the whole trace."""
        return None if self.traceparent is None else self.traceparent[3:35]

    @property
    def parent_id(self) -> str | None:
        """16 hexadecimal digits: the span of the caller."""
        return None if self.traceparent is None else self.traceparent[36:52]

    @property
    def sampled(self) -> bool:
        """Whether the caller may have recorded its span."""
        return self.traceparent is not None and bool(int(self.traceparent[53:], 16) & 1)

    def as_meta(self) -> dict[str, str]:
        """The entries of a request's ``_meta`` that say this."""
        meta = {}
        if self.traceparent is not None:
            meta["traceparent"] = self.traceparent
        if self.tracestate is not None:
            meta["tracestate"] = self.tracestate
        if self.baggage is not None:
            meta["baggage"] = self.baggage
        return meta


def read_trace(meta: object) -> TraceContext | None:
    """What a ``_meta`` says about its trace; ``None`` for nothing. Never raises."""
    if type(meta) is not dict:
        return None
    traceparent = _read_traceparent(meta.get("traceparent"))
    tracestate = None if traceparent is None else _read_tracestate(meta.get("tracestate"))
    baggage = _read_baggage(meta.get("baggage"))
    if traceparent is None and baggage is None:
        return None
    return TraceContext(traceparent, tracestate, baggage)


def trace_id_of(meta: object) -> str | None:
    """The trace that a ``_meta`` names: 32 hexadecimal digits. Never raises."""
    if type(meta) is not dict or "traceparent" not in meta:
        return None
    traceparent = _read_traceparent(meta["traceparent"])
    return None if traceparent is None else traceparent[3:35]


# The hook ---------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class TracedRequest:
    """A request that is about to be served, or made.

    ``method`` and ``target`` are printable and clipped to ``Limits.text_length``; they may be a
    peer's invention. ``request_id`` and ``protocol_version`` are ``None`` while they are not known.
    ``meta`` is the request's ``_meta`` as it came, empty for a call. ``trace`` is what it says
    about the trace; for a call: what the caller passes on.
    """

    method: str
    target: str | None
    request_id: RequestId | None
    connection: str
    protocol_version: str | None
    meta: Mapping[str, Any]
    trace: TraceContext | None


class Span(Protocol):
    """What a :class:`Tracing` has to say about one request."""

    @property
    def trace_id(self) -> str | None:
        """32 hexadecimal digits, for the record; ``None`` for no trace."""

    def end(self, record: Record | None, failure: int | str | None) -> None:
        """The request has ended, and this is its record; called exactly once.

        ``record`` is ``None`` for a call that could not be made. ``failure`` is the code of the
        error that was answered, or the name of the exception that stands for one.
        """


class ExchangeSpan(Span, Protocol):
    """The span of a request being served."""

    def attach(self) -> Any:
        """Make it current in this task, before the handler runs. Returns a token."""

    def detach(self, token: Any) -> None:
        """Make current what was before; in the same task, after the handler."""

    def raised(self, error: BaseException) -> None:
        """The handler raised what is answered as an internal error."""


class CallSpan(Span, Protocol):
    """The span of a request being made."""

    def meta(self) -> Mapping[str, str]:
        """What goes into the request's ``_meta``, so that the server's span becomes a child."""


class Tracing(Protocol):
    """Makes spans. For OpenTelemetry: :class:`trio_mcp.otel.OpenTelemetry`.

    All of it is called in the event loop's thread, and holds up everything while it runs: it must
    not wait. An ``Exception`` that it raises is logged once and changes nothing else.
    """

    def exchange(self, request: TracedRequest) -> ExchangeSpan | None:
        """A request has come in. ``None``: no span for it."""

    def call(self, request: TracedRequest) -> CallSpan | None:
        """A request is to be made by the current task. ``None``: no span for it."""


def guarded(tracing: Tracing | None) -> GuardedTracing | None:
    """A hook that cannot break a request."""
    return None if tracing is None else GuardedTracing(tracing)


class GuardedTracing:
    """See :func:`guarded`."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._guard = _Guard()

    def exchange(self, request: TracedRequest) -> GuardedExchangeSpan | None:
        span = self._guard.run("exchange()", self._tracing.exchange, request)
        return None if span is None else GuardedExchangeSpan(span, self._guard)

    def call(self, request: TracedRequest) -> GuardedCallSpan | None:
        span = self._guard.run("call()", self._tracing.call, request)
        return None if span is None else GuardedCallSpan(span, self._guard)


class _GuardedSpan:
    def __init__(self, span: Span, guard: _Guard) -> None:
        self._guard = guard
        self._any = span

    @property
    def trace_id(self) -> str | None:
        return self._guard.run("trace_id", lambda: self._any.trace_id)

    def end(self, record: Record | None, failure: int | str | None) -> None:
        self._guard.run("end()", self._any.end, record, failure)


class GuardedExchangeSpan(_GuardedSpan):
    """See :class:`ExchangeSpan`."""

    def __init__(self, span: ExchangeSpan, guard: _Guard) -> None:
        super().__init__(span, guard)
        self._span = span

    async def run(
        self, handler: Callable[[Context, Any], Awaitable[T]], ctx: Context, params: Any
    ) -> T:
        """Run the handler with the span current: in its task, its children and its threads."""
        attached = self._guard.run("attach()", lambda: (self._span.attach(),))
        try:
            return await handler(ctx, params)
        finally:
            if attached is not None:
                self._guard.run("detach()", self._span.detach, *attached)

    def raised(self, error: BaseException) -> None:
        self._guard.run("raised()", self._span.raised, error)


class GuardedCallSpan(_GuardedSpan):
    """See :class:`CallSpan`."""

    def __init__(self, span: CallSpan, guard: _Guard) -> None:
        super().__init__(span, guard)
        self._span = span

    def meta(self) -> dict[str, str]:
        """Texts only, in ASCII, as W3C's are: what JSON can hold in any case."""
        return self._guard.run("meta()", self._meta) or {}

    def _meta(self) -> dict[str, str]:
        said = self._span.meta()
        return {key: text for key, text in said.items() if _is_ascii(key) and _is_ascii(text)}


def _is_ascii(text: object) -> bool:
    return isinstance(text, str) and text.isascii()


class _Guard:
    """Logs what a hook raises, once for each kind and place, and swallows it."""

    _most = 100

    def __init__(self) -> None:
        self._logged: set[tuple[str, type[Exception]]] = set()

    def run(self, what: str, fn: Callable[..., T], *args: Any) -> T | None:
        try:
            return fn(*args)
        except Exception as error:
            kind = what, type(error)
            if kind not in self._logged and len(self._logged) < self._most:
                self._logged.add(kind)
                logger.error("tracing failed in %s; this is said once", what, exc_info=error)
            return None
