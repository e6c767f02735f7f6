"""The pytest plugin of trio-mcp: ``@pytest.mark.cancel_sweep``, and the fixture ``memory_server``.

pytest loads it in every project that has trio-mcp installed. So it stands outside of the package:
importing that takes a while, and only a test that is swept should pay for it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

_MARK = "cancel_sweep"


def pytest_configure(config: pytest.Config) -> None:
    """Let ``--strict-markers`` know the mark."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(check=None, **options): run this async test again and again, cancelled at "
        "its first checkpoint, its second, …; see trio_mcp.testing.cancel_sweep",
    )
    fixtures = _trio_fixtures() if config.pluginmanager.hasplugin("trio") else _NoFixtures()
    config.pluginmanager.register(fixtures, "trio_mcp_fixtures")


def _trio_fixtures() -> object:
    trio_fixture: Any = importlib.import_module("pytest_trio").trio_fixture

    class TrioFixtures:
        memory_server = trio_fixture(_memory_server)

    return TrioFixtures()


async def _memory_server(self: object) -> AsyncGenerator[Any, None]:
    """``kitchen = await memory_server(server)``: see trio_mcp.testing.memory_server.

    Nothing may be left of it after the test.
    """
    import trio

    from trio_mcp.testing.memory import MemoryServers

    async with trio.open_nursery() as nursery:
        servers = MemoryServers(nursery)
        yield servers
        await servers.aclose()


class _NoFixtures:
    @pytest.fixture
    def memory_server(self) -> None:
        """Needs pytest-trio."""
        pytest.fail("the fixture memory_server needs pytest-trio", pytrace=False)


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """How a transcript differs from the text that it is held against."""
    transcript, text = (right, left) if isinstance(left, str) else (left, right)
    named = f"{type(transcript).__module__}.{type(transcript).__qualname__}"
    if op != "==" or named != "trio_mcp.testing.transcripts.transcript.Transcript":
        return None
    return ["another transcript:", *vars(type(transcript))["difference"](transcript, text)]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Before pytest-trio, and what else knows how to run async tests, looks at it."""
    mark = item.get_closest_marker(_MARK)
    if mark is not None and isinstance(item, pytest.Function):
        item.obj = _swept(item.obj, mark)
    return (yield)


def _swept(test: Callable[..., Any], mark: pytest.Mark) -> Callable[..., None]:
    """The plain function that runs instead of an async test."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        __tracebackhide__ = True
        if not inspect.iscoroutinefunction(test) or mark.args:
            pytest.fail(
                f"{_MARK} is for an async test function, its options have names: "
                f"@pytest.mark.{_MARK}(check=…)",
                pytrace=False,
            )
        from trio_mcp.testing.sweeping.marked import sweep_test

        failure = sweep_test(test, fixtures, mark.kwargs)
        if failure is not None:
            pytest.fail(failure, pytrace=False)

    vars(run).pop("hypothesis", None)
    vars(run)["_trio_test_runner_wrapped"] = True  # pytest-trio: there is nothing to wrap any more
    return run
