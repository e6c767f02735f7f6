"""A PostgreSQL server for tests: a cluster of its own, on a Unix socket, gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["postgres", "programs"]


def programs() -> Path | None:
    """Where its programs are, which Debian keeps out of ``PATH``; ``None`` without any."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in installed), default=None)


@contextmanager
def postgres() -> Iterator[str]:
    """A running server; what ``psycopg.connect`` needs to reach it.

    It refuses to run as root, so there it runs as the user of Debian's package.
    """
    programs_at = programs()
    assert programs_at is not None
    user = "postgres" if os.getuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        if user is not None:
            shutil.chown(folder, user)

        def run(program: str, *args: str) -> None:
            subprocess.run(
                [programs_at / program, "-D", f"{folder}/data", *args],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                user=user,
                cwd=folder,
            )

        run("initdb", "--auth=trust", "--no-sync", "--username=postgres")
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        run("pg_ctl", "--wait", "--log", f"{folder}/log", "-o", options, "start")
        try:
            yield f"host={folder} user=postgres dbname=postgres"
        finally:
            run("pg_ctl", "--wait", "--mode", "immediate", "stop")
