"""Several servers at once, one of which is missing: ``python examples/group.py``."""

import logging
import sys
from pathlib import Path

import trio

from trio_mcp import (
    CallCancelled,
    ClientGroup,
    Context,
    MemberTarget,
    ProgressUpdate,
    Restart,
    Server,
    connect,
)

ECHO = [sys.executable, str(Path(__file__).with_name("echo_server.py"))]

shop = Server("bookshop", version="1.0.0")


@shop.tool
async def order_book(title: str, ctx: Context) -> str:
    """Order a book, which takes its time."""
    ctx.progress(0, 1, title)
    await trio.sleep(60)
    return f"Ordered {title!r}."


@shop.tool
async def stock(title: str) -> int:
    """Copies of a book."""
    return len(title)


async def order(group: ClientGroup, title: str, *, task_status: trio.TaskStatus[None]) -> None:
    def begun(_: ProgressUpdate) -> None:
        task_status.started()

    try:
        await group.call_tool("shop.order_book", {"title": title}, on_progress=begun)
    except CallCancelled as error:
        print(error)


async def main() -> None:
    members: dict[str, MemberTarget] = {
        "shop": shop,
        "echo": connect(ECHO, restart=Restart(attempts=3)),  # with options of its own
        "files": ["/nonexistent/file-server"],
    }
    async with ClientGroup(members) as group:
        for name, member in group.members.items():
            print(f"{name}: {member.state.value}", f"({member.error})" if member.error else "")

        tools = await group.tools()
        print([tool.name for tool in tools], "but not of", [*tools.failures])

        print((await group.call_tool("shop.stock", {"title": "Dune"})).text)
        print((await group.call_tool("echo.echo", {"text": "ahoy", "times": 2})).text)

        async with trio.open_nursery() as nursery:
            for title in ("Dune", "Emma"):
                await nursery.start(order, group, title)
            async with group.start_tool("echo.echo", {"text": "zzz", "times": 1000}) as call:
                await anext(call.progress)
                stopped = group.cancel_all("the user pressed stop")
                print("stopped:", sorted(f"{it.server}.{it.target}" for it in stopped))
                print("cause:", call.cause and call.cause.reason)

        await group.remove("echo")
        await group.add("echo", ECHO)
        print([*group.members])


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
    trio.run(main)
