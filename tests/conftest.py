"""What several files of tests share: servers of others, which npm installs once for all of them."""

from __future__ import annotations

import shutil

import pytest
from tests.peers import reference_servers, typescript
from tests.peers.reference_servers import ReferenceServers
from tests.peers.typescript import TypeScriptSdk


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
