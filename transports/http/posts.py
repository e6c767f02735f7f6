"""A call of a client on its way over HTTP."""

from __future__ import annotations

import trio

from ...runtime.call import Call

__all__ = ["Body", "Post"]


class Post:
    """A call on its way: its task's scope, and what its request is made of."""

    headers: list[tuple[str, str]]
    mirror: list[tuple[str, str]]
    frame: bytes

    def __init__(self, call: Call) -> None:
        self.call = call
        self.token = call.id  # stays what it was if the call is sent again with a new id
        self.scope = trio.CancelScope()


class Body:
    """The body of a request, taken when it goes out. No generator: leaves nothing behind."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._taken = False

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        frame = None if self._taken else self._call.take()
        self._taken = True
        if frame is None:
            raise StopAsyncIteration
        return frame
