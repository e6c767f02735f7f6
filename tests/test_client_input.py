"""What a server asks the client for: callbacks, rounds, and their end. Against a scripted server.

Specification: *Multi Round-Trip Requests*, "Client Requirements". Every line that the client sends
is held against the official schema on the way.
"""

from __future__ import annotations

import gc
import itertools
import json
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from tests.peers.raw import until
from tests.peers.scripted import Answer, Error, Script, scripted

from trio_mcp import (
    CallCancelled,
    CallTimeout,
    CancelSource,
    Client,
    ConnectionLost,
    CreateMessageRequestParams,
    CreateMessageResult,
    Elicitation,
    ElicitResult,
    Limits,
    ProtocolViolation,
    Root,
    ServerError,
    State,
    TextContent,
    connect,
)
from trio_mcp.runtime.models.base import META_CLIENT_CAPABILITIES
from trio_mcp.runtime.tracing import TracedRequest

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2}, "age": {"type": "integer"}},
    "required": ["name"],
}
DONE: dict[str, Any] = {
    "resultType": "complete",
    "content": [],
    "contents": [],
    "messages": [],
    "ttlMs": 0,
    "cacheScope": "private",
}


def form(schema: Any = FORM, **more: Any) -> dict[str, Any]:
    params = {"message": "Who?", "requestedSchema": schema, **more}
    return {"method": "elicitation/create", "params": params}


URL = {
    "method": "elicitation/create",
    "params": {"mode": "url", "message": "Pay", "url": "https://pay.example/é?x=1"},
}
SAMPLE: dict[str, Any] = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Capital?"}}],
        "maxTokens": 10,
    },
}
ROOTS = {"method": "roots/list"}


def asks(state: str | None = None, **requests: dict[str, Any]) -> dict[str, Any]:
    """A result that asks for input."""
    result: dict[str, Any] = {"resultType": "input_required"}
    if requests:
        result["inputRequests"] = requests
    if state is not None:
        result["requestState"] = state
    return result


def rounds(*results: Any, methods: Sequence[str] = ("tools/call",)) -> Answer:
    """One result after the other; then the end."""
    left = iter(results)
    return lambda request: next(left, DONE) if request["method"] in methods else None


def params_of(script: Script, method: str = "tools/call") -> list[dict[str, Any]]:
    """What the client sent with each round, but for its ``_meta``."""
    sent = [dict(request["params"]) for request in script.sent(method)]
    for params in sent:
        del params["_meta"]
    return sent


def accept(question: Elicitation) -> ElicitResult:
    return question.accept({"name": "Ada"} if question.mode == "form" else None)


async def say_it(params: CreateMessageRequestParams) -> CreateMessageResult:
    await trio.sleep(1)
    return CreateMessageResult("assistant", TextContent("Paris"), "model-1", "endTurn")


# One round ----------------------------------------------------------------------------------------

CALLS: dict[str, tuple[Callable[[Client], Any], dict[str, Any]]] = {
    "tools/call": (
        lambda client: client.call_tool("order", {"title": "Dune"}),
        {"name": "order", "arguments": {"title": "Dune"}},
    ),
    "prompts/get": (
        lambda client: client.get_prompt("order", {"title": "Dune"}),
        {"name": "order", "arguments": {"title": "Dune"}},
    ),
    "resources/read": (lambda client: client.read_resource("shop://é"), {"uri": "shop://é"}),
}


@pytest.mark.parametrize("state", ['opaque "é\n=', ""])
@pytest.mark.parametrize("method", CALLS)
async def test_a_request_is_answered_and_the_call_made_again(
    method: str, state: str, autojump_clock: trio.testing.MockClock
) -> None:
    call, params = CALLS[method]
    asked: list[Elicitation] = []

    async def on_elicit(question: Elicitation) -> ElicitResult:
        asked.append(question)
        await trio.sleep(500)  # a user takes longer than a silent server may
        return question.accept({"name": "Ada", "age": 36})

    answer = rounds(asks(state, who=form()), methods=[method])
    async with scripted(answer, on_elicit=on_elicit) as (client, script):
        result = await call(client)
        assert result.result_type == "complete"
        (question,) = asked
        assert (question.key, question.message, question.mode) == ("who", "Who?", "form")
        assert (question.schema, question.url) == (FORM, None)
        assert params_of(script, method) == [
            params,
            {
                **params,
                "inputResponses": {
                    "who": {"action": "accept", "content": {"name": "Ada", "age": 36}}
                },
                "requestState": state,
            },
        ]
        first, second = script.sent(method)
        assert first["id"] != second["id"]
        token = "progressToken"
        assert second["params"]["_meta"][token] == second["id"]
        assert {**first["params"]["_meta"], token: 0} == {**second["params"]["_meta"], token: 0}
        assert [record.state for record in client.journal][-2:] == [State.COMPLETED] * 2


async def test_all_kinds_are_asked_at_once(autojump_clock: trio.testing.MockClock) -> None:
    running: list[str] = []

    async def on_elicit(question: Elicitation) -> ElicitResult:
        running.append(question.key)
        await trio.sleep(1)
        return accept(question)

    async def on_roots() -> list[Root]:
        running.append("r")
        await trio.sleep(1)
        return [Root("file:///books", "Books")]

    answer = rounds(asks(a=form(mode="form"), b=URL, s=SAMPLE, r=ROOTS))
    async with scripted(
        answer,
        on_elicit=on_elicit,
        elicit_modes=("form", "url"),
        on_sample=say_it,
        on_roots=on_roots,
    ) as (client, script):
        start = trio.current_time()
        await client.call_tool("order")
        assert trio.current_time() - start == pytest.approx(1)
        assert sorted(running) == ["a", "b", "r"]
        _, again = params_of(script)
        assert again["inputResponses"] == {
            "a": {"action": "accept", "content": {"name": "Ada"}},
            "b": {"action": "accept"},
            "s": {
                "role": "assistant",
                "content": {"type": "text", "text": "Paris"},
                "model": "model-1",
                "stopReason": "endTurn",
            },
            "r": {"roots": [{"uri": "file:///books", "name": "Books"}]},
        }
        assert "requestState" not in again
        assert script.sent("tools/call")[0]["params"]["_meta"][META_CLIENT_CAPABILITIES] == {
            "elicitation": {"form": {}, "url": {}},
            "sampling": {},
            "roots": {},
        }


@pytest.mark.parametrize(
    ("options", "capabilities"),
    [
        ({"on_elicit": accept}, {"elicitation": {"form": {}}}),
        ({"on_elicit": accept, "elicit_modes": ["url"]}, {"elicitation": {"url": {}}}),
        ({"on_sample": say_it, "sample_tools": True}, {"sampling": {"tools": {}}}),
        ({"on_roots": []}, {"roots": {}}),
    ],
)
async def test_what_is_declared_is_what_there_is_a_callback_for(
    options: dict[str, Any],
    capabilities: dict[str, Any],
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(rounds(), **options) as (client, script):
        await client.discover()
        for request in script.sent("server/discover"):
            assert request["params"]["_meta"][META_CLIENT_CAPABILITIES] == capabilities


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        (lambda question: question.decline(), {"action": "decline"}),
        (lambda question: question.cancel(), {"action": "cancel"}),
        (lambda _: ElicitResult("accept", {"name": "Ada"}), None),
    ],
)
async def test_the_user_may_refuse(
    answer: Any, sent: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted(rounds(asks(who=form())), on_elicit=answer) as (client, script):
        await client.call_tool("order")
        expected = sent or {"action": "accept", "content": {"name": "Ada"}}
        assert params_of(script)[1]["inputResponses"] == {"who": expected}


# Several rounds -----------------------------------------------------------------------------------


async def test_states_and_answers_are_of_one_round_and_one_call_alone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    results = iter([asks("1", a=form()), asks(b=ROOTS), asks("3"), asks(c=form()), DONE])

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "tools/call":
            return None
        return next(results) if request["params"]["name"] == "order" else DONE

    async def on_elicit(question: Elicitation) -> ElicitResult:
        await client.call_tool("other")  # meanwhile
        return accept(question)

    async with scripted(answer, on_elicit=on_elicit, on_roots=[]) as (client, script):
        await client.call_tool("order")
        more = [
            {key: params[key] for key in params if key not in ("name", "arguments")}
            for params in params_of(script)
            if params["name"] == "order"
        ]
        given = {"action": "accept", "content": {"name": "Ada"}}
        assert more == [
            {},
            {"inputResponses": {"a": given}, "requestState": "1"},
            {"inputResponses": {"b": {"roots": []}}},
            {"requestState": "3"},
            {"inputResponses": {"c": given}},
        ]
        others = [params for params in params_of(script) if params["name"] == "other"]
        assert others == [{"name": "other", "arguments": {}}] * 2


async def test_what_the_application_does_to_its_arguments_does_not_matter(
    autojump_clock: trio.testing.MockClock,
) -> None:
    arguments: dict[str, Any] = {"titles": ["Dune", 2**70, 0.1, None]}

    def on_elicit(question: Elicitation) -> ElicitResult:
        arguments["titles"].clear()
        return accept(question)

    async with scripted(rounds(asks(a=form())), on_elicit=on_elicit) as (client, script):
        await client.call_tool("order", arguments)
        first, second = params_of(script)
        assert first["arguments"] == second["arguments"] == {"titles": ["Dune", 2**70, 0.1, None]}


async def test_rounds_have_a_limit(autojump_clock: trio.testing.MockClock) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        return asks("again", r=ROOTS) if request["method"] == "tools/call" else None

    limits = Limits(input_rounds=3)
    async with scripted(answer, on_roots=[], limits=limits) as (client, script):
        with pytest.raises(ProtocolViolation, match="input_rounds=3"):
            await client.call_tool("order")
        assert len(script.sent("tools/call")) == 1 + 3
        assert client._connection.calls == ()


async def test_a_server_that_only_wants_to_be_asked_again_is_asked_less_and_less_eagerly(
    autojump_clock: trio.testing.MockClock,
) -> None:
    times: list[float] = []

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "tools/call":
            return None
        times.append(trio.current_time())
        return asks("wait") if len(times) < 5 else DONE

    async with scripted(answer) as (client, _):
        await client.call_tool("order")
        pauses = [after - before for before, after in itertools.pairwise(times)]
        assert pauses == pytest.approx([0, 0.1, 0.2, 0.3])


# Requests that nobody may make --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "options", "words"),
    [
        (asks(r=ROOTS), {}, "roots/list.*no capability"),
        (asks(a=form()), {"on_roots": []}, "elicitation/create.*form.*no capability"),
        (asks(a=URL), {"on_elicit": accept}, "url.*no capability"),
        (asks(a=form()), {"on_elicit": accept, "elicit_modes": "url"}, "form.*no capability"),
        (asks(s=SAMPLE), {"on_elicit": accept}, "sampling/createMessage.*no capability"),
        (
            asks(s={**SAMPLE, "params": {**SAMPLE["params"], "tools": []}}),
            {"on_sample": say_it},
            "with tools.*no capability",
        ),
        (asks(x={"method": "shell/run"}), {"on_elicit": accept}, "tools/call"),
        (asks(x={"method": "elicitation/create"}), {"on_elicit": accept}, "tools/call"),
        (asks(), {"on_elicit": accept}, "not for which"),
        ({**asks(), "inputRequests": {}}, {"on_elicit": accept}, "not for which"),
        ({**asks(), "requestState": 7}, {"on_elicit": accept}, "requestState"),
        (asks(a=form({"type": "string"})), {"on_elicit": accept}, "invalid schema"),
        (asks(a=form({**FORM, "required": 7})), {"on_elicit": accept}, "invalid schema"),
        (
            asks(None, **{str(number): ROOTS for number in range(101)}),
            {"on_roots": []},
            "input_requests=100",
        ),
    ],
)
async def test_a_request_for_what_was_not_declared_is_a_violation(
    result: dict[str, Any],
    options: dict[str, Any],
    words: str,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(rounds(result), **options) as (client, script):
        with pytest.raises(ProtocolViolation, match=words):
            await client.call_tool("order")
        assert len(script.sent("tools/call")) == 1
        assert client._connection.calls == ()
        assert list(client.journal)[-1].state is State.FAILED


async def test_other_requests_are_never_answered_with_questions(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answer = rounds(asks(r=ROOTS), methods=["completion/complete"])
    async with scripted(answer, on_roots=[]) as (client, script):
        with pytest.raises(ProtocolViolation, match="completion/complete"):
            await client.complete(prompt="a", argument="b", value="")
        assert len(script.sent("completion/complete")) == 1


# Answers that are none ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "'name'"),
        (None, "'name'"),
        ({"name": 7}, "name.*string"),
        ({"name": "A"}, "name.*2"),
        ({"name": "Ada", "age": 3.5}, "age.*integer"),
        ({"name": "Ada", "more": float("nan")}, "more"),
    ],
    ids=str,
)
async def test_content_that_does_not_fit_is_the_applications_error(
    content: Any, words: str, autojump_clock: trio.testing.MockClock
) -> None:
    for answer in (
        lambda question: question.accept(content),
        lambda question: ElicitResult("accept", content),
    ):
        async with scripted(rounds(asks(who=form())), on_elicit=answer) as (client, script):
            with pytest.raises(ValueError, match=f"who.*{words}"):
                await client.call_tool("order")
            assert len(script.sent("tools/call")) == 1
            assert client._connection.calls == ()


CHOICES = {
    "type": "object",
    "properties": {
        "one": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]},
        "many": {"type": "array", "items": {"anyOf": [{"const": "r"}, {"const": "g"}]}},
        "plain": {"type": "array", "items": {"type": "string", "enum": ["x"]}, "maxItems": 1},
        "mail": {"type": "string", "format": "email"},
    },
}


@pytest.mark.parametrize(
    ("content", "fits"),
    [
        ({"one": "r", "many": ["g", "r"], "plain": ["x"], "mail": "a@b.example"}, True),
        ({"one": "b"}, False),
        ({"many": ["b"]}, False),
        ({"plain": ["y"]}, False),
        ({"plain": ["x", "x"]}, False),
        ({"mail": "nobody"}, False),
    ],
    ids=str,
)
async def test_choices_and_formats_are_checked(
    content: Any, fits: bool, autojump_clock: trio.testing.MockClock
) -> None:
    answer = rounds(asks(who=form(CHOICES)))
    async with scripted(answer, on_elicit=lambda q: q.accept(content)) as (client, _):
        if fits:
            await client.call_tool("order")
        else:
            with pytest.raises(ValueError, match="does not fit"):
                await client.call_tool("order")


@pytest.mark.parametrize(
    ("request_", "options"),
    [
        (form(), {"on_elicit": lambda _: {"action": "accept"}}),
        (form(), {"on_elicit": lambda _: None}),
        (SAMPLE, {"on_sample": lambda _: "Paris"}),
        (ROOTS, {"on_roots": lambda: "file:///"}),
        (ROOTS, {"on_roots": lambda: ["file:///"]}),
    ],
)
async def test_what_is_no_answer_is_the_applications_error(
    request_: dict[str, Any], options: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted(rounds(asks(who=request_)), **options) as (client, _):
        with pytest.raises(TypeError):
            await client.call_tool("order")


def test_options_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="file://"):
        connect(["server"], on_roots=[Root("http://books")])
    with pytest.raises(TypeError, match="Root"):
        connect(["server"], on_roots=["file:///"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="elicit_modes"):
        connect(["server"], on_elicit=accept, elicit_modes=())


async def test_a_page_has_no_content(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(
        rounds(asks(pay=URL)), on_elicit=lambda q: q.accept({"card": "1"}), elicit_modes="url"
    ) as (client, _):
        with pytest.raises(ValueError, match="content"):
            await client.call_tool("order")


# Ends ---------------------------------------------------------------------------------------------


async def test_what_a_callback_raises_comes_out_and_stops_the_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    stopped: list[str] = []

    async def on_elicit(question: Elicitation) -> ElicitResult:
        if question.key == "bad":
            await trio.sleep(1)
            raise LookupError("no user")
        try:
            await trio.sleep(1000)
        finally:
            stopped.append(question.key)
        raise AssertionError

    async with scripted(rounds(asks(bad=form(), slow=form())), on_elicit=on_elicit) as (
        client,
        script,
    ):
        with pytest.raises(LookupError, match="no user"):
            await client.call_tool("order")
        assert stopped == ["slow"]
        assert len(script.sent("tools/call")) == 1
        assert client._connection.calls == ()
        assert list(client.journal)[-1].state is State.CANCELLED


async def test_a_group_of_the_applications_own_comes_out_as_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def on_elicit(question: Elicitation) -> ElicitResult:
        raise ExceptionGroup("mine", [LookupError("a")])

    async with scripted(rounds(asks(a=form(), b=form())), on_elicit=on_elicit) as (client, _):
        with pytest.raises(ExceptionGroup, match="mine"):
            await client.call_tool("order")


async def slow_user(question: Elicitation) -> ElicitResult:
    await trio.sleep(1000)
    return accept(question)


async def test_the_callers_cancellation_reaches_the_callbacks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(rounds(asks(a=form(), b=form())), on_elicit=slow_user) as (client, script):
        start = trio.current_time()
        with trio.move_on_after(5) as scope:
            await client.call_tool("order")
        assert scope.cancelled_caught
        assert trio.current_time() - start == pytest.approx(5)
        record = list(client.journal)[-1]
        assert (record.state, record.started_at) == (State.CANCELLED, None)
        assert client._connection.calls == ()
        await client.discover()
        assert script.cancelled() == []  # the first round was over, the second never went out
        assert len(script.sent("tools/call")) == 1


async def test_max_timeout_spans_all_rounds_and_the_callbacks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def on_elicit(question: Elicitation) -> ElicitResult:
        await trio.sleep(40)
        return accept(question)

    answer = rounds(*[asks(a=form())] * 9)
    async with scripted(answer, on_elicit=on_elicit) as (client, script):
        start = trio.current_time()
        with pytest.raises(CallTimeout) as raised:
            await client.call_tool("order", timeout=1, max_timeout=100)
        assert trio.current_time() - start == pytest.approx(100)
        error = raised.value
        assert (error.limit, error.outcome) == ("max_timeout", "unknown")
        assert error.elapsed == pytest.approx(100)
        assert len(script.sent("tools/call")) == 3
        assert list(client.journal)[-1].cause is not None


async def test_the_idle_timeout_is_of_each_round(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(rounds(asks(a=form()), None), on_elicit=slow_user) as (client, script):
        start = trio.current_time()
        with pytest.raises(CallTimeout) as raised:
            await client.call_tool("order", timeout=7)
        assert raised.value.limit == "timeout"
        assert trio.current_time() - start == pytest.approx(1007)
        await until(script.cancelled)
        assert script.cancelled() == [script.sent("tools/call")[1]["id"]]


async def test_the_end_of_the_connection_ends_the_callbacks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(rounds(asks(a=form())), on_elicit=slow_user) as (client, script):
        start = trio.current_time()

        async def leave() -> None:
            await trio.sleep(3)
            await script.end()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
            with pytest.raises(ConnectionLost) as raised:
                await client.call_tool("order")
        assert raised.value.sent is True  # the first round was
        assert trio.current_time() - start == pytest.approx(3)


async def test_an_error_in_a_later_round_is_the_calls(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answer = rounds(asks("forged", r=ROOTS), Error(-32602, "invalid state"))
    async with scripted(answer, on_roots=[]) as (client, _):
        with pytest.raises(ServerError, match="invalid state"):
            await client.call_tool("order")


# A handle -----------------------------------------------------------------------------------------


async def test_a_handle_tells_the_truth_across_rounds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    states: list[State] = []

    def on_elicit(question: Elicitation) -> ElicitResult:
        states.append(call.state)
        return accept(question)

    async with scripted(rounds(asks(a=form())), on_elicit=on_elicit) as (client, script):
        async with client.start_tool("order") as call:
            await until(lambda: len(client._connection.journal) == 2)
            await trio.sleep(1)  # nobody waits for it, so nobody answers
            assert call.state is State.RUNNING
            assert call.record is None
            assert len(script.sent("tools/call")) == 1
            await call.result()
            assert states == [State.RUNNING]
            assert call.state is State.COMPLETED  # type: ignore[comparison-overlap]
            assert (await call.ended()).request_id == script.sent("tools/call")[1]["id"]


async def test_a_handle_that_is_lost_before_it_answers_was_sent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(rounds(asks(a=form())), on_elicit=accept) as (client, script):
        async with client.start_tool("order") as call:
            await until(lambda: len(client._connection.journal) == 2)
            await script.end()
            assert (await call.ended()).state is State.FAILED
            with pytest.raises(ConnectionLost) as raised:
                await call.result()
            assert raised.value.sent is True


@pytest.mark.parametrize("early", [DONE, asks(a=form())], ids=["result", "question"])
async def test_a_round_that_has_not_gone_out_cannot_be_answered(
    early: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    async def on_elicit(question: Elicitation) -> ElicitResult:
        await script.say({"jsonrpc": "2.0", "id": 3, "result": early})
        params = {"progressToken": 3, "progress": 1}
        await script.say({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        await trio.sleep(1)
        return accept(question)

    async with scripted(rounds(asks(a=form())), on_elicit=on_elicit) as (client, script):
        async with client.start_tool("order") as call:
            await call.result()
            assert call.last_progress is None
        assert [request["id"] for request in script.sent("tools/call")] == [2, 3]
        assert client._connection.violations == 1


async def test_progress_goes_on_over_all_rounds(autojump_clock: trio.testing.MockClock) -> None:
    left = iter([asks(a=form()), DONE])

    def answer(request: dict[str, Any]) -> bytes | None:
        if request["method"] != "tools/call":
            return None
        params = {"progressToken": request["params"]["_meta"]["progressToken"], "progress": 1}
        lines = [
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": params},
            {"jsonrpc": "2.0", "id": request["id"], "result": next(left)},
        ]
        return b"\n".join(json.dumps(line).encode() for line in lines)

    def on_elicit(question: Elicitation) -> ElicitResult:
        assert call.last_progress is not None
        return accept(question)

    async with scripted(answer, on_elicit=on_elicit) as (client, _):
        async with client.start_tool("order") as call:
            assert len([update async for update in call.progress]) == 2
            assert (await call.result()).content == []


async def test_two_tasks_that_wait_ask_once(autojump_clock: trio.testing.MockClock) -> None:
    asked: list[str] = []

    async def on_elicit(question: Elicitation) -> ElicitResult:
        asked.append(question.key)
        return await slow_user(question)

    async with scripted(rounds(asks(a=form())), on_elicit=on_elicit) as (client, _):
        async with client.start_tool("order") as call, trio.open_nursery() as nursery:
            nursery.start_soon(call.result)
            async for _ in call.progress:
                pass
            await call.result()
        assert asked == ["a"]


async def test_cancel_reaches_the_callbacks_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(rounds(asks(a=form(), b=form())), on_elicit=slow_user) as (client, script):
        async with client.start_tool("order") as call:
            start = trio.current_time()

            async def stop() -> None:
                await trio.sleep(2)
                call.cancel("changed my mind")
                assert call.state is State.CANCELLED

            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop)
                with pytest.raises(CallCancelled, match="changed my mind"):
                    await call.result()
            assert trio.current_time() - start == pytest.approx(2)
            assert call.cause is not None
            assert call.cause.source is CancelSource.CALLER
            assert (await call.ended()).state is State.CANCELLED
        await client.discover()
        assert script.cancelled() == []
        assert len(script.sent("tools/call")) == 1


async def test_a_handle_that_is_left_before_it_answers_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(rounds(asks(a=form())), on_elicit=accept) as (client, script):
        async with client.start_tool("order") as call:
            await until(lambda: len(client._connection.journal) == 2)
        assert call.state is State.CANCELLED
        await client.discover()
        assert len(script.sent("tools/call")) == 1
        assert client._connection.calls == ()


async def test_what_is_over_is_no_work_for_the_garbage_collector(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(rounds(asks(a=form())), on_elicit=accept) as (client, _):
        gc.collect()
        gc.disable()
        try:
            async with client.start_tool("order") as call:
                await call.result()
            pending = weakref.ref(call._pending)
            del call
            assert pending() is None
        finally:
            gc.enable()


class OneSpan:
    """A tracing hook that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ends: list[Any] = []
        self.trace_id = "0af7651916cd43dd8448eb211c80319c"

    def exchange(self, request: TracedRequest) -> None:
        return None

    def call(self, request: TracedRequest) -> OneSpan | None:
        if request.method != "tools/call":
            return None
        self.calls.append(request.method)
        return self

    def meta(self) -> dict[str, str]:
        return {"traceparent": f"00-{self.trace_id}-b7ad6b7169203331-01"}

    def end(self, record: Any, failure: Any) -> None:
        self.ends.append(record.request_id)


async def test_a_call_has_one_span_over_all_its_rounds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tracing = OneSpan()
    async with scripted(rounds(asks(a=form())), on_elicit=accept, tracing=tracing) as (
        client,
        script,
    ):
        await client.call_tool("order")
        first, second = script.sent("tools/call")
        assert (tracing.calls, tracing.ends) == (["tools/call"], [second["id"]])
        parents = [request["params"]["_meta"]["traceparent"] for request in (first, second)]
        assert parents == [tracing.meta()["traceparent"]] * 2
        records = [record.trace_id for record in client.journal]
        assert records[-2:] == [tracing.trace_id] * 2
