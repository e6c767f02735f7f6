"""Exception groups, unwrapped where a user would see them."""

from __future__ import annotations

__all__ = ["leaf_of"]


def leaf_of(error: BaseException) -> BaseException:
    """The one exception inside a group of one (of one …); anything else as it is.

    The leaf keeps its own traceback, which names the line that failed.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
