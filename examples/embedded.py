"""A server inside an application, over TCP, and its drain: ``python examples/embedded.py``."""

from functools import partial

import trio

from trio_mcp import Context, Limits, Server, ServerError, connect

server = Server("teashop", version="1.0.0", limits=Limits(drain=0.5))


@server.tool
async def brew(seconds: float, ctx: Context) -> dict[str, float]:
    """Make tea."""
    try:
        await trio.sleep(seconds)
        return {"seconds": seconds}
    finally:
        with ctx.cleanup(1):  # runs to its end, however the request ends
            await trio.sleep(0.05)


async def print_records() -> None:
    with server.journal.subscribe() as records:
        async for record in records:
            if record.target is not None:
                print("journal:", record.target, record.state.name, record.cause)


async def guest(port: int, seconds: float) -> None:
    async with connect(await trio.open_tcp_stream("127.0.0.1", port)) as client:
        try:
            result = await client.call_tool("brew", {"seconds": seconds})
            print("guest: tea", result.structured_content)
        except ServerError as error:
            print("guest: no tea:", error)


async def main() -> None:
    async with trio.open_nursery() as app:
        app.start_soon(print_records)
        async with trio.open_nursery() as guests:
            async with trio.open_nursery() as shop:
                serve = partial(trio.serve_tcp, server.serve_stream, 0, host="127.0.0.1")
                (listener,) = await shop.start(serve)
                port = listener.socket.getsockname()[1]
                for seconds in (0.1, 1.2, 60):
                    guests.start_soon(guest, port, seconds)
                await trio.sleep(1)
                print("app: closing,", len(server.scopes().children), "connections open")
                shop.cancel_scope.cancel("closing time")  # drains: 0.5 s, then SHUTDOWN
            print("app: closed,", len(server.scopes().children), "connections open")
        app.cancel_scope.cancel("all have left")


if __name__ == "__main__":
    trio.run(main)
