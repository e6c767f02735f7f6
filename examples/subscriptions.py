"""Hearing of changes, also of those that another server made: ``python examples/subscriptions.py``.

Two servers share a bus, as two processes behind a load balancer would share one over a broker.
"""

import trio

from trio_mcp import Client, LocalBus, Server, TextResourceContents, connect

bus = LocalBus()
left = Server("bookshop, left", version="1.0.0", bus=bus)
right = Server("bookshop, right", version="1.0.0", bus=bus)

stock = {"Dune": 3}


async def read_stock(title: str) -> str:
    """Copies of a book."""
    return f"{stock[title]} copies"


for server in (left, right):
    server.resource("stock://{title}")(read_stock)


@right.tool
async def sell(title: str) -> str:
    """Sell a book."""
    stock[title] -= 1
    right.notify_resource_updated(f"stock://{title}")
    return "sold"


async def look(client: Client, uri: str) -> None:
    (contents,) = (await client.read_resource(uri)).contents
    assert isinstance(contents, TextResourceContents)
    print(f"left: {uri} is {contents.text}")


async def mirror(
    client: Client, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """A change says: look again. So look first, and then whenever there is one."""
    async with client.listen(resources_list=True, resources=["stock://Dune"]) as changes:
        print("agreed:", changes.agreed.resource_subscriptions)
        await look(client, "stock://Dune")
        task_status.started()
        async for change in changes:
            if change.kind == "resources":
                print("left: resources came or went")
            elif change.uri is not None:
                await look(client, change.uri)


async def main() -> None:
    async with connect(left) as listener, connect(right) as seller:
        async with trio.open_nursery() as nursery:
            await nursery.start(mirror, listener)
            await seller.call_tool("sell", {"title": "Dune"})
            await trio.sleep(0.1)
            right.add_resource("shop://hours", "9 to 17")
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel("closing time")  # the server is told
    ended = list(left.journal)[-1]
    print(ended.method, ended.target, ended.state.name, "after", ended.changes_sent, "changes")


if __name__ == "__main__":
    trio.run(main)
