"""How the suite runs: in several processes if it is run as a whole, in one if you choose tests.

Most tests wait for processes, for sockets or for time to pass, and none needs another, so that
they run next to each other (``-n 0`` has them all in one process, one after the other, ``-n 4`` in
four). The servers of others that npm installs are installed once: tests that need them are one
``xdist_group``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile

import pytest
from tests.peers import reference_servers, typescript
from tests.peers.reference_servers import ReferenceServers
from tests.peers.typescript import TypeScriptSdk

_MOST_PROCESSES = 8  # each of them collects all tests
_compiled: str | None = None


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores, since the tests wait half of the time; none for a choice."""
    options = config.option
    if options.file_or_dir or options.keyword or options.markexpr or options.collectonly:
        return 0
    return min((os.cpu_count() or 1) + 1, _MOST_PROCESSES)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raises ``pytest.UsageError`` for a name with an address: it is another in each process."""
    for item in items:
        if {"servers", "sdk"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("npm"))
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"give the parameters of this test other ids: {item.nodeid}")


def pytest_configure() -> None:
    """Let the processes that the tests start find the project compiled.

    They are a thousand, and compiling takes as long as all else until they have started. Where
    Python may write nothing next to the sources, it is kept in a folder of its own meanwhile.
    """
    global _compiled
    if sys.dont_write_bytecode and "PYTHONPYCACHEPREFIX" not in os.environ:
        _compiled = tempfile.mkdtemp(prefix="trio-mcp-compiled-")
        os.environ["PYTHONPYCACHEPREFIX"] = _compiled
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_unconfigure() -> None:
    if _compiled is not None:
        shutil.rmtree(_compiled, ignore_errors=True)


# Servers of others -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> ReferenceServers:
    """The reference servers, installed for this session, outside of the repository."""
    _need_node("the reference servers")
    return reference_servers.install(tmp_path_factory.mktemp("npm-servers"))


@pytest.fixture(scope="session")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> TypeScriptSdk:
    """The TypeScript SDK, installed for this session, outside of the repository."""
    _need_node("the TypeScript SDK")
    return typescript.install(tmp_path_factory.mktemp("typescript"))


def _need_node(who: str) -> None:
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{who} need(s) {' and '.join(missing)}, not found on PATH")
