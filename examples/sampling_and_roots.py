"""Asking the client's model, and for its roots: ``python examples/sampling_and_roots.py``.

The specification deprecates both. A new server asks a model provider itself, and takes paths as
arguments or from its configuration.
"""

import trio

from trio_mcp import (
    Context,
    CreateMessageRequestParams,
    CreateMessageResult,
    Root,
    Roots,
    Sample,
    Server,
    TextContent,
    connect,
)

server = Server("librarian", version="1.0.0")


@server.tool
async def summarize(topic: str, ctx: Context) -> str:
    """Have the client's model say something about what is in the client's folders."""
    answers = await ctx.ask(
        {"where": Roots(), "text": Sample(f"Say something about {topic}.", max_tokens=50)}
    )
    folders = [root.name for root in answers["where"]]
    return f"{answers['text'].model} on {folders}: {answers['text'].content.text}"


async def model(request: CreateMessageRequestParams) -> CreateMessageResult:
    """A real one shows the user what is asked, and what is sent back."""
    (message,) = request.messages
    assert isinstance(message.content, TextContent)
    print(f"the model is asked: {message.content.text} (at most {request.max_tokens} tokens)")
    return CreateMessageResult(
        role="assistant", content=TextContent("They are old, and many."), model="parrot-1"
    )


async def think_for_ever(request: CreateMessageRequestParams) -> CreateMessageResult:
    try:
        await trio.sleep_forever()
    finally:
        print("the model was stopped")
    raise AssertionError


async def main() -> None:
    roots = [Root("file:///srv/books", name="books")]
    async with connect(server, on_sample=model, on_roots=roots) as client:
        print((await client.call_tool("summarize", {"topic": "books"})).text)
    async with connect(server, on_sample=think_for_ever, on_roots=roots) as client:
        with trio.move_on_after(0.1) as patience:
            await client.call_tool("summarize", {"topic": "books"})
        print("given up:", patience.cancelled_caught)


if __name__ == "__main__":
    trio.run(main)
