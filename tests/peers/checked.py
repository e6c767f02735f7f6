"""Peers that hold every line of a server against the specification's own JSON schema.

``async with checked_client(server) as peer`` is ``raw_client`` with a witness on the wire:
whatever the server sends is valid by the schema of its method, answers a request that waits for an
answer, or reports progress of a request that asked for it. On leaving, the peer closes its side and
reads to the end, so that nothing the server says goes unchecked.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema_rs
import trio
import trio.testing
from tests.peers.raw import RawPeer, RawProcess, raw_process

from trio_mcp import Server

Message: TypeAlias = dict[str, Any]
StreamPair: TypeAlias = Callable[[], tuple[trio.abc.HalfCloseableStream, trio.abc.Stream]]

_SCHEMA_FILE = Path(__file__).parents[1] / "data" / "2026-07-28" / "schema.json"
_REQUESTS = {
    "server/discover": "DiscoverRequest",
    "tools/list": "ListToolsRequest",
    "tools/call": "CallToolRequest",
    "subscriptions/listen": "SubscriptionsListenRequest",
}
_ANSWERS = {
    "server/discover": "DiscoverResultResponse",
    "tools/list": "ListToolsResultResponse",
    "tools/call": "CallToolResultResponse",
    "subscriptions/listen": "SubscriptionsListenResultResponse",
}
_COMPLETE = {
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "subscriptions/listen": "SubscriptionsListenResult",
}
_SUBSCRIBED = {
    "notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification",
    "notifications/tools/list_changed": "ToolListChangedNotification",
    "notifications/prompts/list_changed": "PromptListChangedNotification",
    "notifications/resources/list_changed": "ResourceListChangedNotification",
    "notifications/resources/updated": "ResourceUpdatedNotification",
}
_FILTERED_BY = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
_ERRORS = {
    -32700: "ParseError",
    -32600: "InvalidRequestError",
    -32601: "MethodNotFoundError",
    -32602: "InvalidParamsError",
    -32603: "InternalError",
}
_UNSUPPORTED_VERSION = -32022
_SERVER_INFO = "io.modelcontextprotocol/serverInfo"


class WireViolation(AssertionError):
    """A line on the wire breaks the specification."""


@cache
def _validator(definition: str) -> jsonschema_rs.Draft202012Validator:
    schema = json.loads(_SCHEMA_FILE.read_text("utf-8"))
    return jsonschema_rs.Draft202012Validator({**schema, "$ref": f"#/$defs/{definition}"})


def check_schema(definition: str, value: Any) -> None:
    """Raise `WireViolation` unless ``value`` is valid by a definition of the official schema."""
    errors = [
        f"{'.'.join(map(str, error.instance_path))}: {error.message[:300]}"
        for error in _validator(definition).iter_errors(value)
    ]
    if errors:
        raise WireViolation(f"no {definition}: {'; '.join(errors)}\n{str(value)[:1000]}")


def strict_json(line: bytes) -> Any:
    """One JSON text in UTF-8 on one line: no NaN, no infinities, no repeated members."""

    def refuse(constant: str) -> None:
        raise WireViolation(f"{constant} is not JSON")

    def members(pairs: list[tuple[str, Any]]) -> Message:
        if len({name for name, _ in pairs}) < len(pairs):
            raise WireViolation(f"a member is there twice: {[name for name, _ in pairs]}")
        return dict(pairs)

    if line != line.strip() or not line or b"\r" in line or line.startswith(b"\xef\xbb\xbf"):
        raise WireViolation(f"not one plain line: {line[:200]!r}")
    return json.loads(line.decode("utf-8"), parse_constant=refuse, object_pairs_hook=members)


class WireCheck:
    """What both sides of one channel have said, line by line.

    :param strict_client: the client's lines are to be valid too. Otherwise a request must be valid
        only if the server answered it with a result.
    """

    def __init__(self, *, strict_client: bool = False) -> None:
        self.sent: list[Message] = []
        self.received: list[Message] = []
        self._strict_client = strict_client
        self._open: dict[tuple[type, Any], list[Message]] = {}
        self._cancelled: list[tuple[type, Any]] = []
        self._progress: dict[tuple[type, Any], float] = {}
        self._granted: dict[tuple[type, Any], Message] = {}
        self._left: list[tuple[type, Any]] = []

    # The client's lines -------------------------------------------------------------------------

    def client_line(self, line: bytes) -> None:
        """The client sends a line; anything goes unless it is to be strict."""
        try:
            message = strict_json(line)
        except (WireViolation, ValueError):
            if self._strict_client:
                raise
            return
        if not isinstance(message, dict):
            return
        self.sent.append(message)
        if self._strict_client:
            self._check_client(message)
        if _is_id(message.get("id")) and not message.keys() & {"result", "error"}:
            self._open.setdefault(_key(message["id"]), []).append(message)

    def _check_client(self, message: Message) -> None:
        method = message.get("method")
        if "id" in message:
            check_schema(_REQUESTS.get(str(method), "JSONRPCRequest"), message)
            _require(_key(message["id"]) not in self._open, "this id was used before", message)
        else:
            _require(method == "notifications/cancelled", "an unknown notification", message)
            check_schema("CancelledNotification", message)
            cancelled = _key(message["params"]["requestId"])
            _require(bool(self._open.get(cancelled)), "cancels what is not in flight", message)
            _require(cancelled not in self._cancelled, "cancels twice", message)
            self._cancelled.append(cancelled)

    # The server's lines -------------------------------------------------------------------------

    def server_line(self, line: bytes) -> None:
        """The server sends a line. Raises `WireViolation` if it must not."""
        message = strict_json(line)
        check_schema("JSONRPCMessage", message)
        self.received.append(message)
        if "method" in message:
            self._check_notification(message)
        elif "error" in message:
            self._check_error(message)
        else:
            self._check_result(message)

    def _check_notification(self, message: Message) -> None:
        _require("id" not in message, "a server makes no requests", message)
        if message["method"] in _SUBSCRIBED:
            self._check_subscribed(message)
            return
        if message["method"] == "notifications/cancelled":
            self._check_farewell(message)
            return
        _require(message["method"] == "notifications/progress", "unasked for", message)
        check_schema("ProgressNotification", message)
        params = message["params"]
        token, progress = _key(params["progressToken"]), params["progress"]
        _require(token in self._tokens(), "progress for no request in flight", message)
        _require(math.isfinite(progress), "progress is not finite", message)
        before = self._progress.get(token, -math.inf)
        _require(progress > before, f"progress does not increase from {before}", message)
        self._progress[token] = progress

    def _check_subscribed(self, message: Message) -> None:
        """*Subscriptions*: the acknowledgement comes first, and nothing that was not asked for."""
        method, params = message["method"], message["params"]
        check_schema(_SUBSCRIBED[method], message)
        key = _key(params["_meta"][_SUBSCRIPTION])
        waiting = self._open.get(key, [])
        _require(bool(waiting), "about no subscription in flight", message)
        _require(waiting[0]["method"] == "subscriptions/listen", "about no subscription", message)
        wanted = waiting[0]["params"]["notifications"]
        if method == "notifications/subscriptions/acknowledged":
            _require(key not in self._granted, "acknowledged twice", message)
            granted = self._granted[key] = params["notifications"]
            for name, value in granted.items():
                _require(bool(wanted.get(name)) or value == [], f"{name} was not wanted", message)
                if name == "resourceSubscriptions":
                    _require(set(value) <= set(wanted[name]), "not these URIs", message)
            return
        _require(key in self._granted, "not acknowledged", message)
        granted = self._granted[key]
        if method == "notifications/resources/updated":
            uris = granted.get("resourceSubscriptions", [])
            _require(params["uri"] in uris, "this URI was not granted", message)
        else:
            _require(granted.get(_FILTERED_BY[method]) is True, "this was not granted", message)

    def _check_farewell(self, message: Message) -> None:
        """*Cancellation*: a server cancels subscriptions only, those that it has ended."""
        check_schema("CancelledNotification", message)
        key = _key(message["params"]["requestId"])
        _require(key in self._left, "cancels what it has not ended", message)
        self._left.remove(key)

    def _check_error(self, message: Message) -> None:
        check_schema("JSONRPCErrorResponse", message)
        code = message["error"]["code"]
        if code in _ERRORS:
            check_schema(_ERRORS[code], message["error"])
        elif code == _UNSUPPORTED_VERSION:
            check_schema("UnsupportedProtocolVersionError", message)
        else:
            _require(not -32768 <= code <= -32000, f"code {code} is reserved", message)
        _require(bool(message["error"]["message"].strip()), "an error without words", message)
        if "id" in message:
            self._answered(message)
        else:
            _require(code in (-32700, -32600), "an error about no request", message)
            self._forget_refused(message["error"].get("data"))

    def _forget_refused(self, data: Any) -> None:
        """A duplicate was refused: only the first request of that id is still to be answered."""
        if isinstance(data, Mapping) and "requestId" in data:
            waiting = self._open.get(_key(data["requestId"]), [])
            _require(bool(waiting), "refuses an id that was never sent", dict(data))
            waiting.pop()

    def _check_result(self, message: Message) -> None:
        check_schema("JSONRPCResultResponse", message)
        request = self._answered(message)
        method, result = request["method"], message["result"]
        _require(method in _ANSWERS, f"a result for {method}", message)
        check_schema(_REQUESTS[method], request)
        check_schema(_ANSWERS[method], message)
        _require("resultType" in result, "a result without resultType", message)
        if result["resultType"] == "complete":
            check_schema(_COMPLETE[method], result)
        else:
            _require(result["resultType"] == "input_required", "unknown resultType", message)
        check_schema("Implementation", result.get("_meta", {}).get(_SERVER_INFO))
        if method == "subscriptions/listen":
            ended = _key(result["_meta"][_SUBSCRIPTION])
            _require(ended == _key(message["id"]), "ends another subscription", message)
            _require(ended in self._left, "ended before it was acknowledged", message)

    def _answered(self, message: Message) -> Message:
        waiting = self._open.get(_key(message["id"]))
        if not waiting:
            raise WireViolation(f"nobody waits for this answer: {str(message)[:500]}")
        request = waiting.pop(0)
        if self._granted.pop(_key(message["id"]), None) is not None:
            self._left.append(_key(message["id"]))
        token = _token_of(request)
        if _is_id(token):
            self._progress.pop(_key(token), None)
        return request

    def _tokens(self) -> set[tuple[type, Any]]:
        waiting = (request for requests in self._open.values() for request in requests)
        return {_key(token) for token in map(_token_of, waiting) if _is_id(token)}


def _is_id(value: Any) -> bool:
    return type(value) in (str, int)


def _key(value: Any) -> tuple[type, Any]:
    """An id to compare by type and value."""
    return type(value), value


def _token_of(request: Message) -> Any:
    params = request.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get("progressToken") if isinstance(meta, dict) else None


def _require(holds: bool, otherwise: str, message: Message) -> None:
    if not holds:
        raise WireViolation(f"{otherwise}: {str(message)[:500]}")


# Peers ------------------------------------------------------------------------------------------


class CheckedStream(trio.abc.Stream):
    """The client's end of a channel; every line that passes goes to a `WireCheck`."""

    def __init__(
        self, send: trio.abc.SendStream, receive: trio.abc.ReceiveStream, check: WireCheck
    ) -> None:
        self.check = check
        self._send = send
        self._receive = receive
        self._outgoing = b""
        self._incoming = b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        *lines, self._outgoing = (self._outgoing + bytes(data)).split(b"\n")
        for line in lines:
            self.check.client_line(line)
        await self._send.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._send.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._receive.receive_some(max_bytes)
        *lines, self._incoming = (self._incoming + bytes(data)).split(b"\n")
        for line in lines:
            self.check.server_line(line)
        if not data and self._incoming:
            raise WireViolation(f"the last line has no end: {self._incoming[:200]!r}")
        return data

    async def read_to_end(self) -> None:
        while await self.receive_some(65536):
            pass

    async def aclose(self) -> None:
        await self._send.aclose()
        await self._receive.aclose()


@asynccontextmanager
async def checked_client(
    server: Server, pair: StreamPair = trio.testing.memory_stream_pair
) -> AsyncGenerator[RawPeer, None]:
    """A byte-level client of a server in this process, with a witness.

    On leaving it closes its side, as a client does that is done, and reads to the end.
    """
    ours, theirs = pair()
    stream = CheckedStream(ours, ours, WireCheck())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve_stream, theirs)
        yield RawPeer(stream, stream)
        with trio.fail_after(10):
            await ours.send_eof()
            await stream.read_to_end()
        await ours.aclose()


class CheckedProcess(RawPeer):
    """A launched server, with a witness."""

    def __init__(self, stream: CheckedStream, raw: RawProcess) -> None:
        super().__init__(stream, stream)
        self.process = raw.process
        self.raw = raw


@asynccontextmanager
async def checked_process(
    command: Sequence[str], *, env: Mapping[str, str] | None = None
) -> AsyncGenerator[CheckedProcess, None]:
    """A launched server over its real pipes, with a witness; it has to exit cleanly at the end."""
    async with raw_process(command, env=env) as raw:
        stream = CheckedStream(raw.send_stream, raw.receive_stream, WireCheck())
        yield CheckedProcess(stream, raw)
        with trio.fail_after(10):
            await raw.send_stream.aclose()
            await stream.read_to_end()
            assert await raw.process.wait() == 0, raw.stderr.decode(errors="replace")
