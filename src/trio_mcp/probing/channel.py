"""A probe's end of a stream of messages: pipes to a launched server, a socket, a WebSocket."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import trio

from ..runtime.errors import ProtocolError
from ..runtime.jsonrpc import decode, encode
from ..transports.framing import Oversize
from ..transports.process import ServerProcess
from ..transports.wire import Wire
from .asked import Answer, Asked, ConversationLost, Key, key_of
from .pace import Pace
from .speech import InSession, Stateless

__all__ = ["Channel", "message_of"]

_STRAYS: Final = 100
"""Remembered of what nobody asked for."""
_QUOTED: Final = 120
"""Characters shown of it."""


def message_of(method: str, params: Any = ..., request_id: Any = ...) -> bytes:
    """A message, whatever its params and id are."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if request_id is not ...:
        message["id"] = request_id
    if params is not ...:
        message["params"] = params
    return encode(message)


class Channel:
    """A :class:`~.asked.Conversation` over a wire.

    :param serve: what moves the wire's bytes, where it does not do that itself; ends with it.
    """

    closes = False

    def __init__(
        self,
        wire: Wire,
        speech: Stateless | InSession,
        pace: Pace,
        process: ServerProcess | None = None,
        serve: Callable[..., Awaitable[None]] | None = None,
    ) -> None:
        self.lost: str | None = None
        self.strays: list[str] = []
        self.unasked: list[str] = []
        self.process = process
        self.pid = process.pid if process is not None else None
        self._wire = wire
        self._speech = speech
        self._pace = pace
        self._serve = serve
        self._turn = trio.Lock()
        self._ids = itertools.count(1)
        self._asked: dict[Key, Asked] = {}
        self._tokens: dict[Key, Asked] = {}
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    # Life -----------------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            async with trio.open_nursery() as nursery:
                try:
                    with self._scope:
                        if self.process is not None:
                            nursery.start_soon(self.process.drain_stderr)
                        if self._serve is not None:
                            await nursery.start(self._serve)
                        task_status.started()
                        await self._read()
                        await trio.sleep_forever()
                finally:
                    await self._hang_up()
                    nursery.cancel_scope.cancel("the wire is closed")
        finally:
            self._lose("the probe has hung up")
            self._ended.set()

    async def _hang_up(self) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + self._pace.exit):
            if self.process is not None:
                await self.process.kill()
            await self._wire.aclose()

    async def aclose(self) -> None:
        """At once: a launched server is killed. For its orderly end there is
        :meth:`end_of_input`."""
        self._scope.cancel("the probe hangs up")
        await self._ended.wait()

    async def end_of_input(self) -> float | None:
        """Close a launched server's standard input: seconds until it has exited; ``None`` if it had
        to be told by a signal, ``Pace.exit`` later."""
        assert self.process is not None
        began = trio.current_time()
        took: float | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.process.shut_down)
            with trio.move_on_after(self._pace.exit):
                await self.process.ended()
                took = trio.current_time() - began
        return took

    async def begin(self) -> None:
        if not isinstance(self._speech, InSession):
            return
        asked = await self.ask("initialize", self._speech.initialize(), token=False)
        answer = await asked.answer(self._pace.open)
        if answer is None or "result" not in answer.message:
            said = "nothing" if answer is None else str(answer.message.get("error"))
            raise ConversationLost(f"it answers {said} to initialize")
        await self.tell("notifications/initialized")

    # Speaking -------------------------------------------------------------------------------------

    async def ask(
        self, method: str, params: dict[str, Any], request_id: Any = ..., *, token: bool = True
    ) -> Asked:
        asked, frame = self.prepare(method, params, request_id, token=token)
        await self.send([frame])
        return asked

    def prepare(
        self, method: str, params: dict[str, Any], request_id: Any = ..., *, token: bool = True
    ) -> tuple[Asked, bytes]:
        """A request that is not sent yet, for :meth:`send`."""
        number = next(self._ids) + 1_000_000
        mine = number if request_id is ... else request_id
        mark = f"p{number}" if token else None
        asked = Asked(mine, mark, trio.current_time())
        self._asked[key_of(mine)] = asked
        self._tokens[key_of(mark)] = asked
        return asked, message_of(method, self._speech.params(params, mark), mine)

    async def tell(self, method: str, params: Any = ...) -> str:
        await self.send([message_of(method, params)])
        return ""

    async def cancel(self, asked: Asked, reason: str = "probe") -> None:
        asked.cancelled_at = trio.current_time()
        await self.tell("notifications/cancelled", {"requestId": asked.id, "reason": reason})

    async def close(self, asked: Asked, *, reset: bool = False) -> None:
        raise NotImplementedError("there is nothing but the whole connection to be closed")

    async def release(self, asked: Sequence[Asked]) -> None:
        """There is nothing of them to be closed."""
        await trio.lowlevel.checkpoint()

    async def send(self, frames: list[bytes]) -> None:
        """Send messages, in one write. Raises :class:`ConversationLost`."""
        if self.lost is not None:
            raise ConversationLost(self.lost)
        try:
            with trio.fail_after(self._pace.answer):
                async with self._turn:
                    await self._wire.send(frames, lambda: None)
        except trio.TooSlowError:
            self._lose("it does not read what is sent to it")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._lose(self._why())
        if self.lost is not None:
            raise ConversationLost(self.lost)

    # Hearing --------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while (frames := await self._wire.receive()) is not None:
                for frame in frames:
                    self._hear(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        if self.process is not None:
            await self.process.settle()
        self._lose(self._why())

    def _hear(self, frame: bytes | Oversize) -> None:
        now = trio.current_time()
        try:
            message = decode(frame) if not isinstance(frame, Oversize) else None
        except ProtocolError:
            message = None
        if not isinstance(message, dict):
            said = "a message too long" if isinstance(frame, Oversize) else repr(frame[:_QUOTED])
            self._stray(f"no message: {said}")
        elif "method" in message:
            self._hear_of_progress(message, now)
        else:
            asked = self._asked.get(key_of(message.get("id")))
            if asked is None:
                said = f"an answer to nothing: {encode(message)[:_QUOTED].decode()}"
                self._stray(said)
                if "result" in message:
                    self._note_unasked(said)
            elif (second := asked.take(Answer(now, message))) is not None:
                self._note_unasked(second)

    def _hear_of_progress(self, message: dict[str, Any], now: float) -> None:
        params = message.get("params")
        if message["method"] == "notifications/progress" and isinstance(params, dict):
            token = params.get("progressToken")
            asked = self._tokens.get(key_of(token))
            if asked is not None:
                asked.progress.append(now)
                asked.note()

    def _stray(self, said: str) -> None:
        if len(self.strays) < _STRAYS:
            self.strays.append(said)

    def _note_unasked(self, said: str) -> None:
        if len(self.unasked) < _STRAYS:
            self.unasked.append(said)

    def _lose(self, why: str) -> None:
        if self.lost is not None:
            return
        self.lost = why
        for asked in self._asked.values():
            if not asked.answers:
                asked.lost = why
            asked.note()

    def _why(self) -> str:
        if self.process is None:
            return "the server has closed the connection"
        status = self.process.exit_status
        last = self.process.stderr_tail.splitlines()[-1:]
        words = f"; its last words: {last[0]}" if last else ""
        if status is None:
            return f"the server has closed its standard output{words}"
        return f"the server has exited with status {status}{words}"
