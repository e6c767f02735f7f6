"""A request to a server, run and cancelled through the real runtime, over a wire in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs
import msgspec
import trio

from ..runtime.journal import Record
from ..runtime.jsonrpc import Notification
from ..runtime.lifecycle import CancelSource, State
from ..runtime.models.base import (
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_LOG_LEVEL,
    META_PROTOCOL_VERSION,
)
from ..server import Server
from ..transports.framing import Frame
from ..transports.serving import ServerConnection
from .logs import Failures
from .refusals import refusal
from .sweeping.stepping import Stepper
from .sweeping.subjects import Finding, Outcome, closes, late_finding, until

__all__ = ["Request", "RequestSubject", "requested"]

_ID: Final = "sweep"
_CLOSED: Final = "its connection is closed"
_SHUT_DOWN: Final = "the server shuts down, its drain limit passed"


@attrs.frozen
class Request:
    """What is asked for: a method, its parameters, and their name for people."""

    name: str
    method: str
    params: Mapping[str, Any]

    def check(self) -> None:
        """Raises ``TypeError`` for arguments that are no JSON."""
        try:
            msgspec.json.encode(self.params)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f"the arguments for {self.name} are no JSON: {error}") from None

    def encode(self, version: str, request_id: str, client: str) -> bytes:
        """As JSON; the id is the progress token, too."""
        meta = {
            META_PROTOCOL_VERSION: version,
            META_CLIENT_INFO: {"name": client, "version": "1"},
            META_CLIENT_CAPABILITIES: {"elicitation": {"form": {}, "url": {}}},
            META_LOG_LEVEL: "debug",
            "progressToken": request_id,
        }
        params = {**self.params, "_meta": meta}
        return msgspec.json.encode(
            {"jsonrpc": "2.0", "id": request_id, "method": self.method, "params": params}
        )


def requested(
    whose: str,
    tool: str | None,
    arguments: Mapping[str, Any] | None,
    resource: str | None,
    prompt: str | None,
) -> Request | None:
    """What the arguments of a function ask for; ``None`` for nothing.

    :param whose: "a sweep", for one.

    Raises ``TypeError`` for arguments that make no sense.
    """
    named = [one for one in (tool, resource, prompt) if one is not None]
    for one in named:
        if not isinstance(one, str):
            raise TypeError(f"what to ask for is named by a text, not {one!r:.80}")
    if len(named) > 1:
        raise TypeError(f"{whose} is of one tool, of one resource or of one prompt")
    if resource is not None:
        if arguments is not None:
            raise TypeError("a resource has no arguments: its URI says it all")
        return Request(resource, "resources/read", {"uri": resource})
    if arguments is not None and not isinstance(arguments, Mapping):
        raise TypeError(f"arguments are a mapping, by their names, not {arguments!r:.80}")
    method = "tools/call" if tool is not None else "prompts/get"
    if not named:
        if arguments is not None:
            raise TypeError("arguments are for a tool or a prompt")
        return None
    request = Request(named[0], method, {"name": named[0], "arguments": dict(arguments or {})})
    request.check()
    return request


class _Wire:
    """A wire in the sweep's hands: ``told`` is called with what the server says."""

    label = "cancel_sweep"

    def __init__(self, told: Callable[[Any], None]) -> None:
        self._to_server, self._incoming = trio.open_memory_channel[bytes](2)
        self._told = told

    def feed(self, message: bytes) -> None:
        self._to_server.send_nowait(message)

    def hang_up(self) -> None:
        self._to_server.close()

    async def receive(self) -> list[Frame] | None:
        try:
            return [await self._incoming.receive()]
        except trio.EndOfChannel:
            return None

    async def send(self, frames: list[bytes], moved: Callable[[], None]) -> None:
        for frame in frames:
            self._told(msgspec.json.decode(frame))
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        self._to_server.close()
        self._incoming.close()
        await trio.lowlevel.checkpoint()


class RequestSubject:
    """One run of a request. What the server has said of it after the cancellation is an offence."""

    root = "trio-mcp exchange"
    reason = CancelSource.NOTIFICATION.value
    answers = True
    further: tuple[str, ...] = (_CLOSED, _SHUT_DOWN)

    def __init__(self, server: Server, request: Request, longest: float) -> None:
        self.name = request.name
        self.record: Record | None = None
        self.answer: Any = None
        self._server = server
        self._core = server._core
        self._request = request
        self._longest = longest
        self._wire = _Wire(self._hear)
        self._silent = False
        self._spoken: list[str] = []
        self._left: list[str] = []
        self._ended = trio.Event()
        self._closed = trio.Event()
        self._failures = Failures()

    # Running --------------------------------------------------------------------------------------

    async def run(self, stepper: Stepper) -> None:
        with self._failures.taken():
            await self._serve(stepper)
        self._look_for_leftovers()

    async def _serve(self, stepper: Stepper) -> None:
        async with trio.open_nursery() as nursery:
            stepper.nursery = nursery
            nursery.start_soon(self._serve_wire)
            nursery.start_soon(self._await_record)
            self._wire.feed(self._request.encode(self._core.era.version, _ID, "cancel_sweep"))
            await until(self._ended, stepper, self._longest)
            self._wire.hang_up()
            if not stepper.given_up:
                await closes(self._closed, stepper)

    async def _serve_wire(self) -> None:
        await self._server.serve_wire(self._wire)
        self._closed.set()

    async def _await_record(self) -> None:
        with self._server.journal.subscribe() as records:
            async for record in records:
                if record.role == "server" and record.request_id == _ID:
                    self.record = record
                    self._ended.set()
                    return

    def _hear(self, message: Any) -> None:
        if message.get("id") == _ID:
            self.answer = message
        if self._silent and _is_about_it(message):
            self._spoken.append(msgspec.json.encode(message).decode())

    def _look_for_leftovers(self) -> None:
        if self._core.inflight:
            self._left.append(f"the server still counts {self._core.inflight} requests in flight")
        self._left += [scope.label for scope in self._server.scopes().walk()][1:]

    # Cancelling -----------------------------------------------------------------------------------

    def strike(self) -> None:
        """Let the connection process a ``notifications/cancelled``, in this very step: on its way
        through a queue, the handler would go on meanwhile."""
        cancelled = Notification(
            "notifications/cancelled", {"requestId": _ID, "reason": "cancel_sweep"}
        )
        self._connection()._on_message(cancelled, trio.current_time())
        self._silent = True

    def strike_again(self, how: str) -> None:
        if how == _CLOSED:
            self._wire.hang_up()
        else:
            self._connection().drain(trio.current_time())

    def _connection(self) -> ServerConnection:
        (connection,) = (one for one in self._core.connections if one.label == self._wire.label)
        assert isinstance(connection, ServerConnection)
        return connection

    # Judging --------------------------------------------------------------------------------------

    def outcome(self) -> Outcome | None:
        record = self.record
        if record is None or record.state is State.CANCELLED:
            return None
        return "error" if record.error is not None or record.is_error else "result"

    def failure(self) -> str | None:
        return self._failures.describe()

    def ran_into_limit(self) -> bool:
        return self.record is not None and self.record.cleanup == "timed out"

    def refusal(self) -> str:
        """Why it came to nothing, though nobody cancelled it."""
        request, failure = self._request, self._failures.describe()
        return refusal(self._server, request.method, request.params, self.answer, failure)

    def findings(self, stepper: Stepper, usual: Outcome | None) -> Iterator[Finding]:
        for message in self._spoken:
            yield Finding("spoke", f"said after the cancellation: {message:.200}")
        for what in self._left:
            yield Finding("leaked", f"still in the scope tree: {what}")
        record = self.record
        if record is None:
            return
        if record.state is not State.CANCELLED and not self._spoken:
            yield Finding("late outcome", "the runtime did not take the cancellation")
        yield from self._of_record(record, stepper, usual)

    def _of_record(
        self, record: Record, stepper: Stepper, usual: Outcome | None
    ) -> Iterator[Finding]:
        error = self._failures.describe() or record.error
        for late in record.late:
            yield late_finding(
                "result" if late.kind == "result" else "error", error, stepper, usual
            )
        if record.cleanup == "error" and not record.late:
            yield Finding("raised", f"its clean-up raised {error}")
        if record.cleanup == "timed out":
            yield Finding("clean-up skipped", "a clean-up block, or on_exit, ran into its limit")
        if record.cleanup == "abandoned":
            yield Finding("leaked", "work that was abandoned")


def _is_about_it(message: Any) -> bool:
    params = message.get("params") or {}
    if message.get("method") == "notifications/message":
        return True  # there is no other request that could log
    return message.get("id") == _ID or params.get("progressToken") == _ID
