"""What is asked of a server, looked at before anything of it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from ..runtime.models.base import META_IDEMPOTENCY_KEY
from ..runtime.tracing import TraceContext
from .checks import check_arguments, check_text, check_trace

__all__ = ["Wanted", "wanted_prompt", "wanted_resource", "wanted_tool"]


@attrs.frozen
class Wanted:
    """A request, however often it is made: its method, parameters and target.

    :param trace: the trace that it belongs to.
    :param meta: what goes with it in ``_meta``, besides what goes with every request.
    :param rounds: whether the server may ask for something before it answers.
    """

    method: str
    params: Mapping[str, Any]
    target: str | None = None
    trace: TraceContext | None = None
    meta: Mapping[str, Any] | None = None
    rounds: bool = False


def wanted_tool(
    name: str,
    arguments: Mapping[str, Any] | None,
    trace: TraceContext | None = None,
    idempotency_key: str | None = None,
) -> Wanted:
    """Raises ``TypeError`` or ``ValueError`` for what is no call of a tool."""
    check_text("the name of a tool", name)
    if arguments is not None:
        check_arguments(arguments)
    if trace is not None:
        check_trace(trace)
    meta = None if idempotency_key is None else _key_meta(idempotency_key)
    if not isinstance(arguments, dict):
        arguments = {} if arguments is None else dict(arguments)
    params = {"name": name, "arguments": arguments}
    return Wanted("tools/call", params, name, trace, meta, rounds=True)


def wanted_resource(uri: str, trace: TraceContext | None = None) -> Wanted:
    """Raises ``TypeError`` for a URI that is no text."""
    check_text("the URI of a resource", uri)
    if trace is not None:
        check_trace(trace)
    return Wanted("resources/read", {"uri": uri}, uri, trace, rounds=True)


def wanted_prompt(
    name: str, arguments: Mapping[str, str] | None, trace: TraceContext | None = None
) -> Wanted:
    """Raises ``TypeError`` for what is no prompt's name, and arguments that are none."""
    check_text("the name of a prompt", name)
    params: dict[str, Any] = {"name": name}
    if arguments is not None:
        check_arguments(arguments)
        params["arguments"] = arguments
    if trace is not None:
        check_trace(trace)
    return Wanted("prompts/get", params, name, trace, rounds=True)


def _key_meta(key: str) -> dict[str, str]:
    check_text("idempotency_key", key)
    if not key:
        raise ValueError("idempotency_key is a text that is not empty")
    return {META_IDEMPOTENCY_KEY: key}
