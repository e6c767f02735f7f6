"""The message models against the specification's schema and examples, and the converter's rules.

`tests/data/2026-07-28` holds the schema and all examples of that revision, as published.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import attrs
import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_mcp.runtime.models import (
    base,
    completion,
    content,
    discovery,
    elicitation,
    errors,
    input,
    notifications,
    prompts,
    resources,
    results,
    roots,
    sampling,
    subscriptions,
    tools,
)
from trio_mcp.runtime.models.base import (
    UNSET,
    Annotations,
    ClientCapabilities,
    Icon,
    PaginatedRequestParams,
    RequestMetaObject,
    RequestParams,
    ServerCapabilities,
)
from trio_mcp.runtime.models.completion import (
    CompleteRequestParams,
    CompleteResult,
    PromptReference,
    ResourceTemplateReference,
)
from trio_mcp.runtime.models.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
)
from trio_mcp.runtime.models.converter import ModelError, structure, unstructure
from trio_mcp.runtime.models.discovery import DiscoverResult
from trio_mcp.runtime.models.elicitation import (
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
)
from trio_mcp.runtime.models.errors import (
    Error,
    MissingRequiredClientCapabilityData,
    UnsupportedProtocolVersionData,
)
from trio_mcp.runtime.models.input import (
    CreateMessageRequest,
    ElicitRequest,
    InputRequest,
    ListRootsRequest,
)
from trio_mcp.runtime.models.notifications import (
    CancelledNotificationParams,
    LoggingMessageNotificationParams,
    NotificationParams,
    ProgressNotificationParams,
)
from trio_mcp.runtime.models.problems import PROBLEM_LIMIT, QUOTE_LIMIT, wire_name
from trio_mcp.runtime.models.prompts import (
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    PromptMessage,
)
from trio_mcp.runtime.models.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
)
from trio_mcp.runtime.models.results import InputRequiredResult, Result
from trio_mcp.runtime.models.roots import ListRootsResult, Root
from trio_mcp.runtime.models.sampling import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ModelPreferences,
    SamplingMessage,
)
from trio_mcp.runtime.models.subscriptions import (
    ResourceUpdatedNotificationParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from trio_mcp.runtime.models.tools import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    Tool,
    ToolAnnotations,
)

DATA = Path(__file__).parent / "data" / "2026-07-28"
DEFS = json.loads((DATA / "schema.json").read_text("utf-8"))["$defs"]
EXAMPLES = sorted((DATA / "examples").glob("*/*.json"))

# Example type -> where in it the model is (a path of members), and the model.
MODELS: dict[str, tuple[tuple[str, ...], Any]] = {
    "AudioContent": ((), AudioContent),
    "BlobResourceContents": ((), BlobResourceContents),
    "CallToolRequest": (("params",), CallToolRequestParams),
    "CallToolRequestParams": ((), CallToolRequestParams),
    "CallToolResult": ((), CallToolResult),
    "CallToolResultResponse": (("result",), CallToolResult | InputRequiredResult),
    "CancelledNotification": (("params",), CancelledNotificationParams),
    "CancelledNotificationParams": ((), CancelledNotificationParams),
    "ClientCapabilities": ((), ClientCapabilities),
    "CompleteRequest": (("params",), CompleteRequestParams),
    "CompleteRequestParams": ((), CompleteRequestParams),
    "CompleteResult": ((), CompleteResult),
    "CompleteResultResponse": (("result",), CompleteResult),
    "CreateMessageRequest": ((), InputRequest),
    "CreateMessageRequestParams": ((), CreateMessageRequestParams),
    "CreateMessageResult": ((), CreateMessageResult),
    "DiscoverRequest": (("params",), RequestParams),
    "DiscoverResult": ((), DiscoverResult),
    "DiscoverResultResponse": (("result",), DiscoverResult),
    "ElicitRequest": ((), InputRequest),
    "ElicitRequestFormParams": ((), ElicitRequestParams),
    "ElicitRequestURLParams": ((), ElicitRequestParams),
    "ElicitResult": ((), ElicitResult),
    "EmbeddedResource": ((), EmbeddedResource),
    "GetPromptRequest": (("params",), GetPromptRequestParams),
    "GetPromptRequestParams": ((), GetPromptRequestParams),
    "GetPromptResult": ((), GetPromptResult),
    "GetPromptResultResponse": (("result",), GetPromptResult | InputRequiredResult),
    "HeaderMismatchError": (("error",), Error),
    "ImageContent": ((), ImageContent),
    "InputRequiredResult": ((), CallToolResult | InputRequiredResult),
    "InternalError": ((), Error),
    "InvalidParamsError": ((), Error),
    "ListPromptsRequest": (("params",), PaginatedRequestParams),
    "ListPromptsResult": ((), ListPromptsResult),
    "ListPromptsResultResponse": (("result",), ListPromptsResult),
    "ListResourceTemplatesRequest": (("params",), PaginatedRequestParams),
    "ListResourceTemplatesResult": ((), ListResourceTemplatesResult),
    "ListResourceTemplatesResultResponse": (("result",), ListResourceTemplatesResult),
    "ListResourcesRequest": (("params",), PaginatedRequestParams),
    "ListResourcesResult": ((), ListResourcesResult),
    "ListResourcesResultResponse": (("result",), ListResourcesResult),
    "ListRootsRequest": ((), InputRequest),
    "ListRootsResult": ((), ListRootsResult),
    "ListToolsRequest": (("params",), PaginatedRequestParams),
    "ListToolsResult": ((), ListToolsResult),
    "ListToolsResultResponse": (("result",), ListToolsResult),
    "LoggingMessageNotification": (("params",), LoggingMessageNotificationParams),
    "LoggingMessageNotificationParams": ((), LoggingMessageNotificationParams),
    "MethodNotFoundError": ((), Error),
    "MissingRequiredClientCapabilityError": (
        ("error", "data"),
        MissingRequiredClientCapabilityData,
    ),
    "ModelPreferences": ((), ModelPreferences),
    "PaginatedRequestParams": ((), PaginatedRequestParams),
    "ParseError": ((), Error),
    "ProgressNotification": (("params",), ProgressNotificationParams),
    "ProgressNotificationParams": ((), ProgressNotificationParams),
    "PromptListChangedNotification": (("params",), NotificationParams),
    "ReadResourceRequest": (("params",), ReadResourceRequestParams),
    "ReadResourceResult": ((), ReadResourceResult),
    "ReadResourceResultResponse": (("result",), ReadResourceResult | InputRequiredResult),
    "Resource": ((), Resource),
    "ResourceLink": ((), ResourceLink),
    "ResourceListChangedNotification": (("params",), NotificationParams),
    "ResourceUpdatedNotification": (("params",), ResourceUpdatedNotificationParams),
    "ResourceUpdatedNotificationParams": ((), ResourceUpdatedNotificationParams),
    "Root": ((), Root),
    "SamplingMessage": ((), SamplingMessage),
    "ServerCapabilities": ((), ServerCapabilities),
    "SubscriptionsAcknowledgedNotification": (
        ("params",),
        SubscriptionsAcknowledgedNotificationParams,
    ),
    "SubscriptionsListenRequest": (("params",), SubscriptionsListenRequestParams),
    "SubscriptionsListenResult": ((), SubscriptionsListenResult),
    "SubscriptionsListenResultResponse": (("result",), SubscriptionsListenResult),
    "TextContent": ((), TextContent),
    "TextResourceContents": ((), TextResourceContents),
    "Tool": ((), Tool),
    "ToolListChangedNotification": (("params",), NotificationParams),
    "ToolResultContent": ((), ToolResultContent),
    "ToolUseContent": ((), ToolUseContent),
    "UnsupportedProtocolVersionError": (("error", "data"), UnsupportedProtocolVersionData),
}

# Example type -> the model that holds such values, and a message of it with the example inside.
HELD: dict[str, tuple[Any, Callable[[Any], dict[str, Any]]]] = {
    "InputRequests": (
        InputRequiredResult,
        lambda example: {"inputRequests": example, "resultType": "input_required"},
    ),
    "InputResponses": (
        CallToolRequestParams,
        lambda example: {"name": "n", "inputResponses": example},
    ),
    **dict.fromkeys(
        (
            "BooleanSchema",
            "NumberSchema",
            "StringSchema",
            "TitledMultiSelectEnumSchema",
            "TitledSingleSelectEnumSchema",
            "UntitledMultiSelectEnumSchema",
            "UntitledSingleSelectEnumSchema",
        ),
        (
            ElicitRequestFormParams,
            lambda example: {
                "message": "m",
                "requestedSchema": {"type": "object", "properties": {"p": example}},
                "mode": "form",
            },
        ),
    ),
}

# Examples that come back otherwise, and how (as a JSON merge patch).
COMES_BACK_WITH: dict[str, dict[str, Any]] = {
    "InputRequiredResult/input-required-result-with-elicitation-and-sampling-and-request-state": {
        "inputRequests": {"github_login": {"params": {"mode": "form"}}}
    },
    "ListRootsRequest/list-roots-request": {"id": None},  # an input request has none
    "ReadResourceResultResponse/read-resource-result-response": {
        "result": {"ttlMs": 0, "cacheScope": "private"}  # the schema requires both
    },
}

MODULES = (
    base,
    completion,
    content,
    discovery,
    elicitation,
    errors,
    input,
    notifications,
    prompts,
    resources,
    results,
    roots,
    sampling,
    subscriptions,
    tools,
)
ALL_MODELS: list[type[Any]] = sorted(
    {
        model
        for module in MODULES
        for model in map(vars(module).__getitem__, module.__all__)
        if attrs.has(model)
    },
    key=lambda model: model.__name__,
)


@cache
def validator(type_name: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({"$ref": f"#/$defs/{type_name}", "$defs": DEFS})


def as_text(value: object) -> str:
    """JSON text to compare by: unlike ``==`` it tells 1, 1.0 and true apart."""
    return json.dumps(value, sort_keys=True)


# The specification's examples


def examples_of(table: dict[str, Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "path", [path for path in EXAMPLES if path.parent.name in table], ids=example_name
    )


def example_name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def merge(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = {**target, **{name: merge(target.get(name, {}), new) for name, new in patch.items()}}
    return {name: value for name, value in merged.items() if patch.get(name, ...) is not None}


def test_each_example_type_is_modelled() -> None:
    assert not MODELS.keys() & HELD.keys()
    assert MODELS.keys() | HELD.keys() == {path.parent.name for path in EXAMPLES}
    assert COMES_BACK_WITH.keys() <= set(map(example_name, EXAMPLES))


def test_each_model_module_is_tested() -> None:
    others = {"__init__", "converter", "problems", "initialization"}  # the last of an earlier one
    stems = {path.stem for path in Path(str(base.__file__)).parent.glob("*.py")}
    assert stems - others == {module.__name__.rpartition(".")[2] for module in MODULES}


@examples_of(MODELS)
def test_example_survives_the_round_trip_and_fits_the_schema(path: Path) -> None:
    members, model = MODELS[path.parent.name]
    example = json.loads(path.read_text("utf-8"))
    *way, last = ("message", *members)
    message: dict[str, Any] = {"message": json.loads(path.read_text("utf-8"))}
    holder = message
    for member in way:
        holder = holder[member]

    holder[last] = unstructure(structure(model, holder[last]))

    expected = merge(example, COMES_BACK_WITH.get(example_name(path), {}))
    assert as_text(message["message"]) == as_text(expected)
    validator(path.parent.name).validate(message["message"])


@examples_of(HELD)
def test_example_survives_the_round_trip_of_what_holds_it(path: Path) -> None:
    model, around = HELD[path.parent.name]
    wire = around(json.loads(path.read_text("utf-8")))

    assert as_text(unstructure(structure(model, wire))) == as_text(wire)


# The schema's own definitions

OPTIONAL_HERE = {
    "_meta",  # its absence in a request is for the era to refuse, with the error it wants
    "resultType",  # absent means "complete"
    "ttlMs",  # absent means 0
    "cacheScope",  # absent means private
}

INLINE_DEFINITIONS = {
    "ElicitationCapability": DEFS["ClientCapabilities"]["properties"]["elicitation"],
    "SamplingCapability": DEFS["ClientCapabilities"]["properties"]["sampling"],
    "ToolsCapability": DEFS["ServerCapabilities"]["properties"]["tools"],
    "ResourcesCapability": DEFS["ServerCapabilities"]["properties"]["resources"],
    "PromptsCapability": DEFS["ServerCapabilities"]["properties"]["prompts"],
    "Completion": DEFS["CompleteResult"]["properties"]["completion"],
    "CompletionArgument": DEFS["CompleteRequestParams"]["properties"]["argument"],
    "CompletionContext": DEFS["CompleteRequestParams"]["properties"]["context"],
    **{
        f"{name}Data": DEFS[f"{name}Error"]["properties"]["error"]["allOf"][1]["properties"]["data"]
        for name in ("UnsupportedProtocolVersion", "MissingRequiredClientCapability")
    },
}


@pytest.mark.parametrize("model", [m for m in ALL_MODELS if m is not UnknownContent])
def test_model_has_exactly_the_members_of_its_definition(model: type[Any]) -> None:
    definition = INLINE_DEFINITIONS.get(model.__name__) or DEFS[model.__name__]
    fields = attrs.fields(model)
    required = {wire_name(f) for f in fields if f.default is attrs.NOTHING or not f.init}

    assert {wire_name(field) for field in fields} == definition["properties"].keys()
    assert required == set(definition.get("required", [])) - OPTIONAL_HERE


# What is tolerated, what is kept


def test_unknown_members_are_ignored_at_every_level() -> None:
    params = structure(
        CallToolRequestParams, {"name": "add", "arguments": {}, "later": [1], "task": None}
    )
    tool = structure(Tool, {"name": "t", "inputSchema": {}, "annotations": {"later": 1}})

    assert params == CallToolRequestParams("add", {})
    assert tool == Tool("t", {}, annotations=ToolAnnotations())


def test_metadata_of_others_is_kept_as_it_is() -> None:
    wire = {"name": "add", "_meta": {"com.example/trace": [1, None, {"x": 1.5}], "traceparent": ""}}

    params = structure(CallToolRequestParams, wire)

    assert params.meta is wire["_meta"]
    assert as_text(unstructure(params)) == as_text(wire)


def test_extension_capabilities_are_kept_as_they_are() -> None:
    wire = {
        "extensions": {"com.example/x": {"deep": [{"er": None}]}, "com.example/y": {}},
        "experimental": {"z": {"on": True}},
    }
    for model in (ClientCapabilities, ServerCapabilities):
        assert as_text(unstructure(structure(model, wire))) == as_text(wire)


def test_json_values_pass_by_reference() -> None:
    arguments = {"a": [1, 2]}
    structured = {"b": [3]}

    assert structure(CallToolRequestParams, {"name": "n", "arguments": arguments}).arguments is (
        arguments
    )
    result = unstructure(CallToolResult([], structured_content=structured))
    assert result["structuredContent"] is structured


def test_null_for_an_optional_member_means_absent() -> None:
    params = structure(
        CallToolRequestParams, {"name": "add", "arguments": None, "requestState": None}
    )
    assert params == CallToolRequestParams("add")
    assert unstructure(params) == {"name": "add"}


def test_empty_cursor_is_not_an_absent_cursor() -> None:
    assert structure(PaginatedRequestParams, {"cursor": ""}).cursor == ""
    assert unstructure(PaginatedRequestParams("")) == {"cursor": ""}
    assert unstructure(PaginatedRequestParams()) == {}


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, 1.5])
def test_structured_content_may_be_any_value_and_is_told_from_none_at_all(value: object) -> None:
    wire = {"content": [], "structuredContent": value, "resultType": "complete"}

    result = structure(CallToolResult, wire)

    assert result.structured_content is value
    assert as_text(unstructure(result)) == as_text(wire)
    validator("CallToolResult").validate(unstructure(result))


def test_absent_structured_content_is_unset_and_stays_absent() -> None:
    result = structure(CallToolResult, {"content": []})

    assert result.structured_content is UNSET
    assert not result.structured_content
    assert "structuredContent" not in unstructure(result)


def test_log_data_and_error_data_may_be_null() -> None:
    log = structure(LoggingMessageNotificationParams, {"level": "info", "data": None})
    assert unstructure(log) == {"level": "info", "data": None}
    assert unstructure(Error(1, "m", None)) == {"code": 1, "message": "m", "data": None}
    assert unstructure(Error(1, "m")) == {"code": 1, "message": "m"}


def test_unknown_content_type_survives_the_round_trip() -> None:
    hologram = {"type": "hologram", "data": {"rays": [1]}, "_meta": {"x": None}}
    wire = {
        "content": [{"type": "text", "text": "a"}, hologram, {"type": "text", "text": "b"}],
        "resultType": "complete",
    }

    result = structure(CallToolResult, wire)

    assert result.content == [TextContent("a"), UnknownContent(hologram), TextContent("b")]
    assert isinstance(result.content[1], UnknownContent)
    assert result.content[1].type == "hologram"
    assert unstructure(result) == wire
    assert unstructure(result)["content"][1] is hologram


def test_embedded_resource_holds_text_or_bytes() -> None:
    text = {"type": "resource", "resource": {"uri": "a:b", "text": "x"}}
    blob = {"type": "resource", "resource": {"uri": "a:b", "blob": "eA==", "text": None}}

    result = structure(CallToolResult, {"content": [text, blob]})

    assert result.content == [
        EmbeddedResource(TextResourceContents("a:b", "x")),
        EmbeddedResource(BlobResourceContents("a:b", "eA==")),
    ]
    for block in unstructure(result)["content"]:
        validator("EmbeddedResource").validate(block)


@pytest.mark.parametrize(
    ("model", "wire"),
    [
        (Annotations, {"audience": ["robot", "user"]}),
        (Icon, {"src": "data:", "theme": "sepia"}),
        (
            ListToolsResult,
            {"tools": [], "ttlMs": -1, "cacheScope": "shared", "resultType": "complete"},
        ),
        (LoggingMessageNotificationParams, {"level": "verbose", "data": 1}),
        (
            CreateMessageRequestParams,
            {"messages": [], "maxTokens": 1, "includeContext": "someServers"},
        ),
        (
            CreateMessageResult,
            {"role": "user", "content": [], "model": "m", "stopReason": "refusal"},
        ),
    ],
)
def test_hint_with_an_unknown_value_is_kept(model: type[Any], wire: dict[str, Any]) -> None:
    assert unstructure(structure(model, wire)) == wire


@pytest.mark.parametrize("number", [50, 50.0, 0, 2**60, -1.5])
def test_number_stays_an_integer_or_a_float(number: float) -> None:
    progress = structure(ProgressNotificationParams, {"progressToken": 0, "progress": number})
    assert as_text(unstructure(progress)) == as_text({"progressToken": 0, "progress": number})


@pytest.mark.parametrize("id_", [7, "7", "07", 0, ""])
def test_id_keeps_its_type_and_value(id_: str | int) -> None:
    cancelled = structure(CancelledNotificationParams, {"requestId": id_})
    assert type(cancelled.request_id) is type(id_)
    assert cancelled.request_id == id_


# Input requests and sampling


def test_input_requests_are_told_apart_by_their_method() -> None:
    form = {"message": "m", "requestedSchema": {"type": "object", "properties": {}}}
    page = {"mode": "url", "message": "m", "url": "https://example.com"}
    wire = {
        "resultType": "input_required",
        "inputRequests": {
            "form": {"method": "elicitation/create", "params": form},
            "page": {"method": "elicitation/create", "params": page},
            "model": {
                "method": "sampling/createMessage",
                "params": {"messages": [], "maxTokens": 5},
            },
            "roots": {"method": "roots/list", "params": None},
        },
    }

    result = structure(InputRequiredResult, wire)

    assert result.input_requests == {
        "form": ElicitRequest(ElicitRequestFormParams("m", {"type": "object", "properties": {}})),
        "page": ElicitRequest(ElicitRequestURLParams("m", "https://example.com")),
        "model": CreateMessageRequest(CreateMessageRequestParams([], 5)),
        "roots": ListRootsRequest(),
    }
    validator("InputRequiredResult").validate(unstructure(result))


def test_absent_mode_of_an_elicitation_means_form_and_is_always_written() -> None:
    params = structure(ElicitRequestParams, {"message": "m", "requestedSchema": {}})

    assert params == ElicitRequestFormParams("m", {})
    assert unstructure(params)["mode"] == "form"


def test_requested_schema_and_filled_form_pass_by_reference() -> None:
    schema = {"type": "object", "properties": {}}
    form = {"name": "octocat", "later": [None]}

    asked = structure(ElicitRequestFormParams, {"message": "m", "requestedSchema": schema})
    answered = structure(ElicitResult, {"action": "accept", "content": form})

    assert unstructure(asked)["requestedSchema"] is schema
    assert unstructure(answered)["content"] is form


def test_sampling_content_is_one_block_or_a_list_and_stays_so() -> None:
    text = {"type": "text", "text": "a"}
    hologram = {"type": "hologram", "rays": None}

    one = structure(SamplingMessage, {"role": "user", "content": text})
    several = structure(SamplingMessage, {"role": "user", "content": [text, hologram]})
    none = structure(SamplingMessage, {"role": "user", "content": []})

    assert one.content == TextContent("a")
    assert several.content == [TextContent("a"), UnknownContent(hologram)]
    assert none.content == []
    assert unstructure(one)["content"] == text
    assert unstructure(several)["content"] == [text, hologram]
    assert unstructure(none)["content"] == []


def test_completion_is_for_a_prompt_or_a_template() -> None:
    argument = {"name": "a", "value": ""}
    for ref, expected in (
        ({"type": "ref/prompt", "name": "p"}, PromptReference("p")),
        ({"type": "ref/resource", "uri": "a:{b}"}, ResourceTemplateReference("a:{b}")),
    ):
        params = structure(CompleteRequestParams, {"ref": ref, "argument": argument})
        assert params.ref == expected
        assert unstructure(params) == {"ref": ref, "argument": argument}


# resultType


def test_absent_result_type_means_complete_and_is_always_written() -> None:
    for result in (
        structure(Result, {}),
        structure(CallToolResult, {"content": []}),
        structure(CallToolResult | InputRequiredResult, {"content": []}),
        structure(ListToolsResult, {"tools": []}),
    ):
        assert result.result_type == "complete"
        assert unstructure(result)["resultType"] == "complete"


def test_absent_caching_hints_mean_private_and_stale_and_are_always_written() -> None:
    for result in (
        structure(DiscoverResult, {"supportedVersions": [], "capabilities": {}}),
        structure(ListToolsResult, {"tools": []}),
        structure(ListPromptsResult, {"prompts": []}),
        structure(ListResourcesResult, {"resources": []}),
        structure(ListResourceTemplatesResult, {"resourceTemplates": []}),
        structure(ReadResourceResult, {"contents": []}),
    ):
        assert (result.ttl_ms, result.cache_scope) == (0, "private")
        validator(type(result).__name__).validate(unstructure(result))


def test_result_type_chooses_the_model() -> None:
    result = structure(
        CallToolResult | InputRequiredResult,
        {"resultType": "input_required", "requestState": "s", "content": "not looked at"},
    )
    assert result == InputRequiredResult(request_state="s")


def test_result_type_that_nobody_knows_is_invalid() -> None:
    wire = {"resultType": "task", "content": []}

    with pytest.raises(ModelError) as one_model:
        structure(CallToolResult, wire, at="result")
    with pytest.raises(ModelError) as union:
        structure(CallToolResult | InputRequiredResult, wire, at="result")

    assert str(one_model.value) == 'result.resultType: expected "complete", got "task"'
    assert str(union.value) == (
        'result.resultType: expected one of "complete", "input_required", got "task"'
    )
    assert structure(Result, wire).result_type == "task"


# Strictness

CONTENT = {"uri": "a:b", "name": "n", "type": "resource_link"}

BAD_INPUTS: list[tuple[Any, object, str]] = [
    (CallToolRequestParams, {"name": 5}, "name: expected a string, got an integer"),
    (CallToolRequestParams, {"name": None}, "name: expected a string, got null"),
    (CallToolRequestParams, {"name": True}, "name: expected a string, got a boolean"),
    (CallToolRequestParams, {"name": ["a"]}, "name: expected a string, got an array"),
    (CallToolRequestParams, {}, "name: expected a string, got nothing"),
    (CallToolRequestParams, [], "expected an object, got an array"),
    (CallToolRequestParams, None, "expected an object, got null"),
    (ClientCapabilities, "name", "expected an object, got a string"),
    (
        CallToolRequestParams,
        {"name": "n", "arguments": "x"},
        "arguments: expected an object, got a string",
    ),
    (
        CallToolRequestParams,
        {"name": "n", "arguments": [["a", 1]]},
        "arguments: expected an object, got an array",
    ),
    (
        CallToolRequestParams,
        {"name": "n", "_meta": 1, "requestState": 1.0},
        "requestState: expected a string, got a floating-point number; "
        "_meta: expected an object, got an integer",
    ),
    (
        ResourceLink,
        CONTENT | {"size": True},
        "size: expected an integer, got a boolean",
    ),
    (
        ResourceLink,
        CONTENT | {"size": 3.0},
        "size: expected an integer, got a floating-point number",
    ),
    (ResourceLink, CONTENT | {"size": "3"}, "size: expected an integer, got a string"),
    (Annotations, {"priority": "1"}, "priority: expected a number, got a string"),
    (Annotations, {"priority": False}, "priority: expected a number, got a boolean"),
    (Annotations, {"audience": "user"}, "audience: expected an array, got a string"),
    (Annotations, {"audience": {"0": "user"}}, "audience: expected an array, got an object"),
    (Annotations, {"audience": ["user", 1]}, "audience[1]: expected a string, got an integer"),
    (ToolAnnotations, {"readOnlyHint": 1}, "readOnlyHint: expected a boolean, got an integer"),
    (ToolAnnotations, {"readOnlyHint": "true"}, "readOnlyHint: expected a boolean, got a string"),
    (
        CancelledNotificationParams,
        {"requestId": 1.0},
        "requestId: expected a string or an integer, got a floating-point number",
    ),
    (
        CancelledNotificationParams,
        {"requestId": True},
        "requestId: expected a string or an integer, got a boolean",
    ),
    (
        CancelledNotificationParams,
        {"requestId": None},
        "requestId: expected a string or an integer, got null",
    ),
    (
        CancelledNotificationParams,
        {},
        "requestId: expected a string or an integer, got nothing",
    ),
    (
        LoggingMessageNotificationParams,
        {},
        "level: expected a string, got nothing; data: expected a value, got nothing",
    ),
    (
        ClientCapabilities,
        {"experimental": {"x": {}, "y": True}},
        "experimental.y: expected an object, got a boolean",
    ),
    (
        ClientCapabilities,
        {"extensions": {"com.example/x": None}},
        'extensions["com.example/x"]: expected an object, got null',
    ),
    (TextContent, {"text": "x"}, 'type: expected "text", got nothing'),
    (TextContent, {"text": "x", "type": "image"}, 'type: expected "text", got "image"'),
    (TextContent, {"text": "x", "type": 1}, 'type: expected "text", got an integer'),
    (
        CallToolResult,
        {"content": [{"type": "text", "text": "x"}, {"type": "text", "text": 1}]},
        "content[1].text: expected a string, got an integer",
    ),
    (
        CallToolResult,
        {"content": [{"text": "x"}]},
        "content[0].type: expected a string, got nothing",
    ),
    (
        CallToolResult,
        {"content": [{"type": ["text"], "text": "x"}]},
        "content[0].type: expected a string, got an array",
    ),
    (CallToolResult, {"content": ["x"]}, "content[0]: expected an object, got a string"),
    (
        CallToolResult,
        {"content": [{"type": "resource", "resource": {"uri": "a:b"}}]},
        "content[0].resource.text: expected a string, got nothing",
    ),
    (
        CallToolResult,
        {"content": [{"type": "resource", "resource": "a:b"}]},
        "content[0].resource: expected an object, got a string",
    ),
    (UnknownContent, {}, "type: expected a string, got nothing"),
    (UnknownContent, 1, "expected an object, got an integer"),
    (
        CallToolResult | InputRequiredResult,
        {"resultType": 1},
        'resultType: expected one of "complete", "input_required", got an integer',
    ),
    (CallToolResult | InputRequiredResult, [], "expected an object, got an array"),
    (
        ListToolsResult,
        {"tools": [{"name": "a", "inputSchema": {}, "icons": [{"src": "a:b", "sizes": "1x1"}]}]},
        "tools[0].icons[0].sizes: expected an array, got a string",
    ),
    (
        RequestMetaObject,
        {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": []}},
        },
        '["io.modelcontextprotocol/clientCapabilities"].elicitation.form: '
        "expected an object, got an array",
    ),
    (
        RequestMetaObject,
        {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/logLevel": "loud",
        },
        '["io.modelcontextprotocol/logLevel"]: expected one of "alert", "critical", "debug", '
        '"emergency", "error", "info", "notice", "warning", got "loud"',
    ),
    (
        ReadResourceResult,
        {"contents": [{"uri": "a:b", "text": "x"}, {"uri": "a:b", "blob": 1}]},
        "contents[1].blob: expected a string, got an integer",
    ),
    (ReadResourceRequestParams, {"uri": None}, "uri: expected a string, got null"),
    (
        ListResourcesResult,
        {"resources": [{"uri": "a:b"}]},
        "resources[0].name: expected a string, got nothing",
    ),
    (
        ListResourceTemplatesResult,
        {"resourceTemplates": [{"name": "n", "uri": "a:b"}]},
        "resourceTemplates[0].uriTemplate: expected a string, got nothing",
    ),
    (
        GetPromptRequestParams,
        {"name": "n", "arguments": {"a": "1", "b": 2}},
        "arguments.b: expected a string, got an integer",
    ),
    (
        PromptMessage,
        {"role": "system", "content": {"type": "text", "text": "x"}},
        'role: expected one of "assistant", "user", got "system"',
    ),
    (
        GetPromptResult,
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]},
        "messages[0].content: expected an object, got an array",
    ),
    (
        ListPromptsResult,
        {"prompts": [{"name": "n", "arguments": [{"name": "a", "required": "yes"}]}]},
        "prompts[0].arguments[0].required: expected a boolean, got a string",
    ),
    (
        CompleteRequestParams,
        {"ref": {"type": "ref/tool", "name": "n"}, "argument": {"name": "a", "value": ""}},
        'ref.type: expected one of "ref/prompt", "ref/resource", got "ref/tool"',
    ),
    (
        CompleteRequestParams,
        {
            "ref": {"type": "ref/prompt", "name": "n"},
            "argument": {"name": "a", "value": 1},
            "context": {"arguments": {"b": None}},
        },
        "argument.value: expected a string, got an integer; "
        "context.arguments.b: expected a string, got null",
    ),
    (
        CompleteResult,
        {"completion": {"values": ["a"], "total": 1.0}},
        "completion.total: expected an integer, got a floating-point number",
    ),
    (
        SubscriptionsListenRequestParams,
        {"notifications": {"toolsListChanged": 1, "resourceSubscriptions": "a:b"}},
        "notifications.toolsListChanged: expected a boolean, got an integer; "
        "notifications.resourceSubscriptions: expected an array, got a string",
    ),
    (SubscriptionsListenRequestParams, {}, "notifications: expected an object, got nothing"),
    (SubscriptionFilter, [], "expected an object, got an array"),
    (
        ElicitRequestParams,
        {"mode": "voice", "message": "m"},
        'mode: expected one of "form", "url", got "voice"',
    ),
    (
        ElicitRequestParams,
        {"mode": "url", "message": "m"},
        "url: expected a string, got nothing",
    ),
    (
        ElicitResult,
        {"action": "ignore"},
        'action: expected one of "accept", "cancel", "decline", got "ignore"',
    ),
    (
        ElicitResult,
        {"action": "accept", "content": []},
        "content: expected an object, got an array",
    ),
    (
        SamplingMessage,
        {"role": "user", "content": "x"},
        "content: expected an object or an array, got a string",
    ),
    (SamplingMessage, {"role": "user"}, "content: expected an object or an array, got nothing"),
    (
        CreateMessageRequestParams,
        {
            "messages": [{"role": "user", "content": [{"type": "tool_use", "id": "1"}]}],
            "maxTokens": "5",
            "toolChoice": {"mode": "maybe"},
        },
        "messages[0].content[0].name: expected a string, got nothing; "
        "messages[0].content[0].input: expected an object, got nothing; "
        "maxTokens: expected an integer, got a string",
    ),
    (
        CreateMessageResult,
        {"role": "user", "model": "m", "content": {"text": "x"}},
        "content.type: expected a string, got nothing",
    ),
    (ListRootsResult, {"roots": [{"name": "n"}]}, "roots[0].uri: expected a string, got nothing"),
    (
        InputRequiredResult,
        {
            "resultType": "input_required",
            "inputRequests": {"a b": {"method": "elicitation/create", "params": {"message": 1}}},
        },
        'inputRequests["a b"].params.message: expected a string, got an integer; '
        'inputRequests["a b"].params.requestedSchema: expected an object, got nothing',
    ),
    (
        InputRequiredResult,
        {"resultType": "input_required", "inputRequests": {"k": {"method": "tools/call"}}},
        'inputRequests.k.method: expected one of "elicitation/create", '
        '"sampling/createMessage", "roots/list", got "tools/call"',
    ),
    (
        InputRequiredResult,
        {"resultType": "input_required", "inputRequests": [{"method": "roots/list"}]},
        "inputRequests: expected an object, got an array",
    ),
]


@pytest.mark.parametrize(
    ("model", "wire", "message"), BAD_INPUTS, ids=[message for *_, message in BAD_INPUTS]
)
def test_bad_input_is_refused_with_path_expectation_and_finding(
    model: Any, wire: object, message: str
) -> None:
    with pytest.raises(ModelError) as caught:
        structure(model, wire)
    assert str(caught.value) == message


def test_path_starts_where_the_caller_says() -> None:
    with pytest.raises(ModelError) as caught:
        structure(CallToolRequestParams, {"name": "n", "arguments": "x"}, at="params")
    assert str(caught.value) == "params.arguments: expected an object, got a string"

    with pytest.raises(ModelError) as caught:
        structure(CallToolRequestParams, 1, at="params")
    assert str(caught.value) == "params: expected an object, got an integer"


@pytest.mark.parametrize(
    ("model", "wire"),
    [
        (TextContent, {"type": "x" * 10_000, "text": ""}),
        (TextContent, {"type": "\u2028\n" * 10_000, "text": ""}),
        (ClientCapabilities, {"experimental": {"k" * 10_000: 1}}),
        (ClientCapabilities, {"experimental": {"\x1b[31m\n": 1}}),
        (ClientCapabilities, {"experimental": {"\u00fcber": 1}}),
        (CallToolResult, {"content": ["x" * 10_000] * 10_000}),
    ],
)
def test_error_text_is_short_and_one_printable_line(model: type[Any], wire: object) -> None:
    with pytest.raises(ModelError) as caught:
        structure(model, wire)
    text = str(caught.value)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) < QUOTE_LIMIT + 80


def test_only_the_first_few_problems_are_named() -> None:
    with pytest.raises(ModelError) as caught:
        structure(Tool, dict.fromkeys(["name", "inputSchema", "title", "description", "icons"], 1))
    assert len(str(caught.value).split("; ")) == PROBLEM_LIMIT < 5


@attrs.define
class Broken:
    x: int

    def __attrs_post_init__(self) -> None:
        raise RuntimeError("a bug of ours")


def test_bug_of_ours_is_not_blamed_on_the_peer() -> None:
    with pytest.raises(RuntimeError, match="a bug of ours"):
        structure(Broken, {"x": 1})


# Every model, every value

words = st.text(max_size=5)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)


def values_of(type_: Any) -> st.SearchStrategy[Any]:
    """Values that an attribute of this type may have."""
    simple: dict[Any, st.SearchStrategy[Any]] = {
        Any: json_values,
        str: words,
        int: st.integers(),
        float: numbers,
        bool: st.booleans(),
        types.NoneType: st.none(),
        UnknownContent: st.builds(
            lambda rest: UnknownContent({**rest, "type": "hologram"}),
            st.dictionaries(words, json_values, max_size=2),
        ),
    }
    if type_ in simple:
        return simple[type_]
    if attrs.has(type_):
        return instances_of(type_)
    origin, args = get_origin(type_), get_args(type_)
    if origin is Literal:
        return st.sampled_from(args)
    if origin is list:
        return st.lists(values_of(args[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(words, values_of(args[1]), max_size=2)
    assert origin in (Union, types.UnionType)
    return st.one_of(*map(values_of, args))


@cache
def instances_of(model: type[Any]) -> st.SearchStrategy[Any]:
    fields = [field for field in attrs.fields(attrs.resolve_types(model)) if field.init]
    return st.builds(
        model,
        **{
            field.name: values_of(field.type) | st.just(UNSET)
            if field.default is UNSET
            else values_of(field.type)
            for field in fields
        },
    )


@pytest.mark.parametrize("model", ALL_MODELS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_model_survives_the_way_through_json_text(model: type[Any], data: st.DataObject) -> None:
    instance = data.draw(values_of(model))

    wire = json.loads(json.dumps(unstructure(instance)))

    assert structure(model, wire) == instance
    assert as_text(unstructure(structure(model, wire))) == as_text(wire)


@pytest.mark.parametrize("model", ALL_MODELS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_json_value_is_a_model_or_a_model_error(model: type[Any], data: st.DataObject) -> None:
    names = [wire_name(field) for field in attrs.fields(model)]
    value = data.draw(st.dictionaries(st.sampled_from(names), json_values) | json_values)
    try:
        instance = structure(model, value)
    except ModelError:
        return
    assert isinstance(instance, model)
