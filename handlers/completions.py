"""``completion/complete``: proposals for arguments. Specification: *Completion*.

A *completer* is a function that the application offers for one argument of a prompt, or for one
variable of a resource template. Arguments that have few possible texts need none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from ..runtime.context import Context
from ..runtime.errors import ErrorCode, ProtocolError
from ..runtime.models.completion import (
    CompleteRequestParams,
    CompleteResult,
    Completion,
    PromptReference,
)
from .functions import HandlerFunction
from .prompts.prompts import Prompts
from .schema.callables import Inspected, SignatureError
from .schema.type_hints import base_value

__all__ = ["Completions", "VariablesOf"]

VariablesOf: TypeAlias = Callable[[str], Collection[str] | None]
"""The variables of the resource template with this text: none for a plain resource's URI, and
``None`` if there is neither."""

#: The specification's bound.
MAX_VALUES: Final = 100
#: How much of a peer's text, and how many names, one error message shows.
MAX_SHOWN: Final = 128
MAX_LISTED: Final = 20

_EXPRESSION = re.compile(r"\{[+#./;?&]?([^{}]+)\}")
_MODIFIER = re.compile(r"\*|:[0-9]+")


@attrs.frozen(eq=False)
class Completer:
    """A function, and which of its parameters takes what."""

    function: HandlerFunction
    value_parameter: str
    arguments_parameter: str | None

    @classmethod
    def of(cls, function: Callable[..., Any], timeout: float | None) -> Completer:
        """Raises ``TypeError`` for what takes no text or too much, ``ValueError`` for a timeout."""
        if not callable(function):
            raise TypeError(f"a completer is a function, not {function!r}")
        subject = Inspected.of(function, Context)
        names = [parameter.name for parameter in subject.parameters()]
        if not 1 <= len(names) <= 2:
            raise SignatureError(
                f"{subject.name}() cannot be a completer: besides the context it takes the text "
                f"typed so far and, if it wants them, the other arguments; not {len(names)} "
                "parameters"
            )
        value, arguments = names[0], names[1] if len(names) == 2 else None
        handler = HandlerFunction.of(function, subject.context_parameter, timeout)
        return cls(handler, value, arguments)

    async def propose(
        self, ctx: Context, label: str, value: str, arguments: Mapping[str, str]
    ) -> Completion:
        """Raises ``TypeError`` or ``ValueError`` for an answer that cannot be sent."""
        given: dict[str, Any] = {self.value_parameter: value}
        if self.arguments_parameter is not None:
            given[self.arguments_parameter] = arguments
        return _completion(await self.function.run(ctx, label, given))


class Completions:
    """The completers of one server.

    :param variables_of: tells the resource templates of the server.
    """

    def __init__(self, prompts: Prompts, variables_of: VariablesOf) -> None:
        self._prompts = prompts
        self._variables_of = variables_of
        self._of_prompts: dict[str, dict[str, Completer]] = {}
        self._of_templates: dict[str, dict[str, Completer]] = {}

    def add_for_prompt(
        self, prompt: str, argument: str, function: Callable[..., Any], timeout: float | None
    ) -> None:
        """Raises ``ValueError`` for an argument that there is not, or that has a completer."""
        registered = self._prompts.registered(prompt)
        if registered is None:
            raise ValueError(f"there is no prompt named {prompt!r}; add it before its completers")
        _add(self._of_prompts, prompt, argument, registered.arguments, function, timeout)

    def add_for_template(
        self, template: str, argument: str, function: Callable[..., Any], timeout: float | None
    ) -> None:
        """Raises ``ValueError`` for a variable that there is not, or that has a completer."""
        variables = self._variables_of(template)
        if variables is None:
            raise ValueError(
                f"there is no resource template {template!r}; add it before its completers"
            )
        _add(self._of_templates, template, argument, variables, function, timeout)

    def forget_prompt(self, name: str) -> None:
        """A prompt has gone, and its completers with it."""
        self._of_prompts.pop(name, None)

    def forget_template(self, template: str) -> None:
        """A resource template has gone, and its completers with it."""
        self._of_templates.pop(template, None)

    async def complete(self, ctx: Context, params: CompleteRequestParams) -> CompleteResult:
        ref, argument = params.ref, params.argument
        options: dict[str, Sequence[str]]
        if isinstance(ref, PromptReference):
            subject, completers = ref.name, self._of_prompts.get(ref.name, {})
            arguments = self._prompts.find(ref.name).arguments
            options = {name: known.options for name, known in arguments.items()}
        else:
            subject, completers = ref.uri, self._of_templates.get(ref.uri, {})
            options = dict.fromkeys(self._variables_in(ref.uri), ())
            if not options:
                return CompleteResult(_completion([]))
        if argument.name not in options:
            raise _unknown_argument(argument.name, options)
        completer = completers.get(argument.name)
        if completer is None:
            proposed = _beginning_with(argument.value, options[argument.name])
            return CompleteResult(_completion(proposed))
        given = (params.context.arguments if params.context is not None else None) or {}
        given = {name: given[name] for name in options if name in given}
        label = f"{subject} ({argument.name})"
        return CompleteResult(await completer.propose(ctx, label, argument.value, given))

    def _variables_in(self, uri: str) -> Collection[str]:
        """Raises ``ProtocolError`` -32602 for what is neither a template nor a resource."""
        variables = self._variables_of(uri)
        if variables is not None:
            return variables
        raise ProtocolError(
            ErrorCode.INVALID_PARAMS,
            f"Unknown resource template: {uri[:MAX_SHOWN]} "
            "(resources/templates/list names those there are)",
        )


def _add(
    completers: dict[str, dict[str, Completer]],
    subject: str,
    argument: str,
    names: Iterable[str],
    function: Callable[..., Any],
    timeout: float | None,
) -> None:
    if argument not in names:
        raise ValueError(f"{subject!r} has no argument {argument!r} ({_known(names)})")
    of_subject = completers.get(subject, {})
    if argument in of_subject:
        raise ValueError(f"there is a completer for {argument!r} of {subject!r} already")
    completer = Completer.of(function, timeout)
    completers[subject] = {**of_subject, argument: completer}


def _completion(answer: Any) -> Completion:
    """What a completer answered, cut to what may be sent; the numbers stay those of the whole."""
    if isinstance(answer, (list, tuple)):
        answer = Completion([*answer], total=len(answer), has_more=False)
    if not isinstance(answer, Completion) or not isinstance(answer.values, (list, tuple)):
        raise TypeError("a completer returns a list of texts, or Completion with one")
    count, total, more = len(answer.values), answer.total, answer.has_more
    _check_numbers(count, total, more)
    if total is None and more is False:
        total = count
    if more is None and total is not None:
        more = total > count
    if count > MAX_VALUES:
        more = True
    return Completion([_text(value) for value in answer.values[:MAX_VALUES]], total, more)


def _check_numbers(count: int, total: Any, more: Any) -> None:
    """Raises ``ValueError`` for numbers that contradict the values, or each other."""
    if total is not None and (type(total) is not int or total < count):
        raise ValueError(f"a completer told total={total!r} of {count} values")
    if more is not None and type(more) is not bool:
        raise ValueError(f"a completer told has_more={more!r}")
    if more is not None and total is not None and more is not (total > count):
        raise ValueError(f"a completer told has_more={more} and total={total} of {count} values")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a completer proposes text, not {type(value).__name__}")
    text: str = base_value(value)
    return text


def _beginning_with(value: str, options: Sequence[str]) -> list[str]:
    """The options that begin with a text, in upper or lower case."""
    longest = max((len(option.casefold()) for option in options), default=0)
    begin = value[: longest + 1].casefold()  # longer than that, and it begins none
    return [option for option in options if option.casefold().startswith(begin)]


def _unknown_argument(name: str, names: Iterable[str]) -> ProtocolError:
    return ProtocolError(
        ErrorCode.INVALID_PARAMS,
        f"Invalid params: params.argument.name: unknown argument {name[:MAX_SHOWN]!r} "
        f"({_known(names)})",
    )


def _known(names: Iterable[str]) -> str:
    listed = [*names]
    shown = ", ".join(listed[:MAX_LISTED]) + (", …" if len(listed) > MAX_LISTED else "")
    return f"known: {shown or 'none'}"
