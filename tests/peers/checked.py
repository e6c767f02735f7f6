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
from trio_mcp.runtime.logs import LEVELS

Message: TypeAlias = dict[str, Any]
StreamPair: TypeAlias = Callable[[], tuple[trio.abc.HalfCloseableStream, trio.abc.Stream]]

_SCHEMA_FILE = Path(__file__).parents[1] / "data" / "2026-07-28" / "schema.json"
_REQUESTS = {
    "server/discover": "DiscoverRequest",
    "tools/list": "ListToolsRequest",
    "tools/call": "CallToolRequest",
    "resources/list": "ListResourcesRequest",
    "resources/templates/list": "ListResourceTemplatesRequest",
    "resources/read": "ReadResourceRequest",
    "prompts/list": "ListPromptsRequest",
    "prompts/get": "GetPromptRequest",
    "completion/complete": "CompleteRequest",
    "subscriptions/listen": "SubscriptionsListenRequest",
}
_COMPLETE = {
    method: request.removesuffix("Request") + "Result" for method, request in _REQUESTS.items()
}
_ANSWERS = {method: f"{result}Response" for method, result in _COMPLETE.items()}
_MAY_ASK = ("tools/call", "resources/read", "prompts/get")
_CHANGES = {
    "notifications/tools/list_changed": ("ToolListChangedNotification", "toolsListChanged"),
    "notifications/prompts/list_changed": ("PromptListChangedNotification", "promptsListChanged"),
    "notifications/resources/list_changed": (
        "ResourceListChangedNotification",
        "resourcesListChanged",
    ),
    "notifications/resources/updated": ("ResourceUpdatedNotification", "resourceSubscriptions"),
}
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_ERRORS = {
    -32700: "ParseError",
    -32600: "InvalidRequestError",
    -32601: "MethodNotFoundError",
    -32602: "InvalidParamsError",
    -32603: "InternalError",
}
_ERROR_RESPONSES = {
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
}
_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
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
        self._acknowledged: dict[tuple[type, Any], Message] = {}
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
        method = message["method"]
        if method == "notifications/progress":
            self._check_progress(message)
        elif method == "notifications/message":
            self._check_log(message)
        elif method == _ACKNOWLEDGED:
            self._check_acknowledgement(message)
        elif method == "notifications/cancelled":
            check_schema("CancelledNotification", message)
            listen = _key(message["params"]["requestId"])
            _require(listen in self._left, "cancels what is no subscription it left", message)
            self._left.remove(listen)
        else:
            _require(method in _CHANGES, "unasked for", message)
            self._check_change(message)

    def _check_progress(self, message: Message) -> None:
        check_schema("ProgressNotification", message)
        params = message["params"]
        token, progress = _key(params["progressToken"]), params["progress"]
        _require(token in self._tokens(), "progress for no request in flight", message)
        _require(math.isfinite(progress), "progress is not finite", message)
        before = self._progress.get(token, -math.inf)
        _require(progress > before, f"progress does not increase from {before}", message)
        self._progress[token] = progress

    def _check_log(self, message: Message) -> None:
        check_schema("LoggingMessageNotification", message)
        asked = [_meta_of(request).get(_LOG_LEVEL) for request in self._waiting()]
        levels = [LEVELS.index(level) for level in asked if level in LEVELS]
        _require(bool(levels), "no request in flight asked for log messages", message)
        severity = LEVELS.index(message["params"]["level"])
        _require(severity >= min(levels), "less severe than anybody asked for", message)

    def _check_acknowledgement(self, message: Message) -> None:
        check_schema("SubscriptionsAcknowledgedNotification", message)
        listen = _key(_meta_of(message)[_SUBSCRIPTION])
        requests = self._open.get(listen, [])
        _require(bool(requests), "acknowledges no request in flight", message)
        _require(requests[0]["method"] == "subscriptions/listen", "acknowledges else", message)
        _require(listen not in self._acknowledged, "acknowledged twice", message)
        asked, agreed = requests[0]["params"]["notifications"], message["params"]["notifications"]
        for name, value in agreed.items():
            wanted = asked.get(name)
            within = set(value) <= set(wanted or []) if type(value) is list else wanted is value
            _require(within, f"more {name} than was asked for", message)
        self._acknowledged[listen] = agreed

    def _check_change(self, message: Message) -> None:
        definition, name = _CHANGES[message["method"]]
        check_schema(definition, message)
        listen = _key(_meta_of(message)[_SUBSCRIPTION])
        _require(listen in self._acknowledged, "before its acknowledgement, or after all", message)
        agreed = self._acknowledged[listen].get(name)
        asked = agreed is True if type(agreed) is not list else message["params"]["uri"] in agreed
        _require(asked, "not what was agreed on", message)

    def _check_error(self, message: Message) -> None:
        check_schema("JSONRPCErrorResponse", message)
        code = message["error"]["code"]
        if code in _ERRORS:
            check_schema(_ERRORS[code], message["error"])
        elif code in _ERROR_RESPONSES:
            check_schema(_ERROR_RESPONSES[code], message)
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
        check_schema(_REQUESTS[method], _without_answers(request))
        check_schema(_ANSWERS[method], message)
        _require("resultType" in result, "a result without resultType", message)
        if result["resultType"] == "complete":
            check_schema(_COMPLETE[method], result)
        else:
            _require(result["resultType"] == "input_required", "unknown resultType", message)
            self._check_questions(request, result)
        check_schema("Implementation", result.get("_meta", {}).get(_SERVER_INFO))
        if method == "subscriptions/listen":
            ended = _key(result["_meta"][_SUBSCRIPTION])
            _require(ended == _key(message["id"]), "ends another subscription", message)
            _require(ended in self._left, "ended before it was acknowledged", message)

    def _check_questions(self, request: Message, result: Message) -> None:
        """*Multi Round-Trip Requests*: "Server Requirements"."""
        _require(request["method"] in _MAY_ASK, "asks where it must not", result)
        check_schema("InputRequiredResult", result)
        questions = result.get("inputRequests", {})
        _require(bool(questions) or "requestState" in result, "asks for nothing", result)
        capabilities = request["params"]["_meta"][_CAPABILITIES]
        for question in questions.values():
            method, params = question["method"], question.get("params", {})
            name = method.partition("/")[0]
            _require(name in capabilities, f"the client has no {name}", question)
            can = capabilities[name]
            if method == "elicitation/create":
                mode = params.get("mode", "form")
                check_schema(f"ElicitRequest{'URL' if mode == 'url' else 'Form'}Params", params)
                _require(mode in (can or {"form": {}}), f"the client has no {mode}", question)
            elif method == "sampling/createMessage":
                check_schema("CreateMessageRequest", question)
                tools = params.keys() & {"tools", "toolChoice"}
                _require(not tools or "tools" in can, "the client has no tools", question)
            else:
                check_schema("ListRootsRequest", question)

    def _answered(self, message: Message) -> Message:
        waiting = self._open.get(_key(message["id"]))
        if not waiting:
            raise WireViolation(f"nobody waits for this answer: {str(message)[:500]}")
        request = waiting.pop(0)
        listen = _key(message["id"])
        if self._acknowledged.pop(listen, None) is not None and "result" in message:
            _require(_meta_of_result(message)[_SUBSCRIPTION] == listen[1], "whose end?", message)
            self._left.append(listen)
        token = _token_of(request)
        if _is_id(token):
            self._progress.pop(_key(token), None)
        return request

    def _tokens(self) -> set[tuple[type, Any]]:
        return {_key(token) for token in map(_token_of, self._waiting()) if _is_id(token)}

    def _waiting(self) -> list[Message]:
        return [request for requests in self._open.values() for request in requests]


def _is_id(value: Any) -> bool:
    return type(value) in (str, int)


def _key(value: Any) -> tuple[type, Any]:
    """An id to compare by type and value."""
    return type(value), value


def _token_of(request: Message) -> Any:
    return _meta_of(request).get("progressToken")


def _meta_of(message: Message) -> Message:
    """The metadata of a request or a notification."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def _meta_of_result(message: Message) -> Message:
    meta: Message = message["result"].get("_meta", {})
    return meta


def _without_answers(request: Message) -> Message:
    """A request without ``inputResponses``: what nobody asked for is ignored, whatever it is."""
    params = {k: v for k, v in request["params"].items() if k != "inputResponses"}
    return {**request, "params": params}


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
