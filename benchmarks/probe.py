"""What `trio-mcp probe` says of servers on this library, the official Python SDK, fastmcp and the
official TypeScript SDK: the tables of `docs/probe.md`.

    python -m benchmarks.probe [FOLDER]

At first it installs them, with pinned versions, into `benchmarks/.peers/` (see `peers.py`); it
needs `node` and `npm`. Each server has the same tools: one that waits, one that waits and reports
progress, and one that says how many of these run (`probed/`). All reports go to FOLDER as JSON.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .peers import ROOT, node_folder, node_versions, python, python_versions

PROBED = Path(__file__).resolve().parent / "probed"
OURS = ROOT / "tests" / "peers" / "probed_server.py"
NEW, OLD = "2026-07-28", "2025-11-25"

#: Seconds that a probe may take.
LIMIT = 600


class Run(NamedTuple):
    """A column of a table: a server, how it is launched and how it is asked."""

    server: str
    transport: str
    revision: str
    command: Sequence[str]

    @property
    def name(self) -> str:
        return f"{self.server} {self.transport} {self.revision}".replace(" ", "-")


def runs() -> Iterator[Run]:
    """All of them; installs what is missing."""
    ours = [sys.executable, str(OURS)]
    node = node_folder()
    shutil.copy(PROBED / "typescript.mjs", node)
    servers = {
        "Python SDK": [python("official"), str(PROBED / "official.py")],
        "fastmcp": [python("fastmcp"), str(PROBED / "fast.py")],
        "TypeScript SDK": ["node", str(node / "typescript.mjs")],
    }
    yield Run("trio-mcp", "stdio", NEW, ours)
    yield Run("trio-mcp", "http", NEW, [*ours, "--http"])
    for server, command in servers.items():
        older = ["--sessions"] if server == "TypeScript SDK" else []
        yield Run(server, "stdio", NEW, command)
        yield Run(server, "stdio", OLD, command)
        yield Run(server, "http", NEW, [*command, "--http"])
        yield Run(server, "http JSON", NEW, [*command, "--http", "--json"])
        yield Run(server, "http", OLD, [*command, "--http", *older])


def probe(run: Run) -> dict[str, Any]:
    """The report."""
    options = ["--json", "--revision", run.revision, "--witness", "alive"]
    options += ["--tool", "slow", "--tool", "stream"]
    if run.transport == "stdio":
        return _probe([*options, "--", *run.command])
    with _listening(run.command) as (port, pid):
        return _probe([f"http://127.0.0.1:{port}/mcp", *options, "--pid", str(pid)])


def _probe(words: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "trio_mcp", "probe", *words],
        stdout=subprocess.PIPE,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@contextmanager
def _listening(command: Sequence[str]) -> Iterator[tuple[int, int]]:
    """A server, by its port and its process."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()


# The tables ---------------------------------------------------------------------------------------


def table(title: str, reports: dict[str, dict[str, Any]]) -> str:
    """One line for each check, one column for each server."""
    names = list(dict.fromkeys(c["name"] for r in reports.values() for c in r["checks"]))
    lines = [f"| {title} | {' | '.join(reports)} |", "| --- |" + " --- |" * len(reports)]
    for name in names:
        cells = [cell([c for c in r["checks"] if c["name"] == name]) for r in reports.values()]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(checks: Sequence[dict[str, Any]]) -> str:
    """The worst of a check's verdicts, if it was done with several tools; what does not apply to
    one of them does not count."""
    verdicts = {check["verdict"] for check in checks}
    for verdict in ("fail", "unknown", "pass", "n/a"):
        if verdict in verdicts:
            return f"**{verdict}**" if verdict == "fail" else verdict
    return ""


def remarks(run: str, report: dict[str, Any]) -> Iterator[str]:
    """What was seen where a check has not passed."""
    for check in report["checks"]:
        if check["verdict"] in ("fail", "unknown"):
            tool = f" {check['tool']}" if check["tool"] else ""
            yield f"- {run}, `{check['name']}`{tool}: {check['seen']} ({check['evidence']})"


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    found: dict[str, dict[str, dict[str, Any]]] = {}
    notes: list[str] = []
    for run in runs():
        print(run.name, file=sys.stderr)
        report = probe(run)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{run.name}.json").write_text(json.dumps(report, indent=2))
        kind = "http" if run.transport.startswith("http") else run.transport
        column = run.server + (", JSON" if run.transport == "http JSON" else "")
        found.setdefault(f"{kind}, {run.revision}", {})[column] = report
        notes += remarks(f"{column}, {kind}, {run.revision}", report)
    for title, reports in found.items():
        print(table(title, reports), end="\n\n")
    print("\n".join(notes), end="\n\n")
    packages = python_versions(python("official"), "mcp", "anyio", "uvicorn", "starlette")
    for name, version in (packages | node_versions()).items():
        print(name, version)


if __name__ == "__main__":
    main()
