"""Error objects on the wire, and the data that MCP's own errors carry.

Specification 2026-07-28: *Overview*, "Error Codes". The exceptions and the codes are in
``runtime/errors.py``.
"""

from __future__ import annotations

from attrs import define

from .base import UNSET, ClientCapabilities, JSONValue

__all__ = [
    "Error",
    "MissingRequiredClientCapabilityData",
    "UnsupportedProtocolVersionData",
]


@define
class Error:
    """The ``error`` member of a JSON-RPC error response."""

    code: int
    message: str
    data: JSONValue = UNSET
    """Any JSON value, None for a JSON null; `UNSET` when there is none."""


@define
class UnsupportedProtocolVersionData:
    """``error.data`` of an *UnsupportedProtocolVersionError* (-32022)."""

    supported: list[str]
    requested: str


@define
class MissingRequiredClientCapabilityData:
    """``error.data`` of a *MissingRequiredClientCapabilityError* (-32021)."""

    required_capabilities: ClientCapabilities
