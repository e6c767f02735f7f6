"""The wire that a WebSocket is, on either side of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio
from trio_websocket import CloseReason, ConnectionClosed, ConnectionRejected, WebSocketConnection
from wsproto.utilities import ProtocolError as WebSocketError

from ...runtime.groups import leaf_of
from ...runtime.journal import printable
from ..framing import Frame
from .pipe import Pipe
from .refusals import why_refused

__all__ = ["GOING_AWAY", "NORMAL", "SUBPROTOCOL", "Shake", "WebSocketWire"]

logger = logging.getLogger("trio_mcp.connection")

SUBPROTOCOL: Final = "mcp"

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
UNSUPPORTED_DATA: Final = 1003
NO_CODE: Final = 1005
ABNORMAL: Final = 1006
TOO_BIG: Final = 1009

_QUIET: Final = (NORMAL, GOING_AWAY, NO_CODE, ABNORMAL)
_NO_WEBSOCKET: Final = (1002, 1007)
"""What the library notes by itself where it can make nothing of what has come."""

Shake: TypeAlias = Callable[[trio.Nursery, trio.abc.Stream], Awaitable[WebSocketConnection]]
"""The opening handshake of one side; leaves the library's reader in the nursery."""


class WebSocketWire:
    """One end of a WebSocket; see :class:`~..wire.Wire`.

    :meth:`run` must be running, and ends with :meth:`aclose`: it is the library's reader and our
    writer. ``why`` tells how it was closed, and by whom; see :class:`~..wire.ExplainedWire`.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        shake: Shake,
        *,
        label: str,
        message_bytes: int,
        close_code: int,
        close_time: float,
        early: bytes = b"",
    ) -> None:
        self.label = label
        self.why: str | None = None
        self._stream = stream
        self._shake = shake
        self._limit = message_bytes
        self._too_big = f"Exceeded maximum message size: {message_bytes} bytes"  # as the library
        self._close_code = close_code
        self._close_time = close_time
        self._pipe = Pipe(stream, early, message_bytes)
        self._connection: WebSocketConnection | None = None
        self._life = trio.CancelScope()
        self._nursery: trio.Nursery
        self._reading: trio.Nursery
        self._running = False
        self._opened = trio.Event()
        self._closing = False
        self._torn = False
        self._ended = trio.Event()

    # The life of the connection -----------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the WebSocket, and move its bytes until it is closed; shielded from then on.

        Raises ``OSError`` before ``task_status.started()`` if there is no WebSocket to be had, and
        nothing after it.
        """
        self._running = True
        try:
            with self._life:
                await self._run(task_status)
        except BaseExceptionGroup as group:
            self._judge(leaf_of(group))
        finally:
            self._pipe.break_off()
            self._opened.set()
            try:
                await trio.aclose_forcefully(self._stream)
            finally:
                self._ended.set()

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._pipe.pump)
            async with trio.open_nursery() as self._reading:
                with trio.CancelScope() as opening:
                    # The library waits for a handshake also where none can come any more.
                    self._pipe.on_end = opening.cancel
                    connection = await self._shake(self._reading, self._pipe)
                    self._pipe.switch()
                    self._connection = connection
                self._pipe.on_end = None
                if self._connection is None:
                    raise ConnectionResetError("the peer left during the opening handshake")
                self._life.shield = True
                self._opened.set()
                task_status.started()
                await trio.sleep_forever()

    def _judge(self, error: BaseException) -> None:
        """What came out of the library, or of its opening handshake."""
        if isinstance(error, ConnectionRejected):
            raise why_refused(error) from None
        if not isinstance(error, Exception):
            raise error from None
        if self._connection is None:
            if isinstance(error, OSError):
                raise error from None
            raise ConnectionAbortedError(f"no WebSocket handshake came about: {error}") from error
        # Bytes that it can make nothing of, or that came at the wrong moment: for one, a ping
        # after our own close frame.
        logger.debug("%s broke: %r", self.label, error)
        self.why = self.why or f"the WebSocket broke: {error!r}"

    def _close_soon(self, code: int, reason: str | None = None) -> None:
        """Begin the closing handshake, if it has not begun; it ends ``run`` in bounded time."""
        if not self._closing and not self._ended.is_set():
            self._closing = True
            self._pipe.closing()
            self._nursery.start_soon(self._close, code, reason)

    async def _close(self, code: int, reason: str | None) -> None:
        assert self._connection is not None
        with trio.move_on_after(self._close_time):
            try:
                await self._connection.aclose(code, reason)
            except WebSocketError:
                pass  # it is closing already
            self._reading.cancel_scope.cancel("closing")
            await self._pipe.linger()
        self._life.cancel("closed")

    async def aclose(self) -> None:
        """Close it with a closing handshake, in bounded time; at once if it is broken."""
        if not self._running:
            await trio.aclose_forcefully(self._stream)
            return
        with trio.CancelScope(shield=True):
            if self._torn or self._connection is None:
                self._life.cancel("closed")
            else:
                self._close_soon(self._close_code)
            await self._ended.wait()

    # Frames -------------------------------------------------------------------------------------

    async def receive(self) -> list[Frame] | None:
        await self._opened.wait()
        connection = self._connection
        if connection is None or self._closing:
            return None
        try:
            message = await connection.get_message()
        except ConnectionClosed as closed:
            if closed.reason is not None:
                self._note_end(closed.reason)
            self._close_soon(self._close_code)
            return None
        if not isinstance(message, str):
            self._reject(UNSUPPORTED_DATA, "messages are text frames, not binary ones")
            return None
        frame = message.encode()
        if len(frame) > self._limit:
            self._reject(TOO_BIG, self._too_big)
            return None
        return [frame]

    def _reject(self, code: int, reason: str) -> None:
        self._note(code, f"we closed the WebSocket with code {code}: {reason}")
        self._close_soon(code, reason)

    def _note_end(self, end: CloseReason) -> None:
        """What the library knows: the peer's close frame, or what it has done by itself."""
        code, reason = int(end.code), printable(end.reason or "")
        words = f"with code {code}" + (f": {reason}" if reason else "")
        if self._pipe.fault is not None:
            self._note(code, f"we cut the WebSocket off: {self._pipe.fault}")
        elif self._pipe.closed_by_peer and end.reason != self._too_big:
            words = "without a code" if code == NO_CODE else words
            self._note(code, f"the peer closed the WebSocket {words}")
        elif code == ABNORMAL:
            self._note(code, "the WebSocket ended without a close frame")
        elif code in _NO_WEBSOCKET:
            self._note(code, f"what the peer sent is no WebSocket: {reason}")
        else:
            self._note(code, f"we closed the WebSocket {words}")

    def _note(self, code: int, why: str) -> None:
        self.why = why
        level = logging.DEBUG if code in _QUIET else logging.WARNING
        logger.log(level, "%s: %s", self.label, why)

    async def send(self, frames: list[bytes], moved: Callable[[], None]) -> None:
        await self._opened.wait()
        connection = self._connection
        if connection is None:
            raise trio.BrokenResourceError("there is no WebSocket")
        self._torn = True  # until all of it is written
        with self._pipe.gathering():
            for frame in frames:
                try:
                    await connection.send_message(frame.decode())
                except (ConnectionClosed, WebSocketError) as error:
                    self._torn = False
                    raise trio.BrokenResourceError("the WebSocket is closed") from error
        await self._pipe.flush(moved)
        self._torn = False
