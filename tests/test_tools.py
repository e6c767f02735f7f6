"""Tools beyond the signature: schemas of one's own, whole results, headers, pydantic models.

Every line of the server is held against the official schema.
"""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict

import attrs
import jsonschema_rs
import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.peers.checked import checked_client
from tests.peers.raw import call, request, text_of

from trio_mcp import (
    UNSET,
    Context,
    ImageContent,
    Limits,
    McpHeader,
    Principal,
    RequestHead,
    Server,
    ServerError,
    TextContent,
    ToolResult,
    connect,
)
from trio_mcp.handlers.schema.given import DIALECTS, GivenSchema, visits_of
from trio_mcp.handlers.schema.problems import Checker
from trio_mcp.handlers.schema.signature import InvalidArguments, inspect_function
from trio_mcp.runtime.models.base import Icon
from trio_mcp.runtime.models.tools import ToolAnnotations

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ADDRESS: dict[str, Any] = {
    "$schema": DIALECT,
    "$id": "https://schemas.example/contact",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "unevaluatedProperties": False,
        }
    },
    "properties": {
        "home": {"$ref": "#/$defs/address"},
        "work": {"$ref": "#addressDef"},
        "kind": {"enum": ["private", "business"]},
        "note": {"type": ["string", "null"], "x-mine": {"kept": [1, 1.0, None]}},
    },
    "required": ["kind"],
    "allOf": [{"anyOf": [{"required": ["home"]}, {"required": ["work"]}]}],
    "if": {"properties": {"kind": {"const": "private"}}},
    "then": {"required": ["home"]},
    "else": {"required": ["work"]},
    "unevaluatedProperties": False,
}


@attrs.frozen
class Weather:
    degrees: int


async def take(arguments: dict[str, Any]) -> str:
    """Take what comes."""
    return json.dumps(arguments)


def serving(function: Callable[..., Any], **options: Any) -> Server:
    server = Server("tools", version="1", limits=options.pop("limits", None))
    server.add_tool(function, **options)
    return server


async def answer_to(server: Server, name: str, **arguments: Any) -> dict[str, Any]:
    async with checked_client(server) as peer:
        await peer.send(call(1, name, **arguments))
        message: dict[str, Any] = await peer.receive()
        return message


# Schemas of one's own -----------------------------------------------------------------------------


async def test_a_given_schema_is_published_with_every_keyword() -> None:
    given_schema = copy.deepcopy(ADDRESS)
    server = serving(take, input_schema=given_schema, output_schema={"type": "array"})
    given_schema["properties"]["kind"]["enum"].append("late")
    async with checked_client(server) as peer:
        await peer.send(request(1, "tools/list"))
        (tool,) = (await peer.receive())["result"]["tools"]
    assert json.dumps(tool["inputSchema"]) == json.dumps(ADDRESS)
    assert tool["outputSchema"] == {"type": "array"}
    assert tool["description"] == "Take what comes."


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"kind": "private", "home": {"zip": "1"}}, "argument 'home.zip': must match the pattern"),
        ({"kind": "private", "work": {}}, "missing required argument 'home'"),
        ({"kind": "business", "home": {}}, "missing required argument 'work'"),
        ({"kind": "other", "home": {}, "work": {}}, 'one of "private", "business"'),
        ({"kind": "business", "work": {}, "wrok": {}}, "unknown argument 'wrok'"),
        ({"kind": "business", "work": {"zap": 1}}, "argument 'work': unknown field 'zap'"),
    ],
)
async def test_a_given_schema_is_enforced_in_words(arguments: dict[str, Any], says: str) -> None:
    message = await answer_to(serving(take, input_schema=ADDRESS), "take", **arguments)
    assert message["result"]["isError"]
    assert says in text_of(message)


async def test_the_function_gets_the_arguments_in_one_dict() -> None:
    async def keep(everything: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {**everything, "by": ctx.method}

    server = serving(keep, input_schema={"type": "object", "required": ["n"]})
    message = await answer_to(server, "keep", n=5.0, other=[None])
    assert message["result"]["structuredContent"] == {
        "n": 5.0,
        "other": [None],
        "by": "tools/call",
    }


class Query(TypedDict, total=False):
    text: str


def test_which_functions_take_a_schema() -> None:
    def bare(arguments): ...  # type: ignore[no-untyped-def]
    def typed(query: Query, ctx: Context) -> None: ...
    def remarked(arguments: Annotated[dict[str, int], "all"]) -> None: ...

    server = Server("tools", version="1")
    takers: list[Callable[..., Any]] = [bare, typed, remarked]
    for function in takers:
        server.add_tool(function, input_schema={"type": "object"})

    def none() -> None: ...
    def two(a: dict[str, Any], b: dict[str, Any]) -> None: ...
    def text(arguments: str) -> None: ...
    def only_context(ctx: Context) -> None: ...

    others: list[Callable[..., Any]] = [none, two, text, only_context]
    for function in others:
        with pytest.raises(TypeError, match=r"write `arguments: dict\[str, Any\]`"):
            server.add_tool(function, input_schema={"type": "object"})


@pytest.mark.parametrize("value", [[1, "2"], "text", 4, True, None, {"a": [None]}])
async def test_any_json_value_is_structured_content(value: Any) -> None:
    async def tell() -> Any:
        return value

    message = await answer_to(serving(tell, output_schema={"not": {"const": "x"}}), "tell")
    assert message["result"]["structuredContent"] == value
    assert json.loads(text_of(message)) == value


async def test_a_result_is_held_against_a_given_output_schema() -> None:
    async def tell(n: int) -> list[int]:
        return [n]

    server = serving(tell, output_schema={"type": "array", "items": {"maximum": 3}})
    assert (await answer_to(server, "tell", n=3))["result"]["structuredContent"] == [3]
    assert (await answer_to(server, "tell", n=4))["error"]["code"] == -32603


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({}, '"type": "object"'),
        ({"type": "array"}, '"type": "object"'),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, "at properties/a/type"),
        ({"type": "object", "$ref": "https://schemas.example/x"}, "none is ever fetched: https"),
        ({"type": "object", "not": {"$ref": "file:///etc/passwd"}}, "none is ever fetched: file"),
        ({"type": "object", "items": {"$dynamicRef": "http://localhost/x#y"}}, "none is ever"),
        ({"type": "object", "$ref": "other.json"}, "none is ever fetched"),
        ({"type": "object", "$id": "https://here.example/a", "$ref": "/b"}, "none is ever"),
        ({"type": "object", "$defs": {"unused": {"$ref": "https://x.example"}}}, "none is ever"),
        ({"type": "object", "$ref": "#/$defs/missing"}, "does not exist"),
        ({"type": "object", "$schema": "https://schemas.example/own"}, "is not supported"),
        ({"type": "object", "$schema": 7}, "is not supported"),
        (
            {"type": "object", "items": {"$schema": "http://json-schema.org/draft-07/schema#"}},
            "another $schema",
        ),
        ({"type": "object", "items": {"pattern": "(?=a)a"}}, "linear time"),
        ({"type": "object", "items": {"pattern": r"(a)\1"}}, "linear time"),
        ({"type": "object", "patternProperties": {"(?<!a)b": {}}}, "linear time"),
        ({"type": "object", "items": {"pattern": "(a{1000}){1000}"}}, "linear time"),
        ({"type": "object", "description": "x" * 2000}, "schema_bytes"),
        ({"type": "object", "enum": [[]] * 2000}, "schema_bytes"),
        ({"type": "object", 5: True}, "a key in it is no text"),
        ({"type": "object", "default": float("nan")}, "nan, which JSON does not have"),
        ({"type": "object", "default": {1, 2}}, "it holds a set, which is no JSON"),
        ({"type": "object", "default": b"1"}, "it holds a bytes, which is no JSON"),
        ([], "no JSON object"),
        (True, "no JSON object"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_in_words(schema: Any, says: str) -> None:
    server = Server("tools", version="1", limits=Limits(schema_bytes=1000))
    with pytest.raises((ValueError, TypeError)) as caught:
        server.add_tool(take, input_schema=schema)
    assert says in str(caught.value)
    assert "tool 'take'" in str(caught.value)
    server.add_tool(take, input_schema={"type": "object"})  # nothing is left of the refused one


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "not": schema}
    return schema


def test_the_levels_of_a_schema_are_bounded() -> None:
    server = Server("tools", version="1", limits=Limits(schema_depth=10))
    server.add_tool(take, input_schema=nested(8))
    with pytest.raises(ValueError, match="schema_depth"):
        server.add_tool(take, name="deep", input_schema=nested(9))
    endless: dict[str, Any] = {"type": "object"}
    endless["not"] = endless
    with pytest.raises(ValueError, match="schema_depth"):
        server.add_tool(take, name="endless", input_schema=endless)


def chain(length: int, references: int = 1) -> dict[str, Any]:
    """Definitions that each refer to the next one, so many times."""
    schema: dict[str, Any] = {f"d{length}": {"type": "object"}}
    for at in range(length):
        schema[f"d{at}"] = {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * references}
    return {"type": "object", "$ref": "#/$defs/d0", "$defs": schema}


def test_what_references_expand_to_is_bounded() -> None:
    server = Server("tools", version="1")
    server.add_tool(take, name="few", input_schema=chain(8, 2))
    with pytest.raises(ValueError, match="schema_visits"):
        server.add_tool(take, name="many", input_schema=chain(24, 2))
    with pytest.raises(ValueError, match="schema_depth"):
        server.add_tool(take, name="long", input_schema=chain(5000))


async def test_older_dialects_say_so_themselves() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "definitions": {"name": {"type": "string"}},
        "properties": {
            "text": {"$ref": "#/definitions/name", "maxLength": 1},  # ignored beside a reference
            "pair": {"items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False},
        },
    }
    server = serving(take, input_schema=schema)
    assert "isError" not in (await answer_to(server, "take", text="long"))["result"]
    wrong = await answer_to(server, "take", text=5, pair=[1, "x", 2])
    assert "argument 'text': expected string, got 5" in text_of(wrong)
    assert "argument 'pair'" in text_of(wrong)


TREE: dict[str, Any] = {"properties": {"a": {"$ref": "#/$defs/n"}}}


@pytest.mark.parametrize(
    "node",
    [
        {"allOf": [TREE, {**TREE, "title": "again"}]},
        {"anyOf": [{**TREE, "required": ["x"]}, {**TREE, "required": ["y"]}]},
        {"oneOf": [TREE, {**TREE, "title": "again"}, {"type": "string"}]},
        {"oneOf": [{"allOf": [TREE, {"required": ["x"]}]}, {**TREE, "required": ["y"]}]},
        {"anyOf": [{**TREE, "required": ["x"]}, TREE], "unevaluatedProperties": False},
        {"if": TREE, "then": {**TREE, "required": ["x"]}, "else": {**TREE, "title": "else"}},
        {"dependentSchemas": {"a": {**TREE, "required": ["b"]}}, **TREE},
        {"patternProperties": {"^a": TREE["properties"]["a"], "a$": TREE["properties"]["a"]}},
    ],
)
def test_recursive_schemas_cost_no_more_than_the_value(node: dict[str, Any]) -> None:
    schema = GivenSchema.of({"$ref": "#/$defs/n", "$defs": {"n": node}}, "it", Limits())
    checker = Checker.given("argument", schema, 200)
    value: Any = {"a": 5}
    for _ in range(150):  # a doubling per level would never end
        value = {"a": value}
    assert checker.accepts(value) or checker.explain(value)


def test_values_are_bounded_before_the_validator_recurses() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#"}}}
    bound = inspect_function(
        take,
        context_type=Context,
        input_schema=GivenSchema.of(schema, "it", Limits()),
        value_depth=20,
    )
    assert bound.bind(deep(20))
    with pytest.raises(InvalidArguments, match="nested more than 20 levels deep"):
        bound.bind(deep(21))


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_the_deepest_values_of_the_deepest_schemas_end_no_process() -> None:
    """The validator recurses on the C stack, where too much of it is the end of the process."""
    program = """
    import threading
    from trio_mcp import Limits
    from trio_mcp.handlers.schema.given import GivenSchema
    from trio_mcp.handlers.schema.problems import Checker

    limits = Limits()
    around = [
        lambda schema: {"allOf": [schema, {"type": "object"}]},
        lambda schema: {"anyOf": [{"type": "null"}, schema]},
        lambda schema: {"if": schema, "then": True, "else": False},
        lambda schema: {"not": {"not": schema}},
        lambda schema: {"oneOf": [schema, {"type": "string"}]},
        lambda schema: {"dependentSchemas": {"a": schema}},
    ]

    def tower(levels):
        top = {"$ref": f"#/$defs/d{levels}"}
        definitions = {"d0": {"type": "object", "properties": {"a": top}}}
        for at in range(levels):
            definitions[f"d{at + 1}"] = around[at % 6]({"$ref": f"#/$defs/d{at}"})
        return {**top, "$defs": definitions}

    def highest():
        for levels in range(limits.schema_depth, 0, -1):
            try:
                return GivenSchema.of(tower(levels), "it", limits)
            except ValueError:
                continue

    def check():
        checker = Checker.given("argument", highest(), limits.value_depth)
        value = {}
        for _ in range(limits.value_depth - 1):
            value = {"a": value}
        print(checker.accepts(value), len(checker.explain({"a": value})))

    threading.stack_size(1024 * 1024)
    thread = threading.Thread(target=check)
    thread.start()
    thread.join()
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, "True 1", "")


def test_patterns_take_linear_time() -> None:
    schema = {"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}}
    checker = Checker.given("argument", GivenSchema.of(schema, "it", Limits()), 200)
    assert not checker.accepts({"a": "a" * 100_000 + "!"})  # would never end by backtracking


def test_compound_schemas_are_followed_by_their_ids() -> None:
    schema = {
        "$id": "https://schemas.example/root",
        "$ref": "item",
        "$defs": {"item": {"$id": "item", "$ref": "#/$defs/x", "$defs": {"x": {"maxLength": 1}}}},
    }
    checker = Checker.given("result", GivenSchema.of(schema, "it", Limits()), 200)
    assert checker.accepts("x")
    assert not checker.accepts("xx")
    assert visits_of(schema, DIALECT, Limits()).errors < 10


# Published is enforced ----------------------------------------------------------------------------

NAMES = st.sampled_from("ab")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "a", "bb", 1.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=6,
)


LEAVES = st.booleans() | st.sampled_from(
    [
        {"type": "object"},
        {"type": ["array", "null"]},
        {"type": "integer", "minimum": 1},
        {"type": "string", "maxLength": 1},
        {"enum": ["a", None, [1]]},
        {"const": 1},
        {"required": ["a"]},
        {"uniqueItems": True},
        {"$ref": "#/$defs/r"},
        {"$ref": "#anchor"},
        {"$dynamicRef": "#dynamic"},
    ]
)
SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("properties", "dependentSchemas")
KEYWORDS = (
    *(*SEVERAL, *NAMED, "not", "if", "then", "else", "items", "contains", "propertyNames"),
    *("additionalProperties", "unevaluatedProperties", "unevaluatedItems"),
)


@st.composite
def schemas(draw: st.DrawFn, levels: int = 3) -> Any:
    if levels == 0 or draw(st.booleans()):
        return draw(LEAVES)
    inner = schemas(levels - 1)
    schema: dict[str, Any] = {}
    for keyword in draw(st.lists(st.sampled_from(KEYWORDS), max_size=3, unique=True)):
        if keyword in SEVERAL:
            schema[keyword] = draw(st.lists(inner, min_size=1, max_size=2))
        elif keyword in NAMED:
            schema[keyword] = draw(st.dictionaries(NAMES, inner, max_size=2))
        else:
            schema[keyword] = draw(inner)
    return schema


SCHEMAS = schemas()
DEFINITIONS = st.fixed_dictionaries(
    {"r": SCHEMAS, "s": SCHEMAS.map(lambda part: {"$anchor": "anchor", "allOf": [part]})}
)


@given(part=SCHEMAS, definitions=DEFINITIONS, arguments=st.dictionaries(NAMES, JSON, max_size=2))
def test_what_is_published_is_enforced(
    part: Any, definitions: dict[str, Any], arguments: dict[str, Any]
) -> None:
    schema = {
        "type": "object",
        "properties": {"a": part},
        "$dynamicAnchor": "dynamic",
        "$defs": definitions,
    }
    bound = inspect_function(
        take, context_type=Context, input_schema=GivenSchema.of(schema, "it", Limits())
    )
    assert bound.input_schema == schema
    if jsonschema_rs.Draft202012Validator(bound.input_schema).is_valid(arguments):
        assert bound.bind(arguments) == {"arguments": arguments}
    else:
        with pytest.raises(InvalidArguments) as caught:
            bound.bind(arguments)
        assert 1 <= len(caught.value.problems) <= 8


# Adding and removing ------------------------------------------------------------------------------


async def test_tools_come_and_go_while_the_server_is_served() -> None:
    server = Server("tools", version="1")
    async with connect(server) as client:
        assert [tool.name async for tool in client.tools()] == []
        server.add_tool(take, name="first", input_schema={"type": "object"})
        server.add_tool(lambda: "x", name="second")
        assert [tool.name async for tool in client.tools()] == ["first", "second"]
        assert (await client.call_tool("second", {})).text == "x"
        server.remove_tool("first")
        assert [tool.name async for tool in client.tools()] == ["second"]
        with pytest.raises(ServerError) as caught:
            await client.call_tool("first", {})
    assert caught.value.code == -32602


async def test_a_definition_has_all_that_people_see() -> None:
    icon = Icon("https://x.example/i.png", mime_type="image/png", sizes=["48x48"])
    server = Server("tools", version="1")

    @server.tool(
        title="Title",
        annotations=ToolAnnotations(title="Other", read_only_hint=True),
        icons=[icon],
        meta={"example.com/tier": 2},
    )
    async def plain() -> str:
        return ""

    async with checked_client(server) as peer:
        await peer.send(request(1, "tools/list"))
        (tool,) = (await peer.receive())["result"]["tools"]
    assert tool == {
        "name": "plain",
        "title": "Title",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {"title": "Other", "readOnlyHint": True},
        "icons": [{"src": "https://x.example/i.png", "mimeType": "image/png", "sizes": ["48x48"]}],
        "_meta": {"example.com/tier": 2},
    }


# Whole results ------------------------------------------------------------------------------------

PICTURE = ImageContent("AA==", "image/png")
WEATHER = ToolResult(structured_content=Weather(4))


@pytest.mark.parametrize(
    ("result", "content", "rest"),
    [
        (ToolResult("text"), ["text"], {}),
        (ToolResult(), [], {}),
        (ToolResult(PICTURE), [PICTURE], {}),
        (ToolResult(["a", PICTURE, TextContent("b")]), ["a", PICTURE, "b"], {}),
        (WEATHER, ['{"degrees":4}'], {"structuredContent": {"degrees": 4}}),
        (ToolResult("Warm.", structured_content=[None]), ["Warm."], {"structuredContent": [None]}),
        (ToolResult(structured_content=None), ["null"], {"structuredContent": None}),
        (ToolResult("No.", is_error=True), ["No."], {"isError": True}),
        (ToolResult([], structured_content=1), [], {"structuredContent": 1}),
    ],
)
async def test_a_whole_result(result: ToolResult[Any], content: list[Any], rest: Any) -> None:
    async def tell() -> ToolResult:  # type: ignore[type-arg]
        return result

    server = serving(tell)
    assert [tool.definition.output_schema for tool in server._tools._tools] == [None]
    told = (await answer_to(server, "tell"))["result"]
    shown = [block.get("text", PICTURE) for block in told["content"]]
    assert shown == content
    known = {"content", "resultType", "_meta"}
    assert {key: value for key, value in told.items() if key not in known} == rest


async def test_a_whole_result_has_metadata() -> None:
    async def tell() -> ToolResult[Any]:
        return ToolResult("x", meta={"example.com/cost": 3})

    told = (await answer_to(serving(tell), "tell"))["result"]
    assert told["_meta"]["example.com/cost"] == 3


OUTCOMES: dict[str, ToolResult[Any]] = {
    "good": ToolResult("4 degrees", structured_content=Weather(4)),
    "wrong": ToolResult("4 degrees", structured_content={"degrees": "4"}),
    "none": ToolResult("4 degrees"),
    "failed": ToolResult("no wind", is_error=True),
    "bytes": ToolResult(b"4"),  # type: ignore[arg-type]
    "dict": ToolResult({"degrees": 4}),  # type: ignore[arg-type]
}


async def weather(of: str) -> ToolResult[Weather]:
    result: Any = OUTCOMES[of]
    return result  # type: ignore[no-any-return]


async def remarked(of: str) -> Annotated[ToolResult[Weather], "a remark"]:
    result: Any = OUTCOMES[of]
    return result  # type: ignore[no-any-return]


async def loose(of: str) -> Weather:
    result: Any = OUTCOMES[of]
    return result  # type: ignore[no-any-return]


@pytest.mark.parametrize("function", [weather, remarked, loose])
@pytest.mark.parametrize(
    ("of", "good"), [("good", True), ("wrong", False), ("none", False), ("failed", True)]
)
async def test_a_whole_result_is_held_against_its_type(
    function: Callable[..., Any], of: str, good: bool
) -> None:
    server = serving(function)
    (tool,) = server._tools._tools
    assert tool.definition.output_schema == {
        "type": "object",
        "properties": {"degrees": {"type": "integer"}},
        "required": ["degrees"],
    }
    message = await answer_to(server, function.__name__, of=of)
    assert ("result" in message) is good
    if good:
        structured = OUTCOMES[of].structured_content
        expected = ABSENT if structured is UNSET else {"degrees": 4}
        assert message["result"].get("structuredContent", ABSENT) == expected


ABSENT = object()


@pytest.mark.parametrize(("of", "says"), [("bytes", "in base64"), ("dict", "structured_content")])
async def test_content_that_is_none_is_refused_with_advice(
    of: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell() -> ToolResult[Any]:
        return OUTCOMES[of]

    assert (await answer_to(serving(tell), "tell"))["error"]["code"] == -32603
    assert says in caplog.text


@pytest.mark.parametrize("annotation", [ToolResult[Weather] | None, list[ToolResult[Weather]]])
def test_a_whole_result_among_others_promises_nothing(annotation: Any) -> None:
    async def tell() -> None: ...

    tell.__annotations__["return"] = annotation
    server = serving(tell)
    assert [tool.definition.output_schema for tool in server._tools._tools] == [None]


# Headers ------------------------------------------------------------------------------------------


def test_a_header_is_asked_for_in_the_signature() -> None:
    async def query(
        region: Annotated[str, McpHeader("Region"), "Where."],
        shard: Annotated[int, McpHeader("Shard"), msgspec.Meta(ge=0)] = 0,
        tier: Annotated[Literal["a", "b"], McpHeader("Tier")] = "a",
    ) -> str:
        return region

    server = serving(query)
    (tool,) = server._tools._tools
    assert tool.definition.input_schema["properties"] == {
        "region": {"type": "string", "x-mcp-header": "Region", "description": "Where."},
        "shard": {"type": "integer", "minimum": 0, "x-mcp-header": "Shard", "default": 0},
        "tier": {"type": "string", "enum": ["a", "b"], "x-mcp-header": "Tier", "default": "a"},
    }
    arguments = {"name": "query", "arguments": {"region": "eu", "tier": "b"}}
    assert dict(server._tools.mirrored(arguments)) == {
        "Mcp-Param-Region": "eu",
        "Mcp-Param-Shard": None,
        "Mcp-Param-Tier": "b",
    }


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (Annotated[float, McpHeader("A")], "a is none"),
        (Annotated[str | None, McpHeader("A")], "a is none"),
        (Annotated[str, McpHeader("A")] | None, "part of a union"),
        (list[Annotated[str, McpHeader("A")]], "part of a union or a list"),
        (Annotated[str, McpHeader("")], "no name of a header"),
        (Annotated[str, McpHeader("A B")], "no name of a header"),
        (Annotated[str, McpHeader("A\r\nB")], "no name of a header"),
    ],
)
def test_a_header_that_cannot_be_is_refused(annotation: Any, says: str) -> None:
    async def tool(a: Any) -> None: ...

    tool.__annotations__["a"] = annotation
    with pytest.raises(ValueError, match=says):
        serving(tool)


def test_a_header_is_asked_for_once() -> None:
    async def tool(
        a: Annotated[str, McpHeader("A")], b: Annotated[str, McpHeader("a")]
    ) -> None: ...

    with pytest.raises(ValueError, match="there twice"):
        serving(tool)


async def test_a_header_of_a_signature_travels_over_http() -> None:
    seen: list[Any] = []

    async def query(region: Annotated[str, McpHeader("Region")]) -> str:
        return region

    def who(head: RequestHead) -> Principal:
        seen.append(head.get("Mcp-Param-Region"))
        return Principal("anyone")

    server = serving(query)
    async with trio.open_nursery() as nursery:
        start = functools.partial(server.serve_http, port=0, authenticate=who)
        port = await nursery.start(start)
        async with connect(f"http://127.0.0.1:{port}/mcp") as client:
            assert [tool.name async for tool in client.tools()] == ["query"]
            result = await client.call_tool("query", {"region": "eu"})
        nursery.cancel_scope.cancel()
    assert result.text == "eu"
    assert seen[-1] == "eu"


def test_the_dialects_are_those_of_the_documentation() -> None:
    assert [name.split("/")[-2] for name in DIALECTS] == ["2020-12", "2019-09", "draft-07"]
