"""Answers that a client keeps, for as long as it may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from tests.peers.scripted import DISCOVERED, Error, scripted

from trio_mcp import Change, Client, ElicitResult, InvalidParams, Limits, ProtocolViolation
from trio_mcp.client.response_cache import ResponseCache
from trio_mcp.runtime.jsonrpc import encode
from trio_mcp.runtime.models.base import META_SUBSCRIPTION_ID

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
ASK: dict[str, Callable[[Client], Any]] = {
    "tools/list": lambda client: client.tools_page(),
    "prompts/list": lambda client: client.prompts_page(),
    "resources/list": lambda client: client.resources_page(),
    "resources/templates/list": lambda client: client.templates_page(),
    "resources/read": lambda client: client.read_resource("shop://a/b"),
}


@attrs.define
class Shop:
    """A server whose answers are good for some time; counts what it is asked for."""

    ttl: Any = 60_000
    scope: str = "private"
    asked: list[str] = attrs.Factory(list)
    hold: bool = False
    listening: Any = None

    def __call__(self, request: dict[str, Any]) -> Any:
        method = request["method"]
        if method == "server/discover":
            return DISCOVERED
        if method == "subscriptions/listen":
            self.listening = request["id"]
            return None
        self.asked.append(method)
        return None if self.hold else self.answer(method)

    def answer(self, method: str) -> dict[str, Any]:
        hints = {"resultType": "complete", "ttlMs": self.ttl, "cacheScope": self.scope}
        if method == "resources/read":
            text = str(len(self.asked))
            return {**hints, "contents": [{"uri": "shop://a/b", "text": text}]}
        return {**hints, LISTS[method]: []}


@pytest.mark.parametrize("scope", ["private", "public", "odd"])
@pytest.mark.parametrize("method", ASK)
async def test_an_answer_is_kept_until_it_is_stale(
    method: str, scope: str, autojump_clock: trio.testing.MockClock
) -> None:
    shop = Shop(scope=scope)
    async with scripted(shop, cache=True) as (client, _):
        first = await ASK[method](client)
        await trio.sleep(59.9)
        second = await ASK[method](client)
        assert second == first
        assert second is not first
        assert shop.asked == [method]
        await trio.sleep(0.2)
        await ASK[method](client)
        assert shop.asked == [method] * 2


@pytest.mark.parametrize(
    ("ttl", "options"), [(0, {"cache": True}), (-5, {"cache": True}), (60_000, {})]
)
@pytest.mark.parametrize("method", ASK)
async def test_what_may_not_be_kept_is_asked_for_each_time(
    method: str, ttl: int, options: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    shop = Shop(ttl)
    async with scripted(shop, **options) as (client, _):
        for _ in range(2):
            await ASK[method](client)
        client.cache_clear()
        assert len(shop.asked) == 2


async def test_a_kept_answer_is_the_callers_own(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(Shop(), cache=True) as (client, _):
        for _ in range(3):
            read = await client.read_resource("shop://a/b")
            assert len(read.contents) == 1
            read.contents.clear()


async def test_what_is_asked_for_is_the_key(autojump_clock: trio.testing.MockClock) -> None:
    shop = Shop()
    async with scripted(shop, cache=True) as (client, _):
        for _ in range(2):
            await client.read_resource("shop://a")
            await client.read_resource("shop://b")
            await client.tools_page()
            await client.tools_page("")
            await client.tools_page("1")
            await client.prompts_page()
        assert len(shop.asked) == 6
        client.cache_clear()
        await client.read_resource("shop://a")
        await client.tools_page("1")
        assert len(shop.asked) == 8


async def say(script: Any, shop: Shop, method: str, **params: Any) -> None:
    params["_meta"] = {META_SUBSCRIPTION_ID: shop.listening}
    await script.say(encode({"jsonrpc": "2.0", "method": method, "params": params}))
    await trio.testing.wait_all_tasks_blocked()


AGREED = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


@pytest.mark.parametrize(
    ("change", "params", "forgotten"),
    [
        ("tools/list_changed", {}, ["tools/list"]),
        ("prompts/list_changed", {}, ["prompts/list"]),
        ("resources/list_changed", {}, ["resources/list", "resources/templates/list"]),
        ("resources/updated", {"uri": "shop://a/b"}, ["resources/read"]),
        ("resources/updated", {"uri": "shop://a/b/c/d"}, ["resources/read"]),
        ("resources/updated", {"uri": "shop://a/c"}, []),
        ("resources/updated", {"uri": "x" * 10_000}, ["resources/read"]),
        ("resources/updated", {"uri": "/" * 100}, ["resources/read"]),
    ],
)
async def test_a_change_that_is_heard_of_makes_an_answer_stale(
    change: str,
    params: dict[str, Any],
    forgotten: list[str],
    autojump_clock: trio.testing.MockClock,
) -> None:
    shop = Shop()
    async with scripted(shop, cache=True) as (client, script), trio.open_nursery() as nursery:

        async def agree() -> None:
            while shop.listening is None:  # noqa: ASYNC110
                await trio.sleep(0.01)
            agreed = {**AGREED, "resourceSubscriptions": ["shop://a"]}
            await say(
                script, shop, "notifications/subscriptions/acknowledged", notifications=agreed
            )

        nursery.start_soon(agree)
        wanted: Any = {"tools": True, "prompts": True, "resources_list": True}
        async with client.listen(resources=["shop://a"], **wanted):
            for ask in ASK.values():
                await ask(client)
            shop.asked.clear()
            await say(script, shop, f"notifications/{change}", **params)
            for ask in ASK.values():
                await ask(client)
            assert shop.asked == forgotten


@pytest.mark.parametrize("change", [Change("tools"), None])
async def test_an_answer_that_crossed_a_change_is_not_kept(
    change: Change | None, autojump_clock: trio.testing.MockClock
) -> None:
    shop = Shop(hold=True)
    async with scripted(shop, cache=True) as (client, script), trio.open_nursery() as nursery:
        nursery.start_soon(client.tools_page)
        await trio.testing.wait_all_tasks_blocked()
        assert client._cache is not None
        client._cache.changed(change) if change is not None else client.cache_clear()
        await script.say({"jsonrpc": "2.0", "id": 2, "result": shop.answer("tools/list")})
        await trio.testing.wait_all_tasks_blocked()
        shop.hold = False
        await client.tools_page()
        await client.tools_page()
        assert len(shop.asked) == 2


async def test_a_resource_that_is_updated_while_it_is_read_is_not_kept() -> None:
    cache = ResponseCache(Limits())
    asked_at = cache.moment("resources/read")
    cache.changed(Change("resource", "shop://a"))
    cache.put(("resources/read", "shop://a"), {}, 1000, asked_at)
    assert len(cache) == 0


async def test_pages_that_led_to_a_cursor_that_is_none_are_forgotten(
    autojump_clock: trio.testing.MockClock,
) -> None:
    tool = {"name": "a", "inputSchema": {"type": "object"}}
    hints = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}
    answers = iter(
        [
            {**hints, "tools": [tool], "nextCursor": "1"},
            Error(-32602, "old"),
            {**hints, "tools": [tool, {**tool, "name": "b"}]},
        ]
    )

    def answer(request: dict[str, Any]) -> Any:
        return next(answers) if request["method"] == "tools/list" else None

    async with scripted(answer, cache=True) as (client, _):
        for _ in range(2):
            assert [tool.name async for tool in client.tools()] == ["a", "b"]


async def test_errors_and_answers_that_are_none_are_not_kept(
    autojump_clock: trio.testing.MockClock,
) -> None:
    bad = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public", "tools": 7}
    answers = iter([Error(-32602), bad, Error(-32602)])

    def answer(request: dict[str, Any]) -> Any:
        return next(answers) if request["method"] == "tools/list" else None

    async with scripted(answer, cache=True) as (client, _):
        for kind in (InvalidParams, ProtocolViolation, InvalidParams):
            with pytest.raises(kind):
                await client.tools_page()


async def test_what_took_several_rounds_is_not_kept(
    autojump_clock: trio.testing.MockClock,
) -> None:
    form = {"type": "object", "properties": {"a": {"type": "string"}}}
    ask = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": form}}
    shop = Shop()

    def answer(request: dict[str, Any]) -> Any:
        if request["method"] == "resources/read" and "inputResponses" not in request["params"]:
            return {"resultType": "input_required", "inputRequests": {"q": ask}}
        return shop(request)

    options: dict[str, Any] = {"on_elicit": lambda asked: ElicitResult("decline")}
    async with scripted(answer, cache=True, **options) as (client, _):
        for _ in range(2):
            await client.read_resource("shop://a/b")
        assert len(shop.asked) == 2


async def test_invariant_9_what_is_kept_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    shop = Shop()
    async with scripted(shop, cache=True, limits=Limits(cache_bytes=2500)) as (client, _):
        for uri in ("shop://1", "shop://2", "shop://1", "shop://3", "shop://4", "shop://1"):
            await client.read_resource(uri)
        assert len(shop.asked) == 4  # the first one was used again and again
        await client.read_resource("shop://2")
        assert len(shop.asked) == 5
        cache = client._cache
        assert cache is not None
        assert cache._taken == sum(kept.size for kept in cache._kept.values()) <= 2500
        before = len(cache)
        cache.put(("tools/list", None), {"x": "y" * 3000}, 1000, cache.moment("tools/list"))
        assert len(cache) == before


async def test_a_ttl_may_be_any_number(autojump_clock: trio.testing.MockClock) -> None:
    shop = Shop(2**63 - 1)
    async with scripted(shop, cache=True) as (client, _):
        for _ in range(2):
            await client.tools_page()
        assert len(shop.asked) == 1
