"""Interoperability with the official Python SDK, in both directions, over real pipes.

A witness stands between client and server and writes down each line. What our server said is held
against the official schema in the end, and so is what our client said.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp import MCPError
from mcp_types import (
    BlobResourceContents,
    PromptReference,
    ResourceTemplateReference,
    TextResourceContents,
)
from mcp_types import TextContent as OfficialText
from tests.peers.checked import WireCheck
from tests.peers.inspection import about
from tests.peers.official_client import (
    call_and_cancel,
    call_with_progress,
    official_client,
    text_of,
    tool_names,
)
from tests.peers.raw import until
from tests.peers.wire_log import WireLog, logged

from trio_mcp import (
    CallCancelled,
    CallTimeout,
    CallToolResult,
    CancelSource,
    Client,
    ProgressUpdate,
    ServerError,
    State,
    TextContent,
    ToolCall,
    connect,
)
from trio_mcp.client.wanted import Wanted
from trio_mcp.runtime.models.results import Result

PEERS = Path(__file__).parent / "peers"
TOOLS = ["order_book", "rebuild_index", "stock", "refuse", "crash"]


class Shop:
    """How to launch a server behind a witness, and what came of it."""

    def __init__(self, script: str, folder: Path) -> None:
        self.wire = WireLog(folder / "wire")
        self.command = logged(self.wire.path, [sys.executable, str(PEERS / script)])
        self._notes = folder / "notes"
        self._journal = folder / "journal"
        self.env = {"PEER_LOG": str(self._notes), "JOURNAL_LOG": str(self._journal)}

    def notes(self) -> list[str]:
        return self._notes.read_text("utf-8").splitlines() if self._notes.exists() else []

    def journal(self) -> list[dict[str, Any]]:
        lines = self._journal.read_text("utf-8").splitlines() if self._journal.exists() else []
        return [json.loads(line) for line in lines]

    async def noted(self, *lines: str) -> None:
        """Wait until these notes are there, and no others."""
        await until(lambda: len(self.notes()) >= len(lines), timeout=10)
        assert self.notes() == [*lines]

    async def recorded(self, target: str) -> dict[str, Any]:
        """Wait for the record of the one call of this tool."""
        await until(lambda: target in [record["target"] for record in self.journal()], timeout=10)
        (record,) = [record for record in self.journal() if record["target"] == target]
        return record


def replay(wire: WireLog, *, strict_client: bool) -> WireCheck:
    """Hold all that was said against the official schema."""
    check = WireCheck(strict_client=strict_client)
    for line in wire.lines():
        if line.sender == "client":
            check.client_line(line.text.encode())
        else:
            check.server_line(line.text.encode())
    return check


# Their client, our server -------------------------------------------------------------------------


@pytest.fixture
def bookshop(tmp_path: Path) -> Iterator[Shop]:
    """Our server. Afterwards, each of its lines is held against the schema."""
    shop = Shop("bookshop_server.py", tmp_path)
    yield shop
    assert len(replay(shop.wire, strict_client=False).received) > 0


@pytest.mark.parametrize("mode", ["auto", "2026-07-28"])
async def test_the_official_client_lists_and_calls_our_tools(mode: str, bookshop: Shop) -> None:
    async with official_client(
        bookshop.command, env=bookshop.env, mode=mode, read_timeout=20
    ) as client:
        assert await tool_names(client) == TOOLS

        ordered = await client.call_tool("order_book", {"title": "Dune"})
        assert text_of(ordered) == "Ordered 'Dune'."
        assert not ordered.is_error
        await bookshop.noted("hold Dune", "release Dune")

        counted = await client.call_tool("stock", {"title": "Dune"})
        assert counted.structured_content == {"title": "Dune", "copies": 4}
        assert json.loads(text_of(counted)) == counted.structured_content
    if mode == "auto":
        assert bookshop.wire.sent("initialize") == []


async def test_the_official_client_lists_and_reads_our_resources(bookshop: Shop) -> None:
    async with official_client(bookshop.command, env=bookshop.env, read_timeout=20) as client:
        listed = (await client.list_resources()).resources
        assert [(entry.uri, entry.name, entry.title) for entry in listed] == [
            ("shop://hours", "hours", "Opening hours"),
            ("shop://logo", "logo", None),
        ]
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "stock://{title}{?branch}"
        assert template.description == "How many copies of a book a branch has."

        (hours,) = (await client.read_resource("shop://hours")).contents
        assert isinstance(hours, TextResourceContents)
        assert (hours.text, hours.mime_type) == ("9 to 17", "text/plain")
        (logo,) = (await client.read_resource("shop://logo")).contents
        assert isinstance(logo, BlobResourceContents)
        assert base64.b64decode(logo.blob).startswith(b"\x89PNG")
        (stock,) = (await client.read_resource("stock://D%C3%BCne?branch=7")).contents
        assert isinstance(stock, TextResourceContents)
        assert json.loads(stock.text) == {"title": "Düne", "copies": 7}
        assert stock.mime_type == "application/json"
        for uri in ("stock://Emma", "stock://x?branch=north", "shop://nothing"):
            with pytest.raises(MCPError) as missing:
                await client.read_resource(uri)
            assert (missing.value.code, missing.value.data) == (-32602, {"uri": uri})


async def test_the_official_client_gets_our_progress(bookshop: Shop) -> None:
    titles = [f"book {n}" for n in range(1, 301)]
    async with official_client(bookshop.command, env=bookshop.env, read_timeout=20) as client:
        result, updates = await call_with_progress(client, "rebuild_index", {"titles": titles})

        assert text_of(result) == "Indexed 300 books."
        assert updates[-1] == (300, 300, "book 300")
        assert [update.progress for update in updates] == sorted({u.progress for u in updates})


async def test_the_official_client_gets_our_failures(bookshop: Shop) -> None:
    async with official_client(bookshop.command, env=bookshop.env, read_timeout=20) as client:
        refused = await client.call_tool("refuse", {})
        assert refused.is_error
        assert text_of(refused) == "the shop is closed; try again tomorrow"

        wrong = await client.call_tool("order_book", {"title": 7})
        assert wrong.is_error
        assert "'title'" in text_of(wrong)

        with pytest.raises(MCPError) as crashed:
            await client.call_tool("crash", {})
        assert crashed.value.error.code == -32603
        assert "secret" not in str(crashed.value)

        with pytest.raises(MCPError, match="Unknown tool") as unknown:
            await client.call_tool("order_bok", {})
        assert unknown.value.error.code == -32602


async def test_the_official_client_gets_our_prompts(bookshop: Shop) -> None:
    async with official_client(bookshop.command, env=bookshop.env, read_timeout=20) as client:
        listed = (await client.list_prompts()).prompts
        assert [prompt.name for prompt in listed] == ["recommend", "review"]
        genre, copies = listed[0].arguments or []
        assert (genre.name, genre.description, genre.required) == (
            "genre",
            "What kind of book.",
            True,
        )
        assert (copies.name, copies.required) == ("copies", False)

        got = await client.get_prompt("recommend", {"genre": "crime", "copies": "2"})
        assert got.description == "Ask for a book."
        (message,) = got.messages
        assert message.role == "user"
        assert message.content == OfficialText(type="text", text="Recommend 3 books of crime.")
        review = await client.get_prompt("review", {"title": "Dune"})
        assert [message.role for message in review.messages] == ["user", "assistant"]

        with pytest.raises(MCPError, match="expected one of") as wrong:
            await client.get_prompt("recommend", {"genre": "cooking"})
        assert wrong.value.error.code == -32602
        with pytest.raises(MCPError, match="Unknown prompt") as unknown:
            await client.get_prompt("recomend")
        assert unknown.value.error.code == -32602


async def test_the_official_client_gets_our_completions(bookshop: Shop) -> None:
    recommend = PromptReference(type="ref/prompt", name="recommend")
    review = PromptReference(type="ref/prompt", name="review")
    stock = ResourceTemplateReference(type="ref/resource", uri="stock://{title}{?branch}")
    async with official_client(bookshop.command, env=bookshop.env, read_timeout=20) as client:
        genres = (await client.complete(recommend, {"name": "genre", "value": "PO"})).completion
        assert (genres.values, genres.total, genres.has_more) == (["poetry", "politics"], 2, False)

        titles = (await client.complete(review, {"name": "title", "value": "Du"})).completion
        assert (len(titles.values), titles.total, titles.has_more) == (100, 300, True)
        titles = (await client.complete(stock, {"name": "title", "value": "Dune 29"})).completion
        assert (len(titles.values), titles.total, titles.has_more) == (11, 11, False)

        author = {"name": "author", "value": ""}
        assert (await client.complete(review, author)).completion.values == []
        known = await client.complete(review, author, context_arguments={"title": "Dune 1"})
        assert known.completion.values == ["Frank Herbert"]


async def test_the_official_client_cancels_a_running_order(bookshop: Shop) -> None:
    async with official_client(bookshop.command, env=bookshop.env, read_timeout=20) as client:
        result = await call_and_cancel(
            client,
            "order_book",
            {"title": "Dune", "seconds": 60},
            when=lambda: bookshop.noted("hold Dune"),
        )
        assert result is None
        await bookshop.noted("hold Dune", "release Dune")

        record = await bookshop.recorded("order_book")
        assert record["state"] == "CANCELLED"
        assert record["source"] == "NOTIFICATION"
        assert record["cleanup"] == "clean"

        probe = await client.call_tool("stock", {"title": "It"})  # all that came before is read
        assert probe.structured_content == {"title": "It", "copies": 2}

    (called,) = bookshop.wire.sent("tools/call", "order_book")
    (cancelled,) = bookshop.wire.sent("notifications/cancelled")
    assert cancelled["params"]["requestId"] == called["id"] == record["id"]
    assert record["reason"] == cancelled["params"]["reason"] != ""
    assert about(bookshop.wire.after_cancel(called["id"]), called["id"]) == []
    assert [message["id"] for message in bookshop.wire.after_cancel(called["id"])] != []


async def test_a_timeout_of_the_official_client_stops_our_handler(bookshop: Shop) -> None:
    async with official_client(bookshop.command, env=bookshop.env, read_timeout=10) as client:
        with pytest.raises(MCPError):
            await client.call_tool(
                "order_book", {"title": "Dune", "seconds": 60}, read_timeout_seconds=1
            )
        await bookshop.noted("hold Dune", "release Dune")
        record = await bookshop.recorded("order_book")
        assert (record["state"], record["source"]) == ("CANCELLED", "NOTIFICATION")
        await client.call_tool("stock", {"title": "It"})

    (cancelled,) = bookshop.wire.sent("notifications/cancelled")
    request_id = cancelled["params"]["requestId"]
    assert about(bookshop.wire.after_cancel(request_id), request_id) == []


async def test_cancelling_one_order_of_the_official_client_leaves_the_others(
    bookshop: Shop,
) -> None:
    results: dict[str, str] = {}

    async def order(title: str, seconds: float) -> None:
        arguments = {"title": title, "seconds": seconds}
        results[title] = text_of(await client.call_tool("order_book", arguments))

    async with official_client(bookshop.command, env=bookshop.env, read_timeout=20) as client:
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as given_up:
                    given_up.start_soon(order, "Dune", 60)
                    nursery.start_soon(order, "It", 0.3)
                    await until(lambda: len(bookshop.notes()) == 2, timeout=10)
                    scope.cancel()
        assert results == {"It": "Ordered 'It'."}
        await until(lambda: len(bookshop.notes()) == 4, timeout=10)
    assert {"release Dune", "release It"} <= set(bookshop.notes())


async def test_an_official_client_of_an_earlier_revision_is_told_which_we_speak(
    bookshop: Shop,
) -> None:
    with pytest.RaisesGroup(
        pytest.RaisesExc(MCPError, match="2026-07-28"), allow_unwrapped=True, flatten_subgroups=True
    ):
        async with official_client(bookshop.command, env=bookshop.env, mode="legacy"):
            pytest.fail("connected")


# Our client, their server -------------------------------------------------------------------------


@pytest.fixture
def official(tmp_path: Path) -> Iterator[Shop]:
    """Their server. Afterwards, each line of our client is held against the schema."""
    shop = Shop("official_server.py", tmp_path)
    shop.env = {**os.environ, **shop.env}
    yield shop
    check = WireCheck(strict_client=True)
    for line in shop.wire.lines():
        if line.sender == "client":
            check.client_line(line.text.encode())
    assert len(check.sent) > 0


def text_in(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_our_client_discovers_lists_and_calls(official: Shop) -> None:
    async with connect(official.command, env=official.env) as client:
        assert client.server_info is not None
        assert client.server_info.name == "official-peer"
        assert "2026-07-28" in client.discovered.supported_versions
        assert client.discovered.capabilities.tools is not None

        tools = {tool.name: tool async for tool in client.tools()}
        assert list(tools) == ["echo", "add", "sleep", "tick", "boom", "change"]
        assert tools["add"].input_schema["required"] == ["a", "b"]
        assert tools["add"].output_schema is not None

        assert text_in(await client.call_tool("echo", {"text": "é\u2028“\U0001f4d6”"})) == (
            "é\u2028“\U0001f4d6”"
        )
        added = await client.call_tool("add", {"a": 2**53, "b": 1})
        assert added.structured_content == {"result": 2**53 + 1}
        assert text_in(added) == str(2**53 + 1)


async def test_our_client_gets_their_failures(official: Shop) -> None:
    async with connect(official.command, env=official.env) as client:
        failed = await client.call_tool("boom")
        assert failed.is_error is True
        assert "boom" in text_in(failed)
        with pytest.raises(ServerError) as unknown:
            await client._ask(Wanted("no/such/method", {}), Result, client._timeouts)
        assert unknown.value.code == -32601
        assert text_in(await client.call_tool("echo", {"text": "still here"})) == "still here"


async def test_our_client_gets_their_progress(official: Shop) -> None:
    async with connect(official.command, env=official.env) as client:
        updates: list[ProgressUpdate] = []
        result = await client.call_tool("tick", {"n": 3, "dt": 0.05}, on_progress=updates.append)
        assert text_in(result) == "done"
        assert updates == [ProgressUpdate(n, 3, f"tick {n}") for n in (1, 2, 3)]

        async with client.start_tool("tick", {"n": 2, "dt": 0.05}) as call:
            assert [update.progress async for update in call.progress] == [1, 2]
            assert text_in(await call.result()) == "done"
            assert call.state is State.COMPLETED


async def give_up_by_timeout(client: Client, official: Shop) -> ToolCall:
    async with client.start_tool("sleep", {"seconds": 60}, timeout=1) as call:
        with pytest.raises(CallTimeout) as timeout:
            await call.result()
    assert timeout.value.outcome == "unknown"
    return call


async def give_up_by_scope(client: Client, official: Shop) -> ToolCall:
    async with client.start_tool("sleep", {"seconds": 60}) as call:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call.result)
            await official.noted("sleep started")
            nursery.cancel_scope.cancel()
    return call


async def give_up_by_handle(client: Client, official: Shop) -> ToolCall:
    async with client.start_tool("sleep", {"seconds": 60}) as call:
        await official.noted("sleep started")
        call.cancel("the customer left")
        assert call.state is State.CANCELLING
        with pytest.raises(CallCancelled, match="the customer left"):
            await call.result()
    return call


@pytest.mark.parametrize(
    ("give_up", "source", "reason"),
    [
        (give_up_by_timeout, CancelSource.TIMEOUT, "no answer within timeout=1 s"),
        (give_up_by_scope, CancelSource.CALLER, "the caller was cancelled"),
        (give_up_by_handle, CancelSource.CALLER, "the customer left"),
    ],
    ids=["timeout", "scope", "handle"],
)
async def test_their_handler_stops_when_our_caller_gives_up(
    give_up: Callable[[Client, Shop], Awaitable[ToolCall]],
    source: CancelSource,
    reason: str,
    official: Shop,
) -> None:
    async with connect(official.command, env=official.env) as client:
        call = await give_up(client, official)

        assert call.state in (State.CANCELLING, State.CANCELLED)
        await until(lambda: call.state is State.CANCELLED)
        await official.noted("sleep started", "sleep released")
        assert call.cause is not None
        assert call.cause.source is source
        assert text_in(await client.call_tool("echo", {"text": "next"})) == "next"
        assert call.record is not None
        assert call.record.state is State.CANCELLED

    (called,) = official.wire.sent("tools/call", "sleep")
    (cancelled,) = official.wire.sent("notifications/cancelled")
    assert cancelled["params"] == {"requestId": called["id"], "reason": reason}
    assert type(cancelled["params"]["requestId"]) is type(called["id"])


async def test_cancelling_the_scope_around_our_call_is_all_it_takes(official: Shop) -> None:
    async with connect(official.command, env=official.env) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "sleep", {"seconds": 60})
            await official.noted("sleep started")
            nursery.cancel_scope.cancel()
        await official.noted("sleep started", "sleep released")
    (called,) = official.wire.sent("tools/call")
    (cancelled,) = official.wire.sent("notifications/cancelled")
    assert cancelled["params"]["requestId"] == called["id"]


async def test_leaving_our_client_ends_their_server(official: Shop) -> None:
    """A call in flight is cancelled with its block, and the process is gone in bounded time."""
    with trio.move_on_after(10) as outer:
        async with connect(official.command, env=official.env) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "sleep", {"seconds": 60})
                await official.noted("sleep started")
                nursery.cancel_scope.cancel()
    assert not outer.cancelled_caught
    await official.noted("sleep started", "sleep released")
