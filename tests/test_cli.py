"""The command line, as real processes, on pipes and on a terminal."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.peers import hostile_server
from tests.peers.commands import BOOKSHOP, COMMAND, SHOP, STUCK, only_line, run, write
from tests.peers.processes import exit_status
from tests.peers.raw import RawProcess, call, raw_process, text_of, until
from tests.peers.terminal import CTRL_C, on_terminal

from trio_mcp.cli.arguments import parse_arguments, type_name
from trio_mcp.cli.failure import CommandError
from trio_mcp.cli.printable import json_text, one_line, printable

HOSTILE = [sys.executable, hostile_server.__file__]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write(tmp_path, "shop.py", SHOP)


# The whole ----------------------------------------------------------------------------------------


def test_version() -> None:
    result = run("--version")
    assert (result.returncode, result.stdout) == (0, "trio-mcp 0.1.0\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "trio-mcp call server.py add a=1 b=2"),
        (("run",), "FILE.py[:NAME]"),
        (("tools",), "TARGET says how to launch the server, or where it is"),
        (("call",), "124  timed out"),
        (("demo",), "nothing left over"),
    ],
)
def test_help(words: tuple[str, ...], said: str) -> None:
    result = run(*words, "--help")
    assert result.returncode == 0
    assert said in " ".join(result.stdout.split()) or said in result.stdout


# run: loading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "text", "said"),
    [
        ("absent.py", "", "there is no file 'absent.py'"),
        ("it", "", "'it' is no FILE.py or FILE.py:NAME"),
        (
            "it.py",
            "x = 1",
            "it.py has no server: it needs a module-level server = trio_mcp.Server(",
        ),
        ("it.py", "x = 1", '; a server of another kind is launched with "python it.py"'),
        ("it.py", "a = S('a', version='1'); b = S('b', version='1')", "several servers: a, b;"),
        ("it.py:c", "a = S('a', version='1')", "no server named 'c'; the servers in it: a"),
        ("it.py", "x = 1", "a function that makes one is named, as in it.py:make_server"),
        ("it.py:f", "def f(name): ...", "has a function 'f', which is called without arguments"),
        ("it.py:f", "def f(): ...", "has a function 'f', which returned None and not a server"),
        ("it.py:f", "async def f(): ...", "has a function 'f', which is async"),
    ],
)
def test_run_says_what_is_wrong_with_a_file(
    tmp_path: Path, word: str, text: str, said: str
) -> None:
    write(tmp_path, "it.py", f"from trio_mcp import Server as S\n{text}")
    result = run("run", word, cwd=tmp_path)
    assert said in only_line(result.stderr)
    assert (result.returncode, result.stdout) == (2, "")


def test_run_takes_a_function_that_makes_a_server(tmp_path: Path) -> None:
    text = (
        "from trio_mcp import Server\ndef make(name='a'):\n    return Server(name, version='1')\n"
    )
    write(tmp_path, "it.py", text)
    result = run("run", "it.py:make", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")


def test_run_shows_the_traceback_of_a_function_that_fails(tmp_path: Path) -> None:
    write(tmp_path, "it.py", "def make():\n    return 1 / 0\n")
    result = run("run", "it.py:make", cwd=tmp_path)
    assert result.returncode == 1
    assert "return 1 / 0" in result.stderr
    assert "loading.py" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("trio-mcp: cannot load make() of it.py: Zero")


def test_run_shows_the_traceback_of_the_file_and_nothing_of_ours(tmp_path: Path) -> None:
    write(tmp_path, "it.py", "def f():\n    return 1 / 0\nf()")
    result = run("run", "it.py", cwd=tmp_path)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "trio-mcp: cannot load it.py: ZeroDivisionError: division by zero"
    )
    assert "return 1 / 0" in result.stderr
    assert "loading.py" not in result.stderr


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("it.py", "from neighbour import name; a = b = Server(name, version='1')"),
        ("it.py:b", "a = Server('a', version='1'); b = Server('b', version='1')"),
        (
            "json.py",
            "import json; json.dumps(1); a = Server('a', version='1')",
        ),  # a taken name
        ("it.py", "import sys; assert sys.argv[1:] == []; a = Server('a', version='1')"),
        ("it.py", "assert __name__ == 'it'; import it; a = Server('a', version='1')"),
    ],
)
def test_run_finds_the_server(tmp_path: Path, word: str, text: str) -> None:
    write(tmp_path, "neighbour.py", "name = 'x'")
    write(tmp_path, word.partition(":")[0], f"from trio_mcp import Server\n{text}")
    result = run("run", tmp_path / word, cwd=Path("/"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


# run: serving -------------------------------------------------------------------------------------


async def test_run_keeps_the_wire_clean_from_the_first_import_to_the_exit(shop: Path) -> None:
    async with raw_process([*COMMAND, "run", str(shop)]) as peer:
        await peer.send(call(1, "echo", text="wire"))
        assert text_of(await peer.answer(1)) == "wire"
        await peer.send_stream.aclose()
        with pytest.raises(EOFError) as ended:
            await peer.receive()
        assert ended.value.args == (b"",)
        assert await exit_status(peer.process, 5) == 0
        await until(lambda: b"printed at exit" in peer.stderr)
    assert b"printed at import" in peer.stderr
    assert b"printed by a tool" in peer.stderr


@pytest.mark.parametrize("how", ["eof", "SIGTERM", "SIGINT"])
async def test_run_stops_with_status_0_and_cleans_up(shop: Path, how: str) -> None:
    async with raw_process([*COMMAND, "run", str(shop)]) as peer:
        await peer.send(call(1, "tick", token=1, n=1000, dt=1))
        await peer.receive()  # progress: it runs
        await stop(peer, how)
        assert await exit_status(peer.process, 5) == 0
        await until(lambda: b"cleaned up" in peer.stderr)


@pytest.mark.parametrize("how", ["eof", "SIGTERM", "SIGINT"])
@pytest.mark.parametrize(
    ("tool", "left"),
    [
        ("shield", "exchange tools/call shield: cancelling"),
        ("block", "time.sleep(1000)"),
        ("leave_thread", "thread 'mine', which is no daemon"),
    ],
)
async def test_run_ends_in_bounded_time_whatever_handlers_do(
    tmp_path: Path, tool: str, left: str, how: str
) -> None:
    file = write(tmp_path, "stuck.py", STUCK)
    async with raw_process([*COMMAND, "run", str(file)]) as peer:
        await peer.send(call(1, tool))
        await until(lambda: b"here" in peer.stderr)
        began = trio.current_time()
        await stop(peer, how)
        assert await exit_status(peer.process, 5) == 1
        assert trio.current_time() - began < 2
        await until(lambda: left.encode() in peer.stderr)


async def stop(peer: RawProcess, how: str) -> None:
    if how == "eof":
        await peer.send_stream.aclose()
    else:
        peer.process.send_signal(signal.Signals[how])


@pytest.mark.parametrize("verbose", [True, False])
async def test_run_logs_the_journal_only_if_verbose(shop: Path, verbose: bool) -> None:
    async with raw_process([*COMMAND, "run", str(shop), *["-v"] * verbose]) as peer:
        await peer.send(call(1, "tick", token=1, n=1000, dt=1))
        await peer.receive()
        await peer.send_stream.aclose()
        assert await exit_status(peer.process, 5) == 0
        await until(lambda: b"printed at exit" in peer.stderr)
    assert (b"INFO trio_mcp.journal: server #1 id=1" in peer.stderr) is verbose


def test_run_on_a_terminal_says_how_to_stop(shop: Path) -> None:
    with on_terminal([*COMMAND, "run", str(shop)]) as terminal:
        terminal.until("serving this terminal; Ctrl-C stops it")
        terminal.type(CTRL_C)
        assert terminal.end() == 0


# tools --------------------------------------------------------------------------------------------


def test_tools_prints_a_line_for_each_tool(shop: Path) -> None:
    result = run("tools", shop)
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        "add(a: integer, b?: integer = 2)  Add two numbers.",
        "echo(text: string, loud?: boolean = false)  Say it back.",
        "tick(n: integer, dt: number)  Report progress.",
        'fail(how?: string = "tool")',
    ]
    assert result.stderr == ""


@pytest.mark.parametrize(
    "words",
    [
        ["tools", "--json", BOOKSHOP],
        ["tools", f"{BOOKSHOP}:server", "--json"],
        ["tools", "--json", f"{sys.executable} -m trio_mcp run '{BOOKSHOP}'"],
        ["tools", "--json", "--", sys.executable, BOOKSHOP],
    ],
)
def test_tools_launches_whatever_serves_and_prints_json(words: list[str]) -> None:
    result = run(*words)
    assert result.returncode == 0
    tools = {tool["name"]: tool for tool in json.loads(result.stdout)}
    assert tools["order_book"]["inputSchema"]["required"] == ["title"]


def test_tools_prints_a_table_on_a_terminal() -> None:
    with on_terminal([*COMMAND, "tools", BOOKSHOP]) as terminal:
        assert terminal.end() == 0
    first = terminal.seen.splitlines()[0]
    assert first.split() == ["tool", "parameters", "what", "it", "does"]
    assert 'pay_by?: "card" or "transfer" = "card"' in terminal.seen


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["absent.py"], 2, "there is no file 'absent.py'"),
        (["no-such-program --fast"], 1, "cannot launch 'no-such-program': No such file"),
        (["--", "no-such-program"], 1, "cannot launch 'no-such-program': No such file"),
        (
            ["localhost:80/mcp"],
            1,
            "No such file or directory; did you mean http://localhost:80/mcp?",
        ),
        (["true"], 1, "'true' ended without speaking MCP (exit status 0)"),
        (["echo hi"], 1, "'echo hi' ended without speaking MCP (exit status 0); it printed 'hi'"),
        (["ftp://localhost/mcp"], 2, "an address begins with http://, https://, ws:// or wss://"),
        (["http://127.0.0.1:1/mcp"], 1, "connect to http://127.0.0.1:1/mcp: Connection refused"),
        (["ws://127.0.0.1:1/mcp"], 1, "ws://127.0.0.1:1/mcp: Connection refused"),
        (["http://u:secret@nosuch.invalid/?k=1"], 1, "cannot connect to http://nosuch.invalid/: "),
        (["http://"], 2, "no address of the form"),
        (["python 'unbalanced"], 2, "is no command line: No closing quotation"),
    ],
)
def test_a_server_that_cannot_be_reached_is_one_line(
    tmp_path: Path, words: list[str], status: int, said: str
) -> None:
    result = run("tools", *words, cwd=tmp_path)
    assert said in only_line(result.stderr)
    assert (result.returncode, result.stdout) == (status, "")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, "initialize (HTTP 404 Not Found); there is no MCP endpoint at this address"),
        (501, "HTTP 501 Not Implemented"),
    ],
)
def test_a_page_for_browsers_is_not_shown(status: int, said: str) -> None:
    with web_site(status) as address:
        result = run("tools", address)
    line = only_line(result.stderr)
    assert line.startswith(f"trio-mcp: cannot use {address}: ")
    assert said in line
    assert "html" not in line
    assert (result.returncode, result.stdout) == (1, "")


@contextmanager
def web_site(status: int) -> Iterator[str]:
    """The address of a server that is for browsers."""

    class Pages(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            page = b'\n<html>it\'s "not" here' + b"x" * 300
            self.send_response(status)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as site:
        thread = threading.Thread(target=site.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{site.server_port}/mcp"
        finally:
            site.shutdown()
            thread.join()


def test_an_incompatible_server_is_one_line(tmp_path: Path) -> None:
    error = {"code": -32601, "message": "Method not found"}
    answers = [json.dumps({"jsonrpc": "2.0", "id": n, "error": error}) for n in (1, 2)]
    says = "".join(f"read line; echo '{answer}'; " for answer in answers)
    old = write(tmp_path, "old", f"#!/bin/sh\n{says}read line\n")
    old.chmod(0o755)
    result = run("tools", "./old", cwd=tmp_path)
    assert result.returncode == 1
    assert only_line(result.stderr).startswith(f"trio-mcp: cannot use '{old}': the server refused")


def test_control_characters_of_a_server_do_not_reach_the_terminal(tmp_path: Path) -> None:
    write(
        tmp_path,
        "evil.py",
        r"""
        from trio_mcp import Context, Server
        server = Server("evil", version="1")

        @server.tool(description="\x1b]0;owned\x07 [red]tool")
        async def evil(ctx: Context) -> str:
            ctx.progress(1, 2, "\x1b]0;owned\x07")
            return "\x1b]0;owned\x07 [red]result"
        """,
    )
    for words in (["tools", "evil.py"], ["call", "evil.py", "evil"]):
        with on_terminal([*COMMAND, *words], cwd=tmp_path) as terminal:
            assert terminal.end() == 0
        assert "owned" in terminal.seen
        assert "[red]" in terminal.seen
        assert "\x1b]" not in terminal.raw
        assert "\x07" not in terminal.raw


# hostile servers ----------------------------------------------------------------------------------


BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def is_obeyed_or_misread(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs") or character in BIDI


def test_each_character_is_shown_or_replaced() -> None:
    for character in map(chr, range(sys.maxunicode + 1)):
        hidden = is_obeyed_or_misread(character)
        separates = len(f"a{character}b".splitlines()) == 2
        shown = "\ufffd" if hidden and character not in "\n\t" else character
        assert printable(character) == shown, ascii(character)
        shown = "\ufffd" if hidden or separates else character
        assert one_line(character) == shown, ascii(character)


def test_json_with_any_character_says_the_same_in_safe_ones() -> None:
    texts = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    written = json_text(json.dumps(texts, ensure_ascii=False).encode())
    assert json.loads(written) == texts
    assert not any(map(is_obeyed_or_misread, written))


def test_line_ends_of_texts_are_left_alone() -> None:
    assert printable("a\r\nb\n") == "a\r\nb\n"
    assert printable("safe\rforged") == "safe\ufffdforged"


HOSTILITIES = [
    (["tools"], "evil-name"),
    (["tools", "--json"], "evil-name"),
    (["tools"], "evil-parameter"),
    (["tools"], "last-words"),
    (["tools", "-v"], "log"),
    (["tools"], "no-discovery"),
    (["tools"], "versions"),
    (["call", "s"], "evil-name"),
    (["call", "t"], "required-evil"),
    (["call", "t"], "error"),
    (["call", "t"], "blocks"),
    (["call", "t"], "text"),
    (["call", "t"], "progress"),
    (["call", "t"], "structured"),
    (["call", "--json", "t"], "structured"),
]


@pytest.mark.parametrize(("words", "case"), HOSTILITIES)
def test_nothing_of_a_hostile_server_is_obeyed(words: list[str], case: str) -> None:
    """Neither by a terminal, nor by what reads a pipe."""
    command = [*COMMAND, *words, "--", *HOSTILE, case]
    with on_terminal(command, columns=300) as terminal:
        terminal.end()
    result = run(*command[len(COMMAND) :])
    for shown in (terminal.seen, result.stdout + result.stderr):
        assert "owned" in shown
        assert "Traceback" not in shown
        assert not {c for c in shown if is_obeyed_or_misread(c)} - {"\r", "\n"}
    assert "\x1b]" not in terminal.raw
    assert "\x1b[31mred" not in terminal.raw


@pytest.mark.parametrize(
    ("words", "case"),
    [case for case in HOSTILITIES if case[1] not in ("log", "text", "blocks")],  # texts have lines
)
def test_a_hostile_server_forges_no_line(words: list[str], case: str) -> None:
    result = run(*words, "--", *HOSTILE, case)
    lines = result.stderr.splitlines() + ([] if case == "progress" else result.stdout.splitlines())
    assert lines
    assert not [line for line in lines if line.startswith("forged")]


def test_a_tools_name_forges_no_other_tool() -> None:
    result = run("tools", "--", *HOSTILE, "forged-line")
    assert only_line(result.stdout) == "t\ufffdfake(a: string)  Trust me(a?: string)"


def test_json_stays_what_the_server_said() -> None:
    result = run("call", "--json", "t", "--", *HOSTILE, "structured")
    assert json.loads(result.stdout)["structuredContent"] == {"a": hostile_server.EVIL}
    assert run("call", "t", "--", *HOSTILE, "structured").stdout.isascii()


@pytest.mark.parametrize(
    ("case", "parameters"),
    [
        ("required-number", "a?: string"),
        ("required-null", "a?: string"),
        ("required-mixed", "a: string"),
        ("recursive-array", "a?: array of array of array of array of array"),
        ("recursive-union", "a?: any"),
    ],
)
def test_no_schema_is_a_traceback_or_takes_long(case: str, parameters: str) -> None:
    listed = run("tools", "--", *HOSTILE, case)
    assert (listed.stdout, listed.stderr) == (f"t({parameters})\n", "")
    called = run("call", "t", "a:=[]", "--", *HOSTILE, case)
    assert (called.returncode, called.stderr) == (0, "t: running\nt: done\n")


def test_a_deep_default_is_no_traceback() -> None:
    listed = run("tools", "--", *HOSTILE, "deep-default")
    assert listed.stdout.startswith("t(a?: [[[[")
    assert listed.stderr == ""


def test_only_an_internal_error_points_to_the_log() -> None:
    hint = "; -v shows its log"
    assert hint in run("call", "t", "--", *HOSTILE, "internal-error").stderr
    assert hint not in run("call", "-v", "t", "--", *HOSTILE, "internal-error").stderr
    assert hint not in run("call", "t", "--", *HOSTILE, "error").stderr


def test_a_file_is_launched_and_not_its_namesake_on_path(tmp_path: Path) -> None:
    write(tmp_path, "ls", "#!/bin/sh\necho the file ran >&2\n").chmod(0o755)
    assert "the file ran" in run("tools", "ls", cwd=tmp_path).stderr


# call: arguments ----------------------------------------------------------------------------------

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "i": {"type": "integer"},
        "n": {"type": "number"},
        "b": {"type": "boolean"},
        "l": {"type": "array", "items": {"type": "string"}},
        "o": {"type": "object"},
        "s_or_null": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "l_or_null": {"type": ["array", "null"]},
        "choice": {"enum": ["a", "b"]},
        "level": {"enum": [1, 2]},
        "any": {},
        "named": {"$ref": "#/$defs/Named"},
        "loop": {"$ref": "#/$defs/Loop"},
    },
    "$defs": {"Named": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("s=x", "x"),
        ("s=5", "5"),
        ("s=", ""),
        ("s=a=b", "a=b"),
        ("s=http://x:=y", "http://x:=y"),
        ('s="quoted"', '"quoted"'),
        ("i=-5", -5),
        ("n=1", 1),
        ("n=1.5", 1.5),
        ("b=true", True),
        ('l=["a", "b"]', ["a", "b"]),
        ('o={"a": 1}', {"a": 1}),
        ("s_or_null=null", "null"),
        ("s_or_null:=null", None),
        ("l_or_null=null", None),
        ("choice=a", "a"),
        ("level=2", 2),
        ("any=5", 5),
        ("any=five", "five"),
        ("named=5", 5),
        ("loop=5", 5),
        ("i:=5", 5),
    ],
)
def test_values_become_what_the_schema_asks_for(word: str, value: Any) -> None:
    (found,) = parse_arguments([word], SCHEMA).values()
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["i=five"], "i=five: expected an integer"),
        (["i=1.5"], "i=1.5: expected an integer, this is a number"),
        (["i=true"], "i=true: expected an integer, this is a boolean"),
        (["i="], "i=: expected an integer"),
        (["n=NaN"], "n=NaN: expected a number"),
        (["b=yes"], "b=yes: expected true or false"),
        (["l=a"], 'l=a: expected an array like \'["a", "b"]\''),
        (["o=[]"], "o=[]: expected an object like '{\"a\": 1}', this is an array"),
        (["s:=x"], "s:=x: this is no JSON"),
        (["word"], "'word' is no argument; write key=value, or key:=JSON"),
        (["=x"], "'=x' is no argument"),
        (["s=1", "s=2"], "s is given twice"),
        (["t=1"], "there is no parameter 't'; the tool takes [s], [i], [n]"),
    ],
)
def test_a_wrong_argument_is_named(words: list[str], said: str) -> None:
    with pytest.raises(CommandError) as refused:
        parse_arguments(words, SCHEMA)
    assert refused.value.message.startswith(said)
    assert refused.value.exit_code == 2


def test_missing_arguments_are_named_and_open_schemas_are_open() -> None:
    with pytest.raises(CommandError, match="missing: a, b; the tool takes no arguments"):
        parse_arguments([], {"required": ["a", "b"]})
    assert parse_arguments(["x=1"], {"type": "object"}) == {"x": 1}


def test_alternatives_are_followed_in_bounds() -> None:
    again = {"$ref": "#/$defs/A"}
    tree = {"anyOf": [again, {"anyOf": [{"type": "string"}, again]}, {"type": "null"}]}
    assert type_name(again, {"$defs": {"A": tree}}) == "string or null"
    many = {"anyOf": [{"const": str(i)} for i in range(200)]}
    assert type_name(many, {}) == "string"
    layers: dict[str, Any] = {
        f"L{i}": {"anyOf": [{"$ref": f"#/$defs/L{i + 1}"}] * 9} for i in range(99)
    }
    assert type_name(layers["L0"], {"$defs": layers}) == "any"


def test_types_are_named_in_a_few_words() -> None:
    names = {name: type_name(schema, SCHEMA) for name, schema in SCHEMA["properties"].items()}
    assert names["l"] == "array of string"
    assert names["s_or_null"] == "string or null"
    assert names["choice"] == '"a" or "b"'
    assert names["any"] == names["loop"] == "any"
    assert names["named"] == "integer"


# call: results and states -------------------------------------------------------------------------


def test_call_prints_the_result_on_stdout_and_how_it_stands_on_stderr(shop: Path) -> None:
    result = run("call", shop, "add", "a=1")
    assert (result.returncode, result.stdout) == (0, "3\n")
    assert result.stderr == "add: running\nadd: done\n"


def test_call_with_a_command_after_dashes(shop: Path) -> None:
    result = run("call", "echo", "text=5", "loud=true", "--", sys.executable, "-m", "trio_mcp",
                 "run", str(shop))  # fmt: skip
    assert (result.returncode, result.stdout) == (0, "5\n")


def test_call_prints_the_whole_result_as_json(shop: Path) -> None:
    result = run("call", "--json", shop, "add", "a=1", "b:=2")
    assert json.loads(result.stdout)["structuredContent"] == 3


def test_call_prints_progress(shop: Path) -> None:
    result = run("call", shop, "tick", "n=3", "dt=0.1")
    assert (result.returncode, result.stdout) == (0, "ticked\n")
    lines = result.stderr.splitlines()
    assert (lines[0], lines[-1]) == ("tick: running", "tick: done")
    assert "tick: 1/3 tick 1" in lines
    assert lines[-2] == "tick: 3/3 tick 3"  # the newest is not lost


@pytest.mark.parametrize(
    ("words", "status", "out", "err"),
    [
        (["fail"], 1, "the shop is closed", "fail: failed"),
        (["fail", "how=bug"], 1, "", "trio-mcp: Internal error"),
        (["fail", "how=crash"], 1, "", "the server closed the connection (exit status 7)"),
        (["fail", "how=crash"], 1, "", "  | last words"),
        (["ad", "a=1"], 2, "", "no tool 'ad'; did you mean add?"),
        (["zzz"], 2, "", "no tool 'zzz'; it has add, echo, tick, fail"),
        (["add"], 2, "", "trio-mcp: missing: a; the tool takes a, [b]"),
        (["add", "a=x"], 2, "", "trio-mcp: a=x: expected an integer"),
        (["tick", "n=9", "dt=9", "--timeout", "0.3"], 124, "", "timed out: timeout of 0.3 s"),
        (["tick", "n=99", "dt=0.1", "--max-timeout", "0.4"], 124, "", "max_timeout of 0.4 s"),
        (["tick", "n=9", "dt=9", "--cancel-after", "0.3"], 130, "", "tick: stopped"),
        (["add", "a=1", "--cancel-after", "9"], 0, "3", "add: done"),
        (["add", "a=1", "--timeout", "0"], 2, "", "must be more than 0 seconds"),
        ([], 2, "", "Missing TOOL"),
    ],
)
def test_exit_statuses_of_call(
    shop: Path, words: list[str], status: int, out: str, err: str
) -> None:
    result = run("call", shop, *words)
    assert (result.returncode, result.stdout.strip()) == (status, out)
    assert err in result.stderr
    assert "Traceback" not in result.stderr


def test_cancelling_and_stopped_are_two_states(shop: Path) -> None:
    result = run("call", "-v", shop, "tick", "n=9", "dt=9", "--cancel-after", "0.3")
    lines = result.stderr.splitlines()
    first = lines.index("tick: cancelling: --cancel-after 0.3")
    assert "tick: stopped" in lines[first + 1 :]
    assert any(line.endswith("cleaned up") for line in lines[first:])  # and so it has, over there


def test_verbose_shows_the_servers_log(shop: Path) -> None:
    assert "secret" not in run("call", shop, "fail", "how=bug").stderr
    assert "RuntimeError: secret" in run("call", "-v", shop, "fail", "how=bug").stderr


def test_a_locale_without_letters_for_the_result_is_no_failure(shop: Path) -> None:
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [*COMMAND, "call", str(shop), "echo", 'text:="caf\\u00e9"']
    result = subprocess.run(words, capture_output=True, timeout=20, check=False, env=env)
    assert (result.returncode, result.stdout) == (0, "café\n".encode())


def test_nothing_is_left_open(shop: Path) -> None:
    env = {**os.environ, "PYTHONDEVMODE": "1", "PYTHONWARNINGS": "error"}
    for words in (["tools"], ["call", "-v", "echo", "text=x"]):
        command = [*COMMAND, *words, "--", *COMMAND, "run", str(shop)]
        result = subprocess.run(command, capture_output=True, timeout=20, check=False, env=env)
        assert b"Warning" not in result.stderr
        assert result.returncode == 0


def test_a_failure_on_a_terminal_quotes_the_end_of_what_was_seen() -> None:
    with on_terminal(["sh", "-c", "seq 1000; sleep 99"]) as terminal:
        terminal.until("1000")
        with pytest.raises(AssertionError) as failed:
            terminal.end(0.1)
    assert "still running" in str(failed.value)
    assert "\n1000" in str(failed.value)
    assert "\n900" not in str(failed.value)


# call: on a terminal ------------------------------------------------------------------------------


def test_call_shows_a_bar_on_a_terminal(shop: Path) -> None:
    with on_terminal([*COMMAND, "call", str(shop), "tick", "n=3", "dt=0.2"]) as terminal:
        terminal.until("running")
        terminal.until("2/3")
        assert terminal.end() == 0
    assert "━" in terminal.seen
    assert terminal.seen.endswith("ticked\r\n")


def test_ctrl_c_cancels_the_call(shop: Path) -> None:
    with on_terminal([*COMMAND, "call", "-v", str(shop), "tick", "n=99", "dt=0.2"]) as terminal:
        terminal.until("2/99")
        terminal.type(CTRL_C)
        terminal.until("cancelling")
        terminal.until("stopped")
        assert terminal.end() == 130
    assert terminal.seen.index("cancelling") < terminal.seen.index("stopped")
    assert "cleaned up" in terminal.seen


SLOW_TO_LEAVE = "trio-mcp: waiting for the server to exit; Ctrl-C again ends it at once"


def test_leaving_that_takes_long_is_explained_once(tmp_path: Path) -> None:
    file = write(tmp_path, "stuck.py", STUCK.replace("cleanup=0", "cleanup=30"))
    with on_terminal([*COMMAND, "call", "-v", str(file), "shield"]) as terminal:
        terminal.until("here")
        terminal.type(CTRL_C)
        terminal.until(SLOW_TO_LEAVE)
        assert terminal.end() == 130
    assert terminal.seen.index("stopped") < terminal.seen.index(SLOW_TO_LEAVE)
    assert terminal.seen.count(SLOW_TO_LEAVE) == 1


def test_a_second_ctrl_c_leaves_at_once(tmp_path: Path) -> None:
    patient = STUCK.replace("cleanup=0", "cleanup=30")
    file = write(tmp_path, "stuck.py", patient)
    with on_terminal([*COMMAND, "call", "-v", str(file), "shield"]) as terminal:
        terminal.until("here")
        terminal.type(CTRL_C)
        terminal.until(SLOW_TO_LEAVE)
        began = time.monotonic()
        terminal.type(CTRL_C)
        assert terminal.end() == 130
        assert time.monotonic() - began < 1.5  # not exit_wait and terminate_wait


def test_a_call_is_not_stopped_before_the_server_has_been_told(tmp_path: Path) -> None:
    result = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "resultType": "complete"}
    caching = {"ttlMs": 0, "cacheScope": "private"}
    tool = {"name": "echo", "inputSchema": {"type": "object"}}
    tools = {"tools": [tool], "resultType": "complete"}
    write(
        tmp_path,
        "deaf.py",
        f"""
        import json, sys, time
        for result in ({result | caching}, {tools | caching}):
            message = {{"jsonrpc": "2.0", "id": json.loads(input())["id"], "result": result}}
            print(json.dumps(message), flush=True)
        print(sys.stdin.buffer.raw.read(1), file=sys.stderr, flush=True)
        time.sleep(99)
        """,
    )
    text = "x" * 120_000  # more than a pipe holds
    words = ["call", "-v", f"{sys.executable} deaf.py", "echo", f"text={text}"]
    with on_terminal([*COMMAND, *words], cwd=tmp_path) as terminal:
        terminal.until("b'{'")
        terminal.type(CTRL_C)
        terminal.until("cancelling")
        time.sleep(0.5)
        terminal.type(CTRL_C)
        assert terminal.end() == 130
    assert "stopped" not in terminal.seen


def test_ctrl_c_ends_a_command_that_is_still_connecting() -> None:
    with on_terminal([*COMMAND, "tools", "-v", "sh -c 'echo here >&2; sleep 99'"]) as terminal:
        terminal.until("here")
        terminal.type(CTRL_C)
        terminal.until("trio-mcp: cancelling: connecting to ")
        assert terminal.end(5) == 130


def test_sigterm_cancels_the_call_too(shop: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "call", str(shop), "tick", "n=99", "dt=0.2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        while "1/99" not in process.stderr.readline():
            pass
        process.terminate()
        rest = process.stderr.read()
    assert rest.splitlines()[-2:] == ["tick: cancelling: SIGTERM", "tick: stopped"]
    assert process.returncode == 143


def test_a_live_line_leaves_room_for_what_the_terminal_shows_of_ctrl_c(shop: Path) -> None:
    command = ["env", "NO_COLOR=1", *COMMAND, "call", str(shop), "tick", "n=2", "dt=0.1"]
    with on_terminal(command, columns=60) as terminal:
        assert terminal.end() == 0
    assert max(map(len, re.split("[\r\n]", terminal.seen))) == 60 - len("^C")
    assert not re.search(r"\x1b\[[0-9;]*[34][0-9]", terminal.raw)  # a colour


# Where the output goes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "rest", "status", "said"),
    [
        (f"tools {BOOKSHOP}", "| true", 141, ""),
        (f"tools {BOOKSHOP} --no-such-option", "2>&1 | true", 141, ""),
        ("--help", "| true", 141, ""),
        ("demo", "| head -1 >/dev/null", 141, ""),
        (f"tools {BOOKSHOP}", ">/dev/full", 1, "trio-mcp: cannot write the output: No space left"),
        (f"call {BOOKSHOP} refund title=x receipt=1", ">&- <&-", 0, "refund: running"),
    ],
)
def test_output_that_nobody_takes_is_no_traceback(
    words: str, rest: str, status: int, said: str
) -> None:
    script = f"set -o pipefail; {sys.executable} -m trio_mcp {words} {rest}"
    result = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=20, check=False
    )
    assert (result.returncode, result.stdout) == (status, "")
    assert result.stderr.startswith(said)
    assert len(result.stderr.splitlines()) <= 2
