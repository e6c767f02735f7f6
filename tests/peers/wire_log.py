"""A witness between a client and the server it launches: what each has said, line by line.

Run ``python tests/peers/wire_log.py LOG COMMAND …`` in the place of ``COMMAND …``; :func:`logged`
makes that command. Each line goes to the file ``LOG`` before it goes on, so a line that is in the
file after another one was also sent after it. :class:`WireLog` reads the file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import attrs
import trio

__all__ = ["Line", "WireLog", "logged"]


@attrs.frozen
class Line:
    """One message, and who sent it: ``"client"`` or ``"server"``."""

    sender: str
    text: str

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.text)
        return message


class WireLog:
    """What has been said so far."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[Line]:
        text = self.path.read_text("utf-8") if self.path.exists() else ""
        return [Line(*json.loads(line)) for line in text.splitlines()]

    def sent(self, method: str, tool: str | None = None) -> list[dict[str, Any]]:
        """What the client has sent with this method, of one tool or of all, in order."""
        messages = [line.message for line in self.lines() if line.sender == "client"]
        return [
            message
            for message in messages
            if message.get("method") == method
            and (tool is None or message.get("params", {}).get("name") == tool)
        ]

    def after_cancel(self, request_id: Any) -> list[dict[str, Any]]:
        """What the server has said after the client cancelled this request."""
        lines = self.lines()
        (at,) = [
            index
            for index, line in enumerate(lines)
            if line.sender == "client"
            and line.message.get("method") == "notifications/cancelled"
            and line.message["params"]["requestId"] == request_id
        ]
        return [line.message for line in lines[at:] if line.sender == "server"]


def logged(path: Path, command: Sequence[str]) -> list[str]:
    """The command that launches ``command`` behind a witness."""
    return [sys.executable, __file__, str(path), *command]


async def _relay(
    sender: str, source: trio.abc.ReceiveStream, target: trio.abc.SendStream, log: IO[str]
) -> None:
    rest = b""
    while data := await source.receive_some(65536):
        *lines, rest = (rest + bytes(data)).split(b"\n")
        for line in lines:
            log.write(json.dumps([sender, line.decode("utf-8", "backslashreplace")]) + "\n")
        log.flush()
        if lines:
            await target.send_all(b"\n".join(lines) + b"\n")
    if rest:
        log.write(json.dumps([sender, rest.decode("utf-8", "backslashreplace")]) + "\n")
        await target.send_all(rest)
    await target.aclose()


async def _relay_both(path: str, command: list[str]) -> int:
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    ours_in, ours_out = trio.lowlevel.FdStream(os.dup(0)), trio.lowlevel.FdStream(os.dup(1))
    with open(path, "a", encoding="utf-8") as log:  # noqa: ASYNC230
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_relay, "client", ours_in, process.stdin, log)
            await _relay("server", process.stdout, ours_out, log)
            nursery.cancel_scope.cancel("the server has ended")
    return await process.wait()


if __name__ == "__main__":
    sys.exit(trio.run(_relay_both, sys.argv[1], sys.argv[2:]))
