"""What can change in what servers offer, and the bus that carries the news of it.

A server publishes its changes to a bus, and tells its listeners (:mod:`.subscriptions`) what a bus
delivers to it. :class:`LocalBus` is for the servers of one process. Several processes that serve as
one share a bus of the application's: an object with the two methods of :class:`ChangeBus`, and a
task of the application's that receives from the broker and delivers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

import attrs

__all__ = ["Change", "ChangeBus", "Deliver", "ListKind", "LocalBus"]

ListKind: TypeAlias = Literal["tools", "prompts", "resources"]


def _uri(change: Change, _: attrs.Attribute[Any], value: object) -> None:
    if change.kind != "resource":
        if value is not None:
            raise ValueError(f"a change of the list of {change.kind} has no uri")
    elif not isinstance(value, str):
        raise TypeError(f"a resource's uri must be a string, not {type(value).__name__}")


@attrs.frozen(cache_hash=True)
class Change:
    """One change: ``Change("tools")``, the list of tools is another one now; or
    ``Change("resource", uri)``, this resource has been updated.

    ``attrs.asdict(change)`` is JSON that ``Change(**data)`` reads. Raises ``ValueError`` or
    ``TypeError`` for what is no change. Specification: *Subscriptions*.
    """

    kind: Literal["tools", "prompts", "resources", "resource"] = attrs.field(
        validator=attrs.validators.in_(("tools", "prompts", "resources", "resource"))
    )
    uri: str | None = attrs.field(default=None, validator=_uri)


Deliver: TypeAlias = Callable[[Change], None]
"""Takes a change to the listeners of one server. Never waits and never raises; for any thread."""


class ChangeBus(Protocol):
    """Carries changes from servers to servers: pass it as ``Server(…, bus=…)``."""

    def attach(self, deliver: Deliver) -> None:
        """A server wants to hear of changes: call ``deliver`` with each. Called once per server,
        when it is made."""

    def publish(self, change: Change) -> None:
        """Something has changed. Comes from any thread, also before there is an event loop; must
        neither wait nor raise.

        Each attached server hears of it once, the one it comes from included: either here, or when
        a broker brings it back.
        """


class LocalBus:
    """The bus of one process: delivers at once. Servers that share one tell each other's changes;
    for any thread, never waits."""

    def __init__(self) -> None:
        self._receivers: tuple[Deliver, ...] = ()

    def attach(self, deliver: Deliver) -> None:
        """See :meth:`ChangeBus.attach`."""
        self._receivers += (deliver,)

    def publish(self, change: Change) -> None:
        """Calls all that are attached, here and now."""
        for deliver in self._receivers:
            deliver(change)
