"""A peer that speaks bytes: what a hostile, broken or merely careful client would send.

``async with raw_client(server) as peer`` talks to a server of this process over an in-memory byte
stream; ``async with raw_process(command) as peer`` to a launched one over its real pipes.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio
import trio.testing

from trio_mcp import Server

META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(
    request_id: Any, method: str, params: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A valid request, whatever ``request_id`` is; ``_meta`` is added to ``params``."""
    params = dict(params or {})
    params["_meta"] = {**META, **params.get("_meta", {})}
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def call(request_id: Any, tool: str, /, *, token: Any = None, **arguments: Any) -> dict[str, Any]:
    """A ``tools/call``; with ``token`` it asks for progress."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return request(request_id, "tools/call", params)


def cancel(request_id: Any, reason: str | None = None) -> dict[str, Any]:
    """A ``notifications/cancelled``."""
    params = {"requestId": request_id}
    if reason is not None:
        params["reason"] = reason
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


def lines(*messages: Any) -> bytes:
    """Messages as they go over the wire; ``bytes`` go as they are, with a line end."""
    return b"".join(
        (message if isinstance(message, bytes) else msgspec.json.encode(message)) + b"\n"
        for message in messages
    )


class RawPeer:
    """Writes bytes, reads lines."""

    def __init__(self, send: trio.abc.SendStream, receive: trio.abc.ReceiveStream) -> None:
        self.send_stream = send
        self.receive_stream = receive
        self.seen: list[dict[str, Any]] = []
        self._buffer = b""
        self._unclaimed: list[dict[str, Any]] = []

    async def send(self, *messages: Any) -> None:
        """Send messages (JSON values, or bytes for what is none) in one write."""
        await self.send_stream.send_all(lines(*messages))

    async def receive(self, timeout: float = 15) -> dict[str, Any]:
        """The next message. Raises ``trio.TooSlowError``, or ``EOFError`` at the end."""
        with trio.fail_after(timeout):
            while b"\n" not in self._buffer:
                data = await self.receive_stream.receive_some(65536)
                if not data:
                    raise EOFError(self._buffer)
                self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: dict[str, Any] = msgspec.json.decode(line)
        self.seen.append(message)
        return message

    async def answer(self, request_id: Any, timeout: float = 15) -> dict[str, Any]:
        """The answer to one request, in whatever order answers come; all are in ``seen``."""
        for message in self._unclaimed:
            if same_id(message.get("id"), request_id):
                self._unclaimed.remove(message)
                return message
        while True:
            message = await self.receive(timeout)
            if "method" in message:
                continue
            if same_id(message.get("id"), request_id):
                return message
            self._unclaimed.append(message)

    async def probe(self, tool: str = "echo", timeout: float = 5) -> list[dict[str, Any]]:
        """Call ``echo`` and wait for its answer: all messages that came before it."""
        start = len(self.seen)
        await self.send(call("PROBE", tool, text="probe"))
        message = await self.answer("PROBE", timeout)
        assert text_of(message) == "probe", message
        return self.seen[start:-1]

    async def silence(self, seconds: float) -> None:
        """Assert that nothing comes for a while."""
        try:
            message = await self.receive(seconds)
        except trio.TooSlowError:
            return
        raise AssertionError(f"expected silence, got {message}")


class RawProcess(RawPeer):
    """A launched server."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        super().__init__(process.stdin, process.stdout)
        self.process = process
        self.stderr = b""

    async def drain_stderr(self) -> None:
        assert self.process.stderr is not None
        async for data in self.process.stderr:
            self.stderr += data


def same_id(left: Any, right: Any) -> bool:
    """Ids are alike if type and value are."""
    return type(left) is type(right) and bool(left == right)


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a tool's result."""
    (block,) = message["result"]["content"]
    text: str = block["text"]
    return text


async def until(condition: Callable[[], object], timeout: float = 15) -> None:
    """Wait until something that cannot be awaited has come true."""
    with trio.fail_after(timeout):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.001)


@asynccontextmanager
async def raw_client(server: Server) -> AsyncGenerator[RawPeer, None]:
    """A byte-level client of a server in this process; on leaving it hangs up."""
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_stream, theirs)
        yield RawPeer(ours, ours)
        await ours.aclose()


@asynccontextmanager
async def raw_process(
    command: Sequence[str], *, env: Mapping[str, str] | None = None
) -> AsyncGenerator[RawProcess, None]:
    """A launched server, over its real pipes; killed on leaving if it still runs."""
    process = await trio.lowlevel.open_process(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    )
    peer = RawProcess(process)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.drain_stderr)
            try:
                yield peer
            finally:
                if process.returncode is None:
                    process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()
                nursery.cancel_scope.cancel()
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with trio.CancelScope(shield=True):
                    await stream.aclose()
