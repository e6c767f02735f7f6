"""A client over HTTP whose third answer ends in the middle, and a wire that is slow and breaks:
``python examples/faulty_wires.py``.

The faults are where the schedules say, in each run.
"""

import trio
import trio.testing

from trio_mcp import ConnectionLost, Retry, Server, connect
from trio_mcp.testing import (
    Body,
    Break,
    Delay,
    Drop,
    Fault,
    HalfClose,
    Line,
    StubRequest,
    http_stub,
    memory_server,
)

server = Server("library", version="1.0.0")
orders: list[str] = []


@server.tool
async def order(title: str) -> str:
    """Order a book."""
    orders.append(title)
    return f"Ordered {title!r}."


@server.resource("shelf://{number}")
async def shelf(number: int) -> str:
    """What is on a shelf."""
    return f"{number} books"


async def over_http() -> None:
    """What only reads is asked for again; an order is not, since it may have been made."""

    def faults(request: StubRequest) -> list[Fault]:
        return [HalfClose(at=Body(20))] if request.number in (2, 4) else []

    async with http_stub(server, faults=faults) as stub:
        async with connect(stub.url, retry=Retry(wait_initial=0, wait_jitter=0)) as client:
            print((await client.read_resource("shelf://7")).contents[0])
            try:
                await client.call_tool("order", {"title": "Dune"})
            except ConnectionLost as error:
                print("sent:", error.sent, "made:", orders)
    print("\n".join(stub.transcript.untimed()))


async def in_memory() -> None:
    """On a clock that jumps: the answer is a minute late, and the cancellation is lost."""
    receiving = [Delay(60, at=Line(2)), Break(at=Line(3))]
    async with memory_server(server, sending=[Drop(at=Line(3))], receiving=receiving) as library:
        with trio.move_on_after(30):
            await library.client.call_tool("order", {"title": "Emma"})
        try:
            await library.client.call_tool("order", {"title": "Ulysses"})
        except ConnectionLost:
            print("lost, sent:", [entry.text for entry in library.transcript.entries if entry.sent])
    for one in library.wire.happened:
        print(f"{one.time:g} s, byte {one.byte}: {type(one.fault).__name__}")


if __name__ == "__main__":
    trio.run(over_http)
    trio.run(in_memory, clock=trio.testing.MockClock(autojump_threshold=0))
