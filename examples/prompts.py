"""A client that fills in a prompt, with completions while it types: ``python examples/prompts.py``.

It launches ``prompts_server.py``. Each key stroke cancels the completion of the one before.
"""

import sys
from pathlib import Path

import trio

from trio_mcp import Client, TextContent, connect

SERVER = [sys.executable, str(Path(__file__).with_name("prompts_server.py"))]


async def propose(client: Client, typed: str) -> None:
    completion = await client.complete(
        prompt="review", argument="title", value=typed, arguments={"genre": "crime"}
    )
    print(f"{typed!r}:", completion.values, "of", completion.total)


async def type_slowly(client: Client, keys: str) -> None:
    """Asks for proposals with each key, and only for the newest."""
    async with trio.open_nursery() as nursery:
        asking = trio.CancelScope()
        for end in range(1, len(keys) + 1):
            asking.cancel("the next key")
            asking = trio.CancelScope()
            nursery.start_soon(in_scope, asking, client, keys[:end])
            await trio.sleep(0.03)  # the server takes 0.1 s: only the last one is shown


async def in_scope(scope: trio.CancelScope, client: Client, typed: str) -> None:
    with scope:
        await propose(client, typed)


async def main() -> None:
    async with connect(SERVER) as client:
        async for prompt in client.prompts():
            arguments = [
                argument.name + ("" if argument.required else "?")
                for argument in prompt.arguments or ()
            ]
            print(prompt.name, arguments, "-", prompt.description)
        await type_slowly(client, "the n")
        result = await client.get_prompt("review", {"title": "The Nine Tailors", "genre": "crime"})
        for message in result.messages:
            assert isinstance(message.content, TextContent)
            print(f"{message.role}: {message.content.text}")


if __name__ == "__main__":
    trio.run(main)
