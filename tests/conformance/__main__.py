"""``python -m tests.conformance``: the official suite against our servers and our client.

One line a scenario; the texts of what fails below it. The exit status is 1 if anything fails, 2 if
the suite cannot be installed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click
import trio
from tests.peers.http_log import witnessed

from .outcomes import of_a_server, report
from .scenarios import CLIENT, EARLIER, EARLIER_CLIENT, REVISION
from .server import build
from .suite import Suite, install
from .witness import examine

__all__ = ["main"]

DRIVER: Final = (sys.executable, "-m", "tests.conformance.client")
CARRIERS: Final = ("native", "hypercorn")


@click.command()
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to install the suite, and to find it again; otherwise a temporary folder.",
)
@click.option(
    "--only",
    type=click.Choice(["server", "client", "earlier"]),
    help="Test one side only; earlier: a client, with the suite's servers of 2025-11-25.",
)
def main(folder: Path | None, only: str | None) -> None:
    """Run the conformance suite for revision 2026-07-28, and for clients also 2025-11-25."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        temporary = Path(name)
        try:
            suite = install(folder if folder is not None else temporary / "suite")
        except (FileNotFoundError, RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"conformance: the suite cannot be installed: {_why(error)}", file=sys.stderr)
            sys.exit(2)
        failed = trio.run(_run, suite, temporary / "results", only)
    print(f"{failed} scenarios failed" if failed else "all passed")
    sys.exit(1 if failed else 0)


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"it needs Node.js and npm, and {error} is not on PATH"
    return str(error)


async def _run(suite: Suite, results: Path, only: str | None) -> int:
    """Both sides for :data:`REVISION` and a client for :data:`EARLIER`, or one of the three.
    Returns how many scenarios have failed."""
    failed = 0
    if only in (None, "server"):
        for carrier in CARRIERS:
            failed += await _run_server(suite, carrier, results / carrier)
    if only in (None, "client"):
        failed += await _run_client(suite, results / "client")
    if only in (None, "earlier"):
        failed += await _run_client(suite, results / EARLIER, EARLIER)
    return failed


async def _run_server(suite: Suite, carrier: str, results: Path) -> int:
    async with _served(carrier) as port, witnessed(port) as log:
        found = await suite.check_server(log.address, results)
    return report(f"server, {carrier}", [*of_a_server(found), examine(log)])


async def _run_client(suite: Suite, results: Path, revision: str = REVISION) -> int:
    scenarios = CLIENT if revision == REVISION else EARLIER_CLIENT
    outcomes = [
        await suite.check_client(DRIVER, scenario, results / scenario, revision)
        for scenario in scenarios
    ]
    return report("client" if revision == REVISION else f"client, {revision}", outcomes)


@asynccontextmanager
async def _served(carrier: str) -> AsyncGenerator[int, None]:
    """The port of a new server with all fixtures."""
    server = build()
    async with trio.open_nursery() as nursery:
        if carrier == "native":
            port = await nursery.start(server.serve_http, "127.0.0.1", 0)
        else:
            from trio_mcp.transports.http.hypercorn import serve_hypercorn

            app = server.asgi()
            port = await nursery.start(serve_hypercorn, app, "127.0.0.1", 0, server.limits)
        yield port
        nursery.cancel_scope.cancel("the suite is done")


if __name__ == "__main__":
    main()
