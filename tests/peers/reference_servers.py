"""The reference servers of the protocol's authors, which are of earlier revisions.

:func:`install` gets them from the npm registry, in the versions that ``npm_servers/package.json``
names, into a folder that is not this repository's; and with them the TypeScript SDK 1.x, on which
they are written, for the server of ours in ``npm_servers``.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

__all__ = ["ReferenceServers", "install"]

_PARTS = Path(__file__).parent / "npm_servers"
_INSTALL = ["npm", "install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund"]
_INSTALL += ["--prefer-offline", "--no-update-notifier", "--fetch-timeout=30000"]
_INSTALL_SECONDS = 180
_STEP_SECONDS = 20


def install(folder: Path) -> ReferenceServers:
    """Raises ``FileNotFoundError`` if there is no ``node`` or no ``npm``, ``RuntimeError`` with
    what npm said if it fails, ``subprocess.TimeoutExpired`` if it takes longer than three
    minutes."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise FileNotFoundError(program)
    for part in _PARTS.iterdir():
        shutil.copy(part, folder)
    npm = subprocess.run(
        _INSTALL,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
        check=False,
    )
    if npm.returncode != 0:
        raise RuntimeError(f"npm install failed with status {npm.returncode}:\n{npm.stderr}")
    return ReferenceServers(folder)


@attrs.frozen
class ReferenceServers:
    """The installed servers."""

    folder: Path

    def command(self, name: str, *arguments: str) -> list[str]:
        """The command of a server over standard streams: ``everything``, ``filesystem`` or
        ``memory``."""
        script = self.folder / "node_modules" / "@modelcontextprotocol" / f"server-{name}"
        return ["node", str(script / "dist" / "index.js"), *arguments]

    @property
    def sdk_server(self) -> list[str]:
        """The command of our server on the TypeScript SDK 1.x; ``--http`` serves HTTP."""
        return ["node", str(self.folder / "server.mjs")]

    @asynccontextmanager
    async def everything(self) -> AsyncGenerator[str, None]:
        """The address of the ``everything`` server over HTTP."""
        port = _free_port()
        process = await trio.lowlevel.open_process(
            self.command("everything", "streamableHttp"),
            env={**os.environ, "PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with trio.fail_after(_STEP_SECONDS):
                while not await _listens(port):  # noqa: ASYNC110
                    await trio.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _listens(port: int) -> bool:
    try:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
    except OSError:
        return False
    await stream.aclose()
    return True
