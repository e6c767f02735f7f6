"""The client's side of Streamable HTTP as it was before 2026-07-28: with a session.

Theory of operation. Requests are posts, as ever, and so is all else that the client says: that it
has cancelled a call, its answers to the server's questions. To close a stream says nothing: a call
is cancelled by a post, and its stream is closed when that has been taken, or a little later: calls
that wait need its connection. A stream that breaks off may be asked for again, by the id of its
last event. One more stream, asked for with GET, carries what belongs to no call; not every server
has it. Many that have it drop what they want to tell or ask while it is not there yet, so no call
goes out before. The session ends with a DELETE of ours, or with a 404 of the
server's or a 400 that means the same; then nothing more can be said in it.

What is no call has a pool of connections of its own: calls that fill theirs may be waiting for just
that, the answer to a question or their cancellation.

Specification 2025-11-25: *Transports*, "Streamable HTTP".
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import attrs
import httpx2
import trio

from ...runtime.call import Call
from ...runtime.errors import ConnectionLost, ProtocolError, ProtocolViolation
from ...runtime.journal import Journal
from ...runtime.jsonrpc import Request, Response, encode_notification, parse
from ...runtime.lifecycle import CancelSource, State
from ...runtime.limits import Limits
from ..failures import describe_failure
from ..sessions import Session
from .answer import knows_no_session, media_type_of
from .client import HttpClientConnection
from .events import EventReader, EventTooLong
from .pool import http_client
from .posts import Post

__all__ = ["HttpSessionConnection"]

logger = logging.getLogger("trio_mcp.connection")

_EVENTS: Final = "text/event-stream"
_SHORTEST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 60
"""Times ``Limits.session_pause`` that a server may want a client to wait."""
_DRAINED: Final = 64 * 1024
"""Bytes of an answer without interest that are read, so that its connection can be used again."""


class HttpSessionConnection(HttpClientConnection):
    """Calls in one session with an MCP endpoint: a
    :class:`~..calling.SessionConnection`."""

    def __init__(
        self,
        address: str,
        limits: Limits,
        journal: Journal,
        session: Session,
        *,
        headers: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(address, limits, journal, headers=headers, ssl_context=ssl_context)
        self.session = session
        self._talk = session
        # One connection for the stream that belongs to no call, besides those for what is said: as
        # many answers as there may be, and as many cancellations as there are calls.
        aside = attrs.evolve(limits, http_pool=limits.http_pool + limits.session_posts + 1)
        self._aside = http_client(self._url, aside, ssl_context, self._on_surplus)
        self._session_id: str | None = None
        self._over: str | None = None
        self._deaf = ""  # why the stream of no call was not there when it was last asked for
        self._by_id: dict[int, Post] = {}
        self._saying = 0
        self._answering = 0  # of them, answers
        self._said = trio.Event()
        self._settled = trio.Event()
        self._grace = trio.CancelScope()

    @property
    def why_lost(self) -> str | None:
        """A session is shared by all calls, and can be lost."""
        return self._over or super().why_lost

    @property
    def gone(self) -> bool:
        """Whether the client was closed, or the session has ended."""
        return super().gone or self._over is not None

    # Life of the session --------------------------------------------------------------------------

    async def begin(self, frame: bytes) -> None:
        """Say that the session is agreed on, wait until the server has taken it, and ask for the
        stream of what belongs to no call: until it is there, or known not to be, or
        ``Limits.session_listen`` seconds have passed, for some servers show it only with its first
        event. Raises :class:`ConnectionLost`."""
        with trio.move_on_after(self._limits.connect):
            await self._post_alone(frame)
        if self._over is not None:
            raise ConnectionLost(self._over, sent=True)
        if self._nursery is not None:
            self._nursery.start_soon(self._listen)
            with trio.move_on_after(self._limits.session_listen):
                await self._settled.wait()

    async def hears_changes(self) -> None:
        """Wait until the stream of what belongs to no call is there, or known not to be. Some
        servers show only with its first event that it is there: for ``Limits.probe`` seconds."""
        with trio.move_on_after(self._limits.probe):
            await self._settled.wait()

    async def _last_words(self) -> None:
        """What is on its way goes out, and the session is ended: in the bounds of closing."""
        with self._grace:
            with trio.move_on_after(self._limits.exit_wait / 2):
                while self._saying:
                    await self._said.wait()
            if self._session_id is None or self._over is not None:
                return
            try:
                request = self._aside.build_request("DELETE", self._url, headers=self._common())
                response = await self._aside.send(request, stream=True)
                await response.aclose()  # 405: this server does not let clients end sessions
            except httpx2.HTTPError as error:
                logger.debug("%s: the session was not ended: %s", self.label, error)

    async def _hang_up(self) -> None:
        await self._aside.aclose()
        await super()._hang_up()

    def abort(self) -> None:
        super().abort()
        self._grace.cancel("aborted")

    def _ends_session(self, status: int, body: bytes) -> bool:
        """Whether the server says that it does not know the session any more: then it is over."""
        if self._session_id is None or not knows_no_session(status, body):
            return False
        self._end_session(status)
        return True

    def _end_session(self, status: int) -> None:
        if self._over is None:
            self._over = f"the server has ended the session (HTTP {status}); connect again"
            for post in [*self._calls.values()]:
                post.call.lost(ConnectionLost(self._over, sent=post.call.sent))
                post.scope.cancel("the session is over")
            self._talk.lost()

    # Calls ----------------------------------------------------------------------------------------

    def open(self, method: str, params: Mapping[str, Any], target: str | None = None) -> Call:
        if self._over is not None:
            raise ConnectionLost(self._over, sent=False)
        return super().open(method, params, target)

    def reserve(self, method: str, target: str | None = None) -> Call:
        if self._over is not None:
            raise ConnectionLost(self._over, sent=False)
        return super().reserve(method, target)

    def cancel(self, call: Call, source: CancelSource, reason: str | None = None) -> bool:
        """Cancel a call: the server is told by a post of its own. Never waits."""
        if reason is not None:
            reason = reason[: self._limits.text_length].encode(errors="backslashreplace").decode()
        post = self._calls.get(call.key)
        if not call.cancel(source, reason):
            return False
        assert post is not None
        if not call.sent or self._nursery is None:
            call.stopped()
            post.scope.cancel(reason)
        else:
            self._say(self._tell_cancelled, post, reason)
            post.scope.deadline = trio.current_time() + self._limits.http_trailing
        return True

    async def _tell_cancelled(self, post: Post, reason: str | None) -> None:
        params: dict[str, Any] = {"requestId": post.call.id}
        if reason is not None:
            params["reason"] = reason
        try:
            await self._post_alone(encode_notification("notifications/cancelled", params))
        finally:
            if post.call.state is State.CANCELLING:
                post.call.stopped()
            post.scope.cancel(reason)

    def _left(self, call: Call) -> None:
        if call.state is not State.CANCELLING:  # then it ends when the server has been told
            super()._left(call)

    def _new_post(
        self, request_id: int, method: str, target: str | None, frame: bytes | None
    ) -> Post:
        post = self._by_id[request_id] = super()._new_post(request_id, method, target, frame)
        return post

    def _forget(self, call: Call) -> None:
        super()._forget(call)
        self._by_id.pop(int(call.id), None)
        self._talk.call_ended(call)

    async def _adapt(self, post: Post) -> bool:
        return False  # no header mirrors a parameter here

    def _answered(self, call: Call, response: Response, challenge: str | None = None) -> None:
        call.answered(response, challenge)

    # Headers --------------------------------------------------------------------------------------

    def _metadata(self, method: str, params: Mapping[str, Any]) -> list[tuple[str, str]]:
        return self._headers_of_a_post()

    def _headers_of_a_post(self) -> list[tuple[str, str]]:
        return [
            *self._common(),
            ("content-type", "application/json"),
            ("accept", f"application/json, {_EVENTS}"),
        ]

    def _common(self) -> list[tuple[str, str]]:
        headers = [*self._headers, ("accept-encoding", "identity")]
        if self._talk.agreed is not None:
            headers.append(("mcp-protocol-version", self._talk.agreed))
        if self._session_id is not None:
            headers.append(("mcp-session-id", self._session_id))
        return headers

    def _take_session_id(self, response: httpx2.Response) -> None:
        """Raises :class:`ProtocolViolation` for an id that no header could hold again."""
        session_id = response.headers.get("mcp-session-id")
        if session_id is None or response.status_code != 200:
            return
        visible = session_id.isascii() and session_id.isprintable() and " " not in session_id
        if not (visible and 0 < len(session_id) <= self._limits.id_length):
            raise ProtocolViolation("initialize: the server gives the session an id that is none")
        self._session_id = session_id

    # What the client says besides requests --------------------------------------------------------

    def say(self, frame: bytes) -> None:
        """Post a message that is no request. Never waits; one too many is dropped."""
        if self._answering >= self._limits.session_posts:
            self._violation("more questions than it takes answers")
        elif self._over is None and not self.gone and self._nursery is not None:
            self._answering += 1
            self._say(self._post_answer, frame)

    async def _post_answer(self, frame: bytes) -> None:
        try:
            await self._post_alone(frame)
        finally:
            self._answering -= 1

    def _say(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        if self._nursery is not None:
            self._saying += 1
            try:
                self._nursery.start_soon(self._bounded, task, *args)
            except RuntimeError:  # see _start
                self._saying -= 1
                self._lose("the client was interrupted")

    async def _bounded(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            with trio.move_on_after(self._limits.stall):
                await task(*args)
        except Exception:
            # Whatever it is, it is this message's alone.
            logger.exception("%s: a message failed", self.label)
        finally:
            self._saying -= 1
            self._said.set()
            self._said = trio.Event()

    async def _post_alone(self, frame: bytes) -> None:
        """Post one message, and wait until the server has taken it. Raises nothing: whom it
        concerns sees that no answer comes."""
        try:
            request = self._aside.build_request(
                "POST", self._url, content=frame, headers=self._headers_of_a_post()
            )
            response = await self._aside.send(request, stream=True)
            try:
                body = await self._drain(response)
            finally:
                await response.aclose()
        except httpx2.HTTPError as error:
            logger.info("%s: a message did not go out: %s", self.label, describe_failure(error))
        else:
            ended = self._ends_session(response.status_code, body)
            if not ended and response.status_code >= 300:
                self._violation(f"HTTP {response.status_code} to a message that is no request")

    async def _drain(self, response: httpx2.Response) -> bytes:
        """What there is of a body, in bounds."""
        read = bytearray()
        with trio.CancelScope() as scope:  # see _fail: a generator is not left in its middle
            async with aclosing(response.aiter_raw()) as chunks:
                async for chunk in chunks:
                    read += chunk[: _DRAINED + 1]
                    if len(read) > _DRAINED:
                        scope.cancel("the rest is of no interest")
        return bytes(read[:_DRAINED])

    # What a call's stream says --------------------------------------------------------------------

    async def _receive(self, post: Post, response: httpx2.Response) -> Response | None:
        if post.call.method == "initialize":
            try:
                self._take_session_id(response)
            except ProtocolViolation as error:
                self._fail(post, str(error))
                return None
        elif response.status_code == 404 and self._session_id is not None:
            self._end_session(404)
            return None
        return await super()._receive(post, response)

    async def _read_events(self, post: Post, response: httpx2.Response) -> None:
        """The call's stream, and where it breaks off what follows it."""
        call = post.call
        reader = EventReader(self._limits.message_bytes)
        await self._read_stream(response, reader, post)
        tries = 0
        while (
            call.state is State.RUNNING and reader.last_id and tries < self._limits.session_streams
        ):
            tries += 1
            last_id = reader.last_id
            await trio.sleep(self._pause(reader, tries))
            reader = reader.following()
            if await self._ask_for_stream(reader, post) and reader.last_id != last_id:
                tries = 0
        call.lost(ConnectionLost("the event stream ended without a response", sent=True))

    async def _read_stream(
        self, response: httpx2.Response, reader: EventReader, post: Post | None
    ) -> None:
        """Read one stream to its end, which may be a failure. Raises :class:`EventTooLong` if it
        belongs to no call."""
        too_long: EventTooLong | None = None
        try:
            with trio.CancelScope() as scope:
                async with aclosing(response.aiter_raw()) as chunks:
                    async for chunk in chunks:
                        if post is not None:
                            self._feed(reader, chunk, post)
                        elif too_long is None:
                            too_long = self._feed_loose(reader, chunk, scope)
        except httpx2.HTTPError as error:
            if not reader.last_id and post is not None:
                raise
            logger.info("%s: a stream broke off: %s", self.label, describe_failure(error))
        if too_long is not None:
            raise too_long

    def _feed(self, reader: EventReader, chunk: bytes, post: Post) -> None:
        if post.call.ended:
            return  # the end is all that is still of interest
        try:
            events = reader.feed(chunk)
        except EventTooLong as error:
            self._fail(post, str(error))
            return
        for event in events:
            self._on_event(post, event)
        if post.call.ended:
            post.scope.deadline = trio.current_time() + self._limits.http_trailing

    def _feed_loose(
        self, reader: EventReader, chunk: bytes, scope: trio.CancelScope
    ) -> EventTooLong | None:
        try:
            events = reader.feed(chunk)
        except EventTooLong as error:
            scope.cancel(str(error))
            return error
        for event in events:
            self._on_loose_event(event)
        return None

    def _on_notification(self, post: Post, method: str, params: dict[str, Any]) -> None:
        self._on_told(self._talk, method, params)

    def _on_progress(self, post: Post, params: dict[str, Any]) -> None:
        """On whichever stream it comes."""
        token = params.get("progressToken")
        about = self._by_id.get(token) if type(token) is int else None
        if about is not None:
            super()._on_progress(about, params)

    # Streams that are asked for -------------------------------------------------------------------

    async def _listen(self) -> None:
        """The stream of what belongs to no call, as long as the server has it."""
        reader = EventReader(self._limits.message_bytes)
        tries = 0
        try:
            while self._over is None and not self.gone and tries < self._limits.session_streams:
                tries += 1
                if await self._ask_for_stream(reader, None):
                    self._deaf = ""
                elif not self._settled.is_set():
                    logger.debug("%s has no stream for what belongs to no call", self.label)
                    return
                if reader.events > 0:
                    tries = 0
                # Where nobody is there, nobody wants us to wait: it will be back soon, or not.
                pause = self._limits.session_pause if self._deaf else self._pause(reader, tries)
                await trio.sleep(pause)
                reader = reader.following()
            self._talk.deaf(self._why_deaf(tries))
        except EventTooLong as error:
            self._violation(str(error))
            self._talk.deaf(str(error))
        except Exception as error:
            logger.exception("%s: a stream failed", self.label)
            self._talk.deaf(f"the stream on which the server tells of changes failed: {error!r}")
        finally:
            self._settled.set()

    def _why_deaf(self, tries: int) -> str:
        what = "the stream on which the server tells of changes"
        if self._deaf:
            return f"{what} has ended, and is not there any more: {self._deaf}"
        return f"the server has ended {what}, {tries} times in a row"

    async def _ask_for_stream(self, reader: EventReader, post: Post | None) -> bool:
        """Read one stream to its end. Whether there was one."""
        headers = [*self._common(), ("accept", _EVENTS)]
        if (last_id := _header_of(reader.last_id, self._limits.id_length)) is not None:
            headers.append(("last-event-id", last_id))
        pool = self._aside if post is None else self._http
        try:
            request = pool.build_request("GET", self._url, headers=headers)
            response = await pool.send(request, stream=True)
        except httpx2.HTTPError as error:
            why = self._describe(error)
            logger.info("%s: no stream: %s", self.label, why)
            if post is None:
                self._deaf = why
            return False
        try:
            status = response.status_code
            was_there = post is not None or self._settled.is_set()
            if status in (400, 404) and was_there:  # else it may have no such stream
                self._ends_session(status, await self._drain(response))
            media_type = media_type_of(response.headers.get("content-type", ""))
            if status != 200 or media_type != _EVENTS:
                if post is not None and 400 <= status < 500:
                    why = "the event stream ended without a response, and does not go on"
                    post.call.lost(ConnectionLost(f"{why} (HTTP {status})", sent=True))
                elif post is None:
                    self._deaf = f"HTTP {status}"
                return False
            if post is None:
                self._settled.set()
            await self._read_stream(response, reader, post)
            return True
        finally:
            await response.aclose()

    def _pause(self, reader: EventReader, tries: int) -> float:
        pause = self._limits.session_pause
        if reader.retry is not None:
            return min(max(reader.retry / 1000, _SHORTEST_PAUSE * pause), _LONGEST_PAUSE * pause)
        return pause * max(tries, 1)

    def _on_loose_event(self, event: bytes) -> None:
        """A message on the stream that belongs to no call."""
        try:
            message = parse(event, self._limits.id_length)
        except ProtocolError as error:
            self._violation(f"an event that is no message: {error.message}")
            self._on_malformed(error, event)
            return
        if isinstance(message, Request):
            self._on_request(message, None)
        elif isinstance(message, Response):
            self._on_loose_answer(message)
        elif message.method == "notifications/progress":
            token = message.params.get("progressToken")
            about = self._by_id.get(token) if type(token) is int else None
            if about is not None:
                super()._on_progress(about, message.params)
        else:
            self._on_told(self._talk, message.method, message.params)

    def _on_loose_answer(self, response: Response) -> None:
        """Servers mix up their streams: a call that broke off may be answered here."""
        post = self._by_id.get(response.id) if type(response.id) is int else None
        if post is None or not post.call.sent:
            self._violation("an answer to an unknown request")
            return
        self._answered(post.call, response)
        post.scope.deadline = trio.current_time() + self._limits.http_trailing


def _header_of(last_id: bytes, longest: int) -> str | None:
    """The id of an event as a header; ``None`` for one that there is not, or that none can hold."""
    text = last_id.decode("latin-1")
    fits = text.isascii() and text.isprintable() and text.strip() == text
    return text if text and fits and len(text) <= longest else None
