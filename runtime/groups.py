"""Exception groups, unwrapped where a user would see them."""

from __future__ import annotations

import trio

__all__ = ["interruption_in", "leaf_of"]


def leaf_of(error: BaseException) -> BaseException:
    """The one exception inside a group of one (of one …), or of several that are all
    ``trio.Cancelled`` and say the same; anything else as it is.

    The leaf keeps its own traceback, which names the line that failed.
    """
    while isinstance(error, BaseExceptionGroup):
        if len(error.exceptions) > 1 and error.split(trio.Cancelled)[1] is not None:
            break
        error = error.exceptions[0]
    return error


def interruption_in(error: BaseException | None) -> BaseException | None:
    """What ends the program, ``KeyboardInterrupt`` for one: the first leaf of a group that is
    neither an ``Exception`` nor ``trio.Cancelled``; ``None`` if there is none."""
    if not isinstance(error, BaseExceptionGroup):
        return None if error is None or isinstance(error, (Exception, trio.Cancelled)) else error
    for one in error.exceptions:
        if (found := interruption_in(one)) is not None:
            return found
    return None
