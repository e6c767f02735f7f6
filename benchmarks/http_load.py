"""A load generator for MCP servers that speak Streamable HTTP of revision 2026-07-28.

It knows no server library: it starts a command with a free port behind it, and measures.

| measurement | what it does |
| --- | --- |
| `throughput` | `wrk` calls `stock` over kept connections: calls per second, latency, CPU time |
| `memory` | resident memory, idle and with many `sleep` requests in flight, a connection each |
| `closes` | closes one connection among many: time until that handler's `finally` ran |

The server must offer the tools that `http_ours.py` describes, at `/mcp` on 127.0.0.1. Every
measurement starts a fresh server, raises `LoadError` as soon as an answer is wrong or missing, and
leaves no process behind. `wrk` looks at the status of an answer only: so a sample of answers is
checked before and after, and the server must have run the tool as often as `wrk` counted answers.
Linux only: memory and CPU time are read from `/proc`.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from benchmarks.load import (
    EXIT_LIMIT,
    ROOT,
    SLEEP_SECONDS,
    STDERR_TAIL,
    STEP_LIMIT,
    LoadError,
    resident,
)

__all__ = ["Closes", "HttpMemory", "HttpThroughput", "closes", "memory", "throughput"]

SCRIPT = Path(__file__).with_name("http_call.lua")

#: Answers that are checked before and after `wrk`.
SAMPLE = 100
#: Calls before idle memory is read.
MEMORY_WARMUP = 500
#: Requests that are put in flight before the server is asked whether all have arrived.
BATCH = 50
#: Seconds of silence after which memory is read once more: by then a server may have opened a
#: stream for each request.
SILENCE = 8.0
#: Seconds between two questions to the server, and before the first one after a close: while it
#: answers them it does nothing else.
POLL_INTERVAL = 0.002
CLOSE_PAUSE = 0.005

_TICK = os.sysconf("SC_CLK_TCK")
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
_BOOK = {"title": "Dune"}
_STOCK = {"title": "Dune", "copies": 3, "price": 12.5}


@dataclass(frozen=True, slots=True)
class HttpThroughput:
    """What `wrk` counted, and the CPU time of the server per call, all its threads, in µs."""

    answers: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_us: float

    @property
    def per_second(self) -> float:
        """Calls that were answered, per second."""
        return self.answers / self.seconds


@dataclass(frozen=True, slots=True)
class HttpMemory:
    """Resident memory of the server process, in bytes. `silent`: after `SILENCE` more seconds."""

    in_flight: int
    idle: int
    loaded: int
    silent: int

    @property
    def per_request(self) -> float:
        """Bytes that one request in flight costs, its connection included."""
        return (self.loaded - self.idle) / self.in_flight

    @property
    def per_silent_request(self) -> float:
        """The same, once the server has had time to open streams."""
        return (self.silent - self.idle) / self.in_flight


@dataclass(frozen=True, slots=True)
class Closes:
    """From a connection's `close` to the end of its request's `finally`, in milliseconds."""

    in_flight: int
    latencies: Sequence[float]

    @property
    def p50_ms(self) -> float:
        """The median."""
        return statistics.median(self.latencies)

    @property
    def p99_ms(self) -> float:
        """The 99th percentile."""
        return statistics.quantiles(self.latencies, n=100)[98]


class _Summary(msgspec.Struct):
    """What the script prints."""

    answers: int
    seconds: float
    p50_ms: float
    p99_ms: float
    refused: int
    broken: int


def _body(tool: str, arguments: dict[str, Any]) -> bytes:
    params = {"name": tool, "arguments": arguments, "_meta": _META}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(request, separators=(",", ":")).encode()


def _headers(tool: str) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }


class _Peer:
    """A running server, and one connection to ask it things."""

    def __init__(self, command: Sequence[str]) -> None:
        self.port = _free_port()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `__exit__`)
        self._process = subprocess.Popen(
            [*command, str(self.port)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
        )
        self.pid = self._process.pid
        self._line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STEP_LIMIT)

    def __enter__(self) -> Self:
        try:
            self._await_start()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Hang up, end the server, wait; kill it when it does not go."""
        self._line.close()
        self._process.terminate()
        try:
            self._process.wait(EXIT_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._stderr as stderr:
            if isinstance(error, LoadError):
                stderr.seek(0)
                tail = stderr.read()[-STDERR_TAIL:].decode(errors="replace")
                error.add_note(f"the server's output ends with:\n{tail}")

    def ask(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call one tool, and return its result."""
        try:
            self._line.request("POST", "/mcp", _body(tool, arguments), _headers(tool))
            response = self._line.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise LoadError(f"{tool} was not answered: {error!r}") from error
        if response.status != 200:
            raise LoadError(f"{tool} was answered {response.status}: {content[:500]!r}")
        result = json.loads(content).get("result")
        if not isinstance(result, dict) or result.get("isError"):
            raise LoadError(f"{tool} was answered {content[:500]!r}")
        return result

    def number(self, tool: str, arguments: dict[str, Any] | None = None) -> float:
        """Call a tool whose text is a number."""
        return float(self.ask(tool, arguments or {})["content"][0]["text"])

    def check_sample(self) -> None:
        """Call `stock` some times, and look at each answer."""
        for _ in range(SAMPLE):
            result = self.ask("stock", _BOOK)
            said = json.loads(result["content"][0]["text"])
            if said != _STOCK or result.get("structuredContent") != _STOCK:
                raise LoadError(f"stock was answered with {result}")

    def open(self, label: str = "") -> socket.socket:
        """Put a `sleep` in flight, on a connection of its own."""
        line = socket.create_connection(("127.0.0.1", self.port), timeout=STEP_LIMIT)
        body = _body("sleep", {"seconds": SLEEP_SECONDS, "label": label})
        headers = _headers("sleep") | {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Length": str(len(body)),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        line.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
        return line

    def hold(self, in_flight: int) -> list[socket.socket]:
        """Put so many in flight, and return their connections once all handlers are alive."""
        lines: list[socket.socket] = []
        while len(lines) < in_flight:
            lines += [self.open() for _ in range(min(BATCH, in_flight - len(lines)))]
            self.await_alive(len(lines))
        return lines

    def hang_up(self) -> None:
        """Before a pause, in which the server might do it. The next question connects again."""
        self._line.close()

    def await_alive(self, handlers: int) -> None:
        """Ask until exactly so many `sleep` handlers are alive."""
        deadline = time.monotonic() + STEP_LIMIT
        while (alive := self.number("alive")) != handlers:
            if time.monotonic() > deadline:
                raise LoadError(f"{alive:.0f} handlers are alive instead of {handlers}")
            time.sleep(POLL_INTERVAL)

    def await_end(self, label: str) -> float:
        """Ask until that handler has ended; return when it did, in monotonic seconds."""
        deadline = time.monotonic() + STEP_LIMIT
        while not (ended := self.number("ended", {"label": label})):
            if time.monotonic() > deadline:
                raise LoadError("a handler did not end after its connection was closed")
            time.sleep(POLL_INTERVAL)
        return ended

    def cpu(self) -> float:
        """Return the seconds of CPU time that the server has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def _await_start(self) -> None:
        deadline = time.monotonic() + STEP_LIMIT
        while True:
            try:
                self._line.connect()
                return
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise LoadError("the server did not start") from None
                time.sleep(0.02)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def throughput(
    command: Sequence[str], wrk: str, *, connections: int, seconds: int, warmup: int
) -> HttpThroughput:
    """Let `wrk` call `stock` for some seconds; `warmup` seconds before do not count."""
    with _Peer(command) as peer:
        peer.check_sample()
        _run_wrk(peer, wrk, connections, warmup)
        calls, cpu = peer.number("calls"), peer.cpu()
        summary = _run_wrk(peer, wrk, connections, seconds)
        calls, cpu = peer.number("calls") - calls, peer.cpu() - cpu
        peer.check_sample()
    # What is under way when `wrk` hangs up may still run, and is not counted; so it is twice.
    uncounted = calls - summary.answers
    if summary.refused or summary.broken or not 0 <= uncounted <= 2 * connections:
        raise LoadError(f"the server ran {calls:.0f} calls, wrk counted {summary}")
    return HttpThroughput(
        answers=summary.answers,
        seconds=summary.seconds,
        p50_ms=summary.p50_ms,
        p99_ms=summary.p99_ms,
        cpu_us=cpu / calls * 1e6,
    )


def memory(command: Sequence[str], *, in_flight: int) -> HttpMemory:
    """Read the resident memory of a warm idle server, then with `in_flight` requests."""
    with _Peer(command) as peer:
        for _ in range(MEMORY_WARMUP):
            peer.number("alive")
        idle = resident(peer.pid)
        lines = peer.hold(in_flight)
        try:
            _check_silent(lines)
            loaded = resident(peer.pid)
            peer.hang_up()
            time.sleep(SILENCE)
            peer.await_alive(in_flight)
            return HttpMemory(in_flight, idle, loaded, silent=resident(peer.pid))
        finally:
            _close(lines)


def closes(command: Sequence[str], *, in_flight: int, times: int) -> Closes:
    """With `in_flight` other requests in flight, `times` times put one in flight and hang up."""
    with _Peer(command) as peer:
        lines = peer.hold(in_flight)
        try:
            latencies = [_time_close(peer, in_flight, f"close {n}") for n in range(times)]
            peer.await_alive(in_flight)  # nobody else's request has ended
        finally:
            _close(lines)
    return Closes(in_flight, latencies)


def _time_close(peer: _Peer, others: int, label: str) -> float:
    line = peer.open(label)
    peer.await_alive(others + 1)
    closed = time.monotonic()
    line.close()
    time.sleep(CLOSE_PAUSE)
    return (peer.await_end(label) - closed) * 1000


def _run_wrk(peer: _Peer, wrk: str, connections: int, seconds: int) -> _Summary:
    peer.hang_up()
    body = _body("stock", _BOOK).decode()
    options = ["-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(SCRIPT)]
    done = subprocess.run(
        [wrk, *options, f"http://127.0.0.1:{peer.port}", "--", body],
        capture_output=True,
        text=True,
        timeout=seconds + STEP_LIMIT,
    )
    _, _, summary = done.stdout.partition("\nsummary ")
    if done.returncode or not summary:
        raise LoadError(f"wrk said: {done.stdout}{done.stderr}")
    return msgspec.json.decode(summary, type=_Summary)


def _check_silent(lines: Sequence[socket.socket]) -> None:
    """Nobody may have been answered, or hung up on."""
    poll = select.poll()
    for line in lines:
        poll.register(line, select.POLLIN)
    if spoken := poll.poll(0):
        raise LoadError(f"{len(spoken)} of {len(lines)} requests were answered")


def _close(lines: Sequence[socket.socket]) -> None:
    for line in lines:
        line.close()
