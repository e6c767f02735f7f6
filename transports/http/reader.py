"""Who reads a connection of the native carrier, and for how long it waits.

It is always read, also while a request is being served: so a close is seen at once, whatever waits
in front of it. Between two requests the task that serves reads for itself; one that is done in a
turn of the loop or two never needs another. For the others a second task reads, from when
:mod:`.lookouts` finds that it takes longer until the next request has come.

So it is on plain sockets. Other streams, TLS for one, are always read by the second task.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import trio

from .direct import DirectSocket
from .incoming import Incoming
from .lookouts import Lookouts
from .patience import Patience

__all__ = ["Reader", "Readers"]

CHUNK: Final = 64 * 1024


class Readers:
    """What those of one carrier share. Its tasks live in ``nursery``."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.patience = Patience()
        self.lookouts = Lookouts()
        nursery.start_soon(self.patience.run)
        nursery.start_soon(self.lookouts.run)


class Reader:
    """``gone`` is set when nothing more will come; ``lost`` is called then, unless it was stopped.

    A :class:`~.patience.Patient` and a :class:`~.lookouts.Watched`.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        direct: DirectSocket | None,
        incoming: Incoming,
        readers: Readers,
        lost: Callable[[], None],
    ) -> None:
        self.gone = trio.Event()
        self._stream = stream
        self._direct = direct
        self._incoming = incoming
        self._readers = readers
        self._lost = lost
        self._nursery: trio.Nursery
        self._busy = False  # the task that serves does not wait for more
        self._woken = False
        self._arrived: trio.Event | None = None  # it waits for the second task
        self._second = trio.CancelScope()
        self._second_reads = False
        self._resting: trio.lowlevel.Task | None = None
        self._seconds = math.inf  # that the current stage may take
        self._stages = 0

    def start(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        if self._direct is None:
            self._second_reads = True
            nursery.start_soon(self._read_on)

    def close(self) -> None:
        """The connection is over."""
        self._be_idle()
        self._readers.patience.begin(self, math.inf, self._seconds)
        self._seconds = math.inf

    # For the task that serves -----------------------------------------------------------------

    async def more(self) -> None:
        """Wait until a part of a request, or the end, has come, or for :meth:`wake`."""
        self._be_idle()
        self._mind_the_time()
        if self._second_reads:
            self._arrived = trio.Event()
            await self._arrived.wait()
            self._arrived = None
        else:
            self._take(await self._read())
        self._busy = True
        self._readers.lookouts.note(self)

    def wake(self) -> None:
        """Have :meth:`more` return."""
        if self._arrived is not None:
            self._arrived.set()
        elif self._direct is not None and self._direct.interrupt():
            self._woken = True

    async def until_gone(self) -> None:
        """Nothing is served any more: read to the end, and drop it."""
        if self._second_reads:
            await self.gone.wait()
            return
        self._be_idle()
        while await self._read() != b"":
            pass
        self.gone.set()

    def stop(self) -> None:
        """Somebody else wants to read; once ``gone`` is set."""
        self._second.cancel("the connection says goodbye")

    def _be_idle(self) -> None:
        self._busy = False
        self._readers.lookouts.forget(self)

    # A Patient, and Watched -------------------------------------------------------------------

    def out_of_time(self) -> None:
        incoming = self._incoming
        self._seconds = math.inf
        if incoming.patience(busy=self._busy) == math.inf:
            return  # it has been given more time meanwhile
        if incoming.time_out():
            self.wake()  # the refusal; it is still read, to see the end
        else:
            self._end()

    def look_out(self) -> None:
        if self._busy and not self._second_reads:
            self._second_reads = True
            if self._resting is None:
                self._nursery.start_soon(self._read_on)
            else:
                trio.lowlevel.reschedule(self._resting)
                self._resting = None

    # Reading ----------------------------------------------------------------------------------

    async def _read_on(self) -> None:
        """The second task."""
        with self._second:
            while not self.gone.is_set():
                self._mind_the_time()
                self._take(await self._read())
                if self._arrived is not None and self._incoming:
                    self._arrived.set()
                    if self._direct is not None:
                        await self._rest()
        self.gone.set()

    def _take(self, data: bytes | bytearray | None) -> None:
        if data:
            self._incoming.feed(data)
        elif data is not None:
            self._end()

    def _end(self) -> None:
        self.gone.set()
        self._lost()

    async def _read(self) -> bytes | bytearray | None:
        """What has come; nothing at the end; ``None`` if it was interrupted."""
        try:
            if self._direct is not None:
                return await self._direct.read(CHUNK)
            return await self._stream.receive_some(CHUNK)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            if self._woken:
                self._woken = False
                return None
            return b""

    async def _rest(self) -> None:
        """Until this task is needed again: the other one has something to do."""
        self._second_reads = False
        self._resting = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._resting = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _mind_the_time(self) -> None:
        """A stage of a request has its time from its begin, however often bytes come."""
        incoming = self._incoming
        seconds = incoming.patience(busy=self._busy)
        idle = incoming.stage is None and not self._busy
        if idle or seconds != self._seconds or incoming.stages != self._stages:
            self._readers.patience.begin(self, seconds, self._seconds)
            self._seconds, self._stages = seconds, incoming.stages
