"""A function that reads resources: one, or the family of a URI template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from ...runtime.admission.admission import FunctionLimit
from ...runtime.context import Context
from ...runtime.models.resources import ReadResourceResult
from ..caching import CacheHint
from ..functions import HandlerFunction
from .contents import read_result
from .uri_arguments import UriArguments
from .uri_templates import UriTemplate

__all__ = ["ResourceFunction"]


@attrs.frozen(eq=False)
class ResourceFunction:
    """``mime_type`` and ``cache`` are those of what it returns, unless that says its own."""

    handler: HandlerFunction
    arguments: UriArguments
    mime_type: str | None
    cache: CacheHint

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        template: UriTemplate | None,
        *,
        timeout: float | None,
        limit: FunctionLimit | None,
        mime_type: str | None,
        cache: CacheHint,
    ) -> ResourceFunction:
        """Raises ``ValueError`` or ``TypeError`` for what cannot be a resource."""
        arguments = UriArguments.of(function, template)
        handler = HandlerFunction.of(function, arguments.schema.context_parameter, timeout, limit)
        return cls(handler, arguments, mime_type, cache)

    @property
    def description(self) -> str | None:
        """The function's docstring, without its parameters."""
        return self.arguments.schema.description or None

    async def read(
        self, ctx: Context, name: str, uri: str, arguments: dict[str, Any]
    ) -> ReadResourceResult:
        """Call it, with what :meth:`.UriArguments.bind` has made; ``name`` is for its thread."""
        value = await self.handler.run(ctx, name, arguments)
        return read_result(value, uri, self.mime_type, self.cache)
