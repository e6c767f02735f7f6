"""Which functions are awaited, and which run in a thread."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

from trio_mcp import Server, ServerError, connect


def counted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain wrapper, as many libraries have them."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


async def whereabouts(x: int) -> list[int]:
    await trio.lowlevel.checkpoint()
    return [x, threading.get_ident()]


@pytest.mark.parametrize(
    "make",
    [
        counted,
        lambda function: counted(counted(function)),
        lambda function: counted(functools.partial(function)),
        lambda function: functools.partial(counted(function)),
    ],
    ids=["wrapped", "twice", "partial inside", "partial outside"],
)
async def test_a_plain_wrapper_around_an_async_def_is_awaited_in_the_loop(
    make: Callable[[Any], Any],
) -> None:
    server = Server("s", version="1")
    server.add_tool(make(whereabouts), name="where")
    async with connect(server) as client:
        result = await client.call_tool("where", {"x": 1})
    assert result.structured_content == [1, threading.get_ident()]


async def test_a_wrapper_that_knows_the_answer_need_not_ask() -> None:
    server = Server("s", version="1")

    @server.tool
    @functools.wraps(whereabouts)
    def cached(x: int) -> list[int]:
        return [x]

    async with connect(server) as client:
        assert (await client.call_tool("whereabouts", {"x": 2})).structured_content == [2]


async def test_a_plain_wrapper_around_a_plain_function_runs_in_a_thread() -> None:
    server = Server("s", version="1")

    @server.tool
    @counted
    def where() -> int:
        return threading.get_ident()

    async with connect(server) as client:
        assert (await client.call_tool("where")).structured_content != threading.get_ident()


async def test_what_nobody_awaits_is_said_in_words(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s", version="1")

    @server.tool
    def plain() -> Any:
        return whereabouts(1)

    @server.tool
    async def forgetful() -> Any:
        return trio.sleep(1)  # noqa: ASYNC105

    async with connect(server) as client:
        for name in ("plain", "forgetful"):
            with pytest.raises(ServerError, match="Internal error"):
                await client.call_tool(name)
    assert "plain() returned a coroutine: make it async def" in caplog.text
    assert "forgetful() returned a coroutine: was an await forgotten?" in caplog.text
