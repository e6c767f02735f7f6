"""``trio-mcp run``: a server file, served on this process's standard input and output."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable

import click
import trio

from ..server import Server
from ..transports.framing import Frame
from ..transports.stdio import cancel_on_signal, divert_stdio, flush_stdio, stdio_wire
from ..transports.wire import Wire
from .failure import CommandError
from .last_resort import LastResort
from .loading import ServerFile, load_server

__all__ = ["configure_logging", "ignore_signals", "run_server"]


def run_server(file: ServerFile, *, verbose: bool) -> None:
    """Serve until standard input ends, or SIGINT or SIGTERM has been obeyed."""
    file.check()
    try:
        # Before anything of the user's runs: what it prints while it is imported would be on the
        # wire otherwise. For good: so would be what it prints while the interpreter exits.
        wire_in, wire_out = divert_stdio()
    except (RuntimeError, OSError) as error:
        raise CommandError(str(error)) from None
    server = load_server(file)
    configure_logging(verbose)
    try:
        trio.run(_serve, server, wire_in, wire_out)
        ignore_signals()
    finally:
        flush_stdio()


def ignore_signals() -> None:
    """All has been served: a signal that is repeated is like the first, also while the interpreter
    exits. Should that take too long, the last resort ends it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def configure_logging(verbose: bool) -> None:
    """To standard error. A server file that has configured logging itself has the last word."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    if verbose:
        logging.getLogger("trio_mcp").setLevel(logging.INFO)


async def _serve(server: Server, wire_in: int, wire_out: int) -> None:
    last_resort = LastResort(server, wire_in)
    scope = trio.CancelScope()

    def drain() -> None:
        last_resort.begin()
        scope.cancel("standard input has ended")

    wire = stdio_wire(wire_in, wire_out, server.limits.message_bytes, at_end=drain)
    os.close(wire_out)  # the wire has a copy: once that is closed, the peer sees the end
    with last_resort.watching():
        async with trio.open_nursery() as nursery:
            await nursery.start(cancel_on_signal, scope)
            if os.isatty(wire_in):
                click.echo(f"{server.name}: serving this terminal; Ctrl-C stops it", err=True)
            with scope:
                await server.serve_wire(_WatchedWire(wire, last_resort.begin))
            nursery.cancel_scope.cancel("the wire has ended")


class _WatchedWire:
    """A wire that tells when it has ended, on whichever side and for whatever reason."""

    def __init__(self, wire: Wire, on_end: Callable[[], None]) -> None:
        self.label = wire.label
        self.aclose = wire.aclose
        self._wire = wire
        self._on_end = on_end

    async def receive(self) -> list[Frame] | None:
        frames = None
        try:
            frames = await self._wire.receive()
            return frames
        finally:
            if frames is None:
                self._on_end()

    async def send(self, frames: list[bytes], moved: Callable[[], None]) -> None:
        sent = False
        try:
            await self._wire.send(frames, moved)
            sent = True
        finally:
            if not sent:
                self._on_end()
