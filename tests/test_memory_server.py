"""``memory_server``: a server and its client in one process, and nothing is left of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from trio_mcp import CallCancelled, ConnectionLost, IncompatibleServer, Limits, Server, State
from trio_mcp.testing import (
    Break,
    Corrupt,
    Delay,
    Drop,
    FaultsMissed,
    HalfClose,
    LeftBehind,
    Line,
    Stall,
    Transcript,
    memory_server,
)
from trio_mcp.testing.memory import MemoryServers

OpenServer = MemoryServers
"""What the fixture is, for annotations."""


def make_server() -> Server:
    server = Server("kitchen", version="1.0.0", limits=Limits(cleanup=0.05))

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait() -> str:
        await trio.sleep_forever()
        return "never"

    @server.tool
    def burn(seconds: float) -> str:
        """Does not hear that it is cancelled."""
        import time

        time.sleep(seconds)
        return "burnt"

    @server.tool
    async def tidy() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)
        return "never"

    return server


# As a context manager -----------------------------------------------------------------------------


async def test_both_ends_and_what_is_between_them() -> None:
    server = make_server()
    async with memory_server(server, name="tester") as kitchen:
        assert kitchen.server is server
        assert (await kitchen.client.call_tool("add", {"a": 1, "b": 2})).structured_content == 3
        (connection,) = server.scopes().children
        assert connection.label.startswith("memory ")
        assert kitchen.wire.happened == []
    assert server.scopes().children == ()
    assert len(kitchen.transcript.entries) == 3


async def test_several_at_once_of_one_server() -> None:
    server = make_server()
    async with memory_server(server) as first:
        async with memory_server(server) as second:
            assert len(server.scopes().children) == 2
            await second.client.call_tool("add", {"a": 1, "b": 2})
        await first.client.call_tool("add", {"a": 1, "b": 2})


async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    server = make_server()
    with pytest.raises(KeyError):
        async with memory_server(server, receiving=[Break(at=10**6)]):
            raise KeyError("mine")
    assert server.scopes().children == ()


async def test_what_the_block_raises_is_not_hidden_by_a_cancellation_that_follows_from_it() -> None:
    """The client is closed, so who waits for a call fails, and cancels what is around the block."""
    with pytest.RaisesGroup(KeyError, ConnectionLost):
        async with trio.open_nursery() as nursery, memory_server(make_server()) as kitchen:
            nursery.start_soon(kitchen.client.call_tool, "tidy")
            await trio.testing.wait_all_tasks_blocked()
            raise KeyError("mine")


async def test_a_wire_that_breaks_at_once_is_no_connection() -> None:
    server = make_server()
    with pytest.raises(ConnectionLost):
        async with memory_server(server, receiving=[Break()]):
            raise AssertionError("never")
    with pytest.raises(IncompatibleServer):
        async with memory_server(server, receiving=[Drop("rest")], limits=Limits(connect=0.05)):
            raise AssertionError("never")
    assert server.scopes().children == ()


async def test_cancelled_from_outside_it_ends(autojump_clock: trio.testing.MockClock) -> None:
    server = make_server()
    with trio.move_on_after(2) as scope:
        async with memory_server(server) as kitchen:
            await kitchen.client.call_tool("wait")
    assert scope.cancelled_caught
    assert server.scopes().children == ()
    (record,) = [one for one in server.journal if one.target == "wait"]
    assert record.state is State.CANCELLED


async def test_clean_up_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    server = make_server()
    began = trio.current_time()
    async with memory_server(server) as kitchen:
        with trio.move_on_after(1):
            await kitchen.client.call_tool("tidy")
    assert trio.current_time() - began == 4


async def test_an_initialize_that_was_not_needed_is_not_left_behind(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Discovery is answered late, so that was asked, too, and never had its answer."""
    late = [Delay(4.0), Stall(at=Line(2))]
    async with memory_server(make_server(), receiving=late, must_happen=False) as kitchen:
        assert [call.method for call in kitchen.client.calls()] == ["initialize"]


async def test_a_call_that_somebody_waits_for_is_left_behind() -> None:
    server = make_server()
    async with trio.open_nursery() as nursery:

        async def call(client: Any) -> None:
            with pytest.raises((CallCancelled, ConnectionLost)):
                await client.call_tool("wait")

        with pytest.raises(LeftBehind) as left:  # noqa: PT012
            async with memory_server(server) as kitchen:
                nursery.start_soon(call, kitchen.client)
                await trio.testing.wait_all_tasks_blocked()
        assert str(left.value) == "left behind by 'kitchen': the client's call of wait"
    assert server.scopes().children == ()


async def test_a_thread_that_goes_on_is_left_behind() -> None:
    server = make_server()
    with pytest.raises(LeftBehind, match=r"offload #\d+ .*abandoned"):  # noqa: PT012
        async with memory_server(server) as kitchen:
            with trio.move_on_after(0.1):
                await kitchen.client.call_tool("burn", {"seconds": 1.0})
            await trio.sleep(0.1)


async def test_faults_have_to_happen() -> None:
    with pytest.raises(FaultsMissed, match="HalfClose"):
        async with memory_server(make_server(), receiving=[HalfClose(at=Line(9))]):
            pass


async def test_a_hostile_answer_is_in_the_transcript() -> None:
    transcript = Transcript("tester")
    async with memory_server(
        make_server(),
        receiving=[Corrupt(b'{"jsonrpc": "2.0", "id": 99, "result": {}}\n', 0, at=Line(2))],
        transcript=transcript,
    ) as kitchen:
        await kitchen.client.call_tool("add", {"a": 1, "b": 2})
        assert kitchen.client._connection.violations == 1
    assert (
        transcript
        == """
        tester -> tools/call #1 …
        tester <- result #unknown(99)
        tester <- result #1 …
        tester -> end
    """
    )


async def test_a_call_left_behind_is_named_although_who_waits_for_it_fails_first() -> None:
    server = make_server()
    with pytest.raises(ExceptionGroup) as raised:  # noqa: PT012
        async with trio.open_nursery() as nursery:
            async with memory_server(server) as kitchen:
                nursery.start_soon(kitchen.client.call_tool, "wait")
                await trio.testing.wait_all_tasks_blocked()
    lost, left = sorted(raised.value.exceptions, key=lambda one: type(one).__name__)
    assert (type(lost), type(left)) == (ConnectionLost, LeftBehind)
    assert str(left) == "left behind by 'kitchen': the client's call of wait"
    assert server.scopes().children == ()


async def test_logs_name_a_wire_in_memory(caplog: pytest.LogCaptureFixture) -> None:
    async with memory_server(
        make_server(), receiving=[Corrupt(b"garbage\n", 0, at=Line(2))]
    ) as kitchen:
        await kitchen.client.call_tool("add", {"a": 1, "b": 2})
    assert "memory sent" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ([make_server], {}, r"not <function .*: did you mean memory_server\(make_server\(\)\)\?"),
        (["kitchen"], {}, "takes a Server, not 'kitchen'"),
        ([make_server()], {"faults": [Drop()]}, r"but sending=\[…\] and receiving=\[…\]"),
        ([make_server()], {"recieving": []}, "no option 'recieving'; it has sending, receiving, "),
        ([make_server()], {"transcript": "mine"}, r"Transcript\('mine'\)"),
        ([make_server()], {"receiving": Drop()}, r"a list of faults: \[Drop\(.*\)\], not Drop"),
        ([make_server()], {"receiving": [[Drop()]]}, r"has faults in it, .*not \[Drop"),
        ([make_server()], {"receiving": {1: [Drop()]}}, r"a list of faults, such as \[Drop"),
        ([make_server()], {"receiving": 5}, "a list of faults, such as"),
    ],
)
async def test_what_is_none_of_it_is_told(
    arguments: list[Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        async with memory_server(*arguments, **options):
            raise AssertionError("never")


# As a fixture -------------------------------------------------------------------------------------


async def test_the_fixture_opens_as_many_as_one_wants(memory_server: OpenServer) -> None:
    server = make_server()
    first, second = await memory_server(server), await memory_server(server, name="second")
    for one in (first, second):
        assert (await one.client.call_tool("add", {"a": 1, "b": 2})).structured_content == 3
    assert first.transcript == second.transcript


async def test_the_fixture_has_its_faults(
    memory_server: OpenServer, autojump_clock: trio.testing.MockClock
) -> None:
    kitchen = await memory_server(make_server(), receiving=[HalfClose(at=Line(2))])
    with pytest.raises(ConnectionLost):
        await kitchen.client.call_tool("add", {"a": 1, "b": 2})


async def test_what_cannot_be_opened_is_raised_where_it_was_asked_for(
    memory_server: OpenServer,
) -> None:
    with pytest.raises(ConnectionLost):
        await memory_server(make_server(), receiving=[Break()])
    with pytest.raises(TypeError, match="a schedule has faults in it"):
        await memory_server(make_server(), receiving=["nothing"])


async def test_what_the_fixture_returns_can_be_entered(memory_server: OpenServer) -> None:
    server = make_server()
    async with memory_server(server, name="tester") as kitchen:
        assert (await kitchen.client.call_tool("add", {"a": 1, "b": 2})).structured_content == 3
    assert server.scopes().children == ()
    with pytest.raises(FaultsMissed):
        async with memory_server(server, receiving=[HalfClose(at=Line(9))]):
            pass
    with pytest.raises(AttributeError, match="await memory_server"):
        _ = memory_server(server).client


TESTS = """
import pytest, trio
from trio_mcp import Server
from trio_mcp.testing import Drop, Line

held = []

def make_server():
    server = Server("kitchen", version="1.0.0")
    @server.tool
    async def wait() -> str:
        await trio.sleep_forever()
    return server

@pytest.mark.trio
async def test_good(memory_server):
    kitchen = await memory_server(make_server())
    await kitchen.client.tools_page()

@pytest.mark.trio
async def test_missed(memory_server):
    await memory_server(make_server(), receiving=[Drop(at=Line(7))])

@pytest.mark.trio
async def test_left(memory_server):
    kitchen = await memory_server(make_server())
    held.append(kitchen.client.start_tool("wait"))
    await held[0].__aenter__()

@pytest.mark.trio
async def test_fails(memory_server):
    kitchen = await memory_server(make_server())
    assert not kitchen
"""


def run_tests(folder: Path, *options: str) -> str:
    (folder / "test_it.py").write_text(TESTS)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", *options, folder],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.stdout


def test_what_is_left_fails_the_test(tmp_path: Path) -> None:
    printed = run_tests(tmp_path)
    assert re.search("PASSED .*test_it.py::test_good", printed)
    for name, why in [
        ("missed", "did not happen: Drop"),
        ("left", "left behind by 'kitchen': the client's call of wait"),
        ("fails", "assert not InMemory"),
    ]:
        assert re.search(f"FAILED .*test_it.py::test_{name}", printed)
        assert why in printed


def test_without_pytest_trio_it_says_what_it_needs(tmp_path: Path) -> None:
    printed = run_tests(tmp_path, "-p", "no:trio")
    assert "the fixture memory_server needs pytest-trio" in printed
    assert "passed" not in printed.splitlines()[-1]


def test_the_plugin_imports_nothing_of_ours_before_it_has_to(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_it():\n    assert 'trio_mcp' not in sys.modules\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "1 passed" in ran.stdout, ran.stdout
