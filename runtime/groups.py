"""Exception groups, unwrapped where a user would see them."""

from __future__ import annotations

import trio

__all__ = ["leaf_of"]


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
