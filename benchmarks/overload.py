"""One client floods a server, another one asks now and then: `python -m benchmarks.overload`.

The flooding client, a process of its own, keeps ten times as many requests in flight as the server
takes, and sends each again as soon as it is refused or answered. Meanwhile another client calls
`echo` every 10 ms. Over one connection each, and over HTTP from two addresses of loopback.
"""

import argparse
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

if not __package__:  # started as a script, by itself
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.load.process import resident

HERE = Path(__file__).resolve().parent
LIMIT = 200
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass
class Count:
    """Answers that the flooding client got."""

    done: int = 0
    refused: int = 0


def request(number: int, tool: str, **arguments: Any) -> bytes:
    params = {"name": tool, "arguments": arguments, "_meta": META}
    message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return msgspec.json.encode(message)


def post(body: bytes, tool: str) -> bytes:
    return (
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


# The flood, in a process of its own ---------------------------------------------------------------


async def flood(kind: str, port: int, seconds: float) -> None:
    count = Count()
    with trio.move_on_after(seconds):
        if kind == "tcp":
            await flood_channel(port, count)
        else:
            async with trio.open_nursery() as nursery:
                for number in range(10 * LIMIT):
                    nursery.start_soon(flood_http, port, number, count)
    print(count.done, count.refused)


async def flood_channel(port: int, count: Count) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    ready: list[int] = list(range(10 * LIMIT))
    some = trio.Event()

    async def write() -> None:
        nonlocal some
        while True:
            numbers, ready[:] = ready[:100], ready[100:]
            if numbers:
                lines = [request(number, "work", seconds=0.5) + b"\n" for number in numbers]
                await stream.send_all(b"".join(lines))
            else:
                some = trio.Event()
                await some.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        rest = b""
        while data := await stream.receive_some(65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                answer = msgspec.json.decode(line)
                note(count, "error" in answer)
                ready.append(answer["id"])
            some.set()


async def flood_http(port: int, number: int, count: Count) -> None:
    message = post(request(number, "work", seconds=0.5), "work")
    while True:
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", port, local_address="127.0.0.2")
            async with stream:
                while True:
                    await stream.send_all(message)
                    answer = await stream.receive_some(65536)  # whole: it is one write
                    if not answer:
                        break
                    note(count, b" 503 " in answer[:20])
        except OSError:
            await trio.sleep(0.01)


def note(count: Count, refused: bool) -> None:
    if refused:
        count.refused += 1
    else:
        count.done += 1


# The other client ---------------------------------------------------------------------------------


class Asking:
    """One request after the other, over a connection that stays."""

    def __init__(self, kind: str, stream: trio.SocketStream) -> None:
        self._kind = kind
        self._stream = stream

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        body = request(1, tool, **arguments)
        message = body + b"\n" if self._kind == "tcp" else post(body, tool)
        await self._stream.send_all(message)
        data = b""
        while not data.endswith((b"}\n", b"}")):
            data += await self._stream.receive_some(65536)
        answer: dict[str, Any] = msgspec.json.decode(data.rpartition(b"\r\n\r\n")[2])
        return answer

    async def probe(self, until: float, times: list[float]) -> int:
        refused = 0
        while time.perf_counter() < until:
            began = time.perf_counter()
            answer = await self.ask("echo", text="probe")
            times.append((time.perf_counter() - began) * 1000)
            refused += "error" in answer
            await trio.sleep(0.01)
        return refused


async def run(kind: str, seconds: float, tuned: bool) -> None:
    ports = [free_port(), free_port()]
    command = [sys.executable, "-P", str(HERE / "servers" / "overloaded.py"), *map(str, ports)]
    command += ["tuned"] * tuned
    server = await trio.lowlevel.open_process(command)
    try:
        name = f"{kind}, collector tuned" if tuned else kind
        await measure(kind, name, seconds, server.pid, ports[kind == "http"])
    finally:
        server.kill()


async def measure(kind: str, name: str, seconds: float, pid: int, port: int) -> None:
    stream = await reach(port)
    async with stream:
        asking = Asking(kind, stream)
        quiet: list[float] = []
        await asking.probe(time.perf_counter() + 1, quiet)
        before = resident(pid)
        command = [sys.executable, "-P", __file__, "flood", kind, str(port), str(seconds + 1)]
        flooding = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
        await trio.sleep(0.7)
        times: list[float] = []
        refused = await asking.probe(time.perf_counter() + seconds, times)
        peak = resident(pid)
        assert flooding.stdout is not None
        said = b"".join([data async for data in flooding.stdout])
        await flooding.wait()
        done, turned_away = map(int, said.split())
        in_flight = 0
        for _ in range(200):
            in_flight = int((await asking.ask("idle"))["result"]["content"][0]["text"])
            if in_flight == 1:
                break
            await trio.sleep(0.01)
    print(
        f"| {name} | {p(quiet, 99):.1f} | {statistics.median(times):.1f} | {p(times, 99):.1f} "
        f"| {max(times):.1f} | {len(times)} | {refused} | {done / seconds:,.0f} "
        f"| {turned_away / seconds:,.0f} | {(peak - before) / 2**20:.1f} | {in_flight - 1} |"
    )


async def reach(port: int) -> trio.SocketStream:
    for _ in range(500):
        try:
            return await trio.open_tcp_stream("127.0.0.1", port)
        except OSError:
            await trio.sleep(0.01)
    raise TimeoutError(f"no server on port {port}")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def p(times: list[float], percent: int) -> float:
    return statistics.quantiles(times, n=100, method="inclusive")[percent - 1]


def main() -> None:
    if sys.argv[1:2] == ["flood"]:
        kind, port, seconds = sys.argv[2:]
        trio.run(flood, kind, int(port), float(seconds))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    seconds = parser.parse_args().seconds
    print(
        "| wire | quiet p99, ms | probe median | p99 | longest | probes | refused "
        "| flood: done/s | refused/s | memory, MiB | left |"
    )
    print("| --- " * 11 + "|")
    for kind, tuned in (("tcp", False), ("http", False), ("http", True)):
        trio.run(partial(run, kind, seconds, tuned))


if __name__ == "__main__":
    main()
