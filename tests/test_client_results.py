"""Structured results, held against what the server has said of its tools."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio.testing
from tests.peers.scripted import scripted

from trio_mcp import Client, Limits, ProtocolViolation, Server, connect

SCHEMA = {
    "type": "object",
    "properties": {"left": {"type": "integer", "minimum": 0}},
    "required": ["left"],
}
MISSING = object()


def shop(schema: Any, structured: Any, is_error: bool = False, name: str = "stock") -> Any:
    """A server with one tool, which always returns the same."""
    tool = {"name": name, "inputSchema": {"type": "object"}}
    if schema is not None:
        tool["outputSchema"] = schema

    def answer(request: dict[str, Any]) -> Any:
        if request["method"] == "tools/list":
            listed = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            return {**listed, "tools": [tool]}
        if request["method"] != "tools/call":
            return None
        result: dict[str, Any] = {"resultType": "complete", "content": [], "isError": is_error}
        if structured is not MISSING:
            result["structuredContent"] = structured
        return result

    return answer


async def listed(client: Client) -> None:
    assert [tool.name async for tool in client.tools()] == ["stock"]


@pytest.mark.parametrize(
    ("structured", "why"),
    [
        ({"left": "many"}, "left"),
        ({"left": -1}, "left"),
        ({}, "left"),
        (None, "object"),
        ([], "object"),
        (MISSING, "no structured content"),
    ],
)
async def test_a_result_that_does_not_fit_is_a_violation(
    structured: Any, why: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted(shop(SCHEMA, structured)) as (client, _):
        await client.call_tool("stock")  # nobody has said what it looks like
        await listed(client)
        with pytest.raises(ProtocolViolation, match=f"'stock'.*output schema.*{why}"):
            await client.call_tool("stock")
        async with client.start_tool("stock") as call:
            with pytest.raises(ProtocolViolation, match=why):
                await call.result()


@pytest.mark.parametrize(
    ("schema", "structured", "is_error"),
    [
        (SCHEMA, {"left": 3}, False),
        (SCHEMA, {"left": "broken"}, True),
        (SCHEMA, MISSING, True),
        (None, {"left": "broken"}, False),
        (None, MISSING, False),
        ({"type": "null"}, None, False),
    ],
)
async def test_what_fits_or_has_failed_or_has_no_schema_is_a_result(
    schema: Any, structured: Any, is_error: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted(shop(schema, structured, is_error)) as (client, _):
        await listed(client)
        for _ in range(2):
            assert (await client.call_tool("stock")).is_error is is_error


async def test_the_check_can_be_switched_off(autojump_clock: trio.testing.MockClock) -> None:
    async with scripted(shop(SCHEMA, MISSING), check_results=False) as (client, _):
        await listed(client)
        await client.call_tool("stock")
        assert len(client._tools) == 0


DEEP: dict[str, Any] = {}
for _ in range(100):
    DEEP = {"properties": {"a": DEEP}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"type": "nonsense"},
        {"$schema": "http://json-schema.org/draft-04/schema#"},
        {"pattern": "(?=x)x"},
        {"description": "x" * 300_000},
        DEEP,
    ],
    ids=["remote", "nonsense", "dialect", "look-ahead", "long", "deep"],
)
async def test_a_schema_that_cannot_be_used_is_named_and_costs_no_result(
    schema: Any, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "trio_mcp.client")
    async with scripted(shop(schema, {"left": "broken"})) as (client, _):
        await listed(client)
        for _ in range(2):
            await client.call_tool("stock")
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("results of 'stock' are not checked")
    assert len(said) < 1200


async def test_a_list_may_change_its_mind(autojump_clock: trio.testing.MockClock) -> None:
    first, then = shop(SCHEMA, MISSING), shop(None, MISSING)
    answers = iter([first, first, first, then, then])

    async with scripted(lambda request: next(answers)(request)) as (client, _):
        await listed(client)
        with pytest.raises(ProtocolViolation):
            await client.call_tool("stock")
        await listed(client)
        await client.call_tool("stock")


async def test_invariant_9_only_so_many_tools_are_known(
    autojump_clock: trio.testing.MockClock,
) -> None:
    numbers = iter(range(9))

    def answer(request: dict[str, Any]) -> Any:
        number = next(numbers) if request["method"] == "tools/list" else 0
        return shop(SCHEMA, MISSING, name=f"stock{number}")(request)

    async with scripted(answer, limits=Limits(known_tools=2)) as (client, _):
        for _ in range(3):
            await client.tools_page()
        assert len(client._tools) == 2
        await client.call_tool("stock0")
        with pytest.raises(ProtocolViolation):
            await client.call_tool("stock1")


async def test_our_own_servers_results_fit() -> None:
    server = Server("shop", version="1")

    @server.tool
    async def stock(title: str) -> dict[str, int]:
        return {title: 3}

    async with connect(server) as client:
        await listed(client)
        result = await client.call_tool("stock", {"title": "Dune"})
        assert result.structured_content is not None
        assert len(client._tools) == 1
