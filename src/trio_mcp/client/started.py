"""Handles on calls other than those of tools: what :meth:`.client.Client.start_tool` is for tools.

For those who show a call while it goes on, and need to tell "cancelling" from "the server has been
told". Whoever only waits for the result has the methods of :class:`.client.Client`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

from ..runtime.models.prompts import GetPromptResult
from ..runtime.models.resources import ReadResourceResult
from .client import Client
from .handles import StartedCall
from .wanted import Wanted, wanted_prompt, wanted_resource

__all__ = ["start_prompt", "start_read"]

M = TypeVar("M")


@asynccontextmanager
async def start_read(
    client: Client, uri: str, *, timeout: float | None = None, max_timeout: float | None = None
) -> AsyncGenerator[StartedCall[ReadResourceResult], None]:
    """Start to read a resource: ``async with start_read(client, uri) as call``. Entering waits for
    nothing; leaving the block cancels the call if it runs, and does not wait. Times in seconds."""
    wanted = wanted_resource(uri)
    async with _started(client, wanted, ReadResourceResult, timeout, max_timeout) as call:
        yield call


@asynccontextmanager
async def start_prompt(
    client: Client,
    name: str,
    arguments: Mapping[str, str],
    *,
    timeout: float | None = None,
    max_timeout: float | None = None,
) -> AsyncGenerator[StartedCall[GetPromptResult], None]:
    """Start to get a prompt, as :func:`start_read`."""
    wanted = wanted_prompt(name, arguments)
    async with _started(client, wanted, GetPromptResult, timeout, max_timeout) as call:
        yield call


@asynccontextmanager
async def _started(
    client: Client,
    wanted: Wanted,
    model: type[M],
    timeout: float | None,
    max_timeout: float | None,
) -> AsyncGenerator[StartedCall[M], None]:
    pending = client._start(wanted, client._timeouts.but(timeout, max_timeout))
    try:
        yield StartedCall(pending, model)
    finally:
        pending.abandon("the caller left")
