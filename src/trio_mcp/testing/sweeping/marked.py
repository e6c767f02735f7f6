"""A test function with ``@pytest.mark.cancel_sweep``: its body is what is swept.

What belongs to pytest itself is in the module ``pytest_trio_mcp``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from ...runtime.groups import leaf_of
from .options import check_names, check_values
from .report import SweepError
from .sweep import cancel_sweep

__all__ = ["sweep_test"]


def sweep_test(
    test: Callable[..., Awaitable[object]], fixtures: Mapping[str, Any], options: Mapping[str, Any]
) -> str | None:
    """Sweep a test; what to fail with, or ``None``. Raises what it raises if nobody cancels it.

    ``check`` and ``reset`` may have parameters: fixtures that the test has, too.
    """

    @functools.wraps(test)
    async def body() -> None:
        await test(**fixtures)

    try:
        for name, value in fixtures.items():
            _refuse_fixture(name, value)
        bound = _checked(options, fixtures)
        report = cancel_sweep(body, **bound)
    except SweepError as error:
        return str(error)
    except BaseExceptionGroup as group:  # a skipped test, for one
        raise leaf_of(group) from None
    return report.describe() if report.problems or report.stopped is not None else None


def _refuse_fixture(name: str, value: Any) -> None:
    if type(value).__name__ == "TrioFixture":
        raise SweepError(
            f"the fixture {name!r} lives in one Trio run, and a sweep is many of them: make it in "
            "the test, or let a plain fixture return a function that makes it"
        )
    if isinstance(value, trio.abc.Clock):
        raise SweepError(f"the fixture {name!r} is a clock: a sweep has one of its own in each run")


def _checked(options: Mapping[str, Any], fixtures: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a mark. Raises :class:`SweepError` for those that make no sense: a test could
    raise the ``TypeError`` of a sweep, too."""
    try:
        check_names(options)
        bound = {name: _bind(name, value, fixtures) for name, value in options.items()}
        check_values(bound)
    except TypeError as error:
        raise SweepError(f"@pytest.mark.cancel_sweep: {error}") from None
    return bound


def _bind(option: str, value: Any, fixtures: Mapping[str, Any]) -> Any:
    if option not in ("check", "reset") or not callable(value):
        return value
    wanted = list(inspect.signature(value).parameters)
    missing = [name for name in wanted if name not in fixtures]
    if missing:
        raise SweepError(f"{option} wants {', '.join(missing)}: no fixture of this test")
    if not wanted:
        return value
    return functools.wraps(value)(lambda: value(**{name: fixtures[name] for name in wanted}))
