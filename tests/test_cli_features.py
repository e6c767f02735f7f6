"""The command line's other commands: what a server offers besides tools, asks and tells."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.peers.commands import COMMAND, only_line, run, write
from tests.peers.terminal import CTRL_C, on_terminal

CTRL_D = "\x04"

OFFICE = r"""
    import signal, sys
    from dataclasses import dataclass
    from typing import Annotated, Literal

    import trio
    from msgspec import Meta
    from trio_mcp import Context, Server

    EVIL = "<\x1b]0;owned\x07\x9b31m\u202e\r\nforged: line\u2028x>"

    server = Server("office", version="1.0.0")
    server.add_resource("office://hours", "9 to 17", title="Opening hours")
    server.add_resource("office://seal", b"\x00\xff\x1b", title="Seal", mime_type="image/png")
    server.add_resource("office://evil", EVIL, title=EVIL)

    @server.resource("office://file/{number}")
    async def file(number: int, ctx: Context) -> str:
        '''A file from the cellar.'''
        try:
            ctx.progress(1, 3, "in the cellar")
            await trio.sleep(60)
            return "found"
        finally:
            with ctx.cleanup(1):
                await trio.sleep(0.05)
                print("cleaned up", file=sys.stderr, flush=True)

    @server.resource("office://asked")
    async def asked(ctx: Context) -> str:
        return str((await ctx.elicit("why", "Why?", Why)).content)

    @dataclass(frozen=True)
    class Why:
        reason: str

    @dataclass(frozen=True)
    class Form:
        paper: Literal["plain", "stars"]
        copies: Annotated[int, Meta(ge=1)]
        gift: bool = False
        note: str | None = None

    @server.prompt
    async def letter(to: str, tone: Literal["polite", "evil"] = "polite") -> str:
        '''Write a letter.'''
        return f"Write to {to},\nand be {tone}.{EVIL if tone == 'evil' else ''}"

    @server.tool
    async def order(ctx: Context) -> str:
        '''Asks how.'''
        form = await ctx.elicit("how", "How shall\nit be?", Form)
        ctx.log("debug", "not shown")
        ctx.log("notice", EVIL)
        ctx.log("error", {"evil": EVIL})
        return f"{form.action}: {form.content}"

    @server.tool
    async def pay(ctx: Context) -> str:
        page = await ctx.elicit_url("page", "Pay there.", "https://example.com/pay?n=1")
        return page.action

    @server.tool
    async def trap(ctx: Context) -> str:
        return (await ctx.elicit("trap", EVIL, Why)).action

    @server.tool
    async def change(ctx: Context) -> None:
        server.notify_resource_updated("office://hours")
        server.add_tool(pay, name="pay_again")

    @server.tool
    async def close() -> None:
        signal.raise_signal(signal.SIGTERM)
"""


@pytest.fixture
def office(tmp_path: Path) -> Path:
    return write(tmp_path, "office.py", OFFICE)


# What there is ------------------------------------------------------------------------------------


def test_resources_and_templates_are_lines(office: Path) -> None:
    result = run("resources", office)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:2] == ["office://hours  Opening hours", "office://seal  Seal"]
    assert "office://file/{number}  A file from the cellar." in lines
    assert not any(line.startswith("forged") for line in lines)
    assert "\x1b" not in result.stdout


def test_resources_as_json_say_which_are_templates(office: Path) -> None:
    listed = json.loads(run("resources", "--json", office).stdout)
    assert [it["uriTemplate"] for it in listed["resourceTemplates"]] == ["office://file/{number}"]
    assert "office://seal" in [it["uri"] for it in listed["resources"]]


def test_prompts_are_lines_and_a_table_on_a_terminal(office: Path) -> None:
    assert run("prompts", office).stdout == "letter(to, tone?)  Write a letter.\n"
    with on_terminal([*COMMAND, "prompts", str(office)]) as terminal:
        assert terminal.end() == 0
    assert terminal.seen.split()[:3] == ["prompt", "arguments", "what"]


def test_a_server_without_resources_has_none(tmp_path: Path) -> None:
    bare = write(
        tmp_path,
        "bare.py",
        "from trio_mcp import Server\nserver = Server('bare', version='1')\n",
    )
    for words, out in ((["resources"], ""), (["prompts", "--json"], "[]\n")):
        result = run(*words, bare)
        assert (result.returncode, result.stdout, result.stderr) == (0, out, "")


def test_long_lists_say_how_many_more_there_are(tmp_path: Path) -> None:
    many = write(
        tmp_path,
        "many.py",
        """
        from trio_mcp import Server
        server = Server("many", version="1")
        for n in range(45):
            server.add_tool(lambda: None, name=f"t{n:02}")
        """,
    )
    line = only_line(run("call", many, "zzz").stderr)
    assert line.endswith("it has t00, t01, t02, t03, t04, t05, t06, t07, t08, t09, t10, t11 … and 33 more")  # fmt: skip  # noqa: E501


# read ---------------------------------------------------------------------------------------------


def test_read_writes_what_it_is_to_a_pipe_or_a_file(office: Path, tmp_path: Path) -> None:
    words = [*COMMAND, "read", str(office)]
    assert run(*words[len(COMMAND) :], "office://hours").stdout == "9 to 17"
    seal = subprocess.run([*words, "office://seal"], capture_output=True, timeout=20, check=False)
    assert (seal.returncode, seal.stdout) == (0, b"\x00\xff\x1b")
    saved = run("read", office, "office://seal", "--output", tmp_path / "seal.png")
    assert (saved.returncode, saved.stdout) == (0, "")
    assert (tmp_path / "seal.png").read_bytes() == b"\x00\xff\x1b"


def test_read_prints_only_what_a_terminal_may_see(office: Path) -> None:
    command = [*COMMAND, "read", str(office)]
    with on_terminal([*command, "office://seal"]) as terminal:
        assert terminal.end() == 1
    assert "office://seal is binary (image/png, 3 bytes); --output FILE takes it" in terminal.seen
    with on_terminal([*command, "office://evil"]) as terminal:
        assert terminal.end() == 0
    assert "owned" in terminal.seen
    assert "\x1b]" not in terminal.raw
    assert "\u202e" not in terminal.raw


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["office://absent"], 1, "Resource not found"),
        (["office://hours", "-o", "absent/x"], 2, "cannot write 'absent/x': No such file"),
        (["office://hours", "-o", "x", "--json"], 2, "--json or --output, not both"),
        (["office://hours", "more"], 2, "What is 'more'?"),
        ([], 2, "Missing URI"),
        (["office://file/1", "--cancel-after", "0.3"], 130, "office://file/1: stopped"),
        (["office://file/1", "--max-timeout", "0.3"], 124, "timed out: max_timeout of 0.3 s"),
    ],
)
def test_exit_statuses_of_read(office: Path, words: list[str], status: int, said: str) -> None:
    result = run("read", office, *words, cwd=office.parent)
    assert (result.returncode, result.stdout) == (status, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_ctrl_c_cancels_a_read(office: Path) -> None:
    with on_terminal([*COMMAND, "read", "-v", str(office), "office://file/1"]) as terminal:
        terminal.until("1/3")
        terminal.type(CTRL_C)
        terminal.until("stopped")
        assert terminal.end() == 130
    assert terminal.seen.index("cancelling") < terminal.seen.index("stopped")
    assert "cleaned up" in terminal.seen


# prompt -------------------------------------------------------------------------------------------


def test_prompt_prints_who_says_what(office: Path) -> None:
    result = run("prompt", office, "letter", "to=5", "tone=evil")
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[:1] == ["user: Write to 5,"]
    assert all(line.startswith("  ") for line in lines[1:])
    assert "\x1b" not in result.stdout
    said = json.loads(run("prompt", "--json", office, "letter", "to=5").stdout)
    assert said["messages"][0]["content"]["text"] == "Write to 5,\nand be polite."


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["leter"], "the server has no prompt 'leter'; did you mean letter?"),
        (["letter"], "missing: to; the prompt takes to, [tone]"),
        (["letter", "to:=5"], "to: the arguments of a prompt are texts"),
        (["letter", "to=x", "how=y"], "there is no parameter 'how'; the prompt takes to, [tone]"),
    ],
)
def test_a_prompt_that_makes_no_sense_is_one_line(
    office: Path, words: list[str], said: str
) -> None:
    result = run("prompt", office, *words)
    assert only_line(result.stderr) == f"trio-mcp: {said}"
    assert (result.returncode, result.stdout) == (2, "")


# complete -----------------------------------------------------------------------------------------


def test_complete_prints_what_there_may_be(office: Path) -> None:
    result = run("complete", office, "letter", "tone=e", "to=x")
    assert (result.returncode, result.stdout, result.stderr) == (0, "evil\n", "")
    described = json.loads(run("complete", "--json", office, "letter", "tone=").stdout)
    assert sorted(described["values"]) == ["evil", "polite"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["letter", "tone"], 2, "'tone' is no argument; write key=value"),
        (["leter", "tone="], 2, "the server has no prompt 'leter'; did you mean letter?"),
        (["letter", "tune="], 2, "no parameter 'tune'; the prompt takes to, [tone]"),
        (["letter", "tone=", "tune=x"], 2, "no parameter 'tune'; the prompt takes to, [tone]"),
        (["office://file/{number}", "n="], 2, "'office://file/{number}'; it has number"),
        (["office://fill/{number}", "number="], 2, "office://fill/"),
    ],
)
def test_a_completion_that_makes_no_sense_is_one_line(
    office: Path, words: list[str], status: int, said: str
) -> None:
    result = run("complete", office, *words)
    assert said in only_line(result.stderr)
    assert (result.returncode, result.stdout) == (status, "")


def test_what_a_server_does_not_offer_is_one_line(tmp_path: Path) -> None:
    bare = write(
        tmp_path, "bare.py", "from trio_mcp import Server\nserver = Server('bare', version='1')\n"
    )
    assert only_line(run("prompt", bare, "x").stderr) == "trio-mcp: the server offers no prompts"
    assert only_line(run("complete", bare, "x", "y=").stderr).endswith("offers no prompts")
    refused = run("complete", bare, "x://{y}", "y=")
    assert "Method not found" in refused.stderr
    assert only_line(refused.stderr).endswith("; the server does not offer that")
    assert refused.returncode == 1


# Questions ----------------------------------------------------------------------------------------


def test_a_question_nobody_answers_is_told_with_how_to_answer_it(office: Path) -> None:
    result = run("call", office, "order")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1] == (
        'trio-mcp: the server asks: How shall it be? (paper: "plain" or "stars", copies: integer, '
        "gift?: boolean, note?: string); answer with "
        '--answer how=\'{"paper": …, "copies": …}\', or how=decline'
    )
    page = run("call", office, "pay").stderr.splitlines()[-1]
    assert "Pay there. (open https://example.com/pay?n=1)" in page
    assert "--answer page=accept, or page=decline" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["call", "order", '--answer=how={"paper":"stars","copies":2}'], "accept: Form("),
        (["call", "order", "--answer", "how=decline"], "decline: None"),
        (["call", "order", "--answer", "how=cancel"], "cancel: None"),
        (["call", "pay", "--answer", "page=accept"], "accept"),
        (["read", "office://asked", '--answer=why={"reason":"so"}'], "Why(reason='so')"),
    ],
)
def test_answers_may_be_given_beforehand(office: Path, words: list[str], said: str) -> None:
    result = run(words[0], office, *words[1:])
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(said)


def test_an_answer_to_what_nobody_asked_is_told(office: Path) -> None:
    """In the end, and it changes nothing."""
    result = run("call", office, "order", "--answer", "how=decline", "--answer", "who=decline")
    assert (result.returncode, result.stdout) == (0, "decline: None\n")
    told = "trio-mcp: --answer who=… was not asked for; asked: how"
    assert result.stderr.splitlines()[-2:] == ["order: done", told]
    failed = run("call", office, "order", "--answer", "hwo=decline")
    assert "trio-mcp: --answer hwo=… was not asked for; asked: how\n" in failed.stderr
    assert failed.returncode == 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('how={"paper":"gold","copies":2}', "argument 'paper': expected one of \"plain\""),
        ("how=yes", "is not KEY=JSON"),
        ("how=[1]", "is not KEY=JSON"),
    ],
)
def test_an_answer_that_is_none_is_refused(office: Path, answer: str, said: str) -> None:
    result = run("call", office, "order", "--answer", answer)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_form_is_filled_in_on_the_terminal(office: Path) -> None:
    with on_terminal([*COMMAND, "call", str(office), "order"]) as terminal:
        terminal.until('paper ("plain" or "stars"): ')
        terminal.type("stars\n")
        terminal.until("copies (integer): ")
        terminal.type("two\n")
        terminal.until("copies=two: expected an integer")
        terminal.type("2\n")
        terminal.until("gift? (boolean = false): ")
        terminal.type("y\n")
        terminal.until("note? (string): ")
        terminal.type("\n")
        assert terminal.end() == 0
    assert "Form(paper='stars', copies=2, gift=True, note=None)" in terminal.seen
    assert "the server asks: How shall\r\n  it be?" in terminal.seen


def test_a_form_that_does_not_fit_is_asked_again_and_may_be_declined(office: Path) -> None:
    with on_terminal([*COMMAND, "call", str(office), "order"]) as terminal:
        terminal.until("paper")
        terminal.type("gold\n2\n\n\n")
        terminal.until('argument \'paper\': expected one of "plain", "stars"')
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    assert "decline: None" in terminal.seen


def test_a_page_is_shown_in_full_and_opened_by_nobody(office: Path) -> None:
    with on_terminal([*COMMAND, "call", str(office), "pay"]) as terminal:
        terminal.until("open this page: https://example.com/pay?n=1")
        terminal.type("yes\n")
        assert terminal.end() == 0
    assert terminal.seen.endswith("accept\r\n")


def test_a_question_is_not_obeyed(office: Path) -> None:
    with on_terminal([*COMMAND, "call", str(office), "trap"]) as terminal:
        terminal.until("reason (string): ")
        terminal.type(CTRL_D)
        assert terminal.end() == 0
    told = run("call", office, "trap").stderr
    for shown in (terminal.raw, told):
        assert "owned" in shown
        assert not {"\x07", "\x9b", "\u202e"} & {*shown}
        assert not [line for line in shown.splitlines() if line.startswith("forged")]


def test_ctrl_c_at_a_question_cancels_the_call(office: Path) -> None:
    with on_terminal([*COMMAND, "call", str(office), "order"]) as terminal:
        terminal.until("paper")
        terminal.type(CTRL_C)
        terminal.until("stopped")
        assert terminal.end() == 130


# Log messages -------------------------------------------------------------------------------------


def test_log_messages_are_lines_that_obey_nobody(office: Path) -> None:
    answer = 'how={"paper":"stars","copies":2}'
    result = run("call", office, "order", "--answer", answer, "--log-level", "info")
    notice, error = [x for x in result.stderr.splitlines() if not x.startswith("order: ")]
    assert notice.startswith("notice: <")
    assert error.startswith('error: {"evil":"')
    assert not {"\x1b", "\x9b", "\u202e"} & {*result.stderr}
    assert "notice" not in run("call", office, "order", "--answer", answer).stderr


# listen -------------------------------------------------------------------------------------------


def listening(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "listen", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_listen_prints_changes_until_the_server_ends_it(office: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "run", str(office), "--http", "0"], stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        address = server.stderr.readline().partition("serving ")[2].partition(";")[0]
        with listening(address, "--tools", "office://hours") as listener:
            assert listener.stdout is not None
            assert listener.stderr is not None
            assert listener.stderr.readline() == "listen: running: tools, office://hours\n"
            assert run("call", address, "change").returncode == 0
            lines = {listener.stdout.readline() for _ in range(2)}
            assert lines == {"tools\n", "resource office://hours\n"}
            server.send_signal(signal.SIGTERM)
            assert listener.stderr.read() == "listen: ended by the server\n"
            assert listener.wait(5) == 0
        assert server.wait(5) == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_listen_ends_with_a_signal_and_tells_the_server(
    office: Path, number: signal.Signals, status: int
) -> None:
    with listening(str(office)) as listener:
        assert listener.stderr is not None
        assert listener.stderr.readline() == "listen: running: tools, prompts, resources\n"
        began = time.monotonic()
        listener.send_signal(number)
        name = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
        said = listener.stderr.read()
        assert said.startswith(f"listen: cancelling: {name}\nlisten: stopped\n")
        assert listener.wait(5) == status
        assert time.monotonic() - began < 5


def test_listen_to_a_server_that_dies_is_a_failure(office: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "run", str(office), "--websocket", "0"], stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        address = server.stderr.readline().partition("serving ")[2].partition(";")[0]
        with listening("--json", address) as listener:
            assert listener.stderr is not None
            listener.stderr.readline()
            server.kill()
            assert only_line(listener.stderr.read()).startswith("trio-mcp: ")
            assert listener.wait(5) == 1


def test_listen_says_what_the_server_does_not_tell(tmp_path: Path) -> None:
    """And ends at once if that is all."""
    bare = write(
        tmp_path,
        "bare.py",
        """
        from trio_mcp import Server
        server = Server("bare", version="1")
        """,
    )
    result = run("listen", bare, "office://x")
    assert only_line(result.stderr).startswith("trio-mcp: ")
    assert (result.returncode, result.stdout) == (1, "")
