"""The rules of the HTTP endpoint, without a wire: heads, bodies, metadata headers, events."""

from __future__ import annotations

import base64
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import attrs
import msgspec
import pytest
from tests.peers.raw import META, call, cancel, request

from trio_mcp import Limits, Server
from trio_mcp.runtime.errors import ErrorCode, ProtocolError
from trio_mcp.runtime.jsonrpc import Request
from trio_mcp.runtime.mirrored import MirroredParameter, mirrored_parameters
from trio_mcp.transports.http.endpoint import Endpoint, answer_error, status_of
from trio_mcp.transports.http.header_values import decode_value, encode_value
from trio_mcp.transports.http.heads import KnownHeads
from trio_mcp.transports.http.incoming import Continue, Incoming, Whole
from trio_mcp.transports.http.message import Answer, RequestHead
from trio_mcp.transports.http.metadata import check_metadata
from trio_mcp.transports.http.sse import COMMENT, encode_event

LIMITS = Limits(message_bytes=10_000, http_head_bytes=2_000, http_pipeline=3)
HOST = ("host", "127.0.0.1:8000")
JSON = ("content-type", "application/json")
PLAIN = {"host": "127.0.0.1:8000", "content-type": "application/json"}


def head_of(*headers: tuple[str, str], method: str = "POST", path: str = "/mcp") -> RequestHead:
    return RequestHead(method, path, headers, "test")


def status(answer: Answer | None) -> int | None:
    return None if answer is None else answer.status


def error_in(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = msgspec.json.decode(answer.body)
    return message


# The head -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        " application/json;",
    ],
)
def test_content_types_that_are_json(value: str) -> None:
    assert Endpoint().check_head(head_of(HOST, ("content-type", value)), LIMITS) is None


@pytest.mark.parametrize(
    "value", [None, "", "text/plain", "application/jsonp", "application/json5", "json", "*/*"]
)
def test_content_types_that_are_not(value: str | None) -> None:
    headers = [HOST] if value is None else [HOST, ("content-type", value)]
    assert status(Endpoint().check_head(head_of(*headers), LIMITS)) == 415


@pytest.mark.parametrize(
    "values",
    [
        [],
        ["*/*"],
        ["application/json, text/event-stream"],
        ["application/json", "text/event-stream"],
        ["APPLICATION/JSON, Text/Event-Stream"],
        ["application/json"],
        ["text/event-stream;q=0.5"],
    ],
)
def test_any_accept_will_do(values: list[str]) -> None:
    head = head_of(HOST, JSON, *(("accept", value) for value in values))
    assert Endpoint().check_head(head, LIMITS) is None


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1", True),
        ("localhost:65535", True),
        ("LocalHost:1", True),
        ("[::1]:8000", True),
        ("mine.example", True),
        ("MINE.example:99", True),
        ("one.example:443", True),
        ("[2001:DB8::1]:8000", True),
        ("one.example:80", False),
        ("one.example", False),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("evil.example:8000@localhost", False),
        ("localhost:8000:8000", False),
        ("localhost/", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("null", False),
    ],
)
def test_hosts(host: str, allowed: bool) -> None:
    endpoint = Endpoint(
        hosts=("localhost", "127.0.0.1", "[::1]", "Mine.Example", "one.example:443", "2001:db8::1")
    )
    expected = None if allowed else 403
    assert status(endpoint.check_head(head_of(("host", host), JSON), LIMITS)) == expected
    anyone = Endpoint(hosts=("*",))
    assert anyone.check_head(head_of(("host", host), JSON), LIMITS) is None


def test_no_host_and_two_hosts_are_refused() -> None:
    assert status(Endpoint().check_head(head_of(JSON), LIMITS)) == 403
    assert status(Endpoint().check_head(head_of(HOST, HOST, JSON), LIMITS)) == 403


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("http://localhost:3000", True),
        ("https://127.0.0.1", True),
        ("HTTP://[::1]:8000", True),
        ("https://app.example", True),
        ("https://APP.example", True),
        ("http://app.example", False),
        ("http://evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://localhost@evil.example", False),
        ("http://evil.example#localhost", False),
        ("null", False),
        ("", False),
        ("file://", False),
        ("localhost", False),
        ("http://localhost:3000, http://evil.example", False),
    ],
)
def test_origins(origin: str | None, allowed: bool) -> None:
    head = head_of(HOST, JSON, *([] if origin is None else [("origin", origin)]))
    endpoint = Endpoint(origins=("https://App.example",))
    assert status(endpoint.check_head(head, LIMITS)) == (None if allowed else 403)
    assert Endpoint(origins=("*",)).check_head(head, LIMITS) is None


def test_two_origins_are_refused() -> None:
    local = ("origin", "http://localhost")
    assert status(Endpoint().check_head(head_of(HOST, JSON, local, local), LIMITS)) == 403


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "HEAD"])
def test_other_methods_are_told_of_post(method: str) -> None:
    answer = Endpoint().check_head(head_of(HOST, method=method), LIMITS)
    assert answer is not None
    assert answer.status == 405
    assert ("allow", "POST") in [*answer.head()]


def test_a_response_without_content_has_no_content_length() -> None:
    answer = Endpoint().check_head(head_of(HOST, method="OPTIONS"), LIMITS)
    assert answer is not None
    assert answer.status == 204
    assert [*answer.head()] == [("allow", "POST")]
    assert [*Answer(202).head()] == [("content-length", "0")]


def test_another_path_is_404_and_says_where() -> None:
    answer = Endpoint().check_head(head_of(HOST, JSON, path="/"), LIMITS)
    assert answer is not None
    assert answer.status == 404
    assert "/mcp" in error_in(answer)["error"]["message"]
    assert "id" not in error_in(answer)


def test_a_declared_length_over_the_limit_is_413() -> None:
    def check(length: int) -> int | None:
        head = head_of(HOST, JSON, ("content-length", str(length)))
        return status(Endpoint().check_head(head, LIMITS))

    assert [check(10_000), check(10_001), check(2**63)] == [None, 413, 413]


def test_no_session_and_no_event_id_is_asked_for() -> None:
    head = head_of(HOST, JSON, ("mcp-session-id", "s"), ("last-event-id", "7"))
    assert Endpoint().check_head(head, LIMITS) is None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (None, 200),
        (ErrorCode.PARSE_ERROR, 400),
        (ErrorCode.INVALID_REQUEST, 400),
        (ErrorCode.METHOD_NOT_FOUND, 404),
        (ErrorCode.INVALID_PARAMS, 400),
        (ErrorCode.HEADER_MISMATCH, 400),
        (ErrorCode.MISSING_CLIENT_CAPABILITY, 400),
        (ErrorCode.UNSUPPORTED_PROTOCOL_VERSION, 400),
        (ErrorCode.SHUTTING_DOWN, 503),
        (ErrorCode.OVERLOADED, 503),
        (ErrorCode.DEADLINE_EXCEEDED, 200),
        (ErrorCode.INTERNAL_ERROR, 200),
        (1234, 200),
    ],
)
def test_statuses(code: int | None, expected: int) -> None:
    assert status_of(code) == expected


@pytest.mark.parametrize(("milliseconds", "seconds"), [(1, "1"), (1000, "1"), (1001, "2")])
def test_retry_after_is_whole_seconds_rounded_up(milliseconds: int, seconds: str) -> None:
    error = ProtocolError(ErrorCode.OVERLOADED, "later", {"retryAfterMs": milliseconds})
    assert ("retry-after", seconds) in [*answer_error(error).head()]


# The body -----------------------------------------------------------------------------------------


def metadata(message: Mapping[str, Any], **changes: str | None) -> list[tuple[str, str]]:
    """The metadata headers of a request; ``mcp_name=None`` leaves one out."""
    params = message["params"]
    headers: dict[str, str | None] = {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": message["method"],
    }
    if (name := params.get("name", params.get("uri"))) is not None:
        headers["mcp-name"] = encode_value(name)
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    return [(name, value) for name, value in headers.items() if value is not None]


METHODS = ("server/discover", "tools/list", "tools/call", "resources/read", "prompts/get")


def read(message: Any, *headers: tuple[str, str]) -> Request | Answer:
    body = message if isinstance(message, bytes) else msgspec.json.encode(message)
    return Endpoint().read(head_of(*headers), body, LIMITS, METHODS, lambda _: ())


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"garbage", -32700),
        (b"", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 5_000, -32700),
        (b"[]", -32600),
        (b"null", -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.0,"method":"x"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}', -32600),
    ],
)
def test_bodies_that_are_no_request_are_400_without_an_id(body: bytes, code: int) -> None:
    answer = read(body)
    assert isinstance(answer, Answer)
    assert answer.status == 400
    assert error_in(answer)["error"]["code"] == code
    assert "id" not in error_in(answer)


def test_params_that_are_no_object_are_400_with_the_id() -> None:
    answer = read(b'{"jsonrpc":"2.0","id":"7","method":"x","params":[]}')
    assert isinstance(answer, Answer)
    assert (answer.status, error_in(answer)["id"]) == (400, "7")
    assert error_in(answer)["error"]["code"] == -32602


@pytest.mark.parametrize("message", [cancel(1, "why"), {"jsonrpc": "2.0", "method": "no/such"}])
def test_notifications_are_202_without_content(message: Any) -> None:
    answer = read(message)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.body) == (202, b"")


# Metadata headers ---------------------------------------------------------------------------------

CALL = call(7, "echo", text="x")
READ = request("r", "resources/read", {"uri": "file:///a b"})


@pytest.mark.parametrize(
    "message", [CALL, READ, request(0, "tools/list"), request("", "server/discover")]
)
def test_headers_that_agree(message: Any) -> None:
    found = read(message, *metadata(message))
    assert isinstance(found, Request)
    assert found.id == message["id"]


def test_the_headers_of_a_method_that_is_not_there_are_not_looked_at() -> None:
    initialize = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
    assert isinstance(read(initialize), Request)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mcp_protocol_version": None}, "MCP-Protocol-Version header is missing"),
        ({"mcp_method": None}, "Mcp-Method header is missing"),
        ({"mcp_name": None}, "Mcp-Name header is missing"),
        ({"mcp_protocol_version": "2025-11-25"}, "'2025-11-25', the body '2026-07-28'"),
        ({"mcp_protocol_version": ""}, "MCP-Protocol-Version"),
        ({"mcp_method": "tools/list"}, "Mcp-Method"),
        ({"mcp_method": "Tools/Call"}, "Mcp-Method"),
        ({"mcp_method": "=?base64?dG9vbHMvY2FsbA==?="}, "Mcp-Method"),
        ({"mcp_name": "sleep"}, "'sleep', the body 'echo'"),
        ({"mcp_name": "ECHO"}, "Mcp-Name"),
        ({"mcp_name": ""}, "Mcp-Name"),
        ({"mcp_name": "=?base64?c2xlZXA=?="}, "'sleep', the body 'echo'"),
        ({"mcp_name": "=?base64?!?="}, "no Base64"),
        ({"mcp_name": "=?base64?ZWNobw?="}, "no Base64"),
        ({"mcp_name": "=?base64?/w==?="}, "no Base64"),
        ({"mcp_name": "=?base64?ZWNobx==?="}, "no Base64"),
        ({"mcp_name": "=?BASE64?ZWNobw==?="}, "Mcp-Name"),
        ({"mcp_name": "ech\xf6"}, "need Base64"),
    ],
)
def test_headers_that_disagree(changes: dict[str, str | None], text: str) -> None:
    answer = read(CALL, *metadata(CALL, **changes))
    assert isinstance(answer, Answer)
    assert answer.status == 400
    error = error_in(answer)
    assert (error["id"], error["error"]["code"]) == (7, -32020)
    assert text in error["error"]["message"]


@pytest.mark.parametrize("name", ["ech\xf6", "=?base64?ZWNobw==?="])
def test_a_name_that_needs_base64_is_refused_without_though_both_agree(name: str) -> None:
    message = {**CALL, "params": {**CALL["params"], "name": name}}
    answer = read(message, *metadata(CALL, mcp_name=name))
    assert isinstance(answer, Answer)
    assert error_in(answer)["error"]["code"] == -32020


@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name"])
def test_a_metadata_header_that_is_there_twice_is_refused_though_both_agree(name: str) -> None:
    headers = metadata(CALL)
    answer = read(CALL, *headers, (name, dict(headers)[name]))
    assert isinstance(answer, Answer)
    assert error_in(answer)["error"]["code"] == -32020
    assert "more than one" in error_in(answer)["error"]["message"]


def test_an_encoded_name_is_decoded_before_it_is_compared() -> None:
    for name in ("echo", "Bücher 世界", " padded ", "=?base64?literal?=", "a\nb", ""):
        message = request(1, "prompts/get", {"name": name})
        encoded = f"=?base64?{base64.b64encode(name.encode()).decode()}?="
        assert isinstance(read(message, *metadata(message, mcp_name=encoded)), Request), name


def test_what_only_the_body_has_wrong_is_left_to_the_handler() -> None:
    wrongs: list[dict[str, Any]] = [{"name": 7}, {"name": None}, {"_meta": None}, {"_meta": {}}]
    for wrong in wrongs:
        message = {**CALL, "params": {**CALL["params"], **wrong}}
        found = read(message, *metadata(CALL))
        assert isinstance(found, Request)


@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("a b", "a b"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("", "=?base64??="),
    ],
)
def test_values_are_encoded_as_the_specification_shows(value: str, header: str) -> None:
    assert encode_value(value) == header
    assert decode_value(header) == value


def test_an_empty_header_is_an_empty_value() -> None:
    assert decode_value("") == ""


# Mcp-Param-* --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "headers", "fits"),
    [
        ("eu", ["eu"], True),
        ("eu", ["=?base64?ZXU=?="], True),
        ("", [""], True),
        ("eu", ["EU"], False),
        ("eu", [], False),
        ("eu", ["eu", "eu"], False),
        ("eu", ["=?base64?ZXU?="], False),
        ("eu", ["\xe9u"], False),
        (None, [], True),
        (None, ["eu"], False),
        (None, ["null"], False),
        (42, ["42"], True),
        (42, ["42.0"], True),
        (42.0, ["42"], True),
        (-7, ["-7"], True),
        (2**53 - 1, ["9007199254740991"], True),
        (2**53 - 1, ["9007199254740992"], False),
        (42, ["42.5"], False),
        (42, ["4_2"], False),
        (42, ["0x2a"], False),
        (42, ["4" * 5_000], False),
        (1, ["true"], False),
        (True, ["true"], True),
        (True, ["True"], False),
        (True, ["1"], False),
        (False, ["false"], True),
        ("true", ["true"], True),
        (["eu"], ["eu"], False),
    ],
)
def test_a_mirrored_argument_and_its_header(value: Any, headers: list[str], fits: bool) -> None:
    head = head_of(*metadata(CALL), *(("mcp-param-region", header) for header in headers))
    asked = Request(7, CALL["method"], CALL["params"])
    error = check_metadata(head, asked, [("Mcp-Param-Region", value)])
    assert (error is None) == fits
    if error is not None:
        assert (error.code, error.request_id) == (-32020, 7)
        assert "Mcp-Param-Region" in error.message


def test_a_header_that_no_argument_is_mirrored_in_is_ignored() -> None:
    assert isinstance(read(CALL, *metadata(CALL), ("mcp-param-other", "\xff")), Request)


def mirror(name: Any, **more: Any) -> dict[str, Any]:
    return {"type": "string", "x-mcp-header": name, **more}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_mirrored_parameters_are_found_with_their_paths() -> None:
    found = mirrored_parameters(
        {
            **schema(
                region=mirror("Region"),
                where=schema(
                    zone=mirror("Zone", type="integer"), dry=mirror("Dry", type="boolean")
                ),
                plain={"type": "string", "default": {"x-mcp-header": "data"}},
            ),
            "examples": [{"x-mcp-header": 7}],
        }
    )
    assert {parameter.header: parameter.path for parameter in found} == {
        "Mcp-Param-Region": ("region",),
        "Mcp-Param-Zone": ("where", "zone"),
        "Mcp-Param-Dry": ("where", "dry"),
    }
    assert mirrored_parameters(schema(**{"x-mcp-header": {"type": "string"}})) == ()
    assert mirrored_parameters({"dependencies": {"x-mcp-header": ["a"]}}) == ()


def test_the_value_of_a_mirrored_parameter_is_read_at_its_path() -> None:
    zone = MirroredParameter("Mcp-Param-Zone", ("where", "zone"))
    assert zone.value_in({"where": {"zone": 3}}) == 3
    absents: list[Any] = [
        None,
        {},
        {"where": None},
        {"where": {}},
        {"where": [3]},
        {"zone": 3},
        "x",
    ]
    for absent in absents:
        assert zone.value_in(absent) is None


@pytest.mark.parametrize(
    "bad",
    [
        schema(a=mirror("")),
        schema(a=mirror("two words")),
        schema(a=mirror("line\n")),
        schema(a=mirror("r\u00e9gion")),
        schema(a=mirror(7)),
        schema(a=mirror("A", type="number")),
        schema(a=mirror("A", type="object")),
        schema(a=mirror("A", type=["string", "null"])),
        schema(a={"x-mcp-header": "A"}),
        schema(a=mirror("Same"), b=mirror("sAME")),
        schema(a={"type": "array", "items": mirror("A")}),
        schema(a={"type": "array", "prefixItems": [mirror("A")]}),
        schema(a={"anyOf": [mirror("A"), {"type": "null"}]}),
        schema(a={"not": mirror("A")}),
        schema(a={"additionalProperties": mirror("A")}),
        {**schema(a={"$ref": "#/$defs/a"}), "$defs": {"a": mirror("A")}},
        {"allOf": [schema(a=mirror("A"))]},
        {"if": schema(a=mirror("A"))},
        {"dependencies": {"a": schema(b=mirror("A"))}},
        {"x-shared": {"a": mirror("A")}, **schema(a={"$ref": "#/x-shared/a"})},
        {"type": "object", "x-mcp-header": "Root"},
    ],
)
def test_annotations_that_may_not_be(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="x-mcp-header"):
        mirrored_parameters(bad)


def header(name: str) -> msgspec.Meta:
    return msgspec.Meta(extra_json_schema={"x-mcp-header": name})


def test_a_tool_with_a_bad_annotation_is_refused_when_it_is_registered() -> None:
    server = Server("x", version="1")

    async def query(rate: Annotated[float, header("Rate")]) -> str:
        return "never"

    with pytest.raises(ValueError, match=r"'query'.*x-mcp-header.*rate"):
        server.tool(query)
    assert len(server._tools) == 0


def test_the_tools_feature_knows_the_headers_of_a_call() -> None:
    server = Server("x", version="1")

    @server.tool
    async def query(region: Annotated[str, header("Region")], sql: str = "") -> str:
        return region

    def headers(params: Any) -> list[tuple[str, Any]]:
        return [*server._tools.mirrored(params)]

    arguments = {"region": "eu", "sql": "SELECT 1"}
    assert headers({"name": "query", "arguments": arguments}) == [("Mcp-Param-Region", "eu")]
    assert headers({"name": "query"}) == [("Mcp-Param-Region", None)]
    assert headers({"name": "other", "arguments": arguments}) == []
    assert headers({"name": ["query"]}) == headers({}) == []


# From bytes to requests ---------------------------------------------------------------------------


def incoming(limits: Limits = LIMITS) -> Incoming:
    return Incoming(lambda head: Endpoint().check_head(head, limits), limits, "test", KnownHeads(8))


def taken(source: Incoming) -> Iterator[Whole | Answer | Continue]:
    while source:
        yield source.take()


def outcome(source: Incoming) -> list[Any]:
    """What was taken: the bodies of requests, the statuses of refusals."""
    return [
        bytes(item.body) if isinstance(item, Whole) else getattr(item, "status", 100)
        for item in taken(source)
    ]


def post(
    body: bytes = b"{}",
    *,
    chunks: list[bytes] | None = None,
    version: str = "1.1",
    more: str = "",
    target: str = "/mcp",
) -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in PLAIN.items()) + more
    if chunks is None:
        head += f"content-length: {len(body)}\r\n"
    else:
        head += "transfer-encoding: chunked\r\n"
        body = b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
    return f"POST {target} HTTP/{version}\r\n{head}\r\n".encode() + body


def test_two_requests_split_at_every_place() -> None:
    data = post(b'{"a":1}') + post(chunks=[b'{"b"', b":2}"])
    for at in range(len(data) + 1):
        source = incoming()
        source.feed(data[:at])
        source.feed(data[at:])
        assert outcome(source) == [b'{"a":1}', b'{"b":2}'], at
        assert source.stage is None


def test_two_requests_byte_by_byte() -> None:
    data = post(b'{"a":1}') + b"\r\n" + post(chunks=[b"{", b"}"])
    source = incoming()
    for byte in data:
        source.feed(bytes([byte]))
    assert outcome(source) == [b'{"a":1}', b"{}"]


def test_white_space_around_a_header_is_no_part_of_it() -> None:
    source = incoming()
    source.feed(post(more="Mcp-Name:\t echo \t\r\nMcp-Param-Empty:\r\n"))
    (item,) = taken(source)
    assert isinstance(item, Whole)
    assert item.head.get("mcp-name") == "echo"
    assert item.head.get("mcp-param-empty") == ""


def test_stages_change_with_the_parts_of_a_request() -> None:
    source = incoming()
    seen = [(source.stage, source.stages)]
    for part in (b"\r\n", b"P", b"OST", post()[4:-1], b"}"):
        source.feed(part)
        seen.append((source.stage, source.stages))
    stages = [stage for stage, _ in seen]
    assert stages == [None, None, "head", "head", "body", None]
    assert [count for _, count in seen] == [0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"FOO /mcp HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"POST /mcp HTTP/0.9\r\n\r\n", 505),
        (b"POST * HTTP/1.1\r\nhost: localhost\r\n\r\n", 404),
        (b"CONNECT evil.example:80 HTTP/1.1\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 400),
        (post(more="content-length: 2\r\n"), 400),
        (post(more="transfer-encoding: chunked\r\n"), 400),
        (post(more="x: a\x00b\r\n"), 400),
        (post().replace(b"content-length: 2", b"content-length: +2"), 400),
        (post().replace(b"content-length: 2", b"content-length: " + b"9" * 30), 400),
        (post(chunks=[b"{}"]).replace(b"\r\n2\r\n", b"\r\nzz\r\n"), 400),
    ],
)
def test_what_is_no_http_is_refused_once_and_nothing_behind_it_is_looked_at(
    head: bytes, status: int
) -> None:
    source = incoming()
    source.feed(head + post())
    source.feed(post())
    (item,) = taken(source)
    assert isinstance(item, Answer)
    assert (item.status, item.close) == (status, True)


@pytest.mark.parametrize("method", ["OPTIONS", "GET", "HEAD", "DELETE"])
def test_every_refusal_ends_the_connection(method: str) -> None:
    source = incoming()
    source.feed(f"{method} /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() + post())
    (item,) = taken(source)
    assert isinstance(item, Answer)
    assert item.close


def test_an_offer_to_upgrade_is_ignored() -> None:
    offer = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    data = post(b'{"a":1}', more=offer) + post(chunks=[b"{", b"}"], more=offer) + post(b"[]")
    for step in (1, 7, len(data)):
        source = incoming()
        for at in range(0, len(data), step):
            source.feed(data[at : at + step])
        items = [*taken(source)]
        assert [bytes(item.body) for item in items if isinstance(item, Whole)] == [
            b'{"a":1}',
            b"{}",
            b"[]",
        ]
        assert all(isinstance(item, Whole) and item.keep_alive for item in items)
    source = incoming()
    source.feed(post(more="connection: close, upgrade\r\nupgrade: x\r\n"))
    (item,) = taken(source)
    assert isinstance(item, Whole)
    assert not item.keep_alive


def test_offers_behind_a_refusal_are_not_looked_at() -> None:
    source = incoming()
    refused = b"GET /nothere HTTP/1.1\r\nhost: localhost\r\n\r\n"
    source.feed(refused + b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n" * 64)
    assert outcome(source) == [404]
    assert len(source._url) < 100  # it has doubled with every offer


def test_offers_that_wait_are_bounded_as_other_requests() -> None:
    source = incoming(Limits(http_pipeline=3))
    source.feed(post(more="connection: upgrade\r\nupgrade: x\r\n") * 2000)
    assert [*outcome(source)][-1] == 503
    assert len(outcome(source)) == 0


def test_a_head_that_upgrades_cannot_be_longer_than_another() -> None:
    source = incoming()
    offer = "connection: upgrade\r\nupgrade: h2c\r\n"
    source.feed(post(more=offer + f"x: {'y' * 2_000}\r\n"))
    assert outcome(source) == [431]


@pytest.mark.parametrize(
    "data",
    [
        b"POST /mcp HTTP/1.1\r\nx: " + b"y" * 5_000,
        b"POST /" + b"y" * 5_000,
        post(more=f"x: {'y' * 2_000}\r\n"),
        post(more="a:b\r\n" * 500),
        post(chunks=[])[:-2] + b"x: " + b"y" * 5_000,
        post(chunks=[])[:-2] + b"a:b\r\n" * 1_000,
        post(chunks=[b"{}"])[:-5] + b"2;" + b"y" * 5_000,
    ],
    ids=["header", "target", "whole head", "many headers", "trailer", "trailers", "extension"],
)
@pytest.mark.parametrize("step", [1, 100, 10_000])
def test_endless_heads_and_trailers_are_431(data: bytes, step: int) -> None:
    source = incoming()
    for at in range(0, len(data), step):
        source.feed(data[at : at + step])
    source.feed(b"y" * 2_001)
    assert outcome(source) == [431]


def test_a_long_body_in_front_of_a_head_does_not_count_for_it() -> None:
    source = incoming()
    data = post(b"x" * 9_000) + post()
    source.feed(data[:-80])
    source.feed(data[-80:])
    assert outcome(source) == [b"x" * 9_000, b"{}"]


def test_a_body_in_tiny_chunks_is_no_long_head() -> None:
    source = incoming()
    data = post(chunks=[b"x"] * 5_000)
    for at in range(0, len(data), 100):
        source.feed(data[at : at + 100])
    assert outcome(source) == [b"x" * 5_000]


@pytest.mark.parametrize("limits", [LIMITS, Limits(message_bytes=100_000)])
def test_a_chunked_body_over_the_limit_is_413_and_not_kept(limits: Limits) -> None:
    source = incoming(limits)
    chunk = b"2000\r\n" + b"x" * 0x2000 + b"\r\n"
    source.feed(post(chunks=[])[:-5])
    tracemalloc.start()
    try:
        for _ in range(1_000):
            source.feed(chunk)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome(source) == [413]
    assert peak < 4 * limits.message_bytes + 100_000


def test_a_body_in_tiny_chunks_takes_no_more_memory_than_a_whole_one() -> None:
    source = incoming(Limits())
    source.feed(post(chunks=[])[:-5])
    tracemalloc.start()
    try:
        for _ in range(100):
            source.feed(b"1\r\nx\r\n" * 1_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_requests_that_wait_are_bounded_by_number() -> None:
    source = incoming()
    source.feed(post(b"1") + post(b"2") + post(b"3") + post(b"4") + post(b"5") + post(b"6"))
    *requests, refusal = taken(source)
    assert [bytes(item.body) for item in requests if isinstance(item, Whole)] == [
        b"1",
        b"2",
        b"3",
        b"4",
    ]
    assert isinstance(refusal, Answer)
    assert (refusal.status, refusal.close) == (503, True)
    assert error_in(refusal)["error"]["code"] == ErrorCode.OVERLOADED
    assert "retry-after" in dict(refusal.head())


def test_requests_that_wait_are_bounded_by_bytes() -> None:
    limits = attrs.evolve(LIMITS, bytes_per_connection=12_000)
    source = incoming(limits)
    source.feed(post(b"x" * 8_000) + post(b"y" * 8_000))
    assert outcome(source) == [b"x" * 8_000, 503]
    source = incoming(limits)
    for _ in range(5):  # taken at once, none waits
        source.feed(post(b"x" * 8_000))
        assert outcome(source) == [b"x" * 8_000]


def test_expect_is_answered_between_head_and_body() -> None:
    source = incoming()
    data = post(more="Expect: 100-Continue\r\n")
    source.feed(data[:-2])
    assert outcome(source) == [100]
    source.feed(data[-2:])
    assert outcome(source) == [b"{}"]


def test_expect_of_http_1_0_and_of_a_refused_request_is_not_answered() -> None:
    source = incoming()
    source.feed(post(version="1.0", more="Expect: 100-continue\r\n"))
    assert outcome(source) == [b"{}"]
    source = incoming()
    source.feed(post(b"x" * 10_001, more="Expect: 100-continue\r\n")[:500])
    assert outcome(source) == [413]


@pytest.mark.parametrize(
    ("data", "keep_alive", "chunked"),
    [
        (post(), True, True),
        (post(more="connection: close\r\n"), False, True),
        (post(more="Connection: Keep-Alive\r\n"), True, True),
        (post(version="1.0"), False, False),
        (post(version="1.0", more="connection: keep-alive\r\n"), False, False),
    ],
)
def test_what_the_sender_can_do(data: bytes, keep_alive: bool, chunked: bool) -> None:
    source = incoming()
    source.feed(data)
    (item,) = taken(source)
    assert isinstance(item, Whole)
    assert (item.keep_alive, item.chunked) == (keep_alive, chunked)


@pytest.mark.parametrize("target", ["/mcp", "/mcp?x=1", "http://localhost:8000/mcp"])
def test_targets(target: str) -> None:
    source = incoming()
    source.feed(post(target=target))
    assert outcome(source) == [b"{}"]


def test_time_runs_out_with_words_in_a_request_and_without_between_two() -> None:
    source = incoming()
    assert source.patience(busy=False) == LIMITS.http_idle_time
    assert source.patience(busy=True) == float("inf")
    assert source.time_out() is False
    for part, limit in ((b"POST", LIMITS.http_head_time), (post()[4:-1], LIMITS.http_body_time)):
        source.feed(part)
        assert source.patience(busy=True) == source.patience(busy=False) == limit
    assert source.time_out() is True
    assert outcome(source) == [408]
    assert source.patience(busy=False) == float("inf")


# Events -------------------------------------------------------------------------------------------


def test_an_event_is_one_line_of_data_whatever_the_text() -> None:
    text = "a\r\nb\u2028c\u0085d\ne"
    frame = msgspec.json.encode({"text": text})
    event = encode_event(frame)
    assert event.endswith(b"\n\n")
    kind, data, *rest = event.split(b"\n")
    assert (kind, rest) == (b"event: message", [b"", b""])
    assert b"\r" not in event
    assert msgspec.json.decode(data.removeprefix(b"data: ")) == {"text": text}


def test_a_comment_is_an_empty_event() -> None:
    assert COMMENT.startswith(b":")
    assert COMMENT.endswith(b"\n\n")


def test_the_version_in_the_requests_of_these_tests_is_in_their_metadata() -> None:
    assert (
        META["io.modelcontextprotocol/protocolVersion"]
        == dict(metadata(CALL))["mcp-protocol-version"]
    )
