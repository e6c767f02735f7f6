"""Lists page by page, and how long they are fresh: ``python examples/lists.py``.

A cursor is sealed with the server's secret, so it outlives the process: here a second server goes
on with the page that the first one was asked for.
"""

import trio

from trio_mcp import CacheHint, Limits, Server, ServerError, connect

SECRET = "take 32 random bytes, and keep them"


def make_server(secret: str) -> Server:
    server = Server(
        "zoo",
        version="1.0.0",
        limits=Limits(page_size=3),
        secret=secret,
        cache=CacheHint(ttl=60, scope="public"),
    )
    for name in ("ant", "bee", "cat", "dog", "eel", "fox", "gnu"):

        async def feed() -> str:
            return "fed"

        server.add_tool(feed, name=f"feed_{name}")
    return server


async def main() -> None:
    before = make_server(SECRET)
    async with connect(before) as client:
        print([tool.name async for tool in client.tools()])  # follows all pages
        first = await client.tools_page()
        print([tool.name for tool in first.tools], f"fresh for {first.ttl_ms / 1000:g} s")
        print("may be shared:", first.cache_scope == "public")
    after = make_server(SECRET)  # a restart, or another process that serves the same
    after.remove_tool("feed_cat")
    after.remove_tool("feed_dog")
    async with connect(after) as client:
        second = await client.tools_page(first.next_cursor)  # goes on behind the cat
        print([tool.name for tool in second.tools], "and that is all:", second.next_cursor is None)
    async with connect(make_server("another secret")) as client:
        try:
            await client.tools_page(first.next_cursor)
        except ServerError as error:
            print(error.code, error.message)


if __name__ == "__main__":
    trio.run(main)
