"""Servers whose tools are hard to stop: deaf threads, clean-up of every kind, children.

Run as a script, it serves a `Blocker` with four threads over stdio.
"""

from __future__ import annotations

import threading

import trio

from trio_mcp import Context, Limits, Server

__all__ = ["Blocker", "Cleaners", "Deadlines", "Parents"]


async def echo(text: str) -> str:
    """Say it back."""
    return text


class Blocker:
    """Plain ``def`` tools that stay in their threads until the test opens the gate."""

    def __init__(self, limits: Limits) -> None:
        self.server = Server("blocker", version="1", limits=limits)
        self.gate = threading.Event()
        self.begun: list[int] = []
        for tool in (self.block, self.asking, self.count, self.open_gate, echo):
            self.server.tool(tool)
        self.server.tool(timeout=0.05)(self.limited)

    def block(self, ctx: Context, n: int = 0) -> str:
        """Never asks whether it should stop; in the end it has something to report."""
        self.begun.append(n)
        assert self.gate.wait(10)
        ctx.progress(1)
        return "blocked"

    def asking(self, ctx: Context, n: int = 0) -> str:
        """Asks all the time, and reports progress."""
        self.begun.append(n)
        for at in range(10_000):
            if self.gate.wait(0.001):
                break
            ctx.progress(at)
            ctx.check_cancelled()
        return "asked"

    def limited(self, ctx: Context) -> str:
        """Never asks, although it has a deadline."""
        return self.block(ctx)

    async def count(self) -> int:
        """How many threads have begun."""
        return len(self.begun)

    async def open_gate(self) -> None:
        """Let all threads go on."""
        self.gate.set()


class Deadlines:
    """Tools that have a second; one needs three more to clean up."""

    def __init__(self) -> None:
        self.server = Server("deadlines", version="1")
        self.released: list[float] = []
        self.server.tool(timeout=1)(self.hold)
        self.server.tool(timeout=1)(self.brief)
        self.server.tool(echo)

    async def hold(self, ctx: Context) -> str:
        try:
            await trio.sleep_forever()
        finally:
            with ctx.cleanup(5):
                await trio.sleep(3)
            self.released.append(trio.current_time())
        return "never"

    async def brief(self) -> str:
        await trio.sleep(0.5)
        return "in time"


class Cleaners:
    """Tools that clean up in various ways. ``after`` names those that went on after the block."""

    def __init__(self) -> None:
        self.server = Server("cleaners", version="1", limits=Limits(longest_cleanup=10))
        self.after: list[str] = []
        tools = (self.late, self.clean, self.timed_out, self.raises, self.twice, self.refuses)
        for tool in tools:
            self.server.tool(tool)
        self.server.tool(echo)

    async def late(self) -> str:
        """Does not let itself be stopped."""
        with trio.CancelScope(shield=True):
            await trio.sleep(3)
        return "late"

    async def clean(self, ctx: Context) -> None:
        try:
            await trio.sleep(60)
        finally:
            with ctx.cleanup(5):
                await trio.sleep(2)
            self.after.append("clean")

    async def timed_out(self, ctx: Context) -> None:
        try:
            await trio.sleep(60)
        finally:
            with ctx.cleanup(2):
                await trio.sleep(100)
            self.after.append("timed out")

    async def raises(self, ctx: Context) -> None:
        try:
            await trio.sleep(60)
        finally:
            with ctx.cleanup(5):
                await trio.sleep(1)
                raise OSError("the disk is full")

    async def twice(self, ctx: Context) -> None:
        try:
            await trio.sleep(60)
        finally:
            with ctx.cleanup(1):
                await trio.sleep(100)
            with ctx.cleanup(5):
                await trio.sleep(1)

    async def refuses(self, ctx: Context) -> list[str]:
        """Asks for clean-up without a bound."""
        refused = []
        for seconds in (0, -1, 10.5, float("inf"), float("nan")):
            try:
                ctx.cleanup(seconds)
            except ValueError as error:
                refused.append(str(error))
        return refused


class Parents:
    """A handler that leaves a child in its request's nursery."""

    def __init__(self) -> None:
        self.server = Server("parents", version="1")
        self.ended: list[str] = []
        self.server.tool(self.leaves_child)
        self.server.tool(echo)

    async def leaves_child(self, ctx: Context, s: float, fails: bool = False) -> str:
        async def child() -> None:
            try:
                await trio.sleep(s)
                ctx.progress(1, 1)
                if fails:
                    raise RuntimeError("the secret of the child")
            finally:
                self.ended.append("child")

        ctx.nursery.start_soon(child)
        return "the handler is done"


if __name__ == "__main__":
    trio.run(Blocker(Limits(threads=4, cleanup=0.05)).server.serve_stdio)
