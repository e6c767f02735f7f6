"""``tools/list`` and ``tools/call``. Specification: *Tools*."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from ..runtime.context import Context, exchange_of
from ..runtime.errors import ErrorCode, ProtocolError, ToolError
from ..runtime.limits import Limits
from ..runtime.mirrored import MirroredParameter, mirrored_parameters
from ..runtime.models.base import UNSET, Icon, PaginatedRequestParams
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
from .results import (
    UNSTRUCTURED,
    ToolResult,
    error_result,
    full_result,
    structured_result,
    unstructured_result,
)
from .schema.given import GivenSchema
from .schema.signature import (
    FunctionSchema,
    InvalidArguments,
    OutputError,
    inspect_function,
)
from .soundness import check_options, check_sendable, limit_of, sound

__all__ = ["RegisteredTool", "Tools", "tool_failure"]

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@attrs.frozen(eq=False)
class RegisteredTool:
    """A tool with the function behind it."""

    definition: Tool
    function: HandlerFunction
    schema: FunctionSchema
    mirrored: tuple[MirroredParameter, ...]
    takes_anything: bool
    """Its output schema is that of any list or any object."""


class Tools:
    """The tools of one server."""

    def __init__(
        self,
        tools: Registry[RegisteredTool],
        cache: CacheHint,
        limits: Limits = Limits(),  # noqa: B008  (frozen)
    ) -> None:
        self._tools = tools
        self._cache = cache
        self._limits = limits

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
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        limit: int | None = None,
        queue: int | None = None,
        pool: str | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> RegisteredTool:
        """Add a function. Raises ``ValueError`` or ``TypeError`` for what cannot be a tool."""
        name = name if name is not None else getattr(function, "__name__", None)
        if name is None or not _NAME.fullmatch(name):
            raise ValueError(
                f"a tool's name is 1 to 128 of A-Z a-z 0-9 _ - . and {name!r} is not; pass name=…"
            )
        schema = inspect_function(
            function,
            context_type=Context,
            unstructured_types=UNSTRUCTURED,
            wrapper=ToolResult,
            input_schema=self._given(input_schema, f"the input schema of tool {name!r}"),
            output_schema=self._given(output_schema, f"the output schema of tool {name!r}"),
            value_depth=self._limits.value_depth,
        )
        if schema.input_schema.get("type") != "object":
            raise ValueError(
                f'the input schema of tool {name!r} must say "type": "object": arguments are one'
            )
        try:
            mirrored = mirrored_parameters(schema.input_schema)
        except ValueError as error:
            raise ValueError(f"the tool {name!r} cannot be offered: {error}") from None
        check_options(annotations=annotations, kind=ToolAnnotations, icons=icons, meta=meta)
        definition = Tool(
            name=name,
            input_schema=schema.input_schema,
            title=title,
            description=description if description is not None else schema.description or None,
            output_schema=schema.output_schema,
            annotations=annotations,
            icons=list(icons) if icons else None,
            meta=dict(meta) if meta is not None else None,
        )
        check_sendable(definition, f"tool {name!r}")
        handler = HandlerFunction.of(
            function,
            schema.context_parameter,
            timeout,
            limit_of(limit, queue, self._limits.function_queue),
            pool,
        )
        tool = RegisteredTool(
            definition, handler, schema, mirrored, _takes_anything(schema.output_schema)
        )
        self._tools.add(name, tool)
        return tool

    def _given(self, schema: Mapping[str, Any] | None, what: str) -> GivenSchema | None:
        return None if schema is None else GivenSchema.of(schema, what, self._limits)

    def remove(self, name: str) -> None:
        self._tools.remove(name)

    def mirrored(self, params: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        """The headers that mirror arguments of a ``tools/call``, and the values of these."""
        name, arguments = params.get("name"), params.get("arguments")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None or not tool.mirrored:
            return ()
        return [(mirrored.header, mirrored.value_in(arguments)) for mirrored in tool.mirrored]

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
            raise ProtocolError(
                ErrorCode.INVALID_PARAMS,
                f"Unknown tool: {params.name[:128]} (tools/list names those there are)",
            )
        schema = tool.schema
        try:
            arguments = schema.bind(params.arguments if params.arguments is not None else {})
        except InvalidArguments as error:
            return error_result(str(error))
        if tool.function.context_parameter is not None and _may_change(params, arguments):
            # What a question is bound to is the request as it came, not what becomes of it.
            exchange = exchange_of(ctx)
            exchange.core.round_of(exchange)
        value = await tool.function.run(ctx, params.name, arguments)
        if isinstance(value, ToolResult):
            return _checked(value, schema)
        if schema.output_schema is None:
            if schema.plain and not isinstance(value, UNSTRUCTURED):
                schema.check_plain(value)
            return unstructured_result(value)
        if isinstance(value, CallToolResult):
            return sound(value)
        if tool.takes_anything:
            _refuse_blocks(value, schema)
        return structured_result(schema.structure_output(value))


def _may_change(params: CallToolRequestParams, arguments: Mapping[str, Any]) -> bool:
    """Whether a function that gets these arguments could change those of the request by it."""
    given = params.arguments or {}
    return any(type(value) in (dict, list) for value in (*given.values(), *arguments.values()))


def _takes_anything(output_schema: Mapping[str, Any] | None) -> bool:
    schema = output_schema or {}
    return schema.get("type") in ("array", "object") and not any(
        schema.get(keyword)
        for keyword in schema.keys() - {"type", "title", "description", "$schema"}
    )


def _refuse_blocks(value: Any, schema: FunctionSchema) -> None:
    """Content is for people and models: as data it would be the JSON of its Python attributes."""
    items = value if isinstance(value, (list, tuple)) else (value,)
    for item in items:
        if isinstance(item, UNSTRUCTURED):
            name = type(item).__name__
            raise OutputError(
                schema.function,
                [
                    f"the result holds {name}, and the return annotation promises data: annotate "
                    f"it with what it is, as in `-> list[{name}]`, or not at all"
                ],
            )


def _checked(result: ToolResult[Any], schema: FunctionSchema) -> CallToolResult:
    value = result.structured_content
    if value is not UNSET:
        return full_result(result, schema.structure_output(value))
    if schema.output_schema is not None and not result.is_error:
        raise OutputError(schema.function, ["the result has no structured content"])
    return full_result(result, UNSET)


def tool_failure(error: BaseException) -> CallToolResult | None:
    """A :class:`ToolError` is a result that the model reads; anything else is none."""
    return error_result(str(error)) if isinstance(error, ToolError) else None
