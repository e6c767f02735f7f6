"""What comes out of a block around which tasks of our own have run."""

from __future__ import annotations

import trio

from ..runtime.groups import leaf_of

__all__ = ["first_of"]


def first_of(failure: BaseException | None, group: BaseExceptionGroup) -> BaseException:
    """Of what the block has raised and what the tasks have: that of a task, since the block's may
    be a consequence; it is kept as its context. A cancellation that came while the tasks ended
    hides nothing: its scope has it again at the next checkpoint."""
    error = leaf_of(group)
    if failure is not None and not isinstance(failure, trio.Cancelled):
        if isinstance(error, trio.Cancelled):
            return failure
        error.__context__ = failure
    return error
