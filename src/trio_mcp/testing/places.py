"""Where a task waits: the line of the handler's own source, and not of the libraries below it."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import attrs
import outcome
import trio

from ..handlers.functions import HandlerFunction

__all__ = ["Place", "entry_of", "place_now", "place_of", "place_of_code", "works_elsewhere"]


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
    frames = list(task.iter_await_frames())
    for installed_too in (False, True):
        for frame, line in reversed(frames):
            if _is_own(frame.f_code.co_filename, installed_too):
                return _place(frame.f_code, line)
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
    """Which thread or process a task waits for, in words; ``None`` if it does not."""
    frames = [frame for frame, _ in task.iter_await_frames()]
    if not any(map(_is_offload, frames)):
        return None
    place = place_of(task)
    if place is not None:
        return f"works in a thread or a process: {place}: {place.source}"
    for frame in frames:
        if frame.f_code is HandlerFunction.run.__code__:
            return f"is a plain def, which runs in a thread: {_written(frame.f_locals['self'])}"
    return "works in a thread or a process of the runtime's own"


def _written(handler: HandlerFunction) -> str:
    """Where a handler's function is written."""
    function: Any = handler.function
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    call = function if hasattr(function, "__code__") else type(function).__call__
    code = getattr(call, "__code__", None)
    return repr(function) if code is None else str(place_of_code(code))


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
_OFFLOADS = (
    os.path.join(_TRIO, "_threads.py"),
    os.path.join(_TRIO, "_subprocess.py"),
    os.path.join(_OURS, "runtime", "offload") + os.sep,
)


@functools.cache
def _is_own(file: str, installed_too: bool) -> bool:
    if file.startswith(_DEMO):
        return True
    if file.startswith((_TRIO, _OURS, _OUTCOME, "<frozen")):
        return False
    if file.startswith(_INSTALLED):
        return installed_too
    return not file.startswith(_STDLIB)


def _is_offload(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OFFLOADS)
