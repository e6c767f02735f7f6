"""What an HTTP stub is asked, and what it can be told to answer. No I/O."""

from __future__ import annotations

import http
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs
import msgspec

__all__ = ["Answer", "Answering", "StubRequest", "discovery_answer"]

_DISCOVERED: Final = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
    "ttlMs": 0,
    "cacheScope": "private",
}


@attrs.frozen
class StubRequest:
    """A request that has come, the ``number``-th (from 1). Header names are in lower case."""

    number: int
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        """The JSON-RPC message; empty if it is none."""
        try:
            message = msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}
        return message if isinstance(message, dict) else {}

    @property
    def calls(self) -> str:
        """Its JSON-RPC method, and the name of the tool or prompt: ``"tools/call add"``."""
        message = self.message
        params = message.get("params")
        name = params.get("name") if isinstance(params, dict) else None
        method = message.get("method", "")
        return f"{method} {name}" if isinstance(name, str) else str(method)


@attrs.frozen(kw_only=True)
class Answer:
    """A response.

    :param result, error: of the JSON-RPC response to the request.
    :param events: makes it an event stream, a chunk for each: a JSON-RPC message, or bytes that are
        sent as they are. The response, if there is one, is the last.
    :param body: instead of all that.
    :param headers: besides those that follow from the rest, or in their place.
    """

    status: int = 200
    headers: Mapping[str, str] = attrs.Factory(dict)
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    events: Sequence[Mapping[str, Any] | bytes] | None = None
    body: bytes | None = None

    def __attrs_post_init__(self) -> None:
        self._check_types()
        said = self.result is not None or self.error is not None or self.events is not None
        if self.body is not None and said:
            raise ValueError("an answer has a body, or a result, an error and events")
        if self.result is not None and self.error is not None:
            raise ValueError("an answer has a result or an error")

    def _check_types(self) -> None:
        if self.body is not None and not isinstance(self.body, (bytes, bytearray)):
            raise TypeError(f"body is bytes, such as b'…' or text.encode(), not {self.body!r:.80}")
        if isinstance(self.status, bool) or not isinstance(self.status, int):
            raise TypeError(f"status is a number such as 503, not {self.status!r:.80}")
        mappings = {"headers": self.headers, "result": self.result, "error": self.error}
        for name, value in mappings.items():
            if value is not None and not isinstance(value, Mapping):
                raise TypeError(f"{name} is a dict, not {value!r:.80}")
        if isinstance(self.events, (str, bytes)) or not isinstance(self.events or (), Sequence):
            raise TypeError(f"events is a list of messages or bytes, not {self.events!r:.80}")
        for event in self.events or ():
            if not isinstance(event, (bytes, Mapping)):
                raise TypeError(f"an event is a message (a dict) or bytes, not {event!r:.80}")

    def pieces(self, request: StubRequest) -> list[bytes]:
        """Its head, then its body, chunk by chunk if it is an event stream."""
        response = self._response(request)
        if self.events is None:
            body = response if response is not None else self.body or b""
            given = {"content-length": str(len(body))}
            if response is not None:
                given["content-type"] = "application/json"
            return [self._head(given), body]
        events = [one if isinstance(one, bytes) else _event(_encode(one)) for one in self.events]
        if response is not None:
            events.append(_event(response))
        given = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in events if event]
        return [self._head(given), *chunks, b"0\r\n\r\n"]

    def _response(self, request: StubRequest) -> bytes | None:
        own: dict[str, Any]
        if self.error is not None:
            own = {"error": self.error}
        elif self.result is not None:
            own = {"result": {"resultType": "complete", **self.result}}
        else:
            return None
        return _encode({"jsonrpc": "2.0", "id": request.message.get("id"), **own})

    def _head(self, given: dict[str, str]) -> bytes:
        headers = {**given, **{name.lower(): value for name, value in self.headers.items()}}
        try:
            phrase = http.HTTPStatus(self.status).phrase
        except ValueError:
            phrase = ""
        lines = [f"HTTP/1.1 {self.status} {phrase}", *(f"{k}: {v}" for k, v in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


Answering: TypeAlias = (
    Sequence[Answer]
    | Callable[[StubRequest], Answer | None]
    | Callable[[StubRequest], Awaitable[Answer | None]]
)
"""Answers in the order in which they are given, or what finds one for each request."""


def discovery_answer(request: StubRequest) -> Answer | None:
    """To ``server/discover``: a server of revision 2026-07-28. ``None`` to anything else."""
    if request.message.get("method") != "server/discover":
        return None
    return Answer(result=_DISCOVERED)


def _encode(message: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(message)


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
