"""What a transcript says of a wire, the same in every run, whatever comes over it."""

from __future__ import annotations

import json

import attrs
import httpx2
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

import pytest_trio_mcp
from trio_mcp import CallTimeout, Context, Elicitation, ElicitResult, Server, TrioMcpError, connect
from trio_mcp.testing import (
    Body,
    Break,
    Chunk,
    Corrupt,
    Drop,
    Fault,
    FaultyStream,
    HalfClose,
    Line,
    RecordedStream,
    Split,
    Transcript,
    TranscriptDiffers,
    http_stub,
    memory_server,
)


def make_server() -> Server:
    server = Server("kitchen", version="1.0.0")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def cook(minutes: float, ctx: Context) -> str:
        ctx.progress(1, 2, "mixing")
        await trio.sleep(minutes * 60)
        return "done"

    @server.resource("menu://today")
    async def menu() -> str:
        return "soup"

    return server


async def test_a_wire_in_words(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_server(make_server()) as kitchen:
        client = kitchen.client
        await client.call_tool("add", {"a": 1, "b": 2})
        with pytest.raises(CallTimeout):
            await client.call_tool("cook", {"minutes": 5}, max_timeout=50)
        await client.read_resource("menu://today")
    assert (
        kitchen.transcript
        == """
         0.000  client -> tools/call #1 add {"a": 1, "b": 2}
         0.000  client <- result #1 {"content": [{"type": "text", "text": "3"}], …: 3}
         0.000  client -> tools/call #2 cook {"minutes": 5}
         0.000  client <- progress #2 1/2 "mixing"
        50.000  client -> cancelled #2 "no answer within max_timeout=50 s"
                client -> resources/read #3 menu://today
                client <- result #3 {"contents": [{…"text": "soup"…
        50.000  client -> end
    """
    )


async def test_it_is_the_same_in_the_next_run(autojump_clock: trio.testing.MockClock) -> None:
    async def run() -> Transcript:
        async with memory_server(make_server()) as kitchen:
            async for _ in kitchen.client.tools():
                pass
            await kitchen.client.call_tool("add", {"a": 1, "b": 2})
        return kitchen.transcript

    first = await run()
    await trio.sleep(17)
    second = await run()
    assert first == second
    assert str(first) == str(second)
    assert [entry.sent for entry in first.entries] == [True, False, True, False, True]


@attrs.define
class Sure:
    """An answer."""

    sure: bool


async def test_a_state_has_a_name_and_so_has_the_one_that_is_the_same() -> None:
    server = make_server()

    @server.tool
    async def order(ctx: Context) -> str:
        return (await ctx.elicit("sure", "Sure?", Sure)).action

    async def agree(question: Elicitation) -> ElicitResult:
        await trio.lowlevel.checkpoint()
        return question.accept({"sure": True})

    transcript = Transcript(width=1000)
    async with memory_server(server, transcript=transcript, on_elicit=agree) as kitchen:
        assert (await kitchen.client.call_tool("order")).text == "accept"
    transcript.compare("""
        client -> tools/call #1 order
        client <- result #1 {…"requestState": "<requestState 1>"…}
        client -> tools/call #2 order {…"requestState": "<requestState 1>"…}
        client <- result #2 {"content": [{"type": "text", "text": "accept"}]}
        client -> end
    """)


async def test_what_is_shown_can_be_chosen() -> None:
    transcript = Transcript("ours", without=["tools/call"], meta=True, width=70)
    async with memory_server(make_server(), transcript=transcript) as kitchen:
        await kitchen.client.call_tool("add", {"a": 1, "b": 2})
        await kitchen.client.read_resource("menu://today")
    lines = transcript.untimed()
    assert lines[0].startswith('ours -> server/discover #1 {"_meta": {"io.modelcontextprotocol/')
    assert [len(line) for line in lines] == [len("ours -> ") + 70] * 4 + [len("ours -> end")]
    assert "add" not in str(transcript)


async def test_no_more_is_kept_than_was_said() -> None:
    transcript = Transcript(lines=3)
    async with memory_server(make_server(), transcript=transcript) as kitchen:
        for _ in range(3):
            await kitchen.client.call_tool("add", {"a": 1, "b": 2})
    assert transcript.left_off == 4
    assert str(transcript).splitlines()[3:] == ["(4 more lines)"]
    assert transcript == "…\n(4 more lines)"


# Malformed ----------------------------------------------------------------------------------------


async def heard(data: bytes, *, http: bool = False) -> list[str]:
    """What is said of these bytes, of one who receives them."""
    ours, theirs = trio.testing.memory_stream_pair()
    transcript = Transcript()
    stream = RecordedStream(theirs, transcript, http=http)
    await ours.send_all(data)
    await ours.send_eof()
    while await stream.receive_some(1000):
        pass
    return [entry.text for entry in transcript.entries]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"garbage", "malformed b'garbage' (7 bytes)"),
        (b"\xff\x1b[31m", "malformed b'\\xff\\x1b[31m' (6 bytes)"),
        (b"[1]", "malformed b'[1]' (3 bytes)"),
        (b"{}", "malformed b'{}' (2 bytes)"),
        (b"[" * 10_000, f"malformed b'{'[' * 60}'… (10000 bytes)"),
        (b" " * 1_100_000, "a message of more than 1048576 bytes"),
        (b'{"id": 7, "result": 1}', "result #unknown(7) 1"),
        (b'{"id": null, "error": "no"}', 'error #none null "no"'),
        (b'{"id": [1], "error": {"code": 1, "data": 2}}', "error #unknown([1]) 1 null 2"),
        (b'{"id": {}, "method": "a", "params": 5}', "a #1"),
        (b'{"method": "notifications/cancelled"}', "cancelled #none"),
        (b'{"method": "notifications/progress", "params": []}', "progress #none null"),
        (
            b'{"method": "notifications/progress", "params": {"message": "\\u202e\\u001b"}}',
            'progress #none null "\\u202e\\u001b"',
        ),
        (b'{"method": "x\\u0007", "params": {"y": "\\u0007"}}', 'x\\x07 {"y": "\\u0007"}'),
    ],
    ids=lambda it: ascii(it)[:40],
)
async def test_what_is_malformed_is_shown_safely(line: bytes, said: str) -> None:
    assert await heard(line + b"\n") == [said, "end"]


async def test_a_line_without_its_end() -> None:
    assert await heard(b'{"method": "x"}') == ["without its end: x", "end"]


async def test_ids_of_another_type_are_others() -> None:
    asks = [b'{"id": 1, "method": "a"}', b'{"id": "1", "method": "b"}', b'{"id": 1, "method": "c"}']
    assert await heard(b"\n".join(asks)) == ["a #1", "b #2", "without its end: c #3", "end"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"HTTP/1.1 200 OK\r\n", ["end in its head"]),
        (b"nothing", ["end in its head"]),
        (b"{}", ["no HTTP"]),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ["204"]),
        (b"HTTP/1.1 200 OK\r\n\r\nto the end", ["200 b'to the end' (10 bytes)"]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n12", ["end after 2 bytes of its body"]),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", ["no size of a chunk"]),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            ["a chunk of another size"],
        ),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            ["100", "404"],
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
            b': c\r\n\r\nevent: x\r\ndata: {"method":\r\ndata:"y"}\r\n\r\ndata: z\n\n',
            ["200 events", "event y", "event malformed b'z' (1 bytes)", "end of events"],
        ),
        (b"x" * 70_000, ["a head without end"]),
    ],
    ids=lambda it: ascii(it)[:40],
)
async def test_http_that_is_odd(data: bytes, said: list[str]) -> None:
    assert await heard(data, http=True) == said


SCRAPS = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"Content-Length: 3\r\n",
        b"Content-Type: text/event-stream\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"POST /mcp HTTP/1.1\r\n",
        b"\r\n",
        b"\n",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
        b"data: {}\n\n",
        b'{"id": 1, "method": "x"}',
        b'{"id": 1, "result": {}}',
    ]
)


def said_of(pieces: list[bytes], *, http: bool, far: bool) -> list[str]:
    async def run() -> list[str]:
        ours, theirs = trio.testing.memory_stream_pair()
        transcript = Transcript()
        stream = RecordedStream(theirs, transcript, http=http, far=far)
        passed = b""
        for piece in pieces:
            await ours.send_all(piece)
            if piece:
                passed += await stream.receive_some()
        await ours.send_eof()
        assert await stream.receive_some() == b""
        assert passed == b"".join(pieces)
        return transcript.untimed()

    return trio.run(run)


@settings(max_examples=60, deadline=None)
@given(st.lists(SCRAPS | st.binary(max_size=30), max_size=12), st.booleans(), st.booleans())
def test_whatever_comes_is_told_and_in_what_pieces_does_not_matter(
    pieces: list[bytes], http: bool, far: bool
) -> None:
    whole = b"".join(pieces)
    told = said_of(pieces, http=http, far=far)
    assert told == said_of([whole], http=http, far=far)
    assert told == said_of([whole[at : at + 1] for at in range(len(whole))], http=http, far=far)


# HTTP ---------------------------------------------------------------------------------------------


async def test_http_in_words() -> None:
    faults: dict[int, list[Fault]] = {
        3: [Split(1)],
        4: [HalfClose(at=Body(20))],
        5: [Break(at=Chunk(2))],
        6: [Corrupt(b"oh no", at=Body())],
    }
    async with http_stub(make_server(), faults=faults) as stub, connect(stub.url) as client:
        for minutes in (0.0001, 0.0001, 5):
            calls: dict[str, dict[str, float]] = {
                "add": {"a": 1, "b": 2},
                "cook": {"minutes": minutes},
            }
            for tool, arguments in calls.items():
                try:
                    await client.call_tool(tool, arguments, max_timeout=0.3)
                except TrioMcpError:
                    pass  # it is what was said that counts
        async with httpx2.AsyncClient() as other:
            await other.get(stub.url)
    stub.transcript.compare("""
        client -> POST tools/call #1 add {"a": 1, "b": 2}
        client <- 200 result #1 {"content": […], "structuredContent": 3}
        client -> POST tools/call #2 cook {"minutes": 0.0001}
        client <- 200 events
        client <- event progress #2 1/2 "mixing"
        client <- event result #2 {"content": [{"type": "text", "text": "done"}]}
        client <- end of events
        client -> POST tools/call #3 add {"a": 1, "b": 2}
        client <- end after 20 bytes of its body
        client -> POST tools/call #4 cook {"minutes": 0.0001}
        client <- 200 events
        client <- event progress #4 1/2 "mixing"
        client <- broken after … bytes of its body
        client -> POST tools/call #5 add {"a": 1, "b": 2}
        client <- 200 malformed b'oh nonrpc":"2.0"…
        client -> POST tools/call #6 cook {"minutes": 5}
        client <- 200 events
        client <- event progress #6 1/2 "mixing"
        client -> hung up
        client -> GET
        client <- 405 error #none -32600 …
    """)


async def test_around_a_faulty_stream_or_within_it() -> None:
    """What our client says and hears; and what goes over the wire."""
    said, went = Transcript(), Transcript()
    ours, theirs = trio.testing.memory_stream_pair()
    within = RecordedStream(ours, went)
    stream = RecordedStream(FaultyStream(within, sending=[Drop(at=Line(2))]), said)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(make_server().serve_stream, theirs)
        async with connect(stream) as client:
            with pytest.raises(CallTimeout):
                await client.call_tool("add", {"a": 1, "b": 2}, max_timeout=0.05)
    assert said == 'client -> tools/call #1 add {"a": 1, "b": 2}\nclient -> cancelled #1 …\n…end'
    assert went == "client -> cancelled #unknown(2) …\nclient -> end"


async def test_the_other_end_of_it() -> None:
    transcript = Transcript("client")
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(make_server().serve_stream, RecordedStream(theirs, transcript, far=True))
        async with connect(ours) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
    assert (
        transcript
        == """
        client -> tools/call #1 add {"a": 1, "b": 2}
        client <- result #1 …
        client -> end
        client <- end
    """
    )


# Comparing ----------------------------------------------------------------------------------------


async def small() -> Transcript:
    async with memory_server(make_server()) as kitchen:
        await kitchen.client.call_tool("add", {"a": 1, "b": 2})
    return kitchen.transcript


FIRST = 'client -> tools/call #1 add {"a": 1, "b": 2}'


async def test_comparing_with_a_text(autojump_clock: trio.testing.MockClock) -> None:
    transcript = await small()
    assert transcript == str(transcript)
    assert transcript == "…"
    assert transcript == f"{FIRST}\n…"
    assert transcript == f"0.000 {FIRST}\n…\nclient <- result #1 …\n…\n…"
    for wrong in ["", FIRST, f"1.000 {FIRST}\n…", f"…\n{FIRST}", f"{FIRST}\nclient <- re\n…"]:
        assert transcript != wrong
        assert transcript.difference(wrong)
    assert transcript != 5
    assert transcript.difference("…") == []


async def test_times_are_numbers_to_three_decimals(autojump_clock: trio.testing.MockClock) -> None:
    transcript = Transcript()
    transcript.note("near", "a")
    await trio.sleep(1)
    transcript.note("near", "b")
    for second in ("1", "1.0", "1.000", "1.0004", "1  "):
        assert transcript == f"0 client -> a\n{second} client -> b"
    for wrong in ("0.9", "1.001", "2"):
        assert transcript != f"client -> a\n{wrong} client -> b"
    numbered = Transcript("2 cooks")
    numbered.note("near", "a")
    assert numbered == "2 cooks -> a"
    assert numbered == "0.0 2 cooks -> a"


async def test_the_difference_is_a_diff_that_leaves_out_what_fits() -> None:
    transcript = await small()
    with pytest.raises(TranscriptDiffers) as differs:
        transcript.compare(f"{FIRST}\nclient <- result #2 …\nclient -> end")
    lines = str(differs.value).splitlines()
    assert lines[:5] == [
        "the transcript is another one:",
        "--- expected",
        "+++ said",
        "@@ -1,3 +1,3 @@",
        f" {FIRST}",
    ]
    assert lines[5] == "-client <- result #2 …"
    assert lines[6].startswith("+client <- result #1 {")
    assert lines[7:] == [" client -> end"]


def test_pytest_shows_the_difference() -> None:
    difference = ["another transcript:", "--- expected", "+++ said"]
    for pair in ((Transcript(), "client -> end"), ("client -> end", Transcript())):
        shown = pytest_trio_mcp.pytest_assertrepr_compare("==", *pair)
        assert shown is not None
        assert shown[:3] == difference
        assert shown[-1] == "-client -> end"
    assert pytest_trio_mcp.pytest_assertrepr_compare("!=", Transcript(), "") is None
    assert pytest_trio_mcp.pytest_assertrepr_compare("==", "a", "b") is None


def test_what_is_recorded_is_json_again() -> None:
    """The arguments in a line can be read by a program."""
    arguments = json.loads(FIRST.partition(" add ")[2])
    assert arguments == {"a": 1, "b": 2}
