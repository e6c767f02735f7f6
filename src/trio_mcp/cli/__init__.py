"""The command line: ``trio-mcp``, also ``python -m trio_mcp``.

This module is the commands' names, options and help. Each one's work is in a module of its own,
imported when it is needed: a server must start fast.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import attrs
import click

from ..runtime.errors import TrioMcpError
from .failure import FAILED, INTERRUPTED, USAGE, CommandError, complain
from .options import (
    HEADER,
    HOST_NAME,
    ORIGIN,
    PEM_FILE,
    PLACE,
    URL_PATH,
    above_zero,
    headers_of,
    network_options,
)

if TYPE_CHECKING:
    from ..demo.shop import Wire
    from .targets import Target

__all__ = ["main"]

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


def main() -> NoReturn:
    """Run the command line; exits."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a poor locale shall not be a traceback
    try:
        status = commands.main(prog_name="trio-mcp", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except TrioMcpError as error:
        complain(str(error))
        status = FAILED
    except click.Abort:  # what click makes of KeyboardInterrupt
        status = INTERRUPTED
    sys.exit(status)


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


def _split_target(
    ctx: click.Context, words: tuple[str, ...], headers: dict[str, str], cafile: str | None
) -> tuple[Target, tuple[str, ...]]:
    """What to connect to, and the words that are left."""
    from .targets import Address, Launch, parse_target

    target: Target
    command = ctx.meta.get(_COMMAND)
    if command is not None:
        if not command:
            raise click.UsageError("There is no command after '--'.", ctx)
        target = Launch(command)
    elif not words:
        raise click.UsageError("Missing TARGET: how to launch the server, or where it is.", ctx)
    else:
        target, words = parse_target(words[0]), words[1:]
    if isinstance(target, Address):
        return attrs.evolve(target, headers=headers, cafile=cafile), words
    for option, value in (("--header", headers), ("--cafile", cafile)):
        if value:
            raise click.UsageError(f"{option} is for addresses; this server is launched.", ctx)
    return target, words


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trio-mcp", message="%(package)s %(version)s")
def commands() -> None:
    """Serve, look at, and call Model Context Protocol servers.

    \b
      trio-mcp run server.py
      trio-mcp run server.py --http 8000
      trio-mcp tools server.py
      trio-mcp call server.py add a=1 b=2
      trio-mcp call http://127.0.0.1:8000/mcp add a=1 b=2
      trio-mcp demo
    """


@commands.command()
@click.argument("file", metavar="FILE.py[:NAME]")
@click.option("--stdio", is_flag=True, help="Serve standard input and output; the default.")
@click.option("--http", type=PLACE, metavar="[HOST:]PORT", help="Serve Streamable HTTP.")
@click.option("--websocket", type=PLACE, metavar="[HOST:]PORT", help="Serve WebSockets.")
@click.option(
    "--path",
    type=URL_PATH,
    metavar="PATH",
    default="/mcp",
    show_default=True,
    help="Path of the endpoint.",
)
@click.option(
    "--allow-host",
    "hosts",
    type=HOST_NAME,
    metavar="NAME",
    multiple=True,
    help="Answer requests to this host name, too; '*' for any. Repeatable.",
)
@click.option(
    "--allow-origin",
    "origins",
    type=ORIGIN,
    metavar="ORIGIN",
    multiple=True,
    help="Answer web pages of this origin, too; '*' for any. Repeatable.",
)
@click.option(
    "--certfile", type=PEM_FILE, metavar="FILE", help="Serve TLS with this certificate (PEM)."
)
@click.option(
    "--keyfile", type=PEM_FILE, metavar="FILE", help="Its private key, if not in the same file."
)
@click.option(
    "--carrier",
    type=click.Choice(["native", "hypercorn"]),
    default="native",
    show_default=True,
    help="What carries HTTP; hypercorn does HTTP/2, too, and needs trio-mcp[http2].",
)
@click.option("-v", "--verbose", is_flag=True, help="Log each request that fails or is cancelled.")
@click.pass_context
def run(ctx: click.Context, /, file: str, verbose: bool, **options: Any) -> int:
    """Serve the server that FILE.py defines, on standard input and output or over a network.

    The server is the trio_mcp.Server object called NAME, or the only one in the file. On standard
    output there is only the protocol: what the file or its tools print goes to standard error, as
    does the log. Over a network, what they print is left alone.

    HOST is 127.0.0.1 unless it is given; port 0 is a free one. --http and --websocket may be given
    both, with a port for each. The addresses are told on standard error. Requests to other host
    names than HOST and those of this machine's loopback, and requests of web pages from elsewhere,
    are refused unless they are allowed.

    Serving ends when standard input does (but not over a network), or with SIGINT or SIGTERM:
    running requests get a moment to finish, then they are cancelled and clean up. The exit status
    is 0. If a tool does not give way within the server's limits, the process says which one and
    exits with 1.

    \b
      trio-mcp run server.py
      trio-mcp run server.py --http 8000
      trio-mcp run server.py --http [::]:443 --allow-host mcp.example.com
                             --certfile chain.pem --keyfile key.pem
    """
    from .loading import ServerFile

    network = network_options(ctx, **options)
    parsed = ServerFile.parse(file)
    if parsed is None:
        raise CommandError(f"{file!r} is no FILE.py or FILE.py:NAME", USAGE)
    if network is None:
        from .running import run_server

        run_server(parsed, verbose=verbose)
    else:
        from .network import run_network_server

        run_network_server(parsed, network, verbose=verbose)
    return 0


@commands.command(cls=_TargetCommand)
@click.argument("words", metavar="TARGET", nargs=-1)
@_target_options
@click.option("--json", "as_json", is_flag=True, help="Print the full definitions, as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show what the server logs, too.")
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
    from .interrupts import run_interruptible
    from .listing import list_tools

    target, rest = _split_target(ctx, words, headers, cafile)
    if rest:
        raise click.UsageError(
            f"What is {rest[0]!r}? Put a command line in quotes, or after '--'.", ctx
        )
    return run_interruptible(
        lambda interrupts: list_tools(interrupts, target, as_json=as_json, verbose=verbose)
    )


def _seconds_option(name: str, help: str, default: str = "") -> Callable[[F], F]:
    return click.option(
        name,
        type=float,
        metavar="SECONDS",
        help=help,
        callback=above_zero,
        show_default=default or False,
    )


@commands.command(cls=_TargetCommand)
@click.argument("words", metavar="TARGET TOOL [KEY=VALUE]…", nargs=-1)
@_seconds_option("--timeout", "Give up after this much silence; progress is no silence.", "60")
@_seconds_option("--max-timeout", "Give up after this time in any case; inf for never.", "3600")
@_seconds_option("--cancel-after", "Cancel the call after this time, as Ctrl-C would.")
@_target_options
@click.option("--json", "as_json", is_flag=True, help="Print the whole result, as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show what the server logs, too.")
@click.pass_context
def call(
    ctx: click.Context,
    words: tuple[str, ...],
    timeout: float | None,
    max_timeout: float | None,
    cancel_after: float | None,
    headers: dict[str, str],
    cafile: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Call a tool; print its result.

    The result goes to standard output; how the call stands, to standard error. Ctrl-C cancels it:
    "cancelling" until the server has been told, then "stopped". A second Ctrl-C leaves at once.

    KEY=VALUE is an argument: text for a parameter that takes a string, else JSON as the tool's
    schema asks for. KEY:=JSON is JSON in any case.

    \b
      trio-mcp call shop.py order_book title=Dune
      trio-mcp call shop.py rebuild_index titles='["Dune", "Emma"]'
      trio-mcp call add a=1 b=2 -- node server.js
      trio-mcp call https://example.com/mcp add a=1 b=2

    \b
    Exit status:
      0    the tool's result
      1    the tool failed (its result says so), or the server did
      2    the command line makes no sense: no such file, tool or argument
      124  timed out
      130  cancelled, by Ctrl-C or --cancel-after; the tool gave no result
      143  ended by SIGTERM
    """
    from .calling import CallRequest, call_tool
    from .interrupts import run_interruptible

    target, rest = _split_target(ctx, words, headers, cafile)
    if not rest:
        raise click.UsageError("Missing TOOL: 'trio-mcp tools TARGET' lists them.", ctx)
    request = CallRequest(
        target=target,
        tool=rest[0],
        arguments=rest[1:],
        timeout=timeout,
        max_timeout=max_timeout,
        cancel_after=cancel_after,
        as_json=as_json,
        verbose=verbose,
    )
    return run_interruptible(lambda interrupts: call_tool(interrupts, request))


@commands.command(short_help="See each feature, then fifty calls at once.")
@click.option("--http", is_flag=True, help="Speak with the shop over HTTP.")
@click.option("--websocket", is_flag=True, help="Speak with the shop over a WebSocket.")
@click.pass_context
def demo(ctx: click.Context, http: bool, websocket: bool) -> int:
    """See each feature once, then fifty calls at once: done, cancelled, timed out, failed, and
    nothing left over.

    Launches a bookshop's showroom as a server process, over standard input and output unless an
    option says otherwise, and looks around: a line for each feature. Then it launches the bookshop,
    and calls its tools. In the end the shop is asked for an account of what has become of
    everything it was asked to do. The exit status is 0 only if all that came in the showroom was as
    it has to be, both sides agree, nothing is left over, and the server processes have ended in
    time, by themselves or, over a network, at SIGTERM.
    """
    from ..demo.visit import visit
    from .interrupts import run_interruptible

    if http and websocket:
        raise click.UsageError("--http or --websocket, not both.", ctx)
    over: Wire = "http" if http else "websocket" if websocket else "stdio"
    return run_interruptible(lambda interrupts: visit(interrupts, over))
