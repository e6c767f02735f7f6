"""How a command ends: exit statuses, and errors that are one clear line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import IO, Any, Final

import click

from .printable import few, one_line, printable

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "TIMED_OUT",
    "UNREAD",
    "USAGE",
    "CommandError",
    "complain",
    "no_such",
]

FAILED: Final = 1
"""The tool or the server failed."""
USAGE: Final = 2
"""The command line makes no sense: click's own status."""
TIMED_OUT: Final = 124
"""As of timeout(1)."""
INTERRUPTED: Final = 130
"""128 + SIGINT: what a shell reports for a program that Ctrl-C ended."""
UNREAD: Final = 141
"""128 + SIGPIPE: what a shell reports for a program whose output nobody reads any more."""


class CommandError(click.ClickException):
    """A command cannot go on: one line on standard error, then perhaps what others said of it."""

    def __init__(self, message: str, status: int = FAILED, quoted: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.exit_code = status  # type: ignore[misc]  # click reads it from either
        self.quoted = quoted

    def show(self, file: IO[Any] | None = None) -> None:
        complain(self.message, file)
        for line in self.quoted:
            click.echo(f"  | {one_line(line)}", file=file, err=True)


def complain(message: str, file: IO[Any] | None = None) -> None:
    """Say on standard error what is wrong. More lines than one are indented: a server's words
    among them cannot pass for a line of ours."""
    lines = printable(message).replace("\n", "\n  ")
    click.echo(f"trio-mcp: {lines}", file=file, err=True)


def no_such(kind: str, name: str, names: Iterable[str]) -> CommandError:
    """The server has no ``kind`` of this name: what it has instead."""
    known = [one_line(name) for name in names]
    if not known:
        return CommandError(f"the server offers no {kind}s", USAGE)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"it has {few(known)}"
    return CommandError(f"the server has no {kind} {name!r}; {hint}", USAGE)
