"""Types of numbers that applications give, for those that no type checker looks at."""

from __future__ import annotations

from typing import Any

__all__ = ["check_number", "check_whole"]


def check_number(what: str, value: Any) -> None:
    """Raises ``TypeError``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} is a number, not {value!r:.80}")


def check_whole(what: str, value: Any) -> None:
    """Raises ``TypeError``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is a whole number, not {value!r:.80}")
