"""Whatever a client has asked for, it gives up in one way: ``python examples/cancellation.py``.

A scope around the request ends; the server is told; what worked for the request stops.
"""

from collections.abc import Awaitable, Callable

import trio

from trio_mcp import Client, Context, Elicitation, ElicitResult, Server, connect

server = Server("slow", version="1.0.0")


async def work(what: str, ctx: Context) -> str:
    try:
        await trio.sleep_forever()
    finally:
        with ctx.cleanup(1):  # shielded, for at most a second
            await trio.sleep(0.01)
            assert ctx.cause is not None
            print(f"server: {what} stopped ({ctx.cause.source.value})")
    raise AssertionError


@server.tool
async def tool(ctx: Context) -> str:
    return await work("tool", ctx)


@server.resource("slow://resource")
async def resource(ctx: Context) -> str:
    return await work("resource", ctx)


@server.prompt
async def prompt(word: str, ctx: Context) -> str:
    return await work("prompt", ctx)


@server.completion(prompt="prompt", argument="word")
async def words(typed: str, ctx: Context) -> list[str]:
    return [await work("completion", ctx)]


@server.tool
async def question(ctx: Context) -> str:
    answer = await ctx.elicit("sure", "Are you sure?", {"type": "object", "properties": {}})
    return answer.action


async def user(question: Elicitation) -> ElicitResult:
    """Does not answer. Runs in the task that waits for the call, and ends with it."""
    try:
        await trio.sleep_forever()
    finally:
        print("client: no longer asks", repr(question.message))
    raise AssertionError


async def hear(client: Client) -> None:
    async with client.listen(tools=True, resources=["slow://resource"]) as changes:
        async for change in changes:
            print(change)


async def main() -> None:
    requests: dict[str, Callable[[Client], Awaitable[object]]] = {
        "tool": lambda client: client.call_tool("tool"),
        "resource": lambda client: client.read_resource("slow://resource"),
        "prompt": lambda client: client.get_prompt("prompt", {"word": "hm"}),
        "completion": lambda client: client.complete(prompt="prompt", argument="word", value="h"),
        "question": lambda client: client.call_tool("question"),
        "subscription": hear,
    }
    async with connect(server, on_elicit=user) as client:
        for what, request in requests.items():
            with trio.move_on_after(0.3) as patience:
                await request(client)
            print(f"client: gave the {what} up: {patience.cancelled_caught}")
            await trio.sleep(0.1)
    for record in list(server.journal)[1:]:
        print(record.method, record.target, record.state.name, record.cleanup or "")
    print("left:", server.scopes().children)


if __name__ == "__main__":
    trio.run(main)
