"""Kinds of work that a tool may do, and what tells, from outside of the runtime, that it stopped.

Each is a context manager around its resources. ``tool`` is the function to be offered; ``begun``
tells that it is in the middle of its work, ``stopped`` that the work itself has ended, whatever the
runtime says, and ``undone`` that what it had begun has been undone.
"""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import psycopg
import trio
import trio.lowlevel
from tests.peers.burning import burn
from tests.peers.postgres import programs
from tests.peers.processes import alive

from trio_mcp import CancelSource, Client, Context, Server, State, connect

__all__ = ["KINDS", "Work"]


class Work:
    """``name`` and ``what_is_undone`` are for people."""

    name: ClassVar[str]
    what_is_undone: ClassVar[str]
    stops: ClassVar[bool] = True
    """Whether nature permits that it is stopped."""
    patience: ClassVar[float] = 0.5
    """A deadline, in seconds, that finds it in the middle of its work."""

    def __init__(self) -> None:
        self.begun = False

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be tried here, if it cannot."""
        return None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield

    @property
    def tool(self) -> Callable[..., Any]:
        raise NotImplementedError

    def is_begun(self) -> bool:
        return self.begun

    def stopped(self) -> bool:
        raise NotImplementedError

    def undone(self) -> bool:
        return self.stopped()

    def let_go(self) -> None:
        """What cannot be stopped may end now."""


class Async(Work):
    name = "`async def`"
    what_is_undone = "its hold is released, in `finally`"

    def __init__(self) -> None:
        super().__init__()
        self._held = False
        self._ended = False

    @property
    def tool(self) -> Callable[..., Any]:
        async def work(ctx: Context) -> None:
            self._held = self.begun = True
            try:
                await trio.sleep_forever()
            finally:
                with ctx.cleanup(5):
                    await trio.lowlevel.checkpoint()
                    self._held = False
                self._ended = True

        return work

    def stopped(self) -> bool:
        return self._ended

    def undone(self) -> bool:
        return not self._held


class AskingThread(Work):
    name = "a thread that asks"
    what_is_undone = "its hold is released, in `finally`"

    def __init__(self) -> None:
        super().__init__()
        self._ended = False

    @property
    def tool(self) -> Callable[..., Any]:
        def work(ctx: Context) -> None:
            self.begun = True
            try:
                while True:
                    ctx.check_cancelled()
                    time.sleep(0.001)
            finally:
                self._ended = True

        return work

    def stopped(self) -> bool:
        return self._ended


class DeafThread(Work):
    name = "a thread that never asks"
    what_is_undone = "nothing: it runs on, listed, and its end is recorded as late"
    stops = False

    def __init__(self) -> None:
        super().__init__()
        self._gate = threading.Event()
        self._ended = False

    @property
    def tool(self) -> Callable[..., Any]:
        def work() -> None:
            self.begun = True
            self._gate.wait()
            self._ended = True

        return work

    def stopped(self) -> bool:
        return self._ended

    def let_go(self) -> None:
        self._gate.set()


class Interruptible(Work):
    name = "`ctx.run_sync` with `interrupt`"
    what_is_undone = "what `fn` does in its own `finally`"

    def __init__(self) -> None:
        super().__init__()
        self._interrupted = threading.Event()
        self._ended = False

    @property
    def tool(self) -> Callable[..., Any]:
        def wait() -> None:
            self.begun = True
            self._interrupted.wait()
            self._ended = True
            raise RuntimeError("interrupted")

        async def work(ctx: Context) -> None:
            await ctx.run_sync(wait, interrupt=self._interrupted.set)

        return work

    def stopped(self) -> bool:
        return self._ended


class Worker(Work):
    name = "`ctx.run_in_process`"
    what_is_undone = "nothing of its own: the process is killed"
    patience = 4.0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            self._path = Path(folder) / "pid"
            yield

    @property
    def tool(self) -> Callable[..., Any]:
        async def work(ctx: Context) -> None:
            await ctx.run_in_process(burn, str(self._path))

        return work

    def is_begun(self) -> bool:
        return self._path.exists() and self._path.read_text().endswith("\n")

    def stopped(self) -> bool:
        return not alive(int(self._path.read_text()))


class Command(Work):
    name = "`ctx.run_process`"
    what_is_undone = "what the command does at SIGTERM; its whole group is gone"

    def __init__(self) -> None:
        super().__init__()
        self._pids: list[int] = []

    @property
    def tool(self) -> Callable[..., Any]:
        async def work(ctx: Context) -> None:
            await ctx.run_process(
                ["sh", "-c", "sleep 600 & echo $! $$; wait"],
                on_stdout=lambda data: self._pids.extend(map(int, data.split())),
            )

        return work

    def is_begun(self) -> bool:
        return len(self._pids) == 2

    def stopped(self) -> bool:
        return not any(map(alive, self._pids))


FOR_EVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


class Sqlite(Work):
    name = "a transaction of SQLite"
    what_is_undone = "the transaction is rolled back"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute("CREATE TABLE orders (number INTEGER)")
        yield
        self._database.close()

    @property
    def tool(self) -> Callable[..., Any]:
        def write() -> None:
            with self._database:
                rows = ((number,) for number in range(10_000))
                self._database.executemany("INSERT INTO orders VALUES (?)", rows)
                self.begun = True
                self._database.execute(FOR_EVER).fetchall()

        async def work(ctx: Context) -> None:
            await ctx.run_sync(write, interrupt=self._database.interrupt)

        return work

    def stopped(self) -> bool:
        return not self._database.in_transaction

    def undone(self) -> bool:
        count = self._database.execute("SELECT count(*) FROM orders").fetchone()
        return bool(count == (0,))


class Postgresql(Work):
    name = "a transaction of PostgreSQL"
    what_is_undone = "the transaction is rolled back; the query is gone from `pg_stat_activity`"
    address: ClassVar[str]
    """Of a running server; whoever tries this kind of work sets it."""

    @classmethod
    def missing(cls) -> str | None:
        return None if programs() else "PostgreSQL is not installed: apt-get install postgresql"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        with (
            psycopg.connect(self.address) as self._connection,
            psycopg.connect(self.address, autocommit=True) as self._other,
        ):
            self._connection.execute("DROP TABLE IF EXISTS orders")
            self._connection.execute("CREATE TABLE orders (number integer)")
            self._connection.commit()
            yield

    @property
    def tool(self) -> Callable[..., Any]:
        query = "INSERT INTO orders SELECT generate_series(1, 10000); SELECT pg_sleep(600)"

        async def cancel() -> None:
            await trio.to_thread.run_sync(self._connection.cancel_safe, abandon_on_cancel=True)

        async def work(ctx: Context) -> None:
            try:
                await ctx.run_sync(self._connection.execute, query, interrupt=cancel)
            finally:
                with ctx.cleanup(5):
                    await ctx.run_sync(self._connection.rollback)

        return work

    def is_begun(self) -> bool:
        return (
            self._count(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(6%'"
                " AND state = 'active' AND pid <> pg_backend_pid()"
            )
            == 1
        )

    def stopped(self) -> bool:
        return not self.is_begun()

    def undone(self) -> bool:
        return self._count("SELECT count(*) FROM orders") == 0

    def _count(self, query: str) -> int:
        row = self._other.execute(query).fetchone()
        assert row is not None
        return int(row[0])


class Upstream(Work):
    name = "an HTTP request upstream (`httpx2`)"
    what_is_undone = "the connection upstream is closed"

    def __init__(self) -> None:
        super().__init__()
        self._left = False

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async def silent(stream: trio.SocketStream) -> None:
            await stream.receive_some()
            self.begun = True
            assert await stream.receive_some() == b""
            self._left = True

        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, silent, [listener])
            self._url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
            yield
            nursery.cancel_scope.cancel()

    @property
    def tool(self) -> Callable[..., Any]:
        async def work() -> None:
            async with httpx2.AsyncClient(timeout=None) as http:
                await http.get(self._url)

        return work

    def stopped(self) -> bool:
        return self._left


class Nested(Work):
    name = "a tool of another MCP server (`connect`)"
    what_is_undone = "that server is told, and stops its own handler"

    def __init__(self) -> None:
        super().__init__()
        self._ended = False
        self._inner = Server("inner", version="1")
        self._client: Client

        @self._inner.tool
        async def wait() -> None:
            self.begun = True
            try:
                await trio.sleep_forever()
            finally:
                self._ended = True

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with connect(self._inner) as self._client:
            yield

    @property
    def tool(self) -> Callable[..., Any]:
        async def work() -> None:
            await self._client.call_tool("wait")

        return work

    def stopped(self) -> bool:
        return self._ended and self._inner.journal.ended[State.CANCELLED] == 1

    def undone(self) -> bool:
        record = list(self._inner.journal)[-1]
        assert record.cause is not None
        return (record.state, record.cause.source) == (
            State.CANCELLED,
            CancelSource.NOTIFICATION,
        )


KINDS: list[type[Work]] = [
    Async,
    AskingThread,
    DeafThread,
    Interruptible,
    Worker,
    Command,
    Sqlite,
    Postgresql,
    Upstream,
    Nested,
]
