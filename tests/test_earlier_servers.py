"""Our client with the reference servers of the protocol's authors, which are of earlier revisions.

Node.js runs them, and npm gets them. What of each is seen, and over which wire, has a table in
`docs/earlier-revisions.md`, as for the servers of `test_sdk_servers.py`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio
import trio.lowlevel
from tests.peers.raw import until
from tests.peers.reference_servers import ReferenceServers

from trio_mcp import (
    CallCancelled,
    CallTimeout,
    Change,
    Client,
    CreateMessageRequestParams,
    CreateMessageResult,
    Elicitation,
    ElicitResult,
    LogMessage,
    ProgressUpdate,
    Root,
    ServerError,
    State,
    TextContent,
    connect,
)

Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(params=["stdio", "http"])
def everything(request: pytest.FixtureRequest, servers: ReferenceServers) -> Connect:
    """How to connect to the ``everything`` server."""

    @asynccontextmanager
    async def connected(**options: Any) -> AsyncGenerator[Client, None]:
        with trio.fail_after(60):
            if request.param == "stdio":
                async with connect(servers.command("everything"), **options) as client:
                    yield client
            else:
                async with (
                    servers.everything() as address,
                    connect(address, **options) as client,
                ):
                    yield client

    return connected


# everything ---------------------------------------------------------------------------------------


async def test_everything_is_listed_called_read_and_completed(everything: Connect) -> None:
    async with everything() as client:
        assert client.protocol_version == "2025-11-25"
        assert client.server_info is not None
        assert client.server_info.name == "mcp-servers/everything"
        assert client.discovered.instructions is not None
        tools = {tool.name: tool async for tool in client.tools()}
        assert "message" in tools["echo"].input_schema["properties"]
        assert (await client.call_tool("echo", {"message": "é\u2028“"})).text == "Echo: é\u2028“"
        assert "5" in (await client.call_tool("get-sum", {"a": 2, "b": 3})).text
        wrong = await client.call_tool("get-sum", {"a": "x"})
        assert wrong.is_error
        structured = await client.call_tool("get-structured-content", {"location": "Chicago"})
        assert structured.structured_content["conditions"]
        image = await client.call_tool("get-tiny-image")
        assert [block.type for block in image.content] == ["text", "image", "text"]

        uris = [resource.uri async for resource in client.resources()]
        assert (await client.read_resource(uris[0])).contents
        templates = [template.uri_template async for template in client.templates()]
        assert "demo://resource/dynamic/text/{resourceId}" in templates
        (text,) = (await client.read_resource("demo://resource/dynamic/text/1")).contents
        assert text.uri == "demo://resource/dynamic/text/1"
        with pytest.raises(ServerError) as missing:
            await client.read_resource("demo://nowhere")
        assert missing.value.code in (-32002, -32602)

        prompts = {prompt.name async for prompt in client.prompts()}
        assert {"simple-prompt", "args-prompt"} <= prompts
        got = await client.get_prompt("args-prompt", {"city": "Bonn"})
        assert "Bonn" in got.messages[0].content.text  # type: ignore[union-attr]
        completed = await client.complete(
            prompt="completable-prompt", argument="department", value="E"
        )
        assert completed.values == ["Engineering"]


async def test_everything_reports_progress_and_is_cancelled(everything: Connect) -> None:
    seen: list[float] = []
    arguments = {"duration": 1, "steps": 4}
    async with everything() as client:
        done = await client.call_tool(
            "trigger-long-running-operation",
            arguments,
            on_progress=lambda update: seen.append(update.progress),
        )
        assert "completed" in done.text
        assert seen == [1, 2, 3, 4]

        long = {"duration": 60, "steps": 60}
        async with client.start_tool("trigger-long-running-operation", long) as call:
            await anext(aiter(call.progress))
            call.cancel("enough")
            with pytest.raises(CallCancelled):
                await call.result()
            record = await call.ended()
        assert record.state is State.CANCELLED
        slow = {"duration": 60, "steps": 1}
        with pytest.raises(CallTimeout):
            await client.call_tool("trigger-long-running-operation", slow, timeout=0.3)
        assert (await client.call_tool("echo", {"message": "x"})).text == "Echo: x"
        assert client._connection.violations == 0


async def test_everything_asks_the_user_the_model_and_for_roots(everything: Connect) -> None:
    asked: list[str] = []

    async def elicit(question: Elicitation) -> ElicitResult:
        asked.append(question.message)
        await trio.lowlevel.checkpoint()
        return question.accept({"name": "Ada", "check": True})

    def sample(params: CreateMessageRequestParams) -> CreateMessageResult:
        asked.append("model")
        return CreateMessageResult("assistant", TextContent("four words of it"), "a-model")

    roots = [Root("file:///somewhere", "here")]
    async with everything(on_elicit=elicit, on_sample=sample, on_roots=roots) as client:
        tools = {tool.name async for tool in client.tools()}
        assert {"trigger-elicitation-request", "trigger-sampling-request"} <= tools
        elicited = await client.call_tool("trigger-elicitation-request")
        assert "Ada" in elicited.text
        sampled = await client.call_tool("trigger-sampling-request", {"prompt": "count"})
        assert "four words of it" in sampled.text
        assert "file:///somewhere" in (await client.call_tool("get-roots-list")).text
    assert len(asked) == 2


async def test_everything_tells_of_updates_and_logs(everything: Connect) -> None:
    heard: list[LogMessage] = []
    async with everything(on_log=heard.append, log_level="debug") as client:
        uri = (await client.resources_page()).resources[0].uri
        async with client.listen(tools=True, resources=[uri]) as changes:
            assert changes.agreed.resource_subscriptions == [uri]
            await client.call_tool("toggle-subscriber-updates")
            assert (await anext(changes)).uri == uri
        await until(lambda: heard, timeout=10)
        assert client._connection.violations == 0


async def test_many_calls_of_everything_at_once(everything: Connect) -> None:
    texts: list[str] = []

    async def call(number: int) -> None:
        texts.append((await client.call_tool("echo", {"message": str(number)})).text)

    async with everything() as client, trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(call, number)
    assert sorted(texts) == sorted(f"Echo: {number}" for number in range(100))


# filesystem, memory -------------------------------------------------------------------------------


async def test_the_filesystem_server_gets_its_directories_from_our_roots(
    servers: ReferenceServers, tmp_path: Path
) -> None:
    folder = tmp_path
    (folder / "note.txt").write_text("hello")
    roots = [Root(folder.as_uri())]
    with trio.fail_after(30):
        async with connect(servers.command("filesystem"), on_roots=roots) as client:
            assert client.protocol_version == "2025-11-25"

            async def allowed() -> bool:
                return str(folder) in (await client.call_tool("list_allowed_directories")).text

            while not await allowed():  # noqa: ASYNC110
                await trio.sleep(0.05)
            path = str(folder / "note.txt")
            assert (await client.call_tool("read_text_file", {"path": path})).text == "hello"
            written = {"path": str(folder / "new.txt"), "content": "x"}
            assert not (await client.call_tool("write_file", written)).is_error
            await what_a_quick_server_can(client, "list_allowed_directories")
            assert (await client.call_tool("read_text_file", {"path": "/etc/passwd"})).is_error
    assert (folder / "new.txt").read_text() == "x"


async def test_the_memory_server_remembers(servers: ReferenceServers, tmp_path: Path) -> None:
    env = {**os.environ, "MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    with trio.fail_after(30):
        async with connect(servers.command("memory"), env=env) as client:
            await client.call_tool("create_entities", {"entities": [entity]})
        async with connect(servers.command("memory"), env=env) as client:
            found = await client.call_tool("search_nodes", {"query": "program"})
            graph = "memory://knowledge-graph"
            async with client.listen(resources=[graph]) as changes:
                other = {**entity, "name": "Charles"}
                await client.call_tool("create_entities", {"entities": [other]})
                assert await anext(changes) == Change("resource", graph)
            await what_a_quick_server_can(client, "read_graph")
    assert found.structured_content["entities"] == [entity]


async def what_a_quick_server_can(client: Client, quick: str) -> None:
    """Both serve standard streams only. Their tools report no progress and end at once, so that a
    cancellation comes too late to be seen; they declare a list of tools that may change, which it
    never does."""
    assert quick in {tool.name async for tool in client.tools()}
    updates: list[ProgressUpdate] = []
    assert not (await client.call_tool(quick, on_progress=updates.append)).is_error
    assert updates == []
    async with client.start_tool(quick) as call:
        await until(lambda: all(status.sent for status in client.calls()))
        call.cancel("enough")
        await call.ended()
    async with client.listen(tools=True, prompts=True) as changes:
        assert changes.agreed.tools_list_changed
        assert changes.agreed.prompts_list_changed is None
    assert not (await client.call_tool(quick)).is_error
    assert client._connection.violations == 0
