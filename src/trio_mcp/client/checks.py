"""Types of what applications pass to a client, for those that no type checker looks at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["check_flag", "check_function", "check_mapping", "check_seconds", "check_text"]


def check_text(what: str, value: Any) -> None:
    """Raises ``TypeError``."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a text, not {value!r:.80}")


def check_mapping(what: str, value: Any) -> None:
    """Raises ``TypeError``. ``what`` is a plural."""
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} are a mapping of names to values, not {value!r:.80}")


def check_function(what: str, value: Any) -> None:
    """Raises ``TypeError`` for what cannot be called."""
    if not callable(value):
        raise TypeError(f"{what} is a function, not {value!r:.80}")


def check_flag(what: str, value: Any) -> None:
    """Raises ``TypeError`` for what is no ``bool``: it may have been meant for another option."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} is True or False, not {value!r:.80}")


def check_seconds(what: str, value: Any) -> None:
    """Raises ``TypeError`` for no number, ``ValueError`` for one that is not above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} is a number of seconds, not {value!r:.80}")
    if not value > 0:
        raise ValueError(f"{what} must be more than 0 seconds, not {value!r}")
