"""A load generator for MCP servers that speak newline-delimited JSON-RPC over pipes.

It knows no server library: it starts a command, writes 2026-07-28 requests to its stdin, reads its
stdout, checks every answer, and measures. One process, one thread, `poll`; requests are encoded
before the clock starts, so that the server is the bottleneck and not the generator.

| measurement | what it does |
| --- | --- |
| `throughput` | `tools/call` of `add`, a constant number in flight: calls per second, latency |
| `memory` | resident memory, idle and with many `sleep` calls in flight |
| `cancel_storm` | cancels all those at once: time until a call is answered, until all have ended |

The server must offer three tools, each result's text being the plain value: `add(a, b)`,
`sleep(seconds)`, and `stats()`, the number of `sleep` handlers that are alive. It must accept as
many calls in flight as the measurement asks for, and one more.

Every measurement starts a fresh server, raises `LoadError` as soon as an answer is wrong, missing
or not asked for, and leaves no process behind. Linux only: memory is read from `/proc`.
"""

import os
import select
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

__all__ = [
    "LoadError",
    "Memory",
    "Storm",
    "Throughput",
    "cancel_storm",
    "memory",
    "resident",
    "throughput",
]

ROOT = Path(__file__).resolve().parents[1]

#: Seconds after which a step of a measurement has failed.
STEP_LIMIT = 120.0
#: Seconds that a server gets to exit after its stdin was closed.
EXIT_LIMIT = 5.0
#: Seconds that a `sleep` call would take if nobody cancelled it.
SLEEP_SECONDS = 3600
#: Calls that warm a server up before its idle memory is read.
MEMORY_WARMUP = 500
#: Memory has settled when this many readings in a row, this many seconds apart, differ by less
#: than this many bytes; otherwise the last reading counts.
SETTLE_READINGS, SETTLE_INTERVAL, SETTLE_BYTES, SETTLE_LIMIT = 5, 0.1, 65_536, 5.0
#: Seconds between two polls of `stats`.
POLL_INTERVAL = 0.002

#: Bytes of the server's stderr that an error shows.
STDERR_TAIL = 2_000

_CHUNK = 65_536
_META = (
    '"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    '"io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"},'
    '"io.modelcontextprotocol/clientCapabilities":{}}'
)


class LoadError(RuntimeError):
    """The server did not do what the measurement needs. A note holds the end of its stderr."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Calls per second, and the latency of single calls under that load, in milliseconds.

    A call's latency runs from its hand-over to the pipe to the reading of its answer; it contains
    the wait behind the other calls in flight.
    """

    calls: int
    seconds: float
    per_second: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of the server process, in bytes."""

    in_flight: int
    idle: int
    loaded: int

    @property
    def per_call(self) -> float:
        """Bytes that one call in flight costs."""
        return (self.loaded - self.idle) / self.in_flight


@dataclass(frozen=True, slots=True)
class Storm:
    """What followed when all calls in flight were cancelled at once; seconds from the first byte.

    `responsive`: a call sent behind the cancellations was answered. `ended`: no handler was alive.
    `late_answers`: answers to cancelled calls, of which a correct server sends none.
    """

    in_flight: int
    responsive: float
    ended: float
    late_answers: int


class _Text(msgspec.Struct):
    text: str = ""


class _Result(msgspec.Struct):
    content: list[_Text] = []
    structuredContent: Any = None
    isError: bool = False


class _Message(msgspec.Struct):
    id: int | None = None
    result: _Result | None = None
    error: Any = None
    method: str | None = None


_decode = msgspec.json.Decoder(_Message).decode


def _call(request_id: int, tool: str, arguments: str) -> bytes:
    return (
        f'{{"jsonrpc":"2.0","id":{request_id},"method":"tools/call",'
        f'"params":{{"name":"{tool}","arguments":{arguments},{_META}}}}}\n'
    ).encode()


def _cancel(request_id: int) -> bytes:
    return (
        '{"jsonrpc":"2.0","method":"notifications/cancelled",'
        f'"params":{{"requestId":{request_id},"reason":"storm"}}}}\n'
    ).encode()


def _value(message: _Message) -> str:
    """Return the text of a tool's result, which structured content must not contradict."""
    result = message.result
    if result is None or result.isError or len(result.content) != 1:
        raise LoadError(f"expected a result with one text: {message}")
    text = result.content[0].text
    structured = result.structuredContent
    if isinstance(structured, dict):
        structured = structured.get("result")
    if structured is not None and str(structured) != text:
        raise LoadError(f"text and structured content differ: {message}")
    return text


class _Peer:
    """A running server: its process, its pipes, and what is still to be written and read."""

    def __init__(self, command: Sequence[str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `__exit__`)
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin.fileno()
        self._stdout = self._process.stdout.fileno()
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        self._poll = select.poll()
        self._poll.register(self._stdout, select.POLLIN)
        self._outgoing = bytearray()
        self._blocked = False
        self._partial = b""
        self._last_id = 0
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the server's stdin, drop what it still says, wait; kill it when it does not go."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        give_up = time.monotonic() + EXIT_LIMIT
        while (left := give_up - time.monotonic()) > 0:
            if self._poll.poll(left * 1000) and not os.read(self._stdout, _CHUNK):
                break
        try:
            self._process.wait(max(0.1, give_up - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        with self._stderr as stderr:
            if isinstance(error, LoadError):
                stderr.seek(0)
                tail = stderr.read()[-STDERR_TAIL:].decode(errors="replace")
                error.add_note(f"the server's stderr ends with:\n{tail}")

    def new_id(self) -> int:
        """Return a request id that was never used."""
        self._last_id += 1
        return self._last_id

    def send(self, data: bytes) -> None:
        """Queue bytes, and write as many of them as the pipe takes now."""
        self._outgoing += data
        self._write()

    def turn(self, deadline: float) -> list[_Message]:
        """Wait until the pipes move, move them, and return what arrived whole (perhaps nothing)."""
        left = deadline - time.monotonic()
        ready = self._poll.poll(left * 1000) if left > 0 else []
        if not ready:
            raise LoadError("the server did not answer in time")
        messages: list[_Message] = []
        for descriptor, _ in ready:
            if descriptor == self._stdin:
                self._write()
            else:
                messages += self._read()
        return messages

    def call(self, tool: str, arguments: str, stray: Callable[[_Message], None]) -> str:
        """Call one tool and return its text; every other message goes to `stray`."""
        request_id = self.new_id()
        self.send(_call(request_id, tool, arguments))
        return self.answer(request_id, stray)

    def answer(self, request_id: int, stray: Callable[[_Message], None]) -> str:
        """Wait for the answer to a request that was sent, and return its text."""
        deadline = time.monotonic() + STEP_LIMIT
        text: str | None = None
        while text is None:
            for message in self.turn(deadline):
                if message.id == request_id and text is None:
                    text = _value(message)
                else:
                    stray(message)
        return text

    def unexpected(self, message: _Message) -> None:
        """Refuse a message that nobody asked for."""
        raise LoadError(f"unexpected message: {message}")

    def discover(self) -> None:
        """Wait until the server has started and answered `server/discover`."""
        request_id = self.new_id()
        self.send(
            f'{{"jsonrpc":"2.0","id":{request_id},"method":"server/discover",'
            f'"params":{{{_META}}}}}\n'.encode()
        )
        deadline = time.monotonic() + STEP_LIMIT
        while not (messages := self.turn(deadline)):
            pass
        if len(messages) != 1 or messages[0].id != request_id or messages[0].result is None:
            raise LoadError(f"server/discover was answered with {messages}")

    def _write(self) -> None:
        try:
            while self._outgoing:
                written = os.write(self._stdin, self._outgoing[:_CHUNK])
                del self._outgoing[:written]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            raise LoadError("the server closed its stdin") from None
        if bool(self._outgoing) == self._blocked:
            return
        self._blocked = not self._blocked
        if self._blocked:
            self._poll.register(self._stdin, select.POLLOUT)
        else:
            self._poll.unregister(self._stdin)

    def _read(self) -> list[_Message]:
        chunk = os.read(self._stdout, _CHUNK)
        if not chunk:
            raise LoadError("the server closed its stdout")
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        try:
            return [_decode(line) for line in lines]
        except msgspec.MsgspecError as error:
            raise LoadError(f"the server wrote what is no answer: {error}") from error


def resident(pid: int) -> int:
    """Return a process's resident memory in bytes, once it has settled."""
    give_up = time.monotonic() + SETTLE_LIMIT
    readings = [_resident_now(pid)]
    while time.monotonic() < give_up:
        time.sleep(SETTLE_INTERVAL)
        readings.append(_resident_now(pid))
        recent = readings[-SETTLE_READINGS:]
        if len(recent) == SETTLE_READINGS and max(recent) - min(recent) < SETTLE_BYTES:
            break
    return readings[-1]


def _resident_now(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass
    raise LoadError("the server is gone")


def throughput(
    command: Sequence[str], *, calls: int = 10_000, window: int = 100, warmup: int = 1_000
) -> Throughput:
    """Call `add` `calls` times, `window` calls in flight; `warmup` calls before do not count."""
    with _Peer(command) as peer:
        peer.discover()
        _run_calls(peer, warmup, window)
        seconds, latencies = _run_calls(peer, calls, window)
    cuts = statistics.quantiles(latencies, n=100)
    return Throughput(
        calls=calls,
        seconds=seconds,
        per_second=calls / seconds,
        p50_ms=cuts[49] * 1000,
        p99_ms=cuts[98] * 1000,
    )


def memory(command: Sequence[str], *, in_flight: int = 5_000) -> Memory:
    """Read the resident memory of a warm idle server, then with `in_flight` calls of `sleep`."""
    with _Peer(command) as peer:
        peer.discover()
        _run_calls(peer, MEMORY_WARMUP, 100)
        peer.call("stats", "{}", peer.unexpected)
        idle = resident(peer.pid)
        _hold(peer, in_flight)
        return Memory(in_flight=in_flight, idle=idle, loaded=resident(peer.pid))


def cancel_storm(command: Sequence[str], *, in_flight: int = 5_000) -> Storm:
    """Put `in_flight` calls of `sleep` in flight, cancel all at once, and time what follows."""
    with _Peer(command) as peer:
        peer.discover()
        held = _hold(peer, in_flight)
        cancelled = set(held)
        late = 0

        def stray(message: _Message) -> None:
            nonlocal late
            if message.id not in cancelled:
                raise LoadError(f"unexpected message: {message}")
            late += 1

        probe = peer.new_id()
        storm = b"".join(map(_cancel, held)) + _call(probe, "add", '{"a":40,"b":2}')
        start = time.perf_counter()
        peer.send(storm)
        if peer.answer(probe, stray) != "42":
            raise LoadError("the probe was answered wrongly")
        responsive = time.perf_counter() - start
        _wait_for_alive(peer, 0, stray)
        ended = time.perf_counter() - start
    return Storm(in_flight=in_flight, responsive=responsive, ended=ended, late_answers=late)


def _run_calls(peer: _Peer, calls: int, window: int) -> tuple[float, list[float]]:
    """Call `add` with `window` calls in flight; return the seconds it took and each call's own."""
    ids = [peer.new_id() for _ in range(calls)]
    requests = [_call(number, "add", f'{{"a":{number},"b":{number % 97}}}') for number in ids]
    expected: dict[int | None, str] = {number: str(number + number % 97) for number in ids}
    deadline = time.monotonic() + STEP_LIMIT
    sent_at: dict[int | None, float] = {}
    latencies: list[float] = []
    sent = 0
    start = now = time.perf_counter()
    while len(latencies) < calls:
        if room := min(window - len(sent_at), calls - sent):
            sent_at.update(dict.fromkeys(ids[sent : sent + room], time.perf_counter()))
            peer.send(b"".join(requests[sent : sent + room]))
            sent += room
        messages = peer.turn(deadline)
        now = time.perf_counter()
        for message in messages:
            began = sent_at.pop(message.id, None)
            if began is None:
                raise LoadError(f"unexpected message: {message}")
            if _value(message) != expected[message.id]:
                raise LoadError(f"wrong sum: {message}")
            latencies.append(now - began)
    return now - start, latencies


def _hold(peer: _Peer, in_flight: int) -> list[int]:
    """Put calls of `sleep` in flight, and return their ids once all handlers are alive."""
    ids = [peer.new_id() for _ in range(in_flight)]
    arguments = f'{{"seconds":{SLEEP_SECONDS}}}'
    peer.send(b"".join(_call(request_id, "sleep", arguments) for request_id in ids))
    _wait_for_alive(peer, in_flight, peer.unexpected)
    return ids


def _wait_for_alive(peer: _Peer, handlers: int, stray: Callable[[_Message], None]) -> None:
    """Poll `stats` until exactly so many `sleep` handlers are alive."""
    deadline = time.monotonic() + STEP_LIMIT
    while (alive := peer.call("stats", "{}", stray)) != str(handlers):
        if time.monotonic() > deadline:
            raise LoadError(f"{alive} handlers are alive instead of {handlers}")
        time.sleep(POLL_INTERVAL)
