"""Where a task waits: the line of the handler's own source, and not of the libraries below it."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import sys
import sysconfig
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any

import attrs
import outcome
import trio

from ..handlers.functions import HandlerFunction

__all__ = [
    "Place",
    "entry_of",
    "place_now",
    "place_of",
    "place_of_code",
    "place_of_error",
    "works_elsewhere",
]


@attrs.frozen
class Place:
    """A line of source. ``line`` is counted from 1."""

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """The text of the line; empty where there is no source."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def shown_file(self) -> str:
        """Its path, relative if it is below the current directory."""
        here = os.getcwd() + os.sep
        return self.file.removeprefix(here)

    def __str__(self) -> str:
        return f"{self.shown_file}:{self.line}, in {self.function}"

    def describe(self) -> str:
        """The line with its neighbours, and a mark."""
        lines = [str(self)]
        for number in range(max(1, self.line - 2), self.line + 3):
            text = linecache.getline(self.file, number).rstrip()
            if text or number == self.line:
                mark = ">" if number == self.line else " "
                lines.append(f"{mark} {number:5}  {text}".rstrip())
        return "\n".join(lines)


def place_of(task: trio.lowlevel.Task) -> Place | None:
    """Where a task waits: its innermost frame outside of Trio, of Python's and of this library; if
    there is a choice, outside of what is installed. ``None`` if there is none."""
    return next(filter(None, (_innermost(task, too) for too in (False, True))), None)


def _innermost(task: trio.lowlevel.Task, installed_too: bool) -> Place | None:
    for frame, line in reversed(list(task.iter_await_frames())):
        if _is_own(frame.f_code.co_filename, installed_too):
            return _place(frame.f_code, line)
    return None


def _nearest(task: trio.lowlevel.Task) -> Place | None:
    """The same, if need be of the task that waits for this one: a library may open nurseries."""
    for installed_too in (False, True):
        at: trio.lowlevel.Task | None = task
        while at is not None:
            place = _innermost(at, installed_too)
            if place is not None:
                return place
            at = at.parent_nursery.parent_task if at.parent_nursery is not None else None
    return None


def place_now() -> Place | None:
    """The line that is run at this moment: the innermost one that would be a :func:`place_of`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_own(frame.f_code.co_filename, False):
        frame = frame.f_back
    return None if frame is None else _place(frame.f_code, frame.f_lineno)


def entry_of(task: trio.lowlevel.Task) -> Place | None:
    """Where a task is in the function that it began with, whoever wrote that."""
    for frame, line in task.iter_await_frames():
        return _place(frame.f_code, line)
    return None


def works_elsewhere(task: trio.lowlevel.Task) -> str | None:
    """Which thread, process or socket a task waits for, and what would be right, in words;
    ``None`` if it does not."""
    frames = [frame for frame, _ in task.iter_await_frames()]
    if any(map(_is_socket, frames)):  # first: its address is looked up in a thread
        return f"{_waits_for_socket(task)}. {_INSTEAD_OF_SOCKET}"
    if any(map(_is_offload, frames)):
        return f"{_offload(task, frames)}. {_INSTEAD_OF_OFFLOAD}"
    return None


def _offload(task: trio.lowlevel.Task, frames: list[FrameType]) -> str:
    place = _nearest(task)
    if place is not None:
        return f"works in a thread or a process: {place}: {place.source}"
    for frame in frames:
        if frame.f_code is HandlerFunction.run.__code__:
            return f"is a plain def, which runs in a thread: {_written(frame.f_locals['self'])}"
    return "works in a thread or a process of the runtime's own"


def _waits_for_socket(task: trio.lowlevel.Task) -> str:
    place = _nearest(task) or entry_of(task)
    return f"waits for a socket{f' at {place}: {place.source}' if place is not None else ''}"


def _written(handler: HandlerFunction) -> str:
    """Where a handler's function is written."""
    function: Any = handler.function
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    call = function if hasattr(function, "__code__") else type(function).__call__
    code = getattr(call, "__code__", None)
    return repr(function) if code is None else str(place_of_code(code))


def place_of_error(error: BaseException) -> Place | None:
    """The line that an exception came from: the innermost that is the handler's own, or else the
    one that has raised it; ``None`` for one that was never raised."""
    places = [_place(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    for installed_too in (False, True):
        for place in reversed(places):
            if _is_own(place.file, installed_too):
                return place
    return places[-1] if places else None


def place_of_code(code: CodeType, line: int | None = None) -> Place:
    """Where a function is, or a line of it."""
    return _place(code, code.co_firstlineno if line is None else line)


def _place(code: CodeType, line: int) -> Place:
    return Place(code.co_filename, line, code.co_qualname)


_TRIO = str(Path(trio.__file__).parent) + os.sep
_OURS = str(Path(__file__).parents[1]) + os.sep
_DEMO = os.path.join(_OURS, "demo") + os.sep
_OUTCOME = str(Path(outcome.__file__).parent) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = tuple({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib")})
_SITES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_SOCKET = os.path.join(_TRIO, "_socket.py")
_IO = os.path.join(_TRIO, "_core", "_io_")
_OFFLOADS = (
    os.path.join(_TRIO, "_threads.py"),
    os.path.join(_TRIO, "_subprocess.py"),
    os.path.join(_OURS, "runtime", "offload") + os.sep,
)

_INSTEAD_OF_OFFLOAD = (
    "No mock clock waits for that, and nothing can step through it: split off what blocks, and "
    "give the test something in its place that stays in the loop"
)
_INSTEAD_OF_SOCKET = (
    "No mock clock waits for it: give it trio.testing.memory_stream_pair(), or for httpx2 "
    "`httpx2.AsyncClient(transport=httpx2.MockTransport(fn))`"
)


@functools.cache
def _is_own(file: str, installed_too: bool) -> bool:
    if file.startswith(_DEMO):
        return True
    if file.startswith((_TRIO, _OURS, _OUTCOME, "<frozen")):
        return False
    if file.startswith(_INSTALLED) or any(folder in file for folder in _SITES):
        return installed_too
    return not file.startswith(_STDLIB)


def _is_offload(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OFFLOADS)


def _is_socket(frame: FrameType) -> bool:
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    if file == _SOCKET:
        return name == "getaddrinfo"
    return file.startswith(_IO) and name in ("wait_readable", "wait_writable")
