"""Measure everything, and write it down: ``python -m benchmarks``."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click

from . import peers, running
from .contenders import NAMES
from .machine import look
from .plan import FULL, MEASURES, QUICK
from .report import summary, tables, targets, write
from .samples import Results

HERE = Path(__file__).resolve().parent


def _folder(whole: bool) -> Path:
    if whole:
        return HERE / "results" / time.strftime("%Y-%m-%d")
    return Path(tempfile.mkdtemp(prefix="benchmarks-"))


class _Several(click.ParamType[tuple[str, ...]]):
    """Some of several words, with commas between them, in the order of the whole."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = tuple(allowed)
        self.name = ",".join(self._allowed)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        words = [word.strip() for word in value.split(",")] if isinstance(value, str) else value
        assert isinstance(words, list | tuple)
        for word in words:
            if word not in self._allowed:
                self.fail(f"{word!r} is none of {', '.join(self._allowed)}", param, ctx)
        return tuple(word for word in self._allowed if word in words)


@click.command()
@click.option("--quick", is_flag=True, help="Less than a minute, to see that everything runs.")
@click.option(
    "--only",
    type=_Several(MEASURES),
    default=MEASURES,
    metavar="MEASURE,…",
    help="Some of: throughput, with latency; crowd, which is concurrency, cancellation and "
    "scaling; sequence; startup.",
)
@click.option(
    "--contenders",
    type=_Several(NAMES),
    metavar="NAME,…",
    help=f"Some of: {', '.join(NAMES)}.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    metavar="N",
    help="How often; 3 times, or once if quick.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Folder for the results; benchmarks/results/DATE, or a temporary one of a part.",
)
def main(
    quick: bool,
    only: tuple[str, ...],
    contenders: tuple[str, ...] | None,
    rounds: int | None,
    output: Path | None,
) -> None:
    """Measure trio-mcp side by side with other SDKs and with the raw limit.

    The whole run takes about ten minutes on two cores, after the peers have been installed. It
    writes the summary in benchmarks/README.md, too, unless an output folder is given. Needs wrk,
    node and npm.
    """
    plan = QUICK if quick else FULL
    plan = replace(plan, rounds=rounds or plan.rounds)
    if contenders is not None:
        plan = replace(plan, names=contenders)
    whole = not quick and only == MEASURES and contenders is None and output is None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # which ends the servers, too
    results = Results()
    try:
        if plan.wrk_seconds and "throughput" in only:
            peers.tool("wrk", "wrk")
        gathered = running.gather(plan, results)
        machine = look({one.name for one in gathered}, installed=plan.installed)
    except peers.Missing as missing:
        raise click.ClickException(str(missing)) from None
    for line in tables.machine_lines(machine):
        click.echo(line)
    running.run(plan, gathered, results, only)
    folder = output or _folder(whole)
    files = write(results, machine, plan, folder)
    if whole:
        summary.replace(HERE / "README.md", results, machine, plan.rounds, folder, files)
    click.echo("\n".join(targets.targets_table(results)))
    click.echo(f"written to {folder}")
    for failure in results.failures:
        click.echo(f"failed: {failure.measure}, {failure.contender}: {failure.words}", err=True)
    sys.exit(bool(results.failures))


if __name__ == "__main__":
    main()
