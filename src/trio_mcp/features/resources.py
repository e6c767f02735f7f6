"""Resources, as applications add them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..handlers.caching import CacheHint
from ..handlers.completions import Completions
from ..handlers.resources.files import Directory, largest_file
from ..handlers.resources.resources import Resources
from ..runtime.dispatch import Dispatcher, Method
from ..runtime.models.base import Annotations, Icon, PaginatedRequestParams
from ..runtime.models.resources import ReadResourceRequestParams

__all__ = ["ResourceFeatures"]

F = TypeVar("F", bound=Callable[..., Any])


class ResourceFeatures:
    """The resources of a server."""

    _core: Dispatcher
    _resources: Resources
    _completions: Completions

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
        limit: int | None = None,
        queue: int | None = None,
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
        :param limit: how many may be read at once, and
        :param queue: how many more may wait; as for :meth:`~trio_mcp.Server.tool`.
        :param cache: the caching hint of what is read, instead of the server's.

        Raises ``ValueError`` or ``TypeError``, at once, for what cannot be a resource. At run time,
        raise :class:`~trio_mcp.ResourceNotFound` for what does not exist; a
        :class:`~trio_mcp.ProtocolError` is answered as it is, and any other exception is logged and
        answered as an internal error, without its details (specification: *Resources*).
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
                limit=limit,
                queue=queue,
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
