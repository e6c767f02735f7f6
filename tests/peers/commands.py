"""The command line as processes of its own, and servers for it in files."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

__all__ = ["BOOKSHOP", "COMMAND", "SHOP", "STUCK", "only_line", "run", "write"]

COMMAND = [sys.executable, "-m", "trio_mcp"]
BOOKSHOP = str(Path(__file__).parents[2] / "src" / "trio_mcp" / "demo" / "bookshop.py")

SHOP = """
    import atexit, sys
    import trio
    from trio_mcp import Context, Server, ToolError

    print("printed at import")
    atexit.register(print, "printed at exit")
    server = Server("shop", version="1.0.0")

    @server.tool
    async def add(a: int, b: int = 2) -> int:
        '''Add two numbers.'''
        return a + b

    @server.tool
    async def echo(text: str, loud: bool = False) -> str:
        '''Say it back.'''
        print("printed by a tool")
        return text.upper() if loud else text

    @server.tool
    async def tick(n: int, dt: float, ctx: Context) -> str:
        '''Report progress.'''
        try:
            for done in range(1, n + 1):
                ctx.progress(done, n, f"tick {done}")
                await trio.sleep(dt)
            return "ticked"
        finally:
            with ctx.cleanup(1):
                await trio.sleep(0.05)
                print("cleaned up", file=sys.stderr)

    @server.tool
    async def fail(how: str = "tool") -> str:
        if how == "crash":
            print("last words", file=sys.stderr)
            import os; os._exit(7)
        if how == "bug":
            raise RuntimeError("secret")
        raise ToolError("the shop is closed")
"""

STUCK = """
    import threading, time
    import trio
    from trio_mcp import Limits, Server

    limits = Limits(drain=0.1, longest_cleanup=0.2, cleanup=0.1)
    server = Server("stuck", version="1", limits=limits)

    @server.tool
    async def shield() -> None:
        with trio.CancelScope(shield=True):
            print("here", flush=True)
            await trio.sleep_forever()

    @server.tool
    async def block() -> None:
        print("here", flush=True)
        while True:
            time.sleep(1000)

    @server.tool
    async def leave_thread() -> str:
        threading.Thread(target=time.sleep, args=(1000,), name="mine").start()
        print("here", flush=True)
        return "left"
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def run(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        cwd=cwd,
    )


def only_line(text: str) -> str:
    """The one line there is; nothing looks like a traceback."""
    (line,) = text.splitlines()
    return line
