"""Faults from the field, server side: stdio and the other byte streams.

Every kind of fault that took down servers elsewhere, with a real process, real pipes and sockets.
What does not depend on the wire runs over all of them: a launched process, TCP, a Unix socket, and
a byte stream in memory.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from trio_mcp import Limits
from trio_mcp.transports.framing import LineReader
from trio_mcp.transports.wire import CHUNK, READ, StreamWire

from .peers.fixture_server import Fixtures
from .peers.limited_server import ROOT, environment, limited
from .peers.processes import cpu_seconds, exit_status, resident_bytes
from .peers.raw import (
    RawPeer,
    RawProcess,
    call,
    cancel,
    lines,
    raw_client,
    raw_process,
    request,
    text_of,
    until,
)

FIXTURE_SERVER = [sys.executable, str(ROOT / "tests" / "peers" / "fixture_server.py")]
MEBIBYTE = 1024 * 1024
WIRES = ["process", "tcp", "unix socket", "memory"]
SHUTTING_DOWN = -31002


@asynccontextmanager
async def peer_over(wire: str, **limits: Any) -> AsyncGenerator[RawPeer, None]:
    """A byte-level client of the fixture server over one of ``WIRES``."""
    if wire == "process":
        command = limited(**limits) if limits else FIXTURE_SERVER
        async with raw_process(command, env=environment()) as process:
            yield process
        return
    server = Fixtures(Limits(**limits)).server
    if wire == "memory":
        async with raw_client(server) as peer:
            yield peer
        return
    async with trio.open_nursery() as nursery:
        if wire == "tcp":
            serve_tcp = partial(trio.serve_tcp, server.serve_stream, 0, host="127.0.0.1")
            listeners = await nursery.start(serve_tcp)
            stream = await trio.testing.open_stream_to_socket_listener(listeners[0])
        else:
            ours, theirs = trio.socket.socketpair()
            nursery.start_soon(server.serve_stream, trio.SocketStream(theirs))
            stream = trio.SocketStream(ours)
        async with stream:
            yield RawPeer(stream, stream)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def launched(
    command: Sequence[str], *, stdin: Any, stdout: Any, stderr: Any = subprocess.PIPE
) -> AsyncGenerator[trio.Process, None]:
    """A server on descriptors of the test's choice; killed on leaving if it still runs."""
    process = await trio.lowlevel.open_process(
        list(command), stdin=stdin, stdout=stdout, stderr=stderr, env=environment()
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            if process.stderr is not None:
                await process.stderr.aclose()


async def until_live(peer: RawPeer, handlers: int) -> None:
    """Wait until so many handlers run."""
    with trio.fail_after(5):
        for number in range(10**9):
            await peer.send(call(f"live-{number}", "stats"))
            if text_of(await peer.answer(f"live-{number}")) == str(handlers):
                return
            await trio.sleep(0.005)


# One bad line -------------------------------------------------------------------------------------

_ABSENT = "absent"

BAD_LINES: dict[str, tuple[bytes, int, Any]] = {
    "garbage": (b"garbage", -32700, _ABSENT),
    "truncated JSON": (b'{"jsonrpc":"2.0","id":1,"method":"tools/c', -32700, _ABSENT),
    "two values": (b"{} {}", -32700, _ABSENT),
    "10,000 [": (b"[" * 10_000, -32700, _ABSENT),
    "10,000 nested objects": (b'{"a":' * 10_000, -32700, _ABSENT),
    "NaN": (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}', -32700, _ABSENT),
    "lone surrogate": (rb'{"jsonrpc":"2.0","id":"\ud800","method":"x"}', -32700, _ABSENT),
    "FF FE": (b"\xff\xfe", -32700, _ABSENT),
    "UTF-16": ('{"jsonrpc":"2.0"}'.encode("utf-16-le"), -32700, _ABSENT),
    "invalid UTF-8 in a string": (
        b'{"jsonrpc":"2.0","id":1,"method":"caf\xe9"}',
        -32700,
        _ABSENT,
    ),
    "NUL": (b"\0", -32700, _ABSENT),
    "{}": (b"{}", -32600, _ABSENT),
    "[]": (b"[]", -32600, _ABSENT),
    "5": (b"5", -32600, _ABSENT),
    '"x"': (b'"x"', -32600, _ABSENT),
    "null": (b"null", -32600, _ABSENT),
    "true": (b"true", -32600, _ABSENT),
    "a batch": (b"[" + lines(call(1, "echo", text="batched"))[:-1] + b"]", -32600, _ABSENT),
    "no method": (b'{"jsonrpc":"2.0","id":1}', -32600, 1),
    "method 7": (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600, 1),
    "method 7 without id": (b'{"jsonrpc":"2.0","method":7}', -32600, _ABSENT),
    "no jsonrpc": (b'{"id":1,"method":"tools/list"}', -32600, 1),
    "jsonrpc 1.0": (b'{"jsonrpc":"1.0","id":"e","method":"x"}', -32600, "e"),
    "id null": (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', -32600, _ABSENT),
    "id true": (b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}', -32600, _ABSENT),
    "id 1.0": (b'{"jsonrpc":"2.0","id":1.0,"method":"tools/list"}', -32600, _ABSENT),
    "id 1.5": (b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}', -32600, _ABSENT),
    "id []": (b'{"jsonrpc":"2.0","id":[],"method":"tools/list"}', -32600, _ABSENT),
    "id {}": (b'{"jsonrpc":"2.0","id":{},"method":"tools/list"}', -32600, _ABSENT),
    "params null": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}', -32602, 1),
    "params []": (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}', -32602, 1),
    "no params": (b'{"jsonrpc":"2.0","id":"","method":"tools/list"}', -32602, ""),
    "unknown method": (lines(request(0, "tools/burn"))[:-1], -32601, 0),
    "unknown tool": (lines(call(-1, "nope"))[:-1], -32602, -1),
}

SILENT_LINES: dict[str, bytes] = {
    "unknown notification": b'{"jsonrpc":"2.0","method":"notifications/whatever"}',
    "cancel without params": b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    "cancel with params null": (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":null}'
    ),
    "cancel of an object": (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":[]}}}'
    ),
    "an answer to nothing": b'{"jsonrpc":"2.0","id":1,"result":{}}',
}


async def refused(peer: RawPeer, line: bytes, code: int, request_id: Any) -> None:
    """The line is answered with that error, and the next message is served."""
    await peer.send(line)
    answer = await peer.receive()
    assert answer["error"]["code"] == code, answer
    assert answer.get("id", _ABSENT) == request_id, answer
    assert await peer.probe() == []


@pytest.mark.parametrize("wire", WIRES)
async def test_one_bad_line_is_answered_and_the_next_message_is_served(wire: str) -> None:
    async with peer_over(wire) as peer:
        for name, (line, code, request_id) in BAD_LINES.items():
            try:
                await refused(peer, line, code, request_id)
            except BaseException as error:
                error.add_note(f"the line: {name}")
                raise


@pytest.mark.parametrize("wire", WIRES)
async def test_invariant_7_lines_that_need_no_answer_get_none(wire: str) -> None:
    async with peer_over(wire) as peer:
        for name, line in SILENT_LINES.items():
            await peer.send(line)
            assert await peer.probe() == [], name


@pytest.mark.parametrize("wire", WIRES)
async def test_all_bad_lines_in_one_write_are_answered_in_order(wire: str) -> None:
    sure = [bad for bad in BAD_LINES.values() if bad[2] is _ABSENT]
    async with peer_over(wire) as peer:
        await peer.send(*(line for line, _, _ in sure))
        assert [(await peer.receive())["error"]["code"] for _ in sure] == [bad[1] for bad in sure]
        assert await peer.probe() == []


@pytest.mark.parametrize("wire", WIRES)
async def test_invalid_utf8_then_a_valid_line_in_one_write(wire: str) -> None:
    async with peer_over(wire) as peer:
        await peer.send_stream.send_all(b"\xff\xfe\n" + lines(call(1, "echo", text="é")))
        answers = [await peer.receive(), await peer.receive()]
        assert sorted(answer.get("error", {}).get("code", 0) for answer in answers) == [-32700, 0]
        (served,) = [answer for answer in answers if "result" in answer]
        assert text_of(served) == "é"


# Bytes and lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_split_multibyte_characters_arrive_exactly(wire: str) -> None:
    text = "é 日本 \U0001f980 \u2028\u0085\ufeff \U0010ffff"
    async with peer_over(wire) as peer:
        for byte in lines(call("é", "echo", text=text)):
            await peer.send_stream.send_all(bytes([byte]))
        assert text_of(await peer.answer("é")) == text


@pytest.mark.parametrize("wire", WIRES)
async def test_bom_crlf_and_blank_lines_are_accepted(wire: str) -> None:
    line = lines(call(1, "echo", text="windows"))[:-1]
    async with peer_over(wire) as peer:
        await peer.send_stream.send_all(b"\xef\xbb\xbf" + line + b"\r\n\r\n \t\n\n\r\n")
        assert text_of(await peer.receive()) == "windows"
        assert await peer.probe() == []


@pytest.mark.parametrize("wire", WIRES)
async def test_we_write_lf_only_and_one_line_per_message(wire: str) -> None:
    text = "a\nb\r\nc\u2028d\u0085e"
    async with peer_over(wire) as peer:
        await peer.send(call(1, "echo", text=text), b"garbage")
        data = b""
        with trio.fail_after(5):
            while data.count(b"\n") < 2:
                data += await peer.receive_stream.receive_some(65536)
        assert b"\r" not in data
        assert data.endswith(b"\n")
        messages = [msgspec.json.decode(line) for line in data[:-1].split(b"\n")]
        (served,) = [message for message in messages if "result" in message]
        assert text_of(served) == text


@pytest.mark.parametrize("wire", WIRES)
async def test_half_a_frame_is_an_error_at_its_line_end(wire: str) -> None:
    line = lines(call(1, "echo", text="whole"))
    async with peer_over(wire) as peer:
        await peer.send_stream.send_all(line[:40])
        await peer.silence(0.05)  # no line end yet: not an error yet
        await peer.send_stream.send_all(b"\n" + line)
        answers = [await peer.receive(), await peer.receive()]
        assert [answer["error"]["code"] for answer in answers if "error" in answer] == [-32700]
        assert await peer.probe() == []


@pytest.mark.parametrize("wire", WIRES)
async def test_invariant_9_an_endless_line_is_one_error_and_reading_goes_on(wire: str) -> None:
    async with peer_over(wire, message_bytes=MEBIBYTE) as peer:
        for _ in range(48):
            await peer.send_stream.send_all(b"x" * 65536)
        error = (await peer.receive())["error"]  # before the line has ended
        assert error["code"] == -32600
        assert f"message_bytes={MEBIBYTE}" in error["message"]
        await peer.send_stream.send_all(b'"}\n')
        assert await peer.probe() == []


async def test_invariant_9_an_endless_line_costs_no_memory() -> None:
    chunk = b"x" * MEBIBYTE
    async with peer_over("process", message_bytes=MEBIBYTE) as peer:
        assert isinstance(peer, RawProcess)
        await peer.probe(timeout=10)
        before = resident_bytes(peer.process.pid)
        with trio.fail_after(20):
            for _ in range(100):
                await peer.send_stream.send_all(chunk)
            await peer.send(b"")
        await peer.receive()
        await peer.probe()
        assert resident_bytes(peer.process.pid, "VmHWM") - before < 8 * MEBIBYTE


def test_invariant_9_a_line_in_tiny_pieces_costs_no_more_memory_than_in_one() -> None:
    size = 128 * 1024
    reader = LineReader(size)
    piece = b"xx"
    tracemalloc.start()
    try:
        for _ in range(size // len(piece)):
            assert reader.feed(piece[:1] + piece[1:]) == []
        held, _ = tracemalloc.get_traced_memory()
        assert held < 2 * size
    finally:
        tracemalloc.stop()
    assert reader.feed(b"\n") == [piece * (size // len(piece))]


@pytest.mark.parametrize("wire", WIRES)
async def test_an_oversize_answer_names_the_limit_and_the_next_message_works(wire: str) -> None:
    async with peer_over(wire, message_bytes=100_000) as peer:
        await peer.send(call(1, "big", bytes=100_000))
        error = (await peer.answer(1))["error"]
        assert error["code"] == -32603
        assert "message_bytes=100000" in error["message"]
        assert await peer.probe() == []
        await peer.send(call(2, "big", bytes=90_000))
        assert len(text_of(await peer.answer(2))) == 90_000


# Descriptors 0 and 1 ------------------------------------------------------------------------------


async def test_prints_of_handlers_and_of_their_children_keep_the_wire_clean() -> None:
    async with raw_process(FIXTURE_SERVER, env=environment()) as peer:
        await peer.send(call(1, "noisy", text="NOISE"), call(2, "spawn"))
        answers = {message["id"]: message for message in [await peer.receive() for _ in range(2)]}
        assert text_of(answers[1]) == "quiet"
        assert text_of(answers[2]) == "0"  # it read its stdin to the end, and there was nothing
        assert await peer.probe() == []
        await peer.send_stream.aclose()
        assert await peer.receive_stream.receive_some(100) == b""
        assert await exit_status(peer.process, 2) == 0
        said = sorted([b"NOISE"] * 5 + [b"a child speaks", b"0"])
        await until(lambda: sorted(peer.stderr.splitlines()) == said)


@pytest.mark.parametrize(
    "replaced", ["stdout", "io.StringIO()", "io.TextIOWrapper(io.BytesIO())", "None"]
)
async def test_prints_before_serving_do_not_reach_the_wire(replaced: str) -> None:
    code = f"""
import io, sys, trio, trio_mcp
stdout = sys.stdout
stdout.write("buffered before\\n")  # to a pipe: it waits in the buffer
sys.stdout = {replaced}
if sys.stdout and sys.stdout is not stdout: sys.stdout.close()
server = trio_mcp.Server("s", version="1")
@server.tool
async def echo(text: str) -> str:
    stdout.write("buffered while serving\\n")
    return text
trio.run(server.serve_stdio)
"""
    async with raw_process([sys.executable, "-c", code], env=environment()) as peer:
        assert await peer.probe(timeout=5) == []
        assert peer.stderr == b"buffered before\n"
        await peer.send_stream.aclose()
        assert await peer.receive_stream.receive_some(100) == b""
        assert await exit_status(peer.process, 5) == 0
        await until(lambda: peer.stderr == b"buffered before\nbuffered while serving\n")


async def test_locale_c_still_speaks_utf8() -> None:
    text = "é 日本 \U0001f980"
    environ = environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    async with raw_process(FIXTURE_SERVER, env=environ) as peer:
        await peer.send(call("é", "echo", text=text), call(2, "noisy", text=text))
        answers = {message["id"]: message for message in [await peer.receive() for _ in range(2)]}
        assert text_of(answers["é"]) == text
        assert await peer.probe() == []


# The end of stdin ---------------------------------------------------------------------------------


async def test_eof_while_idle_ends_the_server() -> None:
    async with raw_process(FIXTURE_SERVER, env=environment()) as peer:
        await peer.probe(timeout=5)
        await peer.send_stream.aclose()
        assert await exit_status(peer.process, 2) == 0


async def test_eof_before_anything_ends_the_server() -> None:
    async with raw_process(FIXTURE_SERVER, env=environment()) as peer:
        await peer.send_stream.aclose()
        assert await exit_status(peer.process, 5) == 0


async def test_eof_in_a_sleep_ends_the_server() -> None:
    async with raw_process(FIXTURE_SERVER, env=environment()) as peer:
        await peer.send(*(call(number, "sleep", s=60) for number in range(20)))
        await until_live(peer, 20)
        await peer.send_stream.aclose()
        assert await exit_status(peer.process, 2) == 0


async def test_invariant_11_eof_in_a_thread_that_never_asks_ends_the_server() -> None:
    async with raw_process(limited(cleanup=0.2), env=environment()) as peer:
        await peer.send(*(call(number, "block", s=60) for number in range(3)))
        await until_live(peer, 3)
        await peer.send_stream.aclose()
        assert await exit_status(peer.process, 2) == 0


async def test_eof_after_a_last_line_without_its_end_ends_the_server() -> None:
    async with raw_process(FIXTURE_SERVER, env=environment()) as peer:
        await peer.probe(timeout=5)
        await peer.send_stream.send_all(lines(call(1, "sleep", s=60))[:-1])
        await peer.send_stream.aclose()
        assert await exit_status(peer.process, 2) == 0


async def test_eof_while_the_peer_does_not_read_ends_the_server() -> None:
    async with raw_process(limited(drain=0.2), env=environment()) as peer:
        await peer.send(call(1, "big", bytes=8 * MEBIBYTE))
        await trio.testing.wait_all_tasks_blocked()
        await peer.receive_stream.receive_some(1)  # it is writing, and cannot go on
        await peer.send_stream.aclose()
        assert await exit_status(peer.process, 2) == 0


# Dead peers ---------------------------------------------------------------------------------------


def reset(sock: socket.socket) -> None:
    """Close so that the other side gets an error, not an end."""
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    return ours, theirs


@pytest.mark.parametrize("family", ["unix", "tcp"])
@pytest.mark.parametrize("busy", ["idle", "sleep", "block", "answering"])
async def test_a_dead_peer_ends_the_server_without_a_spin(family: str, busy: str) -> None:
    ours, theirs = socket.socketpair() if family == "unix" else tcp_pair()
    command = limited(cleanup=0.5, drain=0.5)
    async with launched(command, stdin=theirs.fileno(), stdout=theirs.fileno()) as process:
        theirs.close()
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        peer = RawPeer(stream, stream)
        await peer.probe(timeout=10)
        if busy in ("sleep", "block"):
            await peer.send(*(call(number, busy, s=60) for number in range(3)))
            await until_live(peer, 3)
        if busy == "answering":
            await peer.send(call(1, "big", bytes=8 * MEBIBYTE))
            await stream.receive_some(1)
        else:
            await peer.send(call(2, "echo", text="never read: the close becomes a reset"))
            await trio.lowlevel.wait_readable(stream.socket)
        used, began = cpu_seconds(process.pid), trio.current_time()
        reset(ours)
        with trio.fail_after(2):
            while process.returncode is None:
                try:
                    spent = cpu_seconds(process.pid) - used
                except OSError:
                    break
                assert spent < 0.15 + (trio.current_time() - began) / 4
                await trio.sleep(0.01)
            assert await process.wait() == 0


async def test_a_stdout_that_nobody_reads_any_more_ends_the_server() -> None:
    async with raw_process(FIXTURE_SERVER, env=environment()) as peer:
        await peer.probe(timeout=5)
        await peer.send(call(1, "sleep", s=60))
        await until_live(peer, 1)
        await peer.receive_stream.aclose()
        await peer.send(call(2, "echo", text="cannot be answered"))
        assert await exit_status(peer.process, 2) == 0


async def test_a_dead_stderr_alone_changes_nothing() -> None:
    read_end, write_end = os.pipe()
    async with launched(
        FIXTURE_SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=write_end
    ) as process:
        os.close(write_end)
        assert process.stdin is not None
        assert process.stdout is not None
        async with process.stdin, process.stdout:
            peer = RawPeer(process.stdin, process.stdout)
            await peer.probe(timeout=5)
            os.close(read_end)
            await peer.send(call(1, "boom", kind="bug"))  # which is logged to standard error
            assert (await peer.answer(1))["error"]["code"] == -32603
            await peer.send(call(2, "noisy", text="lost"))
            await peer.answer(2)
            used = cpu_seconds(process.pid)
            await peer.probe()
            await trio.sleep(0.2)
            assert cpu_seconds(process.pid) - used < 0.1
            await peer.probe()
            await process.stdin.aclose()
            assert await process.stdout.receive_some(100) == b""
            assert await exit_status(process, 2) == 0


async def test_invariant_8_a_full_stderr_that_nobody_reads_changes_nothing() -> None:
    """No peer makes the runtime write to it: only what handlers raise unexpectedly goes there."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    try:
        while True:
            os.write(write_end, b"x" * 65536)
    except BlockingIOError:
        os.set_blocking(write_end, True)
    async with launched(
        FIXTURE_SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=write_end
    ) as process:
        os.close(write_end)
        assert process.stdin is not None
        assert process.stdout is not None
        async with process.stdin, process.stdout:
            peer = RawPeer(process.stdin, process.stdout)
            await peer.probe(timeout=5)
            for line, code, request_id in BAD_LINES.values():
                await refused(peer, line, code, request_id)
            for tool in ("sleep", "patient"):
                await peer.send(call(1, tool, s=60), call(1, tool, s=60))  # one id twice
                assert (await peer.receive())["error"]["data"] == {"requestId": 1}
                await until_live(peer, 1)
                await peer.send(cancel(1), cancel(1), cancel(2))
                await until_live(peer, 0)
            await peer.send(call(1, "boom", kind="tool"))
            assert (await peer.answer(1))["result"]["isError"]
            await peer.send(call(1, "sleep", s=60))
            await until_live(peer, 1)
            process.terminate()
            assert (await peer.answer(1))["error"]["code"] == SHUTTING_DOWN
            assert await exit_status(process, 2) == 0
    os.close(read_end)


# Signals ------------------------------------------------------------------------------------------

SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@SIGNALS
async def test_a_signal_while_idle_ends_the_server(number: signal.Signals) -> None:
    async with raw_process(FIXTURE_SERVER, env=environment()) as peer:
        await peer.probe(timeout=5)
        peer.process.send_signal(number)
        assert await exit_status(peer.process, 2) == 0
        assert peer.stderr == b""


@SIGNALS
async def test_a_signal_in_a_sleep_answers_it_and_ends_the_server(number: signal.Signals) -> None:
    async with raw_process(limited(drain=0.3), env=environment()) as peer:
        await peer.send(*(call(request_id, "sleep", s=60) for request_id in range(5)))
        await peer.send(call("short", "sleep", s=0.2))
        await until_live(peer, 6)
        peer.process.send_signal(number)
        assert text_of(await peer.answer("short")) == "slept"
        answers = {}
        for _ in range(5):
            message = await peer.receive(2)
            answers[message["id"]] = message["error"]["code"]
        assert answers == dict.fromkeys(range(5), SHUTTING_DOWN)
        assert await exit_status(peer.process, 2) == 0


@SIGNALS
async def test_invariant_11_a_signal_with_a_thread_that_never_asks(number: signal.Signals) -> None:
    async with raw_process(limited(drain=0.2, cleanup=0.3), env=environment()) as peer:
        await peer.send(call(1, "block", s=60), call(2, "sleep", s=60), call(3, "patient", s=60))
        await until_live(peer, 3)
        peer.process.send_signal(number)
        codes = {(await peer.receive())["error"]["code"] for _ in range(3)}
        assert codes == {SHUTTING_DOWN}
        assert await exit_status(peer.process, 2) == 0
        assert b"Traceback" not in peer.stderr


@SIGNALS
async def test_several_signals_are_like_one(number: signal.Signals) -> None:
    async with raw_process(limited(drain=0.5), env=environment()) as peer:
        await peer.send(call(1, "sleep", s=60), call(2, "sleep", s=60))
        await until_live(peer, 2)
        for _ in range(3):
            peer.process.send_signal(number)
            await trio.sleep(0.1)  # each while it drains
        assert {(await peer.receive())["error"]["code"] for _ in range(2)} == {SHUTTING_DOWN}
        assert await exit_status(peer.process, 2) == 0
        assert peer.stderr == b""


async def test_a_request_during_the_drain_is_refused() -> None:
    async with raw_process(limited(drain=30), env=environment()) as peer:
        await peer.send(call(1, "sleep", s=60))
        await until_live(peer, 1)
        peer.process.terminate()
        with trio.fail_after(2):
            for number in range(10**9):
                await peer.send(call(f"late-{number}", "echo", text="x"))
                if "error" in (answer := await peer.answer(f"late-{number}")):
                    break
        assert answer["error"]["code"] == SHUTTING_DOWN
        await peer.send(cancel(1))  # it still listens, and ends when nothing is left to do
        assert await exit_status(peer.process, 2) == 0


async def test_a_signal_while_the_peer_does_not_read(tmp_path: Path) -> None:
    async with raw_process(limited(drain=0.3), env=environment()) as peer:
        await peer.send(call(1, "big", bytes=8 * MEBIBYTE))
        await peer.receive_stream.receive_some(1)
        peer.process.terminate()
        assert await exit_status(peer.process, 2) == 0


# Files and missing descriptors --------------------------------------------------------------------


@pytest.mark.parametrize("output", ["file", "/dev/null"])
async def test_all_of_a_file_on_stdin_is_answered(tmp_path: Path, output: str) -> None:
    requests = tmp_path / "requests.jsonl"
    answers = tmp_path / "answers.jsonl" if output == "file" else Path("/dev/null")
    messages = [call(number, "echo", text=f"line {number}") for number in range(1000)]
    messages += [call("nap", "sleep", s=0.1), call("thread", "block", s=0.1)]
    requests.write_bytes(lines(*messages)[:-1])  # without the last line end
    with requests.open("rb") as stdin, answers.open("wb") as stdout:
        async with launched(FIXTURE_SERVER, stdin=stdin, stdout=stdout) as process:
            assert await exit_status(process, 5) == 0
            assert process.stderr is not None
            assert await process.stderr.receive_some(100) == b""
    if output == "file":
        answered = map(json.loads, answers.read_bytes().splitlines())
        texts = {answer["id"]: text_of(answer) for answer in answered}
        assert texts.pop("nap") == "slept"
        assert texts.pop("thread") == "blocked"
        assert texts == {number: f"line {number}" for number in range(1000)}


async def test_a_long_request_in_a_file_on_stdin_is_bounded_by_the_drain(tmp_path: Path) -> None:
    requests, answers = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    requests.write_bytes(lines(call(1, "sleep", s=60), call(2, "echo", text="x")))
    with requests.open("rb") as stdin, answers.open("wb") as stdout:
        async with launched(limited(drain=0.2), stdin=stdin, stdout=stdout) as process:
            assert await exit_status(process, 5) == 0
    echoed, slept = map(json.loads, answers.read_bytes().splitlines())
    assert (echoed["id"], text_of(echoed)) == (2, "x")
    assert (slept["id"], slept["error"]["code"]) == (1, SHUTTING_DOWN)


async def test_stdin_from_dev_null_ends_the_server() -> None:
    with trio.fail_after(5):
        done = await trio.run_process(
            FIXTURE_SERVER, capture_stdout=True, capture_stderr=True, env=environment()
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(("closed", "name"), [("0<&-", "stdin"), ("1>&-", "stdout")])
async def test_a_missing_stream_is_a_clear_error(closed: str, name: str) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *FIXTURE_SERVER]
    with trio.fail_after(5):
        done = await trio.run_process(
            command, check=False, capture_stdout=True, capture_stderr=True, env=environment()
        )
    assert done.returncode == 1
    last = done.stderr.decode().splitlines()[-1]
    assert name in last
    assert "closed" in last


async def test_a_missing_stderr_changes_nothing() -> None:
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *FIXTURE_SERVER]
    async with raw_process(command, env=environment()) as peer:
        await peer.send(call(1, "boom", kind="bug"), call(2, "noisy", text="lost"))
        answers = {message["id"]: message for message in [await peer.receive() for _ in range(2)]}
        assert answers[1]["error"]["code"] == -32603
        assert text_of(answers[2]) == "quiet"
        assert await peer.probe() == []
        await peer.send_stream.aclose()
        assert await exit_status(peer.process, 2) == 0


async def test_no_descriptor_of_the_wire_gets_the_number_of_a_missing_stderr() -> None:
    code = "from trio_mcp.transports.stdio import divert_stdio as d; raise SystemExit(min(d()))"
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", code]
    async with raw_process(command) as peer:
        assert await exit_status(peer.process, 5) > 2


async def test_the_descriptors_are_left_as_they_were() -> None:
    """Others may share them: a terminal that does not block any more is of no use to a shell."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        fd = theirs.fileno()
        async with launched(FIXTURE_SERVER, stdin=fd, stdout=fd) as process:
            stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours.dup()))
            async with stream:
                await RawPeer(stream, stream).probe(timeout=5)
                assert not os.get_blocking(fd)
                process.terminate()
                assert await exit_status(process, 2) == 0
                assert os.get_blocking(fd)


async def test_long_lines_are_read_in_larger_pieces_than_short_ones() -> None:
    sizes: list[int] = []

    class Counting(trio.abc.ReceiveStream):
        def __init__(self, data: bytes) -> None:
            self._data = data

        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            assert max_bytes is not None
            sizes.append(max_bytes)
            await trio.lowlevel.checkpoint()
            some, self._data = self._data[:max_bytes], self._data[max_bytes:]
            return some

        async def aclose(self) -> None:
            pass

    lines = [b"x" * length for length in (10, 300_000, 10, 100)]
    counting = Counting(b"\n".join(lines) + b"\n")
    wire = StreamWire(counting, trio.testing.MemorySendStream(), "test", 1_000_000)
    frames: list[object] = []
    while (some := await wire.receive()) is not None:
        frames += some
    assert frames == lines
    assert sizes[0] == READ
    assert CHUNK in sizes
    assert len(sizes) < 12
