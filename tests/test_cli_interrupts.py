"""Ctrl-C and SIGTERM before there is a call: while a command connects, or looks for what to ask."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.peers.commands import COMMAND, SHOP, write
from tests.peers.terminal import CTRL_C, Terminal, on_terminal

ANNOUNCED = ["sh", "-c", 'echo begun; exec "$@"', "sh"]
"""Before a command that says nothing by itself."""

SILENT = """
    import json, os, signal, sys, time

    result = {
        "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "resources": {}},
        "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
    }
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.argv[1] == "knows":
        request = json.loads(input())
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        print(json.dumps(answer), flush=True)
        print(json.loads(input())["method"], end=", ", file=sys.stderr)
    print(f"pid {os.getpid()} ", file=sys.stderr, flush=True)
    time.sleep(99)
"""
"""A server that says nothing more, whatever it is sent; SIGTERM does not end it."""


@pytest.fixture
def silent(tmp_path: Path) -> str:
    return f"{sys.executable} {write(tmp_path, 'silent.py', SILENT)}"


def server_of(terminal: Terminal) -> int:
    """The process id that it has printed."""
    terminal.until("pid ")
    terminal.until(" \r\n")
    found = re.search(r"pid (\d+)", terminal.seen)
    assert found is not None
    return int(found[1])


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_first_ctrl_c_says_what_it_cancels_and_a_second_leaves_at_once(silent: str) -> None:
    target = f"{silent} mute"
    with on_terminal([*COMMAND, "tools", "-v", target], columns=300) as terminal:
        server = server_of(terminal)
        terminal.type(CTRL_C)
        terminal.until(f"trio-mcp: cancelling: connecting to '{target}'")
        terminal.until("trio-mcp: waiting for the server to exit; Ctrl-C again ends it at once")
        assert not is_gone(server)
        began = time.monotonic()
        terminal.type(CTRL_C)
        assert terminal.end() == 130
        assert time.monotonic() - began < 1.5  # not exit_wait and terminate_wait
    assert is_gone(server)
    assert "Traceback" not in terminal.seen


def test_sigterm_while_connecting_ends_the_server_in_bounds(silent: str) -> None:
    words = [*COMMAND, "tools", "-v", f"{silent} mute"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        server = int(process.stderr.readline().split()[1])
        process.terminate()
        assert process.stderr.readline().startswith("trio-mcp: cancelling: connecting to '")
        process.terminate()
        assert (process.stderr.read(), process.wait(2)) == ("", 143)
    assert is_gone(server)


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_ctrl_c_while_an_address_does_not_answer(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/mcp"
        command = [*ANNOUNCED, *COMMAND, "tools", address]
        listener.settimeout(10)
        with on_terminal(command) as terminal:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(10)
                assert connection.recv(65536)
                terminal.type(CTRL_C)
                terminal.until(f"trio-mcp: cancelling: connecting to {address}")
                assert terminal.end(5) == 130
                while connection.recv(65536):
                    pass  # it has hung up
    assert "Traceback" not in terminal.seen


@pytest.mark.parametrize(
    ("words", "doing"),
    [
        (["call", "x"], "listing tools"),
        (["complete", "x", "y="], "completing x"),
    ],
)
def test_ctrl_c_while_there_is_no_call_yet(silent: str, words: list[str], doing: str) -> None:
    command = [*COMMAND, words[0], "-v", f"{silent} knows", *words[1:]]
    with on_terminal(command, columns=300) as terminal:
        server = server_of(terminal)
        terminal.type(CTRL_C)
        terminal.until(f"trio-mcp: cancelling: {doing}\r\n")
        terminal.type(CTRL_C)
        assert terminal.end(5) == 130
    assert is_gone(server)
    assert "Traceback" not in terminal.seen


def test_ctrl_c_while_the_interpreter_exits_changes_nothing(tmp_path: Path) -> None:
    """The command has ended by Ctrl-C, and said so: a second one comes while Python cleans up."""
    code = """if True:
        import atexit, os, signal, sys
        atexit.register(os.kill, os.getpid(), signal.SIGINT)
        from trio_mcp.cli import main
        main()
    """
    shop = str(write(tmp_path, "shop.py", SHOP))
    words = ["call", shop, "tick", "n=99", "dt=1", "--cancel-after", "0.3"]
    result = subprocess.run(
        [sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (result.returncode, result.stderr.splitlines()[-1]) == (130, "tick: stopped")
