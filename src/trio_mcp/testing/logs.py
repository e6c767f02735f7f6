"""What the runtime logs of a handler's failures, taken aside: a sweep makes many on purpose."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from ..runtime.groups import leaf_of
from .places import place_of_error

__all__ = ["Failures", "describe_error"]


class Failures(logging.Handler):
    """Keeps the last exception that was logged. Nothing below ``trio_mcp`` is said meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.last: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            self.last = record.exc_info[1]

    @contextmanager
    def taken(self) -> Iterator[None]:
        """While this lasts."""
        logger = logging.getLogger("trio_mcp")
        handlers, propagates = logger.handlers, logger.propagate
        logger.handlers, logger.propagate = [self], False
        try:
            yield
        finally:
            logger.handlers, logger.propagate = handlers, propagates

    def describe(self) -> str | None:
        """Its type, its text and the line that it came from."""
        return None if self.last is None else describe_error(self.last)


def describe_error(error: BaseException) -> str:
    """In one line."""
    error = leaf_of(error)
    place = place_of_error(error)
    text = "".join(traceback.format_exception_only(error)).strip().replace("\n", " ")
    return f"{text} ({place.file}:{place.line})" if place is not None else text
