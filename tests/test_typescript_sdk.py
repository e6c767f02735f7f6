"""Interoperability with the official TypeScript SDK, in both directions, over HTTP and stdio.

Node.js runs their side, and npm gets it, once for all tests of this file. Where a witness stands
between client and server, what both have said is held against the official schema in the end.

Their client speaks 2026-07-28 only if it is told so (`versionNegotiation`): see the last test of
its half. Their server does without an option.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
import trio
from tests.peers import typescript
from tests.peers.fixture_server import Fixtures
from tests.peers.http_log import witnessed
from tests.peers.raw import until
from tests.peers.typescript import PINNED, Mode, TheirClient, TheirServer, TypeScriptSdk

from trio_mcp import (
    CallCancelled,
    CallTimeout,
    CallToolResult,
    CancelSource,
    Client,
    ConnectionLost,
    Context,
    Limits,
    ProgressUpdate,
    Record,
    ServerError,
    State,
    TextContent,
    ToolCall,
    connect,
)
from trio_mcp.runtime.models.results import Result

FIXTURE_SERVER = [sys.executable, str(Path(__file__).parent / "peers" / "fixture_server.py")]
pytestmark = pytest.mark.xdist_group("typescript")  # npm gets it once
MODES = pytest.mark.parametrize("mode", ["auto", PINNED], ids=["auto", "pinned"])
TEXT = "é\u2028“\U0001f4d6”"
REGION = msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})
SIZE = msgspec.Meta(extra_json_schema={"x-mcp-header": "Size"})


@pytest.fixture(scope="session")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> TypeScriptSdk:
    """The SDK, installed for this session, outside of the repository."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"the TypeScript SDK needs {' and '.join(missing)}, not found on PATH")
    return typescript.install(tmp_path_factory.mktemp("typescript"))


# Their client, our server -------------------------------------------------------------------------


class Shop(Fixtures):
    """Our server, with tools that say something before they wait."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.address = ""
        self.port = 0
        self.scope = trio.CancelScope()
        self.server.tool(self.speak)
        self.server.tool(self.buy)

    async def speak(self, s: float, ctx: Context) -> str:
        """Report once, which opens the event stream, then sleep."""
        self.live += 1
        try:
            ctx.progress(1)
            await trio.sleep(s)
            return "spoken"
        finally:
            self.live -= 1

    async def buy(self, region: Annotated[str, REGION], size: Annotated[int, SIZE] = 1) -> str:
        """Arguments that are mirrored into headers."""
        return f"{size} in {region!r}"

    async def recorded(self, tool: str) -> Record:
        """Wait for the record of the one call of a tool."""
        await until(lambda: tool in [record.target for record in self.server.journal], timeout=10)
        (record,) = [record for record in self.server.journal if record.target == tool]
        return record

    async def serve(self, *, task_status: trio.TaskStatus[int]) -> None:
        with self.scope:
            async with trio.open_nursery() as nursery:
                port = await nursery.start(self.server.serve_http, "127.0.0.1", 0)
                task_status.started(port)


@asynccontextmanager
async def serving(**limits: Any) -> AsyncGenerator[Shop, None]:
    """Our server. In the end nothing of its requests may be left."""
    shop = Shop(Limits(**{"drain": 0.3, **limits}))
    async with trio.open_nursery() as nursery:
        shop.port = await nursery.start(shop.serve)
        shop.address = f"http://127.0.0.1:{shop.port}/mcp"
        yield shop
        await until(lambda: shop.live == 0)
        shop.scope.cancel("the test is over")
    assert not shop.server.scopes().children


@MODES
async def test_their_client_lists_and_calls_our_tools(mode: Mode, sdk: TypeScriptSdk) -> None:
    async with serving() as shop, witnessed(shop.port) as log:
        async with sdk.client(log.address, mode) as client:
            assert client.ready == {
                "era": "modern",
                "version": "2026-07-28",
                "server": {"name": "fixtures", "version": "1.0.0"},
            }
            assert {"echo", "add", "sleep", "boom"} <= {*await client.tool_names()}
            assert (await client.call("echo", {"text": TEXT})).text == TEXT
            added = await client.call("add", {"a": 2**52, "b": 1})
            assert added.result["structuredContent"] == 2**52 + 1
            assert added.text == str(2**52 + 1)
            assert client.complaints == []
        assert "initialize" not in [record.method for record in shop.server.journal]
    check = log.check(strict_client=True)
    assert len(check.received) == len(check.sent) == 4


async def test_their_client_gets_our_failures(sdk: TypeScriptSdk) -> None:
    async with serving() as shop, witnessed(shop.port) as log:
        async with sdk.client(log.address) as client:
            failed = await client.call("boom", {"kind": "tool"})
            assert failed.result["isError"] is True
            assert failed.text == "the shop is closed; try again tomorrow"
            wrong = await client.call("echo", {"text": 7})
            assert wrong.result["isError"] is True
            assert "'text'" in wrong.text
            unknown = await client.call("no_such", {})
            assert (unknown.error["name"], unknown.error["code"]) == ("ProtocolError", -32602)
            assert client.complaints == []

            crashed = await client.call("boom", {"kind": "bug"})
            assert (crashed.error["name"], crashed.error["code"]) == ("ProtocolError", -32603)
            assert "secret" not in crashed.error["message"]
            assert (await client.call("echo", {"text": "next"})).text == "next"
    log.check(strict_client=True)


async def test_their_client_gets_our_progress(sdk: TypeScriptSdk) -> None:
    async with serving() as shop, witnessed(shop.port) as log:
        async with sdk.client(log.address) as client:
            ticked = await client.call("tick", {"n": 5, "dt": 0.05}, progress=True)
            assert ticked.text == "ticked"
            assert ticked.progress[-1] == {"progress": 5, "total": 5, "message": "tick 5"}
            seen = [update["progress"] for update in ticked.progress]
            assert seen == sorted({*seen})

            unasked = await client.call("tick", {"n": 2, "dt": 0})
            assert unasked.text == "ticked"
            assert client.complaints == []
    log.check(strict_client=True)


async def test_their_client_bears_our_long_silence(sdk: TypeScriptSdk) -> None:
    """An answer that keeps silent becomes an event stream, with comments to keep it open."""
    async with serving(http_silence=0.1, http_keep_alive=0.1) as shop:
        async with witnessed(shop.port) as log, sdk.client(log.address) as client:
            assert (await client.call("sleep", {"s": 0.5})).text == "slept"
            shop.begun.clear()
            call = await client.start("sleep", {"s": 3600})
            await until(lambda: log.connections[-1].responses[-1].body.endswith(b":\n\n:\n\n"))
            await call.abort("the customer left")
            await until(lambda: shop.live == 0)
            assert (await client.call("echo", {"text": "next"})).text == "next"
            assert client.complaints == []
    log.check(strict_client=True)


async def test_their_client_is_told_that_a_request_is_too_long(sdk: TypeScriptSdk) -> None:
    async with serving(message_bytes=2**20) as shop, sdk.client(shop.address) as client:
        long = "x" * (2**20 - 1000)
        assert (await client.call("echo", {"text": long})).text == long
        for factor in (2, 8):
            refused = await client.call("echo", {"text": long * factor})
            assert refused.error["data"]["status"] == 413
            assert "message_bytes=1048576" in refused.error["message"]
        assert (await client.call("echo", {"text": "next"})).text == "next"


async def test_their_client_mirrors_arguments_into_headers(sdk: TypeScriptSdk) -> None:
    async with serving() as shop, witnessed(shop.port) as log, sdk.client(log.address) as client:
        await client.tool_names()
        for region in ("eu", "Zürich ", "", "=?base64?x?="):
            bought = await client.call("buy", {"region": region, "size": -3})
            assert bought.text == f"-3 in {region!r}"
        assert (await client.call("buy", {"region": "eu"})).text == "1 in 'eu'"
        first, *_, last = log.requests("tools/call")
        assert first.headers["mcp-param-region"] == "eu"
        assert first.headers["mcp-param-size"] == "-3"
        assert "mcp-param-size" not in last.headers


@pytest.mark.parametrize("tool", ["sleep", "speak"], ids=["silent", "after an event"])
async def test_an_abort_signal_of_their_client_stops_our_handler(
    tool: str, sdk: TypeScriptSdk
) -> None:
    async with serving() as shop, sdk.client(shop.address) as client:
        call = await client.start(tool, {"s": 3600}, progress=True)
        await until(lambda: shop.live == 1 and (tool == "sleep" or call.so_far.progress))
        await call.abort("the customer left")
        await until(lambda: shop.live == 0)

        aborted = await call.outcome()
        assert aborted.error["message"] == "the customer left"
        record = await shop.recorded(tool)
        assert (record.state, record.cleanup) == (State.CANCELLED, "clean")
        assert record.cause is not None
        assert record.cause.source is CancelSource.DISCONNECT
        assert (await client.call("echo", {"text": "next"})).text == "next"
        assert client.complaints == []


async def test_a_timeout_of_their_client_stops_our_handler(sdk: TypeScriptSdk) -> None:
    async with serving() as shop, witnessed(shop.port) as log:
        async with sdk.client(log.address) as client:
            given_up = await client.call("sleep", {"s": 3600}, timeout=300)
            assert given_up.error["code"] == "REQUEST_TIMEOUT"
            record = await shop.recorded("sleep")
            assert record.state is State.CANCELLED
            assert record.cause is not None
            assert record.cause.source is CancelSource.DISCONNECT
            assert shop.released == [""]
            assert (await client.call("echo", {"text": "next"})).text == "next"
    assert log.requests("notifications/cancelled") == []
    log.check(strict_client=True)


async def test_our_progress_keeps_a_call_of_their_client_alive(sdk: TypeScriptSdk) -> None:
    async with serving() as shop, sdk.client(shop.address) as client:
        ticked = await client.call(
            "tick",
            {"n": 12, "dt": 0.1},
            progress=True,
            timeout=1000,
            resetTimeoutOnProgress=True,
        )
        assert ticked.text == "ticked"


async def test_their_total_timeout_is_not_told_to_us_before_their_client_ends(
    sdk: TypeScriptSdk,
) -> None:
    """Their client looks at `maxTotalTimeout` when progress comes, and then gives the call up, but
    leaves its stream open: we go on, and each further notification is a complaint there. It also
    leaves the timer of `timeout` behind, which keeps a closed client's process alive."""
    async with serving() as shop:
        async with sdk.client(shop.address) as client:
            given_up = await client.call(
                "tick",
                {"n": 10**6, "dt": 0.02},
                progress=True,
                timeout=1000,
                resetTimeoutOnProgress=True,
                maxTotalTimeout=300,
            )
            assert given_up.error["message"] == "Maximum total timeout exceeded"
            await until(lambda: len(client.complaints) > 2)
            assert "unknown token" in client.complaints[0]
            assert "tick" not in [record.target for record in shop.server.journal]
            assert (await client.call("echo", {"text": "next"})).text == "next"
        record = await shop.recorded("tick")
        assert record.state is State.CANCELLED


async def test_one_abort_of_their_client_leaves_its_other_calls(sdk: TypeScriptSdk) -> None:
    async with serving() as shop, sdk.client(shop.address) as client:
        calls = [
            await client.start("sleep", {"s": 3600 if n == 2 else 1, "label": str(n)})
            for n in range(5)
        ]
        await until(lambda: len(shop.begun) == 5)
        await calls[2].abort("enough")
        await until(lambda: "2" in shop.released)
        outcomes = [await call.outcome() for call in calls]
        assert outcomes.pop(2).error["message"] == "enough"
        assert [outcome.text for outcome in outcomes] == ["slept"] * 4


async def test_closing_their_client_stops_what_it_has_asked_for(sdk: TypeScriptSdk) -> None:
    async with serving() as shop:
        async with sdk.client(shop.address) as client:
            call = await client.start("sleep", {"s": 3600})
            await until(lambda: shop.live == 1)
        record = await shop.recorded("sleep")
        assert record.cause is not None
        assert record.cause.source is CancelSource.DISCONNECT
        assert call.so_far.error["message"] == "Connection closed"


async def test_their_client_is_told_that_our_server_ends(sdk: TypeScriptSdk) -> None:
    async with serving() as shop, sdk.client(shop.address) as client:
        silent = await client.start("sleep", {"s": 3600})
        spoken = await client.start("speak", {"s": 3600}, progress=True)
        await until(lambda: shop.live == 2 and spoken.so_far.progress)
        shop.scope.cancel("the server is shut down")
        assert (await spoken.outcome()).error["code"] == -31002
        refused = await silent.outcome()
        assert refused.error["data"]["status"] == 503
        assert "-31002" in refused.error["message"]


@MODES
async def test_their_client_cancels_over_stdio(mode: Mode, sdk: TypeScriptSdk) -> None:
    async with sdk.client(FIXTURE_SERVER, mode) as client:
        assert client.ready["version"] == "2026-07-28"
        ticked = await client.call("tick", {"n": 3, "dt": 0.02}, progress=True)
        assert [update["progress"] for update in ticked.progress] == [1, 2, 3]
        call = await client.start("sleep", {"s": 3600})
        await until_live(client, 1)
        await call.abort("the customer left")
        assert (await call.outcome()).error["message"] == "the customer left"
        await until_live(client, 0)
        assert client.complaints == []


async def until_live(client: TheirClient, count: int) -> None:
    """Ask a launched fixture server until it has so many live handlers."""
    with trio.fail_after(10):
        while (await client.call("stats", {})).text != str(count):
            pass


async def test_their_client_of_an_earlier_revision_is_refused(sdk: TypeScriptSdk) -> None:
    """Without `versionNegotiation` their client sends `initialize`, without today's headers."""
    async with serving() as shop, sdk.client(shop.address, mode=None) as client:
        assert client.refused["data"]["status"] == 400
        assert "-320" in client.refused["message"]
    async with sdk.client(FIXTURE_SERVER, mode=None) as client:
        assert client.refused["code"] == -32022
        assert client.refused["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}


async def test_over_http_too_a_client_of_an_earlier_revision_is_told_which_we_speak(
    sdk: TypeScriptSdk,
) -> None:
    """*Versioning*, "Backward Compatibility": any error to `initialize` should name them."""
    async with serving() as shop, sdk.client(shop.address, mode=None) as client:
        refused = client.refused["message"]
    assert "2026-07-28" in refused


# Our client, their server -------------------------------------------------------------------------


@pytest.fixture
async def theirs(sdk: TypeScriptSdk) -> AsyncGenerator[TheirServer, None]:
    """Their server, in a process of its own."""
    async with sdk.server() as server:
        yield server


def text_in(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def test_our_client_discovers_lists_and_calls(theirs: TheirServer) -> None:
    async with witnessed(theirs.port) as log:
        async with connect(log.address) as client:
            assert client.server_info is not None
            assert client.server_info.name == "typescript-peer"
            assert client.discovered.supported_versions == ["2026-07-28"]
            tools = {tool.name: tool async for tool in client.tools()}
            assert list(tools) == ["echo", "add", "sleep", "tick", "boom", "buy"]
            assert tools["add"].output_schema is not None

            assert text_in(await client.call_tool("echo", {"text": TEXT})) == TEXT
            added = await client.call_tool("add", {"a": 2**52, "b": 1})
            assert added.structured_content == {"result": 2**52 + 1}
            assert client._connection.violations == 0
    check = log.check(strict_client=True)
    assert len(check.received) == len(check.sent) == 4


async def test_our_client_gets_their_failures(theirs: TheirServer) -> None:
    async with witnessed(theirs.port) as log:
        async with connect(log.address) as client:
            failed = await client.call_tool("boom")
            assert failed.is_error is True
            assert text_in(failed) == "boom"
            wrong = await client.call_tool("echo", {"text": 7})
            assert wrong.is_error is True
            with pytest.raises(ServerError, match="no_such") as unknown:
                await client.call_tool("no_such")
            assert unknown.value.code == -32602
            with pytest.raises(ServerError) as method:
                await client._ask("no/such/method", {}, Result, client._timeouts)
            assert method.value.code == -32601
            assert text_in(await client.call_tool("echo", {"text": "next"})) == "next"
    log.check(strict_client=True)


async def test_our_client_gets_their_progress(theirs: TheirServer) -> None:
    async with witnessed(theirs.port) as log:
        async with connect(log.address) as client:
            updates: list[ProgressUpdate] = []
            arguments = {"n": 3, "dt": 0.05}
            result = await client.call_tool("tick", arguments, on_progress=updates.append)
            assert text_in(result) == "done"
            assert updates == [ProgressUpdate(n, 3, f"tick {n}") for n in (1, 2, 3)]

            slow = await client.call_tool("tick", {"n": 12, "dt": 0.1}, timeout=1)
            assert text_in(slow) == "done"
            assert client._connection.violations == 0
    log.check(strict_client=True)


@pytest.mark.parametrize("shape", ["sse", "json"])
async def test_our_client_takes_either_shape_of_their_answers(
    shape: str, sdk: TypeScriptSdk
) -> None:
    """Their server streams each answer, or none: then it drops progress."""
    async with sdk.server(responseMode=shape, keepAliveMs=50) as theirs:
        async with witnessed(theirs.port) as log, connect(log.address) as client:
            assert text_in(await client.call_tool("echo", {"text": TEXT})) == TEXT
            updates: list[ProgressUpdate] = []
            arguments = {"n": 2, "dt": 0.2}
            ticked = await client.call_tool("tick", arguments, on_progress=updates.append)
            assert text_in(ticked) == "done"
            assert [update.progress for update in updates] == ([1, 2] if shape == "sse" else [])
            assert client._connection.violations == 0
    (connection,) = log.connections
    assert (b"\n:" in connection.responses[-1].body) is (shape == "sse")
    log.check(strict_client=True)


async def test_our_client_is_told_that_a_request_is_too_long(theirs: TheirServer) -> None:
    async with connect(theirs.address) as client:
        long = "x" * 2**20
        assert text_in(await client.call_tool("echo", {"text": long})) == long
        with pytest.raises(ServerError, match="Payload Too Large"):
            await client.call_tool("echo", {"text": long * 4})
        assert text_in(await client.call_tool("echo", {"text": "next"})) == "next"


async def test_our_client_mirrors_arguments_and_they_check_them(theirs: TheirServer) -> None:
    async with connect(theirs.address) as client:
        assert "buy" in [tool.name async for tool in client.tools()]
        for region in ("eu", "Zürich ", "", "=?base64?x?="):
            bought = await client.call_tool("buy", {"region": region, "size": -3})
            assert text_in(bought) == f"-3 in {region}"
        assert text_in(await client.call_tool("buy", {"region": "eu"})) == "1 in eu"
    async with witnessed(theirs.port) as log, connect(log.address) as client:
        bought = await client.call_tool("buy", {"region": "eu"})  # has not listed, so knows nothing
        assert text_in(bought) == "1 in eu"
    (connection,) = log.connections
    methods = [request.json["method"] for request in connection.requests]
    assert methods == ["server/discover", "tools/call", "tools/list", "tools/call"]
    assert [response.status for response in connection.responses] == [200, 400, 200, 200]
    assert connection.responses[1].json["error"]["code"] == -32020


async def give_up_by_scope(client: Client, theirs: TheirServer) -> ToolCall:
    async with client.start_tool("sleep", {"seconds": 60}) as call:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call.result)
            await theirs.noted("sleep started")
            nursery.cancel_scope.cancel()
    return call


async def give_up_by_handle(client: Client, theirs: TheirServer) -> ToolCall:
    async with client.start_tool("sleep", {"seconds": 60}) as call:
        await theirs.noted("sleep started")
        call.cancel("the customer left")
        assert call.state is State.CANCELLING
        with pytest.raises(CallCancelled, match="the customer left"):
            await call.result()
    return call


async def give_up_by_timeout(client: Client, theirs: TheirServer) -> ToolCall:
    async with client.start_tool("sleep", {"seconds": 60}, timeout=1) as call:
        with pytest.raises(CallTimeout) as timeout:
            await call.result()
    assert timeout.value.outcome == "unknown"
    return call


async def give_up_by_max_timeout(client: Client, theirs: TheirServer) -> ToolCall:
    arguments = {"n": 10**6, "dt": 0.05}
    async with client.start_tool("tick", arguments, max_timeout=1) as call:
        with pytest.raises(CallTimeout) as timeout:
            await call.result()
    assert timeout.value.last_progress is not None
    return call


@pytest.mark.parametrize(
    ("give_up", "tool", "source"),
    [
        (give_up_by_scope, "sleep", CancelSource.CALLER),
        (give_up_by_handle, "sleep", CancelSource.CALLER),
        (give_up_by_timeout, "sleep", CancelSource.TIMEOUT),
        (give_up_by_max_timeout, "tick", CancelSource.TIMEOUT),
    ],
    ids=["scope", "handle", "timeout", "max_timeout"],
)
async def test_their_handler_stops_when_our_caller_gives_up(
    give_up: Callable[[Client, TheirServer], Awaitable[ToolCall]],
    tool: str,
    source: CancelSource,
    theirs: TheirServer,
) -> None:
    async with connect(theirs.address) as client:
        call = await give_up(client, theirs)
        record = await call.ended()
        assert record.state is State.CANCELLED
        assert record.cause is not None
        assert record.cause.source is source
        await theirs.noted(f"{tool} aborted")
        assert theirs.notes == [f"{tool} started", f"{tool} aborted: SdkError: Connection closed"]
        assert text_in(await client.call_tool("echo", {"text": "next"})) == "next"
        assert client._connection.violations == 0


async def test_one_call_that_our_client_cancels_leaves_the_others(theirs: TheirServer) -> None:
    results: dict[int, str] = {}

    async def sleep(number: int) -> None:
        arguments = {"seconds": 60 if number == 2 else 1, "label": f"sleep {number}"}
        results[number] = text_in(await client.call_tool("sleep", arguments))

    async with connect(theirs.address) as client, trio.open_nursery() as nursery:
        for number in (0, 1, 3, 4):
            nursery.start_soon(sleep, number)
        async with trio.open_nursery() as given_up:
            given_up.start_soon(sleep, 2)
            for number in range(5):
                await theirs.noted(f"sleep {number} started")
            given_up.cancel_scope.cancel()
        await theirs.noted("sleep 2 aborted")
        assert [note for note in theirs.notes if "aborted" in note] == [theirs.notes[-1]]
    assert results == dict.fromkeys((0, 1, 3, 4), "slept")


async def test_the_death_of_their_server_is_told_to_our_callers(theirs: TheirServer) -> None:
    async with connect(theirs.address) as client:
        async with client.start_tool("sleep", {"seconds": 60}) as call:
            await theirs.noted("sleep started")
            theirs.process.kill()
            with pytest.raises(ConnectionLost):
                await call.result()


async def test_our_client_cancels_their_server_over_stdio(sdk: TypeScriptSdk) -> None:
    async with connect(sdk.command("server.mjs", "--stdio")) as client:
        updates: list[ProgressUpdate] = []
        await client.call_tool("tick", {"n": 3, "dt": 0.02}, on_progress=updates.append)
        assert [update.progress for update in updates] == [1, 2, 3]
        async with client.start_tool("sleep", {"seconds": 60}) as call:
            await until(lambda: "sleep started" in client.stderr_tail, timeout=10)
            call.cancel("the customer left")
        await until(lambda: "sleep aborted: the customer left" in client.stderr_tail, timeout=10)
        assert text_in(await client.call_tool("echo", {"text": "next"})) == "next"
        assert client._connection.violations == 0
