"""Completion of arguments. Specification 2026-07-28: *Completion*."""

from __future__ import annotations

from typing import Literal

from attrs import define, field

from .base import JSONObject

__all__ = [
    "CompleteRequestParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "PromptReference",
    "ResourceTemplateReference",
]


@define
class PromptReference:
    """The prompt whose argument is to be completed."""

    type: Literal["ref/prompt"] = field(default="ref/prompt", init=False, repr=False)
    name: str
    title: str | None = None


@define
class ResourceTemplateReference:
    """The resource template whose variable is to be completed; `uri` is the template, or a URI."""

    type: Literal["ref/resource"] = field(default="ref/resource", init=False, repr=False)
    uri: str


@define
class CompletionArgument:
    """The argument to be completed, and what was typed so far."""

    name: str
    value: str


@define
class CompletionContext:
    """What is known already."""

    arguments: dict[str, str] | None = None
    """Values of other arguments of the same prompt or template."""


@define
class CompleteRequestParams:
    """Params of ``completion/complete``."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | None = None
    meta: JSONObject | None = None


@define
class Completion:
    """Proposed values, the best first; at most 100."""

    values: list[str]
    total: int | None = None
    """How many there are, also those that are not sent."""
    has_more: bool | None = None


@define
class CompleteResult:
    """The answer to ``completion/complete``."""

    completion: Completion
    result_type: Literal["complete"] = "complete"
    meta: JSONObject | None = None
