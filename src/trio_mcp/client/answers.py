"""What a client can be asked for while a call is made, and who answers.

Specification: *Multi Round-Trip Requests*, "Client Requirements"; *Elicitation*, *Sampling*,
*Roots*. A capability is declared for what there is a callback for, and nothing else is answered.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import attrs
import trio

from ..runtime.errors import ProtocolViolation
from ..runtime.groups import leaf_of
from ..runtime.models.base import (
    ClientCapabilities,
    ElicitationCapability,
    JSONObject,
    SamplingCapability,
)
from ..runtime.models.converter import ModelError, structure, unstructure
from ..runtime.models.elicitation import ElicitResult
from ..runtime.models.input import CreateMessageRequest, ElicitRequest, InputRequest
from ..runtime.models.results import InputRequiredResult
from ..runtime.models.roots import ListRootsResult, Root
from ..runtime.models.sampling import CreateMessageRequestParams, CreateMessageResult
from .checks import check_flag, check_function
from .elicitation import Elicitation, check_answer, elicitation_of

__all__ = ["Answers", "Ask", "Asked", "ElicitMode", "OnElicit", "OnRoots", "OnSample"]

OnElicit: TypeAlias = Callable[[Elicitation], Awaitable[ElicitResult] | ElicitResult]
OnSample: TypeAlias = Callable[
    [CreateMessageRequestParams], Awaitable[CreateMessageResult] | CreateMessageResult
]
OnRoots: TypeAlias = Callable[[], Awaitable[Sequence[Root]] | Sequence[Root]]

ElicitMode: TypeAlias = Literal["form", "url"]

Ask: TypeAlias = Callable[[], Awaitable[JSONObject]]


@attrs.frozen
class Asked:
    """What a server wants before it answers: requests, by its keys, and a state to send back."""

    questions: Mapping[str, Ask]
    request_state: str | None


class Answers:
    """The application's callbacks. Raises ``TypeError`` or ``ValueError`` for what is none."""

    def __init__(
        self,
        on_elicit: OnElicit | None = None,
        elicit_modes: Iterable[ElicitMode] = ("form",),
        on_sample: OnSample | None = None,
        sample_tools: bool = False,
        on_roots: OnRoots | Sequence[Root] | None = None,
    ) -> None:
        for what, callback in (("on_elicit", on_elicit), ("on_sample", on_sample)):
            if callback is not None:
                check_function(what, callback)
        check_flag("sample_tools", sample_tools)
        self._on_elicit = on_elicit
        self._modes = frozenset([elicit_modes] if isinstance(elicit_modes, str) else elicit_modes)
        if not self._modes or not self._modes <= set(get_args(ElicitMode)):
            raise ValueError(f'elicit_modes has "form", "url" or both, not {elicit_modes!r}')
        self._on_sample = on_sample
        self._sample_tools = sample_tools
        self._on_roots = on_roots
        if on_roots is not None and not callable(on_roots):
            _checked_roots(on_roots)

    @property
    def capabilities(self) -> ClientCapabilities:
        """What the server is told with each request."""
        capabilities = ClientCapabilities()
        if self._on_elicit is not None:
            capabilities.elicitation = ElicitationCapability(
                form={} if "form" in self._modes else None,
                url={} if "url" in self._modes else None,
            )
        if self._on_sample is not None:
            capabilities.sampling = SamplingCapability(tools={} if self._sample_tools else None)
        if self._on_roots is not None:
            capabilities.roots = {}
        return capabilities

    @property
    def methods(self) -> frozenset[str]:
        """The requests that there is a callback for."""
        callbacks = {
            "elicitation/create": self._on_elicit,
            "sampling/createMessage": self._on_sample,
            "roots/list": self._on_roots,
        }
        return frozenset(name for name, callback in callbacks.items() if callback is not None)

    def read(self, result: JSONObject, name: str, limit: int) -> Asked:
        """What the result of the call ``name`` asks for.

        Raises :class:`ProtocolViolation` if it asks for nothing, for more than ``limit`` things, or
        for one that this client does not offer.
        """
        try:
            asked = structure(InputRequiredResult, result, at="result")
        except ModelError as error:
            raise ProtocolViolation(f"{name}: {error}") from None
        requests = asked.input_requests or {}
        if not requests and asked.request_state is None:
            raise ProtocolViolation(f"{name}: the server asks for input, and not for which")
        if len(requests) > limit:
            raise ProtocolViolation(
                f"{name}: the server asks for {len(requests)} things at once, more than "
                f"input_requests={limit}"
            )
        questions = {key: self.question(key, requests[key], name) for key in requests}
        return Asked(questions, asked.request_state)

    async def ask(
        self, questions: Mapping[str, Ask], over: Callable[[], Awaitable[None]]
    ) -> dict[str, JSONObject] | None:
        """Ask all at once. The answers, or ``None`` if ``over`` returned before they were there.

        What a callback raises comes out, as it is; the others are cancelled.
        """
        answers: dict[str, JSONObject] = {}
        failure: Exception | None = None

        async def stop_when_over() -> None:
            await over()
            nursery.cancel_scope.cancel("the call is over")

        async def ask_one(key: str, ask: Ask) -> None:
            nonlocal failure
            try:
                answers[key] = await ask()
            except Exception as error:
                failure = failure if failure is not None else error
                nursery.cancel_scope.cancel("another callback failed")
            if len(answers) == len(questions):
                nursery.cancel_scope.cancel("all have answered")

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop_when_over)
                for key, ask in questions.items():
                    nursery.start_soon(ask_one, key, ask)
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None
        if failure is not None:
            raise failure
        return answers if len(answers) == len(questions) else None

    # One question ---------------------------------------------------------------------------------

    def question(self, key: str, request: InputRequest, name: str) -> Ask:
        """What asks the callback. Raises :class:`ProtocolViolation` if there is none for it."""
        if isinstance(request, ElicitRequest):
            on_elicit = self._on_elicit
            question = elicitation_of(key, request.params, name)
            if on_elicit is None or question.mode not in self._modes:
                raise _undeclared(name, key, f"{request.method} in mode {question.mode!r}")
            return lambda: _elicit(on_elicit, question)
        if isinstance(request, CreateMessageRequest):
            on_sample, params = self._on_sample, request.params
            if on_sample is None:
                raise _undeclared(name, key, request.method)
            wants_tools = params.tools is not None or params.tool_choice is not None
            if wants_tools and not self._sample_tools:
                raise _undeclared(name, key, f"{request.method} with tools")
            return lambda: _sample(on_sample, params)
        on_roots = self._on_roots
        if on_roots is None:
            raise _undeclared(name, key, request.method)
        return lambda: _roots(on_roots)


def _undeclared(name: str, key: str, what: str) -> ProtocolViolation:
    return ProtocolViolation(
        f"{name}: the server asks for input, {what} ({reprlib.repr(key)}), "
        "for which this client declared no capability"
    )


async def _elicit(on_elicit: OnElicit, question: Elicitation) -> JSONObject:
    return unstructure(check_answer(question, await _value(on_elicit(question))))


async def _sample(on_sample: OnSample, params: CreateMessageRequestParams) -> JSONObject:
    message = await _value(on_sample(params))
    if not isinstance(message, CreateMessageResult):
        raise TypeError(f"on_sample returns a CreateMessageResult, not {message!r}")
    return unstructure(message)


async def _roots(on_roots: OnRoots | Sequence[Root]) -> JSONObject:
    roots = await _value(on_roots()) if callable(on_roots) else on_roots
    return unstructure(ListRootsResult(_checked_roots(roots)))


async def _value(returned: Any) -> Any:
    return await returned if inspect.isawaitable(returned) else returned


def _checked_roots(roots: object) -> list[Root]:
    if isinstance(roots, str) or not isinstance(roots, Sequence):
        raise TypeError(f"roots are a list of Root, not {roots!r}")
    for root in roots:
        if not isinstance(root, Root):
            raise TypeError(f"roots are a list of Root; {root!r} is none")
        if not root.uri.startswith("file://"):
            raise ValueError(f"a root's uri begins with file://, not {root.uri!r}")
    return [*roots]
