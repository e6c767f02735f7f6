"""Measure everything, and write it down: ``python -m benchmarks``."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import click

from . import peers, running
from .contenders import NAMES
from .machine import look
from .plan import FULL, MEASURES, QUICK
from .report import print_machine, write
from .samples import Results

HERE = Path(__file__).resolve().parent


def _folder(quick: bool) -> Path:
    if quick:
        return Path(tempfile.mkdtemp(prefix="benchmarks-"))
    return HERE / "results" / time.strftime("%Y-%m-%d")


def _several(allowed: tuple[str, ...]) -> click.ParamType:
    class Several(click.ParamType):
        name = ",".join(allowed)

        def convert(
            self, value: object, param: click.Parameter | None, ctx: click.Context | None
        ) -> tuple[str, ...]:
            if isinstance(value, tuple):
                return value
            words = tuple(word.strip() for word in str(value).split(","))
            for word in words:
                if word not in allowed:
                    self.fail(f"{word!r} is none of {', '.join(allowed)}", param, ctx)
            return tuple(word for word in allowed if word in words)

    return Several()


@click.command()
@click.option("--quick", is_flag=True, help="Less than a minute, to see that everything runs.")
@click.option("--only", type=_several(MEASURES), default=MEASURES, help="Measures; all of them.")
@click.option("--contenders", type=_several(tuple(NAMES)), help="Who is measured; all of them.")
@click.option("--rounds", type=click.IntRange(min=1), help="How often; 3 times.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the results; benchmarks/results/DATE, or a temporary one with --quick.",
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
    writes its results, and the summary in benchmarks/README.md, unless it measures but a part, or
    an output folder is given. Needs wrk, node and npm.
    """
    plan = QUICK if quick else FULL
    plan = replace(plan, rounds=rounds or plan.rounds)
    if contenders is not None:
        plan = replace(plan, names=contenders)
    whole = not quick and only == MEASURES and contenders is None and output is None
    if plan.wrk_seconds and "throughput" in only:
        try:
            peers.tool("wrk", "wrk")
        except peers.Missing as missing:
            raise click.ClickException(str(missing)) from None
    results = Results()
    gathered = running.gather(plan, results)
    names = list(dict.fromkeys(one.name for one in gathered))
    machine = look(names, installed=plan.installed)
    print_machine(machine)
    running.run(plan, gathered, results, only)
    folder = write(results, machine, plan, output or _folder(quick), HERE if whole else None)
    click.echo(f"{folder}")
    for failure in results.failures:
        click.echo(f"failed: {failure.measure}, {failure.contender}: {failure.words}", err=True)
    sys.exit(bool(results.failures))


if __name__ == "__main__":
    main()
