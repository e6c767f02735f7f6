"""One oven, a crowd and a guest: who waits, who is refused, whose turn it is."""

import trio

from trio_mcp import Client, Overloaded, Server, connect

server = Server("bakery", version="1.0.0")


@server.tool(limit=1, queue=4)
async def bake(name: str) -> str:
    """The oven takes one bread at a time, and four orders may wait for it."""
    print("bakes for", name)
    await trio.sleep(0.3)
    return f"bread for {name}"


async def order(client: Client, name: str) -> None:
    try:
        await client.call_tool("bake", {"name": name})
    except Overloaded as error:  # it has not run: to ask again is safe
        print(f"{name} is refused, and may ask again in {error.retry_after:g} s")


async def main() -> None:
    async with connect(server) as crowd, connect(server) as guest:
        async with trio.open_nursery() as nursery:
            for number in range(1, 7):
                nursery.start_soon(order, crowd, f"crowd {number}")
                await trio.sleep(0.01)  # one after the other
            print("the guest comes")
            nursery.start_soon(order, guest, "guest")
            await trio.sleep(0.01)
            states = [scope.state for scope in server.scopes().walk()]
            print(states.count("running"), "running,", states.count("queued"), "queued")
    for record in server.journal:
        if record.target == "bake" and record.error is None:
            print(record.describe().partition(" after ")[0].partition("bake: ")[2])


if __name__ == "__main__":
    trio.run(main)
