"""What a server offers: the decorators and methods that applications fill it with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from .handlers.caching import CacheHint
from .handlers.completions import Completions
from .handlers.files import Directory, largest_file
from .handlers.pagination import Cursors
from .handlers.prompts import Prompts
from .handlers.registry import Registry
from .handlers.resources import Resources
from .handlers.tools import Tools, tool_failure
from .runtime.dispatch import Dispatcher, Method
from .runtime.models.base import (
    Annotations,
    Icon,
    PaginatedRequestParams,
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    ToolsCapability,
)
from .runtime.models.completion import CompleteRequestParams
from .runtime.models.prompts import GetPromptRequestParams
from .runtime.models.resources import ReadResourceRequestParams
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
        self._tools = Tools(
            self._registry("tool", "tools", self._tools_changed), cache, core.limits
        )
        self._prompts = Prompts(self._registry("prompt", "prompts", self._prompts_changed), cache)
        self._resources = Resources(
            self._registry("resource", "resources", self._resources_changed),
            self._registry("directory", "directories", self._resources_changed),
            self._registry("template", "templates", self._resources_changed),
            cursors,
            cache,
            core.limits,
        )
        self._completions = Completions(self._prompts, self._resources.variables_of)
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
            resources=ResourcesCapability() if "resources/list" in served else None,
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
        meta: Mapping[str, Any] | None = None,
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
        meta: Mapping[str, Any] | None = None,
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
        :param meta: ``_meta`` of the tool's definition.
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
                meta=meta,
                timeout=timeout,
            )
            return function

        return decorate if function is None else decorate(function)

    def add_tool(
        self,
        function: Callable[..., Any],
        /,
        *,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Offer a function as a tool, also while the server is served. See :meth:`tool`.

        :param input_schema: JSON Schema of the arguments, published as it is, instead of one from
            the signature. The function takes all arguments in one parameter, of any name, as a
            ``dict``, and may have a context besides. ``"type"`` must be ``"object"``.
        :param output_schema: JSON Schema of the structured content, published as it is, instead of
            one from the return annotation. Any JSON value may be structured content.

        Raises ``ValueError`` or ``TypeError``, at once, for what cannot be a tool.

        Schemas are of JSON Schema 2020-12, or 2019-09 or draft-07 if ``$schema`` says so. They are
        bounded by ``Limits.schema_bytes``, ``schema_depth`` and ``schema_visits``, the values they
        are for by ``value_depth``. References to other documents are refused, never fetched, and so
        are patterns that cannot be matched in linear time.
        """
        self._tools.add(
            function,
            name=name,
            title=title,
            description=description,
            annotations=annotations,
            icons=icons,
            meta=meta,
            timeout=timeout,
            input_schema=input_schema,
            output_schema=output_schema,
        )

    def remove_tool(self, name: str) -> None:
        """Offer a tool no more. Calls that are running go on. Raises ``KeyError`` for no tool."""
        self._tools.remove(name)

    def _tools_changed(self) -> None:
        """Clients that listen are told."""

    # Resources ------------------------------------------------------------------------------------

    def resource(
        self,
        uri: str,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        annotations: Annotations | None = None,
        size: int | None = None,
        icons: Sequence[Icon] | None = None,
        timeout: float | None = None,
        cache: CacheHint | None = None,
    ) -> Callable[[F], F]:
        """Offer a function as a resource, or as the resources of a URI template; a decorator.

        A template, such as ``"stock://{title}"``, has variables, and the function a parameter for
        each: text, read as numbers, booleans, ``Literal``, enumerations, dates and the like where
        it is annotated so. A parameter ``uri``, if it is no variable, gets the whole URI, one
        annotated ``Context`` the request's context. The function is run, cancelled and recorded as
        a tool is, and returned unchanged.

        It returns text; bytes; :class:`~trio_mcp.TextResourceContents` or
        :class:`~trio_mcp.BlobResourceContents`, or a list of these; a whole
        :class:`~trio_mcp.ReadResourceResult`; anything else becomes JSON text.

        :param name: instead of the function's own name.
        :param title: the name for people.
        :param description: instead of the docstring.
        :param mime_type: of what is returned; else ``text/plain``, ``application/octet-stream`` or
            ``application/json``.
        :param annotations: hints for clients about who it is for and how important it is.
        :param size: in bytes, before base64; not for a template.
        :param icons: for user interfaces.
        :param timeout: seconds from the request's arrival after which it is cancelled with cause
            DEADLINE, and answered with an error.
        :param cache: the caching hint of what is read, instead of the server's.

        Raises ``ValueError`` or ``TypeError``, at once, for what cannot be a resource. At run time,
        raise :class:`~trio_mcp.ResourceNotFound` for what does not exist; a
        :class:`~trio_mcp.ProtocolError` is answered as it is, and any other exception is logged and
        answered as an internal error, without its details.
        """
        if not isinstance(uri, str):
            raise TypeError('resource() takes a URI; write @server.resource("config://app")')

        def decorate(function: F) -> F:
            self._resources.add(
                uri,
                function,
                name=name,
                title=title,
                description=description,
                mime_type=mime_type,
                annotations=annotations,
                size=size,
                icons=icons,
                timeout=timeout,
                cache=cache,
            )
            self._serve_resources()
            return function

        return decorate

    def add_resource(
        self,
        uri: str,
        content: str | bytes,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        annotations: Annotations | None = None,
        icons: Sequence[Icon] | None = None,
        cache: CacheHint | None = None,
    ) -> None:
        """Offer text or bytes that stay the same as a resource.

        The parameters are those of :meth:`resource`; ``name`` is the end of the URI unless given.
        To change it, remove it and add it again.
        """
        self._resources.add_content(
            uri,
            content,
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            annotations=annotations,
            icons=icons,
            cache=cache,
        )
        self._serve_resources()

    def add_directory(
        self,
        path: str | os.PathLike[str],
        *,
        uri: str | None = None,
        include: Sequence[str] | None = None,
        hidden: bool = False,
        annotations: Annotations | None = None,
        timeout: float | None = None,
        cache: CacheHint | None = None,
    ) -> None:
        """Offer the files of a directory, and of those below it, as resources.

        They are listed and read in worker threads, as they are at that moment. Only regular files
        below ``path`` are served, without following links, and never anything else, whatever a
        URI says. Text is what is UTF-8, everything else is sent as binary. At most
        ``Limits.directory_entries`` files are listed; all can be read that fit into a message.

        :param uri: what the URIs begin with, ending in ``/``, such as ``"docs:///"``; the ``file:``
            URI of ``path`` unless given, which tells clients where it is.
        :param include: patterns such as ``"*.md"``; the name of a file must match one of them.
        :param hidden: whether names that begin with a dot are served, too.
        :param annotations: of all files; ``last_modified`` is each file's own.
        :param timeout: as for :meth:`resource`, of reading a file.
        :param cache: as for :meth:`resource`.

        Raises ``OSError`` if ``path`` cannot be opened as a directory, ``ValueError`` for a URI
        that is none or overlaps with that of another directory, and ``NotImplementedError`` on
        systems where files cannot be opened safely (Windows).
        """
        limits = self._core.limits
        if isinstance(include, str):
            raise TypeError(f"include is a list of patterns, such as [{include!r}]")
        files = Directory(
            path,
            uri=uri,
            include=None if include is None else [*include],
            hidden=hidden,
            max_bytes=largest_file(limits.message_bytes),
            max_entries=limits.directory_entries,
        )
        self._resources.add_directory(files, annotations=annotations, timeout=timeout, cache=cache)
        self._serve_resources()

    def remove_resource(self, uri: str) -> None:
        """Offer a resource no more. Reads that are running go on. Raises ``KeyError`` for none."""
        self._resources.remove(uri)

    def remove_resource_template(self, uri_template: str) -> None:
        """Offer a template no more, named by its text, and forget its completers. Raises
        ``KeyError`` for none."""
        self._resources.remove_template(uri_template)
        self._completions.forget_template(uri_template)

    def remove_directory(self, uri: str) -> None:
        """Offer a directory no more, named by its URI. Raises ``KeyError`` for none."""
        self._resources.remove_directory(uri)

    def _serve_resources(self) -> None:
        resources = self._resources
        self._core.methods.update(
            {
                "resources/list": Method(PaginatedRequestParams, resources.list),
                "resources/templates/list": Method(
                    PaginatedRequestParams, resources.list_templates
                ),
                "resources/read": Method(
                    ReadResourceRequestParams, resources.read, target="uri", asks=True
                ),
            }
        )

    def _resources_changed(self) -> None:
        """Clients that listen are told."""

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
        :param resource: a resource template that is offered already: ``"stock://{title}"``.
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
