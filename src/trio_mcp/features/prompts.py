"""Prompts and completions, as applications add them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from ..handlers.completions import Completions
from ..handlers.prompts.prompts import Prompts
from ..runtime.dispatch import Dispatcher, Method
from ..runtime.models.base import Icon, PaginatedRequestParams
from ..runtime.models.completion import CompleteRequestParams
from ..runtime.models.prompts import GetPromptRequestParams

__all__ = ["PromptFeatures"]

F = TypeVar("F", bound=Callable[..., Any])


class PromptFeatures:
    """The prompts of a server, and the completers for arguments."""

    _core: Dispatcher
    _prompts: Prompts
    _completions: Completions

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] | None = None,
        timeout: float | None = None,
        limit: int | None = None,
        queue: int | None = None,
    ) -> Callable[[F], F]: ...

    def prompt(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] | None = None,
        timeout: float | None = None,
        limit: int | None = None,
        queue: int | None = None,
    ) -> Any:
        """Offer a function as a prompt; a decorator with or without options.

        Its parameters are the prompt's arguments: text on the wire, read as numbers, booleans,
        ``Literal``, enumerations, dates and the like where they are annotated so. It returns text
        or a content block, which is the user's; a :class:`~trio_mcp.PromptMessage`; a list of
        these; or a whole :class:`~trio_mcp.GetPromptResult`. It is run, cancelled and recorded
        as a tool is. The function is returned unchanged.

        :param name: instead of the function's own name; printable, at most 128 characters.
        :param title: the name for people.
        :param description: instead of the docstring.
        :param icons: for user interfaces.
        :param timeout: seconds from the request's arrival after which it is cancelled with cause
            DEADLINE, and answered with an error.
        :param limit: how many requests for it may run at once, and
        :param queue: how many more may wait; as for :meth:`~trio_mcp.Server.tool`.

        Raises ``ValueError`` or ``TypeError``, at once, for what cannot be a prompt. At run time,
        raise :class:`~trio_mcp.ProtocolError` for failures that the client should read
        (specification: *Prompts*).
        """
        if function is not None and not callable(function):
            raise TypeError(f"prompt() takes a function; write prompt(name={function!r})")

        def decorate(function: F) -> F:
            prompt = self._prompts.add(
                function,
                name=name,
                title=title,
                description=description,
                icons=icons,
                timeout=timeout,
                limit=limit,
                queue=queue,
            )
            self._serve_prompts(completions=bool(prompt.arguments))
            return function

        return decorate if function is None else decorate(function)

    def remove_prompt(self, name: str) -> None:
        """Offer a prompt no more, and forget its completers. Requests that are running go on.
        Raises ``KeyError`` for no prompt."""
        self._prompts.remove(name)
        self._completions.forget_prompt(name)

    def _serve_prompts(self, *, completions: bool) -> None:
        self._core.methods.update(
            {
                "prompts/list": Method(PaginatedRequestParams, self._prompts.list),
                "prompts/get": Method(
                    GetPromptRequestParams, self._prompts.get, target="name", asks=True
                ),
            }
        )
        if completions:
            self._serve_completions()

    def completion(
        self,
        *,
        argument: str,
        prompt: str | None = None,
        resource: str | None = None,
        timeout: float | None = None,
    ) -> Callable[[F], F]:
        """Offer a function as the completer of one argument; a decorator.

        It is called with the text typed so far and, if it has a second parameter, with a dict of
        the other arguments that are known already. A parameter annotated ``Context`` gets the
        request's context. It returns a list of texts, the best first, of which at most 100 are
        sent, or a :class:`~trio_mcp.Completion`. It is run, cancelled and recorded as a tool is.
        The function is returned unchanged.

        :param argument: the prompt's argument, or the template's variable.
        :param prompt: the name of a prompt that is offered already.
        :param resource: a resource template that is offered already: ``"stock://{title}"``.
        :param timeout: as for :meth:`prompt`.

        Arguments annotated with ``Literal``, an enumeration or ``bool`` need no completer. Raises
        ``ValueError`` or ``TypeError``, at once, for an argument that there is not or that has a
        completer, and for a function that cannot be one (specification: *Completion*).
        """
        if (prompt is None) is (resource is None):
            raise TypeError("completion() takes either prompt=… or resource=…")

        def decorate(function: F) -> F:
            if prompt is not None:
                self._completions.add_for_prompt(prompt, argument, function, timeout)
            elif resource is not None:
                self._completions.add_for_template(resource, argument, function, timeout)
            self._serve_completions()
            return function

        return decorate

    def _serve_completions(self) -> None:
        self._core.methods["completion/complete"] = Method(
            CompleteRequestParams, self._completions.complete
        )
