"""What the documentation says, held against the code.

The ``python`` blocks of a page are run, in order, as one program; a ``text`` block right after one
is what it prints. The commands of a ``console`` block are run in the repository's root. In both,
``…`` stands for any text. A block that cannot run says ``python no-run``, below a comment with the
reason.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import trio_mcp
from trio_mcp import Limits

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
END_OF_BLOCK = "\x1e"
MIB, KIB = 1024 * 1024, 1024


@attrs.frozen
class Block:
    """A fenced block; ``line`` is the first one of its text, counted from 1."""

    language: str
    text: str
    line: int
    above: str

    @property
    def end(self) -> int:
        """The line of its closing fence."""
        return self.line + self.text.count("\n")


def blocks(page: Path) -> list[Block]:
    found = []
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].startswith("```"):
            at += 1
            continue
        end = lines.index("```", at + 1)
        text = "".join(line + "\n" for line in lines[at + 1 : end])
        found.append(Block(lines[at][3:], text, at + 2, lines[at - 1] if at else ""))
        at = end + 1
    return found


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def matches(expected: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part.strip()) for part in expected.split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


# Programs -----------------------------------------------------------------------------------------


def program_of(page: Path) -> str:
    """The page's Python with everything else blanked out, so that tracebacks name its lines."""
    lines = [""] * (len(page.read_text(encoding="utf-8").splitlines()) + 1)
    for block in blocks(page):
        if block.language == "python":
            lines[block.line - 1 : block.end - 1] = block.text.splitlines()
            lines[block.end - 1] = f"print({END_OF_BLOCK!r}, flush=True)"
    return "\n".join(lines)


def expected_prints(page: Path) -> Iterator[tuple[int, str | None]]:
    """For each block that runs, its line and what a ``text`` block after it says that it prints."""
    shown = {block.line: block.text for block in blocks(page) if block.language == "text"}
    for block in blocks(page):
        if block.language == "python":
            yield block.line, shown.get(block.end + 3)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_pages_programs_run_and_print_what_they_say(page: Path, tmp_path: Path) -> None:
    if page.name == "tracing.md":
        pytest.importorskip("opentelemetry.sdk")
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    program = tmp_path / f"page_{page.stem.replace('-', '_')}.py"  # no module's name
    program.write_text(program_of(page), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-X", "utf8", "-W", "error", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (ran.stderr, ran.returncode) == ("", 0)
    *printed, rest = ran.stdout.split(f"{END_OF_BLOCK}\n")
    assert rest == ""
    compared = 0
    for (line, expected), said in zip(expected_prints(page), printed, strict=True):
        if expected is not None:
            compared += 1
            assert matches(expected, said), f"{name_of(page)}:{line} prints\n{said}"
    assert compared == sum(block.language == "text" for block in blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_that_do_not_run_say_why(page: Path) -> None:
    for block in blocks(page):
        if block.language.startswith("python") and block.language != "python":
            assert block.language == "python no-run"
            assert re.fullmatch(r"<!-- .+ -->", block.above), block.line


CONSOLES = [
    (page, block) for page in PAGES for block in blocks(page) if block.language == "console"
]


@pytest.mark.parametrize(
    ("page", "block"), CONSOLES, ids=lambda it: name_of(it) if isinstance(it, Path) else it.line
)
def test_commands_print_what_the_page_says(page: Path, block: Block, tmp_path: Path) -> None:
    command = tmp_path / "trio-mcp"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -X utf8 -m trio_mcp "$@"\n')
    command.chmod(0o755)
    lines = block.text.splitlines()
    script = [line[2:] for line in lines if line.startswith("$ ")]
    expected = "\n".join(line for line in lines if not line.startswith("$ "))
    ran = subprocess.run(
        ["sh", "-c", "\n".join(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=60,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )
    assert matches(expected, ran.stdout), f"{name_of(page)}:{block.line} prints\n{ran.stdout}"


# Facts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["echo_server.py", "echo_client.py"])
def test_the_readmes_programs_are_the_examples(name: str) -> None:
    source = (ROOT / "examples" / name).read_text(encoding="utf-8")
    docstring = ast.parse(source).body[0]
    assert docstring.end_lineno is not None
    program = "\n".join(source.splitlines()[docstring.end_lineno :]).strip()
    assert program in [block.text.strip() for block in blocks(ROOT / "README.md")]


def links() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        text = re.sub(
            r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
        )
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" not in target:
                yield name_of(page), target


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize(("page", "target"), [*links()])
def test_relative_links_lead_somewhere(page: str, target: str) -> None:
    path, _, anchor = target.partition("#")
    linked = (ROOT / page).parent / path if path else ROOT / page
    assert linked.exists()
    if anchor:
        assert anchor in anchors(linked)


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {target.partition("#")[0] for page, target in links() if page == "README.md"}
    assert {name_of(page) for page in PAGES[1:]} <= linked


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=name_of)
def test_every_example_is_linked_from_the_readme_and_from_a_page(path: Path) -> None:
    assert ("README.md", f"examples/{path.name}") in links()
    assert f"../examples/{path.name}" in {target for _, target in links()}


@pytest.mark.parametrize("page", PAGES[1:], ids=name_of)
def test_pages_about_the_protocol_name_its_sections(page: Path) -> None:
    about_ourselves = {
        "admission",
        "command-line",
        "design",
        "faulty-wires",
        "inspection",
        "offload",
        "operating",
        "sweeping",
        "testing",
        "transcripts",
    }
    named = re.search(r"^Specification: \*", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert (named is None) is (page.stem in about_ourselves)


def documented(cls: type) -> Iterator[tuple[str, str | None]]:
    """The class, and what of its own is public and written as a function."""
    yield cls.__name__, vars(cls).get("__doc__")
    for name, value in vars(cls).items():
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            yield f"{cls.__name__}.{name}", value.__doc__


@pytest.mark.parametrize("name", trio_mcp.__all__)
def test_everything_public_says_what_it_is(name: str) -> None:
    public = getattr(trio_mcp, name)
    if not inspect.isclass(public):
        return  # the name of a union, or a value
    for what, said in documented(public):
        assert said or what in OBVIOUS, what


OBVIOUS = {"Elicited.accepted", "CallToolResult.text", "Journal.add"}
"""Their names say it all, or they are for the runtime."""


def shown_default(name: str, default: Any) -> str:
    if name.endswith("bytes") or name.startswith("bytes"):
        return f"{default / MIB:g} MiB" if default >= MIB else f"{default / KIB:g} KiB"
    return f"{default:g} s" if isinstance(default, float) else str(default)


def test_the_table_of_limits_agrees_with_limits() -> None:
    text = (ROOT / "docs" / "servers.md").read_text(encoding="utf-8").partition("\n## Limits\n")[2]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, flags=re.MULTILINE)
    limits = attrs.asdict(Limits())
    assert dict(rows) == {name: shown_default(name, value) for name, value in limits.items()}
    assert len(rows) == len(limits)
