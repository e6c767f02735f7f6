"""The official conformance suite, installed and run.

:func:`install` gets it from npm, in the versions that ``package.json`` names, into a folder that is
not this repository's. It needs a newer Node.js than many machines have, so npm gets that too.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from .outcomes import Outcome, read_outcomes
from .scenarios import REVISION

__all__ = ["Suite", "install"]

_PINS: Final = Path(__file__).parent / "package.json"
_ROOT: Final = Path(__file__).parents[2]
_SUITE: Final = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
_NODE: Final = "node_modules/node/bin/node"
_NPM: Final = ["npm", "--no-audit", "--no-fund", "--no-update-notifier", "--prefer-offline"]
_NPM_INSTALL: Final = [*_NPM, "install", "--ignore-scripts", "--no-package-lock"]
_NPM_GET_NODE: Final = [*_NPM, "rebuild", "node"]
"""The package has no Node.js in it: its script gets the one for this machine."""
_INSTALL_SECONDS: Final = 180
_RUN_SECONDS: Final = 120
_TAIL: Final = 2000
"""Characters of the suite's output that are shown when it has failed."""


def install(folder: Path) -> Suite:
    """Install the suite into ``folder``, which is made if it is not there.

    Raises ``FileNotFoundError`` if there is no ``node`` or no ``npm``, ``RuntimeError`` with what
    npm said if it fails, ``subprocess.TimeoutExpired`` if it takes longer than three minutes.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise FileNotFoundError(program)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(_PINS, folder)
    for command in (_NPM_INSTALL, _NPM_GET_NODE):
        npm = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
        if npm.returncode != 0:
            raise RuntimeError(f"npm failed with status {npm.returncode}:\n{npm.stderr[-_TAIL:]}")
    return Suite(folder)


@attrs.frozen
class Suite:
    """The installed suite. Its results go into folders that have to be empty."""

    folder: Path

    async def check_server(self, address: str, results: Path) -> list[Outcome]:
        """Run all of a server's scenarios, one after the other, for at most two minutes.

        Its exit status says nothing: it runs scenarios that nobody has to pass.
        """
        wanted = ("--url", address, "--requirements", REVISION)
        status, said = await self._run("server", *wanted, results=results)
        outcomes = read_outcomes(results)
        if not outcomes or status is None:
            outcomes.append(Outcome("the suite itself", trouble=said))
        return outcomes

    async def check_client(
        self, command: Sequence[str], scenario: str, results: Path, revision: str = REVISION
    ) -> Outcome:
        """Run one of a client's scenarios, for at most two minutes; ``command`` gets the address of
        a server."""
        driver = ("--command", shlex.join(command))
        wanted = ("--scenario", scenario, "--spec-version", revision)
        status, said = await self._run("client", *driver, *wanted, results=results)
        outcomes = read_outcomes(results)
        if len(outcomes) != 1:
            return Outcome(scenario, trouble=said or "it has left no results")
        (outcome,) = outcomes
        if status == 0:
            return outcome
        told = _client_errors(results)
        return attrs.evolve(outcome, trouble=told if told or outcome.failures else said)

    async def _run(self, *arguments: str, results: Path) -> tuple[int | None, str]:
        """The suite's status, ``None`` if it takes too long, and the end of what it said."""
        program = (str(self.folder / _NODE), str(self.folder / _SUITE))
        with trio.move_on_after(_RUN_SECONDS):
            done = await trio.run_process(
                [*program, *arguments, "-o", str(results)],
                cwd=_ROOT,
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                check=False,
            )
            return done.returncode, done.stdout.decode(errors="replace")[-_TAIL:]
        return None, f"it took longer than {_RUN_SECONDS} seconds"


def _client_errors(results: Path) -> str:
    said = [errors.read_text("utf-8", "replace") for errors in results.glob("*/stderr.txt")]
    return "".join(said)[-_TAIL:]
