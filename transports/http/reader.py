"""Who reads a connection of the native carrier, and for how long it waits.

It is always read, also while a request is being served: so a close is seen at once, whatever waits
in front of it. On a plain socket the task that serves reads for itself between two requests, and
:mod:`.lookouts` while it is busy; so there is no second task. Other streams, TLS for one, can only
be read by one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import trio

from .direct import DirectSocket
from .incoming import Incoming
from .lookouts import Lookouts
from .patience import Patience

__all__ = ["Reader", "Readers", "SocketReader", "StreamReader"]

CHUNK: Final = 64 * 1024


class Readers:
    """What those of one carrier share. Its tasks live in ``nursery``."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.patience = Patience()
        self.lookouts = Lookouts()
        nursery.start_soon(self.patience.run)
        nursery.start_soon(self.lookouts.post)
        nursery.start_soon(self.lookouts.watch)


class Reader(ABC):
    """What both have in common. ``gone`` is set when nothing more will come; ``lost`` is called
    then, unless it was stopped. A :class:`~.patience.Patient`."""

    def __init__(self, incoming: Incoming, readers: Readers, lost: Callable[[], None]) -> None:
        self.gone = trio.Event()
        self._incoming = incoming
        self._readers = readers
        self._lost = lost
        self._busy = False  # the task that serves does not wait for more
        self._seconds = math.inf  # that the current stage may take
        self._stages = 0

    @abstractmethod
    def start(self, nursery: trio.Nursery) -> None:
        """The connection begins."""

    def close(self) -> None:
        """The connection is over."""
        self.gone.set()
        self._readers.patience.begin(self, math.inf, self._seconds)
        self._seconds = math.inf

    @abstractmethod
    async def more(self) -> None:
        """Wait until a part of a request, or the end, has come, or for :meth:`wake`. The task that
        serves is idle meanwhile, and busy otherwise."""

    @abstractmethod
    def wake(self) -> None:
        """Have :meth:`more` return."""

    @abstractmethod
    async def until_gone(self) -> None:
        """Nothing is served any more: read to the end."""

    def out_of_time(self) -> None:
        incoming = self._incoming
        self._seconds = math.inf
        if incoming.patience(busy=self._busy) == math.inf:
            return  # it has been given more time meanwhile
        if incoming.time_out():
            self.wake()  # the refusal; it is still read, to see the end
        else:
            self.give_up()

    def give_up(self) -> None:
        """Nothing more will come, or be taken."""
        self.gone.set()
        self._lost()

    def _take(self, data: bytes | bytearray) -> None:
        if data:
            self._incoming.feed(data)
        else:
            self.give_up()

    def _mind_the_time(self, *, anew: bool = False) -> None:
        """A stage of a request, and the wait for the next one, have their time from their begin,
        however often bytes come. ``anew``: it begins now in any case."""
        incoming = self._incoming
        seconds = incoming.patience(busy=self._busy)
        if anew or seconds != self._seconds or incoming.stages != self._stages:
            self._readers.patience.begin(self, seconds, self._seconds)
            self._seconds, self._stages = seconds, incoming.stages


class SocketReader(Reader):
    """Of a plain socket: :class:`~.lookouts.Watched` while it is busy."""

    def __init__(
        self,
        direct: DirectSocket,
        incoming: Incoming,
        readers: Readers,
        lost: Callable[[], None],
    ) -> None:
        super().__init__(incoming, readers, lost)
        self.descriptor = direct.descriptor
        self._direct = direct

    def start(self, nursery: trio.Nursery) -> None:
        pass  # it has no task

    def close(self) -> None:
        super().close()
        self._readers.lookouts.forget(self)

    async def more(self) -> None:
        self._be_idle()
        self._mind_the_time()
        data = await self._read()
        self._busy = True
        self._readers.lookouts.note(self)
        if data is not None:
            self._take(data)
        if self._incoming.stage is not None:
            self._mind_the_time()  # the next request has begun to come

    def wake(self) -> None:
        self._direct.interrupt()

    async def until_gone(self) -> None:
        self._be_idle()
        while await self._read() != b"":
            pass
        self.gone.set()

    def read_now(self) -> None:
        try:
            data = self._direct.read_now(CHUNK)
        except OSError:
            data = b""
        if data is not None:
            self._take(data)
            self._mind_the_time()
        if data == b"":
            self._readers.lookouts.forget(self)

    def _be_idle(self) -> None:
        self._busy = False
        self._readers.lookouts.forget(self)

    async def _read(self) -> bytes | None:
        """What has come; nothing at the end; ``None`` if it was interrupted."""
        try:
            return await self._direct.read(CHUNK)
        except (trio.ClosedResourceError, OSError):
            return b""


class StreamReader(Reader):
    """Of any stream, in a task of its own."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        incoming: Incoming,
        readers: Readers,
        lost: Callable[[], None],
    ) -> None:
        super().__init__(incoming, readers, lost)
        self._stream = stream
        self._arrived = trio.Event()
        self._scope = trio.CancelScope()

    def start(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self._read_on)

    async def more(self) -> None:
        self._busy = False
        # What it has served may have been read, and minded, long ago.
        self._mind_the_time(anew=self._incoming.stage is None)
        self._arrived = trio.Event()
        await self._arrived.wait()
        self._busy = True

    def wake(self) -> None:
        self._arrived.set()

    async def until_gone(self) -> None:
        await self.gone.wait()

    async def stop(self) -> None:
        """Somebody else wants to read."""
        self._scope.cancel("somebody else reads")
        await self.gone.wait()

    async def _read_on(self) -> None:
        with self._scope:
            while not self.gone.is_set():
                self._mind_the_time()
                self._take(await self._read())
                if self._incoming:
                    self._arrived.set()
        self.gone.set()

    async def _read(self) -> bytes | bytearray:
        try:
            return await self._stream.receive_some(CHUNK)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            return b""
