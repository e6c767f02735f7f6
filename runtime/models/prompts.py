"""Prompts: their definitions, arguments and messages. Specification 2026-07-28: *Prompts*."""

from __future__ import annotations

from typing import Literal

from attrs import define

from .base import CacheScope, Icon, JSONObject, Role
from .content import ContentBlock

__all__ = [
    "GetPromptRequestParams",
    "GetPromptResult",
    "ListPromptsResult",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
]


@define
class PromptArgument:
    """An argument of a prompt; its value is always text."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


@define
class Prompt:
    """The definition of a prompt."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: JSONObject | None = None


@define
class PromptMessage:
    """One message of a prompt: who speaks, and one content block."""

    role: Role
    content: ContentBlock


@define
class ListPromptsResult:
    """One page of prompts. `ttl_ms` is in milliseconds; a negative one counts as 0."""

    prompts: list[Prompt]
    next_cursor: str | None = None
    """Where the next page starts; None (and only None) means that this was the last one."""
    ttl_ms: int = 0
    cache_scope: CacheScope | str = "private"
    """A scope that is neither ``"public"`` nor ``"private"`` counts as private."""
    result_type: Literal["complete"] = "complete"
    meta: JSONObject | None = None


@define
class GetPromptRequestParams:
    """Params of ``prompts/get``."""

    name: str
    arguments: dict[str, str] | None = None
    input_responses: JSONObject | None = None
    """Answers to the ``inputRequests`` of an earlier result, by the same keys."""
    request_state: str | None = None
    """What an earlier result carried; under the control of whoever sends it."""
    meta: JSONObject | None = None


@define
class GetPromptResult:
    """A prompt with its arguments filled in."""

    messages: list[PromptMessage]
    description: str | None = None
    result_type: Literal["complete"] = "complete"
    meta: JSONObject | None = None
