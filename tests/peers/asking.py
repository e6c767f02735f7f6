"""Raw clients that are asked: they make a request, hear the questions, and make it again.

``async with asking(server, wire) as client`` over a byte stream (``"channel"``) or real HTTP
(``"http"``). Whatever the server says is held against the official schema, and against what the
client has said that it can do.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import trio
from tests.peers.checked import WireCheck, checked_client
from tests.peers.raw import RawPeer, request
from tests.peers.raw_http import HttpPeer, post

from trio_mcp import Authenticate, Server

__all__ = ["EVERYTHING", "Asked", "ChannelClient", "HttpClient", "accept", "asking"]

EVERYTHING: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}

Message = dict[str, Any]


def accept(**content: Any) -> Message:
    """The answer of a user who agrees."""
    return {"action": "accept", "content": content}


class Asked:
    """An answer that asks."""

    def __init__(self, message: Message) -> None:
        self.result = message.get("result", {})
        assert self.result.get("resultType") == "input_required", message

    @property
    def state(self) -> str:
        state: str = self.result["requestState"]
        return state

    @property
    def questions(self) -> dict[str, Any]:
        """The params of what was asked, by key."""
        return {
            key: question.get("params", {})
            for key, question in self.result["inputRequests"].items()
        }


class Client:
    """Makes requests. ``can`` is what it says that it can do."""

    def __init__(self) -> None:
        self.can: Any = EVERYTHING
        self._ids = itertools.count(1)

    def message(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        method: str = "tools/call",
        state: Any = None,
        **responses: Any,
    ) -> Message:
        params: Message = {"name": tool, "arguments": dict(arguments or {})}
        params["_meta"] = {"io.modelcontextprotocol/clientCapabilities": self.can}
        if state is not None:
            params["requestState"] = state
        if responses:
            params["inputResponses"] = responses
        return request(next(self._ids), method, params)

    async def say(self, message: Message) -> Message:
        """Make a request; its answer."""
        raise NotImplementedError

    async def call(self, tool: str, *args: Any, **kwargs: Any) -> Message:
        """The answer to a call; the arguments are those of :meth:`message`."""
        return await self.say(self.message(tool, *args, **kwargs))

    async def ask(self, tool: str, *args: Any, **kwargs: Any) -> Asked:
        """A call that is answered with questions."""
        return Asked(await self.call(tool, *args, **kwargs))

    async def text(self, tool: str, *args: Any, **kwargs: Any) -> str:
        """The text of a call that is complete."""
        message = await self.call(tool, *args, **kwargs)
        assert message.get("result", {}).get("resultType") == "complete", message
        assert not message["result"].get("isError"), message
        (block,) = message["result"]["content"]
        text: str = block["text"]
        return text

    async def error(self, tool: str, *args: Any, **kwargs: Any) -> Message:
        """The JSON-RPC error of a call."""
        message = await self.call(tool, *args, **kwargs)
        assert "error" in message, message
        error: Message = message["error"]
        return error


class ChannelClient(Client):
    def __init__(self, peer: RawPeer) -> None:
        super().__init__()
        self.peer = peer

    async def say(self, message: Message) -> Message:
        await self.peer.send(message)
        return await self.peer.answer(message["id"])


class HttpClient(Client):
    """``headers`` go with each request."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.headers: dict[str, Any] = {}
        self._check = WireCheck()

    async def say(self, message: Message) -> Message:
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            peer = HttpPeer(stream)
            self._check.client_line(msgspec.json.encode(message))
            await peer.send(post(message, **self.headers))
            response = await peer.response()
        self._check.server_line(response.body)
        answer: Message = response.json
        return answer


@asynccontextmanager
async def asking(
    server: Server, wire: str = "channel", authenticate: Authenticate | None = None
) -> AsyncGenerator[Any, None]:
    if wire == "channel":
        async with checked_client(server) as peer:
            yield ChannelClient(peer)
        return
    serve = partial(server.serve_http, port=0, authenticate=authenticate)
    async with trio.open_nursery() as nursery:
        yield HttpClient(await nursery.start(serve))
        nursery.cancel_scope.cancel()
