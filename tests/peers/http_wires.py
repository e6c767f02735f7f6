"""Streamable HTTP, by raw means: h11 over sockets, h2 over TLS with many streams on one connection.

A request of HTTP/1.1 has a connection for itself, taken from those that are idle; closing our side
of it cancels, and what the server still says is heard to the end. On HTTP/2 a frame RST_STREAM
cancels.
"""

from __future__ import annotations

import ssl
import tempfile
from abc import abstractmethod
from functools import cache, partial
from pathlib import Path

import h2.config
import h2.connection
import h2.errors
import h2.events
import h11
import msgspec
import trio
import trustme
from hypercorn.config import Config
from hypercorn.trio import serve
from hyperframe.frame import RstStreamFrame
from tests.peers.checked import WireCheck
from tests.peers.raw import META
from tests.peers.wires import PATIENCE, Handle, InProcess, Message, Peer, Site

__all__ = ["HypercornHttp1", "HypercornHttp2", "NativeHttp"]

_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)
_VERSION = "io.modelcontextprotocol/protocolVersion"
_STATUS = {-32700: 400, -32600: 400, -32601: 404, -32602: 400, -32022: 400}
"""Statuses of errors that come as one JSON body; the rest are the server's own."""


def headers_of(message: Message, body: bytes) -> list[tuple[str, str]]:
    """The headers that a client sends with a message, which is well-formed or not."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    version = params.get("_meta", {}).get(_VERSION, META[_VERSION])
    headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("content-length", str(len(body))),
        ("mcp-protocol-version", version),
        ("mcp-method", message["method"]),
    ]
    if message["method"] == "tools/call":
        name = params.get("name")
        headers.append(("mcp-name", name if isinstance(name, str) else "none"))
    return headers


class Response:
    """What comes in answer to one request: one JSON body, an event stream, or nothing."""

    def __init__(self, handle: Handle, body: bytes) -> None:
        self._handle = handle
        self._body = b""
        self._type = ""
        self._check = WireCheck()
        self._check.client_line(body)

    def head(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._handle.status = status
        types = [value.decode() for name, value in headers if name == b"content-type"]
        self._type = types[0] if types else ""

    async def data(self, data: bytes) -> None:
        self._body += data
        if self._type == "text/event-stream":
            *blocks, self._body = self._body.split(b"\n\n")
            for block in blocks:
                if block != b":":
                    prefix = b"event: message\ndata: "
                    assert block.startswith(prefix), block[:200]
                    await self._hear(block.removeprefix(prefix))

    async def end(self) -> None:
        """The response has come to its end, by the rules of HTTP."""
        handle = self._handle
        if self._type == "application/json":
            message = await self._hear(self._body)
            code = message.get("error", {}).get("code")
            expected = _STATUS.get(code, handle.status) if code is not None else 200
            assert handle.status in (expected, 413), message
        else:
            assert self._body == b"", self._body[:200]
            if self._type == "text/event-stream":
                assert handle.status == 200
                assert handle.answered or handle.cancelled, "the stream ended without an answer"

    async def _hear(self, line: bytes) -> Message:
        self._check.server_line(line)
        message: Message = msgspec.json.decode(line)
        await self._handle.hear(message)
        return message


class HttpPeer(Peer):
    async def notify(self, message: Message) -> None:
        handle = Handle(self, message, served=False)
        await self._send(handle)
        with trio.fail_after(PATIENCE):
            await handle.over.wait()
        assert handle.status == 202
        assert not handle.answered


# HTTP/1.1 ---------------------------------------------------------------------------------------


class Connection:
    """One connection of HTTP/1.1, which serves one request after the other."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.handle: Handle | None = None
        self.reusable = True
        self._h11 = h11.Connection(h11.CLIENT)

    async def send(self, handle: Handle, host: str) -> Response:
        self.handle = handle
        body = msgspec.json.encode(handle.message)
        headers = [("host", host), *headers_of(handle.message, body)]
        parts = [
            h11.Request(method="POST", target="/mcp", headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ]
        data = b"".join(self._h11.send(part) or b"" for part in parts)
        try:
            await self.stream.send_all(data)
        except trio.BrokenResourceError:
            pass  # it does not want all of it; what it says comes first
        return Response(handle, body)

    async def hear(self, handle: Handle, response: Response) -> None:
        """Hear the response out; after a cancellation, whatever comes until the end."""
        try:
            await self._hear(handle, response)
        except _GONE:
            self.reusable = False
        finally:
            self.handle = None
            handle.over.set()
        if not self.reusable:
            await self.stream.aclose()  # as a client does, so that the server need not wait

    async def _hear(self, handle: Handle, response: Response) -> None:
        while True:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                data = await self.stream.receive_some(65536)
                if handle.cancelled:
                    await self._hear_on(handle, data)
                    return
                if not data:
                    self.reusable = False
                self._h11.receive_data(bytes(data))
            elif isinstance(event, h11.Response):
                response.head(event.status_code, list(event.headers))
            elif isinstance(event, h11.Data):
                await response.data(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                await response.end()
                break
            else:
                raise AssertionError(event)
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        else:
            self.reusable = False

    async def _hear_on(self, handle: Handle, data: bytes | bytearray) -> None:
        self.reusable = False
        while data:
            await handle.hear(bytes(data))
            data = await self.stream.receive_some(65536)

    async def hang_up(self) -> None:
        """Close our side only."""
        self.reusable = False
        try:
            await self.stream.send_eof()
        except _GONE:
            pass


class Http1Peer(HttpPeer):
    def __init__(self, site: InProcess) -> None:
        super().__init__(site)
        self._port = site.port
        self._connections: list[Connection] = []
        self._of: dict[Handle, Connection] = {}

    async def _send(self, handle: Handle) -> None:
        connection = await self._idle()
        self._of[handle] = connection
        response = await connection.send(handle, f"127.0.0.1:{self._port}")
        self.site.nursery.start_soon(connection.hear, handle, response)

    async def _idle(self) -> Connection:
        for connection in self._connections:
            if connection.handle is None and connection.reusable:
                return connection
        stream = await trio.open_tcp_stream("127.0.0.1", self._port)
        connection = Connection(stream)
        self._connections.append(connection)
        return connection

    async def cancel(self, handle: Handle) -> None:
        connection = self._of[handle]
        if connection.handle is not handle and handle.answered:
            await self._close(connection)
            return
        handle.cancelled = True
        await connection.hang_up()
        with trio.fail_after(PATIENCE):
            await handle.over.wait()
        await self._close(connection)

    async def disconnect(self) -> None:
        for connection in list(self._connections):
            await self._close(connection)

    async def aclose(self) -> None:
        for connection in list(self._connections):
            if connection.handle is not None:
                connection.handle.cancelled = True
                over = connection.handle.over
                await connection.hang_up()
                await over.wait()
            await self._close(connection)

    async def _close(self, connection: Connection) -> None:
        connection.reusable = False
        await connection.stream.aclose()


class HttpSite(InProcess):
    cancel_source = "DISCONNECT"
    ids_collide = False


class NativeHttp(HttpSite):
    name = "http"

    async def _serve(self, task_status: trio.TaskStatus[int]) -> None:
        await self.server.serve_http(port=0, task_status=task_status)

    async def _connect(self) -> Peer:
        return Http1Peer(self)


# Hypercorn --------------------------------------------------------------------------------------


class Hypercorn(HttpSite):
    """The ASGI application under Hypercorn, as its documentation tells to run and to drain it."""

    async def _serve(self, task_status: trio.TaskStatus[int]) -> None:
        app = self.server.asgi()
        with tempfile.TemporaryDirectory() as folder:
            config = self._config(Path(folder))
            stop = trio.Event()
            async with trio.open_nursery() as nursery:
                run = partial(serve, app, config, shutdown_trigger=stop.wait, mode="asgi")  # type: ignore[arg-type]
                (bound,) = await nursery.start(run)
                task_status.started(int(bound.rpartition(":")[2]))
                await self.stopping.wait()
                await app.drain()
                stop.set()

    def _config(self, folder: Path) -> Config:
        config = Config()
        config.bind = ["127.0.0.1:0"]
        config.errorlog = config.accesslog = None
        config.graceful_timeout = 1.0
        config.keep_alive_max_requests = 1_000_000
        return config

    async def begin(self) -> None:
        self.stopping = trio.Event()
        await super().begin()

    async def shut_down(self) -> None:
        self.stopping.set()

    @abstractmethod
    async def _connect(self) -> Peer: ...


class HypercornHttp1(Hypercorn):
    name = "hypercorn-http1"

    async def _connect(self) -> Peer:
        return Http1Peer(self)


# HTTP/2 -----------------------------------------------------------------------------------------


@cache
def _authority() -> trustme.CA:
    return trustme.CA()


class Http2Peer(HttpPeer):
    """One connection with a stream for each request."""

    def __init__(self, site: Site, stream: trio.SSLStream[trio.SocketStream], host: str) -> None:
        super().__init__(site)
        self.gone = trio.Event()
        self._host = host
        self._stream = stream
        config = h2.config.H2Configuration(client_side=True, header_encoding=None)
        self._h2 = h2.connection.H2Connection(config)
        self._streams: dict[int, tuple[Handle, Response]] = {}
        self._ids: dict[Handle, int] = {}
        self._writing = trio.Lock()
        self._window = trio.Event()
        self._left = False

    async def open(self) -> None:
        await self._stream.do_handshake()
        assert self._stream.selected_alpn_protocol() == "h2"
        self._h2.initiate_connection()
        await self._flush()

    async def _send(self, handle: Handle) -> None:
        body = msgspec.json.encode(handle.message)
        stream_id = self._h2.get_next_available_stream_id()
        self._ids[handle] = stream_id
        self._streams[stream_id] = handle, Response(handle, body)
        pseudo = [(":method", "POST"), (":scheme", "https"), (":path", "/mcp")]
        headers = [*pseudo, (":authority", self._host), *headers_of(handle.message, body)]
        self._h2.send_headers(stream_id, headers)
        with trio.fail_after(PATIENCE):
            await self._send_body(handle, stream_id, body)

    async def _send_body(self, handle: Handle, stream_id: int, body: bytes) -> None:
        while body and not handle.over.is_set():
            room = min(
                self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size
            )
            if room == 0:
                self._window = trio.Event()
                await self._flush()
                await self._window.wait()
                continue
            self._h2.send_data(stream_id, body[:room])
            body = body[room:]
        if not handle.over.is_set():
            self._h2.end_stream(stream_id)
        await self._flush()

    async def _flush(self) -> None:
        async with self._writing:
            data = self._h2.data_to_send()
            if data:
                await self._stream.send_all(data)

    async def listen(self) -> None:
        try:
            while data := await self._stream.receive_some(65536):
                if self._left:
                    continue  # what streams that go on still have to say
                for event in self._h2.receive_data(bytes(data)):
                    await self._on_event(event)
                await self._flush()
        except _GONE:
            pass
        finally:
            self.gone.set()
            self._window.set()
            for handle, _ in self._streams.values():
                handle.over.set()

    async def _on_event(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.WindowUpdated | h2.events.RemoteSettingsChanged):
            self._window.set()
        elif isinstance(
            event,
            h2.events.ResponseReceived
            | h2.events.DataReceived
            | h2.events.StreamEnded
            | h2.events.StreamReset,
        ):
            assert event.stream_id is not None
            handle, response = self._streams[event.stream_id]
            if handle.cancelled:
                await handle.hear(event)
            else:
                await self._on_response(event, handle, response)

    async def _on_response(
        self, event: h2.events.Event, handle: Handle, response: Response
    ) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            assert event.headers is not None
            headers = dict(event.headers)
            response.head(int(headers[b":status"]), list(headers.items()))
        elif isinstance(event, h2.events.DataReceived):
            assert event.data is not None
            assert event.stream_id is not None
            await response.data(event.data)
            size = event.flow_controlled_length or 0
            self._h2.acknowledge_received_data(size, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            await response.end()
            handle.over.set()
        else:
            assert isinstance(event, h2.events.StreamReset)
            assert event.error_code == h2.errors.ErrorCodes.NO_ERROR, event
            handle.over.set()
        self._window.set()

    async def cancel(self, handle: Handle) -> None:
        """A bare frame, past the client's own state machine: so that whatever comes is heard."""
        if not handle.answered:
            handle.cancelled = True
        frame = RstStreamFrame(self._ids[handle], error_code=int(h2.errors.ErrorCodes.CANCEL))
        async with self._writing:
            await self._stream.send_all(frame.serialize())

    async def disconnect(self) -> None:
        self._left = True
        await trio.aclose_forcefully(self._stream)
        await self.gone.wait()

    async def aclose(self) -> None:
        if not self._left:
            self._left = True
            self._h2.close_connection()
            try:
                await self._flush()
            except _GONE:
                pass
            await self.gone.wait()
            await trio.aclose_forcefully(self._stream)


class HypercornHttp2(Hypercorn):
    name = "hypercorn-http2"

    def _config(self, folder: Path) -> Config:
        config = super()._config(folder)
        certificate = _authority().issue_cert("127.0.0.1")
        chain, key = folder / "chain.pem", folder / "key.pem"
        chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(key)
        config.certfile, config.keyfile = str(chain), str(key)
        return config

    async def _connect(self) -> Peer:
        context = ssl.create_default_context()
        _authority().configure_trust(context)
        context.set_alpn_protocols(["h2"])
        stream = await trio.open_ssl_over_tcp_stream(
            "127.0.0.1", self.port, ssl_context=context, https_compatible=True
        )
        peer = Http2Peer(self, stream, f"127.0.0.1:{self.port}")
        await peer.open()
        self.nursery.start_soon(peer.listen)
        return peer
