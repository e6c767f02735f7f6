"""A server of both eras, without the newer one: ``python without_discovery.py COMMAND …``.

It launches the command and relays its standard streams line by line. ``server/discover`` it refuses
itself, as a server of an earlier revision does.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import IO

_LOCK = threading.Lock()


def _relay_back(stdout: IO[bytes]) -> None:
    for line in stdout:
        _write(line)


def _write(line: bytes) -> None:
    with _LOCK:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def main(command: list[str]) -> int:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        back = threading.Thread(target=_relay_back, args=[server.stdout])
        back.start()
        for line in sys.stdin.buffer:
            message = json.loads(line)
            if message.get("method") == "server/discover":
                error = {"code": -32601, "message": "Method not found"}
                answer = {"jsonrpc": "2.0", "id": message["id"], "error": error}
                _write(json.dumps(answer).encode() + b"\n")
            else:
                server.stdin.write(line)
                server.stdin.flush()
        server.stdin.close()
        back.join()
    return server.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
