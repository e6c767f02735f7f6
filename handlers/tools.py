"""``tools/list`` and ``tools/call``. Specification: *Tools*."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from ..runtime.context import Context
from ..runtime.errors import ErrorCode, ProtocolError, ToolError
from ..runtime.jsonrpc import encode
from ..runtime.mirrored import MirroredParameter, mirrored_parameters
from ..runtime.models.base import Icon, PaginatedRequestParams
from ..runtime.models.converter import unstructure
from ..runtime.models.tools import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    Tool,
    ToolAnnotations,
)
from .caching import CacheHint
from .functions import HandlerFunction
from .registry import Registry
from .results import UNSTRUCTURED, error_result, structured_result, unstructured_result
from .schema.signature import FunctionSchema, InvalidArguments, NonFiniteOutput, inspect_function

__all__ = ["RegisteredTool", "Tools", "tool_failure"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@attrs.frozen(eq=False)
class RegisteredTool:
    """A tool with the function behind it."""

    definition: Tool
    function: HandlerFunction
    schema: FunctionSchema
    mirrored: tuple[MirroredParameter, ...]


class Tools:
    """The tools of one server."""

    def __init__(self, tools: Registry[RegisteredTool], cache: CacheHint) -> None:
        self._tools = tools
        self._cache = cache

    def __len__(self) -> int:
        return len(self._tools)

    def add(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] | None = None,
        timeout: float | None = None,
    ) -> RegisteredTool:
        """Add a function. Raises ``ValueError`` or ``TypeError`` for what cannot be a tool."""
        name = name if name is not None else getattr(function, "__name__", None)
        if name is None or not _NAME.fullmatch(name):
            raise ValueError(
                f"a tool's name is 1 to 128 of A-Z a-z 0-9 _ - . and {name!r} is not; pass name=…"
            )
        schema = inspect_function(function, context_type=Context, unstructured_types=UNSTRUCTURED)
        try:
            mirrored = mirrored_parameters(schema.input_schema)
        except ValueError as error:
            raise ValueError(f"the tool {name!r} cannot be offered: {error}") from None
        definition = Tool(
            name=name,
            input_schema=schema.input_schema,
            title=title,
            description=description if description is not None else schema.description or None,
            output_schema=schema.output_schema,
            annotations=annotations,
            icons=list(icons) if icons else None,
        )
        try:
            encode(unstructure(definition))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(
                f"the definition of tool {name!r} (description, title, schema …) cannot be sent as "
                f"JSON: {error}"
            ) from error
        handler = HandlerFunction.of(function, schema.context_parameter, timeout)
        tool = RegisteredTool(definition, handler, schema, mirrored)
        self._tools.add(name, tool)
        return tool

    def remove(self, name: str) -> None:
        self._tools.remove(name)

    def mirrored(self, params: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        """The headers that mirror arguments of a ``tools/call``, and the values of these."""
        name, arguments = params.get("name"), params.get("arguments")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is not None:
            for parameter in tool.mirrored:
                yield parameter.header, parameter.value_in(arguments)

    # Methods of the protocol ----------------------------------------------------------------------

    async def list(self, ctx: Context, params: PaginatedRequestParams) -> ListToolsResult:
        page, next_cursor = self._tools.page(params.cursor)
        return ListToolsResult(
            [tool.definition for tool in page],
            next_cursor=next_cursor,
            ttl_ms=self._cache.ttl_ms,
            cache_scope=self._cache.scope,
        )

    async def call(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            raise ProtocolError(ErrorCode.INVALID_PARAMS, f"Unknown tool: {params.name[:128]}")
        schema = tool.schema
        try:
            arguments = schema.bind(params.arguments if params.arguments is not None else {})
        except InvalidArguments as error:
            return error_result(str(error))
        value = await tool.function.run(ctx, params.name, arguments)
        if schema.output_schema is None:
            return unstructured_result(value)
        if isinstance(value, CallToolResult):
            return value
        try:
            return structured_result(schema.structure_output(value))
        except NonFiniteOutput as error:
            raise ProtocolError(ErrorCode.INTERNAL_ERROR, str(error)) from None


def tool_failure(error: BaseException) -> CallToolResult | None:
    """A :class:`ToolError` is a result that the model reads; anything else is none."""
    return error_result(str(error)) if isinstance(error, ToolError) else None
