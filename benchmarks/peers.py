"""The peers' environments, made in a folder that git ignores, with pinned versions.

One for each SDK: ``servers/official.txt`` and ``servers/fastmcp.txt`` say what is in it, for the
TypeScript SDK its lock file. They are made again when these files change, or the Python.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "Missing", "node_folder", "node_versions", "python", "python_versions", "tool"]

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent
CACHE = HERE / ".peers"
SERVERS = HERE / "servers"
NODE_SOURCE = SERVERS / "typescript"

#: Seconds that an installation may take.
INSTALL_LIMIT = 600

_VERSIONS = """
import importlib.metadata, sys
for name in sys.argv[1:]:
    print(name, importlib.metadata.version(name))
"""


class Missing(RuntimeError):
    """Something must be installed by hand; the message says what."""


def tool(name: str, package: str) -> str:
    """Return the path of a command, or raise `Missing`, which names the package to install."""
    path = shutil.which(name)
    if path is None:
        raise Missing(f"{name} is not installed; on Debian: apt-get install {package}")
    return path


@functools.cache
def python(name: str) -> str:
    """Return the Python of a peer's environment, ``"official"`` or ``"fastmcp"``."""
    folder = CACHE / name
    requirements = SERVERS / f"{name}.txt"
    made_of = f"{sys.version}\n{requirements.read_text()}"
    interpreter = str(folder / "bin" / "python")
    if not _is_made_of(folder, made_of):
        _clear(folder)
        _say(f"installing the peers of {requirements.name}")
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([interpreter, "-m", "pip", "install", "--quiet", "-r", str(requirements)])
        _mark(folder, made_of)
    return interpreter


def python_versions(interpreter: str, *packages: str) -> dict[str, str]:
    """Return the versions of packages that one Python finds."""
    output = _run([interpreter, "-c", _VERSIONS, *packages])
    return dict(line.split(" ", 1) for line in output.splitlines())


@functools.cache
def node_folder() -> Path:
    """Return the folder that holds the TypeScript server with what it needs."""
    folder = CACHE / "typescript"
    lock = (NODE_SOURCE / "package-lock.json").read_text()
    if not _is_made_of(folder, lock):
        npm = tool("npm", "npm")
        _clear(folder)
        _say("installing the TypeScript SDK")
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(NODE_SOURCE / name, folder)
        _run([npm, "ci", "--no-audit", "--no-fund", "--prefix", str(folder)])
        _mark(folder, lock)
    shutil.copy(NODE_SOURCE / "server.mjs", folder)
    return folder


def node_versions() -> dict[str, str]:
    """Return the versions of node and of the packages that the TypeScript server names."""
    packages: dict[str, str] = json.loads((NODE_SOURCE / "package.json").read_text())[
        "dependencies"
    ]
    node = _run([tool("node", "nodejs"), "--version"]).strip().removeprefix("v")
    return {"node": node, **packages}


def _is_made_of(folder: Path, made_of: str) -> bool:
    mark = folder / "made-of"
    return mark.exists() and mark.read_text() == made_of


def _mark(folder: Path, made_of: str) -> None:
    (folder / "made-of").write_text(made_of)


def _clear(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT)
    if done.returncode:
        raise Missing(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
