"""A client that finds out what there is to read, and reads it: ``python examples/resources.py``.

It launches ``resources_server.py``. A read is cancelled like any other request: by its scope.
"""

import sys
from pathlib import Path

import trio

from trio_mcp import Client, ServerError, TextResourceContents, connect

SERVER = [sys.executable, str(Path(__file__).with_name("resources_server.py"))]


async def show(client: Client, uri: str) -> None:
    try:
        result = await client.read_resource(uri)
    except ServerError as error:
        print(f"{uri}: {error.message} ({error.code})")
        return
    for contents in result.contents:
        text = contents.text if isinstance(contents, TextResourceContents) else "(binary)"
        print(f"{uri}: {contents.mime_type}, fresh for {result.ttl_ms / 1000:g} s: {text}")


async def main() -> None:
    async with connect(SERVER) as client:
        async for resource in client.resources():
            if not resource.uri.startswith("examples:"):
                print("resource", resource.uri, "-", resource.title or resource.description)
        async for template in client.templates():
            print("template", template.uri_template, "-", template.description)
        for uri in ("shop://hours", "stock://Dune?at_least=2", "cover://Emma", "stock://Ulysses"):
            await show(client, uri)
        with trio.move_on_after(0.3) as patience:
            await show(client, "report://year")
        print("gave the report up:", patience.cancelled_caught)


if __name__ == "__main__":
    trio.run(main)
