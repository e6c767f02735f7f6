"""The state of a request between two of its rounds: sealed, and good for this request only.

Theory of operation. The server keeps nothing: what a handler remembers, the answers so far and the
keys asked last travel through the client as ``requestState``. It is sealed (:mod:`..sealing`), so
that a client can neither read nor make nor change one. Inside stands what it is good for: the
method, the target, a digest of the parameters, and who asked; and it grows too old. A state that is
not good for the request it comes with is refused before the handler runs, always in the same words:
how it fails is for the log alone.

Specification: *Multi Round-Trip Requests*, "Server Requirements".
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import Any, Final

import attrs
import msgspec

from ...runtime.errors import ErrorCode, ProtocolError
from ...runtime.exchange import Exchange
from ...runtime.jsonrpc import encode
from ...runtime.limits import Limits
from ...runtime.models.converter import unstructure
from ..sealing import Seal, Secret, SecretKeys
from .used_states import UsedStates
from .wall_clock import wall_clock

__all__ = ["Binding", "Memory", "RequestStates"]

logger = logging.getLogger("trio_mcp.input")

_sorted = msgspec.json.Encoder(order="sorted")
#: How far ahead of ours the clock of another server with the same secret may be, in seconds; it is
#: what Fernet tolerates.
_SKEW: Final = 60


class Binding(msgspec.Struct, frozen=True, array_like=True):
    """The one request that a state is good for."""

    method: str
    target: str | None
    digest: str
    principal: str | None

    @classmethod
    def of(cls, exchange: Exchange, params: Any) -> Binding:
        """``params`` is the model of a request that may ask; see :class:`~.dispatch.Method`.

        Everything in it counts but its metadata and what a further round adds. Raises
        ``ProtocolError`` -32602 for parameters that are nested too deep.
        """
        asked = attrs.evolve(params, meta=None, input_responses=None, request_state=None)
        try:
            canonical = _sorted.encode(unstructure(asked))
        except RecursionError:
            raise ProtocolError(
                ErrorCode.INVALID_PARAMS, "Invalid params: nested too deeply"
            ) from None
        principal = exchange.principal
        return cls(
            exchange.request.method,
            exchange.target,
            hashlib.sha256(canonical).hexdigest(),
            None if principal is None else principal.name,
        )


class Memory(msgspec.Struct, array_like=True):
    """What is remembered: the handler's state, the answers so far, the keys asked last."""

    state: dict[str, Any] = {}
    answers: dict[str, Any] = {}
    asked: list[str] = []


class _Sealed(msgspec.Struct, array_like=True):
    binding: Binding
    memory: Memory


class RequestStates:
    """Seals and opens the states of one server.

    :param single_use: each state is accepted once; remembered in this process.
    :param now: the system's clock, since states outlive processes.
    """

    def __init__(
        self,
        secret: Secret | None,
        limits: Limits,
        *,
        single_use: bool = False,
        now: Callable[[], float] = wall_clock,
    ) -> None:
        self.now = now
        self._limits = limits
        self._seal = Seal(SecretKeys(secret), "request state")
        self._used = UsedStates(limits.single_use_states) if single_use else None

    @property
    def single_use(self) -> bool:
        return self._used is not None

    def seal(self, binding: Binding, memory: Memory) -> str:
        """Raises ``ProtocolError`` -32603 for what is too long, ``TypeError`` or ``ValueError`` for
        what is no JSON: whatever would come back as something else."""
        data = encode(_Sealed(binding, memory))
        if msgspec.json.decode(data, type=_Sealed).memory != memory:
            raise TypeError(
                "it holds something else than dict (with text keys), list, str, int, "
                "float, bool and None"
            )
        sealed = self._seal.close(data, self.now())
        if len(sealed) > self._limits.request_state_bytes:
            raise ProtocolError(
                ErrorCode.INTERNAL_ERROR,
                f"The request state has {len(sealed)} bytes, more than the server's limit "
                f"request_state_bytes={self._limits.request_state_bytes}; remember less in "
                "ctx.state",
            )
        return sealed

    def open(self, binding: Binding, sealed: str) -> Memory:
        """What was sealed for this request. Raises ``ProtocolError`` -32602 for anything else.

        If states are for a single use, this was it; while there is no room to remember that, it
        raises ``ProtocolError`` OVERLOADED, and it was not.
        """
        now = self.now()
        memory = self._read(binding, sealed, now)
        if self._used is not None:
            name = hashlib.sha256(sealed.encode()).digest()
            if name in self._used:
                raise _refusal("it was used before")
            if self._used.is_full(now):
                raise ProtocolError(
                    ErrorCode.OVERLOADED,
                    "Overloaded: too many requests are between two rounds; try again later",
                    {"retryAfterMs": int(self._limits.retry_after * 1000)},
                )
            self._used.add(name, now + self._limits.request_state_age + _SKEW)
        return memory

    def _read(self, binding: Binding, sealed: str, now: float) -> Memory:
        if len(sealed) > self._limits.request_state_bytes:
            raise _refusal("it is too long")
        data = self._seal.open(sealed, now, self._limits.request_state_age)
        if data is None:
            raise _refusal("it is not one of ours, or too old")
        try:
            opened = msgspec.json.decode(data, type=_Sealed)
        except (msgspec.MsgspecError, RecursionError):
            raise _refusal("another version of this library sealed it") from None
        if opened.binding != binding:
            raise _refusal("it is for another request, or for somebody else")
        return opened.memory


def _refusal(reason: str) -> ProtocolError:
    logger.info("a requestState was refused: %s", reason)
    return ProtocolError(
        ErrorCode.INVALID_PARAMS,
        "Invalid params: requestState is not good for this request, or not any more; "
        "make the request again without it",
    )
