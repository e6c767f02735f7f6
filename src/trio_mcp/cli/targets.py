"""TARGET: how to launch the server that a command talks to, or where it is, and talking to it."""

from __future__ import annotations

import logging
import os
import re
import shlex
import ssl
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, TextIO, TypeAlias
from urllib.parse import urlsplit

import attrs
import click

from ..client import Client
from ..client.connecting import Connecting, connect
from ..runtime.errors import (
    ConnectionLost,
    ErrorCode,
    IncompatibleServer,
    ServerError,
    TrioMcpError,
)
from ..runtime.server_errors import AuthorizationRequired
from .failure import USAGE, CommandError
from .interrupts import Interrupts
from .loading import ServerFile
from .printable import printable

__all__ = [
    "Address",
    "Launch",
    "SocketTarget",
    "Target",
    "connected",
    "parse_target",
    "tls_hint",
]

_HELD: Final = 100
"""Log messages that are held back."""
_GARBAGE: Final = "; it begins with "
"""Before the beginning of a line that is no message, in the log."""
_QUOTED_LINES: Final = 12
"""Lines of a failed server's last words that are shown."""

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_BARE_ADDRESS: Final = re.compile(
    r"(?:\[[0-9a-f:.]+\]|[a-z0-9_.-]+):[0-9]{1,5}(?:/\S*)?|(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)+)/\S*",
    re.IGNORECASE,
)
"""Looks like an address without its scheme: a host with a port, or a name of one with a path."""
_PREFIX: Final = re.compile(r"^cannot (?:connect to|open websocket) \S+: ")
"""What is put before the reason, and said here already."""
_PAGE: Final = re.compile(
    r""": (?:'(?:\\[nrt]|\s)*<(?:[^'\\]|\\.)*'|"(?:\\[nrt]|\s)*<(?:[^"\\]|\\.)*")…?"""
)
"""The beginning of a page for browsers, quoted: whoever reads it here wants to know the status."""
_ALLOWED_BY: Final = {"hosts= allow it": "--allow-host", "origins= allow it": "--allow-origin"}
"""How our own servers end a refusal, and the option of ``run`` that it means."""
_SCHEMES: Final = ("http", "https", "ws", "wss")


@attrs.frozen
class Launch:
    """A server that is launched.

    :param file: what it is called, if it is a server file.
    """

    command: Sequence[str]
    file: str | None = None
    leave: ClassVar = "the server to exit"

    def __str__(self) -> str:
        return repr(self.file if self.file is not None else shlex.join(self.command))


@attrs.frozen
class Address:
    """A server that is there.

    :param headers: sent with every request.
    :param cafile: the authorities to trust, instead of the system's.
    """

    url: str
    headers: Mapping[str, str] = attrs.field(factory=dict)
    cafile: str | None = None
    leave: ClassVar = "the connection to close"

    def __str__(self) -> str:
        """Without what may be a secret in it."""
        try:
            parts = urlsplit(self.url)
        except ValueError:
            return "this address"
        return parts._replace(
            netloc=parts.netloc.rpartition("@")[2], query="", fragment=""
        ).geturl()

    def ssl_context(self) -> ssl.SSLContext | None:
        """``None`` for the system's authorities."""
        return None if self.cafile is None else _trusting(self.cafile)


@attrs.frozen
class SocketTarget:
    """A server behind a socket that speaks lines of JSON; behind a Unix socket, at the path
    ``host``, if ``port`` is ``None``.

    :param secured: with TLS.
    :param cafile: the authorities to trust then, instead of the system's.
    """

    host: str
    port: int | None = None
    secured: bool = False
    cafile: str | None = None
    leave: ClassVar = "the connection to close"

    def __str__(self) -> str:
        if self.port is None:
            return f"unix:{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.secured else 'tcp'}://{host}:{self.port}"

    def ssl_context(self) -> ssl.SSLContext | None:
        """``None`` for no TLS."""
        if not self.secured:
            return None
        return ssl.create_default_context() if self.cafile is None else _trusting(self.cafile)


def _trusting(cafile: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=cafile)
    except ssl.SSLError:
        raise CommandError(f"{cafile!r} holds no certificate, in PEM form", USAGE) from None
    except OSError as error:
        why = error.strerror or error
        raise CommandError(f"cannot read {cafile!r}: {why}", USAGE) from None


Target: TypeAlias = Launch | Address


def parse_target(target: str) -> Target:
    """What one word stands for: an address, a server file, a program, or a command line in quotes.

    Raises :class:`CommandError` for what is none of them.
    """
    scheme = _SCHEME.match(target)
    if scheme is None:
        return _launch(target)
    if scheme[1].lower() not in _SCHEMES:
        raise CommandError(
            f"{target}: an address begins with http://, https://, ws:// or wss://", USAGE
        )
    return Address(target)


def _launch(target: str) -> Launch:
    file = ServerFile.parse(target)
    if file is not None and (file.path.is_file() or " " not in target):
        file.check()
        return Launch([sys.executable, "-P", "-m", "trio_mcp", "run", target], target)
    if Path(target).is_file():
        # A program, perhaps with a space in its name; this one, not its namesake on PATH.
        return Launch([os.path.abspath(target)])
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise CommandError(f"{target!r} is no command line: {error}", USAGE) from None
    if not words:
        raise CommandError("TARGET is empty", USAGE)
    return Launch(words)


@asynccontextmanager
async def connected(
    interrupts: Interrupts, target: Target, doing: str, *, verbose: bool = False, **callbacks: Any
) -> AsyncGenerator[Client, None]:
    """A client of a server. What goes wrong comes out as :class:`CommandError`.

    :param doing: what it is for, as :meth:`.Interrupts.doing` takes it.
    :param verbose: show on our standard error what a launched server writes to its own.
    :param callbacks: of :func:`.connect`, for what the server asks and tells.
    """
    there = False
    log = _configure_logging(verbose)
    try:
        connecting = _connect(target, callbacks)
        interrupts.at_once = connecting.abort
        interrupts.doing(f"connecting to {target}", target.leave)
        async with connecting as client:
            there = True
            log.tell()
            interrupts.doing(doing, target.leave)
            yield client
    except (OSError, ValueError) as error:
        if there:
            raise
        raise _no_connection(target, error) from None
    except IncompatibleServer as error:
        raise CommandError(f"cannot use {target}: {_incompatible(target, error)}") from None
    except ConnectionLost as error:
        if isinstance(target, Address) and not there:
            how = "use" if error.sent else "connect to"
            why = _PAGE.sub("", _PREFIX.sub("", error.message)) + tls_hint(target, error.message)
            raise CommandError(f"cannot {how} {target}: {why}") from None
        raise _lost(error) if there else _unheard(target, error, log) from None
    except ServerError as error:
        raise CommandError(f"{error}{_hint(target, error, verbose)}") from None
    except TrioMcpError as error:
        if isinstance(target, Address) and not there:
            raise CommandError(f"cannot use {target}: {_PAGE.sub('', str(error))}") from None
        raise CommandError(str(error)) from None


def _connect(target: Target, callbacks: Mapping[str, Any]) -> Connecting:
    if isinstance(target, Launch):
        return connect(target.command, **callbacks)
    return connect(
        target.url, headers=target.headers, ssl_context=target.ssl_context(), **callbacks
    )


def _hint(target: Target, error: ServerError, verbose: bool) -> str:
    """What a server's error does not say itself."""
    if error.code == ErrorCode.METHOD_NOT_FOUND:
        return "; the server does not offer that"
    if isinstance(target, Launch):
        logged = error.code == ErrorCode.INTERNAL_ERROR and not verbose
        return "; -v shows its log" if logged else ""
    if not isinstance(error, AuthorizationRequired):
        return ""
    if "authorization" in (name.lower() for name in target.headers):
        return f" (by {target}, with the Authorization that was sent)"
    return f" (by {target}); -H 'Authorization: …' says who you are"


def _no_connection(target: Target, error: OSError | ValueError) -> CommandError:
    if isinstance(target, Launch):
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        return CommandError(f"cannot launch {target.command[0]!r}: {why}{_meant(target.command)}")
    return CommandError(f"cannot connect to {target}: {error}", USAGE)


def _meant(command: Sequence[str]) -> str:
    """A hint, for a command that looks like an address."""
    if len(command) != 1 or _BARE_ADDRESS.fullmatch(command[0]) is None:
        return ""
    return f"; did you mean http://{command[0]}?"


def tls_hint(address: Address | SocketTarget, why: str) -> str:
    """What may help, where TLS has failed."""
    if "CERTIFICATE_VERIFY_FAILED" in why:
        return "; --cafile FILE trusts the authorities in FILE"
    if "WRONG_VERSION_NUMBER" not in why:  # that is one who does not know of TLS
        return ""
    if isinstance(address, SocketTarget):
        return f"; did you mean tcp://{str(address).removeprefix('tls://')}?"
    scheme, _, place = str(address).partition("s://")
    return f"; did you mean {scheme}://{place}?"


def _incompatible(target: Target, error: IncompatibleServer) -> str:
    """Whoever answers at an address may be anything: not each refusal tells of a revision."""
    refusal = error.__cause__
    if (
        isinstance(target, Address)
        and isinstance(refusal, ServerError)
        and refusal.code != ErrorCode.METHOD_NOT_FOUND
    ):
        options = (o for end, o in _ALLOWED_BY.items() if refusal.message.endswith(end))
        return f"it answers {refusal}" + "".join(f"; 'trio-mcp run' takes {o}" for o in options)
    return _PAGE.sub("", str(error)) if isinstance(target, Address) else str(error)


def _configure_logging(verbose: bool) -> _Log:
    log = _Log(held_back=not verbose)
    log.setFormatter(_Formatter("trio-mcp: %(message)s"))
    logging.basicConfig(handlers=[log])
    if verbose:
        logger = logging.getLogger("trio_mcp.server_stderr")
        logger.addHandler(_Repeat())
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    return log


class _Log(logging.StreamHandler[TextIO]):
    """What is odd about a server is held back while it is found out which one it is: if that fails,
    one line says why."""

    def __init__(self, *, held_back: bool) -> None:
        super().__init__()
        self._held: list[logging.LogRecord] | None = [] if held_back else None

    def emit(self, record: logging.LogRecord) -> None:
        if self._held is None:
            super().emit(record)
        elif len(self._held) < _HELD:
            self._held.append(record)

    def tell(self) -> None:
        """The server is there."""
        held, self._held = self._held, None
        for record in held or ():
            super().emit(record)

    @property
    def garbage(self) -> str | None:
        """The beginning of a line that was no message, quoted, if there was one."""
        said = (record.getMessage().rpartition(_GARBAGE) for record in self._held or ())
        return next((quoted for _, found, quoted in said if found), None)


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
    return _ended(error, error.message)


def _unheard(target: Target, error: ConnectionLost, log: _Log) -> CommandError:
    """A program that ended before there was a client of it may be anything."""
    if error.exit_status is None:
        return _lost(error)
    printed = f"; it printed {log.garbage}" if log.garbage is not None else ""
    return _ended(error, f"{target} ended without speaking MCP", printed)


def _ended(error: ConnectionLost, how: str, more: str = "") -> CommandError:
    status = f" (exit status {error.exit_status})" if error.exit_status is not None else ""
    quoted = error.stderr_tail.splitlines()[-_QUOTED_LINES:]
    words = "; its last words:" if quoted else ""
    return CommandError(f"{how}{status}{more}{words}", quoted=quoted)
