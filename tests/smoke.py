"""The installed package by itself, without the repository: ``python -I tests/smoke.py``."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import trio

import trio_mcp

SERVER = """
import trio
from trio_mcp import Server
server = Server("smoke", version="1")
@server.tool
def double(n: int) -> int:
    return 2 * n
trio.run(server.serve_stdio)
"""


async def main() -> None:
    assert "site-packages" in trio_mcp.__file__, trio_mcp.__file__
    async with trio_mcp.connect([sys.executable, "-I", "-c", SERVER]) as client:
        assert [tool.name async for tool in client.tools()] == ["double"]
        result = await client.call_tool("double", {"n": 21})
        assert result.structured_content == 42, result
    version = importlib.metadata.version("trio-mcp")
    command = [sys.executable, "-I", "-m", "trio_mcp", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: ASYNC221
    assert version in printed, printed
    print(f"trio-mcp {version}: the installed package works")


if __name__ == "__main__":
    trio.run(main)
