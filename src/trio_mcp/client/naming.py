"""Names of tools in a group of servers: the member's, a separator, and the tool's own.

The first separator in a name ends the member's name, always and only there: a member's name has
none, and none begins in it and ends in the separator that follows. So two tools of different
members, or of different names, never have the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from ..runtime.models.tools import Tool
from .checks import check_text

__all__ = ["NAME_LENGTH", "GroupTools", "LeftOut", "Naming"]

NAME_LENGTH: Final = 128
"""Characters of the longest name that a tool should have. Specification: *Tools*, "Tool Names"."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")


@attrs.frozen
class LeftOut:
    """A tool that has no name in the group; ``group[server]`` can call it."""

    server: str
    tool: str
    why: str


@attrs.frozen
class GroupTools:
    """The tools of a group: of those who answered, and why the others did not.

    :param tools: named as :meth:`.group.ClientGroup.call_tool` wants them, member after member.
    :param failures: by the member's name; it has no tools in ``tools``.
    :param left_out: tools whose name would break the rule for names, or is there twice.
    """

    tools: tuple[Tool, ...]
    failures: Mapping[str, Exception]
    left_out: tuple[LeftOut, ...]

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.tools)

    def __len__(self) -> int:
        return len(self.tools)


class Naming:
    """The rule of one group. Raises ``ValueError`` for a separator that no name could have."""

    def __init__(self, separator: str, length: int) -> None:
        check_text("separator", separator)
        if isinstance(length, bool) or not isinstance(length, int):
            raise TypeError(f"name_length is a whole number, not {length!r:.80}")
        if not _NAME.fullmatch(separator):
            raise ValueError(f"separator is made of A-Z a-z 0-9 _ - . and {separator!r} is not")
        self.separator = separator
        self._length = length

    def check(self, name: str) -> str:
        """A member's name. Raises ``ValueError`` or ``TypeError`` for one that is none."""
        check_text("a member's name", name)
        if not _NAME.fullmatch(name) or len(name) + len(self.separator) >= self._length:
            raise ValueError(
                f"a member's name is of A-Z a-z 0-9 _ - . and short enough to come before a "
                f"tool's name, and {name!r} is not"
            )
        if (name + self.separator).find(self.separator) != len(name):
            raise ValueError(
                f"where {name!r} ends would be unclear: a member's name must not have, or run "
                f"into, the separator {self.separator!r}"
            )
        return name

    def split(self, name: str) -> tuple[str, str | None]:
        """The member and its tool; no tool, if there is no separator. Raises ``TypeError``."""
        check_text("the name of a tool", name)
        member, separator, tool = name.partition(self.separator)
        return member, tool if separator else None

    def tools(self, answers: Mapping[str, list[Tool] | Exception]) -> GroupTools:
        """What the members have answered, by their names, with names of the group."""
        tools: dict[str, Tool] = {}
        failures: dict[str, Exception] = {}
        left_out: list[LeftOut] = []
        for server, answer in answers.items():
            if isinstance(answer, Exception):
                failures[server] = answer
                continue
            for tool in answer:
                name = server + self.separator + tool.name
                if not _NAME.fullmatch(name):
                    why = "its name is not of A-Z a-z 0-9 _ - ."
                elif not tool.name or len(name) > self._length:
                    why = f"{len(name)} characters are too few or too many for a name"
                elif name in tools:
                    why = "the server has listed another tool of this name"
                else:
                    tools[name] = attrs.evolve(tool, name=name)
                    continue
                left_out.append(LeftOut(server, tool.name, why))
        return GroupTools(tuple(tools.values()), failures, tuple(left_out))
