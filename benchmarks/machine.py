"""What the numbers depend on: the machine, what else it does, versions, the commit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import msgspec

from . import peers
from .load.process import most_descriptors

__all__ = ["BUSY", "Machine", "look"]

#: Load average above which the machine was busy when the run began.
BUSY = 0.5

_OURS = ("trio-mcp", "trio", "msgspec", "httptools", "trio-websocket", "cattrs")
_OFFICIAL = ("mcp", "anyio", "pydantic", "starlette", "uvicorn")
_FASTMCP = ("fastmcp", "mcp", "uvicorn")


class Machine(msgspec.Struct):
    """All as text for people, but for the numbers."""

    cpu: str
    cores: int
    kernel: str
    python: str
    load_average: float
    descriptors: int
    commit: str
    versions: dict[str, dict[str, str]]

    @property
    def busy(self) -> bool:
        return self.load_average > BUSY


def look(names: Collection[str], *, installed: bool) -> Machine:
    """Now, before anything runs. The versions are those of these contenders."""
    return Machine(
        cpu=_processor(),
        cores=len(os.sched_getaffinity(0)),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        load_average=round(os.getloadavg()[0], 2),
        descriptors=most_descriptors(),
        commit=_commit(),
        versions=_versions(names, installed=installed),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    """The commit, with a plus if something has changed since; nothing where there is no git."""
    try:
        said = _git("rev-parse", "--short", "HEAD")
        return said + "+" * bool(_git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=peers.ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _versions(names: Collection[str], *, installed: bool) -> dict[str, dict[str, str]]:
    here = sys.executable
    found = {"trio-mcp": peers.python_versions(here, *_OURS)}
    if "official" in names:
        python = peers.python("official") if installed else here
        uvloop = ("uvloop",) if installed else ()
        found["Python SDK"] = peers.python_versions(python, *_OFFICIAL, *uvloop)
    if "fastmcp" in names:
        found["fastmcp"] = peers.python_versions(peers.python("fastmcp"), *_FASTMCP)
    if "typescript" in names:
        found["TypeScript SDK"] = peers.node_versions()
    return found
