"""What a handler may ask the client for, and what the user answered.

Specification: *Elicitation*, *Sampling*, *Roots*. Plain data: how a question travels is the
business of ``handlers/input``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import attrs

from .models.base import JSONObject
from .models.sampling import ModelPreferences, SamplingMessage, ToolChoice
from .models.tools import Tool

__all__ = ["Elicit", "ElicitUrl", "Elicited", "Question", "Roots", "Sample"]

T = TypeVar("T")


@attrs.frozen
class Elicit(Generic[T]):
    """Ask the user to fill in a form; answered with an :class:`Elicited`.

    Never for passwords, keys, tokens or payment data: those belong on a page, :class:`ElicitUrl`
    (specification: *Elicitation*, "Form Mode Security").

    :param message: what is asked, and why.
    :param schema_type: a class with fields (attrs, dataclass, ``TypedDict``, ``msgspec.Struct``),
        or a JSON schema. A form is flat: texts, numbers, booleans, choices, several choices.
    """

    message: str
    schema_type: type[T] | Mapping[str, Any]


@attrs.frozen
class ElicitUrl:
    """Ask the user to visit a page; answered with an :class:`Elicited` without content.

    ``accept`` says that the user agreed to go there, not what came of it. The page has to find out
    by itself that its visitor is the user who was asked (specification: *Elicitation*, "Phishing").

    :param url: an ``https://`` or ``http://`` address; without anything secret in it.
    """

    message: str
    url: str


@attrs.frozen
class Sample:
    """Ask the client's model; answered with a
    :class:`~trio_mcp.runtime.models.sampling.CreateMessageResult`.

    Deprecated by the specification: a new server asks a model provider itself.

    :param messages: the conversation; a text is one message of the user.
    :param max_tokens: the longest answer.
    """

    messages: str | SamplingMessage | Sequence[SamplingMessage]
    max_tokens: int
    system_prompt: str | None = attrs.field(default=None, kw_only=True)
    model_preferences: ModelPreferences | None = attrs.field(default=None, kw_only=True)
    temperature: float | None = attrs.field(default=None, kw_only=True)
    stop_sequences: Sequence[str] | None = attrs.field(default=None, kw_only=True)
    tools: Sequence[Tool] | None = attrs.field(default=None, kw_only=True)
    tool_choice: ToolChoice | None = attrs.field(default=None, kw_only=True)
    include_context: Literal["none", "thisServer", "allServers"] | None = attrs.field(
        default=None, kw_only=True
    )
    metadata: JSONObject | None = attrs.field(default=None, kw_only=True)


@attrs.frozen
class Roots:
    """Ask which directories and files the client shows to servers; answered with a list of
    :class:`~trio_mcp.runtime.models.roots.Root`.

    Deprecated by the specification: a new server takes paths as arguments or configuration.
    """


Question: TypeAlias = Elicit[Any] | ElicitUrl | Sample | Roots


@attrs.frozen
class Elicited(Generic[T]):
    """What the user did: agreed, refused, or closed the question without a decision.

    ``content`` is the filled form of an accepted :class:`Elicit`, otherwise ``None``. That a user
    has really seen the question, no server can know (specification: *Elicitation*, "Response
    Actions").
    """

    action: Literal["accept", "decline", "cancel"]
    content: T | None = None

    @property
    def accepted(self) -> bool:
        return self.action == "accept"
