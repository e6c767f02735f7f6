"""A Ctrl-C that strikes in a task of the client comes out of the block, and nothing is waited for.

It strikes where a log message is read: in the task that reads, which is ours.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing
from tests.peers.scripted import scripted
from tests.test_http_client import Post, serving
from tests.test_http_client_streams import log

from trio_mcp import ConnectionLost, Context, Server, connect
from trio_mcp.runtime.exchange import Exchange
from trio_mcp.transports.serving import ServerConnection

LOG = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'

# The HTTP library's generators are left in their middle, where nobody can close them.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()


def strike(_: object) -> None:
    raise KeyboardInterrupt


async def test_over_http_it_wins_over_the_call_that_is_lost_with_it() -> None:
    async def script(post: Post) -> None:
        await post.begin_events()
        await post.send_chunk(log("here"))
        await post.closed_by_client()

    async with serving(script) as server:
        with pytest.raises(KeyboardInterrupt):
            async with connect(server.address, on_log=strike) as client:
                await client.call_tool("x")


async def test_on_a_channel_nobody_waits_for_a_writer_that_is_gone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    def answer(request: dict[str, Any]) -> Any:
        return LOG if request["method"] == "tools/call" else None

    began_at = trio.current_time()
    try:
        async with scripted(answer, on_log=strike) as (client, _):
            await client.call_tool("x")
    except BaseExceptionGroup as group:  # the nursery of the scripted server
        (raised,) = group.exceptions
    assert type(raised) is KeyboardInterrupt
    assert trio.current_time() == began_at


@pytest.mark.parametrize("over_http", [True, False])
async def test_what_is_asked_afterwards_is_lost_at_once(over_http: bool) -> None:
    async def script(post: Post) -> None:
        await post.events(log("here"))

    told: list[BaseException] = []

    async def ask(client: Any) -> None:
        try:
            await client.call_tool("x")
        finally:
            with trio.CancelScope(shield=True):
                try:
                    await client.call_tool("y")
                except BaseException as error:  # which the Ctrl-C would hide
                    told.append(error)

    def answer(request: dict[str, Any]) -> Any:
        return LOG if request["method"] == "tools/call" else None

    with pytest.RaisesGroup(KeyboardInterrupt, allow_unwrapped=True, flatten_subgroups=True):
        if over_http:
            async with serving(script) as server, connect(server.address, on_log=strike) as client:
                await ask(client)
        else:
            async with scripted(answer, on_log=strike) as (client, _):
                await ask(client)
    assert [type(error) for error in told] == [ConnectionLost]


async def test_it_strikes_in_what_the_application_has_written_and_not_in_the_runtime(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between two steps of an exchange or a connection it would leave a nursery open, which Trio
    does not survive. There the main task gets it, at its next checkpoint."""
    protected: dict[str, bool] = {}

    def note(where: str) -> None:
        protected[where] = trio.lowlevel.currently_ki_protected()

    server = Server("shop", version="1")

    @server.tool
    async def order(ctx: Context) -> str:
        note("handler")
        ctx.on_exit(note, "exit callback")
        return "done"

    def noting(where: str, original: Any) -> Any:
        def called(self: Any, *args: Any) -> Any:
            note(where)
            return original(self, *args)

        return called

    # What these call in their own frames.
    monkeypatch.setattr(Exchange, "_leave", noting("exchange", Exchange._leave))
    for name, method in (("connection", "_until_idle"), ("drain", "_until_stopped")):
        original = getattr(ServerConnection, method)
        monkeypatch.setattr(ServerConnection, method, noting(name, original))
    async with connect(server) as client:
        assert (await client.call_tool("order")).text == "done"
    application = {"handler": False, "exit callback": False}
    assert protected == {**application, "exchange": True, "connection": True, "drain": True}
