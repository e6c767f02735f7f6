"""One order as a sequence diagram, in the language of Mermaid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from .breach import Breach
from .traces import PROBE, Event, Trace, is_answer

__all__ = ["diagram_of"]

_HEAD: Final = """\
sequenceDiagram
    participant C as Client
    participant W as Connection
    participant E as Exchange
    participant H as Handler"""
_MARK: Final = "rect rgb(255, 214, 214)"
_WIDE: Final = 100
"""Characters of a note, without the line that it names."""
_CODES: Final = str.maketrans({"#": "#35;", ";": "#59;"})
_NAMES: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def diagram_of(trace: Trace, breaches: Iterable[Breach]) -> str:
    """The text of a ``sequenceDiagram``. What breaks a rule stands in a red box, with a note."""
    marks: dict[int, list[Breach]] = {}
    rest: list[Breach] = []
    for breach in breaches:
        if breach.at is None:
            rest.append(breach)
        else:
            marks.setdefault(breach.at, []).append(breach)
    lines = [_HEAD, *_body(trace, marks)]
    if rest:
        lines += ["    " + line for line in _marked([], rest)]
    return "\n".join(lines) + "\n"


def _body(trace: Trace, marks: Mapping[int, list[Breach]]) -> Iterator[str]:
    now = trace[0].at if trace else 0.0
    for index, event in enumerate(trace):
        if event.at > now:
            yield f"    Note over C,H: {event.at - now:.9g} s pass"
            now = event.at
        lines = list(_lines(event))
        if index in marks:
            lines = _marked(lines, marks[index])
        for line in lines:
            yield "    " + line


def _marked(lines: list[str], breaches: Iterable[Breach]) -> list[str]:
    notes = [f"Note over C,H: ✗ {_safe(one.kind)}: {_safe(_short(one.note))}" for one in breaches]
    return [_MARK, *("    " + line for line in [*lines, *notes]), "end"]


def _lines(event: Event) -> Iterator[str]:
    text = _safe(event.text)
    if event.what == "action":
        yield f"Note over C: {text}"
    elif event.what == "read":
        yield f"C->>W: {_read(event.message)}"
    elif event.what == "eof":
        yield "C-xW: closes"
    elif event.what == "opened":
        yield "W->>E: begins"
    elif event.what == "began":
        yield "E->>H: runs"
    elif event.what == "reported":
        yield "H-->>E: progress"
    elif event.what == "outcome":
        yield f"H-->>E: {_outcome(event)}"
    elif event.what == "state" and event.states is not None:
        cause = f" ({event.cause.source.value})" if event.cause is not None else ""
        yield f"Note over E: {event.states[0].value} → {event.states[1].value}{cause}"
    elif event.what == "written":
        yield f"W-->>C: {_written(event.message)}"
    elif event.what == "late":
        yield f"E--xW: late {text}, dropped"
    elif event.what == "recorded":
        yield f"Note over E: in the journal as {text}"
    elif event.what == "closed":
        yield "Note over W: has ended"


def _outcome(event: Event) -> str:
    place = event.place
    where = f" ({place.shown_file}:{place.line})" if place is not None else ""
    if event.text == "cancelled":
        return _safe(f"trio.Cancelled{where}")
    return _safe(f"{event.text}, though trio.Cancelled{where}" if where else event.text)


def _read(message: Any) -> str:
    method, params = message["method"], message.get("params") or {}
    what = params.get(_NAMES.get(method, ""), params.get("reason"))
    return _safe(f"{method} ({what})" if what else method)


def _written(message: Any) -> str:
    whose = "the second request: " if message.get("id") == PROBE else ""
    if message.get("method") == "notifications/progress":
        return _safe(f"progress {message['params']['progress']:g}")
    if "method" in message:
        return _safe(message["method"])
    if "error" in message:
        error = message["error"]
        return _safe(f"{whose}error {error['code']}, {error['message']}")
    is_error = message["result"].get("isError") is True
    what = "result with isError" if is_error and is_answer(message) else "result"
    return _safe(whose + what)


def _short(note: str) -> str:
    """A note that a diagram has room for; the line at its end stays."""
    text, mark, line = note.rpartition(" (") if note.endswith(")") else (note, "", "")
    return note if len(text) <= _WIDE else f"{text[:_WIDE]}…{mark}{line}"


def _safe(text: str) -> str:
    """Without what Mermaid would read as the end of a line, or of a name."""
    clean = "".join(char if char.isprintable() else " " for char in text[:300])
    return clean.translate(_CODES)
