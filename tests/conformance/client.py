"""The client that the conformance suite drives: ``python -m tests.conformance.client ADDRESS``.

The suite says in ``MCP_CONFORMANCE_SCENARIO`` what it wants to see, and in
``MCP_CONFORMANCE_CONTEXT``, as JSON, with which values.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import trio

from trio_mcp import (
    Client,
    CreateMessageRequestParams,
    CreateMessageResult,
    Elicitation,
    ElicitResult,
    Root,
    TextContent,
    Tool,
    connect,
)

__all__ = ["main"]

_ARGUMENTS: Final[Mapping[str, Any]] = {"a": 2, "b": 3, "region": "us-west1"}
"""For parameters that tools of the suite have."""

_Visit: TypeAlias = Callable[[Client], Awaitable[None]]


async def list_tools(client: Client) -> None:
    """Ask what there is."""
    async for _ in client.tools():
        pass


async def call_each_tool(client: Client) -> None:
    """Call all tools that the client lists, with what they want of :data:`_ARGUMENTS`."""
    async for tool in client.tools():
        await client.call_tool(tool.name, _arguments_for(tool))


async def ask_for_everything(client: Client) -> None:
    """Call each tool, read each resource, get each prompt."""
    await call_each_tool(client)
    async for resource in client.resources():
        await client.read_resource(resource.uri)
    async for prompt in client.prompts():
        await client.get_prompt(prompt.name)


async def make_the_calls(client: Client) -> None:
    """Make the calls of the context, once the tools are known."""
    await list_tools(client)
    for call in _context()["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


async def return_the_schema(client: Client) -> None:
    """Give a tool the input schema of another one, as it came."""
    schemas = {tool.name: tool.input_schema async for tool in client.tools()}
    schema = schemas["json_schema_2020_12_tool"]
    await client.call_tool("json_schema_echo", {"schema": schema})


VISITS: Final[Mapping[str, _Visit]] = {
    "initialize": list_tools,
    "elicitation-sep1034-client-defaults": call_each_tool,
    "sse-retry": call_each_tool,
    "tools_call": call_each_tool,
    "request-metadata": list_tools,
    "sep-2322-client-request-state": call_each_tool,
    "http-standard-headers": ask_for_everything,
    "http-custom-headers": make_the_calls,
    "http-invalid-tool-headers": call_each_tool,
    "json-schema-ref-no-deref": list_tools,
    "json-schema-2020-12-preservation": return_the_schema,
}


def _arguments_for(tool: Tool) -> dict[str, Any]:
    wanted = tool.input_schema.get("properties", {})
    return {name: value for name, value in _ARGUMENTS.items() if name in wanted}


def _context() -> dict[str, Any]:
    context: dict[str, Any] = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    return context


def _confirm(question: Elicitation) -> ElicitResult:
    """Agree, with what the form has in its fields already."""
    fields = (question.schema or {}).get("properties", {})
    filled = {name: field["default"] for name, field in fields.items() if "default" in field}
    return question.accept({"confirmed": True, **filled})


def _say_something(_: CreateMessageRequestParams) -> CreateMessageResult:
    return CreateMessageResult("assistant", TextContent("something"), "no-model")


async def main(address: str, scenario: str) -> None:
    async with connect(
        address,
        name="trio-mcp-conformance",
        version="1.0.0",
        on_elicit=_confirm,
        on_sample=_say_something,
        on_roots=[Root("file:///conformance")],
    ) as client:
        await VISITS[scenario](client)


if __name__ == "__main__":
    chosen = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if chosen not in VISITS:
        sys.exit(f"no client for the scenario {chosen!r}")
    trio.run(main, sys.argv[1], chosen)
