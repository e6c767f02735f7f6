"""What a handler has left behind in the process: descriptors, async generators, open resources."""

from __future__ import annotations

import gc
import os
import sys
import warnings
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .places import place_of_code

__all__ = ["Leaks"]

_FOLDERS = ("/proc/self/fd", "/dev/fd")


class Leaks:
    """Watches one run. ``found`` says in words what was left, once :meth:`watching` is over.

    :param own: whether it is the handler that runs at this moment.
    """

    def __init__(self, own: Callable[[], bool]) -> None:
        self.found: list[str] = []
        self._own = own
        self._dropped: dict[str, str] = {}
        self._generators: list[weakref.ref[AsyncGenerator[Any, Any]]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around the handler, within the Trio run."""
        before = _descriptors()
        hooks = sys.get_asyncgen_hooks()

        def first(generator: AsyncGenerator[Any, Any]) -> None:
            if self._own():
                self._generators.append(weakref.ref(generator))
            if hooks.firstiter is not None:
                hooks.firstiter(generator)

        def last(generator: AsyncGenerator[Any, Any]) -> None:
            self._note_dropped(generator)
            if hooks.finalizer is not None:
                hooks.finalizer(generator)

        sys.set_asyncgen_hooks(firstiter=first, finalizer=last)
        try:
            with self._resource_warnings():
                yield
                gc.collect(1)
        finally:
            sys.set_asyncgen_hooks(*hooks)
        self._look_at_generators()
        for number, name in _descriptors().items() - before.items():
            what = name.partition(":[")[0]  # a socket's number is another one in each run
            self.found.append(f"file descriptor {number} is open: {what}")

    def _look_at_generators(self) -> None:
        for reference in self._generators:
            generator: Any = reference()
            if generator is not None and generator.ag_frame is not None:
                self.found.append(f"an async generator was not closed: {_where(generator)}")

    def _note_dropped(self, generator: Any) -> None:
        """Trio is about to warn of one that nobody holds any more, by its name alone."""
        if generator.ag_frame is not None:
            self._dropped[generator.__qualname__] = _where(generator)

    def _told(self, message: str) -> str:
        for name, where in self._dropped.items():
            if message.startswith("Async generator ") and f"{name}' was" in message:
                return f"{message} It was at {where}"
        return message

    @contextmanager
    def _resource_warnings(self) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", ResourceWarning)
            yield
        for one in told:
            if issubclass(one.category, ResourceWarning):
                self.found.append(self._told(str(one.message)))
            else:
                warnings.showwarning(one.message, one.category, one.filename, one.lineno)


def _where(generator: Any) -> str:
    place = place_of_code(generator.ag_code, generator.ag_frame.f_lineno)
    return f"{place}: {place.source}"


def _descriptors() -> dict[int, str]:
    """Those that are open, with what they lead to; none where the system does not list them."""
    folder = next((one for one in _FOLDERS if os.path.isdir(one)), None)
    found: dict[int, str] = {}
    for number in os.listdir(folder) if folder is not None else ():
        try:
            found[int(number)] = os.readlink(f"{folder}/{number}")
        except OSError:
            pass  # the one that listed them, or a system without links there
    return found
