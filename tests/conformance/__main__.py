"""``python -m tests.conformance``: the official suite against our servers and our client.

One line a scenario; the texts of what fails below it. The exit status is 1 if anything fails, 2 if
the suite cannot be installed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click
import trio

from .scenarios import CLIENT, EXTENSIONS, REVISION, SERVER
from .server import build
from .suite import Outcome, Suite, install

__all__ = ["main"]

DRIVER: Final = (sys.executable, "-m", "tests.conformance.client")
CARRIERS: Final = ("native", "hypercorn")


@click.command()
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to install the suite, and to find it again; otherwise a temporary folder.",
)
def main(folder: Path | None) -> None:
    """Run the conformance suite for revision 2026-07-28."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        temporary = Path(name)
        try:
            suite = install(folder if folder is not None else temporary / "suite")
        except (FileNotFoundError, RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"conformance: the suite cannot be installed: {_why(error)}", file=sys.stderr)
            sys.exit(2)
        failed = trio.run(_run_all, suite, temporary / "results")
    sys.exit(1 if failed else 0)


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"it needs Node.js and npm, and {error} is not on PATH"
    return str(error)


async def _run_all(suite: Suite, results: Path) -> int:
    """Everything, for :data:`REVISION`. Returns how many scenarios have failed."""
    failed = 0
    for carrier in CARRIERS:
        async with _served(carrier) as address:
            found = await suite.check_server(address, results / carrier)
        failed += _tell(f"server, {carrier}", _wanted(found))
    outcomes = []
    for scenario in CLIENT:
        outcomes.append(await suite.check_client(DRIVER, scenario, results / "client" / scenario))
    failed += _tell("client", outcomes)
    print(f"{failed} scenarios of revision {REVISION} failed" if failed else "all passed")
    return failed


@asynccontextmanager
async def _served(carrier: str) -> AsyncGenerator[str, None]:
    """The address of a new server with all fixtures."""
    server = build()
    async with trio.open_nursery() as nursery:
        if carrier == "native":
            port = await nursery.start(server.serve_http, "127.0.0.1", 0)
        else:
            from trio_mcp.transports.http.hypercorn import serve_hypercorn

            app = server.asgi()
            port = await nursery.start(serve_hypercorn, app, "127.0.0.1", 0, server.limits)
        yield f"http://127.0.0.1:{port}/mcp"
        nursery.cancel_scope.cancel("the suite is done")


def _wanted(outcomes: Mapping[str, Outcome]) -> list[Outcome]:
    """What a server has to pass; what was to run and did not counts as failed."""
    missing = [Outcome(name, trouble="it has not run") for name in SERVER if name not in outcomes]
    ran = [found for name, found in outcomes.items() if not name.startswith(EXTENSIONS)]
    order = {name: place for place, name in enumerate(SERVER)}
    return sorted([*ran, *missing], key=lambda found: order.get(found.scenario, len(order)))


def _tell(who: str, outcomes: Iterable[Outcome]) -> int:
    failed = 0
    print(f"== {who}")
    for outcome in outcomes:
        failed += not outcome.passed
        verdict = "passed" if outcome.passed else "FAILED"
        print(f"{verdict}  {outcome.scenario} ({len(outcome.checks)} checks)")
        for check in outcome.failures:
            why = check.error_message or check.description
            print(f"        {check.status}: {check.id} ({check.name}): {why}")
        if outcome.trouble:
            print("        " + outcome.trouble.strip().replace("\n", "\n        "))
    return failed


if __name__ == "__main__":
    main()
