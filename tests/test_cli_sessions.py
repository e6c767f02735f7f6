"""The command line with a server of an earlier revision, whose questions belong to its session."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.peers.commands import COMMAND, only_line, run, write
from tests.peers.terminal import CTRL_C, Terminal, on_terminal

SESSION = """
    import json, sys

    FORM = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "email": {"type": "string", "format": "email"},
            "page": {"type": "string", "format": "uri"},
        },
        "required": ["name"],
    }
    CAPABILITIES = {"tools": {}, "prompts": {}, "completions": {}}
    PROMPT = {
        "name": "letter",
        "arguments": [{"name": "to", "required": True}, {"name": "tone"}, {"name": "ink"}],
    }
    TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("ask", "hello")]
    RESULTS = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": CAPABILITIES,
            "serverInfo": {"name": "session", "version": "1"},
        },
        "tools/list": {"tools": TOOLS},
        "prompts/list": {"prompts": [PROMPT]},
        "completion/complete": {"completion": {"values": []}},
    }

    def say(**message):
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    asking = None
    for line in sys.stdin:
        message = json.loads(line)
        method, id = message.get("method"), message.get("id")
        if method is None:  # the answer to our question
            text = json.dumps(message.get("result", message.get("error")))
            say(id=asking, result={"content": [{"type": "text", "text": text}]})
        elif method == "tools/call" and message["params"]["name"] == "ask":
            asking = id
            params = {"message": "Who are you?", "requestedSchema": FORM}
            say(id="q1", method="elicitation/create", params=params)
        elif method == "tools/call":
            say(id=id, result={"content": [{"type": "text", "text": "hello"}]})
        elif method in RESULTS:
            say(id=id, result=RESULTS[method])
        elif id is not None:
            say(id=id, error={"code": -32601, "message": "Method not found"})
"""

HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"
"""What a terminal does with its cursor."""


@pytest.fixture
def session(tmp_path: Path) -> str:
    return f"{sys.executable} {write(tmp_path, 'session.py', SESSION)}"


# What is asked for and comes ----------------------------------------------------------------------


def test_json_is_what_the_server_sent(session: str) -> None:
    """And not what only 2026-07-28 has, with which results are read."""
    result = run("call", session, "hello", "--json")
    assert json.loads(result.stdout) == {"content": [{"type": "text", "text": "hello"}]}


def test_an_argument_that_there_is_not_is_named_although_the_server_does_not(
    session: str,
) -> None:
    result = run("complete", session, "letter", "nosuch=1")
    said = "trio-mcp: there is no parameter 'nosuch'; the prompt takes to, [tone], [ink]"
    assert only_line(result.stderr) == said
    assert (result.returncode, result.stdout) == (2, "")


# Questions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            [],
            "trio-mcp: the server asks: Who are you? (name: string, email?: email address,"
            " page?: URI);"
            " answer with --answer q1='{\"name\": …}', or q1=decline",
        ),
        (
            ['--answer=q1={"name": "B", "email": "nomail"}'],
            "trio-mcp: --answer q1: the answer to 'q1' does not fit the form: argument 'email': "
            'expected email address such as ann@example.com, got "nomail"',
        ),
    ],
)
def test_a_question_without_an_answer_is_one_line(
    session: str, words: list[str], said: str
) -> None:
    result = run("call", session, "ask", *words)
    assert result.stderr.splitlines() == ["ask: running", "ask: failed", said]
    assert (result.returncode, result.stdout) == (2, "")


@pytest.fixture
def asked(session: str, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    """A terminal on which the session's question is open."""
    command = [*COMMAND, "call", session, "ask", *getattr(request, "param", ())]
    with on_terminal(command) as terminal:
        terminal.until("name (string): ")
        yield terminal


@pytest.mark.parametrize(
    ("asked", "keys", "said", "status"),
    [
        ([], CTRL_C, "stopped", 130),
        (["--max-timeout", "0.5"], "", "timed out", 124),
    ],
    indirect=["asked"],
)
def test_a_call_that_ends_while_its_question_is_open_gives_the_terminal_back(
    asked: Terminal, keys: str, said: str, status: int
) -> None:
    asked.type(keys)
    assert asked.end() == status
    assert asked.raw.rindex(SHOWN) > asked.raw.rindex(HIDDEN)
    lines = asked.seen.splitlines()
    assert said in lines[-1]
    assert asked.seen.endswith("\r\n")
    assert ("cancelling" in asked.seen) is (said == "stopped")


def test_only_the_field_that_is_wrong_is_asked_for_again(asked: Terminal) -> None:
    asked.type("B\n")
    asked.until("email? (email address): ")
    asked.type("nomail\n")
    asked.until('expected email address such as ann@example.com, got "nomail"')
    asked.type("b@example.com\n")
    asked.until("page? (URI): ")
    asked.type("nowhere\n")
    asked.until('expected URI such as https://example.com/page, got "nowhere"')
    asked.type("\n")
    assert asked.end() == 0
    assert '{"name": "B", "email": "b@example.com"}' in asked.seen
    assert asked.seen.count("name (string): ") == 1
