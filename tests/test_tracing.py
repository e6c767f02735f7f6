"""Trace context without OpenTelemetry: its formats, ``ctx.trace``, the journal, passing it on."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.peers.checked import checked_client
from tests.peers.inspection import record_of
from tests.peers.raw import call as tool_call
from tests.peers.raw import request

from trio_mcp import Context, Server, TraceContext, connect
from trio_mcp.runtime.tracing import (
    BAGGAGE_LENGTH,
    BAGGAGE_MEMBERS,
    TRACESTATE_LENGTH,
    TRACESTATE_MEMBERS,
    TracedRequest,
    guarded,
    read_trace,
    trace_id_of,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


def read(**meta: Any) -> TraceContext | None:
    return read_trace(meta)


def read_with(**meta: Any) -> TraceContext:
    found = read(traceparent=TRACEPARENT, **meta)
    assert found is not None
    return found


# traceparent --------------------------------------------------------------------------------------


def test_a_traceparent_is_read() -> None:
    trace = read(traceparent=TRACEPARENT)
    assert trace == TraceContext(TRACEPARENT)
    assert (trace.trace_id, trace.parent_id, trace.sampled) == (TRACE, PARENT, True)
    assert trace.as_meta() == {"traceparent": TRACEPARENT}


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        TRACEPARENT[:-1],
        TRACEPARENT + "-",
        TRACEPARENT + "-00",
        TRACEPARENT + "0",
        TRACEPARENT + "\n",
        " " + TRACEPARENT,
        TRACEPARENT.upper(),
        TRACEPARENT.replace("-", "_"),
        f"ff-{TRACE}-{PARENT}-01",
        f"0-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}g-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-0g",
        f"cc-{TRACE}-{PARENT}-01what",
        f"00-{'٣' * 32}-{PARENT}-01",  # digits, but no ASCII ones
        None,
        0,
        True,
        [TRACEPARENT],
        {"traceparent": TRACEPARENT},
    ],
)
def test_a_malformed_traceparent_counts_as_absent(value: Any) -> None:
    assert read(traceparent=value, tracestate="a=1") is None
    assert trace_id_of({"traceparent": value}) is None


@pytest.mark.parametrize("more", ["", "-", "-what-the-future-brings", "-\n" + "x" * 10_000])
@pytest.mark.parametrize(("flags", "kept"), [("00", "00"), ("01", "01"), ("ff", "01")])
def test_of_a_later_version_only_what_is_known_is_taken(more: str, flags: str, kept: str) -> None:
    trace = read(traceparent=f"cc-{TRACE}-{PARENT}-{flags}{more}")
    assert trace == TraceContext(f"00-{TRACE}-{PARENT}-{kept}")


@pytest.mark.parametrize("meta", [None, [], "traceparent", {}, {"traceparent": None}])
def test_nothing_is_said_about_a_trace(meta: Any) -> None:
    assert read_trace(meta) is None
    assert trace_id_of(meta) is None


# tracestate ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("congo=t61rcWkgMzE", "congo=t61rcWkgMzE"),
        ("a=1,\t b=2 ,,c=3", "a=1,b=2,c=3"),
        ("0tenant@vendor=x y!", "0tenant@vendor=x y!"),
        ("a=1,a=2", "a=1,a=2"),
        ("k" * 256 + "=" + "v" * 255, "k" * 256 + "=" + "v" * 255),
        ("", None),
        (",", None),
        ("a", None),
        ("a=", None),
        ("A=1", None),
        ("0=1", None),
        ("a@b@c=1", None),
        ("t" * 241 + "@" + "v" * 14 + "=1", "t" * 241 + "@" + "v" * 14 + "=1"),
        ("t" * 242 + "@v=1", None),
        ("t@" + "v" * 15 + "=1", None),
        ("a=1,b", None),
        ("a=b=c", None),
        ("a=é", None),
        ("a=1\nb=2", None),
        ("k" * 257 + "=v", None),
        ("k=" + "v" * 257, None),
        (["a=1"], None),
        (7, None),
        (",".join(f"k{n}=v" for n in range(32)), ",".join(f"k{n}=v" for n in range(32))),
        (",".join(f"k{n}=v" for n in range(33)), None),
        ("," * 1_000_000, None),
    ],
)
def test_a_tracestate_is_kept_or_counts_as_absent(value: Any, kept: str | None) -> None:
    assert read_with(tracestate=value) == TraceContext(TRACEPARENT, kept)


def test_of_a_long_tracestate_long_members_go_first_and_then_the_last() -> None:
    short = [f"s{n}=" + "v" * 97 for n in range(6)]
    long = "l=" + "v" * 127
    assert read_with(tracestate=",".join([long, *short[:4]])).tracestate == ",".join(short[:4])
    assert read_with(tracestate=",".join(short)).tracestate == ",".join(short[:5])
    assert read_with(tracestate=",".join([long, *short])).tracestate == ",".join(short[:5])


def test_a_tracestate_without_a_traceparent_is_dropped_and_baggage_is_not() -> None:
    assert read(tracestate="a=1", baggage="who=alice") == TraceContext(baggage="who=alice")


# baggage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("userId=alice,serverNode=DF%2028", "userId=alice,serverNode=DF%2028"),
        (" a = 1 ;p; q = 2 , b=", "a = 1 ;p; q = 2,b="),
        ("a=1,no member,b=2", "a=1,b=2"),
        ("a=é,b=2", "b=2"),
        ('a="1"', None),
        ("a=1\n", None),
        ("", None),
        ({"a": 1}, None),
    ],
)
def test_baggage_is_kept_but_for_members_that_are_malformed(value: Any, kept: str | None) -> None:
    expected = None if kept is None else TraceContext(baggage=kept)
    assert read(baggage=value) == expected


def test_of_too_much_baggage_whole_members_are_kept() -> None:
    members = [f"k{n:04}=" + "v" * 100 for n in range(100)]
    kept = read_with(baggage=",".join(members)).baggage
    assert kept is not None
    assert BAGGAGE_LENGTH - 107 < len(kept) <= BAGGAGE_LENGTH
    assert kept.split(",") == members[: kept.count(",") + 1]
    many = [f"k{n}=v" for n in range(BAGGAGE_MEMBERS + 1)]
    assert read(baggage=",".join(many)) == TraceContext(baggage=",".join(many[:-1]))
    half = "k=" + "v" * (BAGGAGE_LENGTH // 2 - 2)
    assert read(baggage=half + ",b=1") == TraceContext(baggage=half + ",b=1")
    assert read(baggage=half + "v,b=1") == TraceContext(baggage="b=1")
    assert read(baggage="k=" + "v" * 1_000_000 + ",b=1") is None


@pytest.mark.parametrize("property_", [";a= ", ";a=\t\t", "; a = ", ";a ", " "])
def test_baggage_is_read_in_linear_time(property_: str) -> None:
    member = "k=" + property_ * (4000 // len(property_))
    assert read(baggage=member + '"') is None  # tried in each way, it would not end
    assert read(baggage=member + ",b=1") == TraceContext(baggage=member.strip(" \t") + ",b=1")


# What is hostile ----------------------------------------------------------------------------------

CHARACTERS = st.sampled_from(
    "0123456789abcdef-=,;@% \t\n\x00\x7fé٣\U0001f600" + string.ascii_letters
)
ALIKE = st.text(CHARACTERS, max_size=80)
ANYTHING = st.one_of(
    st.none(), st.integers(), st.lists(ALIKE), st.dictionaries(ALIKE, ALIKE, max_size=3)
)
NEARLY = st.builds(
    lambda at, char: TRACEPARENT[:at] + char + TRACEPARENT[at + 1 :],
    st.integers(0, 56),
    CHARACTERS,
)
VALUES = st.one_of(ANYTHING, ALIKE, NEARLY, st.just(TRACEPARENT))


@given(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("traceparent", "tracestate", "baggage"), VALUES)
    )
)
def test_reading_never_fails_and_what_it_keeps_is_read_again_as_it_is(meta: dict[str, Any]) -> None:
    trace = read_trace(meta)
    assert trace_id_of(meta) == (None if trace is None else trace.trace_id)
    if trace is not None:
        assert read_trace(trace.as_meta()) == trace
        assert all(
            text.isascii() and text.replace("\t", " ").isprintable()
            for text in trace.as_meta().values()
        )


@given(
    st.lists(
        st.builds(
            "{}={}".format, st.from_regex(r"[a-z][a-z0-9]{0,200}", fullmatch=True), st.just("v")
        ),
        max_size=40,
    )
)
def test_a_tracestate_is_bounded_and_in_order(members: list[str]) -> None:
    kept = read_with(tracestate=",".join(members)).tracestate
    if not 0 < len(members) <= TRACESTATE_MEMBERS:
        assert kept is None
    elif kept is not None:
        assert len(kept) <= TRACESTATE_LENGTH
        rest = iter(members)
        assert all(member in rest for member in kept.split(","))


@pytest.mark.parametrize(
    "values",
    [
        {"traceparent": "what"},
        {"traceparent": ""},
        {"traceparent": f"cc-{TRACE}-{PARENT}-01"},
        {"traceparent": TRACEPARENT, "tracestate": "a=1,"},
        {"traceparent": TRACEPARENT, "tracestate": "a=" + "v" * 600},
        {"tracestate": "a=1"},
        {"baggage": "a"},
        {"baggage": "a=" + "v" * BAGGAGE_LENGTH},
    ],
)
def test_a_trace_context_of_ones_own_is_checked(values: Mapping[str, str]) -> None:
    with pytest.raises(ValueError, match=r"traceparent|tracestate|baggage"):
        TraceContext(**values)


# Over a wire --------------------------------------------------------------------------------------


def telling() -> Server:
    server = Server("telling", version="1")

    @server.tool
    async def told(ctx: Context) -> dict[str, str]:
        """What it has been told about the trace."""
        return ctx.trace.as_meta() if ctx.trace is not None else {}

    @server.tool
    def told_in_a_thread(ctx: Context) -> dict[str, str]:
        """The same."""
        return ctx.trace.as_meta() if ctx.trace is not None else {}

    return server


def traced(request_id: Any, tool: str, **meta: Any) -> dict[str, Any]:
    return request(request_id, "tools/call", {"name": tool, "arguments": {}, "_meta": meta})


@pytest.mark.parametrize("tool", ["told", "told_in_a_thread"])
async def test_a_handler_sees_its_trace_and_the_record_names_it(tool: str) -> None:
    server = telling()
    meta = {"traceparent": TRACEPARENT, "tracestate": "a=1", "baggage": "who=alice"}
    async with checked_client(server) as peer:
        await peer.send(traced(1, tool, **meta))
        assert (await peer.answer(1))["result"]["structuredContent"] == meta
        await peer.send(traced(2, tool))
        assert (await peer.answer(2))["result"]["structuredContent"] == {}
    assert record_of(server, 1).trace_id == TRACE
    assert record_of(server, 1).describe().endswith(f" in trace {TRACE}")
    assert record_of(server, 2).trace_id is None
    assert "trace" not in record_of(server, 2).describe()


@pytest.mark.parametrize("value", ["no trace", f"00-{TRACE}-{'0' * 16}-01", 7, None, {"a": 1}])
async def test_a_malformed_traceparent_is_no_error_for_the_request(value: Any) -> None:
    server = telling()
    async with checked_client(server) as peer:
        # By the schema a traceparent is a text: what it is not is sent all the same.
        await peer.send(traced(1, "told", traceparent=value, tracestate="a=1"))
        assert (await peer.answer(1))["result"]["structuredContent"] == {}
    assert record_of(server, 1).trace_id is None


async def test_a_request_that_never_began_is_recorded_with_its_trace() -> None:
    server = telling()
    async with checked_client(server) as peer:
        await peer.send(
            traced(1, "told", traceparent=TRACEPARENT),
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        )
        await peer.send(request(2, "what/else", {"_meta": {"traceparent": TRACEPARENT}}))
        assert (await peer.answer(2))["error"]["code"] == -32601
    assert [record_of(server, n).trace_id for n in (1, 2)] == [TRACE, TRACE]


def relaying(behind: Server) -> Server:
    """A server that asks another one."""
    server = Server("relaying", version="1")

    @server.tool
    async def ask(ctx: Context) -> dict[str, Any]:
        """Ask the server behind, twice."""
        async with connect(behind) as client:
            called = await client.call_tool("told", trace=ctx.trace)
            async with client.start_tool("told_in_a_thread", trace=ctx.trace) as call:
                started = await call.result()
            untold = await client.call_tool("told")
            ids = [record.trace_id for record in client.journal]
        return {
            "called": called.structured_content,
            "started": started.structured_content,
            "untold": untold.structured_content,
            "ids": ids,
        }

    return server


@pytest.mark.parametrize(
    "trace", [TraceContext(TRACEPARENT, "a=1", "who=alice"), TraceContext(baggage="a=1"), None]
)
async def test_a_handler_passes_its_trace_on(trace: TraceContext | None) -> None:
    behind = telling()
    server = relaying(behind)
    async with connect(server) as client:
        answer = (await client.call_tool("ask", trace=trace)).structured_content
        trace_id = None if trace is None else trace.trace_id
        meta = {} if trace is None else trace.as_meta()
        assert answer == {
            "called": meta,
            "started": meta,
            "untold": {},
            "ids": [None, trace_id, trace_id, None],
        }
        assert [record.trace_id for record in client.journal] == [None, trace_id]
    assert [record.trace_id for record in behind.journal] == [None, trace_id, trace_id, None]


# The hook -----------------------------------------------------------------------------------------


class Broken:
    """A hook that fails wherever it is asked to."""

    def __init__(self, *where: str) -> None:
        self.where = where
        self.asked: list[str] = []

    def _maybe(self, what: str) -> None:
        self.asked.append(what)
        if what in self.where:
            raise RuntimeError(f"broken in {what}")

    def exchange(self, request: TracedRequest) -> Broken:
        self._maybe("exchange")
        return self

    def call(self, request: TracedRequest) -> Broken:
        self._maybe("call")
        return self

    @property
    def trace_id(self) -> str | None:
        self._maybe("trace_id")
        return TRACE

    def meta(self) -> Mapping[str, str]:
        self._maybe("meta")
        odd: Any = {
            "number": 7,
            8: "eight",
            "accent": "é",
            "half": "\ud800",
            "traceparent": TRACEPARENT,
        }
        odd["io.modelcontextprotocol/protocolVersion"] = "hijacked"
        meta: Mapping[str, str] = odd
        return meta

    def attach(self) -> Any:
        self._maybe("attach")

    def detach(self, token: Any) -> None:
        self._maybe("detach")

    def raised(self, error: BaseException) -> None:
        self._maybe("raised")

    def end(self, record: Any, failure: int | str | None) -> None:
        self._maybe("end")


SERVER_SIDE = ["exchange", "attach", "detach", "trace_id", "end"]
CLIENT_SIDE = ["call", "meta", "trace_id", "end"]


@pytest.mark.parametrize(
    "where", [*([place] for place in sorted({*SERVER_SIDE, *CLIENT_SIDE})), SERVER_SIDE]
)
async def test_a_broken_hook_breaks_no_request_and_is_logged_once(
    where: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    hooks = Broken(*where), Broken(*where)
    server = Server("s", version="1", tracing=hooks[0])

    @server.tool
    async def double(n: int) -> int:
        """Twice."""
        return 2 * n

    async with connect(server, tracing=hooks[1]) as client:
        for n in range(3):
            assert (await client.call_tool("double", {"n": n})).structured_content == 2 * n
    assert [len(server.journal), len(client.journal)] == [4, 4]
    logged = [record for record in caplog.records if record.name == "trio_mcp.tracing"]
    places = [name for name in where if name in SERVER_SIDE]
    if "exchange" in places:
        places = ["exchange"]
    client_places = [name for name in where if name in CLIENT_SIDE]
    assert sorted(record.getMessage().split()[3] for record in logged) == sorted(
        name + ("" if name == "trace_id" else "()") + ";" for name in [*places, *client_places]
    )
    assert all(record.exc_info is not None for record in logged)


async def test_a_span_that_cannot_be_attached_is_not_detached() -> None:
    hook = Broken("attach")
    server = Server("s", version="1", tracing=hook)
    async with connect(server):
        pass
    assert hook.asked == ["exchange", "attach", "trace_id", "end"]


async def test_an_exception_in_the_hook_of_a_failure_changes_no_answer() -> None:
    hook = Broken("raised")
    server = Server("s", version="1", tracing=hook)

    @server.tool
    async def fail() -> None:
        """Has a bug."""
        raise RuntimeError("secret")

    async with checked_client(server) as peer:
        await peer.send(tool_call(1, "fail"))
        assert (await peer.answer(1))["error"]["code"] == -32603
    assert "raised" in hook.asked


async def test_what_is_no_exception_is_not_swallowed_by_the_guard() -> None:
    class Impatient(Broken):
        def exchange(self, request: TracedRequest) -> Broken:
            raise KeyboardInterrupt

    hook = guarded(Impatient())
    assert hook is not None
    info = TracedRequest(
        method="m",
        target=None,
        request_id=1,
        connection="c",
        protocol_version=None,
        meta={},
        trace=None,
    )
    with pytest.raises(KeyboardInterrupt):
        hook.exchange(info)
    with trio.CancelScope() as scope:
        scope.cancel("now")

        async def handler(ctx: Any, params: Any) -> None:
            await trio.sleep_forever()

        span = hook.call(info)
        assert span is not None
        exchange_span = guarded(Broken("detach"))
        assert exchange_span is not None
        running = exchange_span.exchange(info)
        assert running is not None
        await running.run(handler, None, None)  # type: ignore[arg-type]
    assert scope.cancelled_caught
