"""Calls that are made again: only those that have not run, or that change nothing."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from tests.peers.raw import until
from tests.peers.scripted import DISCOVERED, Error, scripted
from tests.peers.scripted import Script as ScriptedServer
from tests.test_client_input import OneSpan
from tests.test_http_client import Post, drop
from tests.test_http_client import scripted as scripted_http
from tests.test_http_client import serving as serving_http
from tests.test_restart import world

from trio_mcp import (
    AuthorizationRequired,
    CallCancelled,
    CallTimeout,
    Client,
    ConnectionLost,
    Context,
    ElicitResult,
    InternalError,
    Limits,
    Overloaded,
    ProgressUpdate,
    Restart,
    Retry,
    Server,
    ServerError,
    ShuttingDown,
    State,
    connect,
    safe_to_repeat,
)
from trio_mcp.client.calls import cancel_calls
from trio_mcp.runtime.call import Call
from trio_mcp.runtime.journal import Journal
from trio_mcp.runtime.models.base import META_IDEMPOTENCY_KEY, META_TIMEOUT
from trio_mcp.testing import Answer, Body, Break, Fault, HalfClose, StubRequest, http_stub

RESULT: dict[str, Any] = {"resultType": "complete", "content": []}
COMMON: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
CALM = Retry(wait_jitter=0)


def refusal(code: int, wait: float | None = 1000) -> bytes:
    data = "" if wait is None else f',"data":{{"retryAfterMs":{wait}}}'
    return f'{{"code":{code},"message":"later"{data}}}'.encode()


def refused_post(post: Post, wait: float) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (post.body["id"], refusal(-31004, wait))


class Script:
    """Answers calls in order: an error as JSON, a result, an ``Error``; and when each call came."""

    def __init__(self, answers: Iterable[Any]) -> None:
        self.answers = iter(answers)
        self.at: list[float] = []
        self.requests: list[dict[str, Any]] = []

    def __call__(self, request: dict[str, Any]) -> Any:
        if request["method"] == "server/discover":
            return DISCOVERED
        self.at.append(trio.current_time())
        self.requests.append(request)
        answer = next(self.answers)
        if isinstance(answer, bytes):
            return b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (request["id"], answer)
        return answer

    @property
    def pauses(self) -> list[float]:
        return [round(b - a, 3) for a, b in zip(self.at, self.at[1:], strict=False)]


@pytest.mark.parametrize("code", [-31002, -31004])
async def test_what_was_refused_is_made_again_when_the_server_says(
    code: int, autojump_clock: trio.testing.MockClock
) -> None:
    script = Script([refusal(code, 1500), refusal(code, 10), RESULT])
    async with scripted(script, retry=CALM) as (client, _):
        await client.call_tool("x", {"a": 1})
        assert script.pauses == [1.5, 0.2]
        ids = [request.pop("id") for request in script.requests]
        assert len({*ids}) == 3
        for request in script.requests:
            assert request["params"]["_meta"].pop("progressToken") in ids
        assert script.requests[0] == script.requests[1] == script.requests[2]
        records = [*client.journal][1:]
        assert [record.attempt for record in records] == [1, 2, 3]
        assert [record.state for record in records] == [
            State.FAILED,
            State.FAILED,
            State.COMPLETED,
        ]
        assert "attempt 3" in records[2].describe()


@pytest.mark.parametrize(
    "answer", [refusal(-31002, None), refusal(-31004, None), Error(-32603), Error(-32602)]
)
async def test_a_tool_that_may_have_run_is_never_made_again(
    answer: Any, autojump_clock: trio.testing.MockClock
) -> None:
    script = Script([answer, RESULT])
    async with scripted(script, retry=CALM) as (client, _):
        with pytest.raises(ServerError):
            await client.call_tool("x")
        assert len(script.requests) == 1


async def test_without_a_policy_nothing_is_made_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = Script([refusal(-31004)])
    async with scripted(script) as (client, _):
        with pytest.raises(Overloaded) as refused:
            await client.call_tool("x")
        assert refused.value.retry_after == 1


async def test_a_call_may_have_a_policy_of_its_own(autojump_clock: trio.testing.MockClock) -> None:
    script = Script([refusal(-31004), RESULT, refusal(-31004), RESULT])
    async with scripted(script, retry=CALM) as (client, _):
        await client.call_tool("x")
        with pytest.raises(Overloaded):
            await client.call_tool("x", retry=Retry(attempts=1))
    script = Script([refusal(-31004), RESULT])
    async with scripted(script) as (client, _):
        await client.call_tool("x", retry=CALM)


async def test_the_last_attempts_error_comes_out(autojump_clock: trio.testing.MockClock) -> None:
    script = Script([refusal(-31004, 0), refusal(-31004, 0), refusal(-31002, 0)])
    async with scripted(script, retry=CALM) as (client, _):
        with pytest.raises(ShuttingDown) as refused:
            await client.call_tool("x")
        assert refused.value.__notes__ == ["This was attempt 3"]
        assert script.pauses == [0.1, 0.2]


@pytest.mark.parametrize(
    ("retry", "options"),
    [
        (Retry(wait_jitter=0, wait_max=20), {"max_timeout": 10}),
        (Retry(wait_jitter=0, wait_max=20, timeout=10), {}),
        (Retry(wait_jitter=0, wait_max=9), {}),
    ],
    ids=["max_timeout", "timeout", "wait_max"],
)
async def test_a_pause_that_is_too_long_is_not_waited_for(
    retry: Retry, options: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    script = Script([refusal(-31004, 4000), refusal(-31004, 10_000)])
    async with scripted(script, retry=retry) as (client, _):
        began = trio.current_time()
        with pytest.raises(Overloaded) as refused:
            await client.call_tool("x", **options)
        assert refused.value.retry_after == 10
        assert trio.current_time() - began == pytest.approx(4)


async def test_all_attempts_have_one_total_time(autojump_clock: trio.testing.MockClock) -> None:
    script = Script([refusal(-31004, 4000), None])
    async with scripted(script, retry=CALM) as (client, _):
        began = trio.current_time()
        with pytest.raises(CallTimeout, match="max_timeout=10") as late:
            await client.call_tool("x", max_timeout=10)
        assert trio.current_time() - began == pytest.approx(10)
        assert late.value.elapsed == pytest.approx(10)


async def test_a_timeout_is_the_end_whatever_the_policy(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = Script([None])
    async with scripted(script, retry=CALM) as (client, _):
        with pytest.raises(CallTimeout, match="timeout=3"):
            await client.read_resource("a://b", timeout=3)
        assert len(script.requests) == 1


async def test_a_pause_can_be_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    script = Script([refusal(-31004, 4000)])
    async with scripted(script, retry=CALM) as (client, _):
        with trio.move_on_after(1) as scope:
            await client.call_tool("x")
        assert scope.cancelled_caught
        assert client.calls() == ()


async def test_a_lost_channel_is_not_tried_again(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(Script([None]), retry=CALM) as (client, script):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(script.end)
            began = trio.current_time()
            with pytest.raises(ConnectionLost):
                await client.read_resource("a://b")
        with pytest.raises(ConnectionLost):
            await client.call_tool("x")
        assert trio.current_time() == began


async def test_a_call_that_was_asked_for_input_is_not_made_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its first round has run, and the user was asked."""
    form = {"type": "object", "properties": {"a": {"type": "string"}}}
    ask = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": form}}
    asks = {"resultType": "input_required", "inputRequests": {"q": ask}}
    script = Script([asks, refusal(-31004), asks, refusal(-31004)])
    options: dict[str, Any] = {"on_elicit": lambda asked: ElicitResult("decline")}
    async with scripted(script, retry=CALM, **options) as (client, _):
        with pytest.raises(Overloaded) as refused:
            await client.call_tool("x")
        assert not refused.value.refused
        assert safe_to_repeat(refused.value) is False
        with pytest.raises(Overloaded):
            await client.read_resource("a://b")
        assert len(script.requests) == 4


# The pause is a part of the call ------------------------------------------------------------------


async def pausing(client: Client, outcome: list[BaseException]) -> None:
    """A call that pauses for 4 seconds after its first attempt; what it raises goes out."""
    try:
        await client.call_tool("x")
    except Exception as error:
        outcome.append(error)


@asynccontextmanager
async def in_its_pause(
    answers: Iterable[Any] = (refusal(-31004, 4000), RESULT), **options: Any
) -> AsyncGenerator[tuple[Client, ScriptedServer, list[BaseException]], None]:
    """Enters when a call pauses. What is done ends it at this very moment."""
    outcome: list[BaseException] = []
    async with scripted(Script(answers), **{"retry": CALM, **options}) as (client, script):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pausing, client, outcome)
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            yield client, script, outcome
            await trio.testing.wait_all_tasks_blocked()
            assert trio.current_time() == began
        assert client.calls() == ()


async def test_a_call_in_its_pause_is_in_flight(autojump_clock: trio.testing.MockClock) -> None:
    script = Script([refusal(-31004, 4000), RESULT])
    async with scripted(script, retry=CALM) as (client, _), trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "x")
        await trio.sleep(3)
        [paused] = client.calls()
        assert (paused.method, paused.target, paused.state) == ("tools/call", "x", State.RUNNING)
        assert (paused.attempt, paused.sent) == (2, False)
        [record] = [record for record in client.journal if record.method == "tools/call"]
        assert (record.key, record.attempt) == (paused.first_key, 1)


async def test_who_watches_sees_that_attempts_are_one_call(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = Script([refusal(-31004), refusal(-31004), RESULT])
    async with scripted(script, retry=CALM) as (client, _):
        with client.watch_calls() as changes:
            await client.call_tool("x")
            told = [*changes._waiting]
    assert [(status.attempt, status.state.name) for status in told] == [
        (1, "RUNNING"),
        (2, "RUNNING"),  # before the first one has failed: the call is never over in between
        (1, "FAILED"),
        (3, "RUNNING"),
        (2, "FAILED"),
        (3, "COMPLETED"),
    ]
    assert len({status.first_key for status in told}) == 1
    assert len({status.key for status in told}) == 3


async def test_cancelling_all_calls_ends_a_pause_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with in_its_pause() as (client, script, outcome):
        [cancelled] = cancel_calls(client._connection, "stop")
        await trio.testing.wait_all_tasks_blocked()
        assert (type(outcome[0]), str(outcome[0])) == (
            CallCancelled,
            "tools/call x was cancelled: stop",
        )
        assert script.cancelled() == []  # the server has never heard of this attempt
        record = cancelled.record
        assert record is not None
        assert (record.state, record.attempt, record.started_at) == (State.CANCELLED, 2, None)


@pytest.mark.parametrize("how", ["closed", "ended", "aborted"])
async def test_the_end_of_the_connection_ends_a_pause_at_once(
    how: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with in_its_pause() as (client, script, outcome):
        if how == "closed":
            await client._connection.close()
        elif how == "ended":
            await script.end()
        else:
            client.abort()
        await trio.testing.wait_all_tasks_blocked()
        [lost] = outcome
        assert isinstance(lost, ConnectionLost)
        assert how in str(lost) or "closed the connection" in str(lost)
        assert not lost.sent
        assert lost.__notes__ == ["This was attempt 2"]


async def test_leaving_the_block_ends_a_pause(autojump_clock: trio.testing.MockClock) -> None:
    outcome: list[BaseException] = []
    async with trio.open_nursery() as nursery:
        script = Script([refusal(-31004, 4000)])
        async with scripted(script, retry=CALM) as (client, _):
            nursery.start_soon(pausing, client, outcome)
            await trio.sleep(1)
        assert trio.current_time() < 4
    assert "the client was closed" in str(outcome[0])


async def test_a_slow_callback_does_not_hide_the_total_time_of_a_pause(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The call fails, and pauses, while its owner is busy with an update."""
    progress = b'{"jsonrpc":"2.0","method":"notifications/progress",'
    progress += b'"params":{"progressToken":2,"progress":1}}\n'
    refused = b'{"jsonrpc":"2.0","id":2,"error":%b}' % refusal(-31004, 1000)

    def answer(request: dict[str, Any]) -> Any:
        return DISCOVERED if request["method"] == "server/discover" else progress + refused

    async def slow(update: ProgressUpdate) -> None:
        await trio.sleep(60)

    async with scripted(answer, retry=CALM) as (client, script):
        began = trio.current_time()
        with pytest.raises(CallTimeout, match="max_timeout=10") as late:
            await client.call_tool("x", on_progress=slow, max_timeout=10)
        assert trio.current_time() - began == pytest.approx(10)
        assert late.value.outcome == "not sent"
        assert len(script.sent("tools/call")) == 1
        [*_, record] = client.journal
        assert (record.attempt, record.started_at) == (2, None)


async def test_the_silence_of_a_pause_is_no_timeout(autojump_clock: trio.testing.MockClock) -> None:
    script = Script([refusal(-31004, 4000), RESULT])
    async with scripted(script, retry=CALM) as (client, _):
        await client.call_tool("x", timeout=1)
        assert script.pauses == [4]


async def test_what_an_earlier_attempt_may_have_done_is_not_forgotten() -> None:
    """The first attempt was lost with its answer, the second one was refused."""

    async def answer(post: Post) -> None:
        if len(server.posts) == 2:
            await post.stream.aclose()
        else:
            await post.answer(refused_post(post, 1))

    two = Retry(attempts=2, wait_initial=0, wait_jitter=0)
    async with scripted_http(answer, retry=two) as (client, server):
        with pytest.raises(Overloaded) as refused:
            await client.read_resource("a://b")
        assert not refused.value.refused
        assert safe_to_repeat(refused.value) is False


async def test_a_later_attempt_may_be_asked_for_input(
    autojump_clock: trio.testing.MockClock,
) -> None:
    form = {"type": "object", "properties": {"a": {"type": "string"}}}
    ask = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": form}}
    asks = {"resultType": "input_required", "inputRequests": {"q": ask}, "requestState": "s"}
    script = Script([refusal(-31004), asks, RESULT])
    options: dict[str, Any] = {"on_elicit": lambda asked: ElicitResult("decline")}
    async with scripted(script, retry=CALM, **options) as (client, _):
        await client.call_tool("x", {"a": 1})
    _, second, third = script.requests
    assert third["params"]["arguments"] == second["params"]["arguments"] == {"a": 1}
    assert third["params"]["requestState"] == "s"


async def test_arguments_that_are_changed_in_a_pause_change_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = Script([refusal(-31004, 4000), refusal(-31004, 4000), RESULT])
    arguments: dict[str, Any] = {"a": 1, "b": {"c": [2**70, 0.5]}}
    async with scripted(script, retry=CALM) as (client, _), trio.open_nursery() as nursery:
        nursery.start_soon(partial(client.call_tool, "x", arguments, idempotency_key="k"))
        await trio.sleep(1)
        arguments["a"] = float("nan")
        arguments["b"]["c"].clear()
        await trio.sleep(4)
    sent = [request["params"] for request in script.requests]
    for params, request in zip(sent, script.requests, strict=True):
        assert params["_meta"].pop("progressToken") == request["id"]
    assert sent[0]["arguments"] == {"a": 1, "b": {"c": [2**70, 0.5]}}
    assert sent[0]["_meta"][META_IDEMPOTENCY_KEY] == "k"
    assert sent == [sent[0]] * 3


class Spans(OneSpan):
    """Each is another one."""

    def meta(self) -> dict[str, str]:
        return {"traceparent": f"00-{self.trace_id}-{len(self.calls):016x}-01"}


async def test_what_the_server_is_told_of_time_and_spans_is_each_attempts_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = Script([refusal(-31004, 4000), RESULT])
    options: dict[str, Any] = {"announce_timeout": True, "max_timeout": 60, "tracing": Spans()}
    async with scripted(script, retry=CALM, **options) as (client, _):
        await client.call_tool("x")
    first, second = (request["params"]["_meta"] for request in script.requests)
    assert (first[META_TIMEOUT], second[META_TIMEOUT]) == (60_000, 56_000)
    assert first["traceparent"] != second["traceparent"]


async def test_each_attempt_has_a_span_and_a_pause_has_none(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tracing = OneSpan()
    script = Script([refusal(-31004, 1000), refusal(-31004, 4000)])
    async with scripted(script, retry=CALM, tracing=tracing) as (client, _):
        with trio.move_on_after(2):
            await client.call_tool("x")
        assert tracing.ends == [request["id"] for request in script.requests]
        assert len(tracing.calls) == len(script.requests) == 2
        records = [record for record in client.journal if record.method == "tools/call"]
        assert [record.attempt for record in records] == [1, 2, 3]
        assert {record.trace_id for record in records} == {tracing.trace_id}
    for request in script.requests:
        assert request["params"]["_meta"]["traceparent"] == tracing.meta()["traceparent"]


# A connection that comes back ---------------------------------------------------------------------


async def test_a_pause_outlives_a_restart_and_costs_no_attempt(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    script = Script([refusal(-31004, 4000), RESULT])
    twice = Retry(attempts=2, wait_jitter=0)
    async with world(monkeypatch, script, Restart(backoff=1), retry=twice) as (client, it):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "x")
            await trio.sleep(1)
            await it.crash()
            [paused] = client.calls()
            assert (paused.state, paused.attempt) == (State.RUNNING, 2)
        assert script.pauses == [4]
        assert client.restarts == 1
        records = [record for record in client.journal if record.method == "tools/call"]
        assert [(record.attempt, record.state.name) for record in records] == [
            (1, "FAILED"),
            (2, "FAILED"),  # lost with the server before it was made
            (2, "COMPLETED"),
        ]


async def test_a_pause_longer_than_a_restart_takes_no_place_in_the_queue(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    script = Script([refusal(-31004, 4000), RESULT, RESULT])
    limits = Limits(restart_calls=1)
    restart = Restart(backoff=1)
    async with world(monkeypatch, script, restart, retry=CALM, limits=limits) as (client, it):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "x")
            await trio.sleep(1)
            await it.crash()
            await client.call_tool("y")
    assert [request["params"]["name"] for request in script.requests] == ["x", "y", "x"]


async def test_a_server_that_is_lost_for_good_ends_a_pause(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    script = Script([refusal(-31004, 4000)])
    restart = Restart(attempts=1, backoff=1)
    first = {"opens": lambda number: number == 1}
    async with world(monkeypatch, script, restart, retry=CALM, **first) as (client, it):
        outcome: list[BaseException] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pausing, client, outcome)
            await trio.sleep(1)
            await it.crash()
        assert trio.current_time() == pytest.approx(2)
        assert "after 1 attempts to restart it" in str(outcome[0])


@pytest.mark.parametrize("room", [False, True])
async def test_a_call_that_finds_no_place_in_the_queue_is_made_again(
    room: bool, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    script = Script([RESULT, RESULT])
    limits = Limits(restart_calls=1)
    restart = Restart(backoff=0.25 if room else 10)
    retry = Retry(attempts=3, wait_jitter=0)
    async with world(monkeypatch, script, restart, retry=retry, limits=limits) as (client, it):
        await it.crash()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "first")
            await trio.testing.wait_all_tasks_blocked()
            if room:
                await client.call_tool("second")
            else:
                with pytest.raises(ConnectionLost, match="restart_calls=1") as refused:
                    await client.call_tool("second")
                assert not refused.value.sent
                assert refused.value.__notes__ == ["This was attempt 3"]
        records = [record for record in client.journal if record.target == "second"]
        assert [record.attempt for record in records] == [1, 2, 3]
        assert [record.started_at is None for record in records] == [True, True, not room]


async def test_a_call_that_found_no_place_at_first_may_be_asked_for_input(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    form = {"type": "object", "properties": {"a": {"type": "string"}}}
    ask = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": form}}
    asks = {"resultType": "input_required", "inputRequests": {"q": ask}}
    script = Script([RESULT, asks, RESULT])
    options: dict[str, Any] = {"on_elicit": lambda asked: ElicitResult("decline"), "retry": CALM}
    options["limits"] = Limits(restart_calls=1)
    async with world(monkeypatch, script, Restart(backoff=0.1), **options) as (client, it):
        await it.crash()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "first")
            await trio.testing.wait_all_tasks_blocked()
            arguments = {"a": 1}
            nursery.start_soon(client.call_tool, "second", arguments)
            await trio.testing.wait_all_tasks_blocked()
            arguments["a"] = 2  # too late
    _, second, third = script.requests
    assert second["params"]["arguments"] == third["params"]["arguments"] == {"a": 1}


async def test_without_a_policy_a_call_without_a_place_leaves_no_record(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    limits = Limits(restart_calls=1)
    async with world(monkeypatch, Script([RESULT]), Restart(), limits=limits) as (client, it):
        await it.crash()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "first")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(ConnectionLost, match="restart_calls=1") as refused:
                await client.call_tool("second")
            assert not hasattr(refused.value, "__notes__")
        assert "second" not in [record.target for record in client.journal]


# Over HTTP, where a lost answer is no lost connection ---------------------------------------------

READS: dict[str, tuple[Callable[[Client], Any], dict[str, Any]]] = {
    "tools/list": (lambda client: client.tools_page(), {**COMMON, "tools": []}),
    "prompts/list": (lambda client: client.prompts_page(), {**COMMON, "prompts": []}),
    "resources/list": (lambda client: client.resources_page(), {**COMMON, "resources": []}),
    "resources/templates/list": (
        lambda client: client.templates_page(),
        {**COMMON, "resourceTemplates": []},
    ),
    "resources/read": (lambda client: client.read_resource("a://b"), {**COMMON, "contents": []}),
    "prompts/get": (
        lambda client: client.get_prompt("x"),
        {"resultType": "complete", "messages": []},
    ),
    "completion/complete": (
        lambda client: client.complete(prompt="x", argument="a", value=""),
        {"resultType": "complete", "completion": {"values": []}},
    ),
}
QUICK = Retry(wait_initial=0, wait_jitter=0)


LOSSES = [HalfClose(), Break(), Break(at=Body(9))]
"""Before the answer has begun, and in the middle of it."""


@asynccontextmanager
async def losing(
    loss: Fault, first: int, method: str, results: dict[str, dict[str, Any]], **options: Any
) -> AsyncGenerator[tuple[Client, Callable[[], list[Any]]], None]:
    """A client over HTTP, of whose answers to a method the first few are lost, and the ids of the
    requests with that method."""
    losses = iter([[loss]] * first)

    def answer(request: StubRequest) -> Answer | None:
        result = results.get(request.message["method"])
        return None if result is None else Answer(result=result)

    def faults(request: StubRequest) -> Iterable[Fault]:
        return next(losses, []) if request.message["method"] == method else []

    async with http_stub(answer, faults=faults) as stub, connect(stub.url, **options) as client:

        def asked() -> list[Any]:
            messages = [request.message for request in stub.requests]
            return [message["id"] for message in messages if message["method"] == method]

        yield client, asked


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("method", READS)
async def test_what_only_reads_is_made_again_after_a_loss(method: str, loss: Fault) -> None:
    ask, result = READS[method]
    async with losing(loss, 2, method, {method: result}, retry=QUICK) as (client, asked):
        await ask(client)
        assert len({*asked()}) == len(asked()) == 3


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
async def test_a_tool_whose_answer_is_lost_ran_once(loss: Fault) -> None:
    results = {"tools/call": RESULT}
    async with losing(loss, 1, "tools/call", results, retry=QUICK) as (client, asked):
        with pytest.raises(ConnectionLost) as lost:
            await client.call_tool("x")
        assert lost.value.sent
        assert len(asked()) == 1


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize(
    ("annotations", "believed"),
    [
        ({"readOnlyHint": True}, True),
        ({"idempotentHint": True}, True),
        ({"readOnlyHint": False, "idempotentHint": False}, False),
        ({"destructiveHint": False}, False),
        (None, False),
    ],
)
async def test_hints_of_a_tool_count_if_the_server_is_trusted(
    trusted: bool, annotations: Any, believed: bool
) -> None:
    tool = {"name": "x", "inputSchema": {"type": "object"}}
    if annotations is not None:
        tool["annotations"] = annotations
    results = {"tools/list": {**COMMON, "tools": [tool]}, "tools/call": RESULT}
    options: dict[str, Any] = {"retry": QUICK, "trusted": trusted}
    async with losing(HalfClose(), 1, "tools/call", results, **options) as (client, asked):
        await client.tools_page()
        if trusted and believed:
            await client.call_tool("x")
            assert len(asked()) == 2
        else:
            with pytest.raises(ConnectionLost):
                await client.call_tool("x")
            assert len(asked()) == 1


async def test_a_server_that_is_not_there_yet_is_tried_again() -> None:
    results = {"tools/call": RESULT}
    async with losing(Break(), 0, "tools/call", results) as (client, asked):
        connection: Any = client._connection
        there = connection._url
        connection._url = there.copy_with(port=1)
        with client.watch_calls() as changes:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(appear, changes, connection, there)
                await client.call_tool("x", retry=QUICK)
            nursery.cancel_scope.cancel()
        assert len(asked()) == 1
        first, second = [*client.journal][-2:]
        assert (first.started_at, first.attempt, second.attempt) == (None, 1, 2)


@pytest.mark.parametrize("loss", ["429 Too Many Requests", "503 Service Unavailable", "reset"])
async def test_the_discovery_of_connect_is_made_again(loss: str) -> None:
    async def answer(post: Post) -> None:
        if len(server.posts) > 2:
            await post.answer(post.result(DISCOVERED))
        elif loss == "reset":
            drop(post.stream)
            raise trio.BrokenResourceError
        else:
            await post.answer(b"", loss, more="Retry-After: 0\r\n")

    async with serving_http(answer, discover=False) as server:
        async with connect(server.address, retry=QUICK) as client:
            attempts = [(it.method, it.attempt) for it in client.journal]
            assert attempts == [("server/discover", attempt) for attempt in (1, 2, 3)]
        server.posts.clear()
        with pytest.raises((Overloaded, ConnectionLost)) as once:
            async with connect(server.address):
                pass
        assert not hasattr(once.value, "__notes__")
        assert len(server.posts) == 1


async def test_discovery_is_made_again_within_the_time_to_connect(
    autojump_clock: trio.testing.MockClock,
) -> None:
    autojump_clock.autojump_threshold = 0.02
    patient = Retry(attempts=100, timeout=1000, wait_initial=2, wait_exp_base=1, wait_jitter=0)
    with pytest.raises(ConnectionLost, match="Connection refused") as lost:
        async with connect("http://127.0.0.1:1/mcp", retry=patient, limits=Limits(connect=9)):
            pass
    assert not lost.value.sent
    assert lost.value.__notes__ == ["This was attempt 5"]
    assert trio.current_time() == pytest.approx(8, abs=0.9)


async def test_discovery_that_was_refused_for_good_is_not_made_again() -> None:
    async def answer(post: Post) -> None:
        await post.answer(b"", "401 Unauthorized")

    async with serving_http(answer, discover=False) as server:
        with pytest.raises(AuthorizationRequired):
            async with connect(server.address, retry=QUICK):
                pass
        assert len(server.posts) == 1


async def test_a_pause_over_http_is_in_flight_and_ends_with_the_client() -> None:

    async def answer(post: Post) -> None:
        await post.answer(refused_post(post, 4000))

    for end in ("cancelled: stop", "the client was closed", "the client was aborted"):
        async with scripted_http(answer, retry=CALM) as (client, server):
            outcome: list[BaseException] = []
            with trio.fail_after(2):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(pausing, client, outcome)
                    await until(lambda: [call.attempt for call in client.calls()] == [2])
                    if "stop" in end:
                        cancel_calls(client._connection, "stop")
                    elif "aborted" in end:
                        client.abort()
                    else:
                        await client._connection.close()
            assert end in str(outcome[0])
            assert len(server.calls()) == 1
            assert client.calls() == ()


async def appear(changes: Any, connection: Any, there: Any) -> None:
    """Once a call has failed, the server is there."""
    async for status in changes:
        if status.state is State.FAILED:
            connection._url = there
            return


# Idempotency keys ---------------------------------------------------------------------------------


async def test_an_idempotency_key_is_the_same_in_every_attempt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = Script([refusal(-31004), RESULT, RESULT, None])
    async with scripted(script, retry=CALM) as (client, _):
        await client.call_tool("x", idempotency_key="k-1")
        await client.call_tool("x")
        async with client.start_tool("x", idempotency_key="k-2"):
            await trio.testing.wait_all_tasks_blocked()
    keys = [
        request["params"]["_meta"].get("trio-mcp/idempotencyKey") for request in script.requests
    ]
    assert keys == ["k-1", "k-1", None, "k-2"]


async def test_a_handler_reads_the_idempotency_key() -> None:
    server = Server("shop", version="1")

    @server.tool
    async def pay(ctx: Context) -> str:
        return str(ctx.meta.get("trio-mcp/idempotencyKey"))

    async with connect(server) as client:
        assert (await client.call_tool("pay", idempotency_key="k-1")).text == "k-1"
        with pytest.raises(ValueError, match="idempotency_key"):
            await client.call_tool("pay", idempotency_key="")
        with pytest.raises(TypeError, match="idempotency_key is a text, not 7"):
            await client.call_tool("pay", idempotency_key=7)  # type: ignore[arg-type]


# The policy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"wait_initial": -1},
        {"wait_max": float("inf")},
        {"timeout": float("nan")},
        {"wait_jitter": -1},
        {"wait_exp_base": 0.5},
    ],
)
def test_policies_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Retry(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attempts": 2.5}, r"Retry.attempts is a whole number, not 2\.5"),
        ({"attempts": True}, "Retry.attempts is a whole number, not True"),
        ({"attempts": "x"}, "Retry.attempts is a whole number, not 'x'"),
        ({"timeout": "x"}, "Retry.timeout is a number, not 'x'"),
        ({"wait_exp_base": None}, "Retry.wait_exp_base is a number, not None"),
    ],
)
def test_policies_of_wrong_types(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=f"^{words}$"):
        Retry(**options)


@pytest.mark.parametrize("base", [10**30, 10**400], ids=["large", "no float"])
def test_pauses_of_huge_whole_numbers_are_bounded_too(base: int) -> None:
    retry = Retry(attempts=5000, wait_initial=1, wait_exp_base=base, wait_max=2, wait_jitter=0)
    pauses = [retry.pause_after(ConnectionLost("gone"), attempt, False) for attempt in (2, 4999)]
    assert pauses == [2, 2]


async def test_a_call_ends_whatever_looks_after_its_failure_raises() -> None:
    ended: list[Call] = []
    call = Call(1, "x", None, b"{}", "here", Journal(10, 10), ended.append, Limits())

    def fail(_: Exception) -> None:
        raise ZeroDivisionError

    call.on_failed = fail
    with pytest.raises(ZeroDivisionError):
        call.lost(ConnectionLost("gone"))
    assert ended == [call]
    assert call.record is not None


def test_pauses_grow_with_jitter_and_within_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    lost = ConnectionLost("gone")
    retry = Retry(attempts=5000, wait_initial=0.5, wait_jitter=0.25, wait_max=3)
    pauses = [retry.pause_after(lost, attempt, False) for attempt in (1, 2, 3, 4, 4000)]
    assert pauses == [0.75, 1.25, 2.25, 3, 3]
    assert retry.pause_after(lost, 5000, False) is None


def test_a_gateways_pause_is_waited_for() -> None:
    retry = Retry(wait_initial=0, wait_jitter=0, wait_max=5)
    lost = ConnectionLost("HTTP 503", sent=True)
    for named, pause in ((None, 0), (3.0, 3), (6.0, None)):
        lost.retry_after = named
        assert retry.pause_after(lost, 1, True) == pause
        assert retry.pause_after(lost, 1, False) is None


def test_only_what_passes_is_worth_another_attempt() -> None:
    retry = Retry()
    assert retry.pause_after(ConnectionLost("gone", sent=True), 1, True) is not None
    assert retry.pause_after(ConnectionLost("gone", sent=True), 1, False) is None
    assert retry.pause_after(InternalError(-32603, "no"), 1, True) is None


async def test_stamina_makes_a_call_again_where_that_is_safe(
    autojump_clock: trio.testing.MockClock,
) -> None:
    stamina = pytest.importorskip("stamina")
    script = Script([refusal(-31004, 1500), RESULT, refusal(-31004, None)])
    async with scripted(script) as (client, _):
        caller = stamina.AsyncRetryingCaller(attempts=3).on(safe_to_repeat)
        await caller(client.call_tool, "x")
        assert script.pauses == [1.5]
        with pytest.raises(Overloaded):
            await caller(client.call_tool, "x")
