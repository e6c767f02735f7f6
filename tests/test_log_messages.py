"""``ctx.log``: only what was asked for, before the answer, in bounds, from threads too."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from tests.peers.checked import checked_client
from tests.peers.raw import call, cancel, lines, request, until
from tests.peers.raw_http import HttpPeer
from tests.test_races import ScriptedWire

from trio_mcp import Context, Limits, Server, State
from trio_mcp.runtime.logs import LEVELS

LOG_LEVEL = "io.modelcontextprotocol/logLevel"


def make_server(limits: Limits | None = None) -> Server:
    server = Server("logs", version="1", limits=limits)

    @server.tool
    async def say(ctx: Context, levels: list[str], text: str = "hello") -> str:
        for level in levels:
            ctx.log(level, {"text": text}, logger="test")  # type: ignore[arg-type]
        return "said"

    @server.tool
    def say_in_thread(ctx: Context, count: int) -> str:
        for number in range(count):
            ctx.log("info", number)
        return "said"

    @server.tool
    async def say_anything(ctx: Context) -> str:
        for data in (None, math.nan, {1, 2}, Unspeakable(), "a\udcffb", object, 10**30):
            ctx.log("info", data)
        return "said"

    @server.tool
    async def say_and_wait(ctx: Context, count: int, text: str) -> str:
        for number in range(count):
            ctx.log("info", f"{number} {text}")
        await trio.sleep_forever()
        return "never"

    return server


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@dataclasses.dataclass
class Measured:
    value: float


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("no")


def asking(request_id: Any, level: str | None, tool: str, **arguments: Any) -> dict[str, Any]:
    meta = {} if level is None else {LOG_LEVEL: level}
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return request(request_id, "tools/call", params)


def said(messages: list[dict[str, Any]]) -> list[Any]:
    return [m["params"] for m in messages if m.get("method") == "notifications/message"]


@pytest.mark.parametrize("asked", LEVELS)
async def test_messages_of_the_level_asked_for_and_above(asked: str) -> None:
    server = make_server()
    async with checked_client(server) as peer:
        await peer.send(asking(1, asked, "say", levels=list(LEVELS)))
        answer = await peer.answer(1)
        assert "error" not in answer
        assert peer.seen[-1] is answer
    expected = LEVELS[LEVELS.index(asked) :]
    assert [m["level"] for m in said(peer.seen)] == list(expected)
    assert said(peer.seen)[0] == {"level": asked, "logger": "test", "data": {"text": "hello"}}
    (record,) = server.journal
    assert (record.logs_sent, record.logs_dropped) == (len(expected), 0)


async def test_nothing_unless_it_was_asked_for() -> None:
    server = make_server()
    async with checked_client(server) as peer:
        await peer.send(call(1, "say", levels=list(LEVELS)))
        await peer.answer(1)
        assert len(peer.seen) == 1


@pytest.mark.parametrize("level", ["", "verbose", "INFO", 3, [], {}])
async def test_a_level_that_is_none_is_refused(level: Any) -> None:
    async with checked_client(make_server()) as peer:
        await peer.send(asking(1, level, "say", levels=["info"]))
        error = (await peer.answer(1))["error"]
        assert error["code"] == -32602
        assert LOG_LEVEL in error["message"]
        assert "debug, info" in error["message"]


@pytest.mark.parametrize("level", ["\x7f" * 100_000, nested(800), {"a": "b" * 100_000}])
async def test_the_refusal_of_a_level_shows_little_of_it(level: Any) -> None:
    async with checked_client(make_server()) as peer:
        await peer.send(asking(1, level, "say", levels=["info"]))
        error = (await peer.answer(1))["error"]
        assert error["code"] == -32602
        assert len(error["message"]) < 500


async def test_a_handler_that_names_no_level_is_told_whether_or_not_it_was_asked() -> None:
    async with checked_client(make_server()) as peer:
        await peer.send(call(1, "say", levels=["loud"]), asking(2, "info", "say", levels=["loud"]))
        assert (await peer.answer(1))["error"]["code"] == -32603
        assert (await peer.answer(2))["error"]["code"] == -32603


async def test_what_json_cannot_hold_is_no_reason_to_fail() -> None:
    async with checked_client(make_server()) as peer:
        await peer.send(asking(1, "debug", "say_anything"))
        assert "error" not in await peer.answer(1)
    none, nan, numbers, unspeakable, surrogate, kind, large = (m["data"] for m in said(peer.seen))
    assert none is None
    assert nan == "nan"
    assert numbers in ([1, 2], "{1, 2}")
    assert unspeakable == "<Unspeakable without a repr>"
    assert "udcff" in surrogate
    assert kind == "<class 'object'>"
    assert large in (10**30, float(10**30), str(10**30))


@pytest.mark.parametrize("data", [Measured(math.nan), {math.inf}, [Measured(-math.inf)]])
async def test_no_number_becomes_a_null(data: Any) -> None:
    server = make_server()

    @server.tool
    async def say_this(ctx: Context) -> str:
        ctx.log("info", data)
        return "said"

    async with checked_client(server) as peer:
        await peer.send(asking(1, "info", "say_this"))
        assert "error" not in await peer.answer(1)
    assert [message["data"] for message in said(peer.seen)] == [repr(data)]


async def test_the_name_of_a_logger_is_no_reason_to_fail() -> None:
    server = make_server(Limits(text_length=50))

    @server.tool
    async def say_as(ctx: Context) -> str:
        for name in ("a\udcffb", 5, "x" * 1000):
            ctx.log("info", 1, logger=name)  # type: ignore[arg-type]
        return "said"

    async with checked_client(server) as peer:
        await peer.send(asking(1, "info", "say_as"))
        assert "error" not in await peer.answer(1)
    assert [message["logger"] for message in said(peer.seen)] == ["a\\udcffb", "5", "x" * 50]


async def test_threads_log_too_in_order_and_before_the_answer() -> None:
    async with checked_client(make_server()) as peer:
        await peer.send(asking(1, "info", "say_in_thread", count=200))
        answer = await peer.answer(1)
        assert peer.seen[-1] is answer
    assert [m["data"] for m in said(peer.seen)] == list(range(200))


async def test_a_client_that_does_not_read_loses_the_oldest() -> None:
    server, wire = make_server(Limits(log_bytes=10_000)), ScriptedWire()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_wire, wire)
        wire.stop_taking()
        wire.feed(call("first", "say", levels=[]))
        await until(lambda: "written" in dict(wire.log))  # the writer waits for the peer
        wire.feed(asking(1, "info", "say_and_wait", count=500, text="x" * 500))
        await trio.testing.wait_all_tasks_blocked()
        wire.take_again()
        await trio.testing.wait_all_tasks_blocked()
        wire.feed(cancel(1))
        await trio.testing.wait_all_tasks_blocked()
        wire.hang_up()
    got = [m["params"]["data"] for what, m in wire.log if what == "written" and "params" in m]
    assert [int(text.split()[0]) for text in got] == list(range(500 - len(got), 500))
    assert 10 < len(got) < 20
    record = list(server.journal)[-1]
    assert record.state is State.CANCELLED
    assert record.logs_sent == len(got)
    assert record.logs_dropped == 500 - len(got)


async def test_what_waits_counts_against_the_connection() -> None:
    """Invariant 9: many requests together keep no more than one connection may hold."""
    bound = 100_000
    server = make_server(Limits(log_bytes=20_000, bytes_per_connection=bound))
    wire, requests = ScriptedWire(), range(20)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_wire, wire)
        wire.stop_taking()
        wire.feed(call("first", "say", levels=[]))
        await until(lambda: "written" in dict(wire.log))  # the writer waits for the peer
        for number in requests:
            wire.feed(asking(number, "info", "say_and_wait", count=50, text="x" * 500))
        await trio.testing.wait_all_tasks_blocked()
        wire.take_again()
        await trio.testing.wait_all_tasks_blocked()
        got = [m["params"]["data"] for what, m in wire.log if what == "written" and "params" in m]
        assert bound / 2 < sum(map(len, got)) < bound
        for number in requests:
            wire.feed(cancel(number))
        await trio.testing.wait_all_tasks_blocked()
        # What was held is free again, all of it.
        wire.feed(call("largest", "say", levels=[], text="x" * (bound - 1000)))
        await trio.testing.wait_all_tasks_blocked()
        wire.hang_up()
    what, answer = wire.log[-1]
    assert (what, answer["id"]) == ("written", "largest")
    assert "result" in answer


async def test_nothing_is_logged_after_a_cancel() -> None:
    server, wire = make_server(), ScriptedWire()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_wire, wire)
        wire.stop_taking()
        wire.feed(call("first", "say", levels=[]))
        await until(lambda: "written" in dict(wire.log))
        wire.feed(asking(1, "info", "say_and_wait", count=5, text=""))
        await trio.testing.wait_all_tasks_blocked()
        wire.feed(cancel(1))
        await trio.testing.wait_all_tasks_blocked()
        wire.take_again()
        await trio.testing.wait_all_tasks_blocked()
        wire.hang_up()
    assert [m.get("id") for what, m in wire.log if what == "written"] == ["first"]


async def test_what_is_too_long_is_cut_short() -> None:
    server = make_server(Limits(log_bytes=10_000))
    async with checked_client(server) as peer:
        await peer.send(asking(1, "info", "say", levels=["info"], text='"é' * 50_000))
        assert "error" not in await peer.answer(1)
    (message,) = said(peer.seen)
    assert message["data"].endswith("…")
    assert len(lines(peer.seen[0])) < 10_000


async def test_over_http_it_makes_an_event_stream_of_the_answer() -> None:
    server = make_server()
    async with trio.open_nursery() as nursery:
        port = await nursery.start(partial(server.serve_http, port=0))
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            peer = HttpPeer(stream)
            levels = ["debug", "info", "error"]
            *messages, answer = (await peer.ask(asking(1, "info", "say", levels=levels))).events
            assert [message["params"]["level"] for message in messages] == ["info", "error"]
            assert answer["id"] == 1
            assert "result" in (await peer.ask(asking(2, "alert", "say", levels=levels))).json
        nursery.cancel_scope.cancel()


async def test_json_that_somebody_else_has_laid_out_stays_on_its_line() -> None:
    server = Server("logs", version="1")

    @server.tool
    async def say(ctx: Context) -> str:
        ctx.log("info", msgspec.Raw(b'{\n  "shelf": 7,\r\n  "text": "a\\nb"\n}'))
        return "said"

    async with checked_client(server) as peer:
        await peer.send(asking(1, "info", "say"))
        assert "result" in await peer.answer(1)
    assert said(peer.seen)[0]["data"] == {"shelf": 7, "text": "a\nb"}
