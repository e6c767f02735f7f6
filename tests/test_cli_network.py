"""The command line over networks, as real processes."""

from __future__ import annotations

import re
import signal
import subprocess
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme
from tests.peers.commands import BOOKSHOP, COMMAND, SHOP, STUCK, only_line, run, write
from tests.peers.processes import exit_status
from tests.peers.raw import RawProcess, raw_process, until

from trio_mcp import Principal, RequestHead, Server

WIRES = {
    "http": ["--http"],
    "websocket": ["--websocket"],
    "hypercorn": ["--carrier", "hypercorn", "--http"],
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write(tmp_path, "shop.py", SHOP)


@asynccontextmanager
async def serving(
    file: str | Path, *options: str | Path, count: int = 1
) -> AsyncGenerator[tuple[RawProcess, list[str]], None]:
    """A serving process and the addresses that it tells."""
    command = [*COMMAND, "run", str(file), *map(str, options)]
    async with raw_process(command) as peer:
        await until(lambda: peer.stderr.count(b"; Ctrl-C stops it\n") == count, 10)
        yield peer, re.findall(r": serving (\S+); Ctrl-C", peer.stderr.decode())


async def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return await trio.to_thread.run_sync(lambda: run(*words))


async def test_both_wires_are_served_at_once_and_stdout_stays_empty() -> None:
    options = ("--http", "127.0.0.1:0", "--websocket", "0", "--path", "/x")
    async with serving(BOOKSHOP, *options, count=2) as (peer, addresses):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/x", addresses[0])
        assert re.fullmatch(r"ws://127\.0\.0\.1:\d+/x", addresses[1])
        for address in addresses:
            assert "order_book(" in (await command("tools", address)).stdout
            called = await command("call", address, "refund", "title=x", "receipt=1")
            assert (called.returncode, called.stdout) == (0, "Refunded 'x'.\n")
            lost = await command("tools", address + "y")
            assert lost.returncode == 1
            assert "the MCP endpoint is /x" in only_line(lost.stderr)
        peer.process.terminate()
        assert await exit_status(peer.process, 5) == 0
        with pytest.raises(EOFError) as ended:
            await peer.receive()
        assert ended.value.args == (b"",)


AT_EXIT = """
import atexit, sys, time
def leave():
    print("exiting", file=sys.stderr, flush=True)
    time.sleep(0.3)
    print("gone", file=sys.stderr, flush=True)
atexit.register(leave)
"""


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_drains_and_a_second_is_like_the_first(
    shop: Path, wire: str, number: signal.Signals
) -> None:
    async with serving(shop, "-v", *WIRES[wire], "0") as (peer, (address,)):
        async with raw_process([*COMMAND, "call", address, "tick", "n=99", "dt=0.2"]) as caller:
            await until(lambda: b"1/99" in caller.stderr)
            said = number.name.encode() + b": draining"
            for times in (1, 2):
                peer.process.send_signal(number)
                await until(lambda times=times: peer.stderr.count(said) == times)  # type: ignore[misc]
            assert await exit_status(peer.process, 5) == 0
            assert await exit_status(caller.process, 5) == 1
            await until(lambda: b"cleaned up" in peer.stderr)
            assert b"Traceback" not in caller.stderr + peer.stderr


@pytest.mark.parametrize("wire", WIRES)
async def test_a_signal_that_comes_again_while_the_interpreter_exits_is_like_the_first(
    tmp_path: Path, wire: str
) -> None:
    file = write(tmp_path, "shop.py", textwrap.dedent(SHOP) + AT_EXIT)
    async with serving(file, *WIRES[wire], "0") as (peer, _):
        peer.process.terminate()
        await until(lambda: b"exiting" in peer.stderr)
        peer.process.terminate()
        assert await exit_status(peer.process, 5) == 0
        await until(lambda: b"gone" in peer.stderr)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_cancelled_call_is_cleaned_up_at_the_server(shop: Path, wire: str) -> None:
    async with serving(shop, *WIRES[wire], "0") as (peer, (address,)):
        called = await command("call", address, "tick", "n=9", "dt=9", "--cancel-after", "0.3")
        assert called.returncode == 130
        assert called.stderr.endswith("tick: stopped\n")
        await until(lambda: b"cleaned up" in peer.stderr)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("tool", "left"), [("shield", "cancelling"), ("block", "time.sleep")])
async def test_it_ends_in_bounded_time(tmp_path: Path, wire: str, tool: str, left: str) -> None:
    file = write(tmp_path, "stuck.py", STUCK.replace("flush=True", "flush=True, file=sys.stderr"))
    file.write_text("import sys\n" + file.read_text())
    async with serving(file, *WIRES[wire], "0") as (peer, (address,)):
        async with raw_process([*COMMAND, "call", address, tool]):
            await until(lambda: b"here" in peer.stderr)
            peer.process.terminate()
            assert await exit_status(peer.process, 5) == 1
            await until(lambda: left.encode() in peer.stderr)


async def test_a_port_in_use_is_one_line(shop: Path) -> None:
    async with serving(BOOKSHOP, "--http", "0") as (_, (address,)):
        place = address.removeprefix("http://").removesuffix("/mcp")
        taken = await command("run", BOOKSHOP, "--http", "0", "--websocket", place)
        assert only_line(taken.stderr) == (
            f"trio-mcp: cannot listen on {place}: Address already in use"
        )
        assert (taken.returncode, taken.stdout) == (1, "")


@pytest.mark.parametrize("wire", WIRES)
async def test_other_hosts_and_headers(wire: str) -> None:
    header = ("-H", "Host: mcp.example.com")
    async with serving(BOOKSHOP, *WIRES[wire], "0") as (_, (address,)):
        refused = await command("tools", *header, address)
        assert "the Host 'mcp.example.com' is not served here" in only_line(refused.stderr)
        if wire != "websocket":
            assert refused.stderr.endswith("; 'trio-mcp run' takes --allow-host\n")
        began = trio.current_time()
        secure = await command("tools", address.replace(":", "s:", 1))
        assert only_line(secure.stderr).endswith(f"; did you mean {address}?")
        assert trio.current_time() - began < 5  # not Limits.connect
    allowed = (*WIRES[wire], "0", "--allow-host", "mcp.example.com")
    async with serving(BOOKSHOP, *allowed) as (_, (at,)):
        assert (await command("tools", *header, at)).returncode == 0


async def test_headers_of_the_handshake_are_refused() -> None:
    refused = await command("tools", "-H", "Upgrade: x", "ws://127.0.0.1:1/mcp")
    assert only_line(refused.stderr).endswith("the header Upgrade is set by the transport")
    assert refused.returncode == 2


async def test_who_has_to_say_who_they_are_is_told_how() -> None:
    server = Server("closed", version="1")
    async with trio.open_nursery() as nursery:
        serve = partial(server.serve_http, port=0, authenticate=nobody)
        address = f"http://127.0.0.1:{await nursery.start(serve)}/mcp"
        asked = await command("tools", address)
        assert only_line(asked.stderr).endswith("-H 'Authorization: …' says who you are")
        refused = await command("tools", "-H", "Authorization: Bearer x", address)
        assert only_line(refused.stderr).endswith("with the Authorization that was sent)")
        assert asked.returncode == refused.returncode == 1
        nursery.cancel_scope.cancel("all was asked")


async def nobody(request: RequestHead) -> Principal | None:
    return None


@pytest.mark.parametrize("wire", WIRES)
async def test_tls(tmp_path: Path, wire: str) -> None:
    authority = trustme.CA()
    both, trusted = tmp_path / "both.pem", tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(both))
    options: list[str | Path] = [*WIRES[wire], "localhost:0", "--certfile", both]
    async with serving(BOOKSHOP, *options) as (_, (address,)):
        assert address.startswith(("https://localhost:", "wss://localhost:"))
        assert (await command("tools", "--cafile", trusted, address)).returncode == 0
        refused = await command("tools", address)
        assert refused.returncode == 1
        assert f"cannot connect to {address}: " in only_line(refused.stderr)
        assert refused.stderr.endswith("; --cafile FILE trusts the authorities in FILE\n")
    wrong = await command("run", BOOKSHOP, *WIRES[wire], "0", "--certfile", trusted)
    assert wrong.returncode == 2
    assert "does not hold a certificate and its private key" in only_line(wrong.stderr)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--stdio", "--http", "0"], 2, "--stdio goes with neither"),
        (["--path", "/x"], 2, "--path needs --http or --websocket"),
        (["--http", "x"], 2, "'x' is not [HOST:]PORT"),
        (["--http", "::1:80"], 2, "is not [HOST:]PORT"),
        (["--http", "65536"], 2, "is not [HOST:]PORT"),
        (["--http", "0", "--keyfile", BOOKSHOP], 2, "--keyfile needs --certfile"),
        (["--http", "0", "--certfile", "absent.pem"], 2, "'absent.pem' does not exist"),
        (["--http", "0", "--allow-host", "http://x"], 2, "is not a host name"),
        (["--websocket", "0", "--carrier", "hypercorn"], 2, "--carrier needs --http"),
        (["--http", "nosuch.invalid:0"], 1, "cannot listen on nosuch.invalid:0: "),
    ],
)
def test_what_cannot_be_served_is_told(words: list[str], status: int, said: str) -> None:
    result = run("run", BOOKSHOP, *words)
    assert (result.returncode, result.stdout) == (status, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("words", [["-H", "A: b"], ["--cafile", BOOKSHOP]])
def test_options_of_addresses_are_not_for_commands(words: list[str]) -> None:
    result = run("tools", *words, BOOKSHOP)
    assert result.returncode == 2
    assert "is for addresses; this server is launched" in result.stderr


NAMES = [
    *("run", "tools", "resources", "prompts", "call", "read", "prompt", "complete", "listen"),
    "demo",
]


@pytest.mark.parametrize("name", NAMES)
def test_help_fits_a_terminal(name: str) -> None:
    assert max(map(len, run(name, "--help").stdout.splitlines())) <= 80
