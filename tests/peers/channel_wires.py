"""Channels, by raw means: pipes, sockets and memory that carry lines or frames of JSON-RPC."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from abc import abstractmethod
from typing import ClassVar

import msgspec
import trio
import wsproto
from tests.peers.checked import WireCheck
from tests.peers.limited_server import ROOT, environment
from tests.peers.observed_server import Sight
from tests.peers.raw import cancel, same_id
from tests.peers.wires import PATIENCE, Handle, InProcess, Message, Peer, Site, key_of
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Event,
    Ping,
    Request,
    TextMessage,
)

from trio_mcp.transports.framing import Oversize
from trio_mcp.transports.memory import MemoryWire, memory_wire_pair

__all__ = ["Memory", "Stdio", "Tcp", "WebSocket"]

_GONE = (trio.BrokenResourceError, trio.ClosedResourceError, trio.EndOfChannel)
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class ChannelPeer(Peer):
    """One connection for all requests; messages find their request by id or token."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.gone = trio.Event()
        self.left = False
        self._check = WireCheck()

    async def listen(self) -> None:
        """Hear the server out, message by message."""
        try:
            while (line := await self._read()) is not None:
                self._check.server_line(line)
                message = msgspec.json.decode(line)
                await self._handle_of(message).hear(message)
        except _GONE:
            pass
        finally:
            self.gone.set()

    def _handle_of(self, message: Message) -> Handle:
        if "method" in message:
            params = message["params"]
            about = params.get("requestId", params.get("_meta", {}).get(_SUBSCRIPTION))
            if about is not None:
                return next(h for h in reversed(self.handles) if same_id(h.id, about))
            token = key_of(message["params"]["progressToken"])
            return next(h for h in reversed(self.handles) if key_of(h.token) == token)
        if "id" not in message:  # about the oldest that can only be answered like this
            return next(h for h in self.handles if not h.served and not h.answered)
        own = [h for h in self.handles if same_id(h.id, message["id"])]
        return next((h for h in own if not h.answered), own[-1])

    async def _send(self, handle: Handle) -> None:
        await self._say(handle.message)

    async def notify(self, message: Message) -> None:
        await self._say(message)

    async def cancel(self, handle: Handle) -> None:
        handle.cancelled = True
        await self._say(cancel(handle.id, "changed my mind"))

    async def _say(self, message: Message) -> None:
        line = msgspec.json.encode(message)
        self._check.client_line(line)
        await self._write(line)

    async def disconnect(self) -> None:
        self.left = True
        await self._close()
        await self.gone.wait()

    async def aclose(self) -> None:
        if not self.left:
            self.left = True
            try:
                await self._say_goodbye()
            except _GONE:
                pass
            await self.gone.wait()
            await self._close()

    @abstractmethod
    async def _write(self, line: bytes) -> None: ...

    @abstractmethod
    async def _read(self) -> bytes | None: ...

    @abstractmethod
    async def _say_goodbye(self) -> None:
        """Tell the server that nothing more will come."""

    @abstractmethod
    async def _close(self) -> None: ...


# Lines ------------------------------------------------------------------------------------------


class LinePeer(ChannelPeer):
    """Lines over two streams, or over one in both directions."""

    def __init__(
        self, site: Site, send: trio.abc.SendStream, receive: trio.abc.ReceiveStream
    ) -> None:
        super().__init__(site)
        self._send_stream = send
        self._receive_stream = receive
        self._rest = b""

    async def _write(self, line: bytes) -> None:
        await self._send_stream.send_all(line + b"\n")

    async def _read(self) -> bytes | None:
        while b"\n" not in self._rest:
            data = await self._receive_stream.receive_some(65536)
            if not data:
                assert self._rest == b"", "the last line has no end"
                return None
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line

    async def _say_goodbye(self) -> None:
        if isinstance(self._send_stream, trio.abc.HalfCloseableStream):
            await self._send_stream.send_eof()
        else:
            await self._send_stream.aclose()

    async def _close(self) -> None:
        await self._send_stream.aclose()
        await self._receive_stream.aclose()


class Stdio(Site):
    """A process, over its pipes; observed through a socket that it has inherited."""

    name = "stdio"
    many_peers = False

    _process: trio.Process
    _control: trio.SocketStream

    async def begin(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "tests.peers.observed_server", str(theirs.fileno())]
        self._process = await trio.lowlevel.open_process(
            [*command, json.dumps(self.limits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env=environment(),
            cwd=ROOT,
        )
        theirs.close()
        self._control = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        self.nursery.start_soon(self._keep)

    async def _keep(self) -> None:
        """The process does not outlive the test."""
        try:
            await self._process.wait()
        finally:
            if self._process.returncode is None:
                self._process.kill()
            with trio.CancelScope(shield=True):
                await self._process.wait()
                await self._control.aclose()
                for peer in self.peers:
                    assert isinstance(peer, ChannelPeer)
                    await peer._close()

    async def _connect(self) -> Peer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        peer = LinePeer(self, self._process.stdin, self._process.stdout)
        self.nursery.start_soon(peer.listen)
        return peer

    async def look(self) -> Sight:
        return await self._ask(b"look")

    async def open_gate(self) -> None:
        await self._ask(b"open_gate")

    async def _ask(self, command: bytes) -> Sight:
        await self._control.send_all(command + b"\n")
        line = b""
        while not line.endswith(b"\n"):
            data = await self._control.receive_some(65536)
            assert data, "the server has died"
            line += data
        return Sight(**json.loads(line))

    async def shut_down(self) -> None:
        os.kill(self._process.pid, signal.SIGTERM)
        self.nursery.start_soon(self._see_end)

    async def _see_end(self) -> None:
        for peer in self.peers:
            assert isinstance(peer, ChannelPeer)
            await peer.gone.wait()
        self.ended.set()

    async def end(self) -> None:
        sight = await self.look()
        assert sight.connections == []
        await self._control.send_eof()
        with trio.fail_after(PATIENCE):
            assert await self._process.wait() == 0


class Tcp(InProcess):
    name = "tcp"

    async def _serve(self, task_status: trio.TaskStatus[int]) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        task_status.started(listeners[0].socket.getsockname()[1])
        await trio.serve_listeners(self.server.serve_stream, listeners)

    async def _connect(self) -> Peer:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        peer = LinePeer(self, stream, stream)
        self.nursery.start_soon(peer.listen)
        return peer


# Memory -----------------------------------------------------------------------------------------


class MemoryPeer(ChannelPeer):
    def __init__(self, site: Site, wire: MemoryWire) -> None:
        super().__init__(site)
        self._wire = wire
        self._frames: list[bytes] = []

    async def _write(self, line: bytes) -> None:
        await self._wire.send([line], lambda: None)

    async def _read(self) -> bytes | None:
        while not self._frames:
            frames = await self._wire.receive()
            if frames is None:
                return None
            for frame in frames:
                assert not isinstance(frame, Oversize)
                self._frames.append(bytes(frame))
        return self._frames.pop(0)

    async def _say_goodbye(self) -> None:
        self._wire._send_channel.close()

    async def _close(self) -> None:
        await self._wire.aclose()


class Memory(InProcess):
    name = "memory"

    async def _serve(self, task_status: trio.TaskStatus[int]) -> None:
        async with trio.open_nursery() as self._connections:
            task_status.started(0)
            await trio.sleep_forever()

    async def _connect(self) -> Peer:
        ours, theirs = memory_wire_pair(self.server.limits.message_bytes)
        self._connections.start_soon(self.server.serve_wire, theirs)
        peer = MemoryPeer(self, ours)
        self.nursery.start_soon(peer.listen)
        return peer


# WebSocket --------------------------------------------------------------------------------------


class WebSocketPeer(ChannelPeer):
    def __init__(self, site: Site, stream: trio.SocketStream) -> None:
        super().__init__(site)
        self.close_code: int | None = None
        self._stream = stream
        self._ws = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self._events: list[Event] = []
        self._writing = trio.Lock()

    async def open(self, port: int) -> None:
        await self._write_events(Request(host=f"127.0.0.1:{port}", target="/mcp"))
        event = await self._event()
        assert isinstance(event, AcceptConnection), event

    async def _write(self, line: bytes) -> None:
        await self._write_events(TextMessage(line.decode()))

    async def _write_events(self, *events: Event) -> None:
        async with self._writing:
            await self._stream.send_all(b"".join(self._ws.send(event) for event in events))

    async def _read(self) -> bytes | None:
        text = ""
        while (event := await self._event()) is not None:
            if isinstance(event, Ping):
                await self._write_events(event.response())
            elif isinstance(event, CloseConnection):
                self.close_code = event.code
                if self._ws.state is wsproto.connection.ConnectionState.REMOTE_CLOSING:
                    await self._write_events(event.response())
            else:
                assert isinstance(event, TextMessage), event
                text += event.data
                if event.message_finished:
                    return text.encode()
        return None

    async def _event(self) -> Event | None:
        while not self._events:
            data = await self._stream.receive_some(65536)
            if not data:
                return None
            self._ws.receive_data(bytes(data))
            self._events += self._ws.events()
        return self._events.pop(0)

    async def _say_goodbye(self) -> None:
        if self._ws.state is wsproto.connection.ConnectionState.OPEN:
            await self._write_events(CloseConnection(code=1000))

    async def _close(self) -> None:
        await self._stream.aclose()


class WebSocket(InProcess):
    name = "websocket"
    oversize_ends: ClassVar[bool] = True

    async def _serve(self, task_status: trio.TaskStatus[int]) -> None:
        await self.server.serve_websocket(port=0, task_status=task_status)

    async def _connect(self) -> Peer:
        peer = WebSocketPeer(self, await trio.open_tcp_stream("127.0.0.1", self.port))
        await peer.open(self.port)
        self.nursery.start_soon(peer.listen)
        return peer
