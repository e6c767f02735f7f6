"""The rounds of a request: which answers its handler has, and what it still has to ask.

Specification: *Multi Round-Trip Requests*.
"""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Mapping
from typing import Any, Final

import attrs
import msgspec

from ...runtime.errors import ErrorCode, ProtocolError
from ...runtime.exchange import Exchange
from ...runtime.jsonrpc import encode
from ...runtime.models.base import ClientCapabilities
from ...runtime.models.converter import unstructure
from ...runtime.models.errors import MissingRequiredClientCapabilityData
from ...runtime.models.results import InputRequiredResult
from ...runtime.questions import Question
from ...runtime.rounds import InputRequired
from .forms import Misfit
from .questions import Prepared, missing_capabilities, prepare
from .request_state import Binding, Memory, RequestStates

__all__ = ["HandlerRound", "HandlerRounds"]

logger = logging.getLogger("trio_mcp.input")

_NOTHING: Final = object()


class HandlerRounds:
    """Opens the rounds of one server (a :class:`~...runtime.rounds.Rounds`)."""

    def __init__(self, states: RequestStates) -> None:
        self.states = states

    def open(self, exchange: Exchange, params: Any) -> HandlerRound:
        binding = Binding.of(exchange, params)
        if params.request_state is not None:
            memory = self.states.open(binding, params.request_state)
        elif self.states.single_use and params.input_responses:
            raise ProtocolError(
                ErrorCode.INVALID_PARAMS,
                "Invalid params: inputResponses come with the requestState they answer",
            )
        else:
            memory = Memory()
        return HandlerRound(self.states, exchange, binding, memory, params.input_responses or {})


class HandlerRound:
    """One run of a handler (a :class:`~...runtime.rounds.Round`).

    An answer that was given in an earlier round stays as it is: the handler may have built on it.
    """

    def __init__(
        self,
        states: RequestStates,
        exchange: Exchange,
        binding: Binding,
        memory: Memory,
        responses: Mapping[str, Any],
    ) -> None:
        self._states = states
        self._exchange = exchange
        self._binding = binding
        self._remembered = memory.state
        self._answers = memory.answers
        self._fresh = {key: value for key, value in responses.items() if key not in memory.answers}
        self._answered_last = [key for key in memory.asked if key in self._fresh]
        self._questions: dict[str, tuple[Question, Prepared]] = {}

    @property
    def state(self) -> dict[str, Any]:
        return self._remembered

    def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        if not isinstance(questions, Mapping):
            raise TypeError(
                'ask() takes a dict of questions by keys, as in {"name": Elicit(…)}, not '
                f"{type(questions).__name__}"
            )
        prepared = {key: self._prepare(key, question) for key, question in questions.items()}
        answers = {key: self._answer(key, question) for key, question in prepared.items()}
        missing = {key: prepared[key] for key, answer in answers.items() if answer is _NOTHING}
        if missing:
            self._check_capabilities(missing)
            raise InputRequired({key: question.request for key, question in missing.items()})
        return answers

    def result(self, asked: InputRequired) -> InputRequiredResult:
        bound = self._exchange.core.limits.questions
        if len(asked.requests) > bound:
            raise ProtocolError(
                ErrorCode.INTERNAL_ERROR,
                f"The handler asks {len(asked.requests)} questions at once, more than the server's "
                f"limit questions={bound}",
            )
        answers = dict(self._answers)
        for key in self._answered_last:
            answers.setdefault(key, self._fresh[key])
        for key in asked.requests:
            answers.pop(key, None)
        memory = Memory(self._remembered, answers, list(asked.requests))
        try:
            sealed = self._states.seal(self._binding, memory)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(
                f"ctx.state cannot be remembered: {_culprit(self._remembered) or error}"
            ) from error
        return InputRequiredResult(asked.requests, sealed)

    def _prepare(self, key: str, question: Question) -> Prepared:
        if type(key) is not str or not key:
            raise TypeError(f"the key of a question is a text, not {key!r}")
        known = self._questions.get(key)
        if known is None:
            known = self._questions[key] = question, prepare(question)
        elif known[0] != question:
            raise ValueError(
                f"the key {key!r} stands for another question already; each needs its own"
            )
        return known[1]

    def _answer(self, key: str, question: Prepared) -> Any:
        """What the handler gets; ``_NOTHING`` if it has to be asked."""
        if key in self._fresh:
            try:
                answer = question.read(_copy(self._fresh[key]))
            except Misfit as error:
                raise ProtocolError(
                    ErrorCode.INVALID_PARAMS,
                    f"Invalid params: inputResponses.{self._clip(key)}: {error}",
                ) from None
            self._answers[key] = self._fresh[key]
            return answer
        if key in self._answers:
            try:
                return question.read(_copy(self._answers[key]))
            except Misfit:  # the question has changed since
                logger.info("exchange %d: %r is asked again", self._exchange.key, key)
        return _NOTHING

    def _check_capabilities(self, questions: Mapping[str, Prepared]) -> None:
        metadata = self._exchange.metadata
        client = ClientCapabilities() if metadata is None else metadata.client_capabilities
        lacking = missing_capabilities(questions.values(), client)
        if lacking is None:
            return
        data = unstructure(MissingRequiredClientCapabilityData(lacking))
        names = ", ".join(_names(lacking))
        raise ProtocolError(
            ErrorCode.MISSING_CLIENT_CAPABILITY,
            f"This request needs a client with the capability {names}",
            data,
        )

    def _clip(self, key: str) -> str:
        return key[: self._exchange.core.limits.text_length]


def _copy(answer: Any) -> Any:
    """For the handler, which may change what it gets; what is remembered stays as it was given."""
    return msgspec.json.decode(encode(answer))


def _culprit(state: Mapping[Any, Any]) -> str | None:
    """The entry of a state that JSON would not bring back as it is, in words."""
    for key, value in state.items():
        if type(key) is not str:
            return f"its key {reprlib.repr(key)} is a {type(key).__name__}, and keys are text"
        try:
            same = _copy(value) == value
        except (TypeError, ValueError, RecursionError):
            same = False
        if not same:
            return (
                f"its entry {reprlib.repr(key)} is, or holds, something else than dict (with text "
                f"keys), list, str, int, float, bool and None: a {type(value).__name__}"
            )
    return None


def _names(capabilities: ClientCapabilities) -> list[str]:
    """``elicitation.form``, ``sampling``, ``roots`` …"""
    names = []
    for name, value in attrs.asdict(capabilities, recurse=False).items():
        if value is None:
            continue
        parts = [] if isinstance(value, dict) else attrs.asdict(value, recurse=False).items()
        inner = [f"{name}.{part}" for part, setting in parts if setting is not None]
        names += inner or [name]
    return names
