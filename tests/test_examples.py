"""Every example runs, from anywhere, without a complaint, and prints what it should.

In what is expected, ``…`` stands for any text.
"""

from __future__ import annotations

import re
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


NEEDS = {
    "offload.py": "trio_parallel",
    "pydantic_models.py": "pydantic",
    "tracing.py": "opentelemetry.sdk",
}

SERVERS = {"asking_server.py", "echo_server.py", "prompts_server.py", "resources_server.py"}

PRINTED = {
    "asking_client.py": """\
delivery: Where shall 'Dune' go? ['street', 'wrapping', 'day']
confirmation: Order 'Dune' to Harbour Street 1? ['sure']
Order 1: 'Dune', wrapping: paper.
Dune: Do you like 'Dune'? ['like']
Emma: Do you like 'Emma'? ['like']
{'Dune': True}
given up: True
""",
    "admission.py": """\
bakes for crowd 1
crowd 6 is refused, and may ask again in 1 s
the guest comes
crowd 5 is refused, and may ask again in 1 s
1 running, 4 queued
bakes for crowd 2
bakes for guest
bakes for crowd 3
bakes for crowd 4
completed
completed queued for 0.… s
completed queued for 0.… s
completed queued for …
completed queued for …
""",
    "authentication.py": """\
'Emma' for ada
bob may only read here.
AuthorizationRequired Unauthorized (code -31005); WWW-Authenticate: Bearer
['ada', 'bob']
""",
    "cancellation.py": """\
client: gave the tool up: True
server: tool stopped (notification)
client: gave the resource up: True
server: resource stopped (notification)
client: gave the prompt up: True
server: prompt stopped (notification)
client: gave the completion up: True
server: completion stopped (notification)
client: no longer asks 'Are you sure?'
client: gave the question up: True
client: gave the subscription up: True
tools/call tool CANCELLED clean
resources/read slow://resource CANCELLED clean
prompts/get prompt CANCELLED clean
completion/complete None CANCELLED clean
tools/call question COMPLETED
subscriptions/listen tools, 1 URI CANCELLED clean
left: ()
""",
    "echo_client.py": """\
ProgressUpdate(progress=0, total=3, message='ahoy')
ProgressUpdate(progress=1, total=3, message='ahoy')
ProgressUpdate(progress=2, total=3, message='ahoy')
[TextContent(text='ahoy ahoy ahoy'…
ProgressUpdate(progress=0, total=1000, message='ahoy')
…
stopped
""",
    "embedded.py": """\
journal: brew COMPLETED None
guest: tea {'seconds': 0.1}
app: closing, 2 connections open
journal: brew COMPLETED None
guest: tea {'seconds': 1.2}
journal: brew CANCELLED CancelCause(source=<CancelSource.SHUTDOWN: 'shutdown'>…
guest: no tea: Cancelled: the server is shutting down (code -31002)
app: closed, 0 connections open
""",
    "headers.py": """\
query Region
proxy: query to region us
SELECT 1 in us
proxy: query to region None
SELECT 2 in eu
""",
    "group.py": """\
WARNING 'files' of the group failed: …
shop: connected…
echo: connected…
…
cause: the user pressed stop
…""",
    "lists.py": """\
['feed_ant', 'feed_bee', 'feed_cat', 'feed_dog', 'feed_eel', 'feed_fox', 'feed_gnu']
['feed_ant', 'feed_bee', 'feed_cat'] fresh for 60 s
may be shared: True
['feed_eel', 'feed_fox', 'feed_gnu'] and that is all: True
-32602 …
""",
    "log_messages.py": """\
warning {'shelf': 2, 'missing': 1} shelves
notice done shelves
asked for notices: 120
asked for nothing: 120
sent: 2 and 0
""",
    "operating.py": """\
state: idle
state: ready
in flight: scan attic 0 working 0.… s
in flight: scan cellar 0 working 0.… s
in flight: scan vault 0 working 0.… s
archive: attic is free again
reader: Cancelled by the server's operator: there is no light (code -31003)
archive: cellar is free again
reader: cellar is scanned
archive: vault is free again
reader: Cancelled: the server is shutting down (code -31002)
drained in 0.… s: 1 finished, 1 cancelled, 0 abandoned
state: drained []
""",
    "paying.py": """\
payment 0: Pay for 'Dune' there. https://pay.example.com/orders/1
payment 1: Pay for 'Dune' there. https://pay.example.com/orders/1
Order 1: 'Dune' is yours.
Order 2 was dropped (decline).
""",
    "prompts.py": """\
recommend ['genre', 'count?'] - Ask for books to read next.
review ['title', 'genre?'] - Talk about a book that was read.
'the n': ['The Nine Tailors'] of 1
user: I have read 'The Nine Tailors'. What do you make of it?
assistant: Among crime it stands out, because
""",
    "pydantic_models.py": """\
['count', 'sku']
{'sku': 'B', 'count': 2}
argument 'lines[0].count': must be at least 1, got 0
""",
    "resources.py": """\
resource shop://hours - Opening hours
resource stock://all - All books, as JSON.
resource report://year - All sales of the year; takes a minute.
template stock://{title}{?at_least} - One book, if there are so many copies of it.
template cover://{title} - A book's cover.
shop://hours: text/plain, fresh for 0 s: 9 to 17, but not on Sundays
stock://Dune?at_least=2: application/json, fresh for 10 s: {"copies":3,"title":"Dune"}
cover://Emma: image/svg+xml, fresh for 0 s: <svg …4 letters…
stock://Ulysses: Resource not found (-32602)
gave the report up: True
""",
    "sampling_and_roots.py": """\
the model is asked: Say something about books. (at most 50 tokens)
parrot-1 on ['books']: They are old, and many.
the model was stopped
given up: True
""",
    "subscriptions.py": """\
agreed: ['stock://Dune']
left: stock://Dune is 3 copies
left: stock://Dune is 2 copies
left: resources came or went
subscriptions/listen resources, 1 URI CANCELLED after 2 changes
""",
    "offload.py": """\
TextContent(text='500500', annotations=None, meta=None)
server: 0 rows are left
server: write_rows CANCELLED clean-up clean thread write_rows.… interrupted … time(s) stopped
server: the command says started
server: command CANCELLED clean-up clean process sh SIGTERM SIGKILL exit status -9
server: compute CANCELLED clean-up clean worker sum_up_to SIGKILL stopped
""",
    "threads.py": """\
client: gave asks up
asks: cleaned up
server: asks CANCELLED clean-up clean
client: gave never_asks up
log: exchange …: the thread of never_asks did not stop within 0.2 s and is abandoned
log: threads: left behind: work 'never_asks' of exchange …, abandoned, … s old
server: never_asks CANCELLED clean-up abandoned
server: ['never_asks abandoned']
server: dropped a result … s late
server: []
""",
    "faulty_wires.py": """\
TextResourceContents(uri='shelf://7', text='7 books'…
sent: True made: ['Dune']
client -> POST resources/read #1 shelf://7
client <- end after 20 bytes of its body
client -> POST resources/read #2 shelf://7
client <- 200 result #2 …
client -> POST tools/call #3 order {"title": "Dune"}
client <- end after 20 bytes of its body
lost, sent: ['tools/call #1 order…', 'cancelled #1 …', 'tools/call #2 order…']
0 s, byte 321: Delay
30 s, byte …: Drop
60 s, byte …: Break
""",
    "race.py": """\
careful: … orders, all of up to 2 actions among them: clean
hasty: … orders, all of up to 2 actions among them: 1 problem

1. clean-up: the check is not true: def is_released() -> bool: (…race.py:…)
   order: cancel, as time moves on, 1 tick later
   the cancellation found it here:
   …race.py:…, in release
…
   >    …      await trio.sleep(0.1)  # a round trip
…
   sequenceDiagram
…
       Note over C: 1. cancel, as time moves on, 1 tick later
       C->>W: notifications/cancelled (race)
…
       H-->>E: trio.Cancelled (…race.py:…)
…
           Note over C,H: ✗ clean-up: the check is not true: …
       end
problems: [('clean-up', 'cancel, as time moves on, 1 tick later')]
the runtime: ()
""",
    "sweep.py": """\
careful: cancelled at 4 checkpoints in 20 runs: clean

Late outcomes, which are dropped: at checkpoint 2
problems: []
careless: cancelled at 3 checkpoints in 13 runs: 1 problem

1. clean-up skipped, when cancelled at checkpoint 1
   …sweep.py:…, in careless
        …      \"\"\"The same, as it is written when nobody thinks of cancellation.\"\"\"
        …      holds.add(title)
   >    …      await trio.sleep(1)  # pays
        …      holds.discard(title)
        …      return f"Ordered {title!r}."
   the check is not true: report = cancel_sweep(…sweep.py:…)
problems: [('clean-up skipped', 1)]
""",
    "tools.py": """\
18.00 EUR [18.0, 'EUR']
2 problems:
- argument 'amount': must be greater than 0, got 0
- argument 'to': must match the pattern '^[A-Z]{3}$', got "eur" UNSET
[]
""",
    "tracing.py": "internal breakfast\n…internal brunch\n…",
    "upstream.py": """\
upstream: asked
upstream: the other side hung up
server: CANCELLED
""",
}

IN_ANY_ORDER = {"asking_client.py", "cancellation.py", "embedded.py", "operating.py", "threads.py"}
"""Several tasks print; which of them comes first is not said."""


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


def matches(expected: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in expected.split("…"))
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


def match_in_any_order(expected: str, printed: str) -> bool:
    """Whether each line is printed that is expected, and no other."""
    left = printed.splitlines()
    for line in expected.splitlines():
        found = next((said for said in left if matches(line, said.rstrip())), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def test_every_example_is_a_server_or_has_an_expected_output() -> None:
    assert set(PROGRAMS) == SERVERS | PRINTED.keys()


@pytest.mark.parametrize("name", PROGRAMS)
def test_example_prints_what_it_should(name: str, tmp_path: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    result = run(name, tmp_path)
    assert result.stderr == ""
    assert result.returncode == 0
    agree = match_in_any_order if name in IN_ANY_ORDER else matches
    assert agree(PRINTED.get(name, ""), result.stdout), result.stdout


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
