"""What the server has said of its tools in lists, and what follows from it for their calls.

A tool's ``outputSchema`` is the server's, so it is as hostile as all it sends: it is held against
the bounds of a schema that an application gives, fetches nothing, and where it cannot be used,
results are not checked. Specification: *Tools*, "Output Schema".
"""

from __future__ import annotations

import logging
import reprlib
from collections import OrderedDict
from typing import Final

import attrs

from ..handlers.schema.given import GivenSchema
from ..handlers.schema.problems import Checker
from ..runtime.errors import ProtocolViolation
from ..runtime.jsonrpc import decode, encode
from ..runtime.limits import Limits
from ..runtime.models.base import UNSET
from ..runtime.models.tools import CallToolResult, Tool

__all__ = ["KnownTools"]

logger = logging.getLogger("trio_mcp.client")

_SHOWN: Final = 3


@attrs.define
class _Known:
    """``schema`` is JSON, until the first result has to be checked."""

    schema: bytes | None
    repeatable: bool
    checker: Checker | None = None


class KnownTools:
    """At most ``Limits.known_tools``; the one that was listed first is forgotten.

    :param check_results: whether output schemas are remembered.
    :param trusted: whether annotations are.
    """

    def __init__(self, limits: Limits, *, check_results: bool, trusted: bool) -> None:
        self._limits = limits
        self._check_results = check_results
        self._trusted = trusted
        self._tools: OrderedDict[str, _Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tools)

    def clear(self) -> None:
        """It is another server now."""
        self._tools.clear()

    def learn(self, tools: list[Tool]) -> None:
        """From a page of the server's list, which may say something new of known ones."""
        for tool in tools:
            self._tools.pop(tool.name, None)
            schema = self._schema_of(tool) if self._check_results else None
            repeatable = self._trusted and _may_be_repeated(tool)
            if schema is not None or repeatable:
                self._tools[tool.name] = _Known(schema, repeatable)
        while len(self._tools) > self._limits.known_tools:
            self._tools.popitem(last=False)

    def may_repeat(self, name: str) -> bool:
        """Whether a trusted server says that a second call of the tool changes nothing more."""
        known = self._tools.get(name)
        return known is not None and known.repeatable

    def check(self, name: str, result: CallToolResult) -> CallToolResult:
        """The result, if it is what the tool's output schema says, or nothing is known of one.

        Raises :class:`ProtocolViolation`. A failure of the tool is not held against its schema.
        """
        known = self._tools.get(name)
        if known is None or result.is_error:
            return result
        if known.schema is not None:
            known.checker, known.schema = self._checker(name, known.schema), None
        checker, value = known.checker, result.structured_content
        if checker is None or (value is not UNSET and checker.accepts(value)):
            return result
        if value is UNSET:
            why = "it has no structured content"
        else:
            why = "; ".join(checker.explain(value)[:_SHOWN])
        raise ProtocolViolation(
            f"tools/call {reprlib.repr(name)}: the result does not fit the tool's output schema: "
            f"{why}"
        )

    def _schema_of(self, tool: Tool) -> bytes | None:
        if tool.output_schema is None:
            return None
        try:
            schema = encode(tool.output_schema)
        except (RecursionError, ValueError):  # nested as deep as can be
            self._unusable(tool.name, "it is nested too deeply")
            return None
        if len(schema) > self._limits.schema_bytes:
            self._unusable(tool.name, f"it is longer than schema_bytes={self._limits.schema_bytes}")
            return None
        return schema

    def _checker(self, name: str, schema: bytes) -> Checker | None:
        try:
            given = GivenSchema.of(decode(schema), "the output schema", self._limits)
            return Checker.given("result", given, self._limits.value_depth)
        except (ValueError, TypeError) as error:
            self._unusable(name, str(error)[: self._limits.text_length])
            return None

    def _unusable(self, name: str, why: str) -> None:
        logger.warning("results of %s are not checked: %s", reprlib.repr(name), why)


def _may_be_repeated(tool: Tool) -> bool:
    said = tool.annotations
    return said is not None and bool(said.read_only_hint or said.idempotent_hint)
