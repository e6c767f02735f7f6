"""What a server may ask the client for before it answers.

Specification 2026-07-28: *Multi Round-Trip Requests*. These requests travel inside of a result,
`.results.InputRequiredResult`; they have keys and no ids. The answers carry nothing that tells them
apart: whoever asked knows by the key which one to expect.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import define, field

from .base import RequestParams
from .elicitation import ElicitRequestParams
from .sampling import CreateMessageRequestParams

__all__ = ["CreateMessageRequest", "ElicitRequest", "InputRequest", "ListRootsRequest"]


@define
class ElicitRequest:
    """Ask the user; answered by an `.elicitation.ElicitResult`."""

    method: Literal["elicitation/create"] = field(
        default="elicitation/create", init=False, repr=False
    )
    params: ElicitRequestParams


@define
class CreateMessageRequest:
    """Ask the client's model; answered by a `.sampling.CreateMessageResult`. Deprecated."""

    method: Literal["sampling/createMessage"] = field(
        default="sampling/createMessage", init=False, repr=False
    )
    params: CreateMessageRequestParams


@define
class ListRootsRequest:
    """Ask for the roots; answered by a `.roots.ListRootsResult`. Deprecated."""

    method: Literal["roots/list"] = field(default="roots/list", init=False, repr=False)
    params: RequestParams | None = None


InputRequest: TypeAlias = ElicitRequest | CreateMessageRequest | ListRootsRequest
"""One request of an `.results.InputRequiredResult`, told apart by its ``method`` member."""
