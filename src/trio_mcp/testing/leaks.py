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

from .places import Place, place_now, place_of_code

__all__ = ["Leaks"]

_FOLDERS = ("/proc/self/fd", "/dev/fd")


class Leaks:
    """Watches one run. ``found`` says in words what was left, once :meth:`watching` is over.

    :param own: whether it is the handler that runs at this moment.
    """

    def __init__(self, own: Callable[[], bool]) -> None:
        self.found: list[str] = []
        self._own = own
        self._begun: dict[str, Place | None] = {}  # by the generators' names
        self._generators: list[weakref.ref[AsyncGenerator[Any, Any]]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around the handler, within the Trio run."""
        before = _descriptors()
        hooks = sys.get_asyncgen_hooks()

        def first(generator: AsyncGenerator[Any, Any]) -> None:
            if self._own():
                self._generators.append(weakref.ref(generator))
                named: Any = generator
                self._begun[named.__qualname__] = place_now()
            if hooks.firstiter is not None:
                hooks.firstiter(generator)

        sys.set_asyncgen_hooks(firstiter=first)
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
                place = place_of_code(generator.ag_code, generator.ag_frame.f_lineno)
                self.found.append(f"an async generator was not closed: {place}")

    @contextmanager
    def _resource_warnings(self) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", ResourceWarning)
            yield
        for one in told:
            if issubclass(one.category, ResourceWarning):
                self.found.append(str(one.message) + self._place_of(str(one.message)))
            else:
                warnings.showwarning(one.message, one.category, one.filename, one.lineno)

    def _place_of(self, message: str) -> str:
        """Where the generator was begun that a warning of Trio is about."""
        for name, place in self._begun.items():
            if f".{name}' was garbage" in message and place is not None:
                return f" It was begun at {place}: {place.source}"
        return ""


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
