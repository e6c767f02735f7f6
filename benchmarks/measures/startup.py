"""Seconds until a server answers its first call, and those of its imports."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

from ..contenders import Contender
from ..load.channel import Channel
from ..load.posting import Line
from ..load.process import ROOT, LoadError, ServerProcess
from ..plan import Plan
from ..samples import Key, Sample

__all__ = ["measure"]

_IMPORTS = {
    "ours": "from trio_mcp import Server",
    "official": "from mcp.server import MCPServer",
    "fastmcp": "from fastmcp import FastMCP",
    "bare": "import trio, msgspec",
}
_PYTHON = """
import time
began = time.perf_counter()
{imports}
print(time.perf_counter() - began)
"""
#: Run in the folder that node finds the packages from.
_NODE = """
const began = performance.now();
await import('@modelcontextprotocol/server');
console.log((performance.now() - began) / 1000);
"""
#: Seconds that one import may take.
LIMIT = 30


def measure(contender: Contender, plan: Plan, number: int) -> Iterator[Sample]:
    """One start. Imports are timed with standard streams alone: they are the same everywhere."""
    first = _first_answer(contender)
    yield Sample(Key("startup", contender.wire, contender.name, 0, "first_answer_s"), first)
    if contender.wire == "stdio":
        imports = _imports(contender)
        yield Sample(Key("startup", contender.wire, contender.name, 0, "import_s"), imports)


def _first_answer(contender: Contender) -> float:
    with ServerProcess(contender) as server:
        caller = Line(server) if contender.over_http else Channel.to(server, contender)
        try:
            caller.ask_stock()
            return time.perf_counter() - server.started_at
        finally:
            caller.close()


def _imports(contender: Contender) -> float:
    program, script = contender.command[0], contender.command[1]
    command = [program, "-c", _PYTHON.format(imports=_IMPORTS.get(contender.name, ""))]
    folder = str(ROOT)
    if contender.name == "typescript":
        command = [program, "--input-type=module", "--eval", _NODE]
        folder = script.rpartition("/")[0]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise LoadError(f"imports failed: {done.stderr[-2000:]}")
    return float(done.stdout)
