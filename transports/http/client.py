"""The client's side of Streamable HTTP: every call is a POST of its own, in a task of its own.

There is no connection to lose: a call fails alone. Its cancellation closes its response stream and
nothing else, which is how the server hears of it. Nothing that may have reached the server is sent
again, whatever happens to its connection (specification: *Streamable HTTP*, "Cancellation").

HTTP/1.1 only: over HTTP/2, ``httpx2`` resets no stream, so a server would never hear of a
cancellation.

This module needs ``httpx2``, so it is imported when an address is connected to, not before.
"""

from __future__ import annotations

import itertools
import logging
import reprlib
import ssl
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

import httpcore2
import httpx2
import msgspec
import trio

from ...runtime.call import Call
from ...runtime.errors import (
    ConnectionLost,
    ErrorCode,
    ProtocolError,
    ProtocolViolation,
    TrioMcpError,
)
from ...runtime.journal import Journal, printable
from ...runtime.jsonrpc import Notification, Response, decode, encode, parse
from ...runtime.lifecycle import CancelSource, State
from ...runtime.limits import Limits
from ...runtime.models.base import META_IDEMPOTENCY_KEY, META_PROTOCOL_VERSION
from ...runtime.server_errors import too_many_requests
from ..calling import (
    SUBSCRIBED,
    SessionConnection,
    Unasked,
    encode_call,
    read_progress,
    subscription_of,
)
from ..failures import cannot_connect, describe_failure
from ..process import ServerProcess
from ..sessions import Session
from .address import checked_headers, url_of
from .answer import (
    challenge_of,
    is_answer_to,
    media_type_of,
    read_body,
    refusal,
    retry_after_of,
)
from .events import EventReader, EventTooLong
from .header_values import encode_value
from .metadata import NAMED
from .parameters import MirroredTools
from .pool import http_client
from .posts import Body, Post

__all__ = ["HttpClientConnection"]

logger = logging.getLogger("trio_mcp.connection")

_EVENTS: Final = "text/event-stream"


class HttpClientConnection(Unasked):
    """Calls to one MCP endpoint: a :class:`~..calling.CallConnection`.

    Raises ``ValueError`` for an address that is none, and for headers that HTTP does not allow or
    that are the transport's own.
    """

    process: ServerProcess | None = None

    def __init__(
        self,
        address: str,
        limits: Limits,
        journal: Journal,
        *,
        headers: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._url = url_of(address)
        self._address = address
        self._ssl_context = ssl_context
        super().__init__(str(self._url.copy_with(username=None, password=None, query=None)))
        self.journal = journal
        self._limits = limits
        self._headers = checked_headers(headers or {})
        self._http = http_client(self._url, limits, ssl_context, self._on_surplus)
        self._ids = itertools.count(1)
        self._calls: dict[int, Post] = {}
        self._posts: set[Post] = set()
        self._tools = MirroredTools(self.label, limits)
        self._nursery: trio.Nursery | None = None
        self._early: list[Post] = []
        self._life = trio.CancelScope(shield=True)
        self._lost: str | None = None
        self._post_ended = trio.Event()

    # Life of the connection -----------------------------------------------------------------------

    async def run(self) -> None:
        """Carry calls until :meth:`close`, which must follow.

        Shielded until then: what a cancelled caller has to say to the server is still said.
        """
        try:
            with self._life:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    for post in self._early:
                        self._start(nursery, post)
                    self._early.clear()
                    await trio.sleep_forever()
        finally:  # a Ctrl-C may have struck in one of the tasks
            self._lose("the client was interrupted")

    async def close(self) -> None:
        """End it: what waits fails, every stream is closed, in bounds and also if cancelled."""
        self._lose("the client was closed")
        bound = trio.current_time() + self._limits.exit_wait
        try:
            with trio.CancelScope(shield=True, deadline=bound):
                while self._posts:
                    await self._post_ended.wait()
                await self._last_words()
        finally:
            self._life.cancel("the client was closed")
            bound = trio.current_time() + self._limits.exit_wait
            with trio.CancelScope(shield=True, deadline=bound):  # which needs no server
                await self._hang_up()

    async def _last_words(self) -> None:
        """Nothing here: there is no session to end."""

    async def _hang_up(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    def abort(self) -> None:
        """What waits fails, every stream is closed. No grace: nothing here is owed any."""
        self._lose("the client was aborted")

    def _lose(self, why: str) -> None:
        if self._lost is None:
            self._lost = why
        self._early.clear()
        for post in [*self._calls.values()]:
            post.call.lost(ConnectionLost(self._lost, sent=post.call.sent))
        for post in self._posts:
            post.scope.cancel(self._lost)

    # A session ------------------------------------------------------------------------------------

    def in_session(self, session: Session) -> SessionConnection:
        """Another connection to the same address."""
        from .session import HttpSessionConnection  # which is made of this class

        return HttpSessionConnection(
            self._address,
            self._limits,
            self.journal,
            session,
            headers=dict(self._headers),
            ssl_context=self._ssl_context,
        )

    # Calls ----------------------------------------------------------------------------------------

    @property
    def calls(self) -> tuple[Call, ...]:
        """Calls in flight, oldest first."""
        return tuple(post.call for post in self._calls.values())

    @property
    def why_lost(self) -> str | None:
        """Why no more calls are carried: the client was closed, or aborted."""
        return self._lost

    @property
    def gone(self) -> bool:
        """Whether the client was closed, or aborted."""
        return self._lost is not None

    def open(self, method: str, params: Mapping[str, Any], target: str | None = None) -> Call:
        """Start a call: a task of its own posts it. Never waits.

        Raises :class:`ConnectionLost` if the connection was closed, ``ValueError`` or ``TypeError``
        for what JSON or a header cannot hold or what is longer than ``Limits.message_bytes``.
        """
        if self._lost is not None:
            raise ConnectionLost(self._lost, sent=False)
        request_id = next(self._ids)
        frame = encode_call(request_id, method, params, self._limits)
        mirror = self._tools.headers_for(method, params)
        post = self._new_post(request_id, method, target, frame)
        self._post(post, self._metadata(method, params), mirror, frame)
        return post.call

    def reserve(self, method: str, target: str | None = None) -> Call:
        """A call that is not sent yet; it can be cancelled, and is lost at the end. Never waits.
        Raises :class:`ConnectionLost` if the connection was closed."""
        if self._lost is not None:
            raise ConnectionLost(self._lost, sent=False)
        return self._new_post(next(self._ids), method, target, None).call

    def send(self, call: Call, params: Mapping[str, Any]) -> None:
        """Send a call that was reserved, and is RUNNING. Never waits, and raises what :meth:`open`
        raises."""
        frame = encode_call(call.id, call.method, params, self._limits)
        mirror = self._tools.headers_for(call.method, params)
        call.load(frame)
        self._post(self._calls[call.key], self._metadata(call.method, params), mirror, frame)

    def _new_post(
        self, request_id: int, method: str, target: str | None, frame: bytes | None
    ) -> Post:
        call = Call(
            request_id,
            method,
            target,
            frame,
            self.label,
            self.journal,
            self._forget,
            self._limits,
        )
        post = self._calls[call.key] = Post(call)
        return post

    def _post(
        self,
        post: Post,
        headers: list[tuple[str, str]],
        mirror: list[tuple[str, str]],
        frame: bytes,
    ) -> None:
        post.headers = headers
        post.mirror = mirror
        post.frame = frame if post.call.method == "tools/call" else b""
        if self._nursery is None:
            self._early.append(post)
        else:
            self._start(self._nursery, post)

    def cancel(self, call: Call, source: CancelSource, reason: str | None = None) -> bool:
        """Cancel a call: its response stream is closed, or its request never goes out. Never
        waits."""
        post = self._calls.get(call.key)
        if not call.cancel(source, reason):
            return False
        assert post is not None
        if not call.sent:
            call.stopped()
        post.scope.cancel(reason)
        return True

    def _forget(self, call: Call) -> None:
        del self._calls[call.key]

    # Headers --------------------------------------------------------------------------------------

    def _metadata(self, method: str, params: Mapping[str, Any]) -> list[tuple[str, str]]:
        meta = params.get("_meta", {})
        headers = [
            *self._headers,
            ("content-type", "application/json"),
            ("accept", f"application/json, {_EVENTS}"),
            ("accept-encoding", "identity"),
            ("mcp-protocol-version", str(meta.get(META_PROTOCOL_VERSION))),
            ("mcp-method", encode_value(method)),
        ]
        if method in NAMED:
            headers.append(("mcp-name", encode_value(str(params.get(NAMED[method])))))
        return headers

    # One call -------------------------------------------------------------------------------------

    def _start(self, nursery: trio.Nursery, post: Post) -> None:
        try:
            nursery.start_soon(self._run_post, post, name=post.call.name)
        except RuntimeError:  # a Ctrl-C has closed it, and run() has not heard of it yet
            self._lose("the client was interrupted")
        else:
            self._posts.add(post)

    async def _run_post(self, post: Post) -> None:
        call = post.call
        try:
            with post.scope:
                await self._ask(post)
        finally:
            self._posts.discard(post)
            self._post_ended.set()
            self._post_ended = trio.Event()
            self._left(call)

    def _left(self, call: Call) -> None:
        """Nobody reads its answer any more."""
        call.lost(ConnectionLost("the client was closed", sent=call.sent))

    async def _ask(self, post: Post) -> None:
        call = post.call
        try:
            refused = await self._send(post)
            if refused is not None:
                if await self._adapt(post):
                    refused = await self._send(post)
                if refused is not None:
                    call.answered(refused)
        except httpx2.HTTPError as error:
            call.lost(ConnectionLost(self._describe(error), sent=call.sent))
        except Exception as error:
            # Whatever it is, it is this call's alone: the others have tasks in the same nursery.
            logger.exception("%s: %s failed", self.label, printable(call.name))
            call.lost(ConnectionLost(f"the request failed: {error!r}", sent=call.sent))

    def _describe(self, error: httpx2.HTTPError) -> str:
        if not isinstance(error.__cause__, (httpcore2.ConnectError, httpcore2.ConnectTimeout)):
            return describe_failure(error)
        port = self._url.port or (443 if self._url.scheme == "https" else 80)
        return cannot_connect(self._url.host, port, error)

    async def _send(self, post: Post) -> Response | None:
        """Post the request and read its answer. Returns a HeaderMismatch instead of delivering it:
        the server has not run the request."""
        call = post.call
        request = self._http.build_request(
            "POST",
            self._url,
            content=Body(call),
            headers=[*post.headers, *post.mirror, ("content-length", str(call.size))],
        )
        response = await self._http.send(request, stream=True)
        try:
            return await self._receive(post, response)
        finally:
            await response.aclose()

    async def _receive(self, post: Post, response: httpx2.Response) -> Response | None:
        call, limits = post.call, self._limits
        status = response.status_code
        headers = response.headers
        if 300 <= status < 400:
            where = reprlib.repr(headers.get("location", ""))
            self._fail(post, f"HTTP {status} to {where}: redirects are not followed", status)
            return None
        if headers.get("content-encoding", "identity").lower() != "identity":
            self._fail(post, "an answer with a Content-Encoding, which was not accepted", status)
            return None
        media_type = media_type_of(headers.get("content-type", ""))
        if status == 200 and media_type == _EVENTS:
            await self._read_events(post, response)
            return None
        body = bytearray()
        async with aclosing(response.aiter_raw()) as chunks:
            async for chunk in chunks:
                if call.state is State.RUNNING:
                    body += chunk
                    if len(body) > limits.message_bytes:
                        self._refuse_body(post, status, bytes(body))
        if call.state is not State.RUNNING:
            return None
        if self._ends_session(status, bytes(body)):
            return None
        return self._take(
            call,
            response,
            read_body(status, media_type, bytes(body), call.id, limits.id_length),
            refusal(status, bytes(body)),
        )

    def _ends_session(self, status: int, body: bytes) -> bool:
        """Nothing here: there is none."""
        return False

    def _take(
        self,
        call: Call,
        response: httpx2.Response,
        answer: Response | ConnectionLost | ProtocolViolation,
        why: str,
    ) -> Response | None:
        """Give a call what its response says. Returns a HeaderMismatch instead."""
        status, headers = response.status_code, response.headers
        wait = retry_after_of(headers.get("retry-after"), headers.get("date"))
        challenge = challenge_of(status, headers.get("www-authenticate"))
        if status == 429:
            told = answer.error if isinstance(answer, Response) else None
            call.lost(too_many_requests(told, why, wait))
            return None
        if challenge is not None and not isinstance(answer, Response):
            answer = _unknown(call, why)
        if isinstance(answer, Response):
            if _is_mismatch(answer) and call.method == "tools/call":
                return answer
            self._answered(call, answer, challenge)
        else:
            if isinstance(answer, ConnectionLost):
                answer.retry_after = wait
            elif not (call.method == "server/discover" and 400 <= status < 500):
                self._violation(str(answer))  # earlier revisions know no discovery, and break none
            call.lost(answer)
        return None

    def _refuse_body(self, post: Post, status: int, body: bytes) -> None:
        limit = self._limits.message_bytes
        self._fail(post, f"an answer longer than message_bytes={limit} ({refusal(status, body)})")

    async def _read_events(self, post: Post, response: httpx2.Response) -> None:
        call = post.call
        reader = EventReader(self._limits.message_bytes)
        async with aclosing(response.aiter_raw()) as chunks:
            async for chunk in chunks:
                if call.state is not State.RUNNING:
                    continue  # the end is all that is still of interest
                try:
                    events = reader.feed(chunk)
                except EventTooLong as error:
                    self._fail(post, str(error))
                    continue
                for event in events:
                    self._on_event(post, event)
                if call.ended:
                    post.scope.deadline = trio.current_time() + self._limits.http_trailing
        call.lost(ConnectionLost("the event stream ended without a response", sent=True))

    def _on_event(self, post: Post, event: bytes) -> None:
        call = post.call
        try:
            message = parse(event, self._limits.id_length)
        except ProtocolError as error:
            self._violation(f"an event that is no message: {error.message}")
            self._on_malformed(error, event)
            return
        if isinstance(message, Response):
            if is_answer_to(call.id, message):
                self._answered(call, message)
            else:
                self._violation("an answer to another request")
        elif not isinstance(message, Notification):
            self._on_request(message, call)
        elif message.method == "notifications/progress":
            self._on_progress(post, message.params)
        else:
            self._on_notification(post, message.method, message.params)

    def _on_notification(self, post: Post, method: str, params: dict[str, Any]) -> None:
        call = post.call
        if method in SUBSCRIBED:
            self._on_subscribed(
                call if subscription_of(params) == call.id else None, method, params
            )
        elif method == "notifications/message":
            if call.listener is not None:
                self._violation("a log message on a subscription")
            else:
                self._on_log(params)

    def _on_progress(self, post: Post, params: dict[str, Any]) -> None:
        if post.call.state is not State.RUNNING:
            return  # it came with the answer, after it
        token = params.get("progressToken")
        if type(token) is not int or token != post.token:
            self._violation("progress of another request")
            return
        try:
            update = read_progress(params, self._limits)
        except (TypeError, ValueError, OverflowError) as error:
            self._violation(f"a malformed progress notification: {error}")
        else:
            post.call.heard_progress(update)

    def _answered(self, call: Call, response: Response, challenge: str | None = None) -> None:
        if call.method == "tools/list" and response.result is not None:
            self._tools.learn(response.result)
        call.answered(response, challenge)

    def _on_surplus(self) -> None:
        self._violation("more than an answer: its connection is not used again")

    def _fail(self, post: Post, why: str, status: int | None = None) -> None:
        """The rest of the answer is of no interest. Whoever reads it goes on until the scope's
        cancellation reaches the innermost generator: to leave one in its middle would leave the
        others to the garbage collector."""
        self._violation(why)
        post.call.lost(ProtocolViolation(why, status=status))
        post.scope.cancel()

    # Tools whose headers have changed -------------------------------------------------------------

    async def _adapt(self, post: Post) -> bool:
        """After a HeaderMismatch: learn the tool anew. Whether the call is worth a second try."""
        call = post.call
        message = decode(post.frame)
        params = message["params"]
        meta = {key: params["_meta"][key] for key in params["_meta"] if key != META_IDEMPOTENCY_KEY}
        await self._list_until(params["name"], meta)
        if call.state is not State.RUNNING:
            return False
        mirror = self._tools.headers_for(call.method, params)
        if mirror == post.mirror:
            return False
        post.mirror = mirror
        request_id = next(self._ids)
        # Byte for byte the same but for its id: raw parts are copied, not decoded.
        parts = msgspec.json.decode(post.frame, type=dict[str, msgspec.Raw])
        parts["id"] = msgspec.Raw(encode(request_id))
        call.send_again(request_id, msgspec.json.encode(parts))
        return True

    async def _list_until(self, name: str, meta: dict[str, Any]) -> None:
        cursor: dict[str, str] = {}
        for _ in range(self._limits.pages):
            result = await self._list_page({**cursor, "_meta": meta})
            tools = result.get("tools")
            if not isinstance(tools, list) or any(
                isinstance(tool, dict) and tool.get("name") == name for tool in tools
            ):
                return
            following = result.get("nextCursor")
            if not isinstance(following, str):
                return
            cursor = {"cursor": following}

    async def _list_page(self, params: dict[str, Any]) -> dict[str, Any]:
        """A page of tools, empty if there is none to be had."""
        call = self.open("tools/list", params)
        call.tell()
        try:
            while call.record is None:
                await call.changed.wait()
            return call.result()
        except TrioMcpError:
            return {}
        finally:
            self.cancel(call, CancelSource.CALLER, "the call that needed it has ended")


def _unknown(call: Call, why: str) -> Response:
    """Instead of an answer that wants to know who asks, and is no JSON-RPC."""
    return Response(call.id, None, {"code": int(ErrorCode.UNAUTHORIZED), "message": why})


def _is_mismatch(response: Response) -> bool:
    return response.error is not None and response.error.get("code") == ErrorCode.HEADER_MISMATCH
