"""``trio-mcp probe``: what a server does when it is cancelled, seen from outside."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
import click
from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from ..client import Client
from ..client.connecting import connect
from ..probing import check_names, probe
from ..probing.asked import ConversationLost
from ..probing.pace import Pace
from ..probing.report import Check, Report
from ..probing.subject import Command, HttpAddress, SocketAddress, Subject, WebSocketAddress
from ..probing.work import Work, found_work, named_work
from ..runtime.errors import TrioMcpError
from ..runtime.models.converter import unstructure
from ..runtime.models.tools import Tool
from .failure import FAILED, USAGE, CommandError, no_such
from .interrupts import Interrupts
from .listing import all_of
from .printable import few, one_line
from .show import print_json
from .targets import (
    Address,
    Launch,
    SocketTarget,
    Target,
    connected,
    parse_target,
    tls_hint,
)

__all__ = ["ProbeRequest", "parse_probe_target", "probe_server"]

_SOCKET: Final = re.compile(
    r"(?:tcp|(tls))://(?:\[([0-9a-f:.]+)\]|([^\s/:@\[\]]+)):([0-9]{1,5})/?|unix:(.+)",
    re.IGNORECASE,
)
_STYLES: Final = {"pass": "green", "fail": "bold red", "unknown": "yellow", "n/a": "dim"}

Named: TypeAlias = tuple[str, dict[str, Any]]
"""A tool and its arguments, as the user gives them."""


@attrs.frozen(kw_only=True)
class ProbeRequest:
    """What is to be probed, and how; see the options of the command."""

    slow: tuple[Named, ...]
    witness: Named | None
    effect: Path | None
    duration: str | None
    revision: str | None
    only: tuple[str, ...]
    grace: float
    crowd: int
    pid: int | None
    strict: bool
    as_json: bool
    verbose: bool


def parse_probe_target(word: str) -> Target | SocketTarget:
    """As for the other commands, and ``tcp://host:port``, ``tls://host:port`` and ``unix:/path``.

    Raises :class:`CommandError` for what is none of them.
    """
    if not word.lower().startswith(("tcp:", "tls:", "unix:")):
        return parse_target(word)
    found = _SOCKET.fullmatch(word)
    if found is None or (found[4] is not None and int(found[4]) > 65535):
        raise CommandError(
            f"{word}: it looks like tcp://host:port, tls://host:port or unix:/path", USAGE
        )
    if found[5] is not None:
        return SocketTarget(found[5])
    return SocketTarget(found[2] or found[3], int(found[4]), secured=found[1] is not None)


async def probe_server(
    interrupts: Interrupts, target: Target | SocketTarget, request: ProbeRequest
) -> int:
    """Look at a server, probe it, print what came of it; the exit status."""
    seen = await _look(interrupts, target, request.verbose)
    interrupts.at_once = None  # that client is closed
    # Its servers die as they do: what they say last is told in the table.
    logging.getLogger("trio_mcp").setLevel(logging.ERROR)
    revision = request.revision or seen.revision
    subject = _subject(target)
    works, witness = _works(seen.tools, request), _witness(seen.tools, request)
    _check_names_known(request.only, check_names(subject.transport, revision))
    interrupts.doing(f"probing {target}", target.leave)
    with _view(target, request.as_json) as view:
        try:
            report = await probe(
                subject,
                works,
                target=str(target),
                revision=revision,
                server=seen.server,
                tools=[unstructure(tool) for tool in seen.tools],
                pace=Pace(grace=request.grace),
                witness=witness,
                effect=request.effect,
                pid=request.pid,
                crowd=request.crowd,
                only=request.only,
                on_check=view.tell,
            )
        except (OSError, ConversationLost) as error:
            raise CommandError(f"cannot probe {target} with {revision}: {error}") from None
    _show(report, as_json=request.as_json)
    bad = report.counts["fail"] + (report.counts["unknown"] if request.strict else 0)
    return FAILED if bad else 0


# The server --------------------------------------------------------------------------------------


@attrs.frozen
class _Seen:
    """What the server says of itself."""

    revision: str
    server: str
    tools: list[Tool]


async def _look(interrupts: Interrupts, target: Target | SocketTarget, verbose: bool) -> _Seen:
    async with _client(interrupts, target, verbose) as client:
        tools = await all_of(client.tools())
        info = client.server_info
        name = f"{info.name} {info.version}" if info is not None else "a server without a name"
        return _Seen(client.protocol_version, name, tools)


@asynccontextmanager
async def _client(
    interrupts: Interrupts, target: Target | SocketTarget, verbose: bool
) -> AsyncGenerator[Client, None]:
    doing = "listing tools"
    if not isinstance(target, SocketTarget):
        async with connected(interrupts, target, doing, verbose=verbose) as client:
            yield client
        return
    interrupts.doing(f"connecting to {target}", target.leave)
    try:
        stream = await _address(target).connect(Pace().open)
        async with connect(stream) as client:
            interrupts.doing(doing, target.leave)
            yield client
    except OSError as error:
        why = f"{error}{tls_hint(target, str(error))}"
        raise CommandError(f"cannot connect to {target}: {why}") from None
    except TrioMcpError as error:
        raise CommandError(f"cannot use {target}: {error}") from None


def _subject(target: Target | SocketTarget) -> Subject:
    if isinstance(target, SocketTarget):
        return _address(target)
    if isinstance(target, Launch):
        return Command(target.command)
    assert isinstance(target, Address)
    kind = WebSocketAddress if target.url.lower().startswith("ws") else HttpAddress
    return kind(target.url, target.headers, target.ssl_context())


def _address(target: SocketTarget) -> SocketAddress:
    return SocketAddress(target.host, target.port, target.ssl_context())


# Its tools ---------------------------------------------------------------------------------------


def _works(tools: Sequence[Tool], request: ProbeRequest) -> list[Work]:
    if not request.slow:
        found = found_work(tools)
        if found is None:
            raise CommandError(
                "no tool says that it only reads and takes how long it is to run; name a slow one "
                "with --tool NAME, or --tool NAME='{…}' with its arguments",
                USAGE,
            )
        return [found]
    named = [(_tool(tools, name), arguments) for name, arguments in request.slow]
    for tool, _ in named:
        properties = tool.input_schema.get("properties")
        if request.duration is not None and request.duration not in (properties or {}):
            raise CommandError(f"{tool.name} has no parameter {request.duration!r}", USAGE)
    return [named_work(tool, arguments, request.duration) for tool, arguments in named]


def _witness(tools: Sequence[Tool], request: ProbeRequest) -> Work | None:
    if request.witness is None:
        return None
    name, arguments = request.witness
    return Work(_tool(tools, name).name, arguments, None)


def _tool(tools: Sequence[Tool], name: str) -> Tool:
    for tool in tools:
        if tool.name == name:
            return tool
    raise no_such("tool", name, (tool.name for tool in tools))


def _check_names_known(only: Collection[str], names: Sequence[str]) -> None:
    for name in only:
        if name not in names:
            raise CommandError(
                f"there is no check {name!r} here; there are {', '.join(names)}", USAGE
            )


# What is shown -----------------------------------------------------------------------------------


class _View:
    """Says what goes on, on a terminal's standard error."""

    def __init__(self, status: Status | None) -> None:
        self._status = status

    def __enter__(self) -> _View:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def tell(self, name: str, check: Check | None) -> None:
        if self._status is not None and check is None:
            self._status.update(Text(f"probing: {name}"))


def _view(target: object, as_json: bool) -> _View:
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        return _View(None)
    return _View(Status(Text(one_line(f"probing {target}")), console=console))


def _show(report: Report, *, as_json: bool) -> None:
    if as_json:
        said: Mapping[str, Any] = {
            "probe": f"trio-mcp {version('trio-mcp')}",
            "date": datetime.now(UTC).date().isoformat(),
            **report.as_json(),
        }
        print_json(said)
        return
    head = f"{report.server}, {report.transport}, revision {report.revision}"
    on = f"tools: {few(report.tools)}; witness: {report.witness or 'none'}"
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report.counts.items() if count)
    console = Console()
    if not console.is_terminal:
        for line in (head, on, *map(_line, report.checks), counts):
            click.echo(one_line(line))
        return
    console.print(Text(one_line(head)), Text(one_line(on)), sep="\n")
    console.print(_table(report.checks))
    console.print(Text(counts))


def _line(check: Check) -> str:
    return f"{check.verdict:<8} {_name(check)}: {_seen(check)} [{check.evidence}]"


def _name(check: Check) -> str:
    return check.name if check.tool is None else f"{check.name} {check.tool}"


def _seen(check: Check) -> str:
    return check.seen if check.after is None else f"{check.seen} ({check.after * 1000:.0f} ms)"


def _table(checks: Sequence[Check]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("check", no_wrap=True, style="bold cyan")
    table.add_column("", no_wrap=True)
    table.add_column("what was seen", overflow="fold")
    table.add_column("evidence", style="dim")
    for check in checks:
        table.add_row(
            Text(one_line(_name(check))),
            Text(check.verdict, style=_STYLES[check.verdict]),
            Text(one_line(_seen(check))),
            Text(check.evidence),
        )
    return table
