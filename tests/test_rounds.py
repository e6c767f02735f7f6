"""Requests that take several rounds, server side: asked on raw wires, answered by hand.

Every message of the server is held against the official schema, and every question against what the
client says that it can do.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import gc
import logging
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import attrs
import msgspec
import pytest
import trio
import trio.lowlevel
import trio.testing
from tests.peers.asking import EVERYTHING, Asked, ChannelClient, accept, asking
from tests.peers.checked import checked_process
from tests.peers.inspection import record_of
from tests.peers.raw import call, cancel, raw_client, request, until
from tests.test_races import ScriptedWire

from trio_mcp import (
    CancelSource,
    Context,
    Elicit,
    Elicited,
    ElicitUrl,
    ErrorCode,
    InputRequired,
    Limits,
    Principal,
    ProtocolError,
    RequestHead,
    Roots,
    Sample,
    Server,
    State,
    TextContent,
    Tool,
    ToolError,
)
from trio_mcp.handlers.input.rounds import HandlerRound
from trio_mcp.runtime.dispatch import Method
from trio_mcp.runtime.models.base import PaginatedRequestParams
from trio_mcp.runtime.models.content import ToolResultContent, ToolUseContent
from trio_mcp.runtime.models.roots import Root
from trio_mcp.runtime.models.sampling import (
    CreateMessageResult,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
)

WIRES = ["channel", "http"]
SAID = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"}
DECLINED = {"action": "decline"}


@attrs.frozen
class Name:
    name: Annotated[str, msgspec.Meta(min_length=1)]


YES = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def made(**options: Any) -> Server:
    return Server("asks", version="1", **options)


def asker(server: Server, *keys: str) -> list[str]:
    """A tool ``several`` that asks one after the other; what it was called for, each time."""
    ran: list[str] = []

    @server.tool
    async def several(ctx: Context, what: str = "") -> str:
        """Ask one after the other."""
        ran.append(what)
        answers = [await ctx.elicit(key, f"{key}?", Name) for key in keys]
        return " ".join(answer.content.name if answer.content else "-" for answer in answers)

    return ran


# One question -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_a_form_is_asked_and_the_handler_is_run_again_with_its_content(wire: str) -> None:
    server = made()
    seen: list[Any] = []

    @server.tool
    async def greet(ctx: Context, greeting: str) -> str:
        """Greet somebody."""
        seen.append("run")
        answer = await ctx.elicit("who", "Who are you?", Name)
        seen.append(answer)
        return f"{greeting}, {answer.content.name}" if answer.content else "nobody"

    async with asking(server, wire) as client:
        asked = await client.ask("greet", {"greeting": "Ahoy"})
        assert asked.questions == {
            "who": {
                "mode": "form",
                "message": "Who are you?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "minLength": 1}},
                    "required": ["name"],
                },
            }
        }
        again = {"state": asked.state, "who": accept(name="Bo", other="is ignored")}
        assert await client.text("greet", {"greeting": "Ahoy"}, **again) == "Ahoy, Bo"
        assert seen == ["run", "run", Elicited("accept", Name("Bo"))]
        assert seen[-1].accepted
    first, second = server.journal
    assert (first.state, first.asked, second.asked) == (State.COMPLETED, ("who",), ())
    assert "asked for who" in first.describe()


@pytest.mark.parametrize("action", ["decline", "cancel"])
@pytest.mark.parametrize("kind", ["form", "url"])
async def test_a_user_may_decline_or_cancel(action: str, kind: str) -> None:
    server = made()

    @server.tool
    async def tell(ctx: Context) -> str:
        """Tell what the user did."""
        if kind == "form":
            return repr(await ctx.elicit("q", "?", YES))
        return repr(await ctx.elicit_url("q", "?", "https://example.com/login"))

    async with asking(server) as client:
        asked = await client.ask("tell")
        for content in ({}, {"content": None}, {"content": {"ok": "garbage"}}):
            text = await client.text("tell", state=asked.state, q={"action": action, **content})
            assert text == repr(Elicited(action))  # type: ignore[arg-type]


async def test_a_page_is_asked_for() -> None:
    server = made()

    @server.tool
    async def login(ctx: Context) -> str:
        """Log in."""
        answer = await ctx.elicit_url("page", "Log in there.", "https://example.com/a?b=c#d")
        assert answer.content is None
        return answer.action

    async with asking(server) as client:
        asked = await client.ask("login")
        assert asked.questions == {
            "page": {
                "mode": "url",
                "message": "Log in there.",
                "url": "https://example.com/a?b=c#d",
            }
        }
        assert await client.text("login", state=asked.state, page=accept(junk=1)) == "accept"


@pytest.mark.parametrize("wire", WIRES)
async def test_a_model_is_asked(wire: str) -> None:
    server = made()
    heard: list[CreateMessageResult] = []

    @server.tool
    async def plain(ctx: Context) -> str:
        """Ask simply."""
        heard.append(await ctx.sample("q", "Capital of France?", max_tokens=10))
        return heard[-1].model

    @server.tool
    async def full(ctx: Context) -> str:
        """Ask with everything."""
        answer = await ctx.sample(
            "q",
            [SamplingMessage("user", TextContent("Weather?"))],
            max_tokens=100,
            system_prompt="Be brief.",
            model_preferences=ModelPreferences([ModelHint("claude")], speed_priority=0.5),
            temperature=0.1,
            stop_sequences=("END",),
            tools=(Tool("weather", {"type": "object"}),),
            tool_choice=ToolChoice("auto"),
            include_context="thisServer",
            metadata={"x": 1},
        )
        return str(answer.stop_reason)

    async with asking(server, wire) as client:
        asked = await client.ask("plain")
        content = {"type": "text", "text": "Capital of France?"}
        assert asked.questions["q"] == {
            "messages": [{"role": "user", "content": content}],
            "maxTokens": 10,
        }
        assert await client.text("plain", state=asked.state, q=SAID) == "m"
        assert heard == [CreateMessageResult("assistant", TextContent("Paris"), "m")]
        asked = await client.ask("full")
        assert asked.questions["q"] == {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Weather?"}}],
            "maxTokens": 100,
            "systemPrompt": "Be brief.",
            "modelPreferences": {"hints": [{"name": "claude"}], "speedPriority": 0.5},
            "temperature": 0.1,
            "stopSequences": ["END"],
            "tools": [{"name": "weather", "inputSchema": {"type": "object"}}],
            "toolChoice": {"mode": "auto"},
            "includeContext": "thisServer",
            "metadata": {"x": 1},
        }
        again = {**SAID, "stopReason": "toolUse"}
        assert await client.text("full", state=asked.state, q=again) == "toolUse"


async def test_roots_are_asked_for() -> None:
    server = made()
    heard: list[list[Root]] = []

    @server.tool
    async def where(ctx: Context) -> str:
        """Ask for roots."""
        heard.append(await ctx.roots())
        return "ok"

    async with asking(server) as client:
        asked = await client.ask("where")
        assert asked.result["inputRequests"] == {"roots": {"method": "roots/list"}}
        roots = {"roots": [{"uri": "file:///a", "name": "A"}]}
        assert await client.text("where", state=asked.state, roots=roots) == "ok"
        assert heard == [[Root("file:///a", "A")]]


# Several questions --------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_several_questions_travel_together_and_only_what_is_missing_is_asked_again(
    wire: str,
) -> None:
    server = made()

    @server.tool
    async def plan(ctx: Context) -> str:
        """Ask for much at once."""
        answers = await ctx.ask(
            {"name": Elicit("Name?", Name), "city": Sample("City?", 10), "roots": Roots()}
        )
        return f"{answers['name'].content} {answers['city'].model} {len(answers['roots'])}"

    async with asking(server, wire) as client:
        asked = await client.ask("plan")
        assert [*asked.questions] == ["name", "city", "roots"]
        asked = await client.ask("plan", state=asked.state, city=SAID)
        assert [*asked.questions] == ["name", "roots"]
        asked = await client.ask("plan", state=asked.state)
        assert [*asked.questions] == ["name", "roots"]
        asked = await client.ask("plan", state=asked.state, roots={"roots": []})
        assert [*asked.questions] == ["name"]
        text = await client.text("plan", state=asked.state, name=accept(name="Bo"))
        assert text == "Name(name='Bo') m 0"


async def test_an_answer_is_kept_though_the_handler_did_not_come_to_it() -> None:
    server = made()
    more: list[str] = []

    @server.tool
    async def both(ctx: Context) -> str:
        """Ask two things, and a third between them."""
        if not more:
            await ctx.ask({"a": Elicit("a?", YES), "b": Elicit("b?", YES)})
        found = [(await ctx.elicit(key, f"{key}?", YES)).action for key in ["a", *more, "b"]]
        return " ".join(found)

    async with asking(server) as client:
        asked = await client.ask("both")
        more.append("x")
        asked = await client.ask("both", state=asked.state, a=accept(ok=True), b=DECLINED)
        assert [*asked.questions] == ["x"]
        text = await client.text("both", state=asked.state, x={"action": "cancel"})
        assert text == "accept cancel decline"


async def test_an_answer_of_an_earlier_round_cannot_be_changed() -> None:
    server = made()
    asker(server, "a", "b")
    async with asking(server) as client:
        asked = await client.ask("several")
        asked = await client.ask("several", state=asked.state, a=accept(name="first"))
        again = {"state": asked.state, "a": accept(name="second"), "b": accept(name="b")}
        assert await client.text("several", **again) == "first b"
        # Not even by garbage.
        assert await client.text("several", **{**again, "a": 5}) == "first b"


@pytest.mark.parametrize("tool", ["given", "typed", "inside"])
async def test_a_handler_may_change_its_arguments_before_it_asks(tool: str) -> None:
    server = made()

    async def given(arguments: dict[str, Any], ctx: Context) -> str:
        titles = arguments.pop("titles")
        titles.append("Emma")
        return f"{titles} {(await ctx.elicit('ok', 'All of them?', YES)).action}"

    async def typed(titles: Any, ctx: Context) -> str:
        return await given({"titles": titles}, ctx)

    async def inside(titles: list[Any], ctx: Context) -> str:
        titles[0].append("Emma")
        return f"{titles[0]} {(await ctx.elicit('ok', 'All of them?', YES)).action}"

    server.add_tool(given, input_schema={"type": "object"})
    server.add_tool(typed)
    server.add_tool(inside)
    titles: list[Any] = [["Dune"]] if tool == "inside" else ["Dune"]
    async with asking(server) as client:
        asked = await client.ask(tool, {"titles": titles})
        text = await client.text(tool, {"titles": titles}, state=asked.state, ok=accept(ok=True))
        assert text == "['Dune', 'Emma'] accept"


async def test_a_handler_may_change_the_answer_it_got() -> None:
    server = made()
    choices = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
    seen: list[Any] = []

    @server.tool
    async def choose(ctx: Context) -> str:
        first = await ctx.elicit("what", "Which?", {"type": "object", "properties": {"x": choices}})
        assert first.content is not None
        seen.append([*first.content["x"]])
        first.content["x"].append("no choice")
        again = await ctx.elicit("what", "Which?", {"type": "object", "properties": {"x": choices}})
        assert again.content == {"x": ["a"]}
        return (await ctx.elicit("ok", "Sure?", YES)).action

    async with asking(server) as client:
        asked = await client.ask("choose")
        asked = await client.ask("choose", state=asked.state, what=accept(x=["a"]))
        assert [*asked.questions] == ["ok"]
        assert await client.text("choose", state=asked.state, ok=accept(ok=True)) == "accept"
    assert seen == [["a"], ["a"]]


async def test_an_earlier_answer_that_fits_no_more_is_asked_for_again() -> None:
    server = made()
    form: list[Any] = [YES]

    @server.tool
    async def changing(ctx: Context) -> str:
        """The question changes, as when a new version is deployed."""
        answer = await ctx.elicit("a", "?", form[0])
        await ctx.elicit("b", "?", YES)
        return repr(answer.content)

    async with asking(server) as client:
        asked = await client.ask("changing")
        asked = await client.ask("changing", state=asked.state, a=accept(ok=True))
        form[0] = Name
        asked = await client.ask("changing", state=asked.state, b=accept(ok=True))
        assert [*asked.questions] == ["a"]
        text = await client.text("changing", state=asked.state, a=accept(name="Bo"))
        assert text == "Name(name='Bo')"


async def test_what_tasks_of_one_handler_ask_is_merged() -> None:
    server = made()
    cleaned: list[str] = []

    @server.tool
    async def children(ctx: Context, own: bool) -> str:
        """Ask in tasks."""
        found: dict[str, Any] = {}

        async def ask(key: str) -> None:
            try:
                found[key] = (await ctx.elicit(key, "?", YES)).content
            finally:
                with ctx.cleanup(1):
                    await trio.lowlevel.checkpoint()
                cleaned.append(key)

        async def deeper(*keys: str) -> None:
            async with trio.open_nursery() as nursery:
                for key in keys:
                    nursery.start_soon(ask, key)

        if own:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, "a")
                nursery.start_soon(deeper, "b", "c")
                await trio.sleep_forever() if not cleaned else None
        else:
            ctx.nursery.start_soon(ask, "a")
            ctx.nursery.start_soon(deeper, "b", "c")
            await ctx.elicit("d", "?", YES)
        return repr(found)

    async with asking(server) as client:
        asked = await client.ask("children", {"own": True})
        assert {*asked.questions} <= {"a", "b", "c"}
        assert "a" in asked.questions
        answers = dict.fromkeys(["a", "b", "c", "d"], accept(ok=True))
        assert "'c': {'ok': True}" in await client.text("children", {"own": True}, **answers)
        asked = await client.ask("children", {"own": False})
        assert "d" in asked.questions


async def test_questions_asked_in_the_same_moment_are_one_round() -> None:
    server = made()

    @server.tool
    async def together(ctx: Context) -> str:
        """Ask in two tasks, and nowhere else."""
        ready = trio.Event()

        async def ask(key: str) -> None:
            await ready.wait()
            await ctx.elicit(key, "?", YES)

        for key in ("a", "b"):
            ctx.nursery.start_soon(ask, key)
        async with trio.open_nursery() as nursery:
            for key in ("c", "d"):
                nursery.start_soon(ask, key)
            await trio.testing.wait_all_tasks_blocked()
            ready.set()
        return "all answered"

    async with asking(server) as client:
        asked = await client.ask("together")
        assert {*asked.questions} == {"a", "b", "c", "d"}
        assert set(next(iter(server.journal)).asked) == {"a", "b", "c", "d"}
        answers = dict.fromkeys("abcd", accept(ok=True))
        assert await client.text("together", state=asked.state, **answers) == "all answered"


@pytest.mark.parametrize("who", ["child", "handler", "own nursery", "group"])
@pytest.mark.parametrize("error", [ValueError("oops"), ToolError("no"), ProtocolError(7, "x")])
async def test_a_real_failure_beside_a_question_wins(who: str, error: Exception) -> None:
    server = made()

    @server.tool
    async def fails(ctx: Context) -> None:
        """Ask and fail."""
        ready = trio.Event()

        async def fail() -> None:
            await ready.wait()
            raise error

        async def ask() -> None:
            await ready.wait()
            await ctx.elicit("q", "?", YES)

        if who == "own nursery":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                nursery.start_soon(fail)
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                ready.set()
        if who == "group":
            raise BaseExceptionGroup("", [InputRequired({}), ExceptionGroup("", [error])])
        ctx.nursery.start_soon(fail if who == "child" else ask)
        await trio.testing.wait_all_tasks_blocked()
        ready.set()
        if who == "handler":
            raise error
        await ctx.elicit("q", "?", YES)

    async with asking(server) as client:
        message = await client.call("fails")
        if isinstance(error, ToolError):
            assert message["result"]["isError"] is True
        else:
            code = error.code if isinstance(error, ProtocolError) else ErrorCode.INTERNAL_ERROR
            assert message["error"]["code"] == code
    (record,) = server.journal
    assert record.asked == ()


# Unwinding ----------------------------------------------------------------------------------------


async def test_except_exception_does_not_swallow_a_question_and_finally_may_await() -> None:
    server = made()
    steps: list[str] = []

    @server.tool
    async def careless(ctx: Context) -> str:
        """Catch everything that is an Exception."""
        try:
            try:
                await ctx.elicit("q", "?", YES)
            except Exception:
                steps.append("swallowed")
            return "asked"
        finally:
            await trio.sleep(0.01)
            steps.append("cleaned up")

    async with asking(server) as client:
        asked = await client.ask("careless")
        assert steps == ["cleaned up"]
        assert await client.text("careless", state=asked.state, q=DECLINED) == "asked"


async def test_asking_is_a_checkpoint_where_it_returns() -> None:
    server = made()

    @server.tool
    async def checks(ctx: Context) -> str:
        """Ask, and be watched."""
        with trio.testing.assert_checkpoints():
            await ctx.elicit("q", "?", YES)
        with trio.testing.assert_checkpoints():
            await ctx.ask({})
        with trio.move_on_after(0) as scope:
            await ctx.elicit("q", "?", YES)
        return f"cancelled {scope.cancelled_caught}"

    async with asking(server) as client:
        assert await client.text("checks", q=accept(ok=True)) == "cancelled True"


@pytest.mark.parametrize("wire", WIRES)
async def test_a_function_in_a_thread_asks(wire: str) -> None:
    server = made()
    steps: list[str] = []

    @server.tool
    def threaded(ctx: Context) -> str:
        """Ask from a thread."""
        ctx.state["runs"] = ctx.state.get("runs", 0) + 1
        try:
            try:
                first = trio.from_thread.run(ctx.elicit, "a", "?", Name)
            except Exception as error:
                steps.append(f"swallowed {error!r}")
                raise
            second = trio.from_thread.run(functools.partial(ctx.sample, "b", "?", max_tokens=1))
        finally:
            steps.append("cleaned up")
        assert first.content is not None
        return f"{first.content.name} {second.model} {ctx.state['runs']}"

    async with asking(server, wire) as client:
        asked = await client.ask("threaded")
        asked = await client.ask("threaded", state=asked.state, a=accept(name="Bo"))
        assert [*asked.questions] == ["b"]
        assert await client.text("threaded", state=asked.state, b=SAID) == "Bo m 3"
        assert steps == ["cleaned up"] * 3
    assert [record.state for record in server.journal] == [State.COMPLETED] * 3


async def test_a_thread_that_is_cancelled_while_it_cleans_up_from_a_question() -> None:
    server = made()
    begun, go = trio.Event(), trio.Event()

    @server.tool
    def threaded(ctx: Context) -> None:
        """Ask, and take a while to clean up."""
        try:
            trio.from_thread.run(ctx.elicit, "a", "?", YES)
        finally:
            trio.from_thread.run_sync(begun.set)
            trio.from_thread.run(go.wait)

    async with raw_client(server) as peer:
        await peer.send(call_asking(1, "threaded"))
        await begun.wait()
        await peer.send(cancel(1))
        await trio.testing.wait_all_tasks_blocked()
        go.set()
        await until(lambda: len(server.journal) == 1)
        await peer.silence(0.05)
    record = record_of(server, 1)
    assert record.state is State.CANCELLED
    assert record.cleanup == "clean"
    assert [late.kind for late in record.late] == ["result"]
    assert record.asked == ()


def call_asking(request_id: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    message = call(request_id, tool, **arguments)
    message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = EVERYTHING
    return message


async def test_a_cancellation_while_it_unwinds_from_a_question_wins() -> None:
    server = made()
    begun, go = trio.Event(), trio.Event()

    @server.tool
    async def slow(ctx: Context) -> None:
        """Ask, and take a while to clean up."""
        try:
            await ctx.elicit("a", "?", YES)
        finally:
            with ctx.cleanup(5):
                begun.set()
                await go.wait()

    async with raw_client(server) as peer:
        await peer.send(call_asking(1, "slow"))
        await begun.wait()
        await peer.send(cancel(1, "changed my mind"))
        await trio.testing.wait_all_tasks_blocked()
        go.set()
        await until(lambda: len(server.journal) == 1)
        await peer.silence(0.05)
    record = record_of(server, 1)
    assert (record.state, record.cleanup, record.error) == (State.CANCELLED, "clean", None)
    assert [late.kind for late in record.late] == ["result"]


async def test_a_question_that_waits_in_the_writer_is_not_written_after_a_cancel() -> None:
    server, wire = made(), ScriptedWire()
    asker(server, "a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_wire, wire)
        wire.stop_taking()
        wire.feed(call(1, "nobody"))
        await until(lambda: "written" in dict(wire.log))
        wire.feed(call_asking(2, "several"))
        await trio.testing.wait_all_tasks_blocked()
        wire.feed(cancel(2))
        await trio.testing.wait_all_tasks_blocked()
        wire.take_again()
        await trio.testing.wait_all_tasks_blocked()
        wire.hang_up()
    assert [m["id"] for what, m in wire.log if what == "written"] == [1]
    record = record_of(server, 2)
    assert (record.state, record.asked) == (State.CANCELLED, ())
    assert [late.kind for late in record.late] == ["result"]


async def test_a_deadline_while_it_unwinds_from_a_question_wins(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = made()

    @server.tool(timeout=2)
    async def slow(ctx: Context) -> None:
        """Ask, and take too long to clean up."""
        try:
            await ctx.elicit("a", "?", YES)
        finally:
            await trio.sleep(5)

    async with asking(server) as client:
        error = await client.error("slow")
        assert error["code"] == ErrorCode.DEADLINE_EXCEEDED
    (record,) = server.journal
    assert record.cause is not None
    assert record.cause.source is CancelSource.DEADLINE


async def test_progress_is_told_before_the_question() -> None:
    server = made()

    @server.tool
    async def works(ctx: Context) -> None:
        """Report, then ask."""
        for n in range(3):
            ctx.progress(n)
        await ctx.elicit("a", "?", YES)

    async with asking(server) as client:
        message = client.message("works")
        message["params"]["_meta"]["progressToken"] = "t"
        Asked(await client.say(message))
        heard = [m["params"]["progress"] for m in client.peer.seen if "method" in m]
        assert heard[-1] == 2


async def test_an_input_required_result_has_no_output_schema_and_no_error_flag() -> None:
    server = made()

    @server.tool
    async def stock(ctx: Context) -> dict[str, int]:
        """Structured."""
        await ctx.elicit("a", "?", YES)
        return {"Dune": 3}

    async with asking(server) as client:
        asked = await client.ask("stock")
        assert asked.result.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
        message = await client.call("stock", state=asked.state, a=accept(ok=True))
        assert message["result"]["structuredContent"] == {"Dune": 3}


# State --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_what_a_handler_puts_into_its_state_is_there_in_the_next_round(wire: str) -> None:
    server = made()

    @server.tool
    async def counts(ctx: Context) -> str:
        """Remember."""
        ctx.state.setdefault("seen", []).append(len(ctx.state["seen"]))
        for key in ("a", "b"):
            await ctx.elicit(key, "?", YES)
        return repr(ctx.state)

    async with asking(server, wire) as client:
        asked = await client.ask("counts")
        asked = await client.ask("counts", state=asked.state, a=accept(ok=True))
        text = await client.text("counts", state=asked.state, b=accept(ok=True))
        assert text == repr({"seen": [0, 1, 2]})
        # Another request begins with nothing.
        assert await client.text("counts", a=DECLINED, b=DECLINED) == repr({"seen": [0]})


async def test_a_state_that_is_no_json_is_told_to_the_programmer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = made()

    @server.tool
    async def odd(ctx: Context) -> None:
        """Remember what cannot be."""
        ctx.state["when"] = datetime.date(2026, 1, 1)
        await ctx.elicit("a", "?", YES)

    async with asking(server) as client:
        assert (await client.error("odd"))["code"] == ErrorCode.INTERNAL_ERROR
    assert "ctx.state cannot be remembered: its entry 'when' is" in caplog.text
    assert "a date" in caplog.text


async def test_bounds_of_a_question_are_told_to_the_programmer() -> None:
    server = made(limits=Limits(questions=2, request_state_bytes=2000))

    @server.tool
    async def many(ctx: Context, n: int, size: int) -> None:
        """Ask n things, and remember size bytes."""
        ctx.state["x"] = "x" * size
        await ctx.ask({f"q{i}": Elicit("?", YES) for i in range(n)})

    async with asking(server) as client:
        await client.ask("many", {"n": 2, "size": 0})
        error = await client.error("many", {"n": 3, "size": 0})
        assert error["code"] == ErrorCode.INTERNAL_ERROR
        assert "3 questions" in error["message"]
        assert "questions=2" in error["message"]
        error = await client.error("many", {"n": 1, "size": 2000})
        assert "request_state_bytes=2000" in error["message"]


async def test_a_client_that_never_comes_back_costs_nothing() -> None:
    server = made(limits=Limits(journal_records=1))
    asker(server, "a", "b")
    async with asking(server) as client:
        for n in range(50):
            asked = await client.ask("several", {"what": str(n)})
            await client.ask("several", {"what": str(n)}, state=asked.state, a=accept(name="x"))
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        rounds = [left for left in gc.get_objects() if isinstance(left, HandlerRound)]
        assert not [left for left in rounds if left._exchange.core is server._core]
        assert server._core.inflight == 0


# Answers ------------------------------------------------------------------------------------------


async def test_answers_without_a_state_count_and_keys_that_nobody_asks_for_are_ignored() -> None:
    server = made()
    ran = asker(server, "a", "b")
    async with asking(server) as client:
        junk: dict[str, Any] = {"zz": 5, "": None, "x" * 10_000: [[[]]]}
        asked = await client.ask("several", a=accept(name="Bo"), **junk)
        assert [*asked.questions] == ["b"]
        text = await client.text("several", state=asked.state, b=accept(name="Al"), **junk)
        assert text == "Bo Al"
        assert len(ran) == 2


BAD_FORMS: list[Any] = [
    None,
    5,
    "accept",
    [],
    [accept(name="x")],
    {},
    {"action": None},
    {"action": "ok"},
    {"action": "ACCEPT"},
    {"action": ["accept"]},
    {"action": "accept"},
    {"action": "accept", "content": None},
    {"action": "accept", "content": []},
    {"action": "accept", "content": "x"},
    accept(),
    accept(name=None),
    accept(name=5),
    accept(name=""),
    accept(name=["x"]),
    accept(name={"$ref": "#"}),
    {"name": "x"},
    SAID,
]


@pytest.mark.parametrize("bad", BAD_FORMS, ids=repr)
async def test_a_malformed_answer_is_refused_and_the_state_is_still_good(bad: Any) -> None:
    server = made()
    asker(server, "who")
    async with asking(server) as client:
        asked = await client.ask("several")
        error = await client.error("several", state=asked.state, who=bad)
        assert error["code"] == ErrorCode.INVALID_PARAMS
        assert error["message"].startswith("Invalid params: inputResponses.who: ")
        assert len(error["message"]) < 500
        text = await client.text("several", state=asked.state, who=accept(name="Bo"))
        assert text == "Bo"


@pytest.mark.parametrize(
    ("tool", "bad"),
    [
        ("model", {}),
        ("model", {**SAID, "role": "system"}),
        ("model", {**SAID, "content": "Paris"}),
        ("model", {**SAID, "model": None}),
        ("model", accept()),
        ("roots", {}),
        ("roots", {"roots": None}),
        ("roots", {"roots": [5]}),
        ("roots", {"roots": [{"uri": "https://example.com"}]}),
        ("page", {"action": "yes"}),
    ],
)
async def test_malformed_answers_of_models_roots_and_pages(tool: str, bad: Any) -> None:
    server = made()

    @server.tool
    async def model(ctx: Context) -> None:
        await ctx.sample("q", "?", max_tokens=1)

    @server.tool
    async def roots(ctx: Context) -> None:
        await ctx.roots("q")

    @server.tool
    async def page(ctx: Context) -> None:
        await ctx.elicit_url("q", "?", "https://example.com")

    async with asking(server) as client:
        error = await client.error(tool, q=bad)
        assert error["code"] == ErrorCode.INVALID_PARAMS
        assert "inputResponses.q: " in error["message"]


@pytest.mark.parametrize("bad", [5, [], "x", True])
async def test_input_responses_are_an_object_and_a_state_is_a_string(bad: Any) -> None:
    server = made()
    ran = asker(server, "a")
    async with asking(server) as client:
        for name in ("inputResponses", "requestState"):
            if name == "requestState" and isinstance(bad, str):
                continue
            message = client.message("several")
            message["params"][name] = bad
            error = (await client.say(message))["error"]
            assert error["code"] == ErrorCode.INVALID_PARAMS
            assert name in error["message"]
        assert ran == []


# Capabilities -------------------------------------------------------------------------------------


FORM: dict[str, Any] = {"elicitation": {"form": {}}}
URL: dict[str, Any] = {"elicitation": {"url": {}}}


@pytest.mark.parametrize(
    ("tool", "can", "missing"),
    [
        ("form", {}, FORM),
        ("form", URL, FORM),
        ("form", {"elicitation": {}}, None),
        ("form", FORM, None),
        ("page", {}, URL),
        ("page", {"elicitation": {}}, URL),
        ("page", FORM, URL),
        ("page", URL, None),
        ("model", {}, {"sampling": {}}),
        ("model", {"sampling": {}}, None),
        ("tools", {"sampling": {}}, {"sampling": {"tools": {}}}),
        ("tools", {}, {"sampling": {"tools": {}}}),
        ("tools", {"sampling": {"tools": {}}}, None),
        ("choice", {"sampling": {}}, {"sampling": {"tools": {}}}),
        ("context", {"sampling": {"tools": {}}}, {"sampling": {"context": {}}}),
        ("context", {"sampling": {"context": {}}}, None),
        ("no context", {"sampling": {}}, None),
        ("roots", {}, {"roots": {}}),
        ("roots", {"roots": {}}, None),
        ("all", {}, {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}),
        ("all", {**FORM, "roots": {}}, {"elicitation": {"url": {}}, "sampling": {}}),
    ],
)
async def test_a_client_is_not_asked_for_what_it_cannot_do(
    tool: str, can: dict[str, Any], missing: dict[str, Any] | None
) -> None:
    server = made()
    questions: dict[str, Any] = {
        "form": Elicit("?", YES),
        "page": ElicitUrl("?", "https://example.com"),
        "model": Sample("?", 1),
        "tools": Sample("?", 1, tools=[]),
        "choice": Sample("?", 1, tool_choice=ToolChoice("none")),
        "context": Sample("?", 1, include_context="allServers"),
        "no context": Sample("?", 1, include_context="none"),
        "roots": Roots(),
    }

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        four = {key: questions[key] for key in ("form", "page", "model", "roots")}
        return repr(await ctx.ask(four if tool == "all" else {"q": questions[tool]}))

    async with asking(server) as client:
        client.can = can
        message = await client.call("ask")
        if missing is None:
            assert message["result"]["resultType"] == "input_required"
            return
        error = message["error"]
        assert error["code"] == ErrorCode.MISSING_CLIENT_CAPABILITY
        assert error["data"] == {"requiredCapabilities": missing}
        assert next(iter(missing)) in error["message"]
    (record,) = server.journal
    assert record.asked == ()


async def test_a_handler_can_look_at_the_capabilities_or_catch_the_refusal() -> None:
    server = made()

    @server.tool
    async def polite(ctx: Context) -> str:
        """Ask only who can be asked."""
        if ctx.client_capabilities.elicitation is None:
            try:
                await ctx.elicit("a", "?", YES)
            except ProtocolError as error:
                return f"not asked: {error.code}"
        return "asked"

    async with asking(server) as client:
        client.can = {}
        assert await client.text("polite") == "not asked: -32021"


# Questions that are none --------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "#f00"
    BLUE = "#00f"


@dataclasses.dataclass
class Order:
    title: str
    copies: Annotated[int, msgspec.Meta(ge=1, le=9, description="How many")] = 1
    price: float | None = None
    gift: bool = False
    colour: Colour = Colour.RED
    size: Literal["s", "m"] | None = None
    extras: list[Literal["bow", "card"]] = dataclasses.field(default_factory=list)
    day: datetime.date | None = None
    mail: Annotated[str, msgspec.Meta(extra_json_schema={"format": "email"})] = "a@example.com"
    titled: Annotated[
        Literal["x", "y"],
        msgspec.Meta(
            extra_json_schema={
                "oneOf": [{"const": "x", "title": "X"}, {"const": "y", "title": "Y"}]
            }
        ),
    ] = "x"


class Ticket(TypedDict):
    seat: int
    name: NotRequired[str]


class Struct(msgspec.Struct):
    a: set[Colour]


async def test_a_class_becomes_a_form_of_what_forms_can_have_and_its_content_an_object() -> None:
    server = made()
    heard: list[Any] = []

    @server.tool
    async def order(ctx: Context) -> None:
        """Ask with a rich form."""
        heard.append((await ctx.elicit("q", "?", Order)).content)
        heard.append((await ctx.elicit("t", "?", Ticket)).content)
        heard.append((await ctx.elicit("s", "?", Struct)).content)

    async with asking(server) as client:
        asked = await client.ask("order")
        schema = asked.questions["q"]["requestedSchema"]
        assert schema == {
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "copies": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 9,
                    "description": "How many",
                    "default": 1,
                },
                "price": {"type": "number"},
                "gift": {"type": "boolean", "default": False},
                "colour": {"type": "string", "enum": ["#f00", "#00f"], "default": "#f00"},
                "size": {"type": "string", "enum": ["m", "s"]},
                "extras": {
                    "type": "array",
                    "items": {"type": "string", "enum": ["bow", "card"]},
                    **({"default": []} if "default" in schema["properties"]["extras"] else {}),
                },
                "day": {"type": "string", "format": "date"},
                "mail": {"type": "string", "format": "email", "default": "a@example.com"},
                "titled": {
                    "type": "string",
                    "oneOf": [{"const": "x", "title": "X"}, {"const": "y", "title": "Y"}],
                    "default": "x",
                },
            },
            "required": ["title"],
        }
        content = accept(title="Dune", copies=2.0, extras=["bow"], day="2026-01-31", colour="#00f")
        asked = await client.ask("order", state=asked.state, q=content)
        again = {"t": accept(seat=1), "s": accept(a=["#f00", "#00f"])}
        await client.call("order", state=asked.state, **again)
        day = datetime.date(2026, 1, 31)
        expected = Order("Dune", 2, colour=Colour.BLUE, extras=["bow"], day=day)
        assert heard[-3:] == [expected, {"seat": 1}, Struct({Colour.RED, Colour.BLUE})]
        assert type(heard[-3].copies) is int
        for bad in ({"mail": "x"}, {"extras": ["no"]}, {"day": "soon"}, {"copies": 10}):
            error = await client.error("order", q=accept(title="Dune", **bad))
            assert error["code"] == ErrorCode.INVALID_PARAMS
            assert next(iter(bad)) in error["message"]


async def test_a_json_schema_is_a_form_and_what_it_does_not_name_is_dropped() -> None:
    server = made()
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "url": {"type": "string", "format": "uri", "title": "Address"},
            "kind": {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]},
            "some": {
                "type": "array",
                "maxItems": 1,
                "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]},
            },
        },
        "required": ["url"],
    }

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask with a schema."""
        return repr((await ctx.elicit("q", "?", schema)).content)

    async with asking(server) as client:
        asked = await client.ask("ask")
        published = asked.questions["q"]["requestedSchema"]
        assert published["properties"] == schema["properties"]
        content = {"url": "https://a.b", "some": ["a"]}
        text = await client.text("ask", state=asked.state, q=accept(**content, evil={"x": []}))
        assert text == repr(content)
        for bad in ({"url": "no uri"}, {"kind": "c"}, {"some": ["a", "b"]}, {"some": ["c"]}):
            error = await client.error("ask", q=accept(**{**content, **bad}))
            assert error["code"] == ErrorCode.INVALID_PARAMS


def form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@attrs.frozen
class Nested:
    inner: Name


@attrs.frozen
class Many:
    names: list[str]


@attrs.frozen
class Nullable:
    name: str | None


@attrs.frozen
class Patterned:
    name: Annotated[str, msgspec.Meta(pattern="^a")]


@attrs.frozen
class Numbered:
    n: Literal[1, 2]


@attrs.frozen
class Timed:
    at: datetime.time


@attrs.frozen
class Anything:
    x: Any


USE = SamplingMessage("assistant", ToolUseContent("1", "t", {}))
RESULT = SamplingMessage("user", ToolResultContent("1", [TextContent("x")]))

NO_FORMS: list[Any] = [
    *(int, str, dict, list, None, "Name", list[Name], dict[str, int], complex, Any),
    *(Nested, Many, Nullable, Patterned, Numbered, Timed, Anything),
]
NO_URLS: list[Any] = [
    "",
    "example.com",
    "javascript:alert(1)",
    "file:///etc/passwd",
    "https://",
    "https://a b",
    "https://a\nb",
    "https://é.example",
    "https://me:pw@example.com",
    "https://[::1",
    "https://a:b",
]
NO_QUESTIONS: list[tuple[Any, str]] = [
    *[(Elicit("?", kind), "no form can be made") for kind in NO_FORMS],
    (Elicit("?", [Name]), "unhashable"),  # type: ignore[arg-type]
    (Elicit(5, YES), "message must be a text"),  # type: ignore[arg-type]
    (Elicit("?", {}), '"type": "object"'),
    (Elicit("?", {"type": "object"}), '"properties"'),
    (Elicit("?", {"type": "array", "properties": {}}), '"type": "object"'),
    (Elicit("?", {**form(), "additionalProperties": False}), "additionalProperties"),
    (Elicit("?", {**form(), "required": ["a"]}), '"required"'),
    (Elicit("?", {**form(), "x": {1, 2}, "y": float("nan")}), "no JSON"),
    (Elicit("?", form(a={})), "'a' is no text"),
    (Elicit("?", form(a=True)), "'a' is no text"),
    (Elicit("?", form(a={"type": "object"})), "flat"),
    (Elicit("?", form(a={"type": ["string", "null"]})), "'a' is no text"),
    (Elicit("?", form(a={"type": "string", "pattern": "x"})), "pattern"),
    (Elicit("?", form(a={"type": "string", "format": "password"})), "password"),
    (Elicit("?", form(a={"type": "string", "minLength": "x"})), "not valid"),
    (Elicit("?", form(a={"type": "integer", "default": "x"})), "default"),
    (Elicit("?", form(a={"type": "boolean", "default": 1})), "default"),
    (Elicit("?", form(a={"type": "string", "enum": []})), "choices"),
    (Elicit("?", form(a={"type": "string", "enum": [1]})), "choices"),
    (Elicit("?", form(a={"type": "string", "oneOf": [{"const": "a"}]})), "choices"),
    (Elicit("?", form(a={"type": "array"})), "list"),
    (Elicit("?", form(a={"type": "array", "items": {"type": "string"}})), "list"),
    *[(ElicitUrl("?", url), "url must") for url in NO_URLS],
    (ElicitUrl("?", 5), "url must"),  # type: ignore[arg-type]
    (Sample("?", 0), "max_tokens"),
    (Sample("?", True), "max_tokens"),
    (Sample([], 1), "messages"),
    (Sample(["x"], 1), "messages"),  # type: ignore[list-item]
    (Sample([USE], 1), "followed by its result"),
    (Sample([RESULT], 1), "followed by its result"),
    (Sample([USE, SamplingMessage("user", TextContent("x"))], 1), "followed by its result"),
    (
        Sample([USE, SamplingMessage("user", [RESULT.content, TextContent("x")])], 1),  # type: ignore[list-item]
        "nothing else",
    ),
    ("who?", "a question is"),
    (Elicit, "a question is"),
]


@pytest.mark.parametrize(("question", "words"), NO_QUESTIONS, ids=lambda it: repr(it)[:60])
async def test_what_cannot_be_asked_is_refused_at_the_call(question: Any, words: str) -> None:
    server = made()

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask what cannot be asked."""
        try:
            await ctx.ask({"q": question})
        except (TypeError, ValueError) as error:
            return str(error)
        raise AssertionError

    async with asking(server) as client:
        assert words in await client.text("ask")


async def test_tool_use_with_its_results_can_be_asked() -> None:
    server = made()

    @server.tool
    async def ask(ctx: Context) -> None:
        """Continue a conversation."""
        await ctx.sample("q", [USE, RESULT], max_tokens=1, tools=[Tool("t", {"type": "object"})])

    async with asking(server) as client:
        asked = await client.ask("ask")
        assert [m["role"] for m in asked.questions["q"]["messages"]] == ["assistant", "user"]


@pytest.mark.parametrize("key", ["", None, 5])
async def test_a_key_is_a_text(key: Any) -> None:
    server = made()

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask under no key."""
        with pytest.raises(TypeError, match="key of a question"):
            await ctx.elicit(key, "?", YES)
        return "refused"

    async with asking(server) as client:
        assert await client.text("ask") == "refused"


async def test_a_key_stands_for_one_question() -> None:
    server = made()

    @server.tool
    async def ask(ctx: Context, same: bool) -> str:
        """Ask twice under one key."""
        first = await ctx.elicit("q", "?", YES)
        second = await ctx.elicit("q", "?" if same else "Really?", YES)
        return f"{first == second}"

    async with asking(server) as client:
        assert await client.text("ask", {"same": True}, q=accept(ok=True)) == "True"
        error = await client.error("ask", {"same": False}, q=accept(ok=True))
        assert error["code"] == ErrorCode.INTERNAL_ERROR


async def test_two_tasks_that_ask_differently_under_one_key_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = made()

    @server.tool
    async def ask(ctx: Context) -> None:
        """Ask twice under one key, in tasks."""
        for message in ("one", "two"):
            ctx.nursery.start_soon(ctx.elicit, "q", message, YES)

    async with asking(server) as client:
        assert (await client.error("ask"))["code"] == ErrorCode.INTERNAL_ERROR
    assert "the key 'q' stands for another question" in caplog.text


async def test_only_some_methods_may_ask() -> None:
    server = made()
    asker(server, "a")

    async def run(ctx: Context, params: Any) -> Any:
        for ask in (lambda: ctx.elicit("a", "?", YES), ctx.roots):
            with pytest.raises(RuntimeError, match=r"tools/list cannot ask.*tools/call"):
                await ask()
        with pytest.raises(RuntimeError, match="cannot ask"):
            _ = ctx.state
        raise ProtocolError(1, "refused")

    server._core.methods["tools/list"] = Method(PaginatedRequestParams, run)
    async with raw_client(server) as peer:
        await peer.send(request(1, "tools/list", {"requestState": "x", "inputResponses": {}}))
        assert (await peer.answer(1))["error"]["message"] == "refused"


async def test_the_signal_raised_by_hand_is_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    server = made()

    @server.tool
    async def forge() -> None:
        """Raise what only asking raises."""
        raise InputRequired({})

    async with asking(server) as client:
        assert (await client.error("forge"))["code"] == ErrorCode.INTERNAL_ERROR
    assert "raised by hand" in caplog.text


# The seal, on the wire ----------------------------------------------------------------------------


async def refused(client: Any, ran: list[str], *args: Any, **kwargs: Any) -> str:
    """The words of a refusal; the handler has not run."""
    before = len(ran)
    error = await client.error("several", *args, **kwargs)
    assert (error["code"], error.get("data")) == (ErrorCode.INVALID_PARAMS, None)
    assert len(ran) == before
    message: str = error["message"]
    return message


@pytest.mark.parametrize("wire", WIRES)
async def test_a_state_of_nobody_or_of_another_request_is_refused_before_the_handler_runs(
    wire: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trio_mcp.input")
    server = made(secret="s", limits=Limits(page_size=1))
    ran = asker(server, "a", "b")

    @server.tool
    async def other(ctx: Context, what: str = "") -> None:
        """Another tool with the same arguments."""
        await ctx.elicit("a", "?", Name)

    foreign = made(secret="another")
    asker(foreign, "a", "b")
    async with asking(foreign, wire) as client:
        theirs = (await client.ask("several", {"what": "x"})).state
    async with asking(server, wire) as client:
        state = (await client.ask("several", {"what": "x"})).state
        cursor = server._cursors.seal("tools", 1)
        elsewhere = (await client.ask("other", {"what": "x"})).state
        words = set()
        for bad in ("", "x", state[:-4], state[:20] + "A" + state[21:], state + "=", "é" * 9):
            words.add(await refused(client, ran, {"what": "x"}, state=bad, a=accept(name="x")))
        for bad in (theirs, cursor, elsewhere, "A" * 70_000):
            words.add(await refused(client, ran, {"what": "x"}, state=bad, a=accept(name="x")))
        for arguments in ({}, {"what": "y"}, {"what": "x", "more": None}):
            words.add(await refused(client, ran, arguments, state=state))
        assert len(words) == 1
        asked = await client.ask("several", {"what": "x"}, state=state, a=accept(name="x"))
        assert [*asked.questions] == ["b"]
    assert "it is for another request" in caplog.text
    assert "not one of ours" in caplog.text
    assert "too long" in caplog.text


async def test_the_order_of_arguments_and_the_metadata_do_not_matter() -> None:
    server = made()

    @server.tool
    async def two(ctx: Context, a: int, b: dict[str, int]) -> str:
        """Two arguments."""
        await ctx.elicit("q", "?", YES)
        return "ok"

    async with asking(server) as client:
        asked = await client.ask("two", {"a": 1, "b": {"x": 1, "y": 2}})
        message = client.message("two", {"b": {"y": 2, "x": 1}, "a": 1}, state=asked.state)
        message["params"]["inputResponses"] = {"q": accept(ok=True)}
        message["params"]["_meta"]["progressToken"] = 5
        message["params"]["_meta"]["com.example/trace"] = "x"
        assert (await client.say(message))["result"]["resultType"] == "complete"


async def test_a_state_is_good_for_who_has_got_it_only() -> None:
    server = made()
    ran = asker(server, "a")

    def who(head: RequestHead) -> Principal:
        return Principal(head.get("authorization") or "nobody")

    async with asking(server, "http", who) as client:
        client.headers = {"authorization": "alice"}
        state = (await client.ask("several")).state
        for other in ("bob", "Alice", "alice2"):
            client.headers = {"authorization": other}
            await refused(client, ran, state=state, a=accept(name="x"))
        client.headers = {"authorization": "alice"}
        assert await client.text("several", state=state, a=accept(name="Al")) == "Al"
    async with asking(server) as client:
        await refused(client, ran, state=state, a=accept(name="x"))


async def test_a_state_grows_too_old() -> None:
    server = made(limits=Limits(request_state_age=60))
    ran = asker(server, "a")
    now = 1_800_000_000.0
    server._rounds.states.now = lambda: now
    async with asking(server) as client:
        state = (await client.ask("several")).state
        now += 60
        assert await client.text("several", state=state, a=accept(name="Al")) == "Al"
        now += 1
        await refused(client, ran, state=state, a=accept(name="x"))
        now -= 200
        await refused(client, ran, state=state, a=accept(name="x"))


async def test_states_survive_a_restart_with_the_secret_and_a_change_of_it() -> None:
    async def state_of(secret: Any) -> str:
        server = made(secret=secret)
        asker(server, "a")
        async with asking(server) as client:
            return str((await client.ask("several")).state)

    old = await state_of("old")
    for secret, survives in (("old", True), (["new", b"old"], True), ("new", False), (None, False)):
        server = made(secret=secret)
        ran = asker(server, "a")
        async with asking(server) as client:
            if survives:
                assert await client.text("several", state=old, a=accept(name="Al")) == "Al"
            else:
                await refused(client, ran, state=old, a=accept(name="x"))


async def test_cursors_survive_a_change_of_the_secret() -> None:
    cursor = made(secret="old")._cursors.seal("tools", 1)
    assert made(secret=["new", "old"])._cursors.open("tools", cursor, int) == 1
    with pytest.raises(ProtocolError):
        made(secret="new")._cursors.open("tools", cursor, int)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_state_for_a_single_use_cannot_be_replayed(wire: str) -> None:
    server = made(single_use_state=True)
    ran = asker(server, "a", "b")
    async with asking(server, wire) as client:
        error = await client.error("several", a=accept(name="x"))
        assert error["code"] == ErrorCode.INVALID_PARAMS
        assert "requestState" in error["message"]
        first = await client.ask("several")
        second = await client.ask("several", state=first.state, a=accept(name="A"))
        await refused(client, ran, state=first.state, a=accept(name="other"))
        assert await client.text("several", state=second.state, b=accept(name="B")) == "A B"
        await refused(client, ran, state=second.state, b=accept(name="B"))


async def test_two_at_the_same_time_cannot_use_one_state_either() -> None:
    server = made(single_use_state=True)
    ran = asker(server, "a")
    async with asking(server) as client:
        state = (await client.ask("several")).state
        messages = [client.message("several", state=state, a=accept(name="x")) for _ in range(5)]
        await client.peer.send(*messages)
        answers = [await client.peer.answer(message["id"]) for message in messages]
        assert len([a for a in answers if "result" in a]) == 1
        assert len(ran) == 2


async def test_while_no_more_used_states_can_be_remembered_no_more_are_accepted() -> None:
    limits = Limits(single_use_states=1, request_state_age=100)
    server = made(single_use_state=True, limits=limits)
    ran = asker(server, "a", "b")
    now = 1_800_000_000.0
    server._rounds.states.now = lambda: now
    async with asking(server) as client:
        first, other = await client.ask("several"), await client.ask("several")
        await client.ask("several", state=first.state, a=accept(name="A"))
        error = await client.error("several", state=other.state, a=accept(name="A"))
        assert error["code"] == ErrorCode.OVERLOADED
        assert error["data"]["retryAfterMs"] > 0
        await refused(client, ran, state=first.state, a=accept(name="A"))
        now += 50
        late = await client.ask("several")
        now += 99
        await refused(client, ran, state=first.state, a=accept(name="A"))
        now += 1
        asked = await client.ask("several") if late is None else late
        now += 15
        await refused(client, ran, state=asked.state, a=accept(name="A"))
        fresh = await client.ask("several")
        await client.ask("several", state=fresh.state, a=accept(name="A"))


def test_the_clock_is_the_systems() -> None:
    before = datetime.datetime.now(datetime.UTC).timestamp()
    assert before <= made()._rounds.states.now() <= before + 60


# The example --------------------------------------------------------------------------------------


async def test_the_example_asks_over_real_pipes() -> None:
    program = Path(__file__).parents[1] / "examples" / "asking_server.py"
    async with checked_process([sys.executable, str(program)]) as process:
        client = ChannelClient(process)
        dune = {"title": "Dune"}
        asked = await client.ask("order_book", dune)
        properties = asked.questions["delivery"]["requestedSchema"]["properties"]
        assert properties["day"] == {"type": "string", "format": "date"}
        delivery = accept(street="Elm 1", wrapping="box")
        asked = await client.ask("order_book", dune, state=asked.state, delivery=delivery)
        assert [*asked.questions] == ["confirmation"]
        sure = {"state": asked.state, "confirmation": accept(sure=True)}
        assert await client.text("order_book", dune, **sure) == "Order 1: 'Dune', wrapping: box."
        client.can = {}
        message = await client.call("order_book", dune)
        assert message["result"]["isError"] is True
