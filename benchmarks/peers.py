"""The environments that the HTTP benchmark's servers run in, made in a folder that git ignores.

One holds the Python servers, ours among them, with the versions of `http_peers.txt`; one the
TypeScript server, with those of its lock file. They are made again when those files change.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "Missing",
    "fastmcp_python",
    "node_folder",
    "node_versions",
    "python",
    "python_versions",
    "tool",
]

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent
CACHE = HERE / ".peers"
REQUIREMENTS = HERE / "http_peers.txt"
NODE_SOURCE = HERE / "http_typescript"
FASTMCP = HERE / "probed" / "fastmcp.txt"

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


def python() -> str:
    """Return the Python of the environment that has this project and the Python peers."""
    folder = CACHE / "python"
    interpreter = folder / "bin" / "python"
    made_of = f"{ROOT}\n{sys.version}\n{REQUIREMENTS.read_text()}{_own_dependencies()}"
    if not _is_made_of(folder, made_of):
        _clear(folder)
        _run([sys.executable, "-m", "venv", str(folder)])
        install = [str(interpreter), "-m", "pip", "install", "--quiet"]
        _run([*install, "-r", str(REQUIREMENTS), "-e", str(ROOT)])
        _mark(folder, made_of)
    return str(interpreter)


def fastmcp_python() -> str:
    """Return the Python of the environment that has fastmcp, and nothing of this project."""
    folder = CACHE / "fastmcp"
    made_of = f"{sys.version}\n{FASTMCP.read_text()}"
    interpreter = str(folder / "bin" / "python")
    if not _is_made_of(folder, made_of):
        _clear(folder)
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([interpreter, "-m", "pip", "install", "--quiet", "-r", str(FASTMCP)])
        _mark(folder, made_of)
    return interpreter


def python_versions(packages: Iterable[str]) -> str:
    """Return `name version, …` as installed for the Python servers."""
    output = _run([python(), "-c", _VERSIONS, *packages])
    return ", ".join(output.splitlines())


def node_folder() -> Path:
    """Return the folder that holds the TypeScript server with what it needs."""
    folder = CACHE / "typescript"
    lock = (NODE_SOURCE / "package-lock.json").read_text()
    if not _is_made_of(folder, lock):
        _clear(folder)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(NODE_SOURCE / name, folder)
        npm = tool("npm", "npm")
        _run([npm, "ci", "--no-audit", "--no-fund", "--prefix", str(folder)])
        _mark(folder, lock)
    shutil.copy(NODE_SOURCE / "server.mjs", folder)
    return folder


def node_versions() -> str:
    """Return the versions of node and of the packages that the TypeScript server names."""
    packages = json.loads((NODE_SOURCE / "package.json").read_text())["dependencies"]
    node = _run([tool("node", "nodejs"), "--version"]).strip().removeprefix("v")
    return ", ".join([f"node {node}", *(f"{name} {version}" for name, version in packages.items())])


def _own_dependencies() -> str:
    return (ROOT / "pyproject.toml").read_text()


def _is_made_of(folder: Path, made_of: str) -> bool:
    mark = folder / "made-of"
    return mark.exists() and mark.read_text() == made_of


def _mark(folder: Path, made_of: str) -> None:
    (folder / "made-of").write_text(made_of)


def _clear(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT)
    if done.returncode:
        raise Missing(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
