"""Our client with servers of earlier revisions that nobody here wrote: the reference servers of the
protocol's authors, on the TypeScript SDK, and the official Python SDK's, over its older handshake.

Node.js runs the former, and npm gets them, once for all tests of this file.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import trio
import trio.lowlevel
from tests.peers import reference_servers
from tests.peers.raw import until
from tests.peers.reference_servers import ReferenceServers

from trio_mcp import (
    CallCancelled,
    CallTimeout,
    Client,
    CreateMessageRequestParams,
    CreateMessageResult,
    Elicitation,
    ElicitResult,
    LogMessage,
    Root,
    ServerError,
    State,
    TextContent,
    connect,
)

pytestmark = pytest.mark.xdist_group("reference servers")  # npm gets them once
PEERS = Path(__file__).parent / "peers"
Connect: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> ReferenceServers:
    """The servers, installed for this session, outside of the repository."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"the reference servers need {' and '.join(missing)}, not found on PATH")
    return reference_servers.install(tmp_path_factory.mktemp("npm-servers"))


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
    assert found.structured_content["entities"] == [entity]


# The Python SDK -----------------------------------------------------------------------------------


async def test_the_official_python_server_speaks_its_older_handshake(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    env = {**os.environ, "PEER_LOG": str(notes)}
    server = [sys.executable, str(PEERS / "official_server.py")]
    command = [sys.executable, str(PEERS / "without_discovery.py"), *server]
    seen: list[float] = []
    with trio.fail_after(30):
        async with connect(command, env=env) as client:
            assert client.protocol_version == "2025-11-25"
            assert client.server_info is not None
            assert client.server_info.name == "official-peer"
            assert [tool.name async for tool in client.tools()] == [
                *("echo", "add", "sleep", "tick", "boom")
            ]
            added = await client.call_tool("add", {"a": 2**53, "b": 1})
            assert added.structured_content == {"result": 2**53 + 1}
            await client.call_tool(
                "tick",
                {"n": 3, "dt": 0.01},
                on_progress=lambda update: seen.append(update.progress),
            )
            assert seen == [1, 2, 3]
            assert (await client.call_tool("boom")).is_error
            async with client.start_tool("sleep", {"seconds": 60}) as call:
                await until(lambda: "started" in _text(notes), timeout=10)
                call.cancel("enough")
                await until(lambda: "released" in _text(notes), timeout=10)
            assert (await client.call_tool("echo", {"text": "x"})).text == "x"


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
