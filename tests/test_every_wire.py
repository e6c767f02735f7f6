"""One body of tests for every wire: what a server does is the same on all of them.

Each test runs over a real process, TCP, memory, WebSocket, the native HTTP server, and Hypercorn
with HTTP/1.1 and HTTP/2. The peers are made of raw means (``peers/channel_wires``,
``peers/http_wires``). In the end of each test ``peers.wires.serving`` looks whether each request
has one record, nothing was said after an answer or a cancellation, and nothing is left. Numbers of
invariants are those of the design.
"""

from __future__ import annotations

import ssl
from typing import Any

import pytest
import trio
from tests.peers.channel_wires import Memory, Stdio, Tcp, WebSocket
from tests.peers.http_wires import HypercornHttp1, HypercornHttp2, NativeHttp
from tests.peers.raw import META, call, cancel, request, same_id, text_of
from tests.peers.wires import Handle, Peer, Site, serving

from trio_mcp import ErrorCode
from trio_mcp.testing import FaultyStream
from trio_mcp.transports.wire import StreamWire

WIRES: list[type[Site]] = [
    Stdio,
    Tcp,
    Memory,
    WebSocket,
    NativeHttp,
    HypercornHttp1,
    HypercornHttp2,
]

VERSION = "io.modelcontextprotocol/protocolVersion"
IDS: list[Any] = ["1", 1, 0, -1, "", "é", "init-1", 2**53 + 1, -(2**53) - 1, "x" * 4096]
TOKENS: list[Any] = ["token", "1", 1, 0, -1, "", "é", 2**53 + 1]


@pytest.fixture(params=WIRES, ids=lambda kind: kind.name)
def wire(request: pytest.FixtureRequest) -> type[Site]:
    kind: type[Site] = request.param
    return kind


async def hold(peer: Peer, *labels: str, tool: str = "sleep") -> list[Handle]:
    """Requests that last until they are cancelled; their handlers have begun."""
    arguments = {"s": 3600} if tool == "sleep" else {}
    handles = [await peer.call(tool, label=label, **arguments) for label in labels]
    await peer.site.begun(*labels)
    return handles


async def cancelled(site: Site, handle: Handle, source: str, cleanup: str = "clean") -> None:
    """A request is cancelled with this cause, or about to be, and nothing was said about it."""
    record = await site.record_of(handle)
    assert (record["state"], record["source"]) == ("CANCELLED", source)
    assert (record["cleanup"], record["delivered"]) == (cleanup, None)
    assert not handle.answered
    assert handle.after == []


# What it answers ----------------------------------------------------------------------------------


async def test_discovery_names_the_server_and_its_version(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        result = (await (await peer.start("server/discover")).answer())["result"]
        assert result["supportedVersions"] == ["2026-07-28"]
        assert result["capabilities"]["tools"] == {"listChanged": True}
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "fixtures"


async def test_a_list_comes_in_pages_and_a_bad_cursor_is_refused(wire: type[Site]) -> None:
    async with serving(wire, page_size=4) as site:
        peer = await site.connect()
        names: list[str] = []
        sizes: list[int] = []
        params: dict[str, Any] = {}
        while True:
            result = (await (await peer.start("tools/list", params)).answer())["result"]
            names += [tool["name"] for tool in result["tools"]]
            sizes.append(len(result["tools"]))
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
        assert len(sizes) > 2
        assert set(sizes[:-1]) == {4}
        assert len(names) == len(set(names))
        assert {"echo", "speak", "hurried"} <= set(names)
        for cursor in ("forged", "", params["cursor"][:-2]):
            bad = await peer.start("tools/list", {"cursor": cursor})
            assert (await bad.error())["code"] == ErrorCode.INVALID_PARAMS


async def test_a_tool_answers_with_text_or_structured_content(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        answer = await peer.ask("echo", text="“é”\n\u2028\U0001f4da")
        assert text_of(answer) == "“é”\n\u2028\U0001f4da"
        assert "structuredContent" not in answer["result"]
        answer = await peer.ask("place", shelf="A", row=2)
        assert answer["result"]["structuredContent"] == {"shelf": "A", "row": 2}
        answer = await peer.ask("add", a=2**53, b=1)
        assert answer["result"]["structuredContent"] == 2**53 + 1


async def test_a_tools_own_failure_is_a_result_and_a_bug_is_an_error(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        failed = await peer.call("boom", kind="tool")
        result = (await failed.answer())["result"]
        assert result["isError"] is True
        assert result["content"][0]["text"] == "the shop is closed; try again tomorrow"
        assert (await site.record_of(failed))["is_error"] is True
        wrong = await peer.ask("add", a="one", b=2)
        assert wrong["result"]["isError"] is True
        bug = await peer.call("boom", kind="bug")
        error = await bug.error()
        assert error["code"] == ErrorCode.INTERNAL_ERROR
        assert "secret" not in str(error)
        assert (await site.record_of(bug))["state"] == "FAILED"
        await peer.probe()


async def test_what_cannot_be_served_is_refused_by_its_code(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        without_meta = request(site.next_id(), "tools/list")
        del without_meta["params"]["_meta"]
        half_meta = request(site.next_id(), "tools/list")
        half_meta["params"]["_meta"] = {VERSION: META[VERSION]}
        cases = [
            (call(site.next_id(), "nobody"), ErrorCode.INVALID_PARAMS),
            (request(site.next_id(), "tools/nothing"), ErrorCode.METHOD_NOT_FOUND),
            (request(site.next_id(), "tools/call", {"name": 5}), ErrorCode.INVALID_PARAMS),
            (request(site.next_id(), "tools/list", {"cursor": 5}), ErrorCode.INVALID_PARAMS),
            (
                request(site.next_id(), "tools/call", {"name": "echo", "arguments": "text"}),
                ErrorCode.INVALID_PARAMS,
            ),
            (without_meta, ErrorCode.INVALID_PARAMS),
            (half_meta, ErrorCode.INVALID_PARAMS),
        ]
        for message, code in cases:
            handle = await peer.send(message)
            answer = await handle.answer()
            assert same_id(answer["id"], handle.id)
            assert answer["error"]["code"] == code, answer
            assert (await site.record_of(handle))["state"] == "FAILED"
        await peer.probe()


async def test_an_unknown_version_is_told_which_ones_there_are(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        handle = await peer.start("tools/list", {"_meta": {VERSION: "2031-01-01"}})
        error = await handle.error()
        assert error["code"] == ErrorCode.UNSUPPORTED_PROTOCOL_VERSION
        assert error["data"] == {"supported": ["2026-07-28"], "requested": "2031-01-01"}
        await peer.probe()


async def test_ids_of_every_type_come_back_as_they_were(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        handles = [await peer.call("gated", request_id=i, label=str(i)[:20]) for i in IDS]
        await site.begun(*(str(i)[:20] for i in IDS))
        await site.open_gate()
        for handle in handles:
            answer = await handle.answer()
            assert same_id(answer["id"], handle.id)
            assert text_of(answer) == str(handle.id)[:20]


async def test_a_null_id_is_no_id_and_is_not_run(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        no_ids: list[Any] = [None, True, 1.5, [1], {}]
        for request_id in no_ids:
            message = call(request_id, "sleep", s=0, label="must not run")
            handle = await peer.send(message, served=False)
            answer = await handle.answer()
            assert answer["error"]["code"] == ErrorCode.INVALID_REQUEST
            assert answer.get("id") is None
        await peer.probe()
        assert (await site.look()).begun == []


async def test_the_same_id_twice_in_flight(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        first = await peer.call("gated", request_id=7, label="first")
        await site.begun("first")
        message = call(7, "gated", label="second")
        second = await peer.send(message, served=not site.ids_collide)
        text = await peer.call("echo", request_id="7", text="another id")
        assert text_of(await text.answer()) == "another id"
        if site.ids_collide:
            answer = await second.answer()
            assert answer["error"]["code"] == ErrorCode.INVALID_REQUEST
            assert answer["error"]["data"] == {"requestId": 7}
            assert "id" not in answer
        else:
            await site.begun("second")
        await site.open_gate()
        assert text_of(await first.answer()) == "first"
        if not site.ids_collide:
            assert text_of(await second.answer()) == "second"


async def test_a_big_result_arrives_whole_and_beside_others(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        big = await peer.call("big", bytes=3_000_000)
        small = await peer.call("echo", text="small")
        assert text_of(await small.answer()) == "small"
        assert text_of(await big.answer()) == "x" * 3_000_000


async def test_a_message_that_is_too_long_is_refused_and_the_server_lives(
    wire: type[Site],
) -> None:
    async with serving(wire, message_bytes=100_000) as site:
        peer = await site.connect()
        assert len(text_of(await peer.ask("echo", text="y" * 90_000))) == 90_000
        long = await peer.call("big", bytes=200_000)
        assert (await long.error())["code"] == ErrorCode.INTERNAL_ERROR
        message = call(site.next_id(), "echo", text="x" * 200_000)
        handle = await peer.send(message, served=False)
        if site.oversize_ends:
            await peer.aclose()  # to the end of the connection
            peer = await site.connect()
        else:
            error = await handle.error()
            assert error["code"] == ErrorCode.INVALID_REQUEST
            assert "message_bytes=100000" in error["message"]
        await peer.probe()


# Progress -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [0.001, 3600])
async def test_progress_has_the_callers_token_is_in_order_and_ends_with_the_answer(
    wire: type[Site], interval: float
) -> None:
    """Invariant 3; whatever the interval, the last report comes before the answer."""
    async with serving(wire, progress_interval=interval) as site:
        peer = await site.connect()
        handles = [await peer.call("tick", token=token, n=5, dt=0.004) for token in TOKENS]
        for handle in handles:
            await handle.answer()
            params = [message["params"] for message in handle.notifications]
            assert all(same_id(p["progressToken"], handle.token) for p in params)
            seen = [p["progress"] for p in params]
            assert seen == sorted(set(seen))
            assert seen[0] >= 1
            assert seen[-1] == 5
            assert params[-1]["total"] == 5
            assert params[-1]["message"] == "tick 5"
            record = await site.record_of(handle)
            assert record["progress_sent"] == len(seen)
        await peer.probe()  # so that what came after an answer would be heard


async def test_progress_is_told_while_the_request_runs(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        handle = await peer.call("speak", token="t", label="speaker")
        (message,) = await handle.notified(1)
        assert message["params"] == {
            "progressToken": "t",
            "progress": 1,
            "total": 2,
            "message": "spoken",
        }
        assert not handle.answered
        await handle.cancel()
        await cancelled(site, handle, site.cancel_source)


async def test_without_a_token_there_is_no_progress(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        handle = await peer.call("tick", n=3, dt=0)
        assert text_of(await handle.answer()) == "ticked"
        assert handle.notifications == []
        record = await site.record_of(handle)
        assert record["progress_sent"] == 0


# Cancellation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["sleep", "speak", "patient"])
async def test_a_cancel_stops_the_handler_and_the_rest_is_silence(
    wire: type[Site], tool: str
) -> None:
    """Invariants 2, 4 and 6: in silence, after a word, and in a thread that asks."""
    async with serving(wire) as site:
        peer = await site.connect()
        (other,) = await hold(peer, "other", tool="gated")
        if tool == "patient":
            handle = await peer.call("patient", s=30)
            await site.until(lambda sight: sight.live == 2)
        else:
            token = "t" if tool == "speak" else None
            arguments = {"s": 3600} if tool == "sleep" else {}
            handle = await peer.call(tool, token=token, label="one", **arguments)
            await site.begun("one")
            await handle.notified(1 if tool == "speak" else 0)
        await handle.cancel()
        await cancelled(site, handle, site.cancel_source)
        sight = await site.look()
        assert sight.live == 1
        assert sight.released == ([] if tool == "patient" else ["one"])
        assert len(sight.exchanges) == sight.inflight == 1
        await peer.probe()
        await site.open_gate()
        assert text_of(await other.answer()) == "other"
        assert (await site.record_of(other))["state"] == "COMPLETED"


async def test_a_reason_goes_into_the_record_where_the_wire_can_carry_one(
    wire: type[Site],
) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        (handle,) = await hold(peer, "one")
        await handle.cancel()
        reason = "changed my mind" if site.cancel_source == "NOTIFICATION" else None
        assert (await site.record_of(handle))["reason"] == reason


async def test_a_cancel_stops_the_id_of_the_same_type_and_value_and_no_other(
    wire: type[Site],
) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        handles: dict[Any, Handle] = {}
        request_id: Any
        for request_id in (0, "0", "", -1, "00"):
            handles[request_id] = await peer.call(
                "gated", request_id=request_id, label=repr(request_id)
            )
        await site.begun(*(repr(request_id) for request_id in handles))
        for request_id in (0, "", -1):
            await handles[request_id].cancel()
            await cancelled(site, handles[request_id], site.cancel_source)
        await site.open_gate()
        for request_id in ("0", "00"):
            assert text_of(await handles[request_id].answer()) == repr(request_id)


async def test_a_cancel_after_the_answer_is_harmless(wire: type[Site]) -> None:
    """Invariant 7."""
    async with serving(wire) as site:
        peer = await site.connect()
        (other,) = await hold(peer, "other", tool="gated")
        handle = await peer.call("echo", text="done")
        assert text_of(await handle.answer()) == "done"
        assert (await site.record_of(handle))["state"] == "COMPLETED"
        await handle.cancel()
        await peer.probe()
        assert (await site.record_of(handle))["state"] == "COMPLETED"
        await site.open_gate()
        assert text_of(await other.answer()) == "other"


async def test_a_cancel_twice_is_like_one(wire: type[Site]) -> None:
    """Invariant 7."""
    async with serving(wire) as site:
        peer = await site.connect()
        (handle,) = await hold(peer, "one")
        await handle.cancel()
        if site.cancel_source == "NOTIFICATION":
            await handle.cancel()
        await peer.notify(cancel(handle.id))
        await cancelled(site, handle, site.cancel_source)
        await peer.probe()


async def test_notifications_that_mean_nothing_are_silent(wire: type[Site]) -> None:
    """Invariant 7; and on HTTP, where ids of clients collide, none means anything."""
    async with serving(wire) as site:
        peer = await site.connect()
        (handle,) = await hold(peer, "one", tool="gated")
        for message in (
            cancel("unknown"),
            cancel(str(handle.id)),
            cancel(None),
            cancel([handle.id]),
            {"jsonrpc": "2.0", "method": "notifications/cancelled"},
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}},
            {"jsonrpc": "2.0", "method": "notifications/nothing", "params": {"requestId": 1}},
        ):
            await peer.notify(message)
        if site.cancel_source == "DISCONNECT":
            await peer.notify(cancel(handle.id))
        await peer.probe()
        await site.open_gate()
        assert text_of(await handle.answer()) == "one"


async def test_a_peer_that_leaves_takes_its_own_requests_with_it_and_no_others(
    wire: type[Site],
) -> None:
    """Invariants 4 and 6."""
    async with serving(wire) as site:
        leaving = await site.connect()
        lost = await hold(leaving, "a", "b") + await hold(leaving, "c", tool="speak")
        staying = await site.connect() if site.many_peers else None
        kept = await hold(staying, "d", "e", tool="gated") if staying is not None else []
        await leaving.disconnect()
        for handle in lost:
            await cancelled(site, handle, "DISCONNECT")
        sight = await site.until(lambda sight: len(sight.exchanges) == len(kept))
        assert sorted(sight.released) == ["a", "b", "c"]
        assert sight.inflight == sight.live == len(kept)
        if staying is not None:
            await staying.probe()
            await site.open_gate()
            assert [text_of(await handle.answer()) for handle in kept] == ["d", "e"]


async def test_a_cancel_of_one_peer_is_nothing_to_another_one_with_the_same_id(
    wire: type[Site],
) -> None:
    """Invariant 6."""
    async with serving(wire) as site:
        if not site.many_peers:
            pytest.skip("there is one peer")
        one, two = await site.connect(), await site.connect()
        ours = await one.call("sleep", request_id=1, s=3600, label="ours")
        theirs = await two.call("gated", request_id=1, label="theirs")
        await site.begun("ours", "theirs")
        await ours.cancel()
        sight = await site.until(lambda sight: len(sight.records) == 1)
        assert sight.records[0]["source"] == site.cancel_source
        await two.probe()
        await site.open_gate()
        assert text_of(await theirs.answer()) == "theirs"


async def test_what_a_thread_says_too_late_is_recorded_and_not_sent(wire: type[Site]) -> None:
    """Invariants 2 and 4: the thread is listed until it has ended."""
    async with serving(wire, cleanup=0.05) as site:
        peer = await site.connect()
        handle = await peer.call("deaf", token="t", label="deaf")
        await site.begun("deaf")
        await handle.cancel()
        await cancelled(site, handle, site.cancel_source, cleanup="abandoned")
        sight = await site.look()
        assert (sight.exchanges, sight.inflight, sight.stragglers) == ([], 0, 1)
        await peer.probe()
        await site.open_gate()
        sight = await site.until(lambda sight: sight.stragglers == 0)
        assert (await site.record_of(handle))["late"] == ["result"]
        await peer.probe()
        assert handle.notifications == []


async def test_of_fifty_at_once_every_third_is_cancelled_and_the_others_are_answered(
    wire: type[Site],
) -> None:
    """Invariants 3, 4 and 6."""
    labels = [f"call {n}" for n in range(50)]
    async with serving(wire) as site:
        peer = await site.connect()
        handles = await hold(peer, *labels, tool="gated")
        for handle in handles[::3]:
            await handle.cancel()
        for handle in handles[::3]:
            await cancelled(site, handle, site.cancel_source)
        sight = await site.look()
        assert sight.inflight == len(sight.exchanges) == sight.live == 33
        await site.open_gate()
        for n, handle in enumerate(handles):
            if n % 3:
                assert text_of(await handle.answer()) == labels[n]
                assert (await site.record_of(handle))["state"] == "COMPLETED"
        await peer.probe()


# The server's own ends ----------------------------------------------------------------------------


async def test_a_tools_time_limit_is_answered_with_an_error(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        handle = await peer.call("hurried")
        error = await handle.error()
        assert error["code"] == ErrorCode.DEADLINE_EXCEEDED
        record = await site.record_of(handle)
        assert (record["state"], record["source"]) == ("CANCELLED", "DEADLINE")
        assert (record["cleanup"], record["delivered"]) == ("clean", True)
        assert (await site.look()).released == ["hurried"]
        await peer.probe()


async def test_a_shutdown_lets_finish_what_can_and_tells_the_rest(wire: type[Site]) -> None:
    """Invariants 3 and 11."""
    async with serving(wire, drain=1.0) as site:
        peer = await site.connect()
        lasting = await hold(peer, "silent")
        lasting.append(await peer.call("speak", token="t", label="spoken"))
        await lasting[-1].notified(1)
        (finishing,) = await hold(peer, "finishing", tool="gated")
        await site.shut_down()
        await site.until(lambda sight: set(sight.connections) == {"draining"})
        await site.open_gate()
        assert text_of(await finishing.answer()) == "finishing"
        assert not any(handle.answered for handle in lasting)
        for handle in lasting:
            assert (await handle.error())["code"] == ErrorCode.SHUTTING_DOWN
            record = await site.record_of(handle)
            assert (record["state"], record["source"]) == ("CANCELLED", "SHUTDOWN")
            assert (record["cleanup"], record["delivered"]) == ("clean", True)
        with trio.fail_after(10):
            await site.ended.wait()
        assert sorted((await site.look()).released) == ["finishing", "silent", "spoken"]


async def test_a_stream_in_another_one_is_called_by_its_address() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with listeners[0], await trio.open_tcp_stream("127.0.0.1", port) as stream:
        secured = trio.SSLStream(stream, ssl.create_default_context(), server_hostname="x")
        labels = [
            StreamWire.over(wrapped, 100).label
            for wrapped in (stream, FaultyStream(stream), FaultyStream(secured), secured)
        ]
    assert labels == [f"{kind} 127.0.0.1:{port}" for kind in ("tcp", "tcp", "tls", "tls")]
