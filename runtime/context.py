"""What a handler sees of its request: ``ctx``."""

from __future__ import annotations

import functools
import inspect
import logging
import math
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import trio

from .lifecycle import CancelCause
from .logs import check_level
from .numbers import check_number
from .offload.subprocesses import Command, OnOutput, ProcessResult, run_command
from .progress import check_progress
from .questions import Elicit, Elicited, ElicitUrl, Question, Roots, Sample
from .tracing import TraceContext, read_trace

if TYPE_CHECKING:
    from .eras.base import RequestMetadata
    from .exchange import Exchange
    from .models.base import ClientCapabilities, Implementation, JSONObject, LoggingLevel
    from .models.roots import Root
    from .models.sampling import (
        CreateMessageResult,
        ModelPreferences,
        SamplingMessage,
        ToolChoice,
    )
    from .models.tools import Tool
    from .principal import Principal

__all__ = ["Context", "exchange_of"]

logger = logging.getLogger("trio_mcp.handler")

T = TypeVar("T")


class Context:
    """One request, as its handler sees it. Valid until the handler's nursery has closed.

    Declare a parameter of this type, with any name, in a handler; it is not part of the schema.
    """

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    # Cancellation -------------------------------------------------------------------------------

    @property
    def nursery(self) -> trio.Nursery:
        """The nursery of this request. What is started in it belongs to the request: it is
        cancelled with it, and the answer leaves when all of it has ended."""
        return self._exchange.nursery

    @property
    def cause(self) -> CancelCause | None:
        """Why this request is being cancelled; ``None`` while it is not."""
        return self._exchange.cause

    @property
    def deadline(self) -> float:
        """When the server's time limit cancels this request: Trio's clock, ``inf`` for never."""
        return self._exchange.deadline

    def check_cancelled(self) -> None:
        """In a plain ``def`` handler: raise ``trio.Cancelled`` once the request is cancelled.

        Call it between units of work, and let the exception pass; clean up in ``finally``. In an
        ``async def`` handler every ``await`` does this, so there it raises ``RuntimeError``.
        """
        if threading.get_ident() == self._exchange.core.thread:
            raise RuntimeError(
                "check_cancelled() is for threads; in async code use "
                "'await trio.lowlevel.checkpoint()'"
            )
        trio.from_thread.check_cancelled()

    def cleanup(self, seconds: float) -> Cleanup:
        """A shielded block with a time limit, for ``finally``: ``with ctx.cleanup(5): …``.

        Inside it awaits work although the request is cancelled. After ``seconds`` it is cancelled
        itself, execution goes on after the block, and the journal says ``timed out``. A block
        inside of another one ends with that at the latest. Threads and commands that it waits for
        then get their time to stop, which comes on top. Raises
        ``ValueError`` unless ``0 < seconds <= Limits.longest_cleanup``: no shield without a bound;
        and ``RuntimeError`` in a thread, which has nothing to await.
        """
        if threading.get_ident() != self._exchange.core.thread:
            raise RuntimeError(
                "cleanup() is for async code; in a thread, a plain 'finally' will do"
            )
        longest = self._exchange.core.limits.longest_cleanup
        check_number("cleanup(seconds)", seconds)
        if not (0 < seconds <= longest) or math.isnan(seconds):
            raise ValueError(
                f"cleanup(seconds) takes more than 0 and at most {longest:g} seconds "
                f"(Limits.longest_cleanup), not {seconds!r}"
            )
        return Cleanup(self._exchange, seconds)

    def on_exit(self, fn: Callable[..., object], *args: Any) -> None:
        """Call ``fn(*args)``, and await what it returns if that can be, when the request ends.

        However it ends: with a result, an error, questions, cancelled by whatever cause. That is
        once the handler and its children in :attr:`nursery` have ended, and before the answer
        leaves. The callbacks are called once each, the last first, in the event loop, shielded, and
        have ``Limits.cleanup`` seconds together; then what awaits is cancelled. What they raise is
        logged and recorded, keeps none of the others from being called, and does not change the
        answer. A request that is cancelled while they run is cancelled.

        Never waits, and works the same in threads. Raises ``TypeError`` for what cannot be called,
        ``RuntimeError`` once the request is over.
        """
        if not callable(fn):
            raise TypeError(f"on_exit() takes a function and its arguments, not {fn!r:.80}")
        self._exchange.on_exit(fn, args)

    # Work outside of the event loop -------------------------------------------------------------

    def run_sync(
        self,
        fn: Callable[..., T],
        *args: Any,
        interrupt: Callable[[], Any] | None = None,
        pool: str | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Run a plain function in a thread of the server's own: ``await ctx.run_sync(fn, *args)``.

        Cancelled, by the request's cancellation or by a scope around this call: while it waits for
        a free thread, ``fn`` never runs. While it runs, :meth:`check_cancelled` raises in it, and
        ``interrupt`` is called; ``fn`` has ``Limits.cleanup`` seconds to return, and is abandoned
        then: it keeps its thread until it really ends, listed in the scope tree. In each case
        ``trio.Cancelled`` is raised here, and what ``fn`` returned or raised is dropped.

        :param interrupt: makes ``fn`` return soon: ``sqlite3.Connection.interrupt``, a driver's
            cancel. Called in the event loop, so it must not block; awaited if it is async. It is
            called again, with growing pauses from ``Limits.interrupt_pause`` on, until ``fn``
            returns: so leave clean-up to a call of its own, in ``finally`` and ``ctx.cleanup``.
        :param pool: one of ``Server(pools=…)``; otherwise the server's ``Limits.threads``. In
            ``ctx.cleanup`` and after the cancellation there are as many threads again, for clean-up
            alone: it never waits behind those that make it necessary.

        Raises what ``fn`` raises; ``ValueError`` for a pool that there is not, ``TypeError`` for a
        function that is none, ``RuntimeError`` once the request is over, in a thread, and in a task
        that does not belong to the request.
        """
        exchange = self._check_place("run_sync")
        _check_plain("run_sync", fn)
        if interrupt is not None and not callable(interrupt):
            raise TypeError(f"interrupt is a function, not {interrupt!r:.80}")
        job = functools.partial(fn, *args)
        threads = exchange.core.pools.threads(pool)
        clean_up = _around.get() is not None or exchange.is_cancelled
        return threads.run(exchange, _name_of(fn), job, interrupt=interrupt, is_clean_up=clean_up)

    def run_in_process(self, fn: Callable[..., T], *args: Any) -> Coroutine[Any, Any, T]:
        """Run a plain function in a worker process: for Python that computes.

        ``fn``, its arguments and its result are pickled, as with ``multiprocessing``: ``fn`` is to
        be found by its name in a module. Cancelled, the worker is killed at once and another one
        takes its place; processes that ``fn`` has started are its own business. ``Limits.workers``
        of them run at once, further calls wait. Needs the extra ``cpu`` (``trio-parallel``).

        Raises what ``fn`` raises; ``RuntimeError`` without ``trio-parallel``, and once the request
        is over; its ``BrokenWorkerError`` if the worker died.
        """
        exchange = self._check_place("run_in_process")
        _check_plain("run_in_process", fn)
        return exchange.core.pools.workers.run(exchange, _name_of(fn), fn, *args)

    def run_process(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        input: bytes | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        on_stdout: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
        grace: float | None = None,
    ) -> Coroutine[Any, Any, ProcessResult]:
        """Run a command: ``await ctx.run_process(["git", "log"])``. No shell.

        It leads a process group of its own. When it exits, whatever it left running in that group
        is ended too; when this call is cancelled, all of it is: SIGTERM, ``grace`` seconds,
        SIGKILL. Only a process that has left the group on purpose escapes. What was done to it, and
        its exit status, is on the record of the request. ``Limits.processes`` commands run at once,
        further ones wait.

        :param input: what its standard input holds; that is empty without.
        :param env: all of its environment variables; ours without.
        :param check: raise ``subprocess.CalledProcessError`` unless it exits with 0; a note has the
            end of its standard error.
        :param on_stdout, on_stderr: called, and awaited if async, with each piece of output as it
            comes: bytes, cut anywhere. A slow one makes the command wait; what it raises ends the
            command, and is raised.
        :param grace: seconds; ``Limits.process_grace`` without.

        The last ``Limits.output_bytes`` bytes of each output are in the result. Raises
        ``OSError`` if the command cannot be started, ``TypeError`` or ``ValueError`` for what is
        no command, ``RuntimeError`` once the request is over.
        """
        exchange = self._check_place("run_process")
        limits = exchange.core.limits
        grace = grace if grace is not None else limits.process_grace
        check_number("grace", grace)
        if not 0 <= grace <= limits.longest_cleanup:
            raise ValueError(
                f"grace is 0 to {limits.longest_cleanup:g} seconds (Limits.longest_cleanup), "
                f"not {grace!r}"
            )
        options = Command.of(
            command,
            input,
            cwd=cwd,
            env=env,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            grace=grace,
            check=check,
        )
        return run_command(exchange, options)

    def _check_place(self, method: str) -> Exchange:
        """Raises ``RuntimeError`` where work would not stop with the request."""
        exchange = self._exchange
        if threading.get_ident() != exchange.core.thread:
            raise RuntimeError(
                f"{method}() is for async code: make the handler async def, and await it there"
            )
        if not exchange.owns(trio.lowlevel.current_task()):
            raise RuntimeError(
                f"{method}() was called by a task that does not belong to the request, and would "
                "not stop with it: call it in an async def handler, or start it in ctx.nursery"
            )
        return exchange

    # Speaking to the client ---------------------------------------------------------------------

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress. Never waits and is no checkpoint; works the same in threads.

        Sent only if the client gave a progress token; coalesced to one notification per
        ``Limits.progress_interval``, the newest value wins and the last one is always sent before
        the answer. A value that does not increase is dropped. Raises ``ValueError`` or
        ``TypeError`` for what is not a finite number (specification: *Progress*).
        """
        update = check_progress(progress, total, message)
        if threading.get_ident() == self._exchange.core.thread:
            self._exchange.report(update)
        else:
            self._exchange.post_report(update)

    def log(self, level: LoggingLevel, data: Any, *, logger: str | None = None) -> None:
        """Tell the client something, if its request asked for messages of this level.

        Never waits and is no checkpoint; works the same in threads. ``data`` is any JSON value;
        what JSON cannot hold is sent as its ``repr``. What the client has not read yet is kept up
        to ``Limits.log_bytes``, the newest. Raises ``ValueError`` for what is no level.

        Deprecated by the specification (*Logging*): new code logs to standard error, as
        :attr:`logger` does, or traces.
        """
        check_level(level)
        if self._exchange.logs is not None:
            self._exchange.logs.log(level, data, logger)

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """Logger ``trio_mcp.handler`` of the server's process; names the exchange in each line."""
        return _ExchangeLogger(logger, {"exchange": self._exchange.key})

    # Asking the client --------------------------------------------------------------------------

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask the client several things at once: ``{"name": Elicit(…), "where": Roots()}``.

        Returns the answers by the same keys. If one is missing, this raises
        :class:`~trio_mcp.InputRequired`, which unwinds the handler and is no ``Exception``: the
        request is answered with the questions, and when the client makes it again, the handler is
        **run again from its beginning** and gets what has been answered so far. So what comes
        before a question may happen several times. A key stands for one question of a request: ask
        again under another one.

        A checkpoint where it returns. If the request is cancelled, the questions are never sent. In
        a plain ``def`` handler: ``trio.from_thread.run(ctx.ask, questions)``.

        Raises ``ProtocolError`` -32021 if the client cannot be asked, see
        :attr:`client_capabilities`, and -32602 if what it answered is none; ``ValueError`` or
        ``TypeError`` for a question that is none, or two under one key; ``RuntimeError`` outside of
        tools, prompts and resources (specification: *Multi Round-Trip Requests*).
        """
        answers = self._exchange.core.round_of(self._exchange).ask(questions)
        await trio.lowlevel.checkpoint()
        return answers

    @overload
    async def elicit(self, key: str, message: str, schema_type: type[T]) -> Elicited[T]: ...

    @overload
    async def elicit(
        self, key: str, message: str, schema_type: Mapping[str, Any]
    ) -> Elicited[dict[str, Any]]: ...

    async def elicit(self, key: str, message: str, schema_type: Any) -> Any:
        """Ask the user to fill in a form; see :class:`~trio_mcp.Elicit` and :meth:`ask`."""
        return (await self.ask({key: Elicit(message, schema_type)}))[key]

    async def elicit_url(self, key: str, message: str, url: str) -> Elicited[None]:
        """Ask the user to visit a page; see :class:`~trio_mcp.ElicitUrl` and :meth:`ask`."""
        answer: Elicited[None] = (await self.ask({key: ElicitUrl(message, url)}))[key]
        return answer

    async def sample(
        self,
        key: str,
        messages: str | SamplingMessage | Sequence[SamplingMessage],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        model_preferences: ModelPreferences | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        tools: Sequence[Tool] | None = None,
        tool_choice: ToolChoice | None = None,
        include_context: Literal["none", "thisServer", "allServers"] | None = None,
        metadata: JSONObject | None = None,
    ) -> CreateMessageResult:
        """Ask the client's model; see :class:`~trio_mcp.Sample` and :meth:`ask`.

        Deprecated by the specification, and stays usable.
        """
        question = Sample(
            messages,
            max_tokens,
            system_prompt=system_prompt,
            model_preferences=model_preferences,
            temperature=temperature,
            stop_sequences=stop_sequences,
            tools=tools,
            tool_choice=tool_choice,
            include_context=include_context,
            metadata=metadata,
        )
        answer: CreateMessageResult = (await self.ask({key: question}))[key]
        return answer

    async def roots(self, key: str = "roots") -> list[Root]:
        """Ask for the client's roots; see :class:`~trio_mcp.Roots` and :meth:`ask`.

        Deprecated by the specification, and stays usable.
        """
        answer: list[Root] = (await self.ask({key: Roots()}))[key]
        return answer

    @property
    def state(self) -> dict[str, Any]:
        """What the handler remembers from one round of this request to the next: a dict of JSON
        values. It travels sealed through the client; see :meth:`ask`."""
        return self._exchange.core.round_of(self._exchange).state

    # The request --------------------------------------------------------------------------------

    @property
    def key(self) -> int:
        """The exchange's key in the journal and the scope tree."""
        return self._exchange.key

    @property
    def method(self) -> str:
        """Of the request: ``"tools/call"``, for one."""
        return self._exchange.request.method

    @property
    def request_id(self) -> str | int:
        """As it came; unique among what its connection has in flight, and not for longer."""
        return self._exchange.request.id

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's ``_meta`` as it came."""
        return self._metadata.raw

    @property
    def trace(self) -> TraceContext | None:
        """The trace that the request's ``_meta`` names, or ``None``: malformed counts as absent.

        Pass it on with ``client.call_tool(…, trace=ctx.trace)``. Not verified.
        """
        return read_trace(self._metadata.raw)

    @property
    def client_info(self) -> Implementation | None:
        """What the client says it is. Not verified: for display and logs only."""
        return self._metadata.client_info

    @property
    def principal(self) -> Principal | None:
        """Who the application's ``authenticate`` has found to be asking; ``None`` without one."""
        return self._exchange.principal

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client says, with this request, that it can be asked for; see :meth:`ask`."""
        return self._metadata.client_capabilities

    @property
    def protocol_version(self) -> str:
        """The revision that this request is of."""
        return self._metadata.protocol_version

    @property
    def _metadata(self) -> RequestMetadata:
        assert self._exchange.metadata is not None  # read before any handler runs
        return self._exchange.metadata


def _check_plain(method: str, fn: Any) -> None:
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutine(fn):
        raise TypeError(f"{method}() takes a plain function, not {fn!r:.80}: await that instead")
    if not callable(fn):
        raise TypeError(f"{method}() takes a plain function, not {fn!r:.80}")


def _name_of(fn: Callable[..., Any]) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__qualname__", None) or type(fn).__name__


def exchange_of(ctx: Context) -> Exchange:
    """The exchange behind a context; for the modules that implement MCP's features."""
    return ctx._exchange


_around: ContextVar[Cleanup | None] = ContextVar("trio_mcp_cleanup", default=None)
"""The innermost clean-up block of a task. Tasks inherit it, but for them it is none of their own.
"""


class Cleanup:
    """See :meth:`Context.cleanup`."""

    __slots__ = ("_around", "_deadline", "_exchange", "_scope", "_seconds", "_task")

    def __init__(self, exchange: Exchange, seconds: float) -> None:
        self._exchange = exchange
        self._seconds = seconds

    def __enter__(self) -> trio.CancelScope:
        self._task = trio.lowlevel.current_task()
        self._around = around = _around.get()
        self._deadline = trio.current_time() + self._seconds
        if around is not None and around._task is self._task:
            self._deadline = min(self._deadline, around._deadline)  # its shield would keep that off
        _around.set(self)
        self._scope = trio.CancelScope(shield=True, deadline=self._deadline)
        return self._scope.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        _around.set(self._around)
        swallow = bool(self._scope.__exit__(kind, error, traceback))
        if self._scope.cancelled_caught:
            outcome = "timed out"
            logger.warning(
                "exchange %d: clean-up of %s was not over within %g s, and is cut off",
                self._exchange.key,
                self._exchange.name,
                self._seconds,
            )
        elif error is not None and not isinstance(error, trio.Cancelled):
            outcome = "error"
        else:
            outcome = "clean"
        self._exchange.note_cleanup(outcome)
        return swallow


class _ExchangeLogger(logging.LoggerAdapter[logging.Logger]):
    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        assert self.extra is not None
        return f"[exchange {self.extra['exchange']}] {msg}", kwargs
