"""Our client in a session over HTTP, with scripted servers of earlier revisions."""

from __future__ import annotations

import logging
import math
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
import trio
import trio.testing
from tests.peers.scripted import DISCOVERED
from tests.peers.sessions import INITIALIZED, HttpRequest, HttpSession, http_session

from trio_mcp import (
    AuthorizationRequired,
    CallTimeout,
    ClientGroup,
    ConnectionLost,
    Elicitation,
    ElicitResult,
    IncompatibleServer,
    Limits,
    MemberState,
    Overloaded,
    ProtocolViolation,
    ServerError,
    State,
    connect,
)

TEXT = {"content": [{"type": "text", "text": "done"}]}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


def tools(request: dict[str, Any]) -> dict[str, Any] | None:
    return TEXT if request["method"] == "tools/call" else None


def result(request: HttpRequest, text: str = "done") -> dict[str, Any]:
    content = {"content": [{"type": "text", "text": text}]}
    return {"jsonrpc": "2.0", "id": request.body["id"], "result": content}


def question(request_id: Any = 1) -> dict[str, Any]:
    params = {"message": "x", "requestedSchema": FORM}
    return {"jsonrpc": "2.0", "id": request_id, "method": "elicitation/create", "params": params}


# The beginning and the end ------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", ["s-1", "~!\"'{}", None])
async def test_a_session_has_its_headers_and_is_ended(session_id: str | None) -> None:
    async with http_session(answer=tools) as server:
        server.session_id = session_id
        async with connect(server.address, headers={"Authorization": "x"}) as client:
            assert client.protocol_version == "2025-11-25"
            assert (await client.call_tool("x")).text == "done"
            await server.until(lambda: "GET" in server.verbs())
    discover, initialize, *others = server.requests
    assert discover.headers["mcp-protocol-version"] == "2026-07-28"
    assert "mcp-protocol-version" not in initialize.headers
    assert "mcp-session-id" not in initialize.headers
    for request in others:
        assert request.headers["mcp-protocol-version"] == "2025-11-25"
        assert request.headers.get("mcp-session-id") == session_id
        assert request.headers["authorization"] == "x"
        assert "mcp-method" not in request.headers
    ended = [] if session_id is None else ["DELETE"]
    assert sorted(server.verbs()) == [*ended, "GET", *["POST"] * 4]


@pytest.mark.parametrize("status", ["404 Not Found", "405 Method Not Allowed", "415 x", "422 y"])
async def test_other_refusals_of_discovery_lead_to_a_session_too(
    status: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An earlier revision is no violation of ours."""

    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") != "server/discover":
            return False
        await request.answer(b"<html>no</html>", status)
        return True

    async with http_session(script, tools) as server:
        with caplog.at_level(logging.INFO, logger="trio_mcp"):
            async with connect(server.address) as client:
                assert (await client.call_tool("x")).text == "done"
                assert client._connection.violations == 0
    told = [record for record in caplog.records if "server/discover" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.INFO]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "429 Too Many Requests"])
async def test_a_server_that_wants_something_else_is_not_asked_for_a_session(status: str) -> None:
    async def script(request: HttpRequest) -> None:
        await request.answer(b"no", status)

    async with http_session(script) as server:
        with pytest.raises((ProtocolViolation, AuthorizationRequired, Overloaded), match=status):
            async with connect(server.address):
                pytest.fail("connected")
        assert server.methods() == ["server/discover"]


async def test_an_error_of_our_revision_leads_to_no_session() -> None:
    async def script(request: HttpRequest) -> None:
        error = {"code": -32020, "message": "Header mismatch"}
        body = {"jsonrpc": "2.0", "id": request.body["id"], "error": error}
        await request.answer(msgspec.json.encode(body), "400 Bad Request")

    async with http_session(script) as server:
        with pytest.raises(IncompatibleServer, match="Header mismatch"):
            async with connect(server.address):
                pytest.fail("connected")
        assert server.methods() == ["server/discover"]


async def test_a_server_of_the_transport_before_is_incompatible() -> None:
    async def script(request: HttpRequest) -> None:
        await request.answer(b"", "405 Method Not Allowed")

    async with http_session(script) as server:
        with pytest.raises(IncompatibleServer, match=r"HTTP\+SSE transport of 2024-11-05"):
            async with connect(server.address):
                pytest.fail("connected")


@pytest.mark.parametrize("session_id", ["a b", "x" * 9000, "\xe9"], ids=["space", "long", "latin"])
async def test_a_session_id_that_is_none_is_refused(session_id: str) -> None:
    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") != "initialize":
            return False
        body = msgspec.json.encode(
            {"jsonrpc": "2.0", "id": request.body["id"], "result": INITIALIZED}
        )
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nMcp-Session-Id: {session_id}\r\n"
        head += "Content-Type: application/json\r\n\r\n"
        await request.stream.send_all(head.encode("latin-1") + body)
        return True

    async with http_session(script) as server:
        with pytest.raises(ProtocolViolation, match="an id that is none"):
            async with connect(server.address):
                pytest.fail("connected")


async def test_a_session_that_the_server_has_ended_is_a_lost_connection() -> None:
    over = False

    async def script(request: HttpRequest) -> bool:
        if not over:
            return False
        await request.answer(b"gone", "404 Not Found")
        return True

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        return None if request.get("params", {}).get("name") == "wait" else tools(request)

    async with http_session(script, answer) as server:
        async with connect(server.address) as client, trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(ConnectionLost, match="ended the session"):
                    await client.call_tool("wait")

            nursery.start_soon(wait)
            await server.until(lambda: server.sent("tools/call"))
            over = True
            with pytest.raises(ConnectionLost, match="ended the session"):
                await client.call_tool("x")
            with pytest.raises(ConnectionLost) as never:
                await client.call_tool("x")
            assert not never.value.sent
        assert "DELETE" not in server.verbs()


UNKNOWN = '{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"%s"}}'
SAID = "Bad Request: No valid session ID provided"


@pytest.mark.parametrize(
    ("status", "body", "over"),
    [
        ("400 Bad Request", UNKNOWN % ("null", -32000, SAID), True),
        ("400 Bad Request", UNKNOWN % ("%d", -32001, "Session not found"), True),
        ("404 Not Found", UNKNOWN % ("null", -32001, "Session not found"), True),
        ("400 Bad Request", SAID, True),
        ("400 Bad Request", UNKNOWN % ("%d", -32000, "Server not initialized"), False),
        ("400 Bad Request", UNKNOWN % ("%d", -32602, "no such session of chess"), False),
        ("500 Oops", UNKNOWN % ("%d", -32000, SAID), False),
        ("200 OK", UNKNOWN % ("%d", -32000, SAID), False),
    ],
)
async def test_whether_a_refusal_ends_the_session(status: str, body: str, over: bool) -> None:
    """The most used servers say with a 400 that they do not know a session, not with a 404."""

    async def script(request: HttpRequest) -> bool:
        if request.body.get("params", {}).get("name") != "refused":
            return False
        said = body % request.body["id"] if "%d" in body else body
        await request.answer(said.encode(), status)
        return True

    async with http_session(script, tools) as server:
        async with ClientGroup({"old": server.address}) as group:
            client = group["old"]
            with pytest.raises(ConnectionLost if over else ServerError) as caught:
                await client.call_tool("refused")
            if over:
                assert f"ended the session (HTTP {status[:3]}); connect again" in str(caught.value)
                assert group.members["old"].state is MemberState.LOST
                with pytest.raises(ConnectionLost, match="ended the session") as never:
                    await client.call_tool("x")
                assert not never.value.sent
            else:
                assert group.members["old"].state is MemberState.CONNECTED
                assert (await client.call_tool("x")).text == "done"
        assert ("DELETE" in server.verbs()) is not over


async def test_a_400_to_what_is_no_call_may_end_the_session_too() -> None:
    stream = Stream()
    over = False

    async def script(request: HttpRequest) -> bool:
        if not over:
            return await stream(request)
        await request.answer((UNKNOWN % ("null", -32000, SAID)).encode(), "400 Bad Request")
        return True

    async with http_session(script, listing) as server:
        async with connect(server.address, limits=Limits(session_pause=0.01)) as client:
            async with client.listen(tools=True) as changes:
                over = True
                await stream.streams[0].end_events()
                with pytest.raises(ConnectionLost, match="ended the session"):
                    await anext(changes)
        assert "DELETE" not in server.verbs()


async def test_a_404_without_a_session_is_that_calls_alone() -> None:
    async def script(request: HttpRequest) -> bool:
        if request.body.get("params", {}).get("name") != "missing":
            return False
        await request.answer(b"gone", "404 Not Found")
        return True

    async with http_session(script, tools) as server:
        server.session_id = None
        async with connect(server.address) as client:
            with pytest.raises(ProtocolViolation, match="404"):
                await client.call_tool("missing")
            assert (await client.call_tool("x")).text == "done"


async def test_closing_is_bounded_though_the_server_answers_no_delete() -> None:
    async def script(request: HttpRequest) -> bool:
        if request.verb == "DELETE":
            await trio.sleep_forever()
        return False

    async with http_session(script, tools) as server:
        with trio.fail_after(2):
            async with connect(server.address, limits=Limits(exit_wait=0.2)) as client:
                await client.call_tool("x")
        assert server.verbs()[-1] == "DELETE"


async def test_abort_ends_calls_at_once_and_the_session_without_a_word() -> None:
    async def script(request: HttpRequest) -> bool:
        if request.body.get("params", {}).get("name") != "wait":
            return False
        await request.closed_by_client()
        return True

    async with http_session(script, tools) as server:
        async with connect(server.address) as client:
            async with client.start_tool("wait") as call:
                await server.until(lambda: server.sent("tools/call"))
                client.abort()
                with pytest.raises(ConnectionLost, match="the client was aborted"):
                    await call.result()
            with pytest.raises(ConnectionLost, match="the client was aborted") as refused:
                await client.call_tool("x")
            assert not refused.value.sent
        assert "DELETE" not in server.verbs()


async def test_initialize_that_is_never_answered_is_given_up_by_closing() -> None:
    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") == "initialize":
            await request.closed_by_client()
            return True
        return False

    async with http_session(script) as server:
        with pytest.raises(IncompatibleServer, match="did not answer initialize within"):
            async with connect(server.address, limits=Limits(connect=0.3)):
                pytest.fail("connected")
        assert server.methods() == ["server/discover", "initialize"]


async def test_a_slow_server_of_our_revision_is_spoken_to_as_one() -> None:
    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") == "server/discover":
            await server.until(lambda: server.sent("initialize"))
            body = {"jsonrpc": "2.0", "id": request.body["id"], "result": DISCOVERED}
            await request.answer(msgspec.json.encode(body))
        elif request.body.get("method") == "initialize":
            await request.closed_by_client()
        else:
            return False
        return True

    async with http_session(script) as server:
        async with connect(server.address, limits=Limits(probe=0.05)) as client:
            assert client.protocol_version == "2026-07-28"
        assert server.methods() == ["server/discover", "initialize"]
        assert server.verbs() == ["POST", "POST"]


# Calls --------------------------------------------------------------------------------------------


async def test_a_call_is_cancelled_by_a_post_and_its_stream_closed_after_it() -> None:
    order: list[str] = []

    async def script(request: HttpRequest) -> bool:
        method = request.body.get("method")
        if method == "tools/call":
            await request.begin_events()
            await request.closed_by_client()
            order.append("closed")
            return True
        if method == "notifications/cancelled":
            order.append("told")
        return False

    async with http_session(script) as server:
        async with connect(server.address) as client:
            with trio.move_on_after(0.1) as scope:
                await client.call_tool("x")
            assert scope.cancelled_caught
            await server.until(lambda: len(order) == 2)
            assert order == ["told", "closed"]
            assert client._connection.calls == ()
        (cancelled,) = server.about("notifications/cancelled")
        (called,) = server.about("tools/call")
        assert cancelled.body["params"]["requestId"] == called.body["id"]
        assert cancelled.headers["mcp-session-id"] == "s-1"


async def test_a_cancellation_that_the_server_does_not_take_is_bounded() -> None:
    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") in ("tools/call", "notifications/cancelled"):
            await trio.sleep_forever()
        return False

    async with http_session(script) as server:
        async with connect(server.address, limits=Limits(stall=0.1)) as client:
            async with client.start_tool("x") as call:
                await server.until(lambda: server.sent("tools/call"))
                call.cancel("enough")
                with trio.fail_after(2):
                    record = await call.ended()
            assert record.state.name == "CANCELLED"


async def test_a_call_whose_cancellation_is_not_taken_leaves_its_connection_to_others() -> None:
    async def script(request: HttpRequest) -> bool:
        method = request.body.get("method")
        if method == "tools/call" and request.body["params"]["name"] == "slow":
            await request.begin_events()
            await request.closed_by_client()
            return True
        if method == "notifications/cancelled":
            await trio.sleep_forever()
        return False

    async with http_session(script, tools) as server:
        limits = Limits(http_pool=1, http_trailing=0.1)
        async with connect(server.address, limits=limits) as client:
            async with client.start_tool("slow") as call:
                await server.until(lambda: server.sent("tools/call"))
                call.cancel("enough")
                assert (await client.call_tool("quick", timeout=5)).text == "done"
                assert call.state is State.CANCELLING  # nobody knows whether the server has heard
                client.abort()
                assert (await call.ended()).state is State.CANCELLED


async def test_a_cancellation_does_not_wait_for_answers_that_the_server_does_not_take() -> None:
    stream = Stream()

    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") == "tools/call":
            await request.begin_events()
            await request.closed_by_client()
            return True
        if request.verb == "POST" and "method" not in request.body:
            await trio.sleep_forever()
        return await stream(request)

    async with http_session(script) as server:
        async with connect(server.address, limits=Limits(session_posts=1)) as client:
            await server.until(lambda: stream.streams)
            await stream.streams[0].event({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            await server.until(server.answers)
            with trio.move_on_after(0.1):
                await client.call_tool("x")
            await server.until(lambda: server.sent("notifications/cancelled"))


async def test_progress_and_a_question_on_the_stream_of_the_call() -> None:
    updates: list[float] = []
    asked: list[str] = []

    def elicit(question: Elicitation) -> ElicitResult:
        asked.append(question.key)
        return question.accept({"name": "Ada"})

    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") != "tools/call":
            return False
        await request.begin_events()
        token = request.body["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": 1}
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        await request.event(progress)
        await request.event(question("q"))
        await server.until(server.answers)
        await request.event(result(request))
        await request.end_events()
        return True

    async with http_session(script) as server:
        async with connect(server.address, on_elicit=elicit) as client:
            done = await client.call_tool("x", on_progress=lambda u: updates.append(u.progress))
            assert (done.text, updates, asked) == ("done", [1], ["q"])
        (answer,) = server.answers()
        assert answer["id"] == "q"
        assert answer["result"]["content"] == {"name": "Ada"}


async def test_a_question_on_the_stream_of_a_call_ends_with_its_cancellation() -> None:
    stopped = trio.Event()
    began = trio.Event()

    async def elicit(question: Elicitation) -> ElicitResult:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            stopped.set()
        raise AssertionError

    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") != "tools/call":
            return False
        await request.begin_events()
        await request.event(question())
        await request.closed_by_client()
        return True

    async with http_session(script) as server:
        async with connect(server.address, on_elicit=elicit) as client:
            async with client.start_tool("x") as call:
                await began.wait()
                call.cancel()
                await stopped.wait()
            assert server.answers() == []


@pytest.mark.parametrize("wrong", ["1", 1000, None], ids=str)
async def test_an_answer_with_another_id_is_none(wrong: Any) -> None:
    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") != "tools/call":
            return False
        await request.begin_events()
        await request.event({**result(request), "id": wrong})
        await request.end_events()
        return True

    async with http_session(script) as server, connect(server.address) as client:
        with pytest.raises(ConnectionLost, match="without a response"):
            await client.call_tool("x")
        assert client._connection.violations == 1


async def test_a_call_is_not_made_again_for_a_header() -> None:
    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") != "tools/call":
            return False
        error = {"code": -32020, "message": "who knows"}
        body = {"jsonrpc": "2.0", "id": request.body["id"], "error": error}
        await request.answer(msgspec.json.encode(body), "400 Bad Request")
        return True

    async with http_session(script) as server, connect(server.address) as client:
        with pytest.raises(ServerError, match="who knows"):
            await client.call_tool("x")
        assert server.methods().count("tools/call") == 1


# Streams that break off ---------------------------------------------------------------------------


def broken(server: list[HttpSession], *follow: bytes | None, first: bytes = b"id: 1\n") -> Any:
    """Calls get a stream that breaks off; each GET with an id after it gets one of ``follow``, or
    the result for ``None``."""
    left = [*follow]

    async def script(request: HttpRequest) -> bool:
        called = server[0].about("tools/call")
        if request.body.get("method") == "tools/call":
            await request.begin_events()
            await request.event(b"", before=first + b"retry: 20\n")
            await request.end_events()
        elif "last-event-id" in request.headers and left:
            await request.begin_events()
            before = left.pop(0)
            if before is None:
                await request.event(result(called[0]), before=b"id: last\n")
            else:
                await request.event(b"", before=before)
            await request.end_events()
        else:
            return False
        return True

    return script


async def test_a_stream_that_breaks_off_is_asked_for_again() -> None:
    servers: list[HttpSession] = []
    script = broken(servers, b"id: 2\n", b"", None)
    async with http_session(script) as server:
        servers.append(server)
        async with connect(server.address) as client:
            assert (await client.call_tool("x")).text == "done"
    asked = [r.headers["last-event-id"] for r in server.requests if "last-event-id" in r.headers]
    assert asked == ["1", "2", "2"]


@pytest.mark.parametrize(
    ("retry", "pause", "least"),
    [(b"300", 1.0, 0.3), (b"0", 1.0, 0.1), (b"999999999", 0.005, 0.3)],
)
async def test_a_stream_is_asked_for_again_when_the_server_wants_it_in_bounds(
    retry: bytes, pause: float, least: float
) -> None:
    ended = asked = 0.0

    async def script(request: HttpRequest) -> bool:
        nonlocal ended, asked
        if request.body.get("method") == "tools/call":
            await request.begin_events()
            await request.event(b"", before=b"id: 1\nretry: " + retry + b"\n")
            ended = trio.current_time()
            await request.end_events()
        elif "last-event-id" in request.headers:
            asked = trio.current_time()
            await request.begin_events()
            await request.event(result(server.about("tools/call")[0]))
            await request.end_events()
        else:
            return False
        return True

    limits = Limits(session_pause=pause)
    async with http_session(script) as server, connect(server.address, limits=limits) as client:
        assert (await client.call_tool("x")).text == "done"
    assert asked - ended >= least


async def test_a_stream_that_does_not_go_on_is_lost() -> None:
    servers: list[HttpSession] = []
    async with http_session(broken(servers)) as server:
        servers.append(server)
        async with connect(server.address) as client:
            with pytest.raises(ConnectionLost, match=r"does not go on .HTTP 405"):
                await client.call_tool("x")


async def test_a_stream_that_tells_nothing_new_is_given_up() -> None:
    servers: list[HttpSession] = []
    script = broken(servers, *[b""] * 10)
    async with http_session(script) as server:
        servers.append(server)
        limits = Limits(session_streams=3, session_pause=0.01)
        async with connect(server.address, limits=limits) as client:
            with pytest.raises(ConnectionLost, match="without a response"):
                await client.call_tool("x")
    assert len([r for r in server.requests if "last-event-id" in r.headers]) == 3


@pytest.mark.parametrize("first", [b"", b"id: \n", b"id: \xc3\xa9\n"], ids=repr)
async def test_a_stream_without_an_id_is_asked_for_only_if_there_is_one(first: bytes) -> None:
    servers: list[HttpSession] = []
    async with http_session(broken(servers, first=first)) as server:
        servers.append(server)
        async with connect(server.address) as client:
            with pytest.raises(ConnectionLost, match="stream ended without a response"):
                await client.call_tool("x")
    assert all("last-event-id" not in request.headers for request in server.requests)


# The stream that belongs to no call ---------------------------------------------------------------


class Stream:
    """A server with a stream for GET, which the test writes to."""

    def __init__(self) -> None:
        self.streams: list[HttpRequest] = []
        self.refuse = False

    async def __call__(self, request: HttpRequest) -> bool:
        if request.verb != "GET" or self.refuse:
            return False
        await request.begin_events()
        self.streams.append(request)
        await request.closed_by_client()
        return True


async def test_no_call_goes_out_before_the_stream_is_there() -> None:
    let_it_begin = trio.Event()

    async def script(request: HttpRequest) -> bool:
        if request.verb != "GET":
            return False
        await let_it_begin.wait()
        return await stream(request)

    async def call() -> None:
        async with connect(server.address, limits=Limits(session_listen=60)) as client:
            assert (await client.call_tool("x")).text == "done"

    stream = Stream()
    async with http_session(script, tools) as server, trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await server.until(lambda: "GET" in server.verbs())
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not server.sent("tools/call")
        let_it_begin.set()
    assert server.sent("tools/call")


async def test_a_stream_that_does_not_show_is_waited_for_within_the_limit() -> None:
    async def script(request: HttpRequest) -> bool:
        if request.verb != "GET":
            return False
        await request.closed_by_client()
        return True

    async with http_session(script, tools) as server:
        async with connect(server.address, limits=Limits(session_listen=0.05)) as client:
            assert (await client.call_tool("x")).text == "done"
    assert server.verbs().index("GET") < server.verbs().index("DELETE")


def listing(request: dict[str, Any]) -> dict[str, Any] | None:
    return {} if "subscribe" in request["method"] else tools(request)


async def test_changes_and_questions_come_on_the_stream_of_no_call() -> None:
    stream = Stream()
    async with http_session(stream, listing) as server:
        async with connect(server.address, on_elicit=lambda q: q.decline()) as client:
            async with client.listen(tools=True, resources=["x://a"]) as changes:
                (get,) = stream.streams
                assert get.headers["accept"] == "text/event-stream"
                updated = {"jsonrpc": "2.0", "method": "notifications/resources/updated"}
                await get.event({**updated, "params": {"uri": "x://a"}})
                assert (await anext(changes)).uri == "x://a"
                await get.event(question(7))
                await get.event({"jsonrpc": "2.0", "id": 8, "method": "ping"})
                await get.event(b"garbage")
                await server.until(lambda: len(server.answers()) == 2)
                assert client._connection.violations == 1
            await server.until(lambda: server.sent("resources/unsubscribe"))
    assert {answer["id"] for answer in server.answers()} == {7, 8}


async def test_a_stream_that_ends_is_asked_for_again_and_then_listeners_are_told() -> None:
    stream = Stream()
    limits = Limits(session_streams=2, session_pause=0.01)
    async with http_session(stream, listing) as server:
        async with connect(server.address, limits=limits) as client:
            async with client.listen(tools=True) as changes:
                await stream.streams[0].event(
                    {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
                    before=b"id: 5\n",
                )
                assert (await anext(changes)).kind == "tools"
                await stream.streams[0].end_events()
                await server.until(lambda: len(stream.streams) == 2)
                assert stream.streams[1].headers["last-event-id"] == "5"
                stream.refuse = True
                await stream.streams[1].end_events()
                with pytest.raises(ConnectionLost, match="not there any more: HTTP 405"):
                    await anext(changes)
            assert (await client.call_tool("x")).text == "done"


async def test_a_stream_that_only_ends_is_told_as_such() -> None:
    async def script(request: HttpRequest) -> bool:
        if request.verb != "GET":
            return False
        await request.begin_events()
        await begun.wait()
        await request.end_events()
        return True

    begun = trio.Event()
    limits = Limits(session_streams=2, session_pause=0.01)
    async with http_session(script, listing) as server:
        async with connect(server.address, limits=limits) as client:
            async with client.listen(tools=True) as changes:
                begun.set()
                with pytest.raises(ConnectionLost, match=r"has ended the stream .* 2 times"):
                    await anext(changes)


async def test_a_server_that_is_not_there_any_more_is_told_as_such() -> None:
    stream = Stream()
    limits = Limits(session_streams=3, session_pause=0.01)
    async with http_session(stream, listing) as server:
        async with connect(server.address, limits=limits) as client:
            async with client.listen(tools=True) as changes:
                connection: Any = client._connection
                connection._url = connection._url.copy_with(port=1)  # where nobody listens
                await stream.streams[0].end_events()
                words = "not there any more: cannot connect to 127.0.0.1:1: Connection refused"
                with pytest.raises(ConnectionLost, match=words):
                    await anext(changes)


async def test_how_long_to_wait_is_the_business_of_servers_that_are_there() -> None:
    """The pause that a server wanted before it died does not hold up who waits for changes."""
    stream = Stream()
    limits = Limits(session_streams=3, session_pause=0.01)
    async with http_session(stream, listing) as server:
        async with connect(server.address, limits=limits) as client:
            async with client.listen(tools=True) as changes:
                connection: Any = client._connection
                connection._url = connection._url.copy_with(port=1)
                pause = Mock(side_effect=connection._pause)
                connection._pause = pause
                await stream.streams[0].event(b"", before=b"retry: 200\n")
                await stream.streams[0].end_events()
                with pytest.raises(ConnectionLost, match="not there any more"):
                    await anext(changes)
                assert pause.call_count == 1  # after the one that had been there


async def test_an_answer_on_the_wrong_stream_is_taken() -> None:
    stream = Stream()

    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") == "tools/call":
            await request.begin_events()
            await stream.streams[0].event(result(request, "here"))
            await request.closed_by_client()
            return True
        return await stream(request)

    async with http_session(script) as server:
        async with connect(server.address, limits=Limits(http_trailing=0.1)) as client:
            await server.until(lambda: stream.streams)
            assert (await client.call_tool("x", timeout=5)).text == "here"
            await stream.streams[0].event({"jsonrpc": "2.0", "id": 77, "result": {}})
            await server.until(lambda: client._connection.violations)


async def test_a_server_that_does_not_take_answers_gets_no_more_of_them_than_the_limit() -> None:
    stream = Stream()

    async def script(request: HttpRequest) -> bool:
        if request.verb == "POST" and "method" not in request.body:
            await trio.sleep_forever()
        return await stream(request)

    async with http_session(script, tools) as server:
        async with connect(server.address, limits=Limits(session_posts=3)) as client:
            await server.until(lambda: stream.streams)
            for number in range(10):
                ping = {"jsonrpc": "2.0", "id": number, "method": "ping"}
                await stream.streams[0].event(ping)
            await server.until(lambda: client._connection.violations == 7)
            assert (await client.call_tool("x")).text == "done"
    assert len(server.answers()) == 3


async def test_an_endless_event_ends_the_stream_and_no_call() -> None:
    stream = Stream()
    async with http_session(stream, tools) as server:
        async with connect(server.address, limits=Limits(message_bytes=10_000)) as client:
            async with client.listen(tools=True) as changes:
                await stream.streams[0].event(b"x" * 20_000)
                with pytest.raises(ConnectionLost, match="longer than 10000"):
                    await anext(changes)
            assert (await client.call_tool("x")).text == "done"


async def test_the_timeout_of_a_call_is_told_by_a_post() -> None:
    async with http_session() as server, connect(server.address) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("x", timeout=0.1, max_timeout=math.inf)
        await server.until(lambda: server.sent("notifications/cancelled"))
