"""A plain socket, read and written without a detour through the scheduler.

Trio's stream tries to read before it waits, and yields after every success. A connection that waits
for its next request waits first here; and what the system takes at once is written at once.
"""

from __future__ import annotations

import os

import trio

__all__ = ["DirectSocket"]


class DirectSocket:
    """The socket of a stream that somebody else closes."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.descriptor = stream.socket.fileno()
        self._socket = stream.socket
        self._waits = False
        self._interrupted = False

    async def read(self, most: int) -> bytes | None:
        """What has come, at most so many bytes; nothing at the end; ``None`` if it was interrupted.
        If cancelled, none are lost.

        Raises ``OSError``, or ``trio.ClosedResourceError`` if the stream is closed meanwhile.
        """
        self._interrupted = False
        data = None
        while data is None and not self._interrupted:
            self._waits = True
            try:
                await trio.lowlevel.wait_readable(self._socket)
            except trio.ClosedResourceError:
                if not self._interrupted:
                    raise
                return None
            finally:
                self._waits = False
            data = self.read_now(most)
        return data

    def read_now(self, most: int) -> bytes | None:
        """The same without waiting; ``None`` if nothing has come. Raises ``OSError``."""
        try:
            return os.read(self.descriptor, most)
        except BlockingIOError:
            return None  # it was a false alarm

    def interrupt(self) -> None:
        """Have a read that waits return. To be called when no write waits: that would fail."""
        if self._waits and not self._interrupted:
            self._interrupted = True
            trio.lowlevel.notify_closing(self._socket)

    def write(self, data: bytes) -> int:
        """Write what the system takes now; how many bytes. Never waits. Raises ``OSError``."""
        try:
            return os.write(self.descriptor, data)
        except BlockingIOError:
            return 0
