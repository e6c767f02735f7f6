"""Why a request failed, told in the words of the error that began it."""

from __future__ import annotations

__all__ = ["describe_failure"]

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
    text = told.strerror if isinstance(told, OSError) and told.strerror else str(told)
    return text or type(told).__name__
