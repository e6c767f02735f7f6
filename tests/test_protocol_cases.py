"""Progress, pagination, errors, ids, results: the faults from the field, on the level of bytes.

Every line of the server is held against the official schema, by the definition of its method; a
request that got a result must have been valid itself.
"""

from __future__ import annotations

import base64
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import jsonschema_rs
import msgspec
import pytest
import trio
import trio.testing
from tests.peers.checked import checked_client
from tests.peers.fixture_server import Fixtures
from tests.peers.inspection import answers
from tests.peers.raw import META, RawPeer, call, request, text_of
from tests.peers.returning import ABSENT, BROKEN, NON_FINITE, RETURNS

from trio_mcp import CacheHint, Context, Limits, ProtocolError, Server, ToolError
from trio_mcp.handlers.pagination import Cursors
from trio_mcp.runtime.eras.revision_2026_07_28 import Revision20260728
from trio_mcp.runtime.models.base import Implementation

VERSION = "2026-07-28"
PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"

IDS: list[Any] = [
    "1",
    1,
    0,
    -1,
    "init-1",
    "",
    "é",
    "\u0000\n\u2028\U0001f4d6",
    "x" * 4096,
    2**53 + 1,
    -(2**63) - 1,
    10**30,
]
NO_IDS = [b"null", b"true", b"false", b"1.0", b"1.5", b"1e0", b"-0.0", b"[]", b"[1]", b"{}"]


def named(value: Any) -> str:
    text = value.decode() if isinstance(value, bytes) else repr(value)
    return text if len(text) < 30 else f"{text[:12]}…{len(text)}"


def progress_in(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [m for m in messages if m.get("method") == "notifications/progress"]
    return [message["params"] for message in found]


# Ids ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_id", IDS, ids=named)
async def test_ids_are_echoed_with_their_type(
    request_id: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with checked_client(Fixtures().server) as peer:
        await peer.send(
            call(request_id, "echo", text="x"),
        )
        message = await peer.receive()
        assert (type(message["id"]), message["id"]) == (type(request_id), request_id)
        assert text_of(message) == "x"

        await peer.send(call(request_id, "boom", kind="bug"))
        message = await peer.receive()
        assert (type(message["id"]), message["id"]) == (type(request_id), request_id)
        assert message["error"]["code"] == -32603

        await peer.send(request(request_id, "no/such/method"))
        message = await peer.receive()
        assert (type(message["id"]), message["id"]) == (type(request_id), request_id)


async def test_ids_that_look_alike_are_different(autojump_clock: trio.testing.MockClock) -> None:
    async with checked_client(Fixtures().server) as peer:
        ids = [1, "1", "01", 0, "", "0", -1, "-1"]
        await peer.send(*(call(request_id, "echo", text=repr(request_id)) for request_id in ids))
        for request_id, message in zip(ids, await answers(peer, *ids), strict=True):
            assert text_of(message) == repr(request_id)


@pytest.mark.parametrize("request_id", NO_IDS, ids=named)
async def test_what_is_no_id_is_refused_and_not_run(
    request_id: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        line = json.dumps(call("@", "sleep", s=0)).encode().replace(b'"@"', request_id)
        await peer.send(line)
        (message,) = await peer.probe()
        assert "id" not in message
        assert message["error"]["code"] == -32600
    assert fixtures.begun == []


@pytest.mark.parametrize("request_id", ["x" * 11, 10**20, -(10**20)], ids=named)
async def test_invariant_9_an_endless_id_is_refused_and_not_echoed(
    request_id: Any, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures(Limits(id_length=10))
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(request_id, "sleep", s=0))
        (message,) = await peer.probe()
        assert "id" not in message
        assert message["error"]["code"] == -32600
    assert fixtures.begun == []


# Progress -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", IDS, ids=named)
async def test_progress_tokens_are_echoed_with_their_type(
    token: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async with checked_client(Fixtures().server) as peer:
        await peer.send(call("call", "tick", token=token, n=3, dt=1))
        await peer.answer("call")
        reports = progress_in(peer.seen)
        assert [report["progress"] for report in reports] == [1, 2, 3]
        for report in reports:
            assert (type(report["progressToken"]), report["progressToken"]) == (type(token), token)
            assert report["total"] == 3
            assert report["message"] == f"tick {report['progress']}"


@pytest.mark.parametrize("meta", [{}, {"progresstoken": 1}, {"example.com/progressToken": 1}])
async def test_no_progress_token_is_invented(
    meta: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    async with checked_client(Fixtures().server) as peer:
        params = {"name": "tick", "arguments": {"n": 3, "dt": 1}, "_meta": meta}
        await peer.send(request(1, "tools/call", params))
        await peer.answer(1)
        assert progress_in(peer.seen) == []


@pytest.mark.parametrize("token", [True, False, 1.0, 1.5, [], [1], {}], ids=repr)
async def test_what_is_no_progress_token_is_refused(
    token: Any, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", token=token, s=0))
        error = (await peer.answer(1))["error"]
        assert error["code"] == -32602
        assert "progressToken" in error["message"]
    assert fixtures.begun == []


@pytest.mark.parametrize("token", ["x" * 11, 10**20], ids=named)
async def test_invariant_9_an_endless_progress_token_is_refused(
    token: Any, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures(Limits(id_length=10))
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", token=token, s=0))
        message = await peer.answer(1)
        assert message.get("error", {}).get("code") == -32602, message
    assert fixtures.begun == []


async def test_progress_increases_strictly(autojump_clock: trio.testing.MockClock) -> None:
    server = Server("reporter", version="1", limits=Limits(progress_interval=0.5))

    @server.tool
    async def report(values: list[float], ctx: Context) -> str:
        for value in values:
            ctx.progress(value)
            await trio.sleep(1)
        return "reported"

    async with checked_client(server) as peer:
        values = [-1, 0, 0, -5, 0.5, 0.5, 1, 0.25, 2, 2.0, 10**20, 3]
        await peer.send(call(1, "report", token="t", values=values))
        await peer.answer(1, timeout=60)
        reports = progress_in(peer.seen)
        assert [report["progress"] for report in reports] == [-1, 0, 0.5, 1, 2, 10**20]
        assert all(report.keys() == {"progressToken", "progress"} for report in reports)


async def test_progress_that_is_no_finite_number_is_refused_in_the_handler(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server("reporter", version="1")
    refused: list[Any] = []

    @server.tool
    async def report(ctx: Context) -> str:
        wrong: list[tuple[Any, ...]] = [
            (float("nan"),),
            (float("inf"),),
            (float("-inf"),),
            (1, float("nan")),
            (1, float("inf")),
            (True,),
            ("1",),
            (None,),
            (1, "2"),
            (1, 2, 3),
            (10**400,),
        ]
        for arguments in wrong:
            try:
                ctx.progress(*arguments)
            except (ValueError, TypeError):
                refused.append(arguments)
        return f"{len(wrong) - len(refused)} were taken"

    async with checked_client(server) as peer:
        await peer.send(call(1, "report", token="t"))
        message = await peer.answer(1)
        assert progress_in(peer.seen) == []
        assert "error" not in message
        assert text_of(message) == "0 were taken"


async def test_progress_that_cannot_be_sent_hurts_nobody_else(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A file name with bytes that are no UTF-8 is a ``str`` in Python, and no JSON."""
    server = Fixtures().server

    @server.tool
    async def read_file(ctx: Context) -> str:
        ctx.progress(1, 2, b"caf\xe9.txt".decode(errors="surrogateescape"))
        await trio.sleep(1)
        ctx.progress(2, 2, "done")
        await trio.sleep(1)
        return "read"

    async with checked_client(server) as peer:
        await peer.send(call(1, "read_file", token=1), call(2, "sleep", s=3))
        await peer.answer(1)
        assert text_of(await peer.answer(2)) == "slept"


async def test_progress_is_coalesced_and_the_last_report_goes_before_the_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with checked_client(Fixtures(Limits(progress_interval=1)).server) as peer:
        await peer.send(call(1, "tick", token=1, n=1001, dt=0.01))  # for ten seconds
        await peer.answer(1, timeout=60)
        reports = progress_in(peer.seen)
        assert reports[0]["progress"] == 1  # the first one at once
        assert 10 <= len(reports) <= 12
        assert reports[-1]["progress"] == 1001
        assert peer.seen[-1]["id"] == 1
        assert await peer.probe() == []
        await peer.silence(10)


async def test_invariant_9_progress_waits_in_one_place_while_nobody_reads(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures(Limits(progress_interval=0.001, stall=1000))
    async with checked_client(fixtures.server, trio.testing.lockstep_stream_pair) as peer:
        await peer.send(call(1, "tick", token=1, n=1000, dt=0.01))
        await trio.sleep(60)  # the handler has long finished
        await peer.answer(1)
        assert [report["progress"] for report in progress_in(peer.seen)] == [1, 1000]


async def test_progress_of_two_requests_does_not_mix(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with checked_client(Fixtures().server) as peer:
        await peer.send(
            call(1, "tick", token="1", n=5, dt=1), call("1", "tick", token=1, n=3, dt=2)
        )
        await answers(peer, 1, "1", timeout=60)
        reports = progress_in(peer.seen)
        assert [r["progress"] for r in reports if r["progressToken"] == "1"] == [1, 2, 3, 4, 5]
        assert [r["progress"] for r in reports if r["progressToken"] == 1] == [1, 2, 3]


async def test_nothing_is_reported_after_the_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Fixtures().server
    kept: list[Context] = []

    @server.tool
    async def keep(ctx: Context) -> str:
        kept.append(ctx)
        ctx.progress(1)
        return "kept"

    async with checked_client(server) as peer:
        await peer.send(call(1, "keep", token=1))
        await peer.answer(1)
        kept[0].progress(2)
        await trio.sleep(1)
        assert await peer.probe() == []


async def test_progress_from_threads_keeps_all_the_rules() -> None:
    server = Fixtures().server
    after: list[threading.Thread] = []

    @server.tool
    def count(n: int, ctx: Context) -> str:
        for done in range(1, n + 1):
            ctx.progress(done, n, f"counted {done}")
        return "counted"

    @server.tool
    def lingers(ctx: Context) -> str:
        after.append(threading.Thread(target=ctx.progress, args=(1,)))
        return "over"

    async with checked_client(server) as peer:
        ids = list(range(20))
        await peer.send(*(call(n, "count", token=f"t{n}", n=1000) for n in ids))
        await answers(peer, *ids)
        for n in ids:
            at = next(i for i, m in enumerate(peer.seen) if m.get("id") == n)
            reports = [r for r in progress_in(peer.seen[:at]) if r["progressToken"] == f"t{n}"]
            assert reports[-1] == {
                "progressToken": f"t{n}",
                "progress": 1000,
                "total": 1000,
                "message": "counted 1000",
            }

        await peer.send(call("over", "lingers", token="over"))
        await peer.answer("over")
        after[0].start()
        await trio.to_thread.run_sync(after[0].join)
        assert await peer.probe() == []


# Pagination ---------------------------------------------------------------------------------------


def library(tools: int, page_size: int = 3, secret: str | None = None) -> Server:
    server = Server("library", version="1", limits=Limits(page_size=page_size), secret=secret)
    for n in range(tools):
        add_tool(server, f"tool{n}")
    return server


def add_tool(server: Server, name: str) -> None:
    async def tool(text: str) -> str:
        return text

    server.tool(name=name)(tool)


async def page(peer: RawPeer, cursor: Any = None) -> dict[str, Any]:
    """One answer to ``tools/list``."""
    params = {} if cursor is None else {"cursor": cursor}
    await peer.send(request("page", "tools/list", params))
    return await peer.answer("page")


async def first_cursor(peer: RawPeer) -> str:
    cursor: str = (await page(peer))["result"]["nextCursor"]
    return cursor


async def walk(peer: RawPeer, between: Callable[[], None] = lambda: None) -> list[list[str]]:
    """The names of all tools, page by page."""
    pages: list[list[str]] = []
    cursor = None
    while True:
        result = (await page(peer, cursor))["result"]
        pages.append([tool["name"] for tool in result["tools"]])
        if "nextCursor" not in result:
            return pages
        cursor = result["nextCursor"]
        between()


@pytest.mark.parametrize(
    ("tools", "sizes"),
    [(0, [0]), (1, [1]), (3, [3]), (4, [3, 1]), (9, [3, 3, 3]), (10, [3] * 3 + [1])],
)
async def test_pages_walk_through_all_tools_in_their_order(
    tools: int, sizes: list[int], autojump_clock: trio.testing.MockClock
) -> None:
    async with checked_client(library(tools)) as peer:
        pages = await walk(peer)
        assert [len(names) for names in pages] == sizes
        assert [*itertools.chain(*pages)] == [f"tool{n}" for n in range(tools)]
        assert await walk(peer) == pages


async def test_pages_are_stable_when_tools_are_added_meanwhile(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = library(7)
    added = iter(f"added{n}" for n in range(100))
    async with checked_client(server) as peer:
        pages = await walk(peer, lambda: add_tool(server, next(added)))
        names = [*itertools.chain(*pages)]
        assert names[:7] == [f"tool{n}" for n in range(7)]
        assert len(set(names)) == len(names)
        assert names[7:] == [f"added{n}" for n in range(len(names) - 7)]


async def test_a_cursor_may_be_used_again(autojump_clock: trio.testing.MockClock) -> None:
    async with checked_client(library(7)) as peer:
        cursor = await first_cursor(peer)
        assert (await page(peer, cursor))["result"]["tools"][0]["name"] == "tool3"
        assert (await page(peer, cursor))["result"]["tools"][0]["name"] == "tool3"


def decoded(cursor: str) -> bytes:
    """What a cursor says, as lenient as Base64 can be read; a few spellings mean the same."""
    try:
        return base64.urlsafe_b64decode(cursor)
    except ValueError:
        return b""


async def test_a_forged_cursor_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    async with checked_client(library(7)) as peer:
        cursor = await first_cursor(peer)
        forged = [cursor[:50], cursor[:-8], cursor[4:], "AAAA" + cursor]
        for at in range(0, len(cursor), 7):
            other = "A" if cursor[at] != "A" else "B"
            forged.append(cursor[:at] + other + cursor[at + 1 :])
        forged = [wrong for wrong in forged if decoded(wrong) != decoded(cursor)]
        assert len(forged) > 15
        for wrong in forged:
            error = (await page(peer, wrong))["error"]
            assert error["code"] == -32602
            assert "cursor" in error["message"]


@pytest.mark.parametrize(
    "cursor",
    ["", " ", "0", "3", "abc", "====", "é", "\u0000", "null", "A" * 100_000, "gAAAAA=="],
    ids=named,
)
async def test_a_bad_cursor_is_refused(cursor: str, autojump_clock: trio.testing.MockClock) -> None:
    async with checked_client(library(7)) as peer:
        error = (await page(peer, cursor))["error"]
        assert error["code"] == -32602
        assert len(error["message"]) < 200
        assert await peer.probe("tool0") == []


@pytest.mark.parametrize("cursor", [0, 1, 1.5, True, [], {}], ids=repr)
async def test_a_cursor_is_a_string(cursor: Any, autojump_clock: trio.testing.MockClock) -> None:
    async with checked_client(library(7)) as peer:
        error = (await page(peer, cursor))["error"]
        assert error["code"] == -32602
        assert "cursor" in error["message"]


async def test_a_foreign_cursor_is_refused(autojump_clock: trio.testing.MockClock) -> None:
    cursors = Cursors("our secret")
    foreign = [
        cursors.seal("resources", 3),  # another list of ours
        cursors.seal("", 3),
        Cursors("another secret").seal("tools", 3),
        Cursors(None).seal("tools", 3),
    ]
    async with checked_client(library(7, secret="our secret")) as peer:
        for cursor in foreign:
            assert (await page(peer, cursor))["error"]["code"] == -32602
        assert "result" in await page(peer, cursors.seal("tools", 3))


async def test_cursors_survive_a_restart_only_with_a_secret(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for secret, survives in (("s", True), (None, False)):
        async with checked_client(library(7, secret=secret)) as before:
            cursor = await first_cursor(before)
        async with checked_client(library(7, secret=secret)) as after:
            assert ("result" in await page(after, cursor)) is survives


async def test_caching_hints_are_the_same_on_all_pages_and_in_discovery(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Server(
        "cached",
        version="1",
        limits=Limits(page_size=1),
        cache=CacheHint(ttl=1.5, scope="public"),
    )
    add_tool(server, "one")
    add_tool(server, "two")
    async with checked_client(server) as peer:
        first = (await page(peer))["result"]
        second = (await page(peer, first["nextCursor"]))["result"]
        await peer.send(request(1, "server/discover"))
        discovered = (await peer.answer(1))["result"]
        for result in (first, second, discovered):
            assert (result["ttlMs"], result["cacheScope"]) == (1500, "public")


# Metadata and versions ----------------------------------------------------------------------------


async def test_discovery_says_what_the_server_is(autojump_clock: trio.testing.MockClock) -> None:
    server = Server("bookshop", version="1.2.3", title="A bookshop", instructions="Ask for books.")
    async with checked_client(server) as peer:
        await peer.send(request("discover", "server/discover"))
        result = (await peer.answer("discover"))["result"]
        assert result["supportedVersions"] == [VERSION]
        assert result["capabilities"] == {"tools": {"listChanged": True}, "logging": {}}
        assert result["instructions"] == "Ask for books."
        info = {"name": "bookshop", "version": "1.2.3", "title": "A bookshop"}
        assert result["_meta"] == {"io.modelcontextprotocol/serverInfo": info}
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in META.items() if name != key}


def with_params(params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


SLEEP: dict[str, Any] = {"name": "sleep", "arguments": {"s": 0}}


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call"},
        with_params(None),
        with_params([]),
        with_params("sleep"),
        with_params(SLEEP),
        with_params({**SLEEP, "_meta": None}),
        with_params({**SLEEP, "_meta": []}),
        with_params({**SLEEP, "_meta": {}}),
        with_params({**SLEEP, "_meta": without(PROTOCOL_VERSION)}),
        with_params({**SLEEP, "_meta": without(CAPABILITIES)}),
        with_params({**SLEEP, "_meta": {**META, PROTOCOL_VERSION: None}}),
        with_params({**SLEEP, "_meta": {**META, PROTOCOL_VERSION: 20260728}}),
        with_params({**SLEEP, "_meta": {**META, PROTOCOL_VERSION: [VERSION]}}),
        with_params({**SLEEP, "_meta": {**META, CAPABILITIES: None}}),
        with_params({**SLEEP, "_meta": {**META, CAPABILITIES: []}}),
        with_params({**SLEEP, "_meta": {**META, CAPABILITIES: {"roots": True}}}),
        with_params({**SLEEP, "_meta": {**META, CLIENT_INFO: "raw"}}),
        with_params({**SLEEP, "_meta": {**META, CLIENT_INFO: {"name": "raw"}}}),
        with_params({**SLEEP, "_meta": {**META, CLIENT_INFO: {"name": 1, "version": "1"}}}),
    ],
    ids=lambda message: named(message.get("params", "no params")),
)
async def test_missing_or_broken_metadata_is_a_matter_of_params(
    message: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(message)
        error = (await peer.answer(1))["error"]
        assert error["code"] == -32602
        assert "nsupported" not in error["message"]
    assert fixtures.begun == []


async def test_a_client_may_keep_its_name_to_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(with_params({**SLEEP, "_meta": without(CLIENT_INFO)}))
        assert text_of(await peer.answer(1)) == "slept"
        assert await peer.probe() == []
    record, _ = fixtures.server.journal
    assert record.peer is None


async def test_metadata_counts_for_its_own_request_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The protocol is stateless: what an earlier request said is no excuse."""
    server = Fixtures().server
    clients: list[Any] = []

    @server.tool
    async def who(ctx: Context) -> None:
        assert ctx.client_info is not None
        clients.append((ctx.client_info.name, ctx.client_capabilities.roots))

    first = {CLIENT_INFO: {"name": "one", "version": "1"}, CAPABILITIES: {"roots": {}}}
    async with checked_client(server) as peer:
        await peer.send(request(1, "tools/call", {"name": "who", "_meta": first}))
        await peer.answer(1)
        await peer.send(call(2, "who"))
        await peer.answer(2)
        for missing in (CAPABILITIES, PROTOCOL_VERSION):
            await peer.send(with_params({"name": "who", "_meta": without(missing)}))
            assert (await peer.answer(1))["error"]["code"] == -32602
    assert clients == [("one", {}), ("raw", None)]


@pytest.mark.parametrize("version", ["1900-01-01", "2025-11-25", "2026-07-29", "", "v" * 1000])
@pytest.mark.parametrize("method", ["tools/call", "tools/list", "server/discover"])
async def test_an_unknown_version_is_answered_with_those_that_are_known(
    version: str, method: str, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        params = SLEEP if method == "tools/call" else {}
        await peer.send(request(1, method, {**params, "_meta": {PROTOCOL_VERSION: version}}))
        error = (await peer.answer(1))["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": [VERSION], "requested": version}
        assert await peer.probe() == []
    assert fixtures.begun == []


@pytest.mark.parametrize(
    "params",
    [
        {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "old", "version": "1"},
        },
        {"protocolVersion": 7},
        {},
        {"_meta": {}},
    ],
    ids=["as it was", "broken", "empty", "without a version"],
)
async def test_initialize_is_answered_with_the_versions_that_are_known(
    params: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    async with checked_client(Fixtures().server) as peer:
        await peer.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        error = (await peer.answer(0))["error"]
        assert VERSION in error["message"]
        assert error["data"]["supported"] == [VERSION]
        await peer.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert await peer.probe() == []


async def test_initialize_in_our_own_revision_is_a_method_like_any_that_does_not_exist() -> None:
    async with checked_client(Fixtures().server) as peer:
        await peer.send(request(0, "initialize"))
        assert (await peer.answer(0))["error"]["code"] == -32601


# Methods, tools, arguments ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        "",
        "tools",
        "tools/Call",
        "tools/call/",
        "ping",
        "rpc.discover",
        "resources/list",
        "m" * 9999,
    ],
    ids=named,
)
async def test_an_unknown_method(method: str, autojump_clock: trio.testing.MockClock) -> None:
    async with checked_client(Fixtures(Limits(text_length=100)).server) as peer:
        await peer.send(request(1, method, SLEEP))
        error = (await peer.answer(1))["error"]
        assert error["code"] == -32601
        assert len(error["message"]) < 150
        assert method[:100] in error["message"]


@pytest.mark.parametrize("name", ["", "Echo", "echo ", "n" * 9999], ids=named)
async def test_an_unknown_tool(name: str, autojump_clock: trio.testing.MockClock) -> None:
    async with checked_client(Fixtures().server) as peer:
        await peer.send(call(1, name, text="x"))
        error = (await peer.answer(1))["error"]
        assert error["code"] == -32602
        assert name[:100] in error["message"]
        assert len(error["message"]) < 200


@pytest.mark.parametrize(
    "params",
    [
        {"arguments": {"s": 0}},
        {"name": 7, "arguments": {"s": 0}},
        {"name": None},
        {"name": "sleep", "arguments": []},
        {"name": "sleep", "arguments": "s=0"},
        {"name": "sleep", "arguments": {"s": 0}, "requestState": 7},
    ],
    ids=named,
)
async def test_params_that_are_no_call(
    params: dict[str, Any], autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(request(1, "tools/call", params))
        assert (await peer.answer(1))["error"]["code"] == -32602
    assert fixtures.begun == []


@pytest.mark.parametrize(
    ("arguments", "named_argument"),
    [
        ({}, "s"),
        ({"s": "1"}, "s"),
        ({"s": True}, "s"),
        ({"s": None}, "s"),
        ({"s": 0, "label": 7}, "label"),
        ({"s": 0, "colour": "red"}, "colour"),
        ({"s": 0, "ctx": {}}, "ctx"),
    ],
    ids=named,
)
async def test_bad_arguments_are_told_to_the_model(
    arguments: dict[str, Any], named_argument: str, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(call(1, "sleep", **arguments))
        message = await peer.answer(1)
        assert message["result"]["isError"] is True
        assert "structuredContent" not in message["result"]
        assert f"'{named_argument}'" in text_of(message)
    assert fixtures.begun == []


async def test_no_arguments_are_an_empty_object(autojump_clock: trio.testing.MockClock) -> None:
    async with checked_client(Fixtures().server) as peer:
        await peer.send(request(1, "tools/call", {"name": "stats"}))
        assert text_of(await peer.answer(1)) == "0"


async def test_members_that_nobody_knows_are_ignored(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with checked_client(Fixtures().server) as peer:
        meta = {"example.com/key": {"deep": [None]}, "traceparent": "00-0af7-00f0-01"}
        params = {"name": "echo", "arguments": {"text": "x"}, "later": 1, "_meta": meta}
        await peer.send({**request(1, "tools/call", params), "extra": True})
        assert text_of(await peer.answer(1)) == "x"


# Failures -----------------------------------------------------------------------------------------


async def test_a_failure_of_the_tool_itself_is_told_to_the_model(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with checked_client(Fixtures().server) as peer:
        await peer.send(call(1, "boom", kind="tool"), call(2, "boom", kind="group"))
        plain, grouped = await answers(peer, 1, 2)
        assert text_of(plain) == "the shop is closed; try again tomorrow"
        assert text_of(grouped) == "from a nursery"
        assert plain["result"]["isError"] is True
        assert grouped["result"]["isError"] is True


class Quits(BaseException):
    """Not an ``Exception``, like those of other event loops."""


FAILURES: list[BaseException] = [
    RuntimeError("the secret detail"),
    KeyError("the secret detail"),
    AssertionError("the secret detail"),
    OSError(2, "the secret detail", "/the/secret/path"),
    ExceptionGroup("the secret detail", [ValueError("the secret detail")]),
    ExceptionGroup("the secret detail", [ToolError("the secret detail"), ValueError()]),
    BaseExceptionGroup("the secret detail", [Quits("the secret detail")]),
    trio.TooSlowError("the secret detail"),
    StopAsyncIteration("the secret detail"),
    RecursionError("the secret detail"),
    MemoryError("the secret detail"),
    SystemExit("the secret detail"),
    Quits("the secret detail"),
]


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_invariant_6_a_crash_is_an_internal_error_without_details(
    failure: BaseException, thread: bool
) -> None:
    server = Fixtures().server

    def crash_in_thread() -> str:
        raise failure

    async def crash() -> str:
        raise failure

    server.tool(name="crash")(crash_in_thread if thread else crash)
    async with checked_client(server) as peer:
        await peer.send(call(1, "crash"))
        message = await peer.answer(1)
        assert message["error"]["code"] == -32603
        assert "secret" not in str(message)
        assert type(failure).__name__ not in str(message)
        assert "data" not in message["error"]
        assert await peer.probe() == []


async def test_a_protocol_error_of_a_handler_goes_out_as_it_is(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Fixtures().server

    @server.tool
    async def refuse(plain: bool) -> str:
        raise ProtocolError(1234, "not today", {"until": "tomorrow"} if plain else object())

    async with checked_client(server) as peer:
        await peer.send(call(1, "refuse", plain=True), call(2, "refuse", plain=False))
        refused, unprintable = await answers(peer, 1, 2)
        assert refused["error"] == {
            "code": 1234,
            "message": "not today",
            "data": {"until": "tomorrow"},
        }
        assert unprintable["error"]["code"] == -32603


async def test_an_oversize_answer_names_the_limit(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with checked_client(Fixtures(Limits(message_bytes=10_000)).server) as peer:
        await peer.send(call(1, "big", bytes=10_000), call(2, "big", bytes=1000))
        large, small = await answers(peer, 1, 2)
        assert large["error"]["code"] == -32603
        assert "message_bytes=10000" in large["error"]["message"]
        assert text_of(small) == "x" * 1000


# What needs no answer -----------------------------------------------------------------------------


def unanswered() -> Iterator[Any]:
    for method in (
        "notifications/unknown",
        "notifications/initialized",
        "tools/call",
        "",
        "x" * 9999,
    ):
        yield {"jsonrpc": "2.0", "method": method}
    odd: tuple[Any, ...] = (None, [], {}, 7, "x", SLEEP)
    for params in odd:
        yield {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
    yield {"jsonrpc": "2.0", "method": "tools/call", "params": {**SLEEP, "_meta": META}}
    yield {"jsonrpc": "2.0", "id": 1, "result": {}}
    yield {"jsonrpc": "2.0", "id": "PROBE", "result": {"resultType": "complete"}}
    yield {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no"}}
    yield {"jsonrpc": "2.0", "error": {"code": -1, "message": "no"}}
    yield {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}}


@pytest.mark.parametrize("message", [*unanswered()], ids=named)
async def test_notifications_and_answers_get_no_reply(
    message: Any, autojump_clock: trio.testing.MockClock
) -> None:
    fixtures = Fixtures()
    async with checked_client(fixtures.server) as peer:
        await peer.send(message)
        assert await peer.probe() == []
        await peer.silence(10)
    assert fixtures.begun == []


# Results ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "content", "structured"), RETURNS, ids=[tool.__name__ for tool, _, _ in RETURNS]
)
@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_everything_a_tool_can_return(
    tool: Callable[[], Any], content: list[dict[str, Any]] | None, structured: Any, thread: bool
) -> None:
    server = Server("returning", version="1")
    server.tool(tool if thread else awaitable(tool))
    async with checked_client(server) as peer:
        (definition,) = (await page(peer))["result"]["tools"]
        await peer.send(call(1, tool.__name__))
        result = (await peer.answer(1))["result"]

    assert result["resultType"] == "complete"
    assert result.get("structuredContent", ABSENT) == structured
    if content is not None:
        assert result["content"] == content
        assert "outputSchema" not in definition
    else:
        (block,) = result["content"]
        assert json.loads(block["text"]) == structured
        validator = jsonschema_rs.Draft202012Validator(definition["outputSchema"])
        assert [error.message for error in validator.iter_errors(structured)] == []


def awaitable(tool: Callable[[], Any]) -> Callable[[], Any]:
    """The same as an ``async def`` function."""

    async def returns() -> Any:
        return tool()

    returns.__name__ = tool.__name__
    returns.__annotations__ = get_type_hints(tool)
    return returns


@pytest.mark.parametrize("tool", BROKEN, ids=[tool.__name__ for tool in BROKEN])
async def test_a_result_that_is_none_is_an_internal_error(
    tool: Callable[[], Any], autojump_clock: trio.testing.MockClock
) -> None:
    server = Fixtures().server
    server.tool(awaitable(tool))
    async with checked_client(server) as peer:
        await peer.send(call(1, tool.__name__))
        message = await peer.answer(1)
        assert message["error"]["code"] == -32603
        assert "secret" not in str(message)
        assert await peer.probe() == []


@pytest.mark.parametrize("tool", NON_FINITE, ids=[tool.__name__ for tool in NON_FINITE])
async def test_a_number_that_json_does_not_have_is_a_clear_error(
    tool: Callable[[], Any], autojump_clock: trio.testing.MockClock
) -> None:
    server = Fixtures().server
    server.tool(awaitable(tool))
    async with checked_client(server) as peer:
        await peer.send(call(1, tool.__name__))
        error = (await peer.answer(1))["error"]
        assert error["code"] == -32603
        assert "nan" in error["message"] or "inf" in error["message"]
        assert await peer.probe() == []


def test_requests_share_the_long_names_of_their_metadata() -> None:
    era = Revision20260728(Implementation("test", "1"), 100)
    metas = []
    for _ in range(2):
        params = msgspec.json.decode(msgspec.json.encode({"_meta": {**META, "mine": 1}}))
        era.read_metadata(params)
        metas.append(params["_meta"])
        assert params["_meta"] == {**META, "mine": 1}
    for one, other in zip(*metas, strict=True):
        assert one is other or one == "mine"  # else each of 10,000 in flight would hold its own
