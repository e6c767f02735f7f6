"""The fixture tools of the test suite, and a server that offers them.

Run as a script, it serves stdio: ``python tests/peers/fixture_server.py``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Literal

import trio

from trio_mcp import Context, Limits, Server, ToolError


class Fixtures:
    """A server with the fixture tools, and what its handlers have been seen doing."""

    make_server: type[Server] = Server

    def __init__(self, limits: Limits | None = None) -> None:
        self.server = self.make_server("fixtures", version="1.0.0", limits=limits)
        self.live = 0
        self.begun: list[str] = []
        self.released: list[str] = []
        for tool in (self.echo, self.add, self.sleep, self.block, self.patient, self.tick):
            self.server.tool(tool)
        for other in (self.big, self.boom, self.spawn, self.stats, self.noisy):
            self.server.tool(other)

    async def echo(self, text: str) -> str:
        """Say it back."""
        return text

    async def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async def sleep(self, s: float, ctx: Context, label: str = "") -> str:
        """Sleep; on the way out, a clean-up that awaits."""
        self.live += 1
        self.begun.append(label)
        try:
            await trio.sleep(s)
            return "slept"
        finally:
            with ctx.cleanup(5):
                await trio.lowlevel.checkpoint()
                self.released.append(label)
            self.live -= 1

    def block(self, s: float) -> str:
        """A thread that never asks."""
        self.live += 1
        try:
            time.sleep(s)
            return "blocked"
        finally:
            self.live -= 1

    def patient(self, s: float, ctx: Context) -> str:
        """A thread that asks every few milliseconds."""
        self.live += 1
        try:
            end = time.monotonic() + s
            while time.monotonic() < end:
                ctx.check_cancelled()
                time.sleep(0.005)
            return "waited"
        finally:
            self.live -= 1

    async def tick(self, n: int, dt: float, ctx: Context) -> str:
        """Report progress ``n`` times."""
        for i in range(1, n + 1):
            ctx.progress(i, n, f"tick {i}")
            await trio.sleep(dt)
        return "ticked"

    async def big(self, bytes: int) -> str:
        """A long text."""
        return "x" * bytes

    async def boom(self, kind: Literal["tool", "bug", "group", "exit", "nan"]) -> float:
        """Fail, in one way or another."""
        if kind == "tool":
            raise ToolError("the shop is closed; try again tomorrow")
        if kind == "group":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._fail)
        if kind == "exit":
            sys.exit(3)
        if kind == "nan":
            return float("nan")
        raise RuntimeError("secret detail")

    async def _fail(self) -> None:
        raise ToolError("from a nursery")

    async def spawn(self) -> int:
        """Start a child process that prints to its stdout; its exit status."""
        code = "print('a child speaks', flush=True); import sys; print(len(sys.stdin.read()))"
        process = await trio.run_process([sys.executable, "-c", code], stdin=None)
        return process.returncode

    async def noisy(self, text: str) -> str:
        """Print to stdout in every way there is, then answer."""
        print(text, flush=True)
        sys.stdout.write(text + "\n")
        with open(1, "w", closefd=False) as stdout:  # noqa: ASYNC230
            stdout.write(text + "\n")
        await trio.run_process(["echo", text])
        subprocess.run(["echo", text], check=True)  # noqa: ASYNC221
        return "quiet"

    async def stats(self) -> int:
        """The number of live handlers."""
        return self.live


if __name__ == "__main__":
    trio.run(Fixtures().server.serve_stdio)
