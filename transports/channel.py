"""The core of every channel: many requests over one duplex wire.

Reading never stops: :meth:`Channel.read` hands every message to a plain function, which can only
start something, cancel something or queue something. Writing is one task that takes what is queued,
as much as fits one write, so the more there is to say the fewer writes it takes. What waits in the
queue has not been said yet: :meth:`~..runtime.exchange.Outgoing.take` decides at the last moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from ..runtime.errors import ErrorCode, ProtocolError
from ..runtime.exchange import Outgoing
from ..runtime.jsonrpc import Message, parse
from ..runtime.lifecycle import CancelSource
from ..runtime.limits import Limits
from .framing import Frame, Oversize
from .wire import Wire

__all__ = ["Bare", "Channel", "close_wire"]

TURN: Final = 256
"""Messages that are handled before other tasks have their turn."""

BATCH: Final = 64 * 1024
"""Bytes after which a batch of queued frames goes out."""


OVERHEAD: Final = 512
"""Bytes that something queued takes up besides its frame, about."""


class Bare:
    """A frame that belongs to no request in flight: an :class:`Outgoing` that is always said."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self.size = len(frame) + OVERHEAD

    def take(self) -> bytes | None:
        return self._frame

    def written(self, delivered: bool) -> None:
        pass


class Channel:
    """A wire, the queue of what is to be written to it, and the two loops over it."""

    def __init__(self, wire: Wire, limits: Limits) -> None:
        self.wire = wire
        self.queued_bytes = 0
        self.refused_bytes = 0  # of them, in frames that belong to no request in flight
        self._limits = limits
        self._queue: deque[tuple[Outgoing, int]] = deque()
        self._parked: trio.lowlevel.Task | None = None
        self._closing = False
        self._stall_limit = limits.stall
        self._stall = trio.CancelScope()

    # Writing ------------------------------------------------------------------------------------

    def put(self, item: Outgoing) -> None:
        """Queue something to be written. Never waits."""
        size = item.size
        self._queue.append((item, size))
        self.queued_bytes += size
        if isinstance(item, Bare):
            self.refused_bytes += size
        if self._parked is not None:
            trio.lowlevel.reschedule(self._parked)
            self._parked = None

    async def write(self) -> CancelSource | None:
        """The writer. Returns why it ended: the wire is gone, the peer stalled, or ``finish()``.

        If it ends in the middle of a write, what was taken is told that it was not delivered.
        """
        with self._stall as stall:
            while True:
                batch, frames = self._take_batch()
                if not frames:
                    if self._closing:
                        return None
                    await self._park()
                    continue
                stall.deadline = trio.current_time() + self._stall_limit
                try:
                    await self.wire.send(frames, self._moved)
                except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                    _tell(batch, delivered=False)
                    return CancelSource.DISCONNECT
                except BaseException:
                    _tell(batch, delivered=False)
                    raise
                stall.deadline = float("inf")
                _tell(batch, delivered=True)
        return CancelSource.STALLED

    def finish(self) -> None:
        """Nothing more will be queued: the writer writes what is there and ends."""
        self._closing = True
        if self._parked is not None:
            trio.lowlevel.reschedule(self._parked)
            self._parked = None

    def shorten_stall(self, seconds: float) -> None:
        """From now on the peer has at most ``seconds`` to take something."""
        self._stall_limit = min(self._stall_limit, seconds)
        if self._stall.deadline != float("inf"):  # in the middle of a write
            self._stall.deadline = min(self._stall.deadline, trio.current_time() + seconds)

    def _take_batch(self) -> tuple[list[Outgoing], list[bytes]]:
        batch: list[Outgoing] = []
        frames: list[bytes] = []
        size = 0
        queue = self._queue
        while queue and size < BATCH:
            item, held = queue.popleft()
            self.queued_bytes -= held
            if isinstance(item, Bare):
                self.refused_bytes -= held
            frame = item.take()
            if frame is not None:
                batch.append(item)
                frames.append(frame)
                size += len(frame)
        return batch, frames

    async def _park(self) -> None:
        self._parked = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._parked = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _moved(self) -> None:
        self._stall.deadline = trio.current_time() + self._stall_limit

    # Reading ------------------------------------------------------------------------------------

    async def read(
        self,
        on_message: Callable[[Message, float], None],
        on_garbage: Callable[[ProtocolError, Frame], None],
    ) -> None:
        """The reader: until the peer closes its side or the wire breaks."""
        receive, id_length = self.wire.receive, self._limits.id_length
        while True:
            try:
                frames = await receive()
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                return
            if frames is None:
                return
            now = trio.current_time()
            for count, frame in enumerate(frames, start=1):
                if count % TURN == 0:
                    await trio.lowlevel.checkpoint()  # others have their turn
                try:
                    if isinstance(frame, Oversize):
                        raise _too_long(frame)
                    message = parse(frame, id_length)
                except ProtocolError as error:
                    on_garbage(error, frame)
                else:
                    on_message(message, now)


async def close_wire(wire: Wire) -> None:
    """Close a wire that may be broken already. Closes it even if cancelled."""
    try:
        await wire.aclose()
    except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
        pass


def _tell(batch: list[Outgoing], *, delivered: bool) -> None:
    for item in batch:
        item.written(delivered)


def _too_long(frame: Oversize) -> ProtocolError:
    return ProtocolError(
        ErrorCode.INVALID_REQUEST,
        f"Invalid request: a message of more than message_bytes={frame.limit} bytes",
    )
