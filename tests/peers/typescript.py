"""The official TypeScript SDK, as a client and as a server, for interoperability tests.

:func:`install` gets the SDK from the npm registry, in the versions that ``typescript/package.json``
names, into a folder that is not this repository's. The two scripts of ``typescript/`` run there:

    async with sdk.client(address) as client:
        outcome = await client.call("add", {"a": 1, "b": 2})
        assert outcome.result["structuredContent"] == 3

    async with sdk.server() as server:
        async with connect(server.address) as ours:
            ...
            await server.noted("sleep started")
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import trio
from tests.peers.raw import until

__all__ = [
    "PINNED",
    "Mode",
    "Outcome",
    "TheirCall",
    "TheirClient",
    "TheirServer",
    "TypeScriptSdk",
    "install",
]

Mode: TypeAlias = str | Mapping[str, str] | None

PINNED: Mode = {"pin": "2026-07-28"}
_PARTS = Path(__file__).parent / "typescript"
_INSTALL = ["npm", "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund"]
_INSTALL += ["--prefer-offline", "--no-update-notifier", "--fetch-timeout=30000"]
_INSTALL_SECONDS = 120
_STEP_SECONDS = 20
"""How long one step of a peer may take, its launch for one."""
_LIFE_SECONDS = 60
"""How long a peer may run: so long at most hangs a test that waits for what never comes."""


def install(folder: Path) -> TypeScriptSdk:
    """Install the SDK and the two scripts into ``folder``.

    Raises ``FileNotFoundError`` if there is no ``node`` or no ``npm``, ``RuntimeError`` with what
    npm said if it fails, ``subprocess.TimeoutExpired`` if it takes longer than two minutes.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise FileNotFoundError(program)
    for part in _PARTS.iterdir():
        shutil.copy(part, folder)
    npm = subprocess.run(
        _INSTALL,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
        check=False,
    )
    if npm.returncode != 0:
        raise RuntimeError(f"npm install failed with status {npm.returncode}:\n{npm.stderr}")
    return TypeScriptSdk(folder)


@attrs.frozen
class TypeScriptSdk:
    """The installed SDK."""

    folder: Path

    @asynccontextmanager
    async def client(
        self, target: str | Sequence[str], mode: Mode = PINNED
    ) -> AsyncGenerator[TheirClient, None]:
        """Their client of the server at an address, or of one that it launches.

        ``mode`` is the SDK's ``versionNegotiation.mode``. On leaving, the client is closed; it has
        to end by itself.
        """
        key = "address" if isinstance(target, str) else "command"
        options = {key: target, "mode": mode}
        client = TheirClient()
        command = self.command("client.mjs", json.dumps(options))
        async with _launched(command, client.hear) as process:
            assert process.stdin is not None
            client.stdin = process.stdin
            await until(lambda: client.ready or client.refused, timeout=_STEP_SECONDS)
            yield client
            await process.stdin.aclose()
            with trio.fail_after(_STEP_SECONDS):
                assert await process.wait() == 0

    @asynccontextmanager
    async def server(self, **options: Any) -> AsyncGenerator[TheirServer, None]:
        """Their server, on a port of 127.0.0.1; ``options`` are those of ``createMcpHandler``."""
        server = TheirServer()
        command = self.command("server.mjs", json.dumps(options))
        async with _launched(command, server.hear) as process:
            server.process = process
            await until(lambda: server.port, timeout=_STEP_SECONDS)
            yield server

    def command(self, script: str, *arguments: str) -> list[str]:
        """The command that runs a script of ours on their SDK."""
        return ["node", str(self.folder / script), *arguments]


@asynccontextmanager
async def _launched(
    command: Sequence[str], hear: Callable[[str], None]
) -> AsyncGenerator[trio.Process, None]:
    """A process whose lines go to ``hear``; killed on leaving if it still runs.

    Raises ``trio.TooSlowError`` if the block takes longer than a minute.
    """
    process = await trio.lowlevel.open_process(
        list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with trio.fail_after(_LIFE_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_hear, process.stdout, hear)
                yield process
                nursery.cancel_scope.cancel("the test is over")
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
            await process.stdin.aclose()
            await process.stdout.aclose()


async def _hear(stream: trio.abc.ReceiveStream, hear: Callable[[str], None]) -> None:
    rest = b""
    async for data in stream:
        *lines, rest = (rest + bytes(data)).split(b"\n")
        for line in lines:
            hear(line.decode())


# Their client -------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Outcome:
    """What a call of their client came to: ``result`` or ``error``, and the progress before it."""

    progress: list[dict[str, Any]] = attrs.Factory(list)
    result: dict[str, Any] = attrs.Factory(dict)
    error: dict[str, Any] = attrs.Factory(dict)

    @property
    def text(self) -> str:
        """The text of a result that is one text."""
        (block,) = self.result["content"]
        text: str = block["text"]
        return text


class TheirClient:
    """Their client. ``complaints`` is what the SDK handed to its ``onerror``."""

    def __init__(self) -> None:
        self.stdin: trio.abc.SendStream
        self.ready: dict[str, Any] = {}
        self.refused: dict[str, Any] = {}
        self.complaints: list[str] = []
        self._outcomes: dict[int, Outcome] = {}
        self._ids = itertools.count(1)

    def hear(self, line: str) -> None:
        message = json.loads(line)
        if "id" not in message:
            self.ready = message.get("ready", self.ready)
            self.refused = message.get("refused", self.refused)
            self.complaints += [message["complaint"]] if "complaint" in message else []
            return
        outcome = self._outcomes[message["id"]]
        if "progress" in message:
            outcome.progress.append(message["progress"])
        else:
            assert not outcome.result, "a call has two outcomes"
            assert not outcome.error, "a call has two outcomes"
            outcome.result = message.get("result", {})
            outcome.error = message.get("error", {})

    async def tool_names(self) -> list[str]:
        """The names of all tools."""
        listed = await self._do({"do": "list"})
        outcome = await listed.outcome()
        return [tool["name"] for tool in outcome.result["tools"]]

    async def call(
        self, name: str, arguments: Mapping[str, Any], *, progress: bool = False, **options: Any
    ) -> Outcome:
        """Call a tool and wait for what comes of it; ``options`` are the SDK's own."""
        call = await self.start(name, arguments, progress=progress, **options)
        return await call.outcome()

    async def start(
        self, name: str, arguments: Mapping[str, Any], *, progress: bool = False, **options: Any
    ) -> TheirCall:
        """Start a call of a tool."""
        command = {"do": "call", "name": name, "arguments": arguments}
        return await self._do({**command, "progress": progress, "options": options})

    async def _do(self, command: Mapping[str, Any]) -> TheirCall:
        number = next(self._ids)
        call = TheirCall(self, number, self._outcomes.setdefault(number, Outcome()))
        await self.say({**command, "id": number})
        return call

    async def say(self, command: Mapping[str, Any]) -> None:
        await self.stdin.send_all(json.dumps(command).encode() + b"\n")


@attrs.frozen
class TheirCall:
    """A call in flight."""

    client: TheirClient
    number: int
    so_far: Outcome

    async def abort(self, reason: str) -> None:
        """Fire the call's ``AbortSignal``."""
        await self.client.say({"do": "abort", "id": self.number, "reason": reason})

    async def outcome(self) -> Outcome:
        await until(lambda: self.so_far.result or self.so_far.error, timeout=_STEP_SECONDS)
        return self.so_far


# Their server -------------------------------------------------------------------------------------


class TheirServer:
    """Their server, and what its tools have noted."""

    def __init__(self) -> None:
        self.port = 0
        self.notes: list[str] = []
        self.process: trio.Process

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def hear(self, line: str) -> None:
        if self.port:
            self.notes.append(line)
        else:
            self.port = int(line)

    async def noted(self, note: str) -> None:
        """Wait until a note begins like this."""
        await until(lambda: any(n.startswith(note) for n in self.notes), timeout=_STEP_SECONDS)
