"""What must be true when a handler has ended, however it did."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from .places import place_of_code

__all__ = ["Check", "failed", "with_limit"]

Check: TypeAlias = Callable[[], object] | Callable[[], Awaitable[object]]


async def failed(check: Check | None) -> str | None:
    """Why it fails; ``None`` if it does not. Raises what is no ``AssertionError``."""
    if check is None:
        return None
    try:
        said: Any = check()
        if inspect.isawaitable(said):
            said = await said
    except AssertionError as error:
        return f"the check failed: {_assertion(error)}"
    return None if said is None or said else f"the check is not true: {_shown(check)}"


def with_limit(why: str | None, ran_into_it: bool) -> str | None:
    """Why a check fails, with what it may come from: a clean-up block that was cut short."""
    if why is None or not ran_into_it:
        return why
    return f"{why}; a clean-up block, or on_exit, ran into its limit"


def _assertion(error: AssertionError) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error) or last.line or "an assertion"
    return f"{text} ({last.filename}:{last.lineno})"


def _shown(check: Check) -> str:
    code = getattr(inspect.unwrap(check), "__code__", None)
    if code is None:
        return repr(check)
    place = place_of_code(code)
    return f"{place.source} ({place.shown_file}:{place.line})"
