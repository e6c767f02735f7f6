"""``initialize``, of revisions before 2026-07-28. Specification 2025-11-25: *Lifecycle*."""

from __future__ import annotations

from attrs import define

from .base import Implementation, JSONObject, ServerCapabilities

__all__ = ["InitializeResult"]


@define
class InitializeResult:
    """What a server is, and the revision that it wants to speak from here on."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None
    meta: JSONObject | None = None
