"""Tool parameters that are mirrored into headers: ``x-mcp-header``, ``Mcp-Param-*``. No I/O.

Specification: *Streamable HTTP*, "Custom Headers from Tool Parameters".
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from ...runtime.journal import printable
from ...runtime.limits import Limits
from .metadata import encode_value

__all__ = ["MirroredTools", "ParameterHeader", "mirrored", "parameter_headers"]

logger = logging.getLogger("trio_mcp.connection")

_KEY: Final = "x-mcp-header"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES: Final = ("string", "integer", "boolean")
_SAFE: Final = 2**53 - 1
_WARNINGS: Final = 20
"""Tools of one page that are left out and named in the log."""

_SCHEMA: Final = frozenset(
    (
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
_SCHEMAS: Final = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
_NAMED_SCHEMAS: Final = frozenset(
    ("$defs", "definitions", "dependentSchemas", "dependencies", "patternProperties")
)


@attrs.frozen
class ParameterHeader:
    """A header of its own for the value at ``path`` in a tool's arguments."""

    header: str
    path: tuple[str, ...]


def parameter_headers(schema: Mapping[str, Any]) -> tuple[ParameterHeader, ...]:
    """The headers that a tool's input schema asks for. Raises ``ValueError`` for a bad one."""
    found: dict[str, ParameterHeader] = {}
    for path, part in _parts(schema):
        if _KEY not in part:
            continue
        name = part[_KEY]
        if not path:
            raise ValueError(f"{_KEY} stands where no chain of `properties` leads to")
        where = ".".join(path)
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ValueError(f"{_KEY} of {where!r} is no name of a header")
        if part.get("type") not in _TYPES:
            raise ValueError(f"{_KEY} of {where!r}, which is no string, integer or boolean")
        if name.lower() in found:
            raise ValueError(f"{_KEY} {name!r} stands twice, ignoring case")
        found[name.lower()] = ParameterHeader(f"Mcp-Param-{name}", path)
    return tuple(found.values())


def _parts(schema: Any) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Every schema in a schema, with its path of properties: ``None`` where something else is on
    the way. No recursion: a server decides how deep it is."""
    todo: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while todo:
        path, part = todo.pop()
        if not isinstance(part, Mapping):
            continue
        yield path, part
        for key, value in part.items():
            if key == "properties" and isinstance(value, Mapping):
                for name, inner in value.items():
                    todo.append((None if path is None else (*path, name), inner))
            elif key in _SCHEMAS and isinstance(value, list):
                todo += [(None, inner) for inner in value]
            elif key in _SCHEMA:
                todo.append((None, value))
            elif key in _NAMED_SCHEMAS and isinstance(value, Mapping):
                todo += [(None, inner) for inner in value.values()]


def mirrored(
    headers: tuple[ParameterHeader, ...], arguments: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Headers for a call with these arguments; none for a value that is absent, or ``None``.

    Raises ``ValueError`` for an integer that is too large to be mirrored.
    """
    found = []
    for wanted in headers:
        value: Any = arguments
        for step in wanted.path:
            value = value.get(step) if isinstance(value, Mapping) else None
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
        self._tools: OrderedDict[str, tuple[ParameterHeader, ...]] = OrderedDict()

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
            headers = parameter_headers(schema)
        except ValueError as error:
            length = self._limits.text_length
            refused.append(f"{printable(name[:length])}, because {printable(str(error)[:length])}")
            return False
        if headers:
            self._tools[name] = headers
        return True
