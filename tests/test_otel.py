"""Spans, made with the real SDK, of servers and clients with ``tracing=OpenTelemetry()``."""

from __future__ import annotations

import logging
import logging.handlers
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, propagate, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context as OtelContext
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from tests.peers.checked import checked_client
from tests.peers.raw import call, cancel, lines, raw_client, request, until

from trio_mcp import (
    CallTimeout,
    CancelSource,
    ConnectionLost,
    Context,
    Limits,
    ProtocolError,
    Server,
    ServerError,
    State,
    ToolError,
    TraceContext,
    connect,
)
from trio_mcp.otel import OpenTelemetry
from trio_mcp.runtime.tracing import read_trace

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SERVER, CLIENT = SpanKind.SERVER, SpanKind.CLIENT


class Spans:
    """A tracer provider that keeps what has ended."""

    def __init__(self, **options: Any) -> None:
        self.provider = TracerProvider(**options)
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("tests")
        self.tracing = OpenTelemetry(self.provider)

    def all(self, kind: SpanKind | None = None) -> list[ReadableSpan]:
        spans = self._exporter.get_finished_spans()
        return [span for span in spans if kind is None or span.kind is kind]

    def one(self, name: str, kind: SpanKind | None = None) -> ReadableSpan:
        (span,) = [span for span in self.all(kind) if span.name == name]
        return span


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


def ids(span: ReadableSpan) -> tuple[str, str]:
    context = span.get_span_context()
    assert context is not None
    return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)


def parent(span: ReadableSpan) -> tuple[str, str] | None:
    """The ids of a span's parent, like :func:`ids`."""
    if span.parent is None:
        return None
    return trace.format_trace_id(span.parent.trace_id), trace.format_span_id(span.parent.span_id)


@contextmanager
def attached(context: OtelContext) -> Iterator[None]:
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)


def kitchen(spans: Spans, limits: Limits | None = None) -> Server:
    server = Server("kitchen", version="1", limits=limits, tracing=spans.tracing)

    @server.tool
    async def cook(dish: str) -> str:
        """Cook it."""
        with spans.tracer.start_as_current_span("cooking"):
            return f"Enjoy your {dish}."

    @server.tool
    async def guest() -> str:
        """Who it is for."""
        return str(baggage.get_baggage("guest"))

    @server.tool
    def bake(dish: str) -> str:
        """Cook it in a thread."""
        with spans.tracer.start_as_current_span("baking"):
            return f"Enjoy your {dish}."

    @server.tool
    async def feast(ctx: Context) -> str:
        """Many dishes at once."""

        async def course(name: str) -> None:
            with spans.tracer.start_as_current_span(name):
                await trio.lowlevel.checkpoint()

        ctx.nursery.start_soon(course, "soup")
        ctx.nursery.start_soon(course, "roast")
        return "Enjoy."

    @server.tool
    async def fail(how: str) -> str:
        """Fail."""
        if how == "tool":
            raise ToolError("the oven is cold")
        if how == "protocol":
            raise ProtocolError(-32042, "no such oven")
        raise RuntimeError("a secret of the oven")

    @server.tool
    async def simmer(ctx: Context, late: str = "") -> str:
        """Take for ever, and clean up."""
        try:
            await trio.sleep_forever()
        finally:
            with ctx.cleanup(5):
                await trio.sleep(0.5)
            if late == "error":
                raise RuntimeError("burnt")
        raise AssertionError

    @server.tool
    async def stubborn() -> str:
        """Not to be stopped."""
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        return "done"

    @server.tool(timeout=2)
    async def quick(ctx: Context) -> None:
        """Too slow."""
        try:
            await trio.sleep_forever()
        finally:
            with ctx.cleanup(5):
                await trio.sleep(0.5)

    return server


@pytest.fixture
def spans() -> Spans:
    return Spans()


# How a request ends -------------------------------------------------------------------------------


async def test_a_call_has_a_span_on_both_sides_in_one_trace(spans: Spans) -> None:
    server = kitchen(spans)
    async with connect(server, tracing=spans.tracing) as client:
        await client.call_tool("cook", {"dish": "soup"})
        records = list(server.journal)[-1], list(client.journal)[-1]

    called = spans.one("tools/call cook", CLIENT)
    served = spans.one("tools/call cook", SERVER)
    cooking = spans.one("cooking")
    assert parent(called) is None
    assert parent(served) == ids(called)
    assert parent(cooking) == ids(served)
    assert {record.trace_id for record in records} == {ids(called)[0]}
    assert called.status.status_code is served.status.status_code is StatusCode.UNSET
    for span, record in zip((served, called), records, strict=True):
        assert attributes(span) == {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "cook",
            "jsonrpc.request.id": str(record.request_id),
            "mcp.protocol.version": "2026-07-28",
        }
    assert served.instrumentation_scope is not None
    assert served.instrumentation_scope.name == "trio_mcp"


async def test_every_request_has_a_span_also_discovery_and_lists(spans: Spans) -> None:
    async with connect(kitchen(spans), tracing=spans.tracing) as client:
        _ = [tool async for tool in client.tools()]
    for name in ("server/discover", "tools/list"):
        assert parent(spans.one(name, SERVER)) == ids(spans.one(name, CLIENT))
        assert "gen_ai.operation.name" not in attributes(spans.one(name, SERVER))


@pytest.mark.parametrize(
    ("how", "error_type", "description"),
    [
        ("tool", "tool_error", None),
        ("protocol", "-32042", "no such oven"),
        ("bug", "-32603", "Internal error; "),
    ],
)
async def test_a_failure_is_an_error_of_both_spans(
    how: str, error_type: str, description: str | None, spans: Spans
) -> None:
    async with connect(kitchen(spans), tracing=spans.tracing) as client:
        if how == "tool":
            assert (await client.call_tool("fail", {"how": how})).is_error
        else:
            with pytest.raises(ServerError) as raised:
                await client.call_tool("fail", {"how": how})
            assert str(raised.value.code) == error_type

    for kind in (SERVER, CLIENT):
        span = spans.one("tools/call fail", kind)
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == error_type
        code = attributes(span).get("rpc.response.status_code")
        assert code == (None if how == "tool" else error_type)
        assert (span.status.description is None) == (description is None)
        assert (description or "") in (span.status.description or "")
    events = spans.one("tools/call fail", SERVER).events
    assert [event.name for event in events] == (["exception"] if how == "bug" else [])
    if how == "bug":
        assert (events[0].attributes or {})["exception.message"] == "a secret of the oven"
    assert spans.one("tools/call fail", CLIENT).events == ()


async def test_what_no_handler_serves_has_a_span_too(spans: Spans) -> None:
    async with checked_client(kitchen(spans)) as peer:
        await peer.send(request(1, "kitchen/close"), {**request(2, "tools/list"), "params": {}})
        await peer.answer(1)
        await peer.answer(2)
        await peer.send(call("three", "nothing"))
        await peer.answer("three")
    found = {span.name: attributes(span) for span in spans.all()}
    assert {name: said["error.type"] for name, said in found.items()} == {
        "kitchen/close": "-32601",
        "tools/list": "-32602",
        "tools/call nothing": "-32602",
    }
    assert found["tools/call nothing"]["jsonrpc.request.id"] == "three"


async def test_a_peers_inventions_are_clipped_and_made_printable(spans: Spans) -> None:
    server = kitchen(spans, Limits(text_length=20))
    async with checked_client(server) as peer:
        await peer.send(call("i\nd", "to\nol" + "x" * 100), request(2, "me\x00thod" + "y" * 100))
        await peer.answer("i\nd")
        await peer.answer(2)
    assert all(span.name.isprintable() and len(span.name) < 60 for span in spans.all())
    for span in spans.all():
        assert all(str(text).isprintable() for text in attributes(span).values())


# How a request is cancelled -----------------------------------------------------------------------


def cancellation(span: ReadableSpan) -> dict[str, Any]:
    return {
        name.removeprefix("mcp.cancel."): value
        for name, value in attributes(span).items()
        if name.startswith("mcp.cancel.")
    }


async def test_a_notification_is_told_with_its_reason_and_the_clean_up(
    spans: Spans, autojump_clock: trio.testing.MockClock
) -> None:
    async with checked_client(kitchen(spans)) as peer:
        await peer.send(call(1, "simmer"))
        await trio.sleep(1)
        await peer.send(cancel(1, "not hungry\nany more"))
        await peer.silence(5)

    span = spans.one("tools/call simmer")
    told = cancellation(span)
    assert told.pop("cleanup_duration") == pytest.approx(0.5)
    assert told == {
        "source": "notification",
        "reason": r"'not hungry\nany more'",
        "cleanup": "clean",
    }
    assert span.status.status_code is StatusCode.UNSET
    (event,) = span.events
    assert event.name == "mcp.cancel"
    assert event.attributes == {
        "mcp.cancel.source": "notification",
        "mcp.cancel.reason": r"'not hungry\nany more'",
    }
    assert span.end_time is not None
    assert span.end_time - event.timestamp >= 0.5e9  # the clean-up, on Trio's clock


async def test_the_end_of_the_connection_is_no_error_of_the_server(
    spans: Spans, autojump_clock: trio.testing.MockClock
) -> None:
    async with checked_client(kitchen(spans)) as peer:
        await peer.send(call(1, "simmer"))
        await trio.sleep(1)
    span = spans.one("tools/call simmer")
    assert cancellation(span)["source"] == "disconnect"
    assert span.status.status_code is StatusCode.UNSET


async def test_a_deadline_is_an_error_and_its_event_is_of_that_moment(
    spans: Spans, autojump_clock: trio.testing.MockClock
) -> None:
    async with checked_client(kitchen(spans)) as peer:
        await peer.send(call(1, "quick"))
        code = (await peer.answer(1))["error"]["code"]
    span = spans.one("tools/call quick")
    assert cancellation(span)["source"] == "deadline"
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == str(code)
    assert attributes(span)["rpc.response.status_code"] == str(code)
    (event,) = span.events
    assert span.end_time is not None
    assert span.end_time - event.timestamp >= 0.5e9  # the clean-up, on Trio's clock


async def test_a_shutdown_is_an_error(spans: Spans, autojump_clock: trio.testing.MockClock) -> None:
    server = kitchen(spans)
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as serving:
        serving.start_soon(server.serve_stream, theirs)
        await ours.send_all(lines(call(1, "simmer")))
        await trio.sleep(1)
        serving.cancel_scope.cancel("closing time")
    (record,) = server.journal
    assert (record.state, record.cause and record.cause.source) == (
        State.CANCELLED,
        CancelSource.SHUTDOWN,
    )
    span = spans.one("tools/call simmer")
    assert cancellation(span)["source"] == "shutdown"
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == attributes(span)["rpc.response.status_code"]


async def test_a_peer_that_stops_reading_is_an_error(
    spans: Spans, autojump_clock: trio.testing.MockClock
) -> None:
    server = kitchen(spans, Limits(stall=3))
    # The pair hands over nothing until somebody reads.
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_stream, theirs)
        await ours.send_all(lines(call(1, "simmer"), call(2, "cook", dish="soup")))
        await trio.sleep(1)
        await ours.send_all(lines(call(3, "fail", how="protocol")))  # its answer waits behind
        await until(lambda: not server.scopes().children, timeout=60)
    unsaid = attributes(spans.one("tools/call fail"))
    assert (unsaid["error.type"], unsaid["mcp.cancel.late"]) == ("stalled", ("error",))
    assert "rpc.response.status_code" not in unsaid
    assert cancellation(spans.one("tools/call simmer"))["source"] == "stalled"
    assert attributes(spans.one("tools/call simmer"))["error.type"] == "stalled"
    assert attributes(spans.one("tools/call cook"))["mcp.response.delivered"] is False


async def test_a_result_that_comes_too_late_is_told(
    spans: Spans, autojump_clock: trio.testing.MockClock
) -> None:
    async with checked_client(kitchen(spans)) as peer:
        await peer.send(call(1, "stubborn"))
        await trio.sleep(1)
        await peer.send(cancel(1))
        await peer.silence(5)
    told = cancellation(spans.one("tools/call stubborn"))
    assert (told["source"], told["late"]) == ("notification", ("result",))


async def test_a_failed_clean_up_is_an_error(
    spans: Spans, autojump_clock: trio.testing.MockClock
) -> None:
    async with checked_client(kitchen(spans)) as peer:
        await peer.send(call(1, "simmer", late="error"))
        await trio.sleep(1)
        await peer.send(cancel(1))
        await peer.silence(5)
    span = spans.one("tools/call simmer")
    assert cancellation(span)["cleanup"] == "error"
    assert attributes(span)["error.type"] == "cleanup_error"
    assert "exception" in [event.name for event in span.events]


async def test_a_call_cancelled_before_it_began_has_a_span(spans: Spans) -> None:
    server = kitchen(spans)
    async with checked_client(server) as peer:
        await peer.send(call(1, "simmer"), cancel(1))
        await until(lambda: len(server.journal) == 1)
    assert [record.started_at for record in server.journal] == [None]
    assert cancellation(spans.one("tools/call simmer"))["source"] == "notification"


async def test_a_caller_that_leaves_or_is_out_of_patience(
    spans: Spans, autojump_clock: trio.testing.MockClock
) -> None:
    server = kitchen(spans)
    async with connect(server, tracing=spans.tracing) as client:
        async with client.start_tool("simmer") as call:
            await trio.sleep(1)
            call.cancel("not hungry any more")
        await call.ended()
        with pytest.raises(CallTimeout):
            await client.call_tool("stubborn", timeout=1)
        await trio.sleep(5)
    left = spans.one("tools/call simmer", CLIENT)
    told = cancellation(left)
    assert (told["source"], told["reason"]) == ("caller", "not hungry any more")
    assert left.status.status_code is StatusCode.UNSET
    impatient = spans.one("tools/call stubborn", CLIENT)
    assert cancellation(impatient)["source"] == "timeout"
    assert attributes(impatient)["error.type"] == "timeout"
    assert parent(spans.one("tools/call simmer", SERVER)) == ids(left)


async def test_a_connection_that_ends_fails_the_call_and_one_that_has_ended_makes_none(
    spans: Spans,
) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    server = kitchen(Spans())
    async with trio.open_nursery() as nursery:
        serving = trio.CancelScope()

        async def serve() -> None:
            with serving:
                await server.serve_stream(theirs)

        nursery.start_soon(serve)
        async with connect(ours, tracing=spans.tracing) as client:
            async with client.start_tool("simmer") as call:
                await until(lambda: len(server.scopes().children) > 0)
                await theirs.aclose()
                with pytest.raises(ConnectionLost):
                    await call.result()
            with pytest.raises(ConnectionLost):
                await client.call_tool("cook", {"dish": "soup"})
            with pytest.raises(ConnectionLost):
                await client.discover()
        serving.cancel()
    for name in ("tools/call simmer", "tools/call cook"):
        span = spans.one(name)
        assert attributes(span)["error.type"] == "ConnectionLost"
        assert span.status.status_code is StatusCode.ERROR


async def test_a_call_that_json_cannot_hold_has_an_ended_span(spans: Spans) -> None:
    async with connect(kitchen(spans), tracing=spans.tracing) as client:
        with pytest.raises(ValueError, match="nan"):
            await client.call_tool("cook", {"dish": float("nan")})
    assert attributes(spans.one("tools/call cook"))["error.type"] == "NonFiniteNumber"


async def test_there_are_as_many_spans_as_records_whatever_happens(
    spans: Spans, autojump_clock: trio.testing.MockClock
) -> None:
    server = kitchen(spans)
    async with checked_client(server) as peer:
        tools = ["simmer", "stubborn", "quick", "cook", "feast", "fail", "nothing"]
        requests = [call(f"{tool} {n}", tool) for n in range(10) for tool in tools]
        await peer.send(*requests)
        await trio.sleep(0.5)
        await peer.send(*(cancel(one["id"]) for one in requests[::3]))
        await trio.sleep(3)
        await peer.send(*(cancel(one["id"]) for one in requests[::2]))
        await peer.send(*requests[::4])  # some are duplicates, and refused
        await trio.sleep(1)
    assert len(server.journal) > len(requests)
    served = spans.all(SERVER)
    assert len(served) == len({ids(span) for span in served}) == len(server.journal)


# What is current ----------------------------------------------------------------------------------


async def test_the_span_is_current_in_threads_and_in_children(spans: Spans) -> None:
    async with connect(kitchen(spans)) as client:
        await client.call_tool("bake", {"dish": "cake"})
        await client.call_tool("feast")
    assert parent(spans.one("baking")) == ids(spans.one("tools/call bake"))
    feast = ids(spans.one("tools/call feast"))
    assert [parent(spans.one(name)) for name in ("soup", "roast")] == [feast, feast]


@pytest.mark.parametrize("kind", ["http", "websocket", "tcp"])
async def test_requests_of_one_connection_have_nothing_to_do_with_each_other(
    kind: str, spans: Spans
) -> None:
    server = kitchen(spans)
    async with trio.open_nursery() as nursery:
        async with connected(kind, server, nursery, spans) as client:
            assert (await client.call_tool("cook", {"dish": "soup"})).text
            assert (await client.call_tool("cook", {"dish": "stew"})).text
        nursery.cancel_scope.cancel()
    called = [span for span in spans.all(CLIENT) if span.name == "tools/call cook"]
    served = [span for span in spans.all(SERVER) if span.name == "tools/call cook"]
    assert [parent(span) for span in called] == [None, None]
    assert [parent(span) for span in served] == [ids(span) for span in called]
    protocol = {} if kind == "tcp" else {"network.protocol.name": kind}
    for span, side in ((called[0], "server"), (served[0], "client")):
        told = dict(attributes(span))
        assert told.pop(f"{side}.address") == "127.0.0.1"
        assert type(told.pop(f"{side}.port")) is int
        places = ("network.", "server.", "client.")
        network = {name: value for name, value in told.items() if name.startswith(places)}
        assert network == {"network.transport": "tcp", **protocol}


async def test_requests_that_follow_each_other_on_one_connection_are_no_children(
    spans: Spans,
) -> None:
    server = kitchen(spans)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(server.serve_http, port=0))
        async with connect(f"http://127.0.0.1:{port}/mcp") as client:
            for _ in range(3):
                await client.call_tool("cook", {"dish": "soup"})
        assert len({record.connection for record in server.journal}) == 1  # kept alive
        nursery.cancel_scope.cancel()
    assert [parent(span) for span in spans.all(SERVER)] == [None] * 4


@asynccontextmanager
async def connected(
    kind: str, server: Server, nursery: trio.Nursery, spans: Spans
) -> AsyncGenerator[Any, None]:
    if kind == "tcp":
        serve = partial(trio.serve_tcp, server.serve_stream, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        target: Any = await trio.testing.open_stream_to_socket_listener(listener)
    elif kind == "http":
        target = f"http://127.0.0.1:{await nursery.start(partial(server.serve_http, port=0))}/mcp"
    else:
        port = await nursery.start(partial(server.serve_websocket, port=0))
        target = f"ws://127.0.0.1:{port}/mcp"
    async with connect(target, tracing=spans.tracing) as client:
        yield client


async def test_one_trace_goes_through_two_servers(spans: Spans) -> None:
    behind = kitchen(spans)
    front = Server("front", version="1", tracing=spans.tracing)

    @front.tool
    async def order(dish: str, ctx: Context) -> str:
        """Have it cooked."""
        async with connect(behind, tracing=spans.tracing) as client:
            guest = (await client.call_tool("guest")).text
            await client.call_tool("cook", {"dish": dish}, trace=ctx.trace)
        return guest

    with spans.tracer.start_as_current_span("hungry"):
        with attached(baggage.set_baggage("guest", "alice")):
            async with connect(front, tracing=spans.tracing) as client:
                assert (await client.call_tool("order", {"dish": "soup"})).text == "alice"
    chain = [
        spans.one("hungry"),
        spans.one("tools/call order", CLIENT),
        spans.one("tools/call order", SERVER),
        spans.one("tools/call cook", CLIENT),
        spans.one("tools/call cook", SERVER),
        spans.one("cooking"),
    ]
    assert [parent(span) for span in chain] == [None, *(ids(span) for span in chain[:-1])]
    assert {ids(span)[0] for span in spans.all()} == {ids(chain[0])[0]}
    assert {record.trace_id for record in behind.journal} == {ids(chain[0])[0]}


async def test_a_handler_without_spans_of_its_own_passes_its_trace_on(spans: Spans) -> None:
    behind = kitchen(spans)
    front = Server("front", version="1")

    @front.tool
    async def order(dish: str, ctx: Context) -> None:
        """Have it cooked."""
        async with connect(behind, tracing=spans.tracing) as client:
            await client.call_tool("cook", {"dish": dish}, trace=ctx.trace)

    async with connect(front) as client:
        trace = TraceContext(TRACEPARENT, "vendor=1")
        await client.call_tool("order", {"dish": "soup"}, trace=trace)
    called = spans.one("tools/call cook", CLIENT)
    assert parent(called) == (TRACE, PARENT)
    assert parent(spans.one("tools/call cook", SERVER)) == ids(called)
    context = spans.one("cooking").get_span_context()
    assert context is not None
    assert context.trace_state.to_header() == "vendor=1"


async def test_the_span_around_the_serving_is_linked_or_else_the_parent(spans: Spans) -> None:
    server = kitchen(spans)
    with spans.tracer.start_as_current_span("around"):
        async with raw_client(server) as peer:
            traced = request(1, "tools/list", {"_meta": {"traceparent": TRACEPARENT}})
            await peer.send(traced, request(2, "server/discover"))
            await peer.answer(1)
            await peer.answer(2)
    around = ids(spans.one("around"))
    linked, child = spans.one("tools/list"), spans.one("server/discover")
    assert parent(linked) == (TRACE, PARENT)
    (link,) = linked.links
    assert (link.context.trace_id, link.context.span_id) == tuple(int(id_, 16) for id_ in around)
    assert (parent(child), child.links) == (around, ())


@pytest.mark.parametrize(
    "meta",
    [
        {"traceparent": 7, "baggage": 7},
        {"traceparent": [TRACEPARENT]},
        {"traceparent": f" {TRACEPARENT}"},  # which OpenTelemetry would take
        {"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-00"},
        {"baggage": "a=b=c, ,;=", "tracestate": "a=1"},
        {"traceparent": "x" * 100_000, "baggage": "x" * 100_000},
    ],
)
async def test_a_malformed_context_begins_a_new_trace(
    meta: dict[str, Any], spans: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    async with raw_client(kitchen(spans)) as peer:
        await peer.send(request(1, "tools/list", {"_meta": meta}))
        assert "result" in await peer.answer(1)
    assert parent(spans.one("tools/list")) is None
    assert caplog.records == []


MEMBERS = st.text(st.sampled_from("aZ09=@;%*/-_!~ \t"), max_size=12)
LISTS = st.lists(MEMBERS, max_size=6).map(",".join)


@given(tracestate=LISTS, baggage=LISTS)
def test_what_is_kept_of_a_context_opentelemetry_takes_without_a_complaint(
    tracestate: str, baggage: str
) -> None:
    kept = read_trace({"traceparent": TRACEPARENT, "tracestate": tracestate, "baggage": baggage})
    assert kept is not None
    logger, complaints = logging.getLogger("opentelemetry"), logging.handlers.BufferingHandler(100)
    logger.addHandler(complaints)
    try:
        context = propagate.extract(kept.as_meta(), OtelContext())
    finally:
        logger.removeHandler(complaints)
    assert complaints.buffer == []
    found = trace.get_current_span(context).get_span_context()
    assert trace.format_trace_id(found.trace_id) == TRACE


async def test_the_context_travels_by_the_global_propagators(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd(TextMapPropagator):
        """Under a name of its own."""

        fields = {"odd"}  # noqa: RUF012

        def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> OtelContext:
            (value,) = getter.get(carrier, "odd") or ("nothing",)
            assert "odd" in getter.keys(carrier) or value == "nothing"
            return baggage.set_baggage("guest", value, context)

        def inject(self, carrier: Any, context: Any = None, setter: Any = None) -> None:
            carrier["odd"] = "bob"

    monkeypatch.setattr(propagate, "get_global_textmap", Odd)
    async with connect(kitchen(spans), tracing=spans.tracing) as client:
        assert (await client.call_tool("guest")).text == "bob"
    async with connect(kitchen(spans)) as client:
        assert (await client.call_tool("guest")).text == "nothing"


async def test_a_sampler_may_want_no_span_and_the_trace_goes_on() -> None:
    spans = Spans(sampler=ALWAYS_OFF)
    server = kitchen(spans)
    async with connect(server, tracing=spans.tracing) as client:
        trace = TraceContext(TRACEPARENT)
        await client.call_tool("cook", {"dish": "soup"}, trace=trace)
        assert list(client.journal)[-1].trace_id == TRACE
    assert list(server.journal)[-1].trace_id == TRACE
    assert spans.all() == []


async def test_without_an_sdk_nothing_is_made_and_the_trace_goes_on() -> None:
    server = Server("plain", version="1", tracing=OpenTelemetry(trace.NoOpTracerProvider()))

    @server.tool
    async def told(ctx: Context) -> str:
        """What it has been told."""
        return ctx.trace.traceparent or "" if ctx.trace is not None else ""

    tracing = OpenTelemetry(trace.NoOpTracerProvider())
    async with connect(server, tracing=tracing) as client:
        assert (await client.call_tool("told")).text == ""
        context = TraceContext(TRACEPARENT)
        assert (await client.call_tool("told", trace=context)).text == TRACEPARENT
    assert [record.trace_id for record in server.journal] == [None, None, TRACE]


# What is broken -----------------------------------------------------------------------------------


class BrokenProcessor(SpanProcessor):
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("broken at the start")

    def on_end(self, span: Any) -> None:
        raise RuntimeError("broken at the end")


class BrokenExporter(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise RuntimeError("broken in export")


@pytest.mark.parametrize("broken", [BrokenProcessor(), SimpleSpanProcessor(BrokenExporter())])
async def test_a_broken_tracer_breaks_no_request(
    broken: SpanProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    spans = Spans()
    spans.provider.add_span_processor(broken)
    server = Server("s", version="1", tracing=spans.tracing)

    @server.tool
    async def double(n: int) -> int:
        """Twice."""
        return 2 * n

    async with connect(server, tracing=spans.tracing) as client:
        for n in range(3):
            assert (await client.call_tool("double", {"n": n})).structured_content == 2 * n
    assert len(server.journal) == 4
    ours = [record for record in caplog.records if record.name == "trio_mcp.tracing"]
    assert len(ours) == (2 if isinstance(broken, BrokenProcessor) else 0)


# Without it ---------------------------------------------------------------------------------------


def test_the_package_does_without_opentelemetry_and_says_how_to_get_it() -> None:
    program = """
import sys
sys.modules["opentelemetry"] = None
import trio_mcp
try:
    import trio_mcp.otel
except ImportError as error:
    print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "trio_mcp.otel needs OpenTelemetry: pip install 'trio-mcp[otel]'"
    program = "import sys, trio_mcp; print('opentelemetry' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "False"
