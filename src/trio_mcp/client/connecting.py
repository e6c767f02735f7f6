"""Opening a connection: ``async with connect(target) as client``."""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeGuard

import attrs
import trio

from ..runtime.errors import ConnectionLost
from ..runtime.groups import interruption_in, leaf_of
from ..runtime.journal import Journal
from ..runtime.limits import Limits, limits_or_default
from ..runtime.logs import check_level
from ..runtime.models.base import Implementation, LoggingLevel
from ..runtime.models.roots import Root
from ..runtime.tracing import GuardedTracing, Tracing, guarded
from ..server import Server
from ..transports.calling import CallConnection, ClientConnection
from ..transports.memory import memory_wire_pair
from ..transports.process import ServerProcess
from ..transports.restarting import Carried, Restart, RestartingConnection
from ..transports.wire import StreamWire, Wire
from .answers import Answers, ElicitMode, OnElicit, OnRoots, OnSample
from .calls import Timeouts
from .checks import check_flag, check_text, check_texts, check_tracing
from .client import Client
from .discovery import find_out, find_out_again
from .eras.earlier import Earlier
from .eras.revision_2026_07_28 import ClientRevision20260728
from .known_tools import KnownTools
from .logs import OnLog, log_reader
from .response_cache import ResponseCache
from .retries import Retry, check_retry

__all__ = ["Connecting", "Target", "connect"]

logger = logging.getLogger("trio_mcp.connection")

Target: TypeAlias = str | Sequence[str | os.PathLike[str]] | trio.abc.Stream | Server
"""What :func:`connect` connects to: an address, a command to launch, a Trio stream, or a server
in-process."""

_HTTP: Final = re.compile(r"https?://", re.IGNORECASE)
_WEBSOCKET: Final = re.compile(r"wss?://", re.IGNORECASE)
_LIKE_AN_ADDRESS: Final = re.compile(
    r"\s*(?:[a-z][a-z0-9+.-]*:/+\S*|(?:[a-z0-9.-]+|\[[0-9a-f:]+\]):[0-9]+(?:/\S*)?)\s*",
    re.IGNORECASE,
)
"""What was meant for one: of another kind, without one, or with spaces around it."""

DEFAULT_TIMEOUT: Final = 60.0
DEFAULT_MAX_TIMEOUT: Final = 3600.0


def connect(
    target: Target,
    *,
    name: str = "trio-mcp",
    version: str = "0",
    timeout: float = DEFAULT_TIMEOUT,
    max_timeout: float = DEFAULT_MAX_TIMEOUT,
    reset_on_progress: bool = True,
    announce_timeout: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
    ssl_context: ssl.SSLContext | None = None,
    restart: Restart | None = None,
    check_results: bool = True,
    retry: Retry | None = None,
    trusted: bool = False,
    cache: bool = False,
    on_elicit: OnElicit | None = None,
    elicit_modes: Iterable[ElicitMode] = ("form",),
    on_sample: OnSample | None = None,
    sample_tools: bool = False,
    on_roots: OnRoots | Sequence[Root] | None = None,
    on_log: OnLog | None = None,
    log_level: LoggingLevel | None = None,
    limits: Limits | None = None,
    tracing: Tracing | None = None,
) -> Connecting:
    """Connect to a server, find out what it is, and close the connection in bounded time.

    :param target: the address of an MCP endpoint (``"https://example.com/mcp"``, or ``"wss://…"``
        for a WebSocket), a command (list of strings), a Trio stream, or a
        :class:`~trio_mcp.Server` of this process.
    :param name, version: what this client calls itself.
    :param timeout: seconds of silence after which a call fails; progress counts as a sign of life.
    :param max_timeout: seconds after which a call fails in any case. Both are defaults for every
        call; ``math.inf`` switches one off.
    :param reset_on_progress: whether progress begins ``timeout`` anew.
    :param announce_timeout: whether servers are told of ``max_timeout`` where it is finite, as
        ``trio-mcp/timeoutMs`` in the metadata of calls: ours give up by themselves then, also where
        nobody can tell them that the caller has.
    :param env, cwd: for a command: its environment (instead of ours) and working directory.
    :param headers: for an address: sent with every request, ``Authorization`` for one.
    :param ssl_context: for an address: instead of one that verifies the server's certificate
        against the authorities that the system trusts.
    :param restart: for a command or a WebSocket: how to start again a server that died, or to
        connect again, once it was there; see :class:`~trio_mcp.Restart`.
    :param check_results: whether results of tools that were listed are held against their output
        schemas.
    :param retry: how often, and when, a call is made again that has not run or only reads; without
        it, none is. See :class:`~trio_mcp.Retry`.
    :param trusted: whether what the server says of its tools is believed: that one is read-only or
        idempotent, so that ``retry`` may make it again.
    :param cache: whether lists and resources are kept as long as the server says that they are
        fresh, or until ``client.listen`` hears of a change; at most ``Limits.cache_bytes``.
    :param on_elicit: answers the server's questions to the user: called, and awaited if it is
        async, with an :class:`~trio_mcp.Elicitation`, in the task that waits for the call.
    :param elicit_modes: which questions the server may ask, ``"form"`` (the default), ``"url"`` or
        both.
    :param on_sample: answers requests to the client's model, in the same way: it is called with a
        ``CreateMessageRequestParams`` and returns a ``CreateMessageResult``. With ``sample_tools``
        the requests may have tools. Deprecated by the specification.
    :param on_roots: the directories and files that servers are shown, a list of
        :class:`~trio_mcp.Root` or what returns one. Deprecated by the specification.
    :param on_log: called with each :class:`~trio_mcp.LogMessage`, at once, by the task that reads:
        it must not block. What it raises is logged. Deprecated by the specification.
    :param log_level: the least severe level of which there are messages, ``"info"`` if there is
        ``on_log``.
    :param tracing: makes a span of each call, and tells the server which one:
        :class:`trio_mcp.otel.OpenTelemetry`, for one.

    What a callback but ``on_log`` raises cancels its call and comes out of it. Only what there is
    a callback for is declared to the server, and nothing else is answered.

    Raises ``ValueError`` for an address or headers that are none and for options of another target,
    and ``TypeError`` for options of wrong types. To enter it raises ``OSError`` if a command cannot
    be launched, :class:`~trio_mcp.AuthorizationRequired` if the server wants to know who asks,
    :class:`~trio_mcp.IncompatibleServer` if it does not answer within ``Limits.connect`` or speaks
    no revision of ours, and :class:`~trio_mcp.ConnectionLost` if there is no connection to be had,
    over HTTP as over a WebSocket, or if it ends: a command that ends
    before it has answered anything is launched once more, as a server of an earlier revision. What
    the block raises comes out as it is, never in an exception group. On leaving, calls in flight
    end with ``ConnectionLost``; a launched server gets its stdin closed, then SIGTERM, then
    SIGKILL, with its whole process group. Leave the block in the task that entered it: elsewhere it
    closes too, but raises ``RuntimeError``.
    """
    _check_target(target)
    timeouts = Timeouts(timeout, max_timeout, reset_on_progress, announce_timeout)
    for what, text in (("name", name), ("version", version)):
        check_text(what, text)
    info = Implementation(name, version)
    limits = limits_or_default(limits)
    answers = Answers(on_elicit, elicit_modes, on_sample, sample_tools, on_roots)
    if on_log is None and log_level is not None:
        raise ValueError("log_level needs on_log, which takes the messages")
    level = check_level(log_level or "info") if on_log is not None else None
    reader = log_reader(on_log) if on_log is not None else None
    check_retry(retry)
    if restart is not None and not isinstance(restart, Restart):
        raise TypeError(f"restart= takes a Restart, not {restart!r}")
    if restart is not None and not _can_be_lost(target):
        raise ValueError(
            "restart= is for a command and for the address of a WebSocket: nothing else can be "
            "opened again, and over HTTP there is no connection to lose"
        )
    _check_options(target, env, cwd, headers, ssl_context)
    for what, flag in (("check_results", check_results), ("trusted", trusted), ("cache", cache)):
        check_flag(what, flag)
    if tracing is not None:
        check_tracing(tracing)
    tools = KnownTools(limits, check_results=check_results, trusted=trusted)
    kept = ResponseCache(limits) if cache else None
    options = _Options(env, cwd, headers, ssl_context, restart, reader, tools, retry, kept)
    said = _Said(info, answers, level)
    opened = _Connections()
    tracer = guarded(tracing)
    return Connecting(_connected(target, said, timeouts, limits, tracer, options, opened), opened)


class _Connections(list[CallConnection]):
    """Those that there are so far, to be closed in the end. :meth:`abort` holds for later ones,
    too."""

    _aborted = False

    def append(self, connection: CallConnection) -> None:
        super().append(connection)
        if self._aborted:
            connection.abort()

    def abort(self) -> None:
        self._aborted = True
        for connection in self:
            connection.abort()

    def check(self) -> None:
        """Raises :class:`ConnectionLost` if they are, and others would be, aborted."""
        if self._aborted:
            raise ConnectionLost("the client was aborted")


@attrs.frozen
class _Said:
    """What a server is told of this client, in whatever way."""

    info: Implementation
    answers: Answers
    level: LoggingLevel | None


def _check_target(target: object) -> None:
    """Raises ``ValueError`` for an address that is none, ``TypeError`` for what else is none."""
    if isinstance(target, (Server, trio.abc.Stream)) or _is_address(target) or _is_command(target):
        return
    if isinstance(target, str) and _LIKE_AN_ADDRESS.fullmatch(target):
        raise ValueError(
            f"{target!r} is no address that connect knows: those begin with http://, https://, "
            "ws:// or wss://"
        )
    raise TypeError(
        f"connect takes a command as a list, for example {_as_command(target)!r}, an address "
        "(http://, https://, ws:// or wss://), a Trio stream (for TCP: await "
        f"trio.open_tcp_stream(host, port)) or a Server of this process, not {target!r:.200}"
    )


def _check_options(
    target: Target,
    env: object,
    cwd: object,
    headers: object,
    ssl_context: object,
) -> None:
    """Whether they are what they should be, and for this target."""
    for_commands = {"env": env, "cwd": cwd}
    for_addresses = {"headers": headers, "ssl_context": ssl_context}
    for what, option in (("variables in env", env), ("headers", headers)):
        if option is not None:
            check_texts(what, option)
    if _is_address(target) or isinstance(target, (Server, trio.abc.Stream)):
        _refuse(for_commands, 'a command (a list: ["python", "server.py"])', target)
    if not isinstance(target, str):
        _refuse(for_addresses, "an address (http://, https://, ws:// or wss://)", target)
    if cwd is not None and not isinstance(cwd, (str, os.PathLike)):
        raise TypeError(f"cwd is the path of a directory, not {cwd!r:.80}")
    if ssl_context is not None and not isinstance(ssl_context, ssl.SSLContext):
        raise TypeError(f"ssl_context is an ssl.SSLContext, not {ssl_context!r:.80}")


def _refuse(options: Mapping[str, object], kind: str, target: Target) -> None:
    given = "an address" if isinstance(target, str) else f"a {type(target).__name__}"
    for name, option in options.items():
        if option is not None:
            raise ValueError(f"{name} is for {kind}, and connect was given {given}")


@attrs.frozen
class _Options:
    """What only some targets and connections make use of."""

    env: Mapping[str, str] | None
    cwd: str | os.PathLike[str] | None
    headers: Mapping[str, str] | None
    ssl_context: ssl.SSLContext | None
    restart: Restart | None
    on_log: Callable[[dict[str, Any]], str | None] | None
    tools: KnownTools
    retry: Retry | None
    cache: ResponseCache | None


@asynccontextmanager
async def _connected(
    target: Target,
    said: _Said,
    timeouts: Timeouts,
    limits: Limits,
    tracing: GuardedTracing | None,
    options: _Options,
    to_close: _Connections,
) -> AsyncGenerator[Client, None]:
    journal = Journal(limits.journal_records, limits.journal_backlog)
    to_close.check()
    # Outside of the nursery, which would put what this raises into a group.
    opened = await _open_connection(target, limits, journal, options)
    connection, serve = _supervised(opened, target, limits, journal, options)
    connection.on_log = options.on_log
    era = ClientRevision20260728(said.info, said.answers, said.level)
    client = Client(
        connection,
        era,
        limits,
        timeouts,
        options.tools,
        tracing,
        options.retry,
        options.cache,
    )
    to_close.append(connection)
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                nursery.start_soon(connection.run)
                if serve is not None:
                    await nursery.start(serve)
                earlier = Earlier(
                    said.info, said.answers, said.level, options.on_log, limits, nursery
                )
                launch = partial(_launch_again, target, limits, journal, options, nursery, to_close)
                again = launch if _is_command(target) else None
                await find_out(client, connection, earlier, to_close, limits, options.retry, again)
                to_close.check()
                if isinstance(connection, RestartingConnection):
                    _supervise(connection, client, limits)
                yield client
            except BaseException as raised:
                failure = raised
            for one in reversed(to_close):
                try:
                    await one.close()
                except BaseException as raised:  # Ctrl-C, for one
                    failure = failure if failure is not None else raised
            nursery.cancel_scope.cancel("the client was closed")
    except BaseExceptionGroup as group:  # a Ctrl-C that struck in one of our tasks
        failure = _first_of(failure, group)
    finally:
        journal.end_watching()
    if failure is not None:
        raise failure


def _first_of(failure: BaseException | None, group: BaseExceptionGroup) -> BaseException:
    """What comes out, of what the block has raised and what our tasks have. A Ctrl-C wins: that of
    a task ends the connection, and what the block raises then is often only a consequence."""
    interruption = interruption_in(group)
    if interruption is not None and interruption_in(failure) is None:
        return interruption
    return leaf_of(group) if failure is None or isinstance(failure, trio.Cancelled) else failure


async def _launch_again(
    target: Target,
    limits: Limits,
    journal: Journal,
    options: _Options,
    nursery: trio.Nursery,
    to_close: _Connections,
) -> CallConnection:
    """A new process of the same command, running; ``to_close`` gets it. Raises ``OSError``, and
    :class:`ConnectionLost` if the client was aborted."""
    to_close.check()
    connection, _ = await _open_connection(target, limits, journal, options)
    to_close.append(connection)
    nursery.start_soon(connection.run)
    return connection


_Opened: TypeAlias = tuple[CallConnection, Callable[..., Awaitable[None]] | None]


def _supervised(
    opened: _Opened, target: Target, limits: Limits, journal: Journal, options: _Options
) -> _Opened:
    """The same, restarted when it is lost, if that was asked for."""
    connection, serve = opened
    if options.restart is None or not isinstance(connection, ClientConnection):
        return opened

    async def open_again() -> Carried:
        connection, serve = await _open_connection(target, limits, journal, options)
        assert isinstance(connection, ClientConnection)
        return Carried(connection, serve)

    return RestartingConnection(connection, open_again, options.restart, limits), serve


def _supervise(connection: RestartingConnection, client: Client, limits: Limits) -> None:
    """The server has been discovered: from now on a lost one is started again."""
    if connection.session is None and client._connection is connection:
        connection.supervise(partial(find_out_again, client, limits))
    else:
        logger.warning(
            "%s: restart= does nothing here: the server speaks revision %s, in a session that ends "
            "with it",
            client._connection.label,
            client.protocol_version,
        )


async def _open_connection(
    target: Target,
    limits: Limits,
    journal: Journal,
    options: _Options,
) -> _Opened:
    """The connection, and what else has to be started for it: what serves the other end of it, in
    this process, or what opens a WebSocket and moves its bytes."""
    if isinstance(target, Server):
        ours, theirs = memory_wire_pair(limits.message_bytes)
        return ClientConnection(ours, limits, journal), partial(_serve, target, theirs)
    if isinstance(target, trio.abc.Stream):
        wire = StreamWire.over(target, limits.message_bytes)
        return ClientConnection(wire, limits, journal), None
    if isinstance(target, str):
        if _WEBSOCKET.match(target):
            # What few need and takes long to import.
            from ..transports.websocket.opening import open_websocket

            socket = await open_websocket(target, limits, options.ssl_context, options.headers)
            connection = ClientConnection(socket, limits, journal)
            return connection, partial(_open_socket, socket.label, socket.run)
        if _HTTP.match(target):
            # What few need and takes long to import.
            from ..transports.http.client import HttpClientConnection

            over_http = HttpClientConnection(
                target, limits, journal, headers=options.headers, ssl_context=options.ssl_context
            )
            return over_http, None
    assert _is_command(target)  # as was checked
    process = await ServerProcess.launch(target, limits, env=options.env, cwd=options.cwd)
    return ClientConnection(process.wire, limits, journal, process), None


async def _open_socket(
    label: str, run: Callable[..., Awaitable[None]], *, task_status: trio.TaskStatus[None]
) -> None:
    """Raises :class:`ConnectionLost` if there is no WebSocket to be had."""
    try:
        await run(task_status=task_status)
    except OSError as error:
        raise ConnectionLost(f"cannot open {label}: {error}") from error


async def _serve(server: Server, wire: Wire, *, task_status: trio.TaskStatus[None]) -> None:
    task_status.started()
    await server.serve_wire(wire)


def _is_address(target: object) -> bool:
    return isinstance(target, str) and bool(_HTTP.match(target) or _WEBSOCKET.match(target))


def _can_be_lost(target: object) -> bool:
    if isinstance(target, str):
        return _HTTP.match(target) is None
    return not isinstance(target, (Server, trio.abc.Stream))


def _as_command(target: object) -> list[str]:
    return target.split() if isinstance(target, str) and target else ["python", "server.py"]


def _is_command(target: object) -> TypeGuard[Sequence[str | os.PathLike[str]]]:
    return (
        isinstance(target, (list, tuple))
        and len(target) > 0
        and all(isinstance(word, (str, os.PathLike)) for word in target)
    )


class Connecting(AbstractAsyncContextManager["Client"]):
    """What :func:`connect` returns. Trio's nurseries are left by the task that entered them, the
    innermost first; to try anything else would corrupt its state.

    :param opened: the connections that there are so far.
    """

    def __init__(
        self, connected: AbstractAsyncContextManager[Client], opened: _Connections
    ) -> None:
        self._connected = connected
        self._opened = opened
        self._entered = False
        self._client: Client
        self._place: tuple[trio.lowlevel.Task, trio.Nursery]

    def abort(self) -> None:
        """End the connection without grace, as :meth:`.Client.abort` does, also while there is no
        client yet: whoever waits for one gets :class:`~trio_mcp.ConnectionLost` once what is being
        opened is open, or has to be cancelled. Never waits."""
        self._opened.abort()

    async def __aenter__(self) -> Client:
        if self._entered:
            raise RuntimeError("what connect() returns is entered once; call connect() again")
        self._entered = True
        self._client = await self._connected.__aenter__()
        task = trio.lowlevel.current_task()
        self._place = task, task.child_nurseries[-1]
        return self._client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        task = trio.lowlevel.current_task()
        if (task, *task.child_nurseries[-1:]) != self._place:
            await self._client._connection.close()
            raise RuntimeError(
                "connect() must be left in the task that entered it, the innermost first; "
                "this connection has been closed, but its block has not been left"
            )
        return await self._connected.__aexit__(kind, error, traceback)
