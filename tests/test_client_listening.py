"""Subscriptions of a client, against a scripted server. Specification: *Subscriptions*.

Every line that the client sends is held against the official schema on the way.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
from tests.peers.raw import until
from tests.peers.scripted import Answer, Error, Script, scripted

from trio_mcp import (
    CallCancelled,
    CallTimeout,
    Change,
    Changes,
    ConnectionLost,
    Limits,
    ProtocolViolation,
    ServerError,
    State,
    SubscriptionFilter,
)
from trio_mcp.runtime.models.base import META_SUBSCRIPTION_ID

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
UPDATED = "notifications/resources/updated"


def note(listen: Any, method: str, **params: Any) -> dict[str, Any]:
    """A notification of a subscription."""
    meta = {"_meta": {META_SUBSCRIPTION_ID: listen}}
    return {"jsonrpc": "2.0", "method": method, "params": {**params, **meta}}


def acknowledging(agreed: dict[str, Any] | None = None) -> Answer:
    """A server that agrees to what it is asked for, or to this."""

    def answer(request: dict[str, Any]) -> bytes | None:
        if request["method"] != LISTEN:
            return None
        wanted = request["params"]["notifications"]
        said = note(request["id"], ACKNOWLEDGED, notifications=wanted if agreed is None else agreed)
        return json.dumps(said).encode()

    return answer


def result_of(listen: Any) -> dict[str, Any]:
    meta = {META_SUBSCRIPTION_ID: listen}
    return {"jsonrpc": "2.0", "id": listen, "result": {"resultType": "complete", "_meta": meta}}


def cancelled(request_id: Any) -> dict[str, Any]:
    params = {"requestId": request_id}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


def listens(script: Script) -> list[Any]:
    return [request["id"] for request in script.sent(LISTEN)]


async def rest_of(changes: Changes) -> list[Change]:
    return [change async for change in changes]


async def test_changes_come_to_who_listens(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(acknowledging()) as (client, script):
        async with client.listen(
            tools=True, prompts=True, resources_list=True, resources=["shop://a", "shop://a"]
        ) as changes:
            (listen,) = listens(script)
            assert script.sent(LISTEN)[0]["params"]["notifications"] == {
                "toolsListChanged": True,
                "promptsListChanged": True,
                "resourcesListChanged": True,
                "resourceSubscriptions": ["shop://a"],
            }
            assert changes.agreed == SubscriptionFilter(True, True, True, ["shop://a"])
            await script.say(note(listen, UPDATED, uri="shop://a"))
            await script.say(note(listen, TOOLS))
            assert await anext(changes) == Change("resource", "shop://a")
            assert await anext(changes) == Change("tools")
            await trio.sleep(80_000)  # no timeout once the server has agreed
            await script.say(note(listen, PROMPTS))
            await script.say(note(listen, "notifications/resources/list_changed"))
            assert await anext(changes) == Change("prompts")
            assert await anext(changes) == Change("resources")
        await until(script.cancelled)
        assert script.cancelled() == [listen]
        assert client._connection.violations == 0
        assert client._connection.calls == ()
        assert list(client.journal)[-1].state is State.CANCELLED


async def test_equal_changes_that_wait_are_one(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(acknowledging()) as (client, script):
        async with client.listen(tools=True, resources=["a", "b"]) as changes:
            (listen,) = listens(script)
            for uri in ("a", "b", "a", "a"):
                await script.say(note(listen, UPDATED, uri=uri))
                await script.say(note(listen, TOOLS))
            await script.say(result_of(listen))
            waiting = [Change("resource", "a"), Change("tools"), Change("resource", "b")]
            assert await rest_of(changes) == waiting


async def test_what_waits_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(acknowledging(), limits=Limits(changes_backlog=3)) as (client, script):
        async with client.listen(resources=["shop://"]) as changes:
            (listen,) = listens(script)
            for number in range(10):
                await script.say(note(listen, UPDATED, uri=f"shop://{number}"))  # parts of it
            await script.say(result_of(listen))
            assert [change.uri for change in await rest_of(changes)] == [
                "shop://7",
                "shop://8",
                "shop://9",
            ]
            assert changes.dropped == 7


async def test_invariant_9_a_uri_that_is_too_long_is_kept_only_if_it_was_asked_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked_for = "shop://" + "x" * 50
    async with scripted(acknowledging(), limits=Limits(uri_length=40)) as (client, script):
        async with client.listen(resources=["shop://", asked_for]) as changes:
            (listen,) = listens(script)
            for uri in ("shop://" + "y" * 50, asked_for, "shop://" + "z" * 33):
                await script.say(note(listen, UPDATED, uri=uri))
            await script.say(result_of(listen))
            uris = [change.uri for change in await rest_of(changes)]
            assert uris == [asked_for, "shop://" + "z" * 33]
            assert "longer than uri_length=40" in str(client._connection.last_violation)


async def test_a_server_may_agree_to_less(autojump_clock: trio.testing.MockClock) -> None:
    agreed = {"toolsListChanged": True, "resourceSubscriptions": ["b"]}
    async with scripted(acknowledging(agreed)) as (client, script):
        async with client.listen(tools=True, prompts=True, resources=["a", "b"]) as changes:
            assert changes.agreed == SubscriptionFilter(True, resource_subscriptions=["b"])
            assert client._connection.violations == 0
            (listen,) = listens(script)
            await script.say(note(listen, PROMPTS))
            await script.say(result_of(listen))
            assert await rest_of(changes) == []
            assert client._connection.violations == 1


async def test_a_server_that_agrees_to_more_does_not_get_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    agreed = {"toolsListChanged": True, "resourceSubscriptions": ["b"]}
    async with scripted(acknowledging(agreed)) as (client, script):
        async with client.listen(tools=True) as changes:
            assert changes.agreed == SubscriptionFilter(True)
            (listen,) = listens(script)
            await script.say(note(listen, UPDATED, uri="b"))
            await script.say(result_of(listen))
            assert await rest_of(changes) == []
            assert client._connection.violations == 2


async def test_a_graceful_end_is_the_end_of_the_loop_and_a_cancellation_behind_it_is_silent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(acknowledging()) as (client, script):
        async with client.listen(tools=True) as changes:
            (listen,) = listens(script)
            await script.say(note(listen, TOOLS))
            await script.say(result_of(listen))
            await script.say(cancelled(listen))
            assert await rest_of(changes) == [Change("tools")]
            assert await rest_of(changes) == []
        await client.discover()
        assert client._connection.violations == 0
        assert script.cancelled() == []

        await script.say(note(listen, TOOLS))  # it has ended
        await client.discover()
        assert client._connection.violations == 1


async def test_an_end_without_a_result_is_a_loss(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(acknowledging()) as (client, script):
        async with client.listen(tools=True) as changes:
            (listen,) = listens(script)
            await script.say(note(listen, TOOLS))
            await script.say(cancelled(listen))
            assert await anext(changes) == Change("tools")
            with pytest.raises(ConnectionLost, match="without a result"):
                await anext(changes)
        await client.discover()


async def test_the_end_of_the_connection_is_a_loss(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(acknowledging()) as (client, script):
        async with client.listen(tools=True) as changes:
            await script.say(note(listens(script)[0], TOOLS))
            await script.end()
            assert await anext(changes) == Change("tools")
            with pytest.raises(ConnectionLost):
                await anext(changes)


async def test_nothing_counts_before_the_acknowledgement(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(lambda _: None) as (client, script):

        async def acknowledge_late() -> None:
            await until(lambda: listens(script))
            (listen,) = listens(script)
            await script.say(note(listen, TOOLS))
            await script.say(note(listen, ACKNOWLEDGED, notifications=7))
            await script.say(note(listen, ACKNOWLEDGED, notifications={"toolsListChanged": True}))
            await script.say(note(listen, ACKNOWLEDGED, notifications={}))
            await script.say(result_of(listen))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(acknowledge_late)
            async with client.listen(tools=True) as changes:
                assert await rest_of(changes) == []
        assert client._connection.violations == 3


async def test_a_server_that_does_not_acknowledge_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(lambda _: None) as (client, script):
        start = trio.current_time()
        with pytest.raises(CallTimeout):
            async with client.listen(tools=True, timeout=5):
                pytest.fail("listens")
        assert trio.current_time() - start == pytest.approx(5)
        await until(script.cancelled)
        assert script.cancelled() == listens(script)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Error(-32601), ServerError),
        ({"resultType": "complete"}, ProtocolViolation),
    ],
    ids=["no such method", "over before it began"],
)
async def test_a_server_that_refuses(
    answer: Any, error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    def refuse(request: dict[str, Any]) -> Any:
        return answer if request["method"] == LISTEN else None

    async with scripted(refuse) as (client, script):
        with pytest.raises(error):
            async with client.listen(tools=True):
                pytest.fail("listens")
        await client.discover()
        assert script.cancelled() == []


@pytest.mark.parametrize(
    "listen", [7, "2", 2.0, True, None, [2], 1], ids=lambda listen: json.dumps(listen)
)
async def test_notifications_of_other_subscriptions_are_counted_and_ignored(
    listen: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """1 was the discovery, 2 is the subscription."""
    async with scripted(acknowledging()) as (client, script):
        async with client.listen(tools=True) as changes:
            assert listens(script) == [2]
            await script.say(note(listen, TOOLS))
            await script.say({"jsonrpc": "2.0", "method": TOOLS})
            await script.say(result_of(2))
            assert await rest_of(changes) == []
        assert client._connection.violations == 2


@pytest.mark.parametrize("uri", [None, 7, ["a"]])
async def test_malformed_changes_are_counted_and_ignored(
    uri: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted(acknowledging()) as (client, script):
        async with client.listen(resources=["a"]) as changes:
            await script.say(note(2, UPDATED, uri=uri))
            await script.say(result_of(2))
            assert await rest_of(changes) == []
        assert client._connection.violations == 1


async def test_two_subscriptions_do_not_hear_each_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(acknowledging()) as (client, script):
        async with client.listen(tools=True) as first, client.listen(tools=True) as second:
            await script.say(note(3, TOOLS))
            await script.say(result_of(2))
            await script.say(result_of(3))
            assert await rest_of(first) == []
            assert await rest_of(second) == [Change("tools")]
        assert client._connection.violations == 0


async def test_what_crosses_our_cancellation_is_silent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(acknowledging()) as (client, script):
        async with client.listen(tools=True) as changes:
            pass
        await script.say(note(2, TOOLS))
        await client.discover()
        await script.say(note(2, TOOLS))
        await script.say(cancelled(2))
        await client.discover()
        assert client._connection.violations == 0
        with pytest.raises(CallCancelled):
            await anext(changes)


async def test_a_cancellation_of_anything_else_is_a_violation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(lambda _: None) as (client, script):
        for request_id in (1, 77, None, [1]):
            await script.say(cancelled(request_id))
        await client.discover()
        assert client._connection.violations == 4


async def test_what_nobody_can_listen_to(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(lambda _: None) as (client, script):
        with pytest.raises(ValueError, match="to what"):
            async with client.listen():
                pytest.fail("listens")
        with pytest.raises(TypeError, match="list of URIs"):
            async with client.listen(resources="shop://a"):
                pytest.fail("listens")
        assert script.sent(LISTEN) == []
