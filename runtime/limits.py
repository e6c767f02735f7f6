"""Every bound of the runtime, named, documented, with its default, in one place."""

from __future__ import annotations

import math
from typing import Any

import attrs

from .numbers import check_number, check_whole

__all__ = ["Limits", "limits_or_default"]


def _positive(_: Any, attribute: attrs.Attribute[Any], value: float) -> None:
    check_number(f"Limits.{attribute.name}", value)
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"Limits.{attribute.name} must be a finite number above 0, not {value!r}")


def _whole(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    check_whole(f"Limits.{attribute.name}", value)


def _bound(default: float) -> float:
    return attrs.field(default=default, validator=_positive)


def _count(default: int) -> int:
    return attrs.field(default=default, validator=[_whole, _positive])


def _share(of: str) -> int:
    """Three quarters of another limit, unless it is given."""
    share = attrs.Factory(lambda limits: max(1, getattr(limits, of) * 3 // 4), takes_self=True)
    made: int = attrs.field(default=share, validator=[_whole, _positive])
    return made


@attrs.frozen(kw_only=True)
class Limits:
    """Bounds of a server or a client. Times are seconds of Trio's clock, sizes are bytes.

    Pass to :class:`~trio_mcp.Server` or :func:`~trio_mcp.connect`; change one with
    ``Limits(stall=5)``. Each must be finite and above 0: nothing in the runtime waits, buffers or
    shields without a bound.
    """

    # What a peer may send
    message_bytes: int = _count(16 * 1024 * 1024)
    """Longest JSON message, in and out. Longer ones are refused and named in the error."""
    id_length: int = _count(8192)
    """Longest request id or progress token, in characters or digits."""
    uri_length: int = _count(8192)
    """Longest URI of a resource, in characters."""
    exchanges_per_connection: int = _count(16_384)
    """Requests in flight on one connection; one more is answered OVERLOADED."""
    bytes_per_connection: int = _count(64 * 1024 * 1024)
    """Bytes of requests in flight, about what subscriptions remember, and log messages and answers
    not yet written; over it, new requests are answered OVERLOADED and log messages are dropped. So
    a connection holds at most that, and the results of handlers already running."""
    exchanges: int = _count(65_536)
    """Requests in flight on a whole server; one more is answered OVERLOADED, or one that waits is,
    if its client has more of them waiting."""
    handlers: int = _count(65_536)
    """Requests of a server that run a function of the application at once; more wait, in turns
    between clients."""
    handlers_per_client: int = _share("handlers")
    """Of these, those of one client; 3/4 of ``handlers`` unless it is given, so that whoever comes
    finds room however long a client keeps its own."""
    function_queue: int = _count(100)
    """Requests that wait for a function with ``limit=`` of its own, if it has no ``queue=``; one
    more is answered OVERLOADED, or the newest of the client that has the most waiting is."""
    retry_after: float = _bound(1.0)
    """What an OVERLOADED error suggests to wait before trying again."""

    # Time
    stall: float = _bound(30.0)
    """How long a peer may take to read the next 64 KiB that we have for it, or what there is of
    them; then it is STALLED."""
    drain: float = _bound(1.0)
    """How long running requests may go on after a shutdown was asked for."""
    cleanup: float = _bound(5.0)
    """Clean-up window of work that cannot be cancelled (threads), then it is abandoned; and of all
    the ``ctx.on_exit`` callbacks of a request."""
    longest_cleanup: float = _bound(60.0)
    """Most that a handler may ask for with ``ctx.cleanup(seconds)``."""

    # HTTP
    http_connections: int = _count(4096)
    """Connections of one HTTP server; one more is closed at once."""
    http_head_bytes: int = _count(32 * 1024)
    """Request line and headers of one request; more is answered 431."""
    http_head_time: float = _bound(10.0)
    """How long the head of a request may take from its first byte (and a TLS handshake)."""
    http_body_time: float = _bound(30.0)
    """How long the body of a request may take."""
    http_idle_time: float = _bound(75.0)
    """How long a connection may wait for its next request."""
    http_pipeline: int = _count(16)
    """Requests that wait on one connection while one is served; with more it is closed."""
    http_turn: int = _count(32)
    """Requests that an HTTP server begins in one turn of the event loop, about; more wait for the
    next one, in turns between clients."""
    authentication: float = _bound(10.0)
    """How long ``authenticate`` may take for one request; then it is answered 500."""
    http_silence: float = _bound(5.0)
    """How long an answer may keep silent before it becomes an event stream, for proxies."""
    http_keep_alive: float = _bound(15.0)
    """How long an event stream may keep silent before a comment is sent."""

    # HTTP, client side
    http_pool: int = _count(512)
    """Connections of one client, each busy with one call; more calls wait, within their timeouts.
    Streams that stay open count."""
    http_reuse: float = _bound(4.0)
    """How long an idle connection is kept for the next call; servers begin to close theirs after
    5 seconds."""
    http_trailing: float = _bound(1.0)
    """How long an event stream may stay open after its response, before it is closed; and in a
    session after its cancellation, if the server does not take that."""
    http_mirrored: int = _count(1000)
    """Tools of which a client remembers the parameters that go into headers; the oldest is
    forgotten."""

    # Work outside of the event loop
    threads: int = _count(40)
    """Worker threads of a server for plain ``def`` handlers and ``ctx.run_sync``, abandoned ones
    included; those of named pools come on top."""
    interrupt_pause: float = _bound(0.05)
    """Pause before ``interrupt`` of ``ctx.run_sync`` is called again, doubled each time, until the
    function returns."""
    processes: int = _count(40)
    """Commands that a server runs at once with ``ctx.run_process``; further ones wait."""
    output_bytes: int = _count(1024 * 1024)
    """How much of the end of a command's output is kept, and as much of its standard error."""
    process_grace: float = _bound(2.0)
    """How long a command may take after SIGTERM; then SIGKILL."""
    workers: int = _count(4)
    """Worker processes of a server for ``ctx.run_in_process``; further calls wait."""
    worker_idle: float = _bound(60.0)
    """How long a worker process is kept for the next call."""
    work_records: int = _count(20)
    """Threads and processes of one request that its record tells of; the newest."""

    # Progress, log messages
    progress_interval: float = _bound(0.02)
    """Least time between two progress notifications of one request; the newest value wins."""
    log_bytes: int = _count(64 * 1024)
    """Log messages of one request that its client has not read yet; the oldest makes room."""
    logs_per_second: int = _count(1000)
    """Log messages of one request that go out to a client that reads them all; as many may go at
    once, what is beyond is dropped and counted."""
    progress_backlog: int = _count(100)
    """Updates of one call that wait for its owner, client side; the oldest is dropped."""

    # Input that a server asks for, client side
    input_rounds: int = _count(10)
    """Times that a client answers one call's requests for input; once more fails the call."""
    input_requests: int = _count(100)
    """Requests for input in one answer of a server; more fail the call."""
    input_pause: float = _bound(0.1)
    """Pause before a call is made again for which the server wants nothing but that: none the first
    time, then this long, twice, three times as long."""

    # Subscriptions, client side
    changes_backlog: int = _count(1000)
    """Different changes that wait for the owner of a subscription; the oldest is dropped and
    counted."""

    # Servers that are restarted, client side
    restart_calls: int = _count(1000)
    """Calls that wait while a server is restarted; one more fails at once."""

    # Sessions, which servers of earlier revisions have, client side
    session_questions: int = _count(100)
    """Questions of a server that are being answered at once; one more is refused."""
    session_posts: int = _count(100)
    """HTTP: answers on their way to a server; one more is dropped."""
    session_listen: float = _bound(1.0)
    """HTTP: how long the first call waits for the stream on which a server asks and tells what
    belongs to no call."""
    session_streams: int = _count(5)
    """HTTP: times in a row that a stream is asked for again after it ended and told nothing."""
    session_pause: float = _bound(1.0)
    """HTTP: pause before that, growing; a server may choose 0.1 to 60 times as much."""

    # Schemas that the application gives
    schema_bytes: int = _count(256 * 1024)
    """Longest schema given to ``add_tool``, as JSON."""
    schema_depth: int = _count(64)
    """Most levels of such a schema, also where its references are followed."""
    schema_visits: int = _count(10_000)
    """Most schemas in it that may look at one value, its references expanded."""
    value_depth: int = _count(200)
    """Most levels of arguments and results that such a schema is for."""
    # Subscriptions
    subscribed_resources: int = _count(1000)
    """URIs of one ``subscriptions/listen`` request; with more it is refused with -32602."""

    # Lists
    page_size: int = _count(100)
    """Entries of one page of a list."""
    directory_entries: int = _count(10_000)
    """Files of one directory that are listed as resources, and directories below it that are looked
    into for that; what is beyond is not listed, and a warning is logged."""
    pages: int = _count(1000)
    """Most pages a client follows before it gives up on a list."""
    list_entries: int = _count(100_000)
    """Entries of a list that a client remembers, to begin anew where the server does not know its
    own cursor any more; a longer list fails then."""
    known_tools: int = _count(1000)
    """Tools of which a client remembers what their results look like; the oldest is forgotten."""
    cache_bytes: int = _count(16 * 1024 * 1024)
    """Answers that a client keeps with ``cache``, and their keys, about; the least recently used
    makes room."""

    # Input from the client
    questions: int = _count(32)
    """Questions that one answer may ask the client."""
    request_state_bytes: int = _count(64 * 1024)
    """Longest sealed state, in and out: what a handler remembers, and the answers it has."""
    request_state_age: float = _bound(3600.0)
    """How long a sealed state is good for; whole seconds, by the system's clock."""
    single_use_states: int = _count(10_000)
    """Used states remembered until they are too old, with ``single_use_state``; while there are as
    many, a further round is answered OVERLOADED."""

    # Journal
    journal_records: int = _count(1000)
    """Records kept in the ring; the oldest makes room."""
    journal_backlog: int = _count(1000)
    """Records waiting for one subscriber; the oldest is dropped and counted."""
    text_length: int = _count(1000)
    """Characters kept of a peer's free text (reasons, names) in records and logs."""
    late_answers: int = _count(1000)
    """Cancelled calls a client remembers, to record an answer that comes late."""

    # Server processes launched by a client
    connect: float = _bound(10.0)
    """How long ``connect`` waits for the server to say what it is; and before that, as long for a
    WebSocket to be open."""
    probe: float = _bound(3.0)
    """How long a server may take for its answer to discovery, at most half of ``connect``; then it
    is asked in the way of earlier revisions, too."""
    exit_wait: float = _bound(2.0)
    """How long a server process may take to exit after its stdin was closed."""
    terminate_wait: float = _bound(2.0)
    """How long it may take after SIGTERM; then SIGKILL."""
    stderr_bytes: int = _count(64 * 1024)
    """How much of the end of a server's standard error is kept."""


def limits_or_default(limits: Any) -> Limits:
    """The limits that were passed as an option. Raises ``TypeError`` for what is none."""
    if limits is None:
        return Limits()
    if not isinstance(limits, Limits):
        raise TypeError(f"limits are a Limits(…), such as Limits(stall=5), not {limits!r:.80}")
    return limits
