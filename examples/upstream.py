"""A tool that asks another HTTP server, and hangs up: ``python examples/upstream.py``."""

import httpx2
import trio

from trio_mcp import Server, connect

server = Server("weather", version="1.0.0")


@server.tool
async def forecast(url: str) -> str:
    """What another server says."""
    async with httpx2.AsyncClient(timeout=None) as http:  # the request's own deadline holds
        return (await http.get(url)).text


async def slow_weather(stream: trio.SocketStream) -> None:
    """An HTTP server that thinks for a long time."""
    await stream.receive_some()
    print("upstream: asked")
    await stream.receive_some()
    print("upstream: the other side hung up")


async def main() -> None:
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, slow_weather, [listener])
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
        async with connect(server) as client:
            with trio.move_on_after(0.3):
                await client.call_tool("forecast", {"url": url})
            await trio.sleep(0.1)
        print("server:", list(server.journal)[-1].state.name)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
