"""The fixture server with limits of the test's choice.

Run it as ``python -m tests.peers.limited_server '{"drain": 0.2}'`` with the repository's root in
``PYTHONPATH``; :func:`limited` makes that command and its environment.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import trio

from trio_mcp import Limits

from .fixture_server import Fixtures

__all__ = ["ROOT", "environment", "limited"]

ROOT = Path(__file__).resolve().parents[2]


def limited(**limits: Any) -> list[str]:
    """The command that starts the server. Give it :func:`environment`."""
    return [sys.executable, "-m", "tests.peers.limited_server", json.dumps(limits)]


def environment(**more: str) -> dict[str, str]:
    """The tests' own environment, in which the server can be found, and ``more``.

    Python's output is buffered in it, as it is for users: what waits in a buffer is a case.
    """
    own = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    path = os.pathsep.join(filter(None, [str(ROOT), own.get("PYTHONPATH")]))
    return {**own, "PYTHONPATH": path, **more}


if __name__ == "__main__":
    trio.run(Fixtures(Limits(**json.loads(sys.argv[1]))).server.serve_stdio)
