"""TARGET: how to launch the server that a command talks to, and talking to it."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click

from ..client import Client, connect
from ..runtime.errors import (
    ConnectionLost,
    ErrorCode,
    IncompatibleServer,
    ServerError,
    TrioMcpError,
)
from .failure import USAGE, CommandError
from .loading import ServerFile
from .printable import printable

__all__ = ["connected", "launch_command"]

_QUOTED_LINES: Final = 12
"""Lines of a failed server's last words that are shown."""


def launch_command(target: str) -> list[str]:
    """The command behind one word: a server file, a program, or a command line in quotes.

    Raises :class:`CommandError` for what is none of them.
    """
    if "://" in target:
        raise CommandError(
            f"{target}: there is no transport for addresses yet; give a command to launch", USAGE
        )
    file = ServerFile.parse(target)
    if file is not None and (file.path.is_file() or " " not in target):
        file.check()
        return [sys.executable, "-P", "-m", "trio_mcp", "run", target]
    if Path(target).is_file():
        # A program, perhaps with a space in its name; this one, not its namesake on PATH.
        return [os.path.abspath(target)]
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise CommandError(f"{target!r} is no command line: {error}", USAGE) from None
    if not words:
        raise CommandError("TARGET is empty", USAGE)
    return words


@asynccontextmanager
async def connected(
    command: Sequence[str], *, verbose: bool = False
) -> AsyncGenerator[Client, None]:
    """A client of a launched server. What goes wrong comes out as :class:`CommandError`.

    :param verbose: show on our standard error what the server writes to its own.
    """
    launched = False
    _configure_logging(verbose)
    try:
        async with connect(command) as client:
            launched = True
            yield client
    except OSError as error:
        if launched:
            raise
        raise CommandError(f"cannot launch {command[0]!r}: {error.strerror or error}") from None
    except IncompatibleServer as error:
        raise CommandError(f"cannot use {shlex.join(command)!r}: {error}") from None
    except ConnectionLost as error:
        raise _lost(error) from None
    except ServerError as error:
        logged = error.code == ErrorCode.INTERNAL_ERROR and not verbose
        hint = "; -v shows its log" if logged else ""
        raise CommandError(f"{error}{hint}") from None
    except TrioMcpError as error:
        raise CommandError(str(error)) from None


def _configure_logging(verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("trio-mcp: %(message)s"))
    logging.basicConfig(handlers=[handler])
    if verbose:
        logger = logging.getLogger("trio_mcp.server_stderr")
        logger.addHandler(_Repeat())
        logger.setLevel(logging.DEBUG)
        logger.propagate = False


class _Formatter(logging.Formatter):
    """Messages may quote the server."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _Repeat(logging.Handler):
    """Shows what a server writes to its standard error as it comes: pieces, not lines."""

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple):
            click.echo(printable(str(record.args[-1])), err=True, nl=False)


def _lost(error: ConnectionLost) -> CommandError:
    status = f" (exit status {error.exit_status})" if error.exit_status is not None else ""
    quoted = error.stderr_tail.splitlines()[-_QUOTED_LINES:]
    words = "; its last words:" if quoted else ""
    return CommandError(f"{error.message}{status}{words}", quoted=quoted)
