"""A stdio server that misbehaves in one chosen way, for tests of the client.

``python tests/peers/stubs/misbehaving.py BEHAVIOUR [ARGUMENT …]``: the behaviour is one of the
functions below. It speaks the protocol by hand and blocks wherever it reads or writes, and it
starts fast. But for what its behaviour says it answers discovery and the tools ``echo(text)`` and
``pid()``, and ends at the end of its stdin.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

META = {"io.modelcontextprotocol/serverInfo": {"name": "stub", "version": "1"}}
DISCOVERY = {
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "resultType": "complete",
    "_meta": META,
}

SESSION = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "stub", "version": "1"},
}


# Words --------------------------------------------------------------------------------------------


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def line_of(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def say(**message: Any) -> None:
    write(line_of(**message))


def result_of(text: str) -> Message:
    return {"content": [{"type": "text", "text": text}], "resultType": "complete", "_meta": META}


def answer(request_id: Any, text: str = "done") -> None:
    say(id=request_id, result=result_of(text))


def note(path: str, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text + "\n")


def received() -> Iterator[Message]:
    for line in sys.stdin.buffer:
        yield json.loads(line)


def usual(message: Message) -> bool:
    """Answer what every server answers; whether it was that."""
    if message.get("method") == "server/discover":
        say(id=message["id"], result=DISCOVERY)
    elif tool_of(message) == "echo":
        answer(message["id"], message["params"]["arguments"]["text"])
    elif tool_of(message) == "pid":
        answer(message["id"], str(os.getpid()))
    else:
        return False
    return True


def tool_of(message: Message) -> str | None:
    if message.get("method") != "tools/call":
        return None
    name: str = message["params"]["name"]
    return name


def unusual() -> Iterator[tuple[str, Message]]:
    """The calls that are to be answered in some strange way: name of the tool, message."""
    for message in received():
        if not usual(message):
            name = tool_of(message)
            if name is not None:
                yield name, message


# Servers that do not answer, or not in this protocol ----------------------------------------------


def fine() -> None:
    """Nothing is wrong with it."""
    for _ in unusual():
        pass


def swallow() -> None:
    """Other tools are never answered; standard error names them."""
    for name, message in unusual():
        print(f"swallowed {name} {message['id']}", file=sys.stderr, flush=True)


def silent() -> None:
    """Not even discovery is answered."""
    for _ in received():
        pass


def legacy(code: str) -> None:
    """All is answered with an error."""
    for message in received():
        if "id" in message:
            say(id=message["id"], error={"code": int(code), "message": "Bad request"})


def of_sessions(record: str, *plan: str) -> None:
    """It speaks an earlier revision only; ``record`` has a line for each start and each message.

    Words of the plan, one for each start, the last one for all that follow: at discovery it
    ``exits``, or ``prints`` and exits; it ``ignores`` it; it ``waits``, or ``refuses``, and exits
    at ``initialize``; or it is ``silent`` at all.
    """
    note(record, "started")
    with open(record, encoding="utf-8") as file:
        start = file.read().count("started")
    word = plan[min(start, len(plan)) - 1]
    for message in received():
        method = message["method"]
        note(record, method)
        if method == "server/discover":
            if word == "prints":
                write(b"never heard of that\n")
            if word in ("exits", "prints"):
                sys.exit(f"expected initialize, not {method}")
            if word == "refuses":
                say(id=message["id"], error={"code": -32601, "message": "Method not found"})
        elif method == "initialize":
            if word in ("waits", "refuses"):
                sys.exit("no session today")
            if word != "silent":
                say(id=message["id"], result=SESSION)
        else:
            usual(message)


def other_version() -> None:
    """It speaks another revision only, and says so."""
    for message in received():
        data = {"supported": ["2099-01-01"], "requested": "2026-07-28"}
        error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
        say(id=message["id"], error=error)


def exits(status: str) -> None:
    """At once, with last words."""
    print("cannot open the shop:\nno key", file=sys.stderr)
    sys.exit(int(status))


# Servers that write strange things ----------------------------------------------------------------


def oddly() -> None:
    """Each of these tools does what its name says, and is answered properly in the end."""
    late: Message = {}
    for message in received():
        if usual(message):
            continue
        if message.get("method") == "notifications/cancelled" and late:
            answer(late["id"], "late")
            continue
        name, request_id = tool_of(message), message.get("id")
        if name == "late":
            late = message
            continue
        if name == "twice":
            answer(request_id)
        if name == "strangers":
            for stranger in (10**6, 0, -1, "", str(request_id)):
                answer(stranger)
        if name == "id_null":
            say(id=None, error={"code": -32700, "message": "Parse error"})
            say(error={"code": -32600, "message": "No id at all"})
        if name == "result_without_id":
            say(id=None, result=result_of("whose?"))
            say(result=result_of("whose?"))
        if name == "requests":
            say(id=1, method="sampling/createMessage", params={})
            say(id=request_id, method="roots/list")
        if name == "notifications":
            say(method="notifications/unheard", params={"a": 1})
            say(method="notifications/progress", params={"progressToken": "x", "progress": 1})
            say(method="notifications/progress", params={"progressToken": request_id})
            say(method="notifications/cancelled", params={"requestId": request_id})
            say(method="notifications/progress")
        if name == "prints":
            write(b"Listening on port 3000\n\n\xff\xfe\n[1, 2]\nnull\n")
        if name == "pretty":
            reply = {"jsonrpc": "2.0", "id": request_id, "result": DISCOVERY}
            write(json.dumps(reply, indent=2).encode() + b"\n")
        if name == "framed":
            body = json.dumps({"jsonrpc": "2.0", "id": 10**6, "result": {}}).encode()
            write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            write(b"\n")
        answer(request_id)


def pretty() -> None:
    """All messages, over several lines each."""
    for message in received():
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": DISCOVERY}
        write(json.dumps(reply, indent=2).encode() + b"\n")


def framed() -> None:
    """All messages, with the headers of another protocol."""
    for message in received():
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": DISCOVERY}).encode()
        write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def flood() -> None:
    """Megabytes before the answer: of lines, of notifications, or of one line."""
    for name, message in unusual():
        if name == "lines":
            for _ in range(64):
                write(b"starting up ...\n" * 4096)
        if name == "line":
            for _ in range(64):
                write(b"x" * 1024 * 1024)
            write(b"\n")
        if name == "progress":
            params = {"progressToken": message["id"], "progress": 1, "message": "x" * 1000}
            line = json.dumps(
                {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            )
            for _ in range(100):
                write((line.encode() + b"\n") * 100)
        answer(message["id"])


def floods() -> None:
    """From the first call on it says the same for ever, reads nothing, and never answers."""
    for _, message in unusual():
        params = {"progressToken": message["id"], "progress": 1, "message": "x" * 100}
        line = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        while True:
            write(b"no message\n" + (line.encode() + b"\n") * 100)


def big() -> None:
    """An answer of ``bytes`` bytes."""
    for _, message in unusual():
        answer(message["id"], "x" * message["params"]["arguments"]["bytes"])


def chatter(size: str) -> None:
    """So many bytes to standard error before each answer."""
    for _, message in unusual():
        sys.stderr.write("x" * (int(size) - 10) + "last words")
        sys.stderr.flush()
        answer(message["id"])


# Servers with one fault of many -------------------------------------------------------------------


class Faulty:
    """Tools named after faults, which do what their names say; see ``tests/peers/faulty.py``.

    ``hold()`` is answered once ``release()`` is called, and so is what is left to say of the faults
    that take their time. The text of ``release()`` are the tools whose calls have been cancelled.
    """

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.held: list[Any] = []
        self.told: list[str] = []
        self.writing = threading.Lock()
        self.released = threading.Event()
        self.slow_one: threading.Thread | None = None

    def serve(self) -> None:
        for message in received():
            name = tool_of(message)
            if message.get("method") == "notifications/cancelled":
                self.cancelled(message["params"]["requestId"])
            elif name == "hold":
                self.held.append(message["id"])
            elif name == "release":
                self.release(message["id"])
            elif name is not None:
                self.names[message["id"]] = name
                getattr(self, name.replace(" ", "_"))(message["id"])
                print(f"done: {name}", file=sys.stderr, flush=True)
            else:
                usual(message)
        os._exit(0)  # whatever its threads do

    def cancelled(self, request_id: Any) -> None:
        self.told.append(self.names[request_id])
        if self.names[request_id] == "answers late":
            answer(request_id, "late")

    def release(self, request_id: Any) -> None:
        self.released.set()
        if self.slow_one is not None:
            self.slow_one.join()
        if "half an answer" in self.names.values():
            write(b"\n")
        with self.writing:
            for held in self.held:
                answer(held, "held")
            answer(request_id, json.dumps(self.told))

    def silent(self, request_id: Any) -> None:
        pass

    answers_late = silent

    def slow(self, request_id: Any) -> None:
        self.slow_one = threading.Thread(target=self.trickle, args=[request_id], daemon=True)
        self.slow_one.start()

    def trickle(self, request_id: Any) -> None:
        line = line_of(id=request_id, result=result_of("x" * 1000))
        while line and not self.released.wait(0.02):
            write(line[:1])
            line = line[1:]
        write(line)

    def killed(self, request_id: Any) -> None:
        print("done: killed", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def half_an_answer(self, request_id: Any) -> None:
        write(line_of(id=request_id, result=result_of("half"))[:60])

    def closes(self, request_id: Any) -> None:
        os._exit(0)

    def floods(self, request_id: Any) -> None:
        threading.Thread(target=self.flood, daemon=True).start()

    def flood(self) -> None:
        noise = line_of(method="notifications/unheard", params={"x": "x" * 1000}) + b"no message\n"
        while True:
            with self.writing:
                write(noise * 20)
            time.sleep(0.0001)  # others may write too

    def answers_twice(self, request_id: Any) -> None:
        answer(request_id, "first")
        answer(request_id, "second")

    def wrong_id(self, request_id: Any) -> None:
        answer(request_id + 10**6)

    def garbage(self, request_id: Any) -> None:
        write(b"no message\n")


def faulty() -> None:
    """Each of its tools has the fault it is named after."""
    Faulty().serve()


# Servers that do not read -------------------------------------------------------------------------


def deaf(go_on: str, record: str) -> None:
    """After discovery it reads nothing, until the file ``go_on`` exists; then it records it all."""
    lines = sys.stdin.buffer
    usual(json.loads(lines.readline()))
    while not os.path.exists(go_on):
        time.sleep(0.005)
    for line in lines:
        note(record, line.decode().rstrip("\n"))
        usual(json.loads(line))


def hangs_up_stdin() -> None:
    """Having read the first request it closes its stdin, answers, and lives on."""
    message = json.loads(sys.stdin.buffer.readline())
    os.close(0)
    usual(message)
    while True:
        time.sleep(60)


def hangs_up_stdout() -> None:
    """After discovery it closes its stdout, and lives on."""
    usual(json.loads(sys.stdin.buffer.readline()))
    os.close(1)
    while True:
        time.sleep(60)


# Servers that die, or do not ----------------------------------------------------------------------


def drops(record: str) -> None:
    """The tool's work is done and noted, and then the process dies before it answers."""
    for _, message in unusual():
        note(record, f"committed {message['params']['arguments']}")
        os._exit(7)


def orphans(pids: str) -> None:
    """A child of it holds its stdout and stderr; it dies from SIGKILL at the first call."""
    child = subprocess.Popen(["sleep", "1000"])
    note(pids, str(child.pid))
    for _ in unusual():
        os.kill(os.getpid(), signal.SIGKILL)


def stubborn(pids: str) -> None:
    """It ignores SIGTERM, SIGINT and the end of its stdin, and so does a child of it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "1000"])
    note(pids, f"{os.getpid()}\n{child.pid}")
    for _ in unusual():
        pass
    while True:
        time.sleep(60)


def planned(record: str, *plan: str) -> None:
    """The n-th start of it does the n-th word of the plan, or the last one; ``record`` counts.

    It says which start it is in its instructions, agrees to all subscriptions, and has the tools
    ``exit(status)``, ``kill()``, ``change()``, which tells of changed tools, and ``count()``, which
    is noted and never answered.
    """
    note(record, "started")
    with open(record, encoding="utf-8") as file:
        start = file.read().count("started")
    word = plan[min(start, len(plan)) - 1]
    print(f"start {start}: {word}", file=sys.stderr, flush=True)
    if word == "exit":
        sys.exit(3)
    if word == "slow":
        time.sleep(0.5)
    listens: list[Any] = []
    for message in received():
        method, name = message.get("method"), tool_of(message)
        if method == "server/discover":
            if word == "crash":
                os.kill(os.getpid(), signal.SIGKILL)
            if word != "silent":
                say(id=message["id"], result={**DISCOVERY, "instructions": f"start {start}"})
        elif method == "subscriptions/listen":
            listens.append(message["id"])
            wanted = message["params"]["notifications"]
            meta = {"io.modelcontextprotocol/subscriptionId": message["id"]}
            params = {"notifications": wanted, "_meta": meta}
            say(method="notifications/subscriptions/acknowledged", params=params)
        elif name == "exit":
            os._exit(message["params"]["arguments"]["status"])
        elif name == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif name == "count":
            note(record, "counted")
        elif name == "change":
            for listen in listens:
                meta = {"io.modelcontextprotocol/subscriptionId": listen}
                say(method="notifications/tools/list_changed", params={"_meta": meta})
            answer(message["id"])
        else:
            usual(message)


def witness(record: str) -> None:
    """It notes the signals it gets, and the end of its stdin."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: note(record, signal.Signals(number).name))
    fine()
    note(record, "EOF")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
