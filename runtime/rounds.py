"""Requests that take several rounds: the signal that ends one, and who keeps what was said.

Theory of operation. A handler asks with ``ctx.elicit`` and the like. If the answer is there, it is
returned. If not, :class:`InputRequired` unwinds the handler, as ``trio.Cancelled`` would: it is no
``Exception``, and ``finally`` blocks run. The exchange answers with the questions, and is over:
nothing of it stays in the server. The client asks again, with the answers and with a sealed state
that has all earlier ones; the handler is run from its beginning, and gets further.

Questions that several tasks of one handler asked travel together. A real failure beside them wins,
and so does a cancellation. What a question looks like and how a state is sealed is not the
runtime's business: the face gives the dispatcher a :class:`Rounds`.

Specification: *Multi Round-Trip Requests*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from .models.input import InputRequest
from .models.results import InputRequiredResult
from .questions import Question

if TYPE_CHECKING:
    from .exchange import Exchange

__all__ = ["InputRequired", "Round", "Rounds", "outcome_of"]


class InputRequired(BaseException):
    """Unwinds a handler that asked for something it has no answer to yet. Let it pass.

    Not an ``Exception``, so ``except Exception`` lets it through. ``requests`` are the questions,
    by key. Specification: *Multi Round-Trip Requests*.
    """

    def __init__(self, requests: Mapping[str, InputRequest]) -> None:
        super().__init__(*requests)
        self.requests = dict(requests)


class Round(Protocol):
    """One run of a handler that may ask."""

    @property
    def state(self) -> dict[str, Any]:
        """What the handler remembers from round to round; JSON values."""

    def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """The answers, by key. Raises :class:`InputRequired` if one is missing, ``ProtocolError``
        for an answer that is none and for a client that cannot be asked, ``TypeError`` or
        ``ValueError`` for a question that is none."""

    def result(self, asked: InputRequired) -> InputRequiredResult:
        """The answer to a request that has to be made again. Raises what the log should have."""


class Rounds(Protocol):
    """Opens the rounds of one server."""

    def open(self, exchange: Exchange, params: Any) -> Round:
        """A round, before its handler runs. ``params`` is a model with ``request_state`` and
        ``input_responses``. Raises ``ProtocolError`` -32602 for a state that is not of this server
        and this request."""


def outcome_of(error: BaseException) -> BaseException:
    """What a failure amounts to: one :class:`InputRequired` with all the questions in it, or what
    failed beside them."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    asked, rest = error.split(InputRequired)
    if asked is None:
        return error
    if rest is not None:
        return rest
    requests: dict[str, InputRequest] = {}
    _collect(asked, requests)
    return InputRequired(requests).with_traceback(asked.__traceback__)


def _collect(group: BaseExceptionGroup[InputRequired], requests: dict[str, InputRequest]) -> None:
    for error in group.exceptions:
        if isinstance(error, InputRequired):
            requests.update(error.requests)
        else:
            _collect(error, requests)
