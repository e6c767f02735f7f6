"""Our client with servers on the official SDKs, in their newest revision and over their older
handshake: what a client does with any server, over each wire, with one process each.

What is seen of which server has a table in `docs/earlier-revisions.md`. The SDKs' own peculiarities
are in `test_official_sdk.py` and `test_typescript_sdk.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from tests.peers.raw import until
from tests.peers.reference_servers import ReferenceServers
from tests.peers.typescript import TypeScriptSdk

from trio_mcp import Change, Client, ProgressUpdate, State, connect

PEERS = Path(__file__).parent / "peers"
TOOLS = {"echo", "add", "sleep", "tick", "boom", "change"}
OURS, OLDER = "2026-07-28", "2025-11-25"
URI = "shop://hours"


@attrs.frozen
class Sdk:
    """A server of ours on an SDK: how to launch it, and what it can do."""

    version: str
    stdio: Sequence[str]
    http: Sequence[str]
    tells_of_tools: bool
    """Whether it declares that its list of tools may change."""
    tells_of_end: bool
    """Whether it notes that a client has ended its session over HTTP."""
    said_when_stopped: str
    """What ``sleep`` notes when it is cancelled."""


def python_sdk(version: str) -> Sdk:
    """The Python SDK's sessions declare no lists that change: its server cannot be told to."""
    script = [sys.executable, str(PEERS / "official_server.py")]
    if version == OURS:
        return Sdk(version, script, [*script, "--http"], True, False, "sleep released")
    relayed = [sys.executable, str(PEERS / "without_discovery.py"), *script]
    return Sdk(version, relayed, [*script, "--http", "--older"], False, False, "sleep released")


def typescript_sdk(version: str, sdk: TypeScriptSdk) -> Sdk:
    older = [] if version == OURS else ["--older"]
    stdio = sdk.command("server.mjs", "--stdio", *older)
    http = sdk.command("server.mjs", *older)
    return Sdk(version, stdio, http, True, version != OURS, "sleep aborted")


@pytest.fixture(params=["python", "python older", "typescript", "typescript older", "typescript 1"])
def server(request: pytest.FixtureRequest) -> Sdk:
    """Each SDK, in each of its eras; npm installs only what is asked for."""
    name, _, era = request.param.partition(" ")
    if name == "python":
        return python_sdk(OLDER if era else OURS)
    if era == "1":
        servers: ReferenceServers = request.getfixturevalue("servers")
        command = servers.sdk_server
        return Sdk(OLDER, command, [*command, "--http"], True, True, "sleep aborted")
    return typescript_sdk(OLDER if era else OURS, request.getfixturevalue("sdk"))


@asynccontextmanager
async def connected(server: Sdk, wire: str, notes: Path) -> AsyncGenerator[Client, None]:
    """Our client of a server in a process of its own. Raises ``trio.TooSlowError`` if the block
    takes longer than half a minute."""
    env = {**os.environ, "PEER_LOG": str(notes)}
    with trio.fail_after(30):
        if wire == "stdio":
            async with connect(server.stdio, env=env) as client:
                yield client
            return
        process = await trio.lowlevel.open_process(
            [*server.http], env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        assert process.stdout is not None
        try:
            port = int(await process.stdout.receive_some())
            async with connect(f"http://127.0.0.1:{port}/mcp") as client:
                yield client
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                await process.stdout.aclose()


def lines_of(notes: Path) -> list[str]:
    return notes.read_text().splitlines() if notes.exists() else []


@pytest.mark.parametrize("wire", ["stdio", "http"])
async def test_our_client_lists_calls_hears_cancels_and_listens(
    server: Sdk, wire: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    async with connected(server, wire, notes) as client:
        assert client.protocol_version == server.version

        assert {tool.name async for tool in client.tools()} >= TOOLS
        assert (await client.call_tool("echo", {"text": "é\u2028“☃"})).text == "é\u2028“☃"
        added = await client.call_tool("add", {"a": 2**52, "b": 1})
        assert added.structured_content == {"result": 2**52 + 1}
        assert (await client.call_tool("boom")).is_error

        updates: list[ProgressUpdate] = []
        await client.call_tool("tick", {"n": 3, "dt": 0.02}, on_progress=updates.append)
        assert updates == [ProgressUpdate(n, 3, f"tick {n}") for n in (1, 2, 3)]

        await cancels(client, server, notes)
        await listens(client, server)
        assert (await client.call_tool("echo", {"text": "x"})).text == "x"
        assert client._connection.violations == 0
    if wire == "http":
        assert (lines_of(notes)[-1] == "session closed") is server.tells_of_end


async def cancels(client: Client, server: Sdk, notes: Path) -> None:
    """The server's work stops, and that of another call does not."""
    async with client.start_tool("tick", {"n": 20, "dt": 0.02}) as other:
        async with client.start_tool("sleep", {"seconds": 60}) as call:
            await until(lambda: "sleep started" in lines_of(notes), timeout=10)
            call.cancel("enough")
            assert (await call.ended()).state is State.CANCELLED
        stopped = server.said_when_stopped
        await until(lambda: lines_of(notes)[-1].startswith(stopped), timeout=10)
        assert (await other.result()).text == "done"


async def listens(client: Client, server: Sdk) -> None:
    async with client.listen(tools=True, resources=[URI]) as changes:
        assert changes.agreed.resource_subscriptions == [URI]
        assert bool(changes.agreed.tools_list_changed) is server.tells_of_tools
        await client.call_tool("change", {"uri": URI})
        expected = {Change("resource", URI)} | (
            {Change("tools")} if server.tells_of_tools else set()
        )
        assert {await anext(changes) for _ in expected} == expected
    # What comes now is of no interest to anybody, and hurts nobody.
    await client.call_tool("change", {"uri": URI})
