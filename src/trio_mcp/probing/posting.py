"""A probe's end of Streamable HTTP: each request is a connection of its own, which can be closed at
any moment, with FIN or with RST.

No client library: these keep connections, close them when they see fit, and tell no more of an
answer than its end. Proxies of the environment are not used.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httptools
import trio

from ..runtime.errors import ProtocolError
from ..runtime.jsonrpc import decode, encode
from ..runtime.limits import Limits
from ..transports.http.address import checked_headers, url_of
from ..transports.http.answer import media_type_of
from ..transports.http.events import EventReader, EventTooLong
from ..transports.http.header_values import encode_value
from ..transports.http.metadata import NAMED
from ..transports.http.parameters import MirroredTools
from .asked import Answer, Asked, ConversationLost, key_of
from .channel import message_of
from .pace import Pace
from .speech import InSession, Stateless

__all__ = ["Posts"]

_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"
_CHUNK: Final = 64 * 1024
_STRAYS: Final = 100
"""Remembered of what nobody asked for."""
_QUOTED: Final = 120
"""Characters shown of it."""
_RESET: Final = struct.pack("ii", 1, 0)
"""Of ``SO_LINGER``: what is closed then is reset."""


class Posts:
    """A :class:`~.asked.Conversation` over HTTP/1.1.

    :param tools: as they were listed, for what of their arguments goes into headers.

    Raises ``ValueError`` for an address or headers that are none.
    """

    pid: int | None = None

    def __init__(
        self,
        address: str,
        speech: Stateless | InSession,
        pace: Pace,
        limits: Limits,
        tools: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.lost: str | None = None
        self.strays: list[str] = []
        self.unasked: list[str] = []
        self.closes = not speech.in_session
        self._url = url_of(address)
        self._headers = checked_headers(headers or {})
        self._ssl_context = ssl_context
        self._speech = speech
        self._pace = pace
        self._limits = limits
        self._mirrored = MirroredTools(address, limits)
        self._mirrored.learn({"tools": [dict(tool) for tool in tools]})
        self._ids = itertools.count(1)
        self._session: str | None = None
        self._posts: dict[Asked, _Post] = {}
        self._nursery: trio.Nursery
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    # Life -----------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    task_status.started()
                    await trio.sleep_forever()
        finally:
            self.lost = self.lost or "the probe has hung up"
            for asked in self._posts:
                asked.lost = asked.lost or self.lost
                asked.note()
            self._ended.set()

    async def begin(self) -> None:
        if not isinstance(self._speech, InSession):
            return
        asked = await self.ask("initialize", self._speech.initialize(), token=False)
        answer = await asked.answer(self._pace.open)
        if answer is None or "result" not in answer.message:
            said = "nothing" if answer is None else str(answer.message.get("error"))
            raise ConversationLost(f"it answers {said} to initialize")
        self._session = self._posts[asked].session
        await self.tell("notifications/initialized")

    async def aclose(self) -> None:
        if self._session is not None and self.lost is None:
            with trio.move_on_after(self._pace.answer):
                try:
                    await self._exchange("DELETE", [], b"")
                except (OSError, trio.BrokenResourceError, ConversationLost):
                    pass  # it may have ended meanwhile
        self._scope.cancel("the probe hangs up")
        await self._ended.wait()

    # Speaking -------------------------------------------------------------------------------------

    async def ask(
        self, method: str, params: dict[str, Any], request_id: Any = ..., *, token: bool = True
    ) -> Asked:
        number = next(self._ids) + 1_000_000
        mine = number if request_id is ... else request_id
        mark = f"p{number}" if token else None
        said = self._speech.params(params, mark)
        asked = Asked(mine, mark, trio.current_time())
        headers = self._head_of(method, params)
        headers += self._mirrored.headers_for(method, params)
        post = await self._connect(asked)
        await post.send("POST", self._url, headers, message_of(method, said, mine))
        self._posts[asked] = post
        self._nursery.start_soon(post.read)
        return asked

    def _head_of(self, method: str, params: Mapping[str, Any]) -> list[tuple[str, str]]:
        headers = [("content-type", _JSON), ("accept", f"{_JSON}, {_EVENTS}")]
        if method != "initialize":
            headers.append(("mcp-protocol-version", self._speech.version))
        if self._session is not None:
            headers.append(("mcp-session-id", self._session))
        if not self._speech.in_session:
            headers.append(("mcp-method", encode_value(method)))
            if method in NAMED:
                headers.append(("mcp-name", encode_value(str(params.get(NAMED[method])))))
        return headers

    async def tell(self, method: str, params: Any = ...) -> str:
        """The HTTP status. Raises :class:`ConversationLost` if there is none."""
        status = await self._exchange("POST", self._head_of(method, {}), message_of(method, params))
        if status is None:
            raise ConversationLost(f"no answer to a posted {method}")
        return f"HTTP {status}"

    async def _exchange(self, verb: str, headers: list[tuple[str, str]], body: bytes) -> int | None:
        """Send what is no request; the status of the answer, ``None`` if there is none in time."""
        if not headers:
            headers = [("mcp-protocol-version", self._speech.version)]
            headers += [("mcp-session-id", self._session)] if self._session else []
        asked = Asked(None, None, trio.current_time())
        post = await self._connect(asked)
        try:
            await post.send(verb, self._url, headers, body)
            with trio.move_on_after(self._pace.answer):
                await post.read()
        finally:
            await post.close()
        for answer in asked.answers:  # an error, where its status says so
            if asked.status == 200:
                self._stray(f"an answer to a notification: {encode(answer.message)!r}")
        return asked.status

    async def cancel(self, asked: Asked, reason: str = "probe") -> None:
        if self.closes:
            await self.close(asked)
            return
        asked.cancelled_at = trio.current_time()
        await self.tell("notifications/cancelled", {"requestId": asked.id, "reason": reason})

    async def close(self, asked: Asked, *, reset: bool = False) -> None:
        asked.cancelled_at = trio.current_time()
        await self._posts[asked].close(reset=reset)

    async def release(self, asked: Sequence[Asked]) -> None:
        for one in asked:
            await self._posts[one].close()

    async def _connect(self, asked: Asked) -> _Post:
        if self.lost is not None:
            raise ConversationLost(self.lost)
        url = self._url
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            with trio.fail_after(self._pace.open):
                tcp = await trio.open_tcp_stream(url.host, port)
                stream = await self._secured(tcp)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
            raise ConversationLost(f"no connection to {url.host}:{port}: {error}") from None
        return _Post(self, asked, tcp, stream)

    async def _secured(self, tcp: trio.SocketStream) -> trio.abc.Stream:
        if self._url.scheme != "https":
            return tcp
        context = self._ssl_context or ssl.create_default_context()
        secured = trio.SSLStream(
            tcp, context, server_hostname=self._url.host, https_compatible=True
        )
        try:
            await secured.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(tcp)
            raise
        return secured

    # What its posts hear --------------------------------------------------------------------------

    def _hear(self, asked: Asked, data: bytes) -> None:
        now = trio.current_time()
        try:
            message = decode(data)
        except ProtocolError:
            message = None
        if not isinstance(message, dict):
            self._stray(f"no message: {data[:_QUOTED]!r}")
        elif "method" in message:
            params = message.get("params")
            token = params.get("progressToken") if isinstance(params, dict) else None
            if message["method"] == "notifications/progress" and token == asked.token:
                asked.progress.append(now)
        elif asked.id is not None and key_of(message.get("id")) != key_of(asked.id):
            # An error may be about no request that could be read.
            if "error" in message and message.get("id") is None:
                asked.answers.append(Answer(now, message))
            else:
                said = f"an answer to another: {encode(message)[:_QUOTED].decode()}"
                self._stray(said)
                if "result" in message:
                    self._note_unasked(said)
        elif (second := asked.take(Answer(now, message))) is not None:
            self._note_unasked(second)
        asked.note()

    def _stray(self, said: str) -> None:
        if len(self.strays) < _STRAYS:
            self.strays.append(said)

    def _note_unasked(self, said: str) -> None:
        if len(self.unasked) < _STRAYS:
            self.unasked.append(said)


class _Post:
    """One request on its connection. A protocol of ``httptools`` for its response."""

    def __init__(
        self, posts: Posts, asked: Asked, tcp: trio.SocketStream, stream: trio.abc.Stream
    ) -> None:
        self.session: str | None = None
        self._posts = posts
        self._asked = asked
        self._tcp = tcp
        self._stream = stream
        self._extra = posts._headers
        self._parser = httptools.HttpResponseParser(self)
        self._events: EventReader | None = None
        self._body = bytearray()
        self._complete = False
        self._closed = False

    async def send(self, verb: str, url: Any, headers: list[tuple[str, str]], body: bytes) -> None:
        """Raises :class:`ConversationLost`."""
        host = url.netloc.decode("ascii")
        all_headers = [("host", host), *self._extra, *headers, ("accept-encoding", "identity")]
        all_headers.append(("content-length", str(len(body))))
        lines = [f"{verb} {url.raw_path.decode('ascii')} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in all_headers]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        try:
            with trio.fail_after(self._posts._pace.answer):
                await self._stream.send_all(head + body)
        except (trio.BrokenResourceError, trio.TooSlowError) as error:
            await self.close()
            raise ConversationLost(f"the request could not be sent: {error!r}") from None

    async def read(self) -> None:
        """Its response, until it ends or is closed."""
        asked = self._asked
        try:
            while not self._complete:
                data = await self._stream.receive_some(_CHUNK)
                if not data:
                    break
                self._parser.feed_data(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except (httptools.HttpParserError, EventTooLong) as error:
            self._posts._stray(f"no HTTP answer: {error}")
        finally:
            await self.close()
            asked.over = True
            if asked.status is None and asked.cancelled_at is None:
                asked.lost = "the server has closed the connection without an answer"
            asked.note()

    async def close(self, *, reset: bool = False) -> None:
        """Its connection, at once: no goodbye of TLS, nothing waits."""
        if self._closed:
            return
        self._closed = True
        if reset:
            self._tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._tcp.socket.close()
        await trio.lowlevel.cancel_shielded_checkpoint()

    # Called by the parser -------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"mcp-session-id":
            self.session = value.decode("latin-1")
        elif name == b"content-type":
            self._asked.media = media_type_of(value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        asked = self._asked
        asked.status = self._parser.get_status_code()
        asked.head_at = trio.current_time()
        if asked.media == _EVENTS:
            self._events = EventReader(self._posts._limits.message_bytes)
        asked.note()

    def on_body(self, body: bytes) -> None:
        if self._events is None:
            self._body += body
            if len(self._body) > self._posts._limits.message_bytes:
                raise EventTooLong("an answer is too long")
            return
        for data in self._events.feed(body):
            self._posts._hear(self._asked, data)

    def on_message_complete(self) -> None:
        self._complete = True
        if self._events is None and self._body.strip():
            self._posts._hear(self._asked, bytes(self._body))
