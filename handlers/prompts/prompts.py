"""``prompts/list`` and ``prompts/get``. Specification: *Prompts*."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from ...runtime.context import Context
from ...runtime.errors import ErrorCode, ProtocolError
from ...runtime.limits import Limits
from ...runtime.models.base import Icon, PaginatedRequestParams
from ...runtime.models.prompts import (
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    Prompt,
    PromptArgument,
)
from ..caching import CacheHint
from ..functions import HandlerFunction
from ..registry import Registry
from ..schema.signature import InvalidArguments, SignatureError, inspect_function
from ..schema.texts import TextArgument, TextArguments
from ..soundness import check_options, check_sendable, limit_of
from .messages import MESSAGES, prompt_result

__all__ = ["Prompts", "RegisteredPrompt"]

_NAME_LENGTH: Final = 128


@attrs.frozen(eq=False)
class RegisteredPrompt:
    """A prompt with the function behind it."""

    definition: Prompt
    function: HandlerFunction
    _arguments: TextArguments

    @property
    def arguments(self) -> Mapping[str, TextArgument]:
        """Its arguments by name, in order."""
        return self._arguments.by_name

    def bind(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Keyword arguments for the function. Raises ``ProtocolError`` -32602."""
        try:
            return self._arguments.bind(texts)
        except InvalidArguments as error:
            raise ProtocolError(
                ErrorCode.INVALID_PARAMS, f"Invalid params: {'; '.join(error.problems)}"
            ) from None


class Prompts:
    """The prompts of one server."""

    def __init__(
        self, prompts: Registry[RegisteredPrompt], cache: CacheHint, limits: Limits
    ) -> None:
        self._prompts = prompts
        self._cache = cache
        self._limits = limits

    def __len__(self) -> int:
        return len(self._prompts)

    def add(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] | None = None,
        timeout: float | None = None,
        limit: int | None = None,
        queue: int | None = None,
    ) -> RegisteredPrompt:
        """Add a function. Raises ``ValueError`` or ``TypeError`` for what cannot be a prompt."""
        name = name if name is not None else getattr(function, "__name__", None)
        if name is None or not (name.strip() and name.isprintable() and len(name) <= _NAME_LENGTH):
            raise ValueError(
                f"a prompt's name is 1 to {_NAME_LENGTH} printable characters, and {name!r} is "
                "not; pass name=…"
            )
        schema = inspect_function(function, context_type=Context, unstructured_types=MESSAGES)
        try:
            arguments = TextArguments.of(schema)
        except SignatureError as error:
            raise SignatureError(f"the prompt {name!r}: {error}") from None
        check_options(icons=icons)
        definition = Prompt(
            name=name,
            title=title,
            description=description if description is not None else schema.description or None,
            arguments=[_argument(known) for known in arguments.by_name.values()] or None,
            icons=[*icons] if icons else None,
        )
        check_sendable(definition, f"prompt {name!r}")
        handler = HandlerFunction.of(
            function,
            schema.context_parameter,
            timeout,
            limit_of(limit, queue, self._limits.function_queue),
        )
        prompt = RegisteredPrompt(definition, handler, arguments)
        self._prompts.add(name, prompt)
        return prompt

    def remove(self, name: str) -> None:
        self._prompts.remove(name)

    def registered(self, name: str) -> RegisteredPrompt | None:
        return self._prompts.get(name)

    def find(self, name: str) -> RegisteredPrompt:
        """The prompt that a request names. Raises ``ProtocolError`` -32602 if there is none."""
        prompt = self._prompts.get(name)
        if prompt is None:
            raise ProtocolError(
                ErrorCode.INVALID_PARAMS,
                f"Unknown prompt: {name[:_NAME_LENGTH]} (prompts/list names those there are)",
            )
        return prompt

    # Methods of the protocol ----------------------------------------------------------------------

    async def list(self, ctx: Context, params: PaginatedRequestParams) -> ListPromptsResult:
        page, next_cursor = self._prompts.page(params.cursor)
        return ListPromptsResult(
            [prompt.definition for prompt in page],
            next_cursor=next_cursor,
            ttl_ms=self._cache.ttl_ms,
            cache_scope=self._cache.scope,
        )

    async def get(self, ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        prompt = self.find(params.name)
        arguments = prompt.bind(params.arguments if params.arguments is not None else {})
        value = await prompt.function.run(ctx, params.name, arguments)
        return prompt_result(value, prompt.definition.description)


def _argument(argument: TextArgument) -> PromptArgument:
    return PromptArgument(
        argument.name, argument.title, argument.description, required=argument.required
    )
