"""Requests to the client's model. Specification 2026-07-28: *Sampling*.

That revision deprecates all of it: new servers ask a model provider themselves.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import define

from .base import JSONObject, Role
from .content import (
    AudioContent,
    ImageContent,
    TextContent,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
)
from .tools import Tool

__all__ = [
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "ModelHint",
    "ModelPreferences",
    "SamplingMessage",
    "SamplingMessageContentBlock",
    "ToolChoice",
]

SamplingMessageContentBlock: TypeAlias = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent
)
"""One element of a sampling message, told apart by its ``type`` member."""


@define
class SamplingMessage:
    """One message to a model: who speaks, and one content block or several."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    """Tool results stand alone: a message that has one has nothing else."""
    meta: JSONObject | None = None


@define
class ModelHint:
    """A wish for a model."""

    name: str | None = None
    """A part of a model's name; the client may take a similar model of another provider."""


@define
class ModelPreferences:
    """Which model a server would like; the client decides. Priorities are from 0 to 1."""

    hints: list[ModelHint] | None = None
    """The first that fits counts, before the priorities."""
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


@define
class ToolChoice:
    """Whether the model may, must or must not use tools; None means ``"auto"``, that it may."""

    mode: Literal["auto", "none", "required"] | None = None


@define
class CreateMessageRequestParams:
    """Params of ``sampling/createMessage``."""

    messages: list[SamplingMessage]
    max_tokens: int
    system_prompt: str | None = None
    model_preferences: ModelPreferences | None = None
    include_context: Literal["allServers", "none", "thisServer"] | str | None = None
    """None means ``"none"``; ``"allServers"`` and ``"thisServer"`` were deprecated earlier."""
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    tools: list[Tool] | None = None
    """Only for clients with the capability ``sampling.tools``, as `tool_choice`."""
    tool_choice: ToolChoice | None = None
    metadata: JSONObject | None = None
    """For the model's provider, in its own format."""


@define
class CreateMessageResult:
    """What the model said."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    model: str
    stop_reason: Literal["endTurn", "maxTokens", "stopSequence", "toolUse"] | str | None = None
    meta: JSONObject | None = None
