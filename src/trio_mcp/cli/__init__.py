"""The command line: ``trio-mcp``, also ``python -m trio_mcp``.

This module and :mod:`.asking`, which has those with a TARGET, are the commands' names, options and
help. Each one's work is in a module of its own, imported when it is needed: a server must start
fast.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

import click

from ..runtime.errors import TrioMcpError
from .asking import ASKING
from .failure import FAILED, INTERRUPTED, UNREAD, USAGE, CommandError, complain
from .options import HOST_NAME, ORIGIN, PEM_FILE, PLACE, URL_PATH, network_options

if TYPE_CHECKING:
    from ..demo.shop import Wire

__all__ = ["main"]

_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What only writing meets."""


def main() -> NoReturn:
    """Run the command line; exits."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a poor locale shall not be a traceback
    try:
        status = _status()
    except BrokenPipeError:  # of standard error
        status = UNREAD
    _leave_quietly()
    sys.exit(status)


def _status() -> int:
    try:
        status: int = commands.main(prog_name="trio-mcp", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except TrioMcpError as error:
        complain(str(error))
        status = FAILED
    except click.Abort:  # what click makes of KeyboardInterrupt
        status = INTERRUPTED
    return status


def _leave_quietly() -> None:
    """All has been said: what comes while the interpreter exits shall be neither a traceback nor
    another exit status. Ctrl-C still ends what waits for a reader of the last lines."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None is one that was closed
        try:
            stream.flush()
        except OSError:  # nobody will have what is left in it
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Commands(click.Group):
    """Ends where its output cannot be written, without a traceback."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _writing():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _writing():
            return super().invoke(ctx)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise _Unread from None
        if error.errno not in _UNWRITABLE:
            raise
        why = os.strerror(error.errno)
        raise CommandError(f"cannot write the output: {why}") from None


class _Unread(click.ClickException):
    """Who read the output has left: ``| head``, for one. There is nobody to tell."""

    exit_code = UNREAD

    def __init__(self) -> None:
        super().__init__("nobody reads the output any more")

    def show(self, file: IO[Any] | None = None) -> None:
        """Nothing."""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trio-mcp", message="%(package)s %(version)s")
def commands() -> None:
    """Serve, look at, and call Model Context Protocol servers.

    \b
      trio-mcp run server.py
      trio-mcp run server.py --http 8000
      trio-mcp tools server.py
      trio-mcp call server.py add a=1 b=2
      trio-mcp call http://127.0.0.1:8000/mcp add a=1 b=2
      trio-mcp read server.py books://Dune
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


for command in ASKING:
    commands.add_command(command)
