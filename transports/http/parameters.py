"""A client's arguments of tools, mirrored into headers: ``Mcp-Param-*``. No I/O.

Specification: *Streamable HTTP*, "Custom Headers from Tool Parameters".
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from ...runtime.journal import printable
from ...runtime.limits import Limits
from ...runtime.mirrored import MirroredParameter, mirrored_parameters
from .header_values import encode_value

__all__ = ["MirroredTools", "mirrored"]

logger = logging.getLogger("trio_mcp.connection")

_SAFE: Final = 2**53 - 1
_WARNINGS: Final = 20
"""Tools of one page that are left out and named in the log."""


def mirrored(
    headers: tuple[MirroredParameter, ...], arguments: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Headers for a call with these arguments; none for a value that is absent, or ``None``.

    Raises ``ValueError`` for an integer that is too large to be mirrored.
    """
    found = []
    for wanted in headers:
        value = wanted.value_in(arguments)
        if isinstance(value, bool):
            found.append((wanted.header, "true" if value else "false"))
        elif isinstance(value, int):
            if abs(value) > _SAFE:
                raise ValueError(
                    f"{'.'.join(wanted.path)} goes into a header of the request, so it must be "
                    "between -(2**53 - 1) and 2**53 - 1"
                )
            found.append((wanted.header, str(value)))
        elif isinstance(value, float) and value.is_integer() and abs(value) <= _SAFE:
            found.append((wanted.header, str(int(value))))
        elif isinstance(value, str):
            found.append((wanted.header, encode_value(value)))
    return found


class MirroredTools:
    """What one server's tools want in headers, as far as their lists have been seen."""

    def __init__(self, label: str, limits: Limits) -> None:
        self._label = label
        self._limits = limits
        self._tools: OrderedDict[str, tuple[MirroredParameter, ...]] = OrderedDict()

    def headers_for(self, method: str, params: Mapping[str, Any]) -> list[tuple[str, str]]:
        """For a request. Raises ``ValueError`` for a value that cannot be mirrored."""
        wanted = self._tools.get(params.get("name", "")) if method == "tools/call" else None
        return [] if wanted is None else mirrored(wanted, params.get("arguments") or {})

    def learn(self, result: dict[str, Any]) -> None:
        """From a page of tools. Those whose headers are invalid are taken out of it."""
        tools = result.get("tools")
        if not isinstance(tools, list):
            return
        refused: list[str] = []
        result["tools"] = [tool for tool in tools if self._learn_tool(tool, refused)]
        for why in refused[:_WARNINGS]:
            logger.warning("%s: a tool is left out: %s", self._label, why)
        if len(refused) > _WARNINGS:
            logger.warning("%s: %d tools are left out", self._label, len(refused))
        while len(self._tools) > self._limits.http_mirrored:
            self._tools.popitem(last=False)

    def _learn_tool(self, tool: Any, refused: list[str]) -> bool:
        if not isinstance(tool, dict):
            return True  # whoever reads the result will say so
        name = tool.get("name")
        schema = tool.get("inputSchema")
        if not isinstance(name, str) or not isinstance(schema, dict):
            return True
        self._tools.pop(name, None)
        try:
            headers = mirrored_parameters(schema)
        except ValueError as error:
            length = self._limits.text_length
            refused.append(f"{printable(name[:length])}, because {printable(str(error)[:length])}")
            return False
        if headers:
            self._tools[name] = headers
        return True
