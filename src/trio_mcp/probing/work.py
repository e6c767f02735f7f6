"""The slow tools of a probe: those that its user names, or those that are harmless by their own
word and say how long they take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from ..runtime.models.tools import Tool

__all__ = ["Duration", "Work", "duration_of", "found_work", "named_work"]

_SECONDS: Final = frozenset(
    {"s", "sec", "secs", "second", "seconds", "duration", "delay", "wait", "sleep"}
    | {"duration_s", "delay_s", "duration_seconds", "delay_seconds", "wait_seconds"}
    | {"sleep_seconds", "durationseconds", "delayseconds"}
)
_MILLISECONDS: Final = frozenset(
    {"ms", "millis", "milliseconds", "duration_ms", "delay_ms", "wait_ms", "sleep_ms"}
    | {"durationms", "delayms", "waitms", "sleepms"}
)
_WHOLE: Final = "integer"
_SAYS_MS: Final = re.compile(r"\bmilli-?seconds?\b|\bms\b", re.IGNORECASE)


@attrs.frozen
class Duration:
    """A parameter that says how long a tool takes. ``unit`` is how many of it are a second."""

    parameter: str
    unit: int
    whole: bool

    def value(self, seconds: float) -> float | int:
        amount = seconds * self.unit
        return max(1, round(amount)) if self.whole else amount


@attrs.frozen
class Work:
    """A slow tool and what it is called with."""

    tool: str
    arguments: Mapping[str, Any]
    duration: Duration | None

    def params(self, seconds: float) -> dict[str, Any]:
        """Of a ``tools/call`` that runs so long, if that can be chosen."""
        arguments = dict(self.arguments)
        if self.duration is not None:
            arguments[self.duration.parameter] = self.duration.value(seconds)
        return {"name": self.tool, "arguments": arguments}

    def lasts(self, seconds: float) -> float | None:
        """How long it then runs; ``None`` if that is not known."""
        if self.duration is None:
            return None
        return float(self.duration.value(seconds)) / self.duration.unit


def named_work(tool: Tool, arguments: Mapping[str, Any], duration: str | None) -> Work:
    """A tool that the user has named, with arguments of the user's.

    :param duration: the parameter that says how long it takes; ``None`` for the one whose name
        says so, if there is one.
    """
    return Work(tool.name, arguments, duration_of(tool, duration))


def found_work(tools: Iterable[Tool]) -> Work | None:
    """A tool that says of itself that it only reads, and needs nothing but how long to take.

    No other is ever run by guess.
    """
    for tool in tools:
        hints, duration = tool.annotations, duration_of(tool)
        required = tool.input_schema.get("required")
        needed = set(required) if isinstance(required, list) else set()
        if hints is None or hints.read_only_hint is not True or hints.destructive_hint is True:
            continue
        if duration is not None and needed <= {duration.parameter}:
            return Work(tool.name, {}, duration)
    return None


def duration_of(tool: Tool, named: str | None = None) -> Duration | None:
    """The parameter of a tool that says how long it takes."""
    properties = tool.input_schema.get("properties")
    if not isinstance(properties, dict):
        return None
    for name, schema in properties.items():
        plain = name.lower()
        known = plain in _SECONDS or plain in _MILLISECONDS
        if (name == named if named is not None else known) and isinstance(schema, dict):
            kind = schema.get("type")
            if kind in ("number", _WHOLE):
                said = _SAYS_MS.search(str(schema.get("description", "")))
                unit = 1000 if plain in _MILLISECONDS or said else 1
                return Duration(name, unit, kind == _WHOLE)
    return None
