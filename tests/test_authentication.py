"""Who asks: ``authenticate``, its verdicts, its bounds, and where the principal shows."""

from __future__ import annotations

import logging
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from tests.peers.inspection import record_of
from tests.peers.raw import call, text_of, until
from tests.peers.raw_http import HttpPeer, Response, post

from trio_mcp import (
    Authenticate,
    AuthorizationRequired,
    Context,
    ErrorCode,
    Limits,
    Principal,
    RequestHead,
    Server,
    State,
    TextContent,
    Unauthorized,
    connect,
)
from trio_mcp.transports.http.heads import LONGEST

TOKENS = {
    "Bearer alice": Principal("alice", scopes=["books:read", "books:write"]),
    "Bearer bob": Principal("bob\n", claims={"aud": "books"}),
}


def by_token(head: RequestHead) -> Principal | None:
    return TOKENS.get(head.get("authorization") or "")


class Door:
    """A server with ``authenticate``."""

    def __init__(self, limits: Limits) -> None:
        self.server = Server("door", version="1.0.0", limits=limits)
        self.port = 0
        self.scope = trio.CancelScope()
        self.ran: list[str] = []

        @self.server.tool
        async def whoami(ctx: Context) -> str:
            """Tell who asks."""
            assert ctx.principal is not None
            self.ran.append(ctx.principal.name)
            return f"{ctx.principal.name} may {', '.join(sorted(ctx.principal.scopes))}"

        @self.server.tool
        async def talk(ctx: Context) -> None:
            """Report once, then wait."""
            ctx.progress(1)
            await trio.sleep_forever()

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[HttpPeer, None]:
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            yield HttpPeer(stream)

    async def ask(self, message: Any, **headers: str | None) -> Response:
        async with self.connect() as peer:
            return await peer.ask(message, **headers)


@asynccontextmanager
async def door(
    authenticate: Authenticate, *, challenge: str = "Bearer", **limits: Any
) -> AsyncGenerator[Door, None]:
    limits.setdefault("drain", 0.3)
    made = Door(Limits(**limits))
    serve = partial(made.server.serve_http, port=0, authenticate=authenticate, challenge=challenge)

    async def run(task_status: trio.TaskStatus[int]) -> None:
        with made.scope:
            await serve(task_status=task_status)

    async with trio.open_nursery() as nursery:
        made.port = await nursery.start(run)
        yield made
        made.scope.cancel("the test is over")
    assert made.server._core.inflight == 0
    assert [*made.server.scopes().walk()][1:] == []


async def test_the_principal_is_on_ctx_and_in_the_journal() -> None:
    async with door(by_token) as made:
        answer = await made.ask(call(1, "whoami"), authorization="Bearer alice")
        assert text_of(answer.json) == "alice may books:read, books:write"
        record = record_of(made.server, 1)
        assert record.principal == "alice"
        assert "for alice" in record.describe()

        await made.ask(call(2, "whoami"), authorization="Bearer bob")
        record = record_of(made.server, 2)
        assert record.principal == "bob\n"
        assert "\n" not in record.describe()


async def test_without_a_principal_nothing_runs() -> None:
    challenge = 'Bearer resource_metadata="https://example.com/.well-known/x", scope="books:read"'
    async with door(by_token, challenge=challenge) as made, made.connect() as peer:
        for headers in ({}, {"authorization": "Bearer mallory"}, {"authorization": ""}):
            answer = await peer.ask(call(1, "whoami"), **headers)  # the connection goes on
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == challenge
            assert answer.code == ErrorCode.UNAUTHORIZED
            assert "id" not in answer.json
        answer = await peer.ask(call(2, "whoami"), authorization="Bearer alice")
        assert answer.status == 200
        assert made.ran == ["alice"]
        await until(lambda: len(made.server.journal) == 1)


async def test_who_is_not_let_in_learns_nothing_of_the_server() -> None:
    async with door(by_token) as made:
        for message in (b"{", b"[]", call(1, "nothing"), {"method": "x"}):
            answer = await made.ask(message)
            assert (answer.status, answer.code) == (401, ErrorCode.UNAUTHORIZED)


async def test_each_request_of_a_connection_is_somebodys_own() -> None:
    async with door(by_token) as made, made.connect() as peer:
        await peer.send(
            post(call(1, "whoami"), authorization="Bearer alice")
            + post(call(2, "whoami"))
            + post(call(3, "whoami"), authorization="Bearer bob")
        )
        answers = [await peer.response() for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 401, 200]
        assert made.ran == ["alice", "bob\n"]


async def test_health_and_strangers_are_not_asked_who_they_are() -> None:
    asked: list[RequestHead] = []

    def note(head: RequestHead) -> None:
        asked.append(head)

    async with door(note) as made:
        async with made.connect() as peer:
            await peer.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert (await peer.response()).status == 200
        assert (await made.ask(call(1, "whoami"), host="evil.example")).status == 403
        assert (await made.ask(call(1, "whoami"), origin="https://evil.example")).status == 403
        assert asked == []
        assert (await made.ask(call(1, "whoami"))).status == 401
        (head,) = asked
        assert (head.method, head.path) == ("POST", "/mcp")
        assert head.get("mcp-name") == "whoami"
        assert head.peer.startswith("http 127.0.0.1:")


async def test_nothing_of_a_request_that_was_not_let_in_is_kept() -> None:
    """Its body may be as long as ``message_bytes``, and its connection be idle for long."""
    asked: list[weakref.ref[RequestHead]] = []

    def nobody(head: RequestHead) -> None:
        asked.append(weakref.ref(head))

    async with door(nobody) as made, made.connect() as peer:
        answer = await peer.ask(call(1, "whoami"), x_long="y" * LONGEST)  # no head to remember
        assert answer.status == 401
        await trio.testing.wait_all_tasks_blocked()
        assert [head() for head in asked] == [None]


async def test_a_challenge_of_its_own() -> None:
    def refuse(head: RequestHead) -> Principal:
        raise Unauthorized(
            'Bearer error="insufficient_scope", scope="books:write"',
            status=403,
            message="books:write is missing",
        )

    async with door(refuse) as made:
        answer = await made.ask(call(1, "whoami"))
        assert answer.status == 403
        assert answer.headers["www-authenticate"].startswith('Bearer error="insufficient_scope"')
        assert answer.json["error"]["message"] == "books:write is missing"


async def test_an_async_hook_may_wait() -> None:
    async def look_up(head: RequestHead) -> Principal | None:
        await trio.sleep(0.01)
        return by_token(head)

    async with door(look_up) as made:
        answer = await made.ask(call(1, "whoami"), authorization="Bearer alice")
        assert answer.status == 200
        assert (await made.ask(call(1, "whoami"))).status == 401


@pytest.mark.parametrize("verdict", [RuntimeError("secret"), "alice", True])
async def test_a_hook_that_fails_lets_nobody_in(
    verdict: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(head: RequestHead) -> Any:
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    async with door(broken) as made, made.connect() as peer:
        for _ in range(2):  # the connection goes on
            answer = await peer.ask(call(1, "whoami"), authorization="Bearer alice")
            assert (answer.status, answer.code) == (500, ErrorCode.INTERNAL_ERROR)
            assert b"secret" not in answer.body
        assert made.ran == []
    assert "authenticate failed" in caplog.text


async def test_a_hook_has_its_time(caplog: pytest.LogCaptureFixture) -> None:
    async def never(head: RequestHead) -> None:
        await trio.sleep_forever()

    caplog.set_level(logging.ERROR)
    async with door(never, authentication=0.05) as made:
        answer = await made.ask(call(1, "whoami"))
        assert (answer.status, answer.code) == (500, ErrorCode.INTERNAL_ERROR)
    assert "authentication=0.05 s" in caplog.text


async def test_a_client_that_leaves_ends_the_hook() -> None:
    waiting = trio.Event()
    ended: list[str] = []

    async def never(head: RequestHead) -> None:
        try:
            waiting.set()
            await trio.sleep_forever()
        finally:
            ended.append(head.peer)

    async with door(never) as made:
        async with made.connect() as peer:
            await peer.send(post(call(1, "whoami")))
            await waiting.wait()
        await until(lambda: len(ended) == 1)
        await until(lambda: not made.server._core.connections)
        assert list(made.server.journal) == []


async def test_a_shutdown_ends_the_hook() -> None:
    waiting = trio.Event()

    async def never(head: RequestHead) -> None:
        waiting.set()
        await trio.sleep_forever()

    async with door(never, drain=0.05) as made, made.connect() as peer:
        await peer.send(post(call(1, "whoami")))
        await waiting.wait()
        made.scope.cancel("shutdown")
        answer = await peer.response()
        assert (answer.status, answer.code) == (503, ErrorCode.SHUTTING_DOWN)
        assert await peer.rest() == b""


async def test_our_client_sends_its_token_and_tells_a_refusal() -> None:
    async with door(by_token) as made:
        url = f"http://127.0.0.1:{made.port}/mcp"
        async with connect(url, headers={"Authorization": "Bearer alice"}) as client:
            result = await client.call_tool("whoami")
            (said,) = result.content
            assert isinstance(said, TextContent)
            assert said.text == "alice may books:read, books:write"
        with pytest.raises(AuthorizationRequired) as refused:
            async with connect(url):
                pass
        assert refused.value.code == ErrorCode.UNAUTHORIZED
        assert refused.value.challenge == "Bearer"
    assert all(record.state is State.COMPLETED for record in made.server.journal)


async def test_the_hooks_time_is_not_the_idle_time() -> None:
    async def slowly(head: RequestHead) -> Principal:
        await trio.sleep(0.3)
        return Principal("slow")

    async with door(slowly, http_idle_time=0.1) as made, made.connect() as peer:
        for _ in range(2):
            answer = await peer.ask(call(1, "whoami"))
            assert text_of(answer.json) == "slow may "
        assert await peer.rest() == b""  # idle at last


async def test_after_the_drain_limit_nobody_is_asked_any_more() -> None:
    asked: list[RequestHead] = []

    async def never(head: RequestHead) -> None:
        asked.append(head)
        await trio.sleep_forever()

    async with door(never, drain=0.05) as made, made.connect() as peer:
        await peer.send(b"".join(post(call(n, "whoami")) for n in range(5)))
        await until(lambda: len(asked) == 1)
        made.scope.cancel("shutdown")
        answer = await peer.response()
        assert (answer.status, answer.code) == (503, ErrorCode.SHUTTING_DOWN)
        assert answer.headers["connection"] == "close"
        assert await peer.rest() == b""
        assert len(asked) == 1


async def test_who_waits_behind_a_stream_is_not_asked_either() -> None:
    asked: list[RequestHead] = []

    async def first(head: RequestHead) -> Principal:
        asked.append(head)
        if len(asked) > 1:
            await trio.sleep_forever()
        return Principal("first")

    async with door(first, drain=0.05) as made, made.connect() as peer:
        await peer.send(post(call(1, "talk", token="t")) + post(call(2, "whoami")))
        await peer.head()
        await peer.chunk()
        made.scope.cancel("shutdown")
        assert b"-31002" in await peer.chunk()
        assert await peer.chunk() == b""
        assert (await peer.response()).status == 503
        assert await peer.rest() == b""
        assert len(asked) == 1


# Over WebSocket -----------------------------------------------------------------------------------


@asynccontextmanager
async def socket_door(authenticate: Authenticate, **limits: Any) -> AsyncGenerator[Door, None]:
    limits.setdefault("drain", 0.3)
    made = Door(Limits(**limits))
    async with trio.open_nursery() as nursery:
        serve = partial(made.server.serve_websocket, port=0, authenticate=authenticate)
        made.port = await nursery.start(serve)
        yield made
        nursery.cancel_scope.cancel("the test is over")
    assert made.server._core.inflight == 0


async def test_a_websocket_is_somebodys_for_its_whole_life() -> None:
    asked: list[RequestHead] = []

    async def note(head: RequestHead) -> Principal | None:
        asked.append(head)
        await trio.lowlevel.checkpoint()
        return by_token(head)

    async with socket_door(note) as made:
        url = f"ws://127.0.0.1:{made.port}/mcp"
        async with connect(url, headers={"Authorization": "Bearer alice"}) as client:
            for _ in range(2):
                await client.call_tool("whoami")
        assert made.ran == ["alice", "alice"]
        assert {record.principal for record in made.server.journal} == {"alice"}
        (head,) = asked
        assert head.get("upgrade") == "websocket"


async def test_a_websocket_without_a_principal_is_refused_before_it_is_open() -> None:
    async with socket_door(by_token) as made:
        with pytest.raises(AuthorizationRequired, match=r"^Unauthorized ") as unknown:
            async with connect(f"ws://127.0.0.1:{made.port}/mcp"):
                pass
        assert unknown.value.code == ErrorCode.UNAUTHORIZED
        assert unknown.value.challenge == "Bearer"
        async with made.connect() as peer:
            await peer.send(UPGRADE)
            answer = await peer.response()
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.code == ErrorCode.UNAUTHORIZED


async def test_the_hooks_time_is_not_the_openings(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def slowly(head: RequestHead) -> Principal:
        await trio.sleep(8)
        return Principal("slow")

    async def never(head: RequestHead) -> None:
        await trio.sleep_forever()

    for authenticate, status in ((slowly, 101), (never, 500)):
        async with socket_door(authenticate, http_head_time=1, authentication=9) as made:
            async with made.connect() as peer:
                await peer.send(UPGRADE)
                assert (await peer.head(timeout=20)).status == status


UPGRADE = (
    b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


# Values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("challenge", ["", " ", "Bearer\r\nx: y", "Bearer é"])
def test_a_challenge_that_is_no_header(challenge: str) -> None:
    with pytest.raises(ValueError, match="challenge must be printable ASCII"):
        Unauthorized(challenge)
    with pytest.raises(ValueError, match="challenge must be printable ASCII"):
        Server("x", version="1").asgi(authenticate=by_token, challenge=challenge)


def test_a_principal_is_plain_data() -> None:
    with pytest.raises(TypeError, match="name"):
        Principal(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="401 or 403"):
        Unauthorized("Bearer", status=200)


def test_the_name_of_a_header_may_be_in_any_case() -> None:
    head = RequestHead("POST", "/mcp", (("authorization", "a"), ("authorization", "b")), "x")
    assert head.get("Authorization") == "a, b"
    assert list(head.get_all("AUTHORIZATION")) == ["a", "b"]


def test_arguments_that_would_refuse_everybody() -> None:
    server = Server("x", version="1")
    with pytest.raises(ValueError, match="path must begin with '/'"):
        server.asgi(path="mcp")
    with pytest.raises(TypeError, match="lists of texts"):
        server.asgi(origins="https://example.com")
    with pytest.raises(TypeError, match="list of texts"):
        server.asgi(hosts="example.com")
    with pytest.raises(TypeError, match="must be a function"):
        server.asgi(authenticate="x")  # type: ignore[arg-type]
