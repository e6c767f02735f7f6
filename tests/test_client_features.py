"""Resources, prompts, completion, log messages and discovery, against a scripted server.

Every line that the client sends is held against the official schema on the way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio.testing
from tests.peers.raw import until
from tests.peers.scripted import DISCOVERED, Answer, Error, scripted

from trio_mcp import (
    CallTimeout,
    Client,
    IncompatibleServer,
    InvalidParams,
    Limits,
    LogMessage,
    ProtocolViolation,
    ServerError,
    connect,
)
from trio_mcp.runtime.models.base import META_CLIENT_CAPABILITIES, META_LOG_LEVEL

COMMON: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
LISTS: dict[str, tuple[str, list[Any], Callable[[Client], Any], Callable[[Client, Any], Any]]] = {
    "tools/list": (
        "tools",
        [{"name": "a", "inputSchema": {"type": "object"}}],
        lambda client: client.tools(),
        lambda client, cursor: client.tools_page(cursor),
    ),
    "resources/list": (
        "resources",
        [{"uri": "shop://a", "name": "a"}],
        lambda client: client.resources(),
        lambda client, cursor: client.resources_page(cursor),
    ),
    "resources/templates/list": (
        "resourceTemplates",
        [{"uriTemplate": "shop://{a}", "name": "a"}],
        lambda client: client.templates(),
        lambda client, cursor: client.templates_page(cursor),
    ),
    "prompts/list": (
        "prompts",
        [{"name": "a"}],
        lambda client: client.prompts(),
        lambda client, cursor: client.prompts_page(cursor),
    ),
}


def always(method: str, result: dict[str, Any] | Error) -> Answer:
    return lambda request: result if request["method"] == method else None


# Lists --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", LISTS)
async def test_each_list_is_followed_to_its_end(
    method: str, autojump_clock: trio.testing.MockClock
) -> None:
    name, entries, all_of, page_of = LISTS[method]
    following: dict[str | None, dict[str, str]] = {
        None: {"nextCursor": ""},
        "": {"nextCursor": "z"},
        "z": {},
    }

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != method:
            return None
        return {**COMMON, name: entries, **following[request["params"].get("cursor")]}

    async with scripted(answer) as (client, script):
        assert [entry.name async for entry in all_of(client)] == ["a", "a", "a"]
        sent = script.sent(method)
        assert [request["params"].get("cursor") for request in sent] == [None, "", "z"]
        assert all("_meta" in request["params"] for request in sent)
        assert (await page_of(client, "")).next_cursor == "z"


@pytest.mark.parametrize("method", LISTS)
async def test_a_cursor_that_comes_twice_or_never_ends_is_a_violation(
    method: str, autojump_clock: trio.testing.MockClock
) -> None:
    name, entries, all_of, _ = LISTS[method]
    following = iter(["1", "1", *map(str, range(10))])

    def answer(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != method:
            return None
        return {**COMMON, name: entries, "nextCursor": next(following)}

    async with scripted(answer, limits=Limits(pages=4)) as (client, _):
        with pytest.raises(ProtocolViolation, match=f"{method}.*cursor"):
            [entry async for entry in all_of(client)]
        with pytest.raises(ProtocolViolation, match=f"{method}.*pages=4"):
            [entry async for entry in all_of(client)]


# One request each ---------------------------------------------------------------------------------


async def test_a_resource_is_read(autojump_clock: trio.testing.MockClock) -> None:
    contents = [
        {"uri": "shop://é", "mimeType": "text/plain", "text": "two"},
        {"uri": "shop://b", "blob": "aGk="},
    ]
    async with scripted(always("resources/read", {**COMMON, "contents": contents})) as (
        client,
        script,
    ):
        result = await client.read_resource("shop://é")
        assert [type(part).__name__ for part in result.contents] == [
            "TextResourceContents",
            "BlobResourceContents",
        ]
        (request,) = script.sent("resources/read")
        assert request["params"]["uri"] == "shop://é"


@pytest.mark.parametrize("code", [-32602, -32002])
async def test_a_resource_that_is_not_there_is_a_server_error(
    code: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted(always("resources/read", Error(code, "not found"))) as (client, _):
        with pytest.raises(ServerError) as raised:
            await client.read_resource("shop://none")
        assert raised.value.code == code


async def test_a_prompt_is_got(autojump_clock: trio.testing.MockClock) -> None:
    messages = [{"role": "user", "content": {"type": "text", "text": "hi"}}]
    result = {"resultType": "complete", "messages": messages}
    async with scripted(always("prompts/get", result)) as (client, script):
        got = await client.get_prompt("recommend", {"genre": "poetry"})
        assert got.messages[0].role == "user"
        await client.get_prompt("plain")
        first, second = script.sent("prompts/get")
        assert first["params"]["arguments"] == {"genre": "poetry"}
        assert "arguments" not in second["params"]


async def test_an_argument_is_completed(autojump_clock: trio.testing.MockClock) -> None:
    values = {"values": ["science"], "total": 7, "hasMore": True}
    result = {"resultType": "complete", "completion": values}
    async with scripted(always("completion/complete", result)) as (client, script):
        found = await client.complete(
            prompt="recommend", argument="genre", value="sc", arguments={"for": "me"}
        )
        assert (found.values, found.total, found.has_more) == (["science"], 7, True)
        await client.complete(resource="shop://{title}", argument="title", value="")
        first, second = [request["params"] for request in script.sent("completion/complete")]
        assert first["ref"] == {"type": "ref/prompt", "name": "recommend"}
        assert first["argument"] == {"name": "genre", "value": "sc"}
        assert first["context"] == {"arguments": {"for": "me"}}
        assert second["ref"] == {"type": "ref/resource", "uri": "shop://{title}"}
        assert "context" not in second
        with pytest.raises(TypeError, match="one of the two"):
            await client.complete(argument="genre", value="sc")


ONES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "resources/read": (
        lambda client, **options: client.read_resource("shop://a", **options),
        {**COMMON, "contents": []},
    ),
    "prompts/get": (
        lambda client, **options: client.get_prompt("a", **options),
        {"resultType": "complete", "messages": []},
    ),
    "completion/complete": (
        lambda client, **options: client.complete(prompt="a", argument="b", value="", **options),
        {"resultType": "complete", "completion": {"values": []}},
    ),
}


@pytest.mark.parametrize("method", ONES)
async def test_each_has_timeouts_that_cancel_and_progress(
    method: str, autojump_clock: trio.testing.MockClock
) -> None:
    call, result = ONES[method]
    heard: list[float] = []

    def answer(request: dict[str, Any]) -> bytes | None:
        if request["method"] != method or request["id"] == 2:
            return None
        token = request["params"]["_meta"]["progressToken"]
        progress = {"progressToken": token, "progress": 0.5}
        lines = [
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress},
            {"jsonrpc": "2.0", "id": request["id"], "result": result},
        ]
        return b"\n".join(json.dumps(line).encode() for line in lines)

    async with scripted(answer) as (client, script):
        with pytest.raises(CallTimeout):
            await call(client, timeout=2)
        await until(script.cancelled)
        assert script.cancelled() == [2]
        await call(client, on_progress=lambda update: heard.append(update.progress))
        assert heard == [0.5]


@pytest.mark.parametrize("method", ONES)
async def test_what_is_no_result_is_a_violation(
    method: str, autojump_clock: trio.testing.MockClock
) -> None:
    call, _ = ONES[method]
    async with scripted(always(method, {"resultType": "complete"})) as (client, _script):
        with pytest.raises(ProtocolViolation, match=method):
            await call(client)


# Log messages -------------------------------------------------------------------------------------


def log(level: Any, data: Any = "hello", **more: Any) -> dict[str, Any]:
    params = {"level": level, "data": data, **more}
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": params}


async def test_log_messages_come_to_who_asked_for_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    heard: list[LogMessage] = []

    def on_log(message: LogMessage) -> None:
        heard.append(message)
        raise RuntimeError("hurts nobody")

    async with scripted(lambda _: None, on_log=on_log, log_level="notice") as (client, script):
        await script.say(log("warning", {"stock": [None]}, logger="shop"))
        await script.say(log("new", None))
        await script.say(log(7))
        await client.discover()
        assert heard == [LogMessage("warning", {"stock": [None]}, "shop"), LogMessage("new", None)]
        assert client._connection.violations == 1
        metas = [request["params"]["_meta"] for request in script.sent("server/discover")]
        assert [meta[META_LOG_LEVEL] for meta in metas] == ["notice", "notice"]


async def test_log_messages_that_nobody_asked_for_are_counted_and_ignored(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(lambda _: None) as (client, script):
        await script.say(log("error"))
        await client.discover()
        assert client._connection.violations == 1
        assert META_LOG_LEVEL not in script.sent("server/discover")[0]["params"]["_meta"]


async def test_options_of_log_messages_that_cannot_be() -> None:
    async def slow(_: LogMessage) -> None: ...

    with pytest.raises(ValueError, match="needs on_log"):
        connect(["server"], log_level="info")
    with pytest.raises(ValueError, match="loud"):
        connect(["server"], log_level="loud", on_log=print)  # type: ignore[arg-type]

    class Slow:
        async def __call__(self, _: LogMessage) -> None: ...

    for on_log in (slow, partial(slow), Slow()):
        with pytest.raises(TypeError, match="plain function"):
            connect(["server"], on_log=on_log)  # type: ignore[arg-type]


async def test_a_log_callback_is_never_awaited(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Invariant 8: however long it would take, calls are answered."""

    async def sleep(_: LogMessage) -> None:
        await trio.sleep_forever()

    on_log: Any = lambda message: sleep(message)  # noqa: E731
    async with scripted(lambda _: None, on_log=on_log) as (client, script):
        await script.say(log("warning"))
        await client.discover()
        assert client._connection.violations == 0
    [told] = [record for record in caplog.records if record.name == "trio_mcp.client"]
    assert told.exc_info is not None
    assert "on_log returned a coroutine" in str(told.exc_info[1])


# Discovery ----------------------------------------------------------------------------------------


def refusal(*supported: str) -> bytes:
    data = {"supported": list(supported), "requested": "2026-07-28"}
    error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
    return json.dumps({"jsonrpc": "2.0", "id": 0, "error": error}).encode()


def refusing(times: int, *supported: str) -> Answer:
    refusals = iter(range(times))

    def answer(request: dict[str, Any]) -> bytes | dict[str, Any]:
        if next(refusals, None) is None:
            return DISCOVERED
        return refusal(*supported).replace(b'"id": 0', b'"id": %d' % request["id"])

    return answer


async def test_a_refusal_that_names_our_revision_is_asked_once_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(refusing(1, "2026-07-28")) as (client, script):
        assert client.discovered.supported_versions == ["2026-07-28"]
        assert len(script.sent("server/discover")) == 2


@pytest.mark.parametrize(("times", "supported"), [(2, ["2026-07-28"]), (1, ["2099-01-01"])])
async def test_other_refusals_are_not(
    times: int, supported: list[str], autojump_clock: trio.testing.MockClock
) -> None:
    with pytest.raises(IncompatibleServer) as raised:
        async with scripted(refusing(times, *supported)):
            pytest.fail("connected")
    assert raised.value.supported == tuple(supported)


async def test_no_capability_is_declared_without_a_callback(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with scripted(lambda _: None) as (_, script):
        meta = script.sent("server/discover")[0]["params"]["_meta"]
        assert meta[META_CLIENT_CAPABILITIES] == {}


# Cursors that the server does not know any more ---------------------------------------------------


def forgetful(method: str, pages: list[dict[str, Any]]) -> Any:
    """A server with these pages; ``cursors`` are those it has been asked for. A page that is empty
    is one whose cursor is refused."""
    cursors: list[str | None] = []
    rest = iter(pages)

    def answer(request: dict[str, Any]) -> Any:
        if request["method"] != method:
            return None
        cursors.append(request["params"].get("cursor"))
        return next(rest) or Error(-32602, "an old cursor")

    return answer, cursors


def names_page(method: str, names: str, following: str | None = None) -> dict[str, Any]:
    name, [entry], _, _ = LISTS[method]
    key = next(k for k in ("uri", "uriTemplate", "name") if k in entry)
    entries = [{**entry, key: f"{entry[key]}{end}"} for end in names]
    more = {} if following is None else {"nextCursor": following}
    return {**COMMON, name: entries, **more}


@pytest.mark.parametrize("method", LISTS)
async def test_a_list_whose_cursor_is_refused_begins_anew_and_repeats_nothing(
    method: str, autojump_clock: trio.testing.MockClock
) -> None:
    pages = [
        names_page(method, "ab", "1"),
        names_page(method, "c", "2"),
        {},
        names_page(method, "xb", "1"),  # a new one came, and the cursor may well be the same
        names_page(method, "acd"),
    ]
    answer, cursors = forgetful(method, pages)
    async with scripted(answer) as (client, _):
        ends = []
        async for entry in LISTS[method][2](client):
            ends.append(getattr(entry, "uri", getattr(entry, "uri_template", entry.name))[-1])
        assert ends == ["a", "b", "c", "x", "d"]
        assert cursors == [None, "1", "2", None, "1"]


@pytest.mark.parametrize("pages", [[{}], [{}, {}]], ids=["at first", "twice"])
async def test_a_list_begins_anew_once_and_not_at_its_beginning(
    pages: list[dict[str, Any]], autojump_clock: trio.testing.MockClock
) -> None:
    page = names_page("tools/list", "a", "1")
    script = pages if len(pages) == 1 else [page, {}, page, {}]
    answer, cursors = forgetful("tools/list", script)
    async with scripted(answer) as (client, _):
        with pytest.raises(InvalidParams, match="an old cursor"):
            [tool async for tool in client.tools()]
        assert len(cursors) == len(script)


async def test_invariant_9_a_list_that_is_too_long_to_remember_is_not_begun_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answer, cursors = forgetful("tools/list", [names_page("tools/list", "abc", "1"), {}])
    async with scripted(answer, limits=Limits(list_entries=2)) as (client, _):
        with pytest.raises(InvalidParams):
            [tool async for tool in client.tools()]
        assert cursors == [None, "1"]
