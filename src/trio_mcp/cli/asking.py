"""The commands that launch or find a server and ask it something: names, options and help."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import click

from .options import (
    ANSWER,
    HEADER,
    LOG_LEVEL,
    NAMED_TOOL,
    PEM_FILE,
    RequestOptions,
    above_zero,
    answers_of,
    headers_of,
)

if TYPE_CHECKING:
    from .interrupts import Interrupts
    from .targets import Target

__all__ = ["ASKING"]

F = TypeVar("F", bound=Callable[..., Any])

_COMMAND: Final = "trio_mcp.command"
"""Where a context keeps the words after ``--``."""

_TARGET_HELP: Final = """\b
TARGET says how to launch the server, or where it is:
  server.py, server.py:name   a file that defines a trio-mcp server
  ./program                   a program that serves standard input
  "node server.js --fast"     a command line, quoted
  … -- node server.js --fast  or after two dashes, instead of TARGET
  https://example.com/mcp     its address: http, https, ws or wss"""


class _TargetCommand(click.Command):
    """A command about a server: takes a command line after ``--`` in place of TARGET."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_TARGET_HELP)


def _target_options(function: F) -> F:
    """What goes with a TARGET that is an address."""
    for option in (
        click.option(
            "--cafile",
            type=PEM_FILE,
            metavar="FILE",
            help="Trust the authorities in FILE, not the system's; for addresses.",
        ),
        click.option(
            "-H",
            "--header",
            "headers",
            type=HEADER,
            multiple=True,
            metavar="'NAME: VALUE'",
            callback=headers_of,
            help="Send a header with each request; for addresses. Repeatable.",
        ),
    ):
        function = option(function)
    return function


def _seconds_option(name: str, help: str) -> Callable[[F], F]:
    return click.option(name, type=float, metavar="SECONDS", help=help, callback=above_zero)


def _request_options(what: str) -> Callable[[F], F]:
    """What goes with a request that may take long and ask back: see :class:`RequestOptions`."""
    options = (
        _seconds_option(
            "--timeout", "Give up after this much silence, 60 if not given; progress is no silence."
        ),
        _seconds_option(
            "--max-timeout",
            "Give up after this time in any case, 3600 if not given; inf for never.",
        ),
        _seconds_option("--cancel-after", f"Cancel the {what} after this time, as Ctrl-C would."),
        click.option(
            "--answer",
            "answers",
            type=ANSWER,
            multiple=True,
            metavar="KEY=JSON",
            callback=answers_of,
            help="Answer the server's question KEY: its form as JSON, or accept, decline or"
            " cancel. Repeatable.",
        ),
        click.option(
            "--log-level",
            type=LOG_LEVEL,
            metavar="LEVEL",
            help="Show the server's log messages about the request, from LEVEL on: debug, info,"
            " notice, warning, error, critical, alert or emergency.",
        ),
        _target_options,
        click.option("--json", "as_json", is_flag=True, help="Print the whole result, as JSON."),
        _VERBOSE,
    )

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


_VERBOSE: Final = click.option(
    "-v", "--verbose", is_flag=True, help="Show what a launched server writes to standard error."
)


T = TypeVar("T")


def _split_target(
    ctx: click.Context, words: tuple[str, ...], headers: dict[str, str], cafile: str | None
) -> tuple[Target, tuple[str, ...]]:
    """What to connect to, and the words that are left."""
    from .targets import parse_target

    return _split(ctx, words, headers, cafile, parse_target)


def _split(
    ctx: click.Context,
    words: tuple[str, ...],
    headers: dict[str, str],
    cafile: str | None,
    parse: Callable[[str], Target | T],
) -> tuple[Target | T, tuple[str, ...]]:
    from .targets import Address, Launch, SocketTarget

    target: Target | T
    command = ctx.meta.get(_COMMAND)
    if command is not None:
        if not command:
            raise click.UsageError("There is no command after '--'.", ctx)
        target = Launch(command)
    elif not words:
        raise click.UsageError("Missing TARGET: how to launch the server, or where it is.", ctx)
    else:
        target, words = parse(words[0]), words[1:]
    if isinstance(target, Address):
        return attrs.evolve(target, headers=headers, cafile=cafile), words
    if isinstance(target, SocketTarget):
        if headers:
            raise click.UsageError("--header is for HTTP and WebSockets.", ctx)
        if cafile and not target.secured:
            raise click.UsageError("--cafile is for TLS: https://, wss:// or tls://.", ctx)
        return attrs.evolve(target, cafile=cafile), words
    for option, value in (("--header", headers), ("--cafile", cafile)):
        if value:
            raise click.UsageError(f"{option} is for addresses; this server is launched.", ctx)
    return target, words


def _no_more(ctx: click.Context, rest: Sequence[str]) -> None:
    if rest:
        raise click.UsageError(
            f"What is {rest[0]!r}? Put a command line in quotes, or after '--'.", ctx
        )


def _run(work: Callable[[Interrupts], Awaitable[int]]) -> int:
    from .interrupts import run_interruptible

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed: nothing else shall get its descriptor
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for good
    return run_interruptible(work)


# What there is ------------------------------------------------------------------------------------


def _list_options(function: F) -> F:
    for option in (
        _VERBOSE,
        click.option(
            "--json", "as_json", is_flag=True, help="Print the full definitions, as JSON."
        ),
        _target_options,
        click.argument("words", metavar="TARGET", nargs=-1),
    ):
        function = option(function)
    return function


@click.command(cls=_TargetCommand)
@_list_options
@click.pass_context
def tools(
    ctx: click.Context,
    words: tuple[str, ...],
    headers: dict[str, str],
    cafile: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """List the tools of a server with their parameters.

    A parameter with a question mark may be left out.
    """
    from .listing import list_tools

    target, rest = _split_target(ctx, words, headers, cafile)
    _no_more(ctx, rest)
    return _run(lambda interrupts: list_tools(interrupts, target, as_json=as_json, verbose=verbose))


@click.command(cls=_TargetCommand)
@_list_options
@click.pass_context
def resources(
    ctx: click.Context,
    words: tuple[str, ...],
    headers: dict[str, str],
    cafile: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """List the resources of a server, and its templates of resources.

    A template has variables in braces; what they may be, the server knows.
    """
    from .listing import list_resources

    target, rest = _split_target(ctx, words, headers, cafile)
    _no_more(ctx, rest)
    return _run(
        lambda interrupts: list_resources(interrupts, target, as_json=as_json, verbose=verbose)
    )


@click.command(cls=_TargetCommand)
@_list_options
@click.pass_context
def prompts(
    ctx: click.Context,
    words: tuple[str, ...],
    headers: dict[str, str],
    cafile: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """List the prompts of a server with their arguments.

    An argument with a question mark may be left out.
    """
    from .listing import list_prompts

    target, rest = _split_target(ctx, words, headers, cafile)
    _no_more(ctx, rest)
    return _run(
        lambda interrupts: list_prompts(interrupts, target, as_json=as_json, verbose=verbose)
    )


# Requests -----------------------------------------------------------------------------------------


@click.command(cls=_TargetCommand)
@click.argument("words", metavar="TARGET TOOL [KEY=VALUE]…", nargs=-1)
@_request_options("call")
@click.pass_context
def call(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    headers: dict[str, str],
    cafile: str | None,
    **options: Any,
) -> int:
    """Call a tool; print its result.

    The result goes to standard output; how the call stands, to standard error. Ctrl-C cancels it:
    "cancelling" until the server has been told, then "stopped". A second Ctrl-C leaves at once.

    KEY=VALUE is an argument: text for a parameter that takes a string, else JSON as the tool's
    schema asks for. KEY:=JSON is JSON in any case.

    Where the server asks its user something, you are asked on the terminal; an empty line leaves
    out what may be left out, Ctrl-D declines. --answer answers beforehand.

    \b
      trio-mcp call shop.py order_book title=Dune
      trio-mcp call shop.py rebuild_index titles='["Dune", "Emma"]'
      trio-mcp call add a=1 b=2 -- node server.js
      trio-mcp call https://example.com/mcp add a=1 b=2

    \b
    Exit status:
      0    the tool's result
      1    the tool failed (its result says so), or the server did
      2    the command line makes no sense: no such file, tool or argument;
           or a question of the server has no answer
      124  timed out
      130  cancelled, by Ctrl-C or --cancel-after; the tool gave no result
      143  ended by SIGTERM
    """
    from .calling import call_tool

    target, rest = _split_target(ctx, words, headers, cafile)
    if not rest:
        raise click.UsageError("Missing TOOL: 'trio-mcp tools TARGET' lists them.", ctx)
    request = RequestOptions(**options)
    return _run(lambda interrupts: call_tool(interrupts, target, rest[0], rest[1:], request))


@click.command(cls=_TargetCommand)
@click.argument("words", metavar="TARGET NAME [KEY=VALUE]…", nargs=-1)
@_request_options("request")
@click.pass_context
def prompt(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    headers: dict[str, str],
    cafile: str | None,
    **options: Any,
) -> int:
    """Get a prompt with its arguments filled in; print its messages.

    Each message begins with who speaks; lines that follow are indented. KEY=VALUE is an argument,
    a text. All else is as for 'trio-mcp call': what goes where, Ctrl-C, questions, exit statuses.

    \b
      trio-mcp prompt shop.py recommend liked=Dune
    """
    from .prompting import get_prompt

    target, rest = _split_target(ctx, words, headers, cafile)
    if not rest:
        raise click.UsageError("Missing NAME: 'trio-mcp prompts TARGET' lists them.", ctx)
    request = RequestOptions(**options)
    return _run(lambda interrupts: get_prompt(interrupts, target, rest[0], rest[1:], request))


@click.command(cls=_TargetCommand)
@click.argument("words", metavar="TARGET URI", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write what was read to FILE, byte by byte.",
)
@_request_options("read")
@click.pass_context
def read(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    headers: dict[str, str],
    cafile: str | None,
    output: str | None,
    **options: Any,
) -> int:
    """Read a resource; print what is in it.

    To a file or a pipe it goes as it is, byte by byte. To a terminal go texts, without what a
    terminal would obey, and nothing binary: --output FILE takes that. All else is as for
    'trio-mcp call': what goes where, Ctrl-C, questions, exit statuses.

    \b
      trio-mcp read shop.py books://Dune
      trio-mcp read shop.py books://Dune/cover -o cover.png
    """
    from .reading import read_resource

    target, rest = _split_target(ctx, words, headers, cafile)
    if not rest:
        raise click.UsageError("Missing URI: 'trio-mcp resources TARGET' lists them.", ctx)
    _no_more(ctx, rest[1:])
    request = RequestOptions(**options)
    if output is not None and request.as_json:
        raise click.UsageError("--json or --output, not both.", ctx)
    return _run(lambda interrupts: read_resource(interrupts, target, rest[0], output, request))


@click.command(cls=_TargetCommand)
@click.argument("words", metavar="TARGET NAME KEY=TYPED [KEY=VALUE]…", nargs=-1)
@_target_options
@click.option("--json", "as_json", is_flag=True, help="Print all of the answer, as JSON.")
@_VERBOSE
@click.pass_context
def complete(
    ctx: click.Context,
    words: tuple[str, ...],
    headers: dict[str, str],
    cafile: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Ask what an argument may be completed to.

    Each proposal is a line. NAME is that of a prompt, or a template of resources, with its braces.
    KEY=TYPED is the argument and how it begins; others that are known already may follow.

    \b
      trio-mcp complete shop.py recommend liked=D
      trio-mcp complete shop.py 'stock://{title}' title=
    """
    from . import completing

    target, rest = _split_target(ctx, words, headers, cafile)
    if len(rest) < 2:
        raise click.UsageError("Missing NAME or KEY=TYPED, which may be just KEY=.", ctx)
    return _run(
        lambda interrupts: completing.complete(
            interrupts, target, rest[0], rest[1:], as_json=as_json, verbose=verbose
        )
    )


# Changes ------------------------------------------------------------------------------------------


@click.command(cls=_TargetCommand)
@click.argument("words", metavar="TARGET [URI]…", nargs=-1)
@click.option("--tools", is_flag=True, help="Tell when the list of tools has changed.")
@click.option("--prompts", is_flag=True, help="Tell when the list of prompts has changed.")
@click.option("--resources", is_flag=True, help="Tell when the list of resources has changed.")
@_target_options
@click.option("--json", "as_json", is_flag=True, help="Print each change as JSON, on a line.")
@_VERBOSE
@click.pass_context
def listen(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    headers: dict[str, str],
    cafile: str | None,
    **options: Any,
) -> int:
    """Tell of changes as they come.

    Of lists, and of the resources with these URIs. Each is a line on standard output: "tools",
    "prompts" or "resources" for a list, "resource URI" for a resource. Without URI and options: all
    three lists. Ends when the server ends it, with exit status 0; or with Ctrl-C and 130; with 1 if
    the connection is lost.

    \b
      trio-mcp listen https://example.com/mcp --tools stock://Dune
    """
    from .listening import ListenRequest, listen_for_changes

    target, rest = _split_target(ctx, words, headers, cafile)
    request = ListenRequest(uris=rest, **options)
    return _run(lambda interrupts: listen_for_changes(interrupts, target, request))


# Cancellation, from outside -----------------------------------------------------------------------


@click.command(cls=_TargetCommand, short_help="See what a server does when it is cancelled.")
@click.argument("words", metavar="TARGET", nargs=-1)
@click.option(
    "--tool",
    "slow",
    type=NAMED_TOOL,
    multiple=True,
    metavar="NAME[=JSON]",
    help="A slow tool, and its arguments; it will be called often. Repeatable.",
)
@click.option(
    "--witness",
    type=NAMED_TOOL,
    metavar="NAME[=JSON]",
    help="A tool that returns how many runs of the slow ones are alive.",
)
@click.option(
    "--effect",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file that the slow tool changes while it runs, or at its end.",
)
@click.option(
    "--duration",
    metavar="PARAMETER",
    help="The slow tools' parameter that says how long they run, if its name does not say so.",
)
@click.option(
    "--revision",
    type=click.Choice(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]),
    metavar="REVISION",
    help="Speak this revision, not the newest that both speak.",
)
@click.option(
    "--only", multiple=True, metavar="CHECK", help="Do this check and no others. Repeatable."
)
@click.option(
    "--grace",
    type=float,
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    callback=above_zero,
    help="How long cancelled work may go on.",
)
@click.option(
    "--crowd",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    metavar="N",
    help="How many requests are cancelled at once.",
)
@click.option(
    "--pid",
    type=click.IntRange(1),
    metavar="PID",
    help="The process of a server with an address, if it is on this machine.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 also if something could not be told.")
@_target_options
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@_VERBOSE
@click.pass_context
def probe(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    headers: dict[str, str],
    cafile: str | None,
    **options: Any,
) -> int:
    """See from outside what a server does when it is cancelled.

    Starts slow tools, cancels them in each way that the transport and the revision have, and says
    what came of it: whether the work stopped or ran on, whether anything was answered, whether
    malformed and unknown cancels do harm, and whether the server recovers. TARGET may also be
    tcp://host:port, tls://host:port or unix:/path.

    Only tools that are named with --tool are called, or without it one that is annotated as
    read-only and takes how long it is to run. Whether work has stopped can be told with a --witness
    or an --effect; without, only if it shows itself. The exit status is 1 if a check failed.

    \b
      trio-mcp probe server.py --tool sleep --witness alive
      trio-mcp probe https://example.com/mcp --tool render='{"frames": 900}' --json
    """
    from .probing import ProbeRequest, parse_probe_target, probe_server

    target, rest = _split(ctx, words, headers, cafile, parse_probe_target)
    _no_more(ctx, rest)
    request = ProbeRequest(**options)
    return _run(lambda interrupts: probe_server(interrupts, target, request))


ASKING: Final = (tools, resources, prompts, call, read, prompt, complete, listen, probe)
"""The commands, in the order of their help."""
