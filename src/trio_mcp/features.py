"""What a server offers: the decorators and methods that applications fill it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from .handlers.caching import CacheHint
from .handlers.completions import Completions
from .handlers.pagination import Cursors
from .handlers.prompts import Prompts
from .handlers.registry import Registry
from .handlers.tools import Tools, tool_failure
from .runtime.dispatch import Dispatcher, Method
from .runtime.models.base import (
    Icon,
    PaginatedRequestParams,
    PromptsCapability,
    ServerCapabilities,
    ToolsCapability,
)
from .runtime.models.completion import CompleteRequestParams
from .runtime.models.prompts import GetPromptRequestParams
from .runtime.models.tools import CallToolRequestParams, ToolAnnotations

__all__ = ["Features"]

E = TypeVar("E")
F = TypeVar("F", bound=Callable[..., Any])


class Features:
    """The features of a server; see :class:`~trio_mcp.Server`.

    The methods of a feature are served, and its capability is told, from the first thing that is
    added to it; tools always.
    """

    def __init__(self, core: Dispatcher, cursors: Cursors, cache: CacheHint) -> None:
        self._core = core
        self._cursors = cursors
        self._tools = Tools(self._registry("tool", "tools", self._tools_changed), cache)
        self._prompts = Prompts(self._registry("prompt", "prompts", self._prompts_changed), cache)
        self._completions = Completions(self._prompts)
        core.methods.update(
            {
                "tools/list": Method(PaginatedRequestParams, self._tools.list),
                "tools/call": Method(
                    CallToolRequestParams,
                    self._tools.call,
                    target="name",
                    recover=tool_failure,
                    mirrored=self._tools.mirrored,
                    asks=True,
                ),
            }
        )

    def _registry(self, kind: str, list_name: str, changed: Callable[[], None]) -> Registry[Any]:
        page_size = self._core.limits.page_size
        return Registry(kind, list_name, page_size, self._cursors, changed)

    def capabilities(self) -> ServerCapabilities:
        """What clients are told that this server can do, as it is now."""
        served = self._core.methods
        return ServerCapabilities(
            tools=ToolsCapability(),
            prompts=PromptsCapability() if "prompts/list" in served else None,
            logging={},
            completions={} if "completion/complete" in served else None,
        )

    # Tools ----------------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] | None = None,
        timeout: float | None = None,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Offer a function as a tool; a decorator with or without options.

        The schema comes from the signature, the description from the docstring. An ``async def``
        function runs in the request's own nursery; a plain ``def`` in a worker thread. A parameter
        annotated ``Context`` gets the request's context. The function is returned unchanged.

        :param name: instead of the function's own name.
        :param title: the name for people.
        :param description: instead of the docstring.
        :param annotations: hints for clients about what the tool does.
        :param icons: for user interfaces.
        :param timeout: seconds from the request's arrival after which it is cancelled with cause
            DEADLINE, and answered with an error.

        Raises ``ValueError`` or ``TypeError``, at once, for what cannot be a tool. At run time,
        raise :class:`~trio_mcp.ToolError` for failures that the model should read; any other
        exception is logged and answered as an internal error, without its details.
        """
        if function is not None and not callable(function):
            raise TypeError(f"tool() takes a function; write tool(name={function!r})")

        def decorate(function: F) -> F:
            self._tools.add(
                function,
                name=name,
                title=title,
                description=description,
                annotations=annotations,
                icons=icons,
                timeout=timeout,
            )
            return function

        return decorate if function is None else decorate(function)

    def remove_tool(self, name: str) -> None:
        """Offer a tool no more. Calls that are running go on. Raises ``KeyError`` for no tool."""
        self._tools.remove(name)

    def _tools_changed(self) -> None:
        """Clients that listen are told."""

    # Resources ------------------------------------------------------------------------------------

    # Prompts --------------------------------------------------------------------------------------

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

        Raises ``ValueError`` or ``TypeError``, at once, for what cannot be a prompt. At run time,
        raise :class:`~trio_mcp.ProtocolError` for failures that the client should read.
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

    def _prompts_changed(self) -> None:
        """Clients that listen are told."""

    # Completions ----------------------------------------------------------------------------------

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
        :param resource: a resource template, in its own words: ``"stock://{title}"``.
        :param timeout: as for :meth:`prompt`.

        Arguments annotated with ``Literal``, an enumeration or ``bool`` need no completer. Raises
        ``ValueError`` or ``TypeError``, at once, for an argument that there is not or that has a
        completer, and for a function that cannot be one.
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

    # Changes --------------------------------------------------------------------------------------
