"""Faults from the field, in sessions with servers of earlier revisions: over a stream, over HTTP
and with launched servers. The same faults under 2026-07-28 are in `test_process_cases.py`,
`test_client_faults.py`, `test_client_pages.py` and `test_http_client.py`.
"""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from tests.peers.raw import until
from tests.peers.scripted import DISCOVERED
from tests.peers.sessions import HttpRequest, SessionScript, http_session, in_session

from trio_mcp import (
    CallTimeout,
    Client,
    ClientGroup,
    ConnectionLost,
    Elicitation,
    ElicitResult,
    Limits,
    MemberState,
    ProtocolViolation,
    Restart,
    Retry,
    ServerError,
    State,
    connect,
)

TEXT = {"content": [{"type": "text", "text": "done"}]}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


def usual(request: dict[str, Any]) -> dict[str, Any] | bytes | None:
    """All tools but ``hold`` answer, and all subscriptions are taken."""
    if request["method"] == "tools/call":
        return b"" if request["params"]["name"] == "hold" else TEXT
    return {} if "subscribe" in request["method"] else None


def answer_to(request_id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": TEXT}


async def held(script: SessionScript, count: int = 1) -> list[int]:
    """Wait until so many calls of ``hold`` are there. Their ids."""

    def ids() -> list[int]:
        calls = script.sent("tools/call")
        return [call["id"] for call in calls if call["params"]["name"] == "hold"]

    await script.until(lambda: len(ids()) == count)
    return ids()


# Answers and progress -----------------------------------------------------------------------------


async def test_answers_to_nobody_are_recorded_and_touch_no_call() -> None:
    async with in_session(usual) as (client, script), trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "hold")
        (held_id,) = await held(script)
        strange = [str(held_id), held_id + 1000, -held_id, f"{held_id}.0", ""]
        for request_id in strange:
            await script.say(answer_to(request_id))
        for request_id in (float(held_id), True, [held_id], {}):  # which are no ids at all
            await script.say(answer_to(request_id))
        await script.say(b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"who?"}}')
        assert (await client.call_tool("x")).text == "done"
        assert client._connection.violations == len(strange) + 5
        await script.say(answer_to(held_id))
    assert client._connection.calls == ()


async def test_late_and_second_answers_are_recorded_and_no_id_comes_again() -> None:
    async with in_session(usual) as (client, script):
        with pytest.raises(CallTimeout):
            await client.call_tool("hold", timeout=0.05)
        (held_id,) = await held(script)
        await script.say(answer_to(held_id))
        assert (await client.call_tool("x")).text == "done"
        assert (client.journal.late, client._connection.violations) == (1, 0)
        await script.say(answer_to(held_id))  # once more
        await script.say(answer_to(script.sent("tools/call")[-1]["id"]))
        assert (await client.call_tool("x")).text == "done"
        assert (client.journal.late, client._connection.violations) == (1, 2)
        ids = [message["id"] for message in script.heard if "id" in message]
        assert len({*ids}) == len(ids)


async def test_progress_of_nobody_is_ignored() -> None:
    seen: list[float] = []
    async with in_session(usual) as (client, script), trio.open_nursery() as nursery:

        async def call() -> None:
            await client.call_tool("hold", on_progress=lambda update: seen.append(update.progress))

        nursery.start_soon(call)
        (held_id,) = await held(script)
        others: list[Any] = [str(held_id), float(held_id), held_id + 1000, True, None, [held_id]]
        for token in others:
            await script.tell("notifications/progress", progressToken=token, progress=1)
        await script.tell("notifications/progress", progress=2)
        await script.tell("notifications/progress", progressToken=held_id, progress=3)
        await script.until(lambda: seen)
        await script.say(answer_to(held_id))
        await script.tell("notifications/progress", progressToken=held_id, progress=4)
        assert (await client.call_tool("x")).text == "done"
        assert client._connection.violations == 0
    assert seen == [3]


async def test_a_server_cannot_cancel_what_the_client_has_asked() -> None:
    async with in_session(usual) as (client, script), trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "hold")
        (held_id,) = await held(script)
        await script.tell("notifications/cancelled", requestId=held_id)
        await script.tell("notifications/cancelled")
        assert (await client.call_tool("x")).text == "done"
        assert len(client.calls()) == 1
        await script.say(answer_to(held_id))


async def test_a_line_that_is_too_long_is_bounded_and_the_next_one_is_heard() -> None:
    limits = Limits(message_bytes=10_000)
    async with in_session(usual, limits=limits) as (client, script):
        for line in (b"x" * 50_000, msgspec.json.encode(answer_to("y" * 50_000)), b"[" * 9_000):
            await script.say(line)
        await script.ask(1, "ping")
        await script.until(script.answers)
        assert (await client.call_tool("x")).text == "done"
        assert client._connection.violations == 3


async def test_what_the_callback_answers_is_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    def elicit(question: Elicitation) -> ElicitResult:
        return question.accept({"name": "x" * 20_000})

    limits = Limits(message_bytes=10_000)
    async with in_session(usual, on_elicit=elicit, limits=limits) as (_, script):
        await script.ask(1, "elicitation/create", message="x", requestedSchema=FORM)
        await script.until(script.answers)
        assert script.answers()[0]["error"]["code"] == -32603
    assert "message_bytes=10000" in caplog.text


# Questions ----------------------------------------------------------------------------------------

REFUSED = {
    b'{"jsonrpc":"2.0","id":9,"method":"ping","params":[]}': (9, -32602),
    b'{"jsonrpc":"2.0","id":"9","method":"ping","params":null}': ("9", -32602),
    b'{"jsonrpc":"2.0","id":0,"method":7}': (0, -32600),
    b'{"id":"","method":"ping"}': ("", -32600),
    b'{"jsonrpc":"2.0","id":-1,"method":"no/such"}': (-1, -32601),
}
IGNORED = [
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":[1],"method":"ping"}',
    b'{"jsonrpc":"2.0","id":3}',  # no question: to answer it might fail one of the server's own
    b'{"jsonrpc":"2.0","id":3,"result":7}',
    b"[]",
    b"null",
    b"\xff\xfe",
]


async def test_a_question_that_is_no_request_is_refused_if_it_has_an_id() -> None:
    async with in_session(usual) as (client, script):
        for line in (*IGNORED, *REFUSED):
            await script.say(line)
        assert (await client.call_tool("x")).text == "done"
        assert client._connection.violations == len(IGNORED) + len(REFUSED) - 1
    answers = [(answer["id"], answer["error"]["code"]) for answer in script.answers()]
    assert answers == [*REFUSED.values()]


async def test_over_http_such_a_question_is_refused_on_every_stream() -> None:
    streams: list[HttpRequest] = []

    async def script(request: HttpRequest) -> bool:
        if request.verb == "GET":
            await request.begin_events()
            streams.append(request)
            for line in (*IGNORED[:-1], *REFUSED):
                await request.event(line)
            await request.closed_by_client()
        elif request.body.get("method") == "tools/call":
            await request.begin_events()
            await request.event(b'{"jsonrpc":"2.0","id":77,"method":"ping","params":[]}')
            await request.event(answer_to(request.body["id"]))
            await request.end_events()
        else:
            return False
        return True

    async with http_session(script) as server, connect(server.address) as client:
        assert (await client.call_tool("x")).text == "done"
        await server.until(lambda: len(server.answers()) == len(REFUSED) + 1)
    answers = {(answer["id"], answer["error"]["code"]) for answer in server.answers()}
    assert answers == {*REFUSED.values(), (77, -32602)}


async def test_a_server_may_ping_before_it_answers_initialize() -> None:
    def answer(request: dict[str, Any]) -> bytes | dict[str, Any] | None:
        if request["method"] != "initialize":
            return usual(request)
        said = msgspec.json.encode({"jsonrpc": "2.0", "id": request["id"], "result": _INITIALIZED})
        return b'{"jsonrpc":"2.0","id":5,"method":"ping"}\n' + said

    async with in_session(answer) as (client, script):
        assert (await client.call_tool("x")).text == "done"
        assert script.answers() == [{"jsonrpc": "2.0", "id": 5, "result": {}}]


_INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "serverInfo": {"name": "old", "version": "1"},
}


async def test_over_http_a_question_that_the_server_cancels_stops() -> None:
    began, stopped = trio.Event(), trio.Event()
    streams: list[HttpRequest] = []

    async def elicit(question: Elicitation) -> ElicitResult:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            stopped.set()
        raise AssertionError

    async def script(request: HttpRequest) -> bool:
        if request.verb != "GET":
            return False
        await request.begin_events()
        streams.append(request)
        await request.closed_by_client()
        return True

    async with http_session(script, usual) as server:
        async with connect(server.address, on_elicit=elicit) as client:
            await server.until(lambda: streams)
            params = {"message": "x", "requestedSchema": FORM}
            asked = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": params}
            await streams[0].event(asked)
            await began.wait()
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
            await streams[0].event({**cancelled, "params": {"requestId": "q"}})
            await stopped.wait()
            assert (await client.call_tool("x")).text == "done"
    assert server.answers() == []


# Giving up ----------------------------------------------------------------------------------------


async def test_two_hundred_calls_given_up_are_two_hundred_cancels() -> None:
    async with in_session(usual) as (client, script):
        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(client.call_tool, "hold")
            ids = await held(script, 200)
            nursery.cancel_scope.cancel()
        await script.until(lambda: len(script.sent("notifications/cancelled")) == 200)
        cancelled = [m["params"]["requestId"] for m in script.sent("notifications/cancelled")]
        assert sorted(cancelled) == sorted(ids)
        assert client._connection.calls == ()
        assert (await client.call_tool("x")).text == "done"


async def test_over_http_each_call_given_up_is_told_once() -> None:
    async def script(request: HttpRequest) -> bool:
        if request.body.get("params", {}).get("name") != "hold":
            return False
        await request.begin_events()
        await request.closed_by_client()
        return True

    async with http_session(script, usual) as server, connect(server.address) as client:
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(client.call_tool, "hold")
            await server.until(lambda: len(server.sent("tools/call")) == 50)
            nursery.cancel_scope.cancel()
        await server.until(lambda: client._connection.calls == ())
        cancelled = [m["params"]["requestId"] for m in server.sent("notifications/cancelled")]
        assert sorted(cancelled) == sorted(m["id"] for m in server.sent("tools/call"))
        assert (await client.call_tool("x")).text == "done"


# The end of a server or a session -----------------------------------------------------------------

HOLDING = """
import json, sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or message["method"] == "tools/call":
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        answer["result"] = %r
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
"""


async def lose_all(client: Client, count: int, lose: Callable[[], Any]) -> list[ConnectionLost]:
    """Make so many calls, lose them, and return what each has raised."""
    losses: list[ConnectionLost] = []

    async def call() -> None:
        with pytest.raises(ConnectionLost) as lost:
            await client.call_tool("hold", timeout=math.inf, max_timeout=math.inf)
        losses.append(lost.value)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(call)
            await until(lambda: [call.sent for call in client.calls()] == [True] * count)
            lose()
    return losses


async def test_a_killed_server_fails_fifty_calls_of_a_session_at_once() -> None:
    async with connect([sys.executable, "-c", HOLDING % _INITIALIZED]) as client:
        assert client.protocol_version == "2025-11-25"
        process = client._connection.process
        assert process is not None
        pid = process._process.pid
        losses = await lose_all(client, 50, lambda: os.kill(pid, signal.SIGKILL))
        assert {loss.exit_status for loss in losses} == {-signal.SIGKILL}
        assert all(loss.sent for loss in losses)
        with pytest.raises(ConnectionLost) as never:
            await client.call_tool("x")
        assert not never.value.sent


async def test_a_session_ends_with_its_server_although_others_are_restarted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    command = [sys.executable, "-c", HOLDING % _INITIALIZED]
    async with connect(command, restart=Restart(backoff=0.01)) as client:
        assert "restart= does nothing here" in caplog.text
        process = client._connection.process
        assert process is not None
        pid = process._process.pid
        losses = await lose_all(client, 50, lambda: os.kill(pid, signal.SIGKILL))
        assert {loss.exit_status for loss in losses} == {-signal.SIGKILL}
        with pytest.raises(ConnectionLost) as never:
            await client.call_tool("x")
        assert not never.value.sent
        assert client.restarts == 0


async def test_a_late_answer_to_discovery_is_recorded_and_changes_nothing() -> None:
    asked: list[int] = []

    def answer(request: dict[str, Any]) -> dict[str, Any] | bytes | None:
        if request["method"] == "server/discover":
            asked.append(request["id"])
            return b""
        return usual(request)

    async with in_session(answer, limits=Limits(probe=0.05)) as (client, script):
        await script.until(lambda: script.sent("notifications/cancelled"))
        await until(lambda: client._connection.calls == ())
        await script.say({"jsonrpc": "2.0", "id": asked[0], "result": DISCOVERED})
        assert (await client.call_tool("x")).text == "done"
        assert client.protocol_version == "2025-11-25"
        assert (client.journal.late, client._connection.violations) == (1, 0)
        await script.say({"jsonrpc": "2.0", "id": asked[0], "result": DISCOVERED})
        assert (await client.call_tool("x")).text == "done"
        assert (client.journal.late, client._connection.violations) == (1, 1)


async def test_over_http_a_server_that_is_gone_fails_fifty_calls_of_a_session() -> None:
    gone = trio.Event()

    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") != "tools/call":
            return False
        await gone.wait()
        await trio.aclose_forcefully(request.stream)
        return True

    async with http_session(script) as server, connect(server.address) as client:
        losses = await lose_all(client, 50, gone.set)
        assert all(loss.sent for loss in losses)
        assert server.methods().count("tools/call") == 50


class Expiring:
    """A server that forgets its session at the first request of ``method``."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.over = False

    async def __call__(self, request: HttpRequest) -> bool:
        self.over = self.over or request.body.get("method") == self.method
        if self.over:
            await request.answer(b"gone", "404 Not Found")
        return self.over


async def test_a_session_that_has_expired_is_told_to_who_listens() -> None:
    async with http_session(Expiring("resources/subscribe"), usual) as server:
        async with connect(server.address) as client, trio.open_nursery() as nursery:

            async def listen() -> None:
                async with client.listen(tools=True) as changes:
                    listening.set()
                    with pytest.raises(ConnectionLost, match="ended the session"):
                        await anext(changes)

            listening = trio.Event()
            nursery.start_soon(listen)
            await listening.wait()
            with pytest.raises(ConnectionLost, match="ended the session"):
                async with client.listen(resources=["x://a"]):
                    pytest.fail("listening")
            with pytest.raises(ConnectionLost, match="ended the session"):
                async with client.listen(tools=True):
                    pytest.fail("listening")
        assert "DELETE" not in server.verbs()


async def test_a_member_whose_session_has_expired_is_lost_and_the_others_live() -> None:
    async with (
        http_session(Expiring("tools/call"), usual) as expiring,
        http_session(answer=usual) as other,
        ClientGroup({"a": expiring.address, "b": other.address}) as group,
    ):
        with pytest.raises(ConnectionLost, match="ended the session"):
            await group.call_tool("a.x")
        a, b = group.members["a"], group.members["b"]
        assert (a.state, b.state) == (MemberState.LOST, MemberState.CONNECTED)
        assert "ended the session" in str(a.error)
        assert (await group.call_tool("b.x")).text == "done"


async def test_what_was_lost_with_its_session_is_not_tried_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    retry = Retry(wait_initial=5, wait_max=5)
    async with http_session(Expiring("resources/read"), usual) as server:
        async with connect(server.address, retry=retry) as client:
            began = trio.current_time()
            with pytest.raises(ConnectionLost, match="ended the session") as lost:
                await client.read_resource("x://a")
            assert trio.current_time() - began < 1
            assert lost.value.sent
        assert server.methods().count("resources/read") == 1


@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed", "500 Oh", None])
async def test_however_a_server_takes_the_end_of_a_session_leaving_is_silent(
    status: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(request: HttpRequest) -> bool:
        if request.verb != "DELETE":
            return False
        if status is None:
            await request.stream.aclose()
        else:
            await request.answer(b"x" * 100_000, status)
        return True

    with trio.fail_after(5):
        async with http_session(script, usual) as server:
            async with connect(server.address) as client:
                await client.call_tool("x")
            assert server.verbs().count("DELETE") == 1
    assert caplog.text == ""


async def test_a_full_pool_holds_up_neither_answers_nor_cancellations() -> None:
    """Each call has a connection of the pool; what is said about it must not need another one."""

    async def script(request: HttpRequest) -> bool:
        if request.verb == "GET":
            await request.begin_events()
            await request.closed_by_client()
        elif request.body.get("method") == "tools/call":
            call_id = request.body["id"]
            await request.begin_events()
            params = {"message": "x", "requestedSchema": FORM}
            asked = {"jsonrpc": "2.0", "id": call_id, "method": "elicitation/create"}
            await request.event({**asked, "params": params})
            if request.body["params"]["name"] == "hold":
                await request.closed_by_client()
            else:
                await server.until(lambda: call_id in [a["id"] for a in server.answers()])
                await request.event(answer_to(call_id))
                await request.end_events()
        else:
            return False
        return True

    limits = Limits(http_pool=3, stall=60)
    async with http_session(script) as server:
        async with connect(
            server.address, limits=limits, on_elicit=lambda q: q.decline()
        ) as client:
            await server.until(lambda: "GET" in server.verbs())
            with trio.fail_after(5):
                async with trio.open_nursery() as nursery:
                    for _ in range(3):
                        nursery.start_soon(client.call_tool, "x")
                async with trio.open_nursery() as nursery:
                    for _ in range(3):
                        nursery.start_soon(client.call_tool, "hold")
                    await server.until(lambda: len(server.answers()) == 6)
                    nursery.cancel_scope.cancel()
                await server.until(lambda: client.calls() == ())
        assert len(server.sent("notifications/cancelled")) == 3


async def test_invariant_4_a_server_that_answers_no_delete_leaves_no_descriptor() -> None:
    async def script(request: HttpRequest) -> bool:
        if request.verb == "DELETE":
            await request.closed_by_client()
            return True
        return False

    async with http_session(script, usual) as server:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            async with connect(server.address, limits=Limits(exit_wait=0.1)) as client:
                async with trio.open_nursery() as nursery:
                    for _ in range(5):
                        nursery.start_soon(client.call_tool, "x")
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)
        assert server.verbs().count("DELETE") == 3


# Lists, and what is kept --------------------------------------------------------------------------


def pages(next_cursor: Callable[[int], str | None]) -> Any:
    asked = 0

    def answer(request: dict[str, Any]) -> dict[str, Any] | bytes | None:
        nonlocal asked
        if request["method"] != "tools/list":
            return usual(request)
        asked += 1
        tool = {"name": f"t{asked}", "inputSchema": {"type": "object"}}
        cursor = next_cursor(asked)
        return {"tools": [tool]} if cursor is None else {"tools": [tool], "nextCursor": cursor}

    return answer


async def test_pages_end_at_a_repeated_cursor_at_the_limit_and_nowhere_else() -> None:
    async with in_session(pages(lambda asked: "again")) as (client, _):
        with pytest.raises(ProtocolViolation, match="the same cursor twice"):
            _ = [tool async for tool in client.tools()]
    async with in_session(pages(str), limits=Limits(pages=5)) as (client, script):
        with pytest.raises(ProtocolViolation, match="pages=5"):
            _ = [tool async for tool in client.tools()]
        assert len(script.sent("tools/list")) == 5
    empty_first = pages(lambda asked: ("", "b", None)[asked - 1])
    async with in_session(empty_first) as (client, _):
        assert [tool.name async for tool in client.tools()] == ["t1", "t2", "t3"]


async def test_what_says_nothing_of_its_age_is_not_kept() -> None:
    async with in_session(pages(lambda _: None), cache=True) as (client, script):
        for number in (1, 2):
            assert [tool.name async for tool in client.tools()] == [f"t{number}"]
        assert len(script.sent("tools/list")) == 2


@pytest.mark.parametrize("uri", ["x://\ud800", "x://" + "y" * 20_000], ids=["surrogate", "long"])
async def test_a_uri_that_cannot_be_sent_is_its_listeners_error(uri: str) -> None:
    limits = Limits(message_bytes=10_000)
    async with in_session(usual, limits=limits) as (client, script):
        with pytest.raises(ValueError, match=r"surrogates|message_bytes=10000"):
            async with client.listen(resources=["x://a", uri]):
                pytest.fail("listening")
        async with client.listen(resources=["x://a"]) as changes:
            await script.tell("notifications/resources/updated", uri="x://a")
            assert (await anext(changes)).uri == "x://a"


async def test_invariant_9_a_uri_that_is_too_long_is_not_kept_while_listening_begins() -> None:
    """It comes before the server has answered the subscription."""
    asked_for = "x://" + "y" * 50

    def answer(request: dict[str, Any]) -> dict[str, Any] | bytes | None:
        if request["method"] != "resources/subscribe":
            return usual(request)
        updates = [
            {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}
            for uri in ("x://" + "z" * 50, asked_for)
        ]
        answered = {"jsonrpc": "2.0", "id": request["id"], "result": {}}
        return b"\n".join(map(msgspec.json.encode, [*updates, answered]))

    async with in_session(answer, limits=Limits(uri_length=40)) as (client, _):
        async with client.listen(resources=[asked_for]) as changes:
            assert (await anext(changes)).uri == asked_for
        assert client._connection.violations == 1
        assert "longer than uri_length=40" in str(client._connection.last_violation)


# Leaks --------------------------------------------------------------------------------------------


async def test_invariant_4_a_thousand_subscriptions_leave_nothing() -> None:
    limits = Limits(late_answers=10, journal_records=10)
    async with in_session(usual, limits=limits) as (client, script):
        tasks = trio.lowlevel.current_statistics().tasks_living
        for number in range(1000):
            async with client.listen(resources=[f"x://{number}"], tools=True):
                pass
        await script.until(lambda: len(script.sent("resources/unsubscribe")) == 1000)
        await until(lambda: client._connection.calls == ())
        await until(lambda: trio.lowlevel.current_statistics().tasks_living <= tasks)
        era = client._era
        assert (era._listening, era._subscribed) == ({}, {})  # type: ignore[attr-defined]


async def test_invariant_9_mixed_calls_of_a_session_leave_nothing() -> None:
    """Objects are counted: what is kept of each call would be thousands."""

    def answer(request: dict[str, Any]) -> dict[str, Any] | bytes | None:
        name = request.get("params", {}).get("name")
        if name == "refuse":
            error = b'"error":{"code":-32603,"message":"no"}'
            return b'{"jsonrpc":"2.0","id":%d,%b}' % (request["id"], error)
        return b"garbage" if name == "babble" else usual(request)

    limits = Limits(late_answers=10, journal_records=10)
    async with in_session(answer, limits=limits) as (client, script):

        async def some(count: int) -> None:
            for number in range(count):
                await client.call_tool("x", on_progress=lambda _: None)
                with pytest.raises(ServerError):
                    await client.call_tool("refuse")
                async with client.start_tool("babble") as call:
                    await script.ask(number, "ping")
                    call.cancel("enough")
                    assert (await call.ended()).state is State.CANCELLED
            script.heard.clear()
            gc.collect()

        await some(100)
        before = len(gc.get_objects())
        await some(700)
        grown = len(gc.get_objects()) - before
    assert grown < 300, f"{grown} objects more after 2,100 calls"
