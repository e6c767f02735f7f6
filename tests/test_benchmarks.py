"""``python -m benchmarks --quick`` runs, and leaves what it should. No speed is looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
README = ROOT / "benchmarks" / "README.md"
PICTURES = ("throughput", "latency", "memory", "cancellation", "scaling", "sequence")
CHANNELS = ("stdio", "tcp", "websocket")
WIRES = (*CHANNELS, "http-json", "http-sse", "memory")


def expected_series() -> set[tuple[str, str, str, int, str]]:
    """A number for each of these, at least."""
    found = set()
    for wire in WIRES:
        sizes = (1, 32) if wire != "http-sse" else (32,)
        for name in ("ours", "official", "bare"):
            if name != "official" or wire not in ("tcp", "websocket"):
                found |= {("throughput", wire, name, size, "calls_per_second") for size in sizes}
                found |= {("throughput", wire, name, size, "p99_ms") for size in sizes}
                found |= {("throughput", wire, name, size, "cpu_us") for size in sizes}
    found.add(("throughput", "http-json", "official-sse", 32, "calls_per_second"))
    for wire in ("stdio", "http-json"):
        for name in ("ours", "official", "bare"):
            found.add(("crowd", wire, name, 50, "memory_per_request_kib"))
            found.add(("crowd", wire, name, 50, "probe_p99_ms"))
            found.add(("sequence", wire, name, 100, "growth_mib"))
            found.add(("startup", wire, name, 0, "first_answer_s"))
        found.add(("crowd", wire, "ours", 50, "cancel_p99_ms"))
        found.add(("crowd", wire, "ours", 10, "storm_idle_s"))
        found.add(("crowd", wire, "ours", 50, "left_handlers"))
    found |= {("startup", "stdio", name, 0, "import_s") for name in ("ours", "official", "bare")}
    return found


def test_the_quick_run_measures_everything_and_writes_it_down(tmp_path: Path) -> None:
    before = README.read_bytes()
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--output", tmp_path],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    data = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    values = {tuple(key): values for *key, values in data["series"]}
    assert data["failures"] == []
    assert expected_series() - values.keys() == set()
    assert all(len(rounds) == 1 for rounds in values.values())
    assert values["crowd", "stdio", "ours", 50, "late_answers"] == [0]
    assert values["crowd", "stdio", "ours", 50, "left_handlers"] == [0]
    tables = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert "## Targets" in tables
    assert "TypeScript SDK has no server for TCP" not in tables  # it was not measured
    for name in PICTURES:
        picture = ElementTree.parse(tmp_path / f"{name}.svg").getroot()
        assert picture.tag.endswith("svg"), name
    assert README.read_bytes() == before
