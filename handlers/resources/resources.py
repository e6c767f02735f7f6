"""``resources/list``, ``resources/templates/list`` and ``resources/read``. Specification:
*Resources*.

A URI is looked for among the resources first, as it is, character by character; then among the
directories, each of which has all URIs that begin with its own; then among the templates, in the
order in which they were added. A template whose variables do not fit what the function takes does
not match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import attrs

from ...runtime.context import Context
from ...runtime.errors import ErrorCode, ProtocolError, ResourceNotFound
from ...runtime.limits import Limits
from ...runtime.models.base import Annotations, Icon, PaginatedRequestParams
from ...runtime.models.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from ..caching import CacheHint, check_cache
from ..pagination import Cursors
from ..registry import Registry
from ..soundness import check_options, check_sendable, check_timeout, limit_of
from .contents import Contents, bytes_contents, text_contents
from .directories import ServedDirectory
from .files import Directory
from .functions import ResourceFunction
from .uri_templates import UriTemplate

__all__ = ["RegisteredResource", "RegisteredTemplate", "Resources"]

_LIST: Final = "resources"
_URI: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.\-]*:(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*"
)


@attrs.frozen(eq=False)
class RegisteredResource:
    """A resource with what it is read from: the function behind it, or the result itself."""

    definition: Resource
    source: ResourceFunction | ReadResourceResult


@attrs.frozen(eq=False)
class RegisteredTemplate:
    """A template with the function that reads what matches it."""

    definition: ResourceTemplate
    template: UriTemplate
    source: ResourceFunction


class _Place(NamedTuple):
    """Where a page of ``resources/list`` begins: after the resource with this place, and after this
    path in the directory with that place (empty: with its first file)."""

    resource: int = 0
    directory: int = 0
    path: str = ""


class Resources:
    """The resources of one server.

    :param cache: the hint of lists, and of what is read if it has none of its own.
    """

    def __init__(
        self,
        resources: Registry[RegisteredResource],
        directories: Registry[ServedDirectory],
        templates: Registry[RegisteredTemplate],
        cursors: Cursors,
        cache: CacheHint,
        limits: Limits,
    ) -> None:
        self._resources = resources
        self._directories = directories
        self._templates = templates
        self._cursors = cursors
        self._cache = cache
        self._limits = limits

    def variables_of(self, text: str) -> Sequence[str] | None:
        """The variables of the template with this text; none of a resource's URI, and ``None`` if
        there is neither."""
        template = self._templates.get(text)
        if template is not None:
            return template.template.variables
        return () if text in self._resources else None

    # What the application adds and removes --------------------------------------------------------

    def add(
        self,
        uri: str,
        function: Callable[..., Any],
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
    ) -> None:
        """Add a function for a URI, or for a URI template: that is one with a ``{`` in it.

        Raises ``ValueError`` or ``TypeError`` for what cannot be a resource.
        """
        check_cache(cache)
        template = UriTemplate(uri) if "{" in uri or "}" in uri else None
        self._check_uri(uri, template)
        source = ResourceFunction.of(
            function,
            template,
            timeout=timeout,
            limit=limit_of(limit, queue, self._limits.function_queue),
            mime_type=mime_type,
            cache=cache or self._cache,
        )
        name = name if name is not None else getattr(function, "__name__", None)
        if not name:
            raise ValueError(f"the resource {uri!r} has no name; pass name=…")
        check_options(annotations=annotations, kind=Annotations, icons=icons)
        words: dict[str, Any] = {
            "title": title,
            "description": source.description if description is None else description,
            "mime_type": mime_type,
            "annotations": annotations,
            "icons": list(icons) if icons else None,
        }
        if template is None:
            self._add(RegisteredResource(Resource(uri, name, size=size, **words), source))
            return
        if size is not None:
            raise ValueError(f"{uri!r} is a template; what matches it has no size in common")
        definition = ResourceTemplate(uri, name, **words)
        check_sendable(definition, f"resource {uri!r}")
        self._templates.add(uri, RegisteredTemplate(definition, template, source))

    def add_content(
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
        """Add what is always the same. Raises ``ValueError`` or ``TypeError`` for what is none."""
        check_cache(cache)
        self._check_uri(uri, None)
        contents: Contents
        if isinstance(content, str):
            contents, size = text_contents(content, uri, mime_type), len(content.encode())
        elif isinstance(content, (bytes, bytearray, memoryview)):
            contents = bytes_contents(content, uri, mime_type)
            size = memoryview(content).nbytes
        else:
            raise TypeError(f"content is text or bytes, not {type(content).__name__}")
        cache = cache or self._cache
        check_options(annotations=annotations, kind=Annotations, icons=icons)
        definition = Resource(
            uri=uri,
            name=name or uri.rstrip("/").rpartition("/")[2] or uri,
            title=title,
            description=description,
            mime_type=contents.mime_type,
            size=size,
            icons=list(icons) if icons else None,
            annotations=annotations,
        )
        result = ReadResourceResult([contents], ttl_ms=cache.ttl_ms, cache_scope=cache.scope)
        self._add(RegisteredResource(definition, result))

    def add_directory(
        self,
        files: Directory,
        *,
        annotations: Annotations | None = None,
        timeout: float | None = None,
        cache: CacheHint | None = None,
    ) -> None:
        """Add the files of a directory. Raises ``ValueError`` where two directories overlap."""
        check_timeout(timeout)
        check_cache(cache)
        check_options(annotations=annotations, kind=Annotations)
        for other in self._directories:
            if files.uri.startswith(other.uri) or other.uri.startswith(files.uri):
                raise ValueError(f"{files.uri!r} and {other.uri!r} overlap; give them other URIs")
        directory = ServedDirectory(
            files, annotations or Annotations(), timeout, cache or self._cache
        )
        check_sendable(directory.annotations, f"directory {files.uri!r}")
        self._directories.add(files.uri, directory)

    def remove(self, uri: str) -> None:
        self._resources.remove(uri)

    def remove_template(self, uri_template: str) -> None:
        self._templates.remove(uri_template)

    def remove_directory(self, uri: str) -> None:
        self._directories.remove(uri)

    def _add(self, resource: RegisteredResource) -> None:
        check_sendable(resource.definition, f"resource {resource.definition.uri!r}")
        self._resources.add(resource.definition.uri, resource)

    def _check_uri(self, uri: str, template: UriTemplate | None) -> None:
        if template is None and not _URI.fullmatch(uri):
            raise ValueError(
                f"{uri!r} is no URI: it begins with a scheme, as in 'config://app', and other "
                "characters than those of URIs are percent-encoded"
            )
        if len(uri) > self._limits.uri_length:
            raise ValueError(
                f"a URI has at most {self._limits.uri_length} characters (Limits.uri_length)"
            )

    # Methods of the protocol ----------------------------------------------------------------------

    async def list(self, ctx: Context, params: PaginatedRequestParams) -> ListResourcesResult:
        """Resources in the order in which they were added, then the files of each directory."""
        place = _Place()
        if params.cursor is not None:
            place = self._cursors.open(_LIST, params.cursor, _Place)
        size = self._limits.page_size
        added = self._resources.after(place.resource)
        found = [resource.definition for _, resource in added[:size]]
        if found:
            place = place._replace(resource=added[len(found) - 1][0])
        if len(added) > size:
            return self._page(found, place)
        for at, directory in self._directories.after(place.directory - 1):
            if at != place.directory:
                place = place._replace(directory=at, path="")
            if len(found) == size:
                return self._page(found, place)
            page = await directory.list(ctx, place.path, size - len(found))
            found += [file for file in page.resources if file.uri not in self._resources]
            if page.last is not None:
                return self._page(found, place._replace(path=page.last))
        return self._page(found, None)

    def _page(self, found: Sequence[Resource], after: _Place | None) -> ListResourcesResult:
        return ListResourcesResult(
            [*found],
            next_cursor=None if after is None else self._cursors.seal(_LIST, after),
            ttl_ms=self._cache.ttl_ms,
            cache_scope=self._cache.scope,
        )

    async def list_templates(
        self, ctx: Context, params: PaginatedRequestParams
    ) -> ListResourceTemplatesResult:
        page, next_cursor = self._templates.page(params.cursor)
        return ListResourceTemplatesResult(
            [template.definition for template in page],
            next_cursor=next_cursor,
            ttl_ms=self._cache.ttl_ms,
            cache_scope=self._cache.scope,
        )

    async def read(self, ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        uri = params.uri
        if len(uri) > self._limits.uri_length:
            raise ProtocolError(
                ErrorCode.INVALID_PARAMS,
                f"Invalid params: params.uri: longer than {self._limits.uri_length}",
            )
        try:
            return await self._read(ctx, uri)
        except ResourceNotFound as error:
            if error.data is None:
                raise ResourceNotFound(uri) from error
            raise

    async def _read(self, ctx: Context, uri: str) -> ReadResourceResult:
        resource = self._resources.get(uri)
        if resource is not None:
            if isinstance(resource.source, ReadResourceResult):
                return resource.source
            arguments = resource.source.arguments.bind(uri, {})
            return await resource.source.read(ctx, resource.definition.name, uri, arguments or {})
        for directory in self._directories:
            if uri.startswith(directory.uri):
                return await directory.read(ctx, uri)
        for template in self._templates:
            values = template.template.match(uri)
            arguments = None if values is None else template.source.arguments.bind(uri, values)
            if arguments is not None:
                name = template.definition.name
                return await template.source.read(ctx, name, uri, arguments)
        raise ResourceNotFound(uri)
