"""A server with one tool: ``python examples/echo_server.py`` serves it on stdin and stdout."""

import trio

from trio_mcp import Context, Server

server = Server("echo", version="1.0.0")


@server.tool
async def echo(text: str, times: int, ctx: Context) -> str:
    """Say it back, again and again."""
    for said in range(times):
        ctx.progress(said, times, text)
        await trio.sleep(0.1)  # a cancelled call ends here
    return " ".join([text] * times)


if __name__ == "__main__":
    trio.run(server.serve_stdio)
