"""Work that stops with its request: a database, a command, a computation.

``python examples/offload.py``. The computation needs ``trio-parallel``, the extra ``cpu``.
"""

import sqlite3

import trio

from trio_mcp import Context, Server, connect

server = Server("offload", version="1.0.0", pools={"database": 2})


@server.tool
async def write_rows(ctx: Context, rows: int) -> str:
    """Write rows in one transaction."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("CREATE TABLE numbers (number INTEGER)")

    def write() -> None:
        with database:  # commits, or rolls back
            for number in range(rows):
                ctx.progress(number + 1, rows)
                database.execute("INSERT INTO numbers VALUES (?)", (number,))
            database.execute(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
                "SELECT count(*) FROM n"
            ).fetchall()  # takes for ever

    try:
        await ctx.run_sync(write, interrupt=database.interrupt, pool="database")
    finally:
        (count,) = database.execute("SELECT count(*) FROM numbers").fetchone()
        print(f"server: {count} rows are left")
        database.close()
    return "written"


@server.tool
async def command(ctx: Context) -> str:
    """A shell that ignores SIGTERM, and a child of it."""
    script = "trap '' TERM; sleep 60 & echo started; wait; sleep 60"
    result = await ctx.run_process(
        ["sh", "-c", script],
        on_stdout=lambda data: print("server: the command says", data.decode().strip()),
        grace=0.2,
    )
    return result.stdout.decode()


@server.tool
async def compute(ctx: Context, number: int) -> int:
    """In a process of its own."""
    return await ctx.run_in_process(sum_up_to, number)


def sum_up_to(number: int) -> int:
    total = 0
    for n in range(number + 1):
        total += n
    return total


async def main() -> None:
    async with connect(server) as client:
        print((await client.call_tool("compute", {"number": 1000})).content[0])
        calls = {
            "write_rows": {"rows": 1000},
            "command": {},
            "compute": {"number": 10**12},
        }
        with server.journal.subscribe() as records:
            for tool, arguments in calls.items():
                with trio.move_on_after(0.5):
                    await client.call_tool(tool, arguments)
                async for record in records:
                    if record.target == tool:
                        break
                work = [work.describe() for work in record.work]
                print("server:", tool, record.state.name, "clean-up", record.cleanup, *work)


if __name__ == "__main__":
    trio.run(main)
