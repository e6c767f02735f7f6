"""Making a call again after it has failed: only where that does no harm, and only if asked for.

The words and the pauses are those of ``stamina``. It is not used, because it measures time by the
system's clock, and a call by Trio's. Who wants it wraps a call in it, with ``safe_to_repeat``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import attrs

from ..runtime.call import Call
from ..runtime.errors import ConnectionLost, ServerError
from ..runtime.numbers import check_number, check_whole
from ..runtime.server_errors import Overloaded, ShuttingDown, safe_to_repeat
from ..transports.calling import CallConnection

__all__ = ["Repeats", "Retry", "check_retry"]


def _attempts(_: Retry, attribute: attrs.Attribute[int], value: int) -> None:
    check_whole(f"Retry.{attribute.name}", value)
    if value < 1:
        raise ValueError(f"{attribute.name} must be a whole number from 1 on, not {value!r}")


def _seconds(_: Retry, attribute: attrs.Attribute[float], value: float) -> None:
    check_number(f"Retry.{attribute.name}", value)
    if not 0 <= value < math.inf:
        raise ValueError(f"{attribute.name} must be a finite number of seconds, not {value!r}")


def _factor(_: Retry, attribute: attrs.Attribute[float], value: float) -> None:
    check_number(f"Retry.{attribute.name}", value)
    if not 1 <= value < math.inf:
        raise ValueError(f"{attribute.name} must be a finite number from 1 on, not {value!r}")


@attrs.frozen(kw_only=True)
class Retry:
    """How often a call is made, and how long to wait in between. Times are in seconds.

    A call is made again only if it is known that the server has not begun with it, or if it only
    reads: a list, a resource, a prompt, a completion, discovery; or a tool that a server which is
    ``trusted`` calls read-only or idempotent. Never after a timeout, and never once the server has
    asked for input. In its pauses it is a call in flight, which can be cancelled. Each attempt
    sends the same parameters, whatever has become of the caller's objects.

    :param attempts: most attempts, the first one included; 1 for none but that.
    :param timeout: no further attempt is planned for later than that after the call has begun. The
        call's ``max_timeout`` holds for all attempts together, with the pauses.
    :param wait_initial, wait_max, wait_exp_base, wait_jitter: the pause after the ``n``-th attempt
        is ``wait_initial * wait_exp_base ** (n - 1)``, plus a random part of ``wait_jitter``, at
        most ``wait_max``. If the server names a pause, it is at least that long; one longer than
        ``wait_max`` is not waited for.

    Raises ``ValueError`` for what is none of that, ``TypeError`` for what is no number.
    """

    attempts: int = attrs.field(default=3, validator=_attempts)
    timeout: float = attrs.field(default=45.0, validator=_seconds)
    wait_initial: float = attrs.field(default=0.1, validator=_seconds)
    wait_max: float = attrs.field(default=5.0, validator=_seconds)
    wait_jitter: float = attrs.field(default=1.0, validator=_seconds)
    wait_exp_base: float = attrs.field(default=2.0, validator=_factor)

    def pause_after(
        self, error: ConnectionLost | ServerError, attempt: int, reads: bool
    ) -> float | None:
        """Seconds to wait after this attempt, from 1 on; ``None`` if there is to be no other.

        ``reads`` says that the call does no harm if it is made twice.
        """
        safe = safe_to_repeat(error)
        passing = isinstance(error, (ConnectionLost, Overloaded, ShuttingDown))
        if attempt >= self.attempts or not (safe or (reads and passing)):
            return None
        named = getattr(error, "retry_after", None) or 0.0
        return None if named > self.wait_max else max(named, self._pause(attempt))

    def _pause(self, attempt: int) -> float:
        try:
            grown = float(self.wait_exp_base) ** (attempt - 1) * float(self.wait_initial)
            return min(self.wait_max, grown + random.uniform(0, self.wait_jitter))
        except OverflowError:
            return self.wait_max


def check_retry(retry: Any) -> None:
    """Raises ``TypeError`` for what is neither a policy nor ``None``."""
    if retry is not None and not isinstance(retry, Retry):
        raise TypeError(f"retry= takes a Retry, such as Retry(attempts=3), not {retry!r:.80}")


@attrs.frozen
class Repeats:
    """How one call is made again.

    :param reads: whether it does no harm if it is made twice.
    :param send: sends the next attempt, which has been reserved, with the parameters of the
        request that it is given. Never waits.
    """

    retry: Retry
    reads: bool
    send: Callable[[Call, bytes], Call]

    def pause_after(
        self, error: Exception, attempt: int, connection: CallConnection
    ) -> float | None:
        """Seconds to wait after an attempt that has just failed; ``None`` if there is to be no
        other."""
        if not isinstance(error, (ConnectionLost, ServerError)):
            return None
        if isinstance(error, ConnectionLost) and error.sent and connection.restarting:
            return None  # it may be what ended the server, and would end the next one too
        return self.retry.pause_after(error, attempt, self.reads)
