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
        self._socket = stream.socket
        self._descriptor = stream.socket.fileno()
        self._waits = False

    async def read(self, most: int) -> bytes:
        """What has come, at most so many bytes; nothing at the end. If cancelled, none are lost.

        Raises ``OSError``, or ``trio.ClosedResourceError`` if the stream is closed meanwhile, or
        by :meth:`interrupt`.
        """
        while True:
            self._waits = True
            try:
                await trio.lowlevel.wait_readable(self._socket)
            finally:
                self._waits = False
            try:
                return os.read(self._descriptor, most)
            except BlockingIOError:
                pass  # it was a false alarm

    def interrupt(self) -> bool:
        """Have a read that waits raise; whether there is one. A write of Trio's that waits raises,
        too: there must be none."""
        waits, self._waits = self._waits, False
        if waits:
            trio.lowlevel.notify_closing(self._socket)
        return waits

    def write(self, data: bytes) -> int:
        """Write what the system takes now; how many bytes. Never waits. Raises ``OSError``."""
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
