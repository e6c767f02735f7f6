"""Our client and launched servers of earlier revisions that do not take discovery, as processes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.peers.processes import alive
from tests.peers.raw import until
from tests.peers.sessions import HttpRequest, http_session
from tests.test_process_cases import lines_of, pid_of, probe, stub

from trio_mcp import ConnectionLost, IncompatibleServer, Limits, Restart, connect
from trio_mcp.client import connecting
from trio_mcp.transports.calling import ClientConnection

BEGINS = ["initialize", "notifications/initialized", "tools/call"]
ONCE_MORE = ["started", "server/discover", "started", *BEGINS]


def planned(record: Path, *plan: str) -> list[str]:
    """A server whose n-th start does the n-th word."""
    return stub("of_sessions", record, *plan)


@pytest.mark.parametrize("word", ["exits", "prints"])
async def test_one_that_exits_at_discovery_is_launched_once_more(word: str, tmp_path: Path) -> None:
    record = tmp_path / "record"
    async with connect(planned(record, word)) as client:
        assert client.protocol_version == "2025-11-25"
        pid = await pid_of(client)
        assert client.exit_status is None
        assert lines_of(record) == ONCE_MORE
        await probe(client)
    await until(lambda: not alive(pid))


async def test_one_that_exits_at_discovery_is_not_restarted_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = tmp_path / "record"
    with caplog.at_level(logging.WARNING, "trio_mcp.connection"):
        async with connect(planned(record, "exits"), restart=Restart()) as client:
            await pid_of(client)
    assert "restart= does nothing here" in caplog.text
    assert lines_of(record) == ONCE_MORE


async def test_one_that_does_not_answer_anything_before_it_exits_is_launched_once_more(
    tmp_path: Path,
) -> None:
    record = tmp_path / "record"
    async with connect(planned(record, "waits", "exits"), limits=Limits(probe=0.05)) as client:
        await probe(client)
    assert lines_of(record) == ["started", "server/discover", "initialize", "started", *BEGINS]


async def test_one_that_exits_twice_is_lost(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with pytest.raises(ConnectionLost, match="no session today") as lost:
        async with connect(planned(record, "exits", "waits")):
            pytest.fail("connected")
    assert lost.value.exit_status == 1
    (note,) = lost.value.__notes__
    assert "launched twice" in note
    assert "expected initialize, not server/discover" in note
    assert lines_of(record) == ["started", "server/discover", "started", "initialize"]


async def test_one_that_is_silent_the_second_time_is_waited_for_within_the_limit(
    tmp_path: Path,
) -> None:
    record = tmp_path / "record"
    with trio.fail_after(30), pytest.raises(IncompatibleServer, match="within connect=2 s"):
        async with connect(planned(record, "exits", "silent"), limits=Limits(connect=2)):
            pytest.fail("connected")
    assert lines_of(record)[-2:] == ["started", "initialize"]


async def test_one_that_has_answered_discovery_is_not_launched_again(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with pytest.raises(ConnectionLost, match="no session today"):
        async with connect(planned(record, "refuses")):
            pytest.fail("connected")
    assert lines_of(record) == ["started", "server/discover", "initialize"]


async def test_one_that_ignores_discovery_gets_a_session_in_the_same_process(
    tmp_path: Path,
) -> None:
    record = tmp_path / "record"
    async with connect(planned(record, "ignores"), limits=Limits(probe=0.05)) as client:
        assert client.protocol_version == "2025-11-25"
        await pid_of(client)
    heard = [line for line in lines_of(record) if line != "notifications/cancelled"]
    assert heard == ["started", "server/discover", *BEGINS]


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("when", ["before", "while"])
async def test_abort_holds_for_what_is_launched_later(
    number: int, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes before, or while, a process is launched: the first one or the one that follows."""
    record = tmp_path / "record"
    record.touch()
    client = connect(planned(record, "exits"))
    real, pids = connecting._open_connection, []

    async def open_connection(*args: Any) -> Any:
        opened: Any = await real(*args)
        pids.append(opened[0].process._process.pid)
        if when == "while" and len(pids) == number:
            client.abort()
        return opened

    async def close(self: ClientConnection) -> None:
        await close_one(self)
        if when == "before":
            client.abort()

    close_one = ClientConnection.close
    monkeypatch.setattr(connecting, "_open_connection", open_connection)
    if number == 1 and when == "before":
        client.abort()
    else:
        monkeypatch.setattr(ClientConnection, "close", close)
    with trio.fail_after(5), pytest.raises(ConnectionLost, match="the client was aborted"):
        async with client:
            pytest.fail("there is no client")
    assert len(pids) == (number if when == "while" else number - 1)
    assert not any(map(alive, pids))
    assert not set(lines_of(record)) & {"initialize", "tools/call"}


async def test_abort_after_the_session_has_begun_leaves_no_client() -> None:
    async def script(request: HttpRequest) -> bool:
        if request.body.get("method") == "notifications/initialized":
            client.abort()
        return False

    async with http_session(script) as server:
        client = connect(server.address)
        with trio.fail_after(5), pytest.raises(ConnectionLost, match="the client was aborted"):
            async with client:
                pytest.fail("there is no client")
