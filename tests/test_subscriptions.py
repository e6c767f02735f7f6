"""``subscriptions/listen``, server side: over every wire, and where it could go wrong.

What a peer hears is held against the official schema, and against the rules of *Subscriptions*: the
acknowledgement first, nothing that was not granted, nothing after the end (``peers/checked``).
Crowds of listeners are in ``test_subscription_crowds``, races in ``test_subscription_races``.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
import trio
import trio.testing
from hypercorn.trio import serve
from tests.peers.channel_wires import Memory, Stdio, Tcp, WebSocket
from tests.peers.checked import checked_client
from tests.peers.http_wires import Hypercorn, HypercornHttp1, HypercornHttp2, NativeHttp
from tests.peers.observed_server import Offering
from tests.peers.raw import cancel, raw_client, request, same_id, until
from tests.peers.wires import AUTO, PATIENCE, Handle, Message, Peer, Site, serving
from tests.test_races import ScriptedWire

from trio_mcp import Change, ErrorCode, Limits, LocalBus, Server, connect
from trio_mcp.handlers.changes import Deliver
from trio_mcp.runtime.jsonrpc import Request
from trio_mcp.transports.channel import BATCH
from trio_mcp.transports.serving import ServerConnection

WIRES: list[type[Site]] = [
    Stdio,
    Tcp,
    Memory,
    WebSocket,
    NativeHttp,
    HypercornHttp1,
    HypercornHttp2,
]
CHANNELS = ("stdio", "tcp", "memory", "websocket")
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
UPDATED = "notifications/resources/updated"
EVERYTHING: Message = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["shop://a", "shop://b"],
}


@pytest.fixture(params=WIRES, ids=lambda kind: kind.name)
def wire(request: pytest.FixtureRequest) -> type[Site]:
    kind: type[Site] = request.param
    return kind


async def listen(peer: Peer, wanted: Message, request_id: Any = AUTO) -> Handle:
    """A subscription that has been acknowledged."""
    params = {"notifications": wanted}
    handle = await peer.start("subscriptions/listen", params, request_id=request_id)
    assert (await handle.notified())[0]["method"] == ACKNOWLEDGED
    return handle


async def end_of(handle: Handle) -> Message:
    """The answer, and the end of its stream where it has one for itself."""
    answer = await handle.answer()
    if handle.peer.site.name not in CHANNELS:
        with trio.fail_after(PATIENCE):
            await handle.over.wait()
    return answer


def granted(handle: Handle) -> Message:
    """What the acknowledgement says."""
    filter_: Message = handle.notifications[0]["params"]["notifications"]
    return filter_


def told(messages: list[Message]) -> list[str]:
    """What was told of, in order: URIs, and the kinds of lists."""
    return [
        message["params"]["uri"]
        if message["method"] == UPDATED
        else message["method"].split("/")[1]
        for message in messages
        if message["method"] != ACKNOWLEDGED
    ]


# On every wire ------------------------------------------------------------------------------------


async def test_the_acknowledgement_has_what_the_server_honours(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        handle = await listen(peer, EVERYTHING)
        assert granted(handle) == EVERYTHING
        part = await listen(peer, {"toolsListChanged": True, "promptsListChanged": False})
        assert granted(part) == {"toolsListChanged": True}
        twice = await listen(peer, {"resourceSubscriptions": ["shop://a", "shop://a"], "x": 1})
        assert granted(twice) == {"resourceSubscriptions": ["shop://a"]}
        assert granted(await listen(peer, {})) == {}


async def test_changes_come_to_those_who_want_them_with_their_own_id(wire: type[Site]) -> None:
    """Two ids that differ in their type only, and one that has nothing to hear of."""
    async with serving(wire) as site:
        peer = await site.connect()
        number = await listen(peer, {"toolsListChanged": True}, 1)
        text = await listen(peer, {"resourceSubscriptions": ["shop://a"]}, "1")
        other = await listen(peer, {"promptsListChanged": True}, 0)
        await peer.ask("touch", uris=["shop://a", "shop://elsewhere"])
        await peer.ask("restock", kind="tools")
        await peer.ask("restock", kind="resources")
        await peer.ask("touch", uris=["shop://a"])
        assert told(await number.notified(2)) == ["tools"]
        assert told(await text.notified(3)) == ["shop://a", "shop://a"]
        await peer.ask("restock", kind="prompts")
        assert told(await other.notified(2)) == ["prompts"]
        await peer.probe()
        for handle in (number, text, other):
            ids = [message["params"]["_meta"][SUBSCRIPTION] for message in handle.notifications]
            assert all(same_id(found, handle.id) for found in ids)
        assert [len(h.notifications) for h in (number, text, other)] == [2, 3, 2]


@pytest.mark.parametrize("request_id", ["", "é", -(2**53) - 1, "x" * 4096], ids=repr)
async def test_any_id_names_its_subscription(wire: type[Site], request_id: Any) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        handle = await listen(peer, EVERYTHING, request_id)
        await peer.ask("touch", uris=["shop://b"])
        update = (await handle.notified(2))[1]
        assert same_id(update["params"]["_meta"][SUBSCRIPTION], request_id)


async def test_a_cancelled_subscription_is_silent_and_forgotten(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer, changer = await site.connect(), None
        handle = await listen(peer, EVERYTHING)
        other = await listen(peer, EVERYTHING)
        await handle.cancel()
        await site.until(lambda sight: sight.listeners == 1 + 5)
        changer = await site.connect() if site.many_peers else peer
        await changer.ask("touch", uris=["shop://a"])
        assert told(await other.notified(2)) == ["shop://a"]
        assert len(handle.notifications) == 1
        record = await site.record_of(handle)
        assert (record["state"], record["source"]) == ("CANCELLED", site.cancel_source)
        assert (record["target"], record["cleanup"]) == (
            "tools, prompts, resources, 2 URIs",
            "clean",
        )


async def test_a_peer_that_is_gone_is_forgotten(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        handles = [await listen(peer, EVERYTHING) for _ in range(3)]
        await peer.disconnect()
        await site.until(lambda sight: sight.listeners == 0)
        for handle in handles:
            record = await site.record_of(handle)
            assert (record["state"], record["source"]) == ("CANCELLED", "DISCONNECT")


async def test_a_peer_that_closes_its_side_is_forgotten_and_hears_nothing(wire: type[Site]) -> None:
    async with serving(wire) as site:
        peer = await site.connect()
        handle = await listen(peer, EVERYTHING)
        await peer.aclose()
        await site.until(lambda sight: sight.listeners == 0)
        assert (await site.record_of(handle))["source"] == "DISCONNECT"
        assert (handle.answered, handle.after) == (False, [])


async def test_a_drain_ends_subscriptions_at_once_with_their_result(wire: type[Site]) -> None:
    """The drain has an hour: nobody waits for it. Channels say that it is over once more."""
    async with serving(wire, drain=3600) as site:
        peer = await site.connect()
        handles = [await listen(peer, EVERYTHING, id_) for id_ in (7, "7")]
        await peer.ask("touch", uris=["shop://a"])
        await site.shut_down()
        for handle in handles:
            result = (await end_of(handle))["result"]
            assert same_id(result["_meta"][SUBSCRIPTION], handle.id)
            assert result["resultType"] == "complete"
            assert told(handle.notifications) == ["shop://a"]
            record = await site.record_of(handle)
            assert (record["state"], record["changes_sent"]) == ("COMPLETED", 1)
        await peer.aclose()
        for handle in handles:
            assert (handle.farewell is not None) == (site.name in CHANNELS)
            if handle.farewell is not None:
                assert same_id(handle.farewell["params"]["requestId"], handle.id)


async def test_others_finish_while_a_drain_has_ended_the_subscriptions(wire: type[Site]) -> None:
    async with serving(wire, drain=30) as site:
        peer = await site.connect()
        handle = await listen(peer, EVERYTHING)
        work = await peer.call("gated", label="work")
        await site.begun("work")
        await site.shut_down()
        await end_of(handle)
        assert not work.answered
        await site.open_gate()
        assert "result" in await work.answer()
        assert work.farewell is None


class Stopped(Hypercorn):
    """Hypercorn that is stopped without a word to the application."""

    async def _serve(self, task_status: trio.TaskStatus[int]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            config = self._config(Path(folder))
            config.graceful_timeout = 0.1
            async with trio.open_nursery() as nursery:
                run = partial(
                    serve,
                    self.server.asgi(),  # type: ignore[arg-type]
                    config,
                    shutdown_trigger=self.stopping.wait,
                    mode="asgi",
                )
                (bound,) = await nursery.start(run)
                task_status.started(int(bound.rpartition(":")[2]))


class StoppedHttp1(Stopped, HypercornHttp1):
    pass


class StoppedHttp2(Stopped, HypercornHttp2):
    pass


@pytest.mark.parametrize("kind", [StoppedHttp1, StoppedHttp2])
async def test_hypercorn_that_is_stopped_ends_subscriptions_with_their_result(
    kind: type[Site],
) -> None:
    """Over HTTP/2 it takes its own writer down first, and nothing gets through any more."""
    async with serving(kind) as site:
        peer = await site.connect()
        handle = await listen(peer, EVERYTHING)
        await site.shut_down()
        if kind is StoppedHttp1:
            assert "result" in await end_of(handle)
        await site.until(lambda sight: sight.listeners == 0)
        record = await site.record_of(handle)
        assert record["state"] == "COMPLETED"


async def test_a_subscription_that_a_drain_meets_before_it_has_begun_ends_too() -> None:
    server, wire = Offering("shop", version="1", limits=Limits(drain=3600)), ScriptedWire()
    connection = ServerConnection(server._core, wire, None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        await trio.testing.wait_all_tasks_blocked()
        connection._on_message(
            Request(1, "subscriptions/listen", request(1, "", {"notifications": {}})["params"]), 0.0
        )
        for exchange in connection._exchanges.values():
            exchange.drain()  # its task has been started, and not run yet
        await trio.testing.wait_all_tasks_blocked()
        assert [m.get("id") for m in written(wire)] == [None, 1, None]
        wire.hang_up()


async def test_what_cannot_be_a_filter_is_refused(wire: type[Site]) -> None:
    wrong: list[Any] = [
        {},
        {"notifications": None},
        {"notifications": []},
        {"notifications": {"toolsListChanged": "yes"}},
        {"notifications": {"resourceSubscriptions": "shop://a"}},
        {"notifications": {"resourceSubscriptions": [7]}},
        {"notifications": {"resourceSubscriptions": ["shop://a"] * 4}},
    ]
    async with serving(wire, subscribed_resources=3) as site:
        peer = await site.connect()
        for params in wrong:
            handle = await peer.start("subscriptions/listen", params)
            error = await handle.error()
            assert error["code"] == ErrorCode.INVALID_PARAMS
            assert handle.notifications == []
        assert "4 URIs, more than the server's limit subscribed_resources=3" in error["message"]
        await listen(peer, {"resourceSubscriptions": ["shop://a"] * 3})
        await peer.aclose()
        for handle in peer.handles:
            assert handle.farewell is None


async def test_the_acknowledgement_comes_first_while_all_is_changing(wire: type[Site]) -> None:
    """Whoever changes something does so all the time; ``peers/checked`` looks at the order."""
    async with serving(wire) as site:
        peer = await site.connect()
        changer = await site.connect() if site.many_peers else peer
        handles = []
        for _ in range(10):
            uris = ["shop://a", "shop://b"] * 50
            touching = [await changer.call("touch", uris=uris) for _ in range(3)]
            params = {"notifications": EVERYTHING}
            handles.append(await peer.start("subscriptions/listen", params))
            touching += [await changer.call("touch", uris=uris) for _ in range(3)]
            for handle in touching:
                await handle.answer()
        await changer.ask("touch", uris=["shop://b", "shop://a"])
        for handle in handles:
            assert (await handle.notified(3))[0]["method"] == ACKNOWLEDGED


# What is honoured ---------------------------------------------------------------------------------


async def test_a_server_grants_only_what_it_offers() -> None:
    """More URIs than are allowed are no matter where none are honoured."""
    server = Server("tools only", version="1", limits=Limits(subscribed_resources=1))
    async with checked_client(server) as peer:
        await peer.send(request(1, "subscriptions/listen", {"notifications": EVERYTHING}))
        message = await peer.receive()
        assert message["params"]["notifications"] == {"toolsListChanged": True}
        server.notify_resource_updated("shop://a")
        server._changed("prompts")
        server.tool(name="new")(lambda: None)
        assert (await peer.receive())["method"] == "notifications/tools/list_changed"
        await peer.send(cancel(1))


async def test_tools_that_come_and_go_are_told_of_but_for_those_before_serving() -> None:
    bus = RememberingBus()
    server = Server("shop", version="1", bus=bus)
    server.tool(name="early")(lambda: None)
    assert bus.published == []
    async with checked_client(server) as peer:
        await peer.send(
            request(1, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        )
        await peer.receive()
        for change in (
            lambda: server.tool(name="late")(lambda: None),
            lambda: server.remove_tool("early"),
        ):
            change()
            assert (await peer.receive())["method"] == "notifications/tools/list_changed"
        with pytest.raises(ValueError, match="already"):
            server.tool(name="late")(lambda: None)
        with pytest.raises(KeyError):
            server.remove_tool("early")
        await peer.send(cancel(1))
    assert bus.published == [Change("tools"), Change("tools")]


# Coalescing ---------------------------------------------------------------------------------------


def written(wire: ScriptedWire) -> list[Message]:
    return [message for what, message in wire.log if what == "written"]


async def test_changes_to_a_peer_that_does_not_read_wait_once_each_in_their_order() -> None:
    server, wire = Offering("shop", version="1"), ScriptedWire()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_wire, wire)
        wire.feed(request(1, "subscriptions/listen", {"notifications": EVERYTHING}))
        wire.feed(request(2, "subscriptions/listen", {"notifications": EVERYTHING}))
        await trio.testing.wait_all_tasks_blocked()
        wire.stop_taking()
        server.notify_resource_updated("shop://a")  # blocks the writer
        await trio.testing.wait_all_tasks_blocked()
        (connection,) = server._core.connections
        for _ in range(1000):
            server.notify_resource_updated("shop://b")
            server._changed("prompts")
            server.notify_resource_updated("shop://a")
            server._changed("tools")
            assert len(connection._channel._queue) <= 2  # type: ignore[attr-defined]
        subscriptions = list(server._subscriptions._live)
        assert [len(subscription._pending) for subscription in subscriptions] == [4, 4]
        del wire.log[:]
        wire.take_again()
        await trio.testing.wait_all_tasks_blocked()
        for request_id in (1, 2):
            own = [m for m in written(wire) if m["params"]["_meta"][SUBSCRIPTION] == request_id]
            assert told(own) == ["shop://b", "prompts", "shop://a", "tools"]
        wire.hang_up()
    for record in server.journal:
        assert (record.changes_sent, record.changes_coalesced) == (5, 4 * 999)


class HastyWire(ScriptedWire):
    """Something changes in the very moment in which an acknowledgement goes out."""

    def __init__(self, server: Offering) -> None:
        super().__init__()
        self._server = server

    async def send(self, frames: list[bytes], moved: Callable[[], None]) -> None:
        if any(ACKNOWLEDGED.encode() in frame for frame in frames):
            self._server._changed("tools")
        await super().send(frames, moved)


async def test_what_changes_as_the_acknowledgement_goes_out_is_told() -> None:
    server = Offering("shop", version="1")
    wire = HastyWire(server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_wire, wire)
        for request_id in range(20):
            params = {"notifications": {"toolsListChanged": True}}
            wire.feed(request(request_id, "subscriptions/listen", params))
            await trio.testing.wait_all_tasks_blocked()
            newest = [m for m in written(wire) if m["params"]["_meta"][SUBSCRIPTION] == request_id]
            assert told(newest) == ["tools"]
        wire.hang_up()


async def test_listeners_with_much_to_hear_take_turns_with_each_other_and_with_answers() -> None:
    server, wire = Offering("shop", version="1"), ScriptedWire()
    uris = [f"shop://{number}" for number in range(1000)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_wire, wire)
        for request_id in (1, 2):
            wire.feed(
                request(
                    request_id,
                    "subscriptions/listen",
                    {"notifications": {"resourceSubscriptions": uris}},
                )
            )
        await trio.testing.wait_all_tasks_blocked()
        del wire.log[:]
        for uri in uris:
            server.notify_resource_updated(uri)
        wire.feed(request(3, "server/discover"))
        await trio.testing.wait_all_tasks_blocked()
        order = [m.get("id") or m["params"]["_meta"][SUBSCRIPTION] for m in written(wire)]
        assert order.index(3) < 1000
        assert [id_ for id_ in order if id_ != 3] in ([1, 2] * 1000, [2, 1] * 1000)
        wire.hang_up()


async def test_a_drain_says_what_is_pending_before_the_result() -> None:
    server, wire = Offering("shop", version="1", limits=Limits(drain=30)), ScriptedWire()
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def serve() -> None:
            with scope:
                await server.serve_wire(wire)

        nursery.start_soon(serve)
        wire.feed(request(1, "subscriptions/listen", {"notifications": EVERYTHING}))
        await trio.testing.wait_all_tasks_blocked()
        wire.stop_taking()
        for uri in ("shop://a", "shop://b"):
            server.notify_resource_updated(uri)
        server._changed("tools")
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel("drain")
        await trio.testing.wait_all_tasks_blocked()
        assert len(server._subscriptions) == 0
        server._changed("prompts")  # is no news for who is leaving
        wire.take_again()
    acknowledgement, *changes, answer, farewell = written(wire)
    assert acknowledgement["method"] == ACKNOWLEDGED
    assert told(changes) == ["shop://a", "shop://b", "tools"]
    assert answer["result"]["_meta"][SUBSCRIPTION] == 1
    assert farewell["params"]["requestId"] == 1


async def test_a_drain_past_its_limit_answers_with_an_error(
    mock_clock: trio.testing.MockClock,
) -> None:
    """Who reads too slowly is told, in the end, that not all has been said."""
    server, wire = Offering("shop", version="1", limits=Limits(drain=2)), ScriptedWire()
    uris = [letter * BATCH for letter in "abcd"]  # a write for each
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def serve() -> None:
            with scope:
                await server.serve_wire(wire)

        nursery.start_soon(serve)
        wanted = {"resourceSubscriptions": uris}
        wire.feed(request(1, "subscriptions/listen", {"notifications": wanted}))
        await trio.testing.wait_all_tasks_blocked()
        wire.stop_taking()
        for uri in uris:
            server.notify_resource_updated(uri)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel("drain")
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(1.9)
        wire.take_again()
        wire.stop_taking()  # the first write goes through, the second waits
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(0.2)
        await trio.testing.wait_all_tasks_blocked()
        wire.take_again()
    acknowledgement, *changes, answer, farewell = written(wire)
    assert acknowledgement["method"] == ACKNOWLEDGED
    assert told(changes) == uris[:2]
    assert answer["error"]["code"] == ErrorCode.SHUTTING_DOWN
    assert farewell["params"]["requestId"] == 1
    (record,) = server.journal
    assert record.state.name == "CANCELLED"
    assert len(server._subscriptions) == 0


async def test_invariant_2_a_cancel_between_the_result_and_the_farewell_drops_it() -> None:
    """A result ends a write; its farewell waits for the next one."""
    server, wire = Offering("shop", version="1", limits=Limits(drain=30)), ScriptedWire()
    scope = trio.CancelScope()
    long_id = "x" * 8180

    async def serve() -> None:
        with scope:
            await server.serve_wire(wire)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        ids = [f"{long_id}{number}" for number in range(20)]
        for request_id in ids:
            wire.feed(request(request_id, "subscriptions/listen", {"notifications": {}}))
        await trio.testing.wait_all_tasks_blocked()
        wire.stop_taking()
        scope.cancel("drain")
        await trio.testing.wait_all_tasks_blocked()
        answered = [m["id"] for m in written(wire) if "id" in m]
        left = [
            m["params"]["requestId"]
            for m in written(wire)
            if m.get("method", "")[14:] == "cancelled"
        ]
        assert answered
        assert set(left) < set(answered)
        for request_id in ids:
            wire.feed(cancel(request_id))
        await trio.testing.wait_all_tasks_blocked()
        before = len(wire.log)
        wire.take_again()
    assert [what for what, _ in wire.log[before:]].count("written") == 0


# From threads, and before anybody listens ---------------------------------------------------------


async def test_a_change_that_nobody_listens_for_leaves_nothing() -> None:
    server = Offering("shop", version="1")
    server.notify_resource_updated("shop://a")
    thread = threading.Thread(target=server.notify_resource_updated, args=("shop://a",))
    thread.start()
    await trio.to_thread.run_sync(thread.join)
    async with raw_client(server) as peer:
        await peer.send(request(1, "subscriptions/listen", {"notifications": EVERYTHING}))
        assert (await peer.receive())["method"] == ACKNOWLEDGED
        await trio.to_thread.run_sync(server.notify_resource_updated, "shop://unwatched")
        assert server._subscriptions._posted == {}
        await peer.silence(0.05)


async def test_threads_change_in_order_and_what_waits_for_the_loop_is_bounded() -> None:
    """The event loop is kept busy by a thread that holds it; then it hears of each once."""
    server = Offering("shop", version="1")
    seen: list[int] = []

    def change_much() -> None:
        for _ in range(10_000):
            for uri in ("shop://b", "shop://a"):
                server.notify_resource_updated(uri)
            seen.append(len(server._subscriptions._posted))

    async with checked_client(server) as peer:
        await peer.send(request(1, "subscriptions/listen", {"notifications": EVERYTHING}))
        await peer.receive()
        thread = threading.Thread(target=change_much)
        thread.start()
        thread.join()  # the loop stands still meanwhile
        assert set(seen) == {2}
        assert told([await peer.receive(), await peer.receive()]) == ["shop://b", "shop://a"]
        await peer.silence(0.05)
        assert server._subscriptions._posted == {}
        await peer.send(cancel(1))


async def test_threads_that_change_while_the_loop_runs_lose_nothing() -> None:
    server = Offering("shop", version="1")
    state = {f"shop://{number}": 0 for number in range(20)}
    seen: dict[str, int] = {}

    def change_much(own: list[str]) -> None:
        for _ in range(300):
            for uri in own:
                state[uri] += 1
                server.notify_resource_updated(uri)

    async with checked_client(server) as peer:
        wanted = {"resourceSubscriptions": list(state)}
        await peer.send(request(1, "subscriptions/listen", {"notifications": wanted}))
        await peer.receive()

        async def hear() -> None:
            with trio.fail_after(10):
                while seen != state:
                    uri = (await peer.receive())["params"]["uri"]
                    seen[uri] = state[uri]

        async with trio.open_nursery() as nursery:
            for start in range(4):
                own = list(state)[start::4]
                nursery.start_soon(trio.to_thread.run_sync, change_much, own)
            nursery.start_soon(hear)
        assert set(state.values()) == {300}
        await peer.send(cancel(1))


# The bus ------------------------------------------------------------------------------------------


class ListBus:
    """A bus that only remembers, until it is told to deliver."""

    def __init__(self) -> None:
        self.published: list[Change] = []
        self.receivers: list[Deliver] = []

    def attach(self, deliver: Deliver) -> None:
        self.receivers.append(deliver)

    def publish(self, change: Change) -> None:
        self.published.append(change)


class RememberingBus(LocalBus):
    def __init__(self) -> None:
        super().__init__()
        self.published: list[Change] = []

    def publish(self, change: Change) -> None:
        self.published.append(change)
        super().publish(change)


async def test_servers_on_one_bus_tell_each_others_listeners_once() -> None:
    bus = LocalBus()
    left, right = Offering("left", version="1", bus=bus), Offering("right", version="1", bus=bus)
    async with checked_client(left) as one, checked_client(right) as two:
        for peer in (one, two):
            await peer.send(request(1, "subscriptions/listen", {"notifications": EVERYTHING}))
            await peer.receive()
        left.notify_resource_updated("shop://a")
        right._changed("tools")
        for peer in (one, two):
            assert told([await peer.receive(), await peer.receive()]) == ["shop://a", "tools"]
            await peer.silence(0.02)
            await peer.send(cancel(1))


async def test_a_bus_of_ones_own_decides_when_changes_are_delivered() -> None:
    bus = ListBus()
    server = Offering("shop", version="1", bus=bus)
    (deliver,) = bus.receivers
    async with checked_client(server) as peer:
        await peer.send(request(1, "subscriptions/listen", {"notifications": EVERYTHING}))
        await peer.receive()
        server.notify_resource_updated("shop://a")
        await peer.silence(0.02)
        for change in bus.published:
            sent = msgspec.json.encode(attrs.asdict(change))
            await trio.to_thread.run_sync(deliver, Change(**msgspec.json.decode(sent)))
        assert told([await peer.receive()]) == ["shop://a"]
        await peer.send(cancel(1))


@pytest.mark.parametrize(
    ("kind", "uri", "error"),
    [
        ("tool", None, ValueError),
        ("tools", "shop://a", ValueError),
        ("resource", None, TypeError),
        ("resource", b"shop://a", TypeError),
        (None, None, ValueError),
    ],
)
def test_what_is_no_change_is_refused(kind: Any, uri: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Change(kind, uri)


def test_a_resource_is_named_by_a_string() -> None:
    with pytest.raises(TypeError, match="uri must be a string, not int"):
        Server("shop", version="1").notify_resource_updated(7)  # type: ignore[arg-type]


# Looking inside -----------------------------------------------------------------------------------


async def test_a_subscription_is_no_idle_connection_and_is_kept_alive_over_http() -> None:
    limits: dict[str, Any] = {"http_idle_time": 0.05, "http_keep_alive": 0.05, "http_silence": 0.05}
    async with serving(NativeHttp, **limits) as site:
        peer = await site.connect()
        handle = await listen(peer, EVERYTHING)
        await trio.sleep(0.3)
        changer = await site.connect()
        await changer.ask("touch", uris=["shop://a"])
        assert told(await handle.notified(2)) == ["shop://a"]


async def test_the_scope_tree_shows_what_is_listened_for() -> None:
    server = Offering("shop", version="1")
    async with raw_client(server) as peer:
        await peer.send(request(1, "subscriptions/listen", {"notifications": EVERYTHING}))
        await peer.send(request(2, "subscriptions/listen", {"notifications": {}}))
        await peer.send(
            request(
                3, "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a\nb"]}}
            )
        )
        await until(lambda: len(server._subscriptions) == 3)
        labels = [scope.label for scope in server.scopes().walk()][2:]
        assert labels == [
            "subscriptions/listen tools, prompts, resources, 2 URIs",
            "subscriptions/listen nothing",
            "subscriptions/listen 1 URI",
        ]


async def test_invariant_9_what_a_subscription_remembers_counts_against_its_connection() -> None:
    server = Offering("shop", version="1", limits=Limits(bytes_per_connection=1_000_000))
    uris = [f"a:{number}" for number in range(1000)]
    wanted = {"notifications": {"resourceSubscriptions": uris}}
    async with checked_client(server) as peer:
        await peer.send(request(1, "subscriptions/listen", wanted))
        assert (await peer.receive())["method"] == "notifications/subscriptions/acknowledged"
        await peer.send(request(2, "subscriptions/listen", wanted))
        error = (await peer.answer(2))["error"]
        assert error["code"] == ErrorCode.OVERLOADED
        assert error["data"]["retryAfterMs"] > 0
        await peer.send(cancel(1))
        await until(lambda: not server._subscriptions)
        await peer.send(request(3, "subscriptions/listen", wanted))
        assert (await peer.receive())["method"] == "notifications/subscriptions/acknowledged"
        await peer.send(cancel(3))
    assert len(server._subscriptions) == 0


# Lists that the application knows have changed ----------------------------------------------------


async def test_files_that_come_are_told_by_who_knows(tmp_path: Path) -> None:
    """From a thread as from the loop, once each; a directory by itself tells nothing."""
    server = Server("files", version="1")
    server.add_directory(tmp_path, uri="docs:///")

    def write(name: str) -> None:
        (tmp_path / name).write_text("x")
        server.notify_list_changed("resources")

    async with (
        connect(server) as client,
        client.listen(tools=True, resources_list=True) as changes,
    ):
        news = aiter(changes)
        await trio.to_thread.run_sync(write, "a.md")
        assert (await anext(news)).kind == "resources"
        assert [file.uri async for file in client.resources()] == ["docs:///a.md"]
        server.notify_list_changed("tools")
        assert (await anext(news)).kind == "tools"


def test_there_are_three_lists() -> None:
    server = Server("s", version="1")
    with pytest.raises(ValueError, match='a list is "tools", "prompts" or "resources"'):
        server.notify_list_changed("resource")  # type: ignore[arg-type]
