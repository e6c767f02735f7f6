"""Subscriptions, log messages and rounds of a client over HTTP, against a scripted server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from tests.test_http_client import Post, scripted, until

from trio_mcp import (
    CallCancelled,
    Change,
    ConnectionLost,
    Elicitation,
    ElicitResult,
    LogMessage,
    Root,
    State,
    SubscriptionFilter,
)
from trio_mcp.runtime.models.base import META_SUBSCRIPTION_ID

TOOLS = "notifications/tools/list_changed"


def event(message: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode({"jsonrpc": "2.0", **message}) + b"\n\n"


def note(listen: Any, method: str, **params: Any) -> bytes:
    params["_meta"] = {META_SUBSCRIPTION_ID: listen}
    return event({"method": method, "params": params})


def acknowledgement(post: Post) -> bytes:
    wanted = post.body["params"]["notifications"]
    return note(post.body["id"], "notifications/subscriptions/acknowledged", notifications=wanted)


def log(data: Any) -> bytes:
    return event({"method": "notifications/message", "params": {"level": "info", "data": data}})


def listen_of(post: Post) -> Any:
    return post.body["id"]


async def test_leaving_a_subscription_closes_its_stream_and_nothing_else() -> None:
    closed = trio.Event()

    async def script(post: Post) -> None:
        if post.method != "subscriptions/listen":
            await post.answer(post.text("still here"))
            return
        await post.begin_events()
        await post.send_chunk(acknowledgement(post))
        await post.send_chunk(note(listen_of(post), TOOLS))
        await post.closed_by_client()
        closed.set()

    async with scripted(script) as (client, server):
        async with client.listen(tools=True) as changes:
            assert changes.agreed == SubscriptionFilter(True)
            assert await anext(changes) == Change("tools")
            assert (await client.call_tool("any")).text == "still here"
        await closed.wait()
        assert (await client.call_tool("any")).text == "still here"
        methods = [post.method for post in server.posts]
        assert "notifications/cancelled" not in methods
        assert server.posts[1].headers["mcp-method"] == "subscriptions/listen"
        assert "mcp-name" not in server.posts[1].headers
        assert client._connection.violations == 0


async def test_a_result_ends_the_loop_and_an_end_without_one_is_a_loss() -> None:
    ends = iter([True, False])

    async def script(post: Post) -> None:
        meta = {META_SUBSCRIPTION_ID: listen_of(post)}
        result = {"resultType": "complete", "_meta": meta}
        last = event({"id": post.body["id"], "result": result}) if next(ends) else b""
        await post.events(acknowledgement(post), note(listen_of(post), TOOLS) + last)

    async with scripted(script) as (client, _):
        async with client.listen(tools=True) as changes:
            assert [change async for change in changes] == [Change("tools")]
        async with client.listen(tools=True) as changes:
            assert await anext(changes) == Change("tools")
            with pytest.raises(ConnectionLost):
                await anext(changes)


async def test_what_does_not_belong_on_a_stream_is_counted_and_ignored() -> None:
    heard: list[LogMessage] = []

    async def script(post: Post) -> None:
        mine = listen_of(post)
        if post.method == "tools/call":
            await post.events(
                log("for the call"),
                note(mine, TOOLS),  # a call is no subscription
                b"data: " + post.text("done") + b"\n\n",
            )
            return
        result = event({"id": mine, "result": {"resultType": "complete"}})
        await post.events(
            note(mine, TOOLS),  # before the acknowledgement
            acknowledgement(post),
            note(str(mine), TOOLS) + note(mine + 1, TOOLS) + event({"method": TOOLS}),
            log("for no call"),
            result + note(mine, TOOLS),  # after the end
        )

    async with scripted(script, on_log=heard.append) as (client, _):
        async with client.listen(tools=True) as changes:
            assert [change async for change in changes] == []
        await until(lambda: client._connection.violations == 6)
        assert (await client.call_tool("any")).text == "done"
        assert [message.data for message in heard] == ["for the call"]
        assert client._connection.violations == 7


async def test_a_further_round_is_a_post_of_its_own() -> None:
    asks = {
        "resultType": "input_required",
        "inputRequests": {"r": {"method": "roots/list"}},
        "requestState": "opaque",
    }

    async def script(post: Post) -> None:
        if post.method == "tools/list":
            header = {"type": "string", "x-mcp-header": "Region"}
            schema = {"type": "object", "properties": {"region": header}}
            tools = [{"name": "order", "inputSchema": schema}]
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            await post.answer(post.result({**result, "tools": tools}))
        elif "requestState" in post.body["params"]:
            await post.answer(post.text("done"))
        else:
            await post.answer(post.result(asks))

    async with scripted(script, on_roots=[Root("file:///")]) as (client, server):
        await client.tools_page()
        assert (await client.call_tool("order", {"region": "é"})).text == "done"
        first, second = server.calls()
        assert first.body["id"] != second.body["id"]
        assert second.body["params"]["inputResponses"] == {"r": {"roots": [{"uri": "file:///"}]}}
        for name in ("mcp-method", "mcp-name", "mcp-param-region", "mcp-protocol-version"):
            assert first.headers[name] == second.headers[name]
        assert first.headers["content-length"] != second.headers["content-length"]


ENDS: dict[str, type[BaseException]] = {
    "cancel": CallCancelled,
    "close": ConnectionLost,
    "leave": trio.Cancelled,
}


@pytest.mark.parametrize("how", ENDS)
async def test_a_round_that_does_not_go_out_leaves_nothing_behind(how: str) -> None:
    async def script(post: Post) -> None:
        form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        request = {"method": "elicitation/create", "params": form}
        result = {"resultType": "input_required", "inputRequests": {"a": request}}
        await post.answer(post.result(result))

    async def on_elicit(question: Elicitation) -> ElicitResult:
        if how == "cancel":
            call.cancel()
        elif how == "close":
            await client._connection.close()
        else:
            scope.cancel()
        await trio.sleep_forever()
        raise AssertionError

    async with scripted(script, on_elicit=on_elicit) as (client, server):
        scope = trio.CancelScope()
        async with client.start_tool("order") as call:
            with scope, pytest.raises(ENDS[how]) as raised:
                await call.result()
            assert raised.type is ENDS[how]
        assert call.state is (State.FAILED if how == "close" else State.CANCELLED)
        assert client._connection.calls == ()
        assert len(server.calls()) == 1
