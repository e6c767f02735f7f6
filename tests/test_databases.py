"""Cancelled queries of real databases: the query stops, the transaction is undone, the connection
stays usable. SQLite interrupts in this process, PostgreSQL in its own."""

from __future__ import annotations

import functools
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import trio
from tests.peers.bench import Bench, the_work
from tests.peers.postgres import postgres, programs
from tests.peers.raw import until

from trio_mcp import Context, Limits, State

ROWS = 100_000

FOR_EVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def rows(half: threading.Event) -> Iterator[tuple[int, str]]:
    """Many; tells once half of them have been taken."""
    for number in range(ROWS):
        if number == ROWS // 2:
            half.set()
        yield number, "x" * 100


# SQLite -------------------------------------------------------------------------------------------


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect(tmp_path / "orders.db", check_same_thread=False)
    database.execute("CREATE TABLE orders (number INTEGER, note TEXT)")
    yield database
    database.close()


async def test_a_cancelled_query_of_sqlite_stops(sqlite: sqlite3.Connection) -> None:
    started = threading.Event()

    def query() -> None:
        started.set()
        sqlite.execute(FOR_EVER).fetchall()

    bench = Bench(Limits(cleanup=60))
    record = await bench.cancel(
        lambda ctx: ctx.run_sync(query, interrupt=sqlite.interrupt), started.is_set
    )
    work = the_work(record)
    assert (work.outcome, record.cleanup, record.late) == ("stopped", "clean", ())
    assert work.interrupts >= 1
    assert sqlite.execute("SELECT 1").fetchone() == (1,)


async def test_a_cancelled_write_to_sqlite_leaves_no_row(
    sqlite: sqlite3.Connection, tmp_path: Path
) -> None:
    """Cancelled in the middle of a transaction of 100,000 rows."""
    half = threading.Event()

    def write() -> None:
        with sqlite:
            sqlite.executemany("INSERT INTO orders VALUES (?, ?)", rows(half))
            sqlite.execute(FOR_EVER).fetchall()  # the transaction has more to do

    bench = Bench(Limits(cleanup=60))
    record = await bench.cancel(
        lambda ctx: ctx.run_sync(write, interrupt=sqlite.interrupt), half.is_set
    )
    assert (the_work(record).outcome, record.cleanup) == ("stopped", "clean")
    assert record.late == ()
    for database in (sqlite, sqlite3.connect(tmp_path / "orders.db")):
        assert database.execute("SELECT count(*) FROM orders").fetchone() == (0,)
    database.close()
    with sqlite:
        sqlite.execute("INSERT INTO orders VALUES (1, 'usable')")
    assert sqlite.execute("SELECT count(*) FROM orders").fetchone() == (1,)


async def test_an_interrupt_that_comes_before_the_query_is_repeated(
    sqlite: sqlite3.Connection,
) -> None:
    """SQLite forgets an interrupt that finds nothing running."""
    started, go_on = threading.Event(), threading.Event()

    def query() -> None:
        started.set()
        go_on.wait()
        sqlite.execute(FOR_EVER).fetchall()

    def interrupt() -> None:
        sqlite.interrupt()
        go_on.set()

    bench = Bench(Limits(cleanup=60))
    record = await bench.cancel(
        lambda ctx: ctx.run_sync(query, interrupt=interrupt), started.is_set
    )
    work = the_work(record)
    assert work.outcome == "stopped"
    assert work.interrupts >= 2


# PostgreSQL ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def postgres_address() -> Iterator[str]:
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with postgres() as address:
        yield address


@pytest.fixture
def postgresql(postgres_address: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_address) as connection:
        connection.execute("CREATE TEMPORARY TABLE mine (n integer)")
        connection.execute("CREATE TABLE orders (number integer, note text)")
        connection.commit()
        yield connection
        connection.rollback()
        connection.execute("DROP TABLE orders")


class Activity:
    """What PostgreSQL itself says about its other connections."""

    def __init__(self, address: str) -> None:
        self._connection = psycopg.connect(address, autocommit=True)

    def __enter__(self) -> Activity:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def active(self, text: str) -> int:
        """Queries that run and have ``text`` in them."""
        return self._count(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE %s",
            f"%{text}%",
        )

    def orders(self) -> int:
        return self._count("SELECT count(*) FROM orders")

    def _count(self, query: str, *parameters: str) -> int:
        row = self._connection.execute(query, parameters).fetchone()
        assert row is not None
        return int(row[0])


async def execute(ctx: Context, connection: psycopg.Connection, query: str) -> None:
    """How a handler does it: the driver's cancel makes a connection of its own, which may block,
    so it goes to a thread too, one of Trio's."""
    cancel = functools.partial(
        trio.to_thread.run_sync, connection.cancel_safe, abandon_on_cancel=True
    )
    try:
        await ctx.run_sync(connection.execute, query, interrupt=cancel, pool="database")
    except BaseException:
        with ctx.cleanup(5):
            await ctx.run_sync(connection.rollback, pool="database")
        raise


async def test_a_cancelled_query_of_postgresql_is_gone_from_the_server(
    postgresql: psycopg.Connection, postgres_address: str
) -> None:
    with Activity(postgres_address) as activity:
        bench = Bench(Limits(cleanup=60), pools={"database": 1})
        record = await bench.cancel(
            lambda ctx: execute(ctx, postgresql, "SELECT pg_sleep(600)"),
            lambda: activity.active("pg_sleep(600)"),
        )
        assert activity.active("pg_sleep(600)") == 0
    query, rollback = record.work
    assert (query.outcome, rollback.outcome) == ("stopped", "result")
    assert (record.state, record.cleanup, record.late) == (State.CANCELLED, "clean", ())
    assert postgresql.execute("SELECT 1").fetchone() == (1,)


async def test_a_cancelled_write_to_postgresql_leaves_no_row(
    postgresql: psycopg.Connection, postgres_address: str
) -> None:
    """Cancelled after 100,000 rows were written, in a transaction that goes on."""
    write = (
        f"INSERT INTO orders SELECT i, 'x' FROM generate_series(1, {ROWS}) i; "
        "SELECT pg_sleep(600); COMMIT"
    )
    with Activity(postgres_address) as activity:
        bench = Bench(Limits(cleanup=60), pools={"database": 1})
        record = await bench.cancel(
            lambda ctx: execute(ctx, postgresql, write),
            lambda: activity.active("generate_series"),
        )
        assert activity.active("generate_series") == 0
        assert activity.orders() == 0
        assert (record.cleanup, record.late) == ("clean", ())
        postgresql.execute("INSERT INTO orders VALUES (1, 'usable')")
        postgresql.commit()
        assert activity.orders() == 1


async def test_a_scope_of_the_handler_cancels_a_query_and_not_the_request(
    postgresql: psycopg.Connection, postgres_address: str
) -> None:
    async def body(ctx: Context) -> str:
        with trio.move_on_after(0.2):
            await execute(ctx, postgresql, "SELECT pg_sleep(601)")
        return "went on"

    bench = Bench(Limits(cleanup=60), pools={"database": 1})
    assert await bench.run(body) == "went on"
    with Activity(postgres_address) as activity:
        await until(lambda: activity.active("pg_sleep(601)") == 0)
    assert bench.record.state is State.COMPLETED
