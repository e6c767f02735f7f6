"""A process full of listeners, to be killed: ``python -m tests.peers.crowd_process PORT COUNT``.

Each has a TCP connection of its own. Prints a line once all have been acknowledged.
"""

from __future__ import annotations

import socket
import sys
import time

from tests.peers.raw import lines, request


def main(port: int, count: int) -> None:
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["shop://a", "shop://b"]}
    for number, each in enumerate(sockets):
        params = {"notifications": wanted}
        each.sendall(lines(request(number, "subscriptions/listen", params)))
    for each in sockets:
        assert each.recv(65536).endswith(b"\n")
    print("listening", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
