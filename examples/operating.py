"""An operator looks, cancels, and drains a server from within: ``python examples/operating.py``."""

import trio

from trio_mcp import Context, Limits, Server, ServerError, connect

server = Server("archive", version="1.0.0", timeout=60, limits=Limits(drain=0.5))
rooms: list[str] = []


def free(room: str) -> None:
    rooms.remove(room)
    print("archive:", room, "is free again")


@server.tool
async def scan(room: str, seconds: float, ctx: Context) -> str:
    """Scan the papers of a room."""
    rooms.append(room)
    ctx.on_exit(free, room)  # however this ends, and before anybody is told
    await trio.sleep(seconds)
    return f"{room} is scanned"


async def reader(room: str, seconds: float) -> None:
    async with connect(server, name=room) as client:
        try:
            result = await client.call_tool("scan", {"room": room, "seconds": seconds})
            print("reader:", result.text)
        except ServerError as error:
            print("reader:", error)


async def main() -> None:
    print("state:", server.state)
    async with trio.open_nursery() as readers:
        for room, seconds in (("attic", 30), ("cellar", 0.6), ("vault", 30)):
            readers.start_soon(reader, room, seconds)
        await trio.sleep(0.3)
        print("state:", server.state)
        for one in server.inflight():
            print("in flight:", one.target, one.client, one.phase, f"{one.age:.1f} s")
            if one.client == "attic 0":
                server.cancel(one.key, "there is no light")
        await trio.sleep(0.1)
        report = await server.drain()  # 0.5 s for those in flight, then SHUTDOWN
        print(report.describe())
    print("state:", server.state, rooms)


if __name__ == "__main__":
    trio.run(main)
