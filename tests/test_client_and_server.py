"""Our client and our server, with every feature, over memory, a pipe, HTTP and a WebSocket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import pytest
import trio

from trio_mcp import (
    CallCancelled,
    Change,
    Client,
    Context,
    CreateMessageResult,
    Elicit,
    Elicitation,
    ElicitResult,
    ElicitUrl,
    LogMessage,
    Root,
    Roots,
    Sample,
    Server,
    ServerError,
    State,
    TextContent,
    connect,
)

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
Shop: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]


def build() -> Server:
    server = Server("bookshop", version="1")
    ask: Elicit[Any] = Elicit("Who?", NAME)

    @server.tool
    async def order(title: str, ctx: Context) -> str:
        """Order: two rounds."""
        ctx.log("info", title)
        first = await ctx.ask({"who": ask, "pay": ElicitUrl("Pay", "https://pay.example/1")})
        second = await ctx.ask({"model": Sample("Say", 5), "roots": Roots()})
        answers = [first["who"].content["name"], first["pay"].action]
        return f"{title}: {answers} {second['model'].content.text} {second['roots'][0].uri}"

    @server.prompt
    async def recommend(genre: str, ctx: Context) -> str:
        """Recommend."""
        answer = await ctx.elicit("who", "Who?", NAME)
        return f"{genre} for {answer.content and answer.content['name']}"

    @server.completion(prompt="recommend", argument="genre")
    async def genres(value: str) -> list[str]:
        return [genre for genre in ("science", "poetry") if genre.startswith(value)]

    @server.resource("shop://{title}")
    async def stock(title: str, ctx: Context) -> str:
        """Stock."""
        answer = await ctx.elicit("who", "Who?", NAME)
        return f"{title}, {answer.action}"

    return server


@asynccontextmanager
async def in_memory(server: Server, **options: Any) -> AsyncGenerator[Client, None]:
    async with connect(server, **options) as client:
        yield client


@asynccontextmanager
async def over_network(kind: str, server: Server, **options: Any) -> AsyncGenerator[Client, None]:
    async with trio.open_nursery() as nursery:
        serve = server.serve_http if kind == "http" else server.serve_websocket
        port = await nursery.start(serve, "127.0.0.1", 0)
        scheme = "http" if kind == "http" else "ws"
        async with connect(f"{scheme}://127.0.0.1:{port}/mcp", **options) as client:
            yield client
        nursery.cancel_scope.cancel()


WIRES = {
    "memory": in_memory,
    "http": partial(over_network, "http"),
    "websocket": partial(over_network, "websocket"),
}


@pytest.fixture(params=WIRES)
def shop(request: pytest.FixtureRequest) -> Any:
    return WIRES[request.param]


def answer(question: Elicitation) -> ElicitResult:
    return question.accept({"name": "Ada"}) if question.mode == "form" else question.decline()


def ended(server: Server) -> list[State]:
    """How the subscriptions of this server have ended."""
    return [record.state for record in server.journal if record.method == "subscriptions/listen"]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that tells nobody when it happens."""
    with trio.fail_after(5):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_everything_is_asked_and_answered(shop: Shop) -> None:
    server = build()
    logged: list[LogMessage] = []
    async with shop(
        server,
        on_elicit=answer,
        elicit_modes=("form", "url"),
        on_sample=lambda _: CreateMessageResult("assistant", TextContent("yes"), "m"),
        on_roots=[Root("file:///books")],
        on_log=logged.append,
    ) as client:
        with trio.fail_after(10):
            result = await client.call_tool("order", {"title": "Dune"})
            assert result.text == "Dune: ['Ada', 'decline'] yes file:///books"
            assert {message.data for message in logged} == {"Dune"}
            prompt = await client.get_prompt("recommend", {"genre": "poetry"})
            assert isinstance(prompt.messages[0].content, TextContent)
            assert prompt.messages[0].content.text == "poetry for Ada"
            stock = await client.read_resource("shop://Dune")
            assert stock.contents[0].text == "Dune, accept"  # type: ignore[union-attr]
            assert [template.name async for template in client.templates()] == ["stock"]
            assert [prompt.name async for prompt in client.prompts()] == ["recommend"]
            assert [resource async for resource in client.resources()] == []
            found = await client.complete(prompt="recommend", argument="genre", value="sc")
            assert found.values == ["science"]
            with pytest.raises(ServerError) as missing:
                await client.read_resource("other://x")
            assert missing.value.code == -32602
        assert client._connection.violations == 0


async def test_a_user_who_takes_their_time_can_be_cancelled(shop: Shop) -> None:
    async def on_elicit(question: Elicitation) -> ElicitResult:
        if question.key == "who":
            assert call.state is State.RUNNING
            call.cancel("no more")
        await trio.sleep_forever()
        raise AssertionError

    server = build()
    async with shop(server, on_elicit=on_elicit, elicit_modes=("form", "url")) as client:
        with trio.fail_after(10):
            async with client.start_tool("order", {"title": "Dune"}) as call:
                with pytest.raises(CallCancelled, match="no more"):
                    await call.result()
            assert (await call.ended()).state is State.CANCELLED
            await client.discover()
        orders = [record.state for record in server.journal if record.method == "tools/call"]
        assert orders == [State.COMPLETED]  # the first round; there was no second


async def test_a_server_that_drains_ends_its_subscriptions_in_order() -> None:
    """Over HTTP the address is the client's only tie, so the rest of the client goes on."""
    server = build()
    async with trio.open_nursery() as nursery:
        serving = trio.CancelScope()

        async def serve(task_status: trio.TaskStatus[int]) -> None:
            with serving:
                await server.serve_http("127.0.0.1", 0, task_status=task_status)

        port = await nursery.start(serve)
        async with connect(f"http://127.0.0.1:{port}/mcp") as client:
            with trio.fail_after(10):
                async with client.listen(tools=True) as changes:
                    serving.cancel()
                    assert [change async for change in changes] == []
            assert client._connection.violations == 0


async def test_changes_are_heard(shop: Shop) -> None:
    server = build()
    async with shop(server) as client:
        with trio.fail_after(10):
            async with client.listen(tools=True, resources=["shop://Dune"]) as changes:
                assert changes.agreed.tools_list_changed is True
                assert changes.agreed.prompts_list_changed is None
                server.notify_resource_updated("shop://Dune")
                assert await anext(changes) == Change("resource", "shop://Dune")
                server.remove_tool("order")
                assert await anext(changes) == Change("tools")
                await client.discover()
            await until(lambda: ended(server) == [State.CANCELLED])
        assert client._connection.violations == 0
