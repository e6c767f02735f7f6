"""Our client in a session with servers of earlier revisions, over a stream: scripted ones."""

from __future__ import annotations

import contextlib
import logging
import math
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from tests.peers.scripted import Error
from tests.peers.sessions import INITIALIZED, Answer, in_session

from trio_mcp import (
    CallTimeout,
    ConnectionLost,
    CreateMessageRequestParams,
    CreateMessageResult,
    Elicitation,
    ElicitResult,
    IncompatibleServer,
    Limits,
    LogMessage,
    ProtocolError,
    ProtocolViolation,
    Root,
    ServerError,
    TextContent,
    connect,
)

TEXT = {"content": [{"type": "text", "text": "done"}]}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def tools(request: dict[str, Any]) -> dict[str, Any] | None:
    return TEXT if request["method"] == "tools/call" else None


def silent(*methods: str) -> Answer:
    """A server that answers nothing of these methods."""

    def answer(request: dict[str, Any]) -> dict[str, Any] | bytes | None:
        return b"" if request["method"] in methods else tools(request)

    return answer


def saying(**changes: Any) -> Answer:
    """A server whose answer to ``initialize`` is another one."""

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        return {**INITIALIZED, **changes} if request["method"] == "initialize" else tools(request)

    return answer


# The beginning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32603, -32000, 0, 1])
async def test_any_refusal_of_discovery_leads_to_a_session(code: int) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any] | Error | None:
        return Error(code) if request["method"] == "server/discover" else tools(request)

    async with in_session(answer, name="us", version="7") as (client, script):
        assert client.protocol_version == "2025-11-25"
        assert client.server_info is not None
        assert client.server_info.name == "old"
        assert client.discovered.supported_versions == ["2025-11-25"]
        assert (await client.call_tool("x")).text == "done"
        assert await client.discover() is client.discovered
    assert script.methods() == [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/call",
    ]
    params = script.sent("initialize")[0]["params"]
    assert params["protocolVersion"] == "2025-11-25"
    assert params["clientInfo"] == {"name": "us", "version": "7"}
    assert params["capabilities"] == {}
    assert script.sent("tools/call")[0]["params"]["_meta"].keys() == {"progressToken"}


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26", "2024-11-05"])
async def test_a_server_chooses_an_earlier_revision_of_ours(version: str) -> None:
    async with in_session(saying(protocolVersion=version)) as (client, _):
        assert client.protocol_version == version


@pytest.mark.parametrize("version", ["2024-10-07", "2026-07-28", "1.0.0", ""])
async def test_a_server_that_chooses_another_is_incompatible(version: str) -> None:
    with pytest.raises(IncompatibleServer) as refused:
        async with in_session(saying(protocolVersion=version)):
            pytest.fail("connected")
    assert refused.value.supported == (version,)


async def test_a_server_of_both_that_names_only_the_earlier_gets_a_session() -> None:
    def answer(request: dict[str, Any]) -> bytes | None:
        if request["method"] != "server/discover":
            return None
        return (
            b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32022,"message":"no",'
            b'"data":{"supported":["2025-11-25"],"requested":"2026-07-28"}}}' % request["id"]
        )

    async with in_session(answer) as (client, _):
        assert client.protocol_version == "2025-11-25"


async def test_a_server_that_does_not_answer_discovery_is_asked_for_a_session() -> None:
    async with in_session(silent("server/discover"), limits=Limits(probe=0.05)) as (client, script):
        assert client.protocol_version == "2025-11-25"
        await script.until(lambda: not client._connection.calls)  # nor for discovery any more
        await client.call_tool("x")
    assert script.methods()[:3] == ["server/discover", "initialize", "notifications/initialized"]


async def test_a_slow_server_of_our_revision_is_spoken_to_as_one() -> None:
    discovery: list[int] = []

    def answer(request: dict[str, Any]) -> bytes | dict[str, Any] | None:
        if request["method"] == "server/discover":
            discovery.append(request["id"])
            return b""
        if request["method"] == "initialize":
            return (
                b'{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete","capabilities":{},'
                b'"supportedVersions":["2026-07-28"]}}' % discovery[0]
            )
        return None

    with trio.fail_after(5):
        async with in_session(answer, limits=Limits(probe=0.05)) as (client, script):
            assert client.protocol_version == "2026-07-28"
            assert client._connection.session is None
    assert "notifications/initialized" not in script.methods()


async def test_initialize_is_never_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    began = trio.current_time()
    ours, theirs = trio.testing.memory_stream_pair()
    heard = b""

    async def hear() -> None:
        nonlocal heard
        while data := await theirs.receive_some():
            heard += bytes(data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear)
        with pytest.raises(IncompatibleServer, match=r"neither server/discover nor initialize"):
            async with connect(ours, limits=Limits(connect=4)):
                pytest.fail("connected")
        assert trio.current_time() - began == pytest.approx(4)
    assert heard.count(b"\n") == 2
    assert b"cancelled" not in heard


async def test_nobody_cancels_initialize_by_leaving_either() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    with trio.move_on_after(0.2) as scope:
        async with connect(ours, limits=Limits(probe=0.05)):
            pytest.fail("connected")
    assert scope.cancelled_caught
    said = b""
    while data := await theirs.receive_some():
        said += bytes(data)
    assert said.count(b'"initialize"') == 1
    assert b"cancelled" not in said


@pytest.mark.parametrize(
    "answer", [{}, {"protocolVersion": 7}, {**INITIALIZED, "serverInfo": None}], ids=str
)
async def test_half_an_answer_to_initialize_is_none(answer: dict[str, Any]) -> None:
    def half(request: dict[str, Any]) -> dict[str, Any] | None:
        return answer if request["method"] == "initialize" else None

    with pytest.raises(ProtocolViolation, match="initialize: result"):
        async with in_session(half):
            pytest.fail("connected")


async def test_a_server_that_ends_at_initialize_is_lost() -> None:
    ours, theirs = trio.testing.memory_stream_pair()

    async def serve() -> None:
        await theirs.receive_some()
        await theirs.send_all(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}\n')
        await theirs.receive_some()
        await theirs.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with pytest.raises(ConnectionLost):
            async with connect(ours):
                pytest.fail("connected")


@pytest.mark.parametrize(("code", "error"), [(-32603, ServerError), (-32601, IncompatibleServer)])
async def test_a_server_that_refuses_both_is_incompatible_unless_it_has_failed(
    code: int, error: type[Exception]
) -> None:
    with pytest.raises(error, match="no thanks"):
        async with in_session(lambda _: Error(code, "no thanks")):
            pytest.fail("connected")


async def test_answers_with_wrong_ids_are_no_answers(caplog: pytest.LogCaptureFixture) -> None:
    def answer(request: dict[str, Any]) -> bytes | None:
        if request["method"] != "initialize":
            return None
        return b'{"jsonrpc":"2.0","id":"%d","result":{}}' % request["id"]

    with pytest.raises(IncompatibleServer, match="an answer to an unknown request"):
        async with in_session(answer, limits=Limits(connect=0.3)):
            pytest.fail("connected")


# Log messages -------------------------------------------------------------------------------------


async def test_the_log_level_is_set_once_and_messages_come() -> None:
    heard: list[LogMessage] = []

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        return {} if request["method"] == "logging/setLevel" else tools(request)

    options: dict[str, Any] = {"on_log": heard.append, "log_level": "notice"}
    async with in_session(answer, **options) as (client, script):
        await script.tell("notifications/message", level="error", data="x")
        await client.call_tool("x")
        assert heard == [LogMessage("error", "x")]
        assert client._connection.violations == 0
    (level,) = script.sent("logging/setLevel")
    assert level["params"]["level"] == "notice"


async def test_no_level_is_set_for_a_server_without_log_messages() -> None:
    answer = saying(capabilities={})
    async with in_session(answer, on_log=lambda _: None) as (client, script):
        await client.call_tool("x")
    assert script.sent("logging/setLevel") == []


async def test_a_server_that_refuses_a_level_is_used_all_the_same() -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any] | Error | None:
        return Error(-32602) if request["method"] == "logging/setLevel" else tools(request)

    async with in_session(answer, on_log=lambda _: None) as (client, script):
        await script.tell("notifications/message", level="error", data="x")
        await client.call_tool("x")


async def test_log_messages_that_nobody_asked_for_are_nothing_special() -> None:
    async with in_session(tools) as (client, script):
        await script.tell("notifications/message", level="error", data="x")
        await client.call_tool("x")
        assert client._connection.violations == 0


# Calls --------------------------------------------------------------------------------------------


async def test_a_cancelled_call_is_told_of() -> None:
    async with in_session(silent("tools/call")) as (client, script):
        with trio.move_on_after(0.05) as scope:
            await client.call_tool("x")
        assert scope.cancelled_caught
        await script.until(lambda: script.sent("notifications/cancelled"))
    (cancelled,) = script.sent("notifications/cancelled")
    assert cancelled["params"]["requestId"] == script.sent("tools/call")[0]["id"]


async def test_a_result_does_not_ask_for_input_in_these_revisions() -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "tools/call":
            return None
        return {"resultType": "input_required", "requestState": "x"}

    async with in_session(answer, on_elicit=lambda q: q.decline()) as (client, script):
        with pytest.raises(ProtocolViolation, match="tools/call"):
            await client.call_tool("x")
        assert len(script.sent("tools/call")) == 1


async def test_a_missing_resource_has_its_own_code() -> None:
    def answer(request: dict[str, Any]) -> Error | None:
        return Error(-32002, "not there") if request["method"] == "resources/read" else None

    async with in_session(answer) as (client, _):
        with pytest.raises(ServerError) as missing:
            await client.read_resource("x://y")
        assert missing.value.code == -32002


# Questions ----------------------------------------------------------------------------------------


async def ask_all(script: Any) -> None:
    await script.ask("a", "elicitation/create", message="who?", requestedSchema=FORM)
    message = {"role": "user", "content": {"type": "text", "text": "hi"}}
    await script.ask(0, "sampling/createMessage", messages=[message], maxTokens=5)
    await script.ask(-1, "roots/list")
    await script.ask("", "ping")


async def test_the_callbacks_answer_questions() -> None:
    def elicit(question: Elicitation) -> ElicitResult:
        assert (question.key, question.message, question.mode) == ("a", "who?", "form")
        return question.accept({"name": "Ada"})

    def sample(params: CreateMessageRequestParams) -> CreateMessageResult:
        assert params.max_tokens == 5
        return CreateMessageResult("assistant", TextContent("ho"), "m")

    options: dict[str, Any] = {"on_elicit": elicit, "on_sample": sample}
    async with in_session(tools, on_roots=[Root("file:///x")], **options) as (_, script):
        await ask_all(script)
        await script.until(lambda: len(script.answers()) == 4)
        capabilities = script.sent("initialize")[0]["params"]["capabilities"]
        assert capabilities == {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
    results = {answer["id"]: answer["result"] for answer in script.answers()}
    assert results == {
        "a": {"action": "accept", "content": {"name": "Ada"}},
        0: {"role": "assistant", "content": {"type": "text", "text": "ho"}, "model": "m"},
        -1: {"roots": [{"uri": "file:///x"}]},
        "": {},
    }


async def test_without_callbacks_all_but_ping_is_refused() -> None:
    async with in_session(tools) as (client, script):
        await ask_all(script)
        await script.ask(5, "tools/call", name="x")
        await script.until(lambda: len(script.answers()) == 5)
        assert (await client.call_tool("x")).text == "done"
    codes = {a["id"]: a.get("error", {}).get("code") for a in script.answers()}
    assert codes == {"a": -32601, 0: -32601, -1: -32601, "": None, 5: -32601}


@pytest.mark.parametrize(
    "params",
    [
        {"message": "x"},
        {"message": 7, "requestedSchema": FORM},
        {"message": "x", "requestedSchema": {"type": "string"}},
        {"mode": "url", "message": "x", "url": "https://x", "elicitationId": "1"},
        {"mode": "smell", "message": "x"},
    ],
    ids=str,
)
async def test_a_question_that_is_none_is_refused(params: dict[str, Any]) -> None:
    async with in_session(tools, on_elicit=lambda q: q.cancel()) as (_, script):
        await script.ask(1, "elicitation/create", **params)
        await script.until(script.answers)
        assert script.answers()[0]["error"]["code"] == -32602


async def test_a_callback_that_fails_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def elicit(question: Elicitation) -> ElicitResult:
        if question.message == "refuse":
            raise ProtocolError(-1, "the user does not want to")
        raise RuntimeError("secret")

    async with in_session(tools, on_elicit=elicit) as (client, script):
        await script.ask(1, "elicitation/create", message="fail", requestedSchema=FORM)
        await script.ask(2, "elicitation/create", message="refuse", requestedSchema=FORM)
        await script.until(lambda: len(script.answers()) == 2)
        assert (await client.call_tool("x")).text == "done"
    errors = {answer["id"]: answer["error"] for answer in script.answers()}
    assert errors[1]["code"] == -32603
    assert "secret" not in str(errors)
    assert errors[2] == {"code": -1, "message": "the user does not want to"}
    assert "secret" in caplog.text


class Waiting:
    """A callback that waits, and says what became of it."""

    def __init__(self) -> None:
        self.began = 0
        self.stopped = 0

    async def __call__(self, question: Elicitation) -> ElicitResult:
        self.began += 1
        try:
            await trio.sleep_forever()
        finally:
            self.stopped += 1
        raise AssertionError


async def test_a_question_that_the_server_cancels_stops_and_is_not_answered() -> None:
    waiting = Waiting()
    async with in_session(tools, on_elicit=waiting) as (_, script):
        await script.ask(1, "elicitation/create", message="x", requestedSchema=FORM)
        await script.until(lambda: waiting.began)
        others: list[Any] = ["1", 2, None, True, 1.0, [1], {}]
        for unknown in others:
            await script.tell("notifications/cancelled", requestId=unknown)
        await script.ask(2, "ping")
        await script.until(script.answers)
        assert waiting.stopped == 0
        await script.tell("notifications/cancelled", requestId=1)
        await script.until(lambda: waiting.stopped)
        await script.ask(1, "ping")  # the id is free again
        await script.until(lambda: len(script.answers()) == 2)
    assert [answer["id"] for answer in script.answers()] == [2, 1]


@pytest.mark.parametrize("how", ["scope", "timeout"])
async def test_a_question_ends_with_the_one_call_that_it_can_belong_to(how: str) -> None:
    waiting = Waiting()
    async with in_session(silent("tools/call"), on_elicit=waiting) as (client, script):

        async def call() -> None:
            with scope, contextlib.suppress(CallTimeout):
                await client.call_tool("x", max_timeout=0.1 if how == "timeout" else None)

        scope = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await script.until(lambda: script.sent("tools/call"))
            await script.ask(1, "elicitation/create", message="x", requestedSchema=FORM)
            await script.until(lambda: waiting.began)
            if how == "scope":
                assert waiting.stopped == 0
                scope.cancel()
        await script.until(lambda: waiting.stopped)
        await script.until(script.answers)
        assert script.sent("notifications/cancelled")
        (answer,) = script.answers()  # it may have been another's: the server is not left to wait
        assert answer["id"] == 1
        assert "was cancelled" in answer["error"]["message"]


async def test_a_question_that_may_belong_to_several_calls_ends_with_none() -> None:
    waiting = Waiting()
    async with in_session(silent("tools/call"), on_elicit=waiting) as (client, script):
        async with client.start_tool("x"), client.start_tool("y") as call:
            await script.until(lambda: len(script.sent("tools/call")) == 2)
            await script.ask(1, "elicitation/create", message="x", requestedSchema=FORM)
            await script.until(lambda: waiting.began)
            call.cancel()
            await call.ended()
            await script.ask(2, "ping")
            await script.until(script.answers)
        assert waiting.stopped == 0
        assert [answer["id"] for answer in script.answers()] == [2]


async def test_a_question_that_the_server_cancels_after_the_call_is_no_news() -> None:
    waiting = Waiting()
    async with in_session(silent("tools/call"), on_elicit=waiting) as (client, script):
        async with client.start_tool("x") as call:
            await script.until(lambda: script.sent("tools/call"))
            await script.ask(1, "elicitation/create", message="x", requestedSchema=FORM)
            await script.until(lambda: waiting.began)
            await script.tell("notifications/cancelled", requestId=1)
            await script.until(lambda: waiting.stopped)
            call.cancel()
            await call.ended()
        await script.ask(2, "ping")
        await script.until(script.answers)
        assert [answer["id"] for answer in script.answers()] == [2]


async def test_questions_stop_when_the_connection_ends() -> None:
    waiting = Waiting()
    async with in_session(tools, on_elicit=waiting) as (_, script):
        await script.ask(1, "elicitation/create", message="x", requestedSchema=FORM)
        await script.until(lambda: waiting.began)
        await script.end()
        await script.until(lambda: waiting.stopped)


async def test_questions_stop_when_the_client_is_closed() -> None:
    waiting = Waiting()
    async with in_session(tools, on_elicit=waiting) as (_, script):
        await script.ask(1, "elicitation/create", message="x", requestedSchema=FORM)
        await script.until(lambda: waiting.began)
    assert waiting.stopped == 1


async def test_too_many_questions_are_refused_and_a_second_of_an_id_ignored() -> None:
    waiting = Waiting()
    limits = Limits(session_questions=3)
    async with in_session(tools, on_elicit=waiting, limits=limits) as (client, script):
        for number in (1, 1, 2, 3, 4):
            await script.ask(number, "elicitation/create", message="x", requestedSchema=FORM)
        await script.until(script.answers)
        await client.call_tool("x")
        assert waiting.began == 3
        (refused,) = script.answers()
        assert (refused["id"], refused["error"]["code"]) == (4, -31004)
        assert "second request" in str(client._connection.last_violation)


async def test_a_flood_of_pings_that_nobody_reads_the_answers_of_ends_the_connection() -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    limit = 100_000

    async def serve() -> None:
        for request_id, answer in ((1, b'"error":{"code":0,"message":""}'), (2, b"")):
            await theirs.receive_some()
            result = answer or b'"result":%b' % msgspec.json.encode(INITIALIZED)
            await theirs.send_all(b'{"jsonrpc":"2.0","id":%d,%b}\n' % (request_id, result))
        ours.send_stream.send_all_hook = trio.sleep_forever
        with contextlib.suppress(trio.BrokenResourceError):  # the client has had enough
            for number in range(2000):
                await theirs.send_all(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        limits = Limits(bytes_per_connection=limit, exit_wait=0.1)
        async with connect(ours, limits=limits) as client:
            with pytest.raises(ConnectionLost, match="does not read the answers"):
                await client.call_tool("x", timeout=5)
        nursery.cancel_scope.cancel()


async def test_a_call_is_not_silent_while_the_user_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def elicit(question: Elicitation) -> ElicitResult:
        await trio.sleep(300)
        return question.decline()

    async with in_session(silent("tools/call"), on_elicit=elicit) as (client, script):
        began = trio.current_time()

        async def call() -> None:
            with pytest.raises(CallTimeout, match="timeout=60"):
                await client.call_tool("x", timeout=60, max_timeout=math.inf)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked()
            await script.ask(1, "elicitation/create", message="x", requestedSchema=FORM)
        assert trio.current_time() - began == pytest.approx(360, abs=1)


async def test_max_timeout_holds_while_the_user_is_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with in_session(silent("tools/call"), on_elicit=Waiting()) as (client, script):
        began = trio.current_time()
        await script.ask(1, "elicitation/create", message="x", requestedSchema=FORM)
        with pytest.raises(CallTimeout, match="max_timeout=90"):
            await client.call_tool("x", timeout=60, max_timeout=90)
        assert trio.current_time() - began <= 91


async def test_one_content_block_is_no_list_before_2025_11_25() -> None:
    def sample(params: CreateMessageRequestParams) -> CreateMessageResult:
        blocks = [TextContent(text) for text in params.system_prompt or ""]
        return CreateMessageResult("assistant", [*blocks], "m")

    answer = saying(protocolVersion="2025-06-18")
    async with in_session(answer, on_sample=sample) as (_, script):
        for number, prompt in enumerate(["a", "bb"]):
            params = {"messages": [], "maxTokens": 5, "systemPrompt": prompt}
            await script.ask(number, "sampling/createMessage", **params)
        await script.until(lambda: len(script.answers()) == 2)
    one, two = sorted(script.answers(), key=lambda answer: answer["id"])
    assert one["result"]["content"] == {"type": "text", "text": "a"}
    assert two["error"]["code"] == -32603


# Changes ------------------------------------------------------------------------------------------


def subscribing(request: dict[str, Any]) -> dict[str, Any] | Error | None:
    if request["method"] == "resources/subscribe" and "no" in request["params"]["uri"]:
        return Error(-32002)
    return {} if "subscribe" in request["method"] else tools(request)


async def test_changes_come_to_those_who_listen() -> None:
    async with in_session(subscribing) as (client, script):
        await script.tell("notifications/tools/list_changed")
        uris = ["x://a", "x://no", "x://b"]
        async with client.listen(tools=True, prompts=True, resources=uris) as changes:
            assert changes.agreed.tools_list_changed
            assert changes.agreed.prompts_list_changed is None  # not declared
            assert changes.agreed.resource_subscriptions == ["x://a", "x://b"]
            await script.tell("notifications/resources/updated", uri="x://a")
            await script.tell("notifications/prompts/list_changed")
            await script.tell("notifications/tools/list_changed")
            first, second = [await anext(changes), await anext(changes)]
            assert (first.kind, first.uri, second.kind) == ("resource", "x://a", "tools")
        await script.until(lambda: len(script.sent("resources/unsubscribe")) == 2)
        assert client._connection.violations == 0
        assert client._connection.calls == ()
    assert script.sent("subscriptions/listen") == []


async def test_two_who_listen_to_the_same_share_a_subscription() -> None:
    async with in_session(subscribing) as (client, script):
        async with client.listen(resources=["x://a"]) as one:
            async with client.listen(resources=["x://a", "x://b"]) as two:
                await script.tell("notifications/resources/updated", uri="x://b")
                await script.tell("notifications/resources/updated", uri="x://a")
                assert [(await anext(two)).uri, (await anext(two)).uri] == ["x://b", "x://a"]
                assert (await anext(one)).uri == "x://a"
            await script.until(lambda: script.sent("resources/unsubscribe"))
            await script.tell("notifications/resources/updated", uri="x://a/part")
            assert (await anext(one)).uri == "x://a/part"
            assert len(script.sent("resources/unsubscribe")) == 1
        await script.until(lambda: len(script.sent("resources/unsubscribe")) == 2)
    assert [m["params"]["uri"] for m in script.sent("resources/subscribe")] == ["x://a", "x://b"]


async def test_listening_to_nothing_that_is_declared_agrees_to_nothing() -> None:
    async with in_session(saying(capabilities={})) as (client, script):
        async with client.listen(tools=True, resources=["x://a"]) as changes:
            assert changes.agreed.tools_list_changed is None
            assert changes.agreed.resource_subscriptions is None
    assert script.sent("resources/subscribe") == []


async def test_listening_ends_with_the_connection() -> None:
    async with in_session(subscribing) as (client, script):
        async with client.listen(tools=True) as changes:
            await script.end()
            with pytest.raises(ConnectionLost):
                await anext(changes)


async def test_a_subscription_that_is_not_answered_ends_with_the_timeout() -> None:
    limits = Limits(connect=1)
    async with in_session(silent("resources/subscribe"), limits=limits) as (client, _):
        with pytest.raises(CallTimeout):
            async with client.listen(resources=["x://a"], timeout=0.1):
                pytest.fail("listening")


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":7}}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":9,"method":"ping","params":[]}',
        b"[]",
    ],
)
async def test_what_is_malformed_is_counted_and_hurts_nobody(line: bytes) -> None:
    async with in_session(subscribing) as (client, script):
        async with client.listen(resources=["x://a"]):
            await script.say(line)
            assert (await client.call_tool("x")).text == "done"
            assert client._connection.violations == 1


async def test_notifications_that_nobody_knows_are_ignored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with in_session(tools) as (client, script):
            await script.tell("notifications/elicitation/complete", elicitationId="1")
            await script.tell("notifications/tasks/status")
            await client.call_tool("x")
    assert caplog.text == ""
