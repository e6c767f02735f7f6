"""Every example runs, from anywhere, without a complaint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.peers.checked import checked_process
from tests.peers.raw import request

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(
    path.name for path in EXAMPLES.glob("*.py") if 'if __name__ == "__main__"' in path.read_text()
)


NEEDS = {"tracing.py": "opentelemetry.sdk"}


def run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=folder,
    )


def test_there_are_examples() -> None:
    assert {"echo_client.py", "echo_server.py"} <= set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_example_runs(name: str, tmp_path: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    result = run(name, tmp_path)
    assert result.stderr == ""
    assert result.returncode == 0


def test_the_echo_client_hears_progress_and_stops_a_call(tmp_path: Path) -> None:
    lines = run("echo_client.py", tmp_path).stdout.splitlines()
    assert lines[0] == "ProgressUpdate(progress=0, total=3, message='ahoy')"
    assert "ahoy ahoy ahoy" in lines[3]
    assert lines[4] == "ProgressUpdate(progress=0, total=1000, message='ahoy')"
    assert lines[-1] == "stopped"


def test_the_asking_client_answers_and_gives_up(tmp_path: Path) -> None:
    lines = run("asking_client.py", tmp_path).stdout.splitlines()
    assert lines[2] == "Order 1: 'Dune', wrapping: paper."
    assert lines[-2:] == ["{'Dune': True}", "given up: True"]


def test_the_group_goes_on_without_a_server_and_stops_all_calls(tmp_path: Path) -> None:
    lines = run("group.py", tmp_path).stdout.splitlines()
    assert lines[0].startswith("WARNING 'files' of the group failed: ")
    assert [line.partition(" ")[0] for line in lines[1:4]] == ["shop:", "echo:", "files:"]
    names = ["shop.order_book", "shop.stock", "echo.echo"]
    assert lines[4:7] == [f"{names} but not of ['files']", "4", "ahoy ahoy"]
    assert lines[7] == "stopped: ['echo.echo', 'shop.order_book', 'shop.order_book']"
    assert lines[8] == "cause: the user pressed stop"
    assert lines[9:11] == ["tools/call order_book was cancelled: the user pressed stop"] * 2
    assert lines[-1] == "['shop', 'files', 'echo']"


def test_the_tracing_example_shows_one_trace_through_two_servers(tmp_path: Path) -> None:
    pytest.importorskip(NEEDS["tracing.py"])
    lines = run("tracing.py", tmp_path).stdout.splitlines()
    first, second = lines[: lines.index("internal brunch")], lines[lines.index("internal brunch") :]
    assert [(len(line) - len(line.lstrip())) // 2 for line in first] == [*range(6)]
    assert [line.partition(": cancelled by ")[2] for line in second] == [
        "",
        "caller",
        "notification",
        "caller",
        "notification",
        "",
    ]


async def test_the_resources_server_reads_all_kinds_of_them() -> None:
    async with checked_process([sys.executable, str(EXAMPLES / "resources_server.py")]) as peer:
        await peer.send(request("list", "resources/list"))
        listed = (await peer.answer("list"))["result"]["resources"]
        assert {"shop://hours", "stock://all", "examples:///echo_server.py"} <= {
            entry["uri"] for entry in listed
        }
        for uri, text in {
            "shop://hours": "9 to 17",
            "stock://all": '"Emma"',
            "stock://Dune?at_least=3": '"copies":3',
            "cover://Emma": "4 letters",
            "examples:///resources_server.py": "add_directory",
        }.items():
            await peer.send(request(uri, "resources/read", {"uri": uri}))
            (contents,) = (await peer.answer(uri, timeout=20))["result"]["contents"]
            assert text in contents["text"]
        for uri in ("stock://Emma?at_least=2", "examples:///../README.md"):
            await peer.send(request(uri, "resources/read", {"uri": uri}))
            assert (await peer.answer(uri))["error"]["data"] == {"uri": uri}
