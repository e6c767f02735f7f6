"""The repository's parts and the installed package are one and the same, and stay so."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FACE = ROOT / "src" / "trio_mcp"
PARTS = ("runtime", "transports", "handlers")


def only_include(target: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return set(project["tool"]["hatch"]["build"]["targets"][target]["only-include"])


@pytest.mark.parametrize("part", PARTS)
def test_each_part_is_linked_into_the_package_and_listed(part: str) -> None:
    link = FACE / part
    assert link.is_symlink()
    assert link.readlink() == Path("..", "..", part)
    assert part in only_include("wheel")
    assert part in only_include("sdist")


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_each_file_of_the_face_is_listed(target: str) -> None:
    listed = only_include(target)
    for entry in FACE.iterdir():
        if entry.name in PARTS or entry.name == "__pycache__":
            continue
        assert f"src/trio_mcp/{entry.name}" in listed, f"{entry.name} would not be installed"
    for name in listed:
        assert (ROOT / name).exists(), f"{name} is listed and not there"


@pytest.mark.parametrize("part", PARTS)
def test_a_bare_import_of_a_part_is_refused(part: str) -> None:
    command = [sys.executable, "-c", f"import {part}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert f"import trio_mcp.{part}, not {part}" in result.stderr


def test_no_part_is_loaded_twice() -> None:
    code = (
        "import sys, trio_mcp\n"
        "parts = ('runtime', 'transports', 'handlers')\n"
        "bare = [m for m in sys.modules if m.split('.')[0] in parts]\n"
        "assert not bare, bare"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_repository_root_is_no_package() -> None:
    assert not (ROOT / "__init__.py").exists()
