"""Params of notifications. Specification 2026-07-28: *Cancellation*, *Progress*, *Logging*."""

from __future__ import annotations

from attrs import define

from .base import JSONObject, JSONValue, LoggingLevel, ProgressToken, RequestId

__all__ = [
    "CancelledNotificationParams",
    "LoggingMessageNotificationParams",
    "NotificationParams",
    "ProgressNotificationParams",
]


@define
class NotificationParams:
    """Params of a notification that has none of its own, the list-changed ones for example."""

    meta: JSONObject | None = None


@define
class CancelledNotificationParams:
    """Params of ``notifications/cancelled``."""

    request_id: RequestId
    reason: str | None = None
    meta: JSONObject | None = None


@define
class ProgressNotificationParams:
    """Params of ``notifications/progress``. `progress` grows with every one of a request."""

    progress_token: ProgressToken
    progress: float
    total: float | None = None
    message: str | None = None
    meta: JSONObject | None = None


@define
class LoggingMessageNotificationParams:
    """Params of ``notifications/message``. `data` may be any JSON value, null too.

    The specification deprecates *Logging*: new servers write to standard error instead, or trace.
    """

    level: LoggingLevel | str
    data: JSONValue
    logger: str | None = None
    meta: JSONObject | None = None
