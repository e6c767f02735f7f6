"""Results that belong to no single feature.

Specification 2026-07-28: *Overview*, "ResultType"; *Multi Round-Trip Requests*.

To structure a result that may be one of several, give the converter a union, for example
``CallToolResult | InputRequiredResult``: ``resultType`` chooses the class, its absence means
``"complete"``, and any other value is an error, as the specification wants.
"""

from __future__ import annotations

from typing import Literal

from attrs import define

from .base import JSONObject
from .input import InputRequest

__all__ = ["InputRequiredResult", "Result"]


@define
class Result:
    """What all results have in common; also the result of a request that returns nothing."""

    result_type: str = "complete"
    meta: JSONObject | None = None


@define
class InputRequiredResult:
    """The server needs more before it can answer; the client may ask again with the answers.

    A server sets at least one of the two.
    """

    input_requests: dict[str, InputRequest] | None = None
    """Requests to the client, by keys that the server chose."""
    request_state: str | None = None
    """Opaque to the client, which sends it back unchanged."""
    result_type: Literal["input_required"] = "input_required"
    meta: JSONObject | None = None
