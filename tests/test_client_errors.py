"""What a server's errors are for the caller: an exception of its own for each, never in a group."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis.strategies import text
from tests.peers.scripted import DISCOVERED, Error, scripted
from trio_websocket import ConnectionRejected

import trio_mcp
from trio_mcp import (
    AuthorizationRequired,
    CallTimeout,
    CallToolResult,
    CancelledByOperator,
    Client,
    ConnectionLost,
    DeadlineExceeded,
    HeaderMismatch,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    NoSuchResource,
    Overloaded,
    ProtocolError,
    Server,
    ServerError,
    ShuttingDown,
    TextContent,
    ToolFailed,
    UnsupportedVersion,
    connect,
    safe_to_repeat,
)
from trio_mcp.runtime import server_errors
from trio_mcp.runtime.server_errors import server_error
from trio_mcp.transports.http.answer import challenge_of, retry_after_of
from trio_mcp.transports.websocket.refusals import why_refused

CLASSES = {
    -32600: InvalidRequest,
    -32601: MethodNotFound,
    -32602: InvalidParams,
    -32603: InternalError,
    -32020: HeaderMismatch,
    -32021: MissingCapability,
    -32022: UnsupportedVersion,
    -31001: DeadlineExceeded,
    -31002: ShuttingDown,
    -31003: CancelledByOperator,
    -31004: Overloaded,
    -31005: AuthorizationRequired,
    -32700: ServerError,
    -32002: ServerError,
    7: ServerError,
}


def told(code: int, wait: int | None = None) -> bytes:
    data = "" if wait is None else f',"data":{{"retryAfterMs":{wait}}}'
    return f'{{"jsonrpc":"2.0","error":{{"code":{code},"message":"later"{data}}}}}'.encode()


def fails_with(error: Any) -> Any:
    def answer(request: dict[str, Any]) -> Any:
        return None if request["method"] == "server/discover" else error

    return answer


@pytest.mark.parametrize(("code", "kind"), CLASSES.items())
async def test_each_code_that_says_something_has_a_class_of_its_own(
    code: int, kind: type[ServerError], autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted(fails_with(Error(code, "no books"))) as (client, _):
        with pytest.raises(ServerError, match="no books") as refused:
            await client.call_tool("x")
        assert type(refused.value) is kind
        assert refused.value.code == code


@pytest.mark.parametrize(
    ("error", "uri"),
    [
        ({"code": -32602, "message": "no", "data": {"uri": "shop://x"}}, "shop://x"),
        ({"code": -32602, "message": "no", "data": {"uri": 7}}, "shop://asked"),
        ({"code": -32002, "message": "no"}, "shop://asked"),
        ({"code": -32002, "message": "no", "data": []}, "shop://asked"),
    ],
)
def test_a_resource_that_is_not_there_is_told_apart(error: dict[str, Any], uri: str) -> None:
    missing = server_error(error, "resources/read", "shop://asked")
    assert isinstance(missing, NoSuchResource)
    assert missing.uri == uri
    assert not isinstance(server_error(error, "tools/call", "x"), NoSuchResource)


def test_other_invalid_params_of_a_read_are_no_missing_resource() -> None:
    error = server_error({"code": -32602, "message": "no"}, "resources/read", "shop://asked")
    assert type(error) is InvalidParams


@pytest.mark.parametrize(
    ("data", "seconds"),
    [
        ({"retryAfterMs": 1500}, 1.5),
        ({"retryAfterMs": 0}, 0),
        ({"retryAfterMs": -1}, None),
        ({"retryAfterMs": True}, None),
        ({"retryAfterMs": 10**400}, None),
        ({"retryAfterMs": "1"}, None),
        ([], None),
        (None, None),
    ],
)
@pytest.mark.parametrize("code", [-31002, -31004])
def test_when_to_come_again_is_read_with_care(code: int, data: Any, seconds: float | None) -> None:
    error = server_error({"code": code, "message": "no", "data": data}, "tools/call")
    assert isinstance(error, Overloaded | ShuttingDown)
    assert error.retry_after == seconds
    assert error.refused is (seconds is not None)
    assert safe_to_repeat(error) == (False if seconds is None else seconds or True)


DATE = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(
    ("header", "date", "seconds"),
    [
        ("120", None, 120),
        ("0", None, 0),
        ("1000000000", None, 10**9),
        ("1000000001", None, None),
        ("9" * 5000, None, None),
        ("-1", None, None),
        ("1.5", None, None),
        ("1_0", None, None),
        ("\u0661", None, None),
        ("\u00b2", None, None),
        (" 1", None, None),
        ("1, 2", None, None),
        ("nan", None, None),
        ("", None, None),
        (None, DATE, None),
        ("Sun, 06 Nov 1994 08:50:37 GMT", DATE, 60),
        ("Sunday, 06-Nov-94 08:50:37 GMT", DATE, 60),
        ("Sun Nov  6 08:50:37 1994", DATE, 60),
        ("Sun, 06 Nov 1994 08:48:37 GMT", DATE, 0),
        ("Sun, 06 Nov 2094 08:48:37 GMT", DATE, None),
        (DATE, None, None),
        (DATE, "today", None),
        ("Sun, 06 Nov 99999999999 08:48:37 GMT", DATE, None),
        ("Sun, 06 Nov 1994 08:50:37 GMT" + " " * 100_000, DATE, None),
    ],
)
def test_a_header_says_when_to_come_again(
    header: str | None, date: str | None, seconds: float | None
) -> None:
    assert retry_after_of(header, date) == seconds


@given(text(max_size=70), text(max_size=70))
def test_whatever_it_says_it_is_a_pause_or_none(header: str, date: str) -> None:
    for told in (header, f"Sun, {header}", f"6 Nov {header} 08:49:37", f"6 Nov 1994 {header}"):
        for when in (date, DATE):
            pause = retry_after_of(told, when)
            assert pause is None or 0 <= pause <= 10**9


def test_a_challenge_is_shown_in_one_line_and_is_bounded() -> None:
    for hostile, kept in (
        ('Bearer scope="a"', 'Bearer scope="a"'),
        ("Bearer\tx\r\n\x1b[2J\x85\u2028", "Bearer x   [2J  "),
        ("x" * 100_000, "x" * 8192),
    ):
        error = server_error({"code": -1, "message": "no"}, "x", challenge=hostile)
        assert isinstance(error, AuthorizationRequired)
        assert error.challenge == kept
        assert str(error) == f"no (code -1); WWW-Authenticate: {kept[:500]}"
    assert str(server_error({"code": -31005, "message": "no"}, "x")) == "no (code -31005)"


@pytest.mark.parametrize(
    ("data", "supported"),
    [({"supported": ["a", 7, "b"]}, ("a", "b")), ({"supported": "a"}, ()), (None, ())],
)
def test_supported_revisions_are_read_with_care(data: Any, supported: tuple[str, ...]) -> None:
    error = server_error({"code": -32022, "message": "no", "data": data}, "x")
    assert isinstance(error, UnsupportedVersion)
    assert error.supported == supported


def test_only_what_the_server_has_not_begun_with_is_safe_to_repeat() -> None:
    timeout = CallTimeout("x", limit="timeout", seconds=1, elapsed=1, outcome="not sent")
    assert safe_to_repeat(timeout) is True
    assert safe_to_repeat(ConnectionLost("gone", sent=False)) is True
    for error in (
        ConnectionLost("gone", sent=True),
        CallTimeout("x", limit="timeout", seconds=1, elapsed=1),
        InternalError(-32603, "no"),
        AuthorizationRequired(-31005, "no"),
        ValueError("no"),
    ):
        assert safe_to_repeat(error) is False


def test_who_may_ask_is_the_business_of_two_statuses() -> None:
    assert challenge_of(401, None) == ""
    assert challenge_of(401, "Bearer") == "Bearer"
    assert challenge_of(403, 'Bearer error="insufficient_scope"') is not None
    assert challenge_of(403, None) is None
    assert challenge_of(404, "Bearer") is None


@pytest.mark.parametrize(
    ("status", "header", "body", "kind", "says"),
    [
        (401, b"Bearer", b"who?", AuthorizationRequired, "HTTP 401: 'who?'"),
        (401, None, b"", AuthorizationRequired, "HTTP 401"),
        (403, b'Bearer error="insufficient_scope"', b"", AuthorizationRequired, "HTTP 403"),
        (403, None, b"", ConnectionRefusedError, "HTTP status 403"),
        (503, None, told(-31004, 500), Overloaded, "later"),
        (503, None, told(-31002, 500), ShuttingDown, "later"),
        (404, None, told(-32600), ConnectionRefusedError, "HTTP status 404: later"),
        (502, None, b"<html>\xff", ConnectionRefusedError, "HTTP status 502: '<html>"),
        (200, None, b"[1]", ConnectionRefusedError, "HTTP status 200"),
    ],
)
def test_a_websocket_that_is_refused_says_what_http_would(
    status: int, header: bytes | None, body: bytes, kind: type[Exception], says: str
) -> None:
    headers = () if header is None else ((b"WWW-Authenticate", header),)
    error = why_refused(ConnectionRejected(status, headers, body))
    assert type(error) is kind
    assert says in str(error)
    if isinstance(error, AuthorizationRequired):
        assert (error.code, error.challenge) == (-31005, (header or b"").decode())
    if isinstance(error, Overloaded | ShuttingDown):
        assert safe_to_repeat(error) == 0.5


def test_a_failed_result_raises_on_demand_only() -> None:
    fine = CallToolResult([TextContent("ok")])
    assert fine.raise_for_error() is fine
    failed = CallToolResult([TextContent("out of"), TextContent("books")], is_error=True)
    with pytest.raises(ToolFailed, match=r"^out of\nbooks$") as raised:
        failed.raise_for_error()
    assert raised.value.result is failed
    with pytest.raises(ToolFailed, match="does not say why"):
        CallToolResult([], is_error=True).raise_for_error()


def test_every_error_of_a_server_can_be_imported_from_the_package() -> None:
    for name in server_errors.__all__:
        assert name in ("server_error", "too_many_requests") or name in trio_mcp.__all__


# Options that make no sense -----------------------------------------------------------------------


@pytest.mark.parametrize("headers", [["Authorization: x"], "Authorization: x", 7])
async def test_headers_that_are_no_mapping_are_a_type_error(headers: Any) -> None:
    with pytest.raises(TypeError, match="headers are a mapping"):
        connect("http://127.0.0.1:1/mcp", headers=headers)


@pytest.mark.parametrize("target", [["python", "server.py"], Server("x", version="1")])
@pytest.mark.parametrize("option", ["headers", "ssl_context"])
async def test_what_is_for_an_address_is_refused_elsewhere(target: Any, option: str) -> None:
    options: dict[str, Any] = {option: {}}
    with pytest.raises(ValueError, match=f"^{option} is for an address"):
        connect(target, **options)


# No groups ----------------------------------------------------------------------------------------


async def every_call(client: Client, how: str) -> None:
    if how == "start_tool":
        async with client.start_tool("x") as call:
            await call.result()
    elif how == "progress":
        async with client.start_tool("x") as call:
            async for _ in call.progress:
                pass
            await call.result()
    elif how == "listen":
        async with client.listen(tools=True):
            pass
    elif how in ("tools", "prompts", "resources", "templates"):
        async for _ in getattr(client, how)():
            pass
    elif how == "complete":
        await client.complete(prompt="x", argument="a", value="")
    elif how in ("call_tool", "read_resource", "get_prompt"):
        await getattr(client, how)("x")
    else:
        await getattr(client, how)()


NEVER_WAIT = ("abort", "cache_clear", "calls", "watch_calls")
EVERY = [
    "progress",
    *(
        name
        for name, method in inspect.getmembers(Client)
        if not name.startswith("_") and callable(method) and name not in NEVER_WAIT
    ),
]


WAYS = [(how, end) for how in EVERY for end in ("error", "loss", "timeout")]
WAYS.remove(("discover", "loss"))  # the scripted server would answer


@pytest.mark.parametrize(("how", "end"), WAYS)
async def test_one_failure_is_one_exception_on_every_public_path(
    how: str, end: str, autojump_clock: trio.testing.MockClock
) -> None:
    asked = 0

    def answer(request: dict[str, Any]) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            return DISCOVERED
        if end == "error":
            return Error(-31999, "no books")
        if request["method"] == "server/discover":
            return b""
        return None

    kinds = {"error": ServerError, "loss": ConnectionLost, "timeout": CallTimeout}
    async with scripted(answer, timeout=5) as (client, script), trio.open_nursery() as nursery:
        if end == "loss":
            nursery.start_soon(script.end)
        with pytest.raises(kinds[end]) as raised:
            await every_call(client, how)
        assert type(raised.value) is kinds[end]


@pytest.mark.parametrize("code", [-32600, -32601, -32602, -32603, -32020, -32021, -32022, -31001])
async def test_what_a_handler_may_have_said_is_not_known_to_be_refused(code: int) -> None:
    """A server gives each of these before it runs anything, and from the middle of a tool."""
    server = Server("s", version="1")

    @server.tool
    async def fail() -> None:
        raise ProtocolError(code, "no")

    async with connect(server) as client:
        with pytest.raises(ServerError) as caught:
            await client.call_tool("fail")
    assert caught.value.code == code
    assert caught.value.refused is False
    assert safe_to_repeat(caught.value) is False
