"""``subscriptions/listen`` and what it brings.

Specification 2026-07-28: *Subscriptions*; *Resources*, "Subscriptions". Everything that belongs to
a subscription has its id in `meta`, under `.base.META_SUBSCRIPTION_ID`.
"""

from __future__ import annotations

from typing import Literal

from attrs import define

from .base import JSONObject

__all__ = [
    "ResourceUpdatedNotificationParams",
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotificationParams",
    "SubscriptionsListenRequestParams",
    "SubscriptionsListenResult",
]


@define
class SubscriptionFilter:
    """Which notifications a subscription is for; what is not set is not wanted."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    """URIs of the resources whose updates are wanted."""


@define
class SubscriptionsListenRequestParams:
    """Params of ``subscriptions/listen``."""

    notifications: SubscriptionFilter
    meta: JSONObject | None = None


@define
class SubscriptionsAcknowledgedNotificationParams:
    """Params of ``notifications/subscriptions/acknowledged``, the first of a subscription."""

    notifications: SubscriptionFilter
    """The part of the wanted that the server will send."""
    meta: JSONObject | None = None


@define
class SubscriptionsListenResult:
    """The server ended the subscription in order; without this result, the connection was lost."""

    result_type: Literal["complete"] = "complete"
    meta: JSONObject | None = None


@define
class ResourceUpdatedNotificationParams:
    """Params of ``notifications/resources/updated``."""

    uri: str
    """Of the resource itself, or of a part of one that was subscribed to."""
    meta: JSONObject | None = None
