"""Two hundred threads that never stop: bounded, listed, and no hindrance to anything else."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from tests.peers.commands import COMMAND
from tests.peers.inspection import exchanges, offloaded, record_of
from tests.peers.processes import exit_status
from tests.peers.raw import RawPeer, call, cancel, raw_client, raw_process, text_of, until

from trio_mcp import Limits, ScopeKind, Server, State

MANY = 200
STRAGGLING = Path(__file__).parent / "peers" / "straggling_server.py"


class Straggling:
    """A server with a tool that waits for a gate, and two others."""

    def __init__(self) -> None:
        limits = Limits(threads=MANY, cleanup=0.1, drain=0.1, journal_records=10 * MANY)
        self.server = Server("straggling", version="1", limits=limits, pools={"own": 1})
        self.gate = threading.Event()
        self.begun: list[int] = []

        @self.server.tool
        def block(n: int) -> str:
            self.begun.append(n)
            self.gate.wait()
            return "at last"

        @self.server.tool
        async def echo(text: str) -> str:
            return text

        @self.server.tool(pool="own")
        def elsewhere() -> str:
            return "elsewhere"


@pytest.fixture
def straggling() -> Iterator[Straggling]:
    made = Straggling()
    yield made
    made.gate.set()


async def abandon_all(peer: RawPeer, straggling: Straggling) -> None:
    """Have as many threads as there are run, cancel their requests, and wait for the windows."""
    await peer.send(*(call(n, "block", n=n) for n in range(MANY)))
    await until(lambda: len(straggling.begun) == MANY)
    await peer.send(*(cancel(n) for n in range(MANY)))
    await until(lambda: len(abandoned(straggling.server)) == MANY)
    await until(lambda: not exchanges(straggling.server))


def abandoned(server: Server) -> list[str]:
    return [scope.label for scope in offloaded(server) if scope.state == "abandoned"]


async def test_the_bound_of_the_pool_holds_and_others_are_unaffected(
    straggling: Straggling,
) -> None:
    server = straggling.server
    async with raw_client(server) as peer:
        await abandon_all(peer, straggling)
        records = [record_of(server, n) for n in range(MANY)]
        assert {(record.state, record.cleanup) for record in records} == {
            (State.CANCELLED, "abandoned")
        }
        await peer.send(*(call(n, "block", n=n) for n in range(MANY, 2 * MANY)))
        assert await peer.probe() == []
        await peer.send(call("own", "elsewhere"))
        assert text_of(await peer.answer("own")) == "elsewhere"
        assert len(straggling.begun) == MANY
        waiting = [scope for scope in offloaded(server) if scope.state == "waiting"]
        assert len(waiting) == MANY

        # Those that wait can be cancelled, and never run.
        await peer.send(*(cancel(n) for n in range(MANY, 2 * MANY)))
        assert await peer.probe() == []
        await until(lambda: len(offloaded(server)) == MANY)

        straggling.gate.set()
        await until(lambda: not offloaded(server))
        assert len(straggling.begun) == MANY
        assert [len(record.late) for record in records] == [1] * MANY
        assert server.journal.late == MANY
        await peer.send(call("again", "block", n=0))
        assert text_of(await peer.answer("again")) == "at last"


async def test_a_shutdown_is_bounded_and_lists_them(
    straggling: Straggling, caplog: pytest.LogCaptureFixture
) -> None:
    server = straggling.server
    async with raw_client(server) as peer:
        await peer.send(*(call(n, "block", n=n) for n in range(MANY)))
        await until(lambda: len(straggling.begun) == MANY)
        with caplog.at_level(logging.WARNING, "trio_mcp.server"):
            report = await server.drain(0.1)
        assert report.cancelled == MANY
        assert len(report.abandoned) == MANY
        assert {scope.kind for scope in report.abandoned} == {ScopeKind.OFFLOAD}
        assert report.describe().count("work 'block' of exchange") == MANY
        (told,) = [line for line in caplog.messages if "left behind" in line]
        assert told.count("work 'block' of exchange") == MANY


async def test_a_launched_server_ends_in_spite_of_them_and_lists_them() -> None:
    command = [*COMMAND, "run", str(STRAGGLING)]
    async with raw_process(command) as peer:
        await peer.send(*(call(n, "block", n=n) for n in range(MANY)))

        async def begun() -> int:
            await peer.send(call("count", "count"))
            return int(text_of(await peer.answer("count")))

        with trio.fail_after(15):
            while await begun() != MANY:  # noqa: ASYNC110 - nothing else tells of it
                await trio.sleep(0.01)
        os.kill(peer.process.pid, signal.SIGTERM)
        assert await exit_status(peer.process, within=15) == 0
        with trio.move_on_after(1):
            await until(lambda: peer.stderr.count(b"work 'block' of exchange") >= MANY)
        assert peer.stderr.count(b"work 'block' of exchange") == MANY
