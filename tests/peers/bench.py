"""A server with one tool that does what a test wants, and a client that calls or cancels it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from tests.peers.raw import until

from trio_mcp import (
    Client,
    Context,
    Limits,
    Record,
    Server,
    ServerError,
    State,
    WorkRecord,
    connect,
)

__all__ = ["Bench", "called", "the_work"]

Body: TypeAlias = Callable[[Context], Awaitable[Any]]


class Bench:
    """A server with one tool, ``work``, that does what a test gives it."""

    def __init__(self, limits: Limits | None = None, pools: dict[str, int] | None = None) -> None:
        self.server = Server("bench", version="1", limits=limits, pools=pools)
        self.result: Any = None
        self.error: BaseException | None = None
        self._body: Body

        @self.server.tool
        async def work(ctx: Context) -> None:
            try:
                self.result = await self._body(ctx)
            except BaseException as error:
                self.error = error
                raise

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with connect(self.server) as client:
            yield client

    async def run(self, body: Body) -> Any:
        """What ``body`` returns; raises what it raises."""
        self._body = body
        self.result = self.error = None
        async with self.client() as client:
            try:
                await client.call_tool("work")
            except ServerError:
                assert self.error is not None
                raise self.error from None
        return self.result

    async def cancel(self, body: Body, when: Callable[[], object]) -> Record:
        """Cancel a call once ``when`` is true; its record once it has ended."""
        self._body = body
        self.result = self.error = None
        async with self.client() as client, client.start_tool("work") as call:
            await until(when)
            call.cancel("enough")
            await until(lambda: self.server.journal.ended[State.CANCELLED] == 1)
        return self.record

    @property
    def record(self) -> Record:
        """Of the newest call."""
        return called(self.server)[-1]


def called(server: Server) -> list[Record]:
    """The records of its tools' calls, oldest first."""
    return [record for record in server.journal if record.method == "tools/call"]


def the_work(record: Record) -> WorkRecord:
    (work,) = record.work
    return work
