"""Questions to the user, by form or by URL. Specification 2026-07-28: *Elicitation*."""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import define, field

from .base import JSONObject

__all__ = [
    "ElicitRequestFormParams",
    "ElicitRequestParams",
    "ElicitRequestURLParams",
    "ElicitResult",
]


@define
class ElicitRequestFormParams:
    """A form to fill in; never for secrets."""

    message: str
    requested_schema: JSONObject
    """JSON Schema of a flat object: its properties are strings, numbers, booleans and choices."""
    mode: Literal["form"] = "form"


@define
class ElicitRequestURLParams:
    """A page to visit. Its URL is untrusted: only the user may decide to open it."""

    mode: Literal["url"] = field(default="url", init=False, repr=False)
    message: str
    url: str


ElicitRequestParams: TypeAlias = ElicitRequestFormParams | ElicitRequestURLParams
"""Params of ``elicitation/create``, told apart by ``mode``; without one it is a form."""


@define
class ElicitResult:
    """What the user did: agreed, refused, or closed the question without a decision."""

    action: Literal["accept", "cancel", "decline"]
    content: JSONObject | None = None
    """The filled form; None unless a form was accepted. The server checks it: clients may not."""
