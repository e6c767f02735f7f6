"""Why a request failed, told in the words of the error that began it."""

from __future__ import annotations

import os

__all__ = ["cannot_connect", "describe_failure"]

_DEEPEST = 16


def describe_failure(error: BaseException) -> str:
    """The text of what a library has wrapped: ``Connection refused``, not that all attempts failed.

    Of several attempts, the first one's.
    """
    told: BaseException = error
    inner: BaseException | None = error
    for _ in range(_DEEPEST):
        if inner is None:
            break
        if isinstance(inner, OSError) and (inner.strerror or str(inner)):
            told = inner
        if isinstance(inner, BaseExceptionGroup):
            inner = inner.exceptions[0]
        else:
            inner = inner.__cause__ or inner.__context__
    return (_words(told) if isinstance(told, OSError) else str(told)) or type(told).__name__


def _words(error: OSError) -> str:
    """What the system says, without what a library has put before it."""
    said = error.strerror or str(error)
    words = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else ""
    return words if words and said.endswith(words) else said


def cannot_connect(host: str, port: int, error: BaseException) -> str:
    """The same, and where to, for what has failed before there was a connection."""
    place = f"[{host}]" if ":" in host else host
    return f"cannot connect to {place}:{port}: {describe_failure(error)}"
