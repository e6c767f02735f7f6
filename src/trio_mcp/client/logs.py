"""Log messages of a server, for clients that ask for them. Specification: *Logging* (deprecated
there: servers write to standard error, or trace)."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from ..runtime.models.base import JSONValue
from ..runtime.models.converter import ModelError, structure
from ..runtime.models.notifications import LoggingMessageNotificationParams
from .checks import check_function

__all__ = ["LogMessage", "OnLog", "log_reader"]

logger = logging.getLogger("trio_mcp.client")


@attrs.frozen
class LogMessage:
    """What a server remarked about a request. ``level`` is one of syslog's, ``data`` any JSON
    value, ``logger`` the server's name for where it comes from.

    Specification: *Logging*, which is deprecated.
    """

    level: str
    data: JSONValue
    logger: str | None = None


OnLog: TypeAlias = Callable[[LogMessage], None]


def log_reader(on_log: OnLog) -> Callable[[dict[str, Any]], str | None]:
    """What a connection does with a log message: call ``on_log``, at once, in the task that reads.
    What that raises is logged, and hurts nobody. Nothing is awaited, so that no callback keeps the
    connection from being read. Raises ``TypeError`` for what is no function or an async one."""
    check_function("on_log", on_log)
    if any(inspect.iscoroutinefunction(one) for one in (on_log, type(on_log).__call__)):
        raise TypeError("on_log is a plain function: the connection reads on when it returns")

    call: Callable[[LogMessage], object] = on_log

    def read(params: dict[str, Any]) -> str | None:
        try:
            message = structure(LoggingMessageNotificationParams, params, at="params")
        except ModelError as error:
            return f"a malformed log message: {error}"
        try:
            _refuse_coroutine(call(LogMessage(message.level, message.data, message.logger)))
        except Exception:
            logger.exception("on_log failed")
        return None

    return read


def _refuse_coroutine(returned: object) -> None:
    """A lambda may call an async function, which nobody sees before."""
    if inspect.iscoroutine(returned):
        returned.close()
        raise TypeError("on_log returned a coroutine, which nobody awaits")
