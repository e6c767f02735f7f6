"""Arguments of a tool that callers repeat as HTTP headers: ``x-mcp-header`` in its input schema.

Both sides read it by the same rules: a server refuses to register a tool that breaks them, a client
leaves it out of its list. Specification: *Tools*, "x-mcp-header"; *Streamable HTTP*, "Custom
Headers from Tool Parameters".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

__all__ = ["HEADER_KEYWORD", "MirroredParameter", "mirrored_parameters"]

HEADER_KEYWORD: Final = "x-mcp-header"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES: Final = ("string", "integer", "boolean")
_VALUES: Final = ("const", "default", "enum", "example", "examples")
_NAMED_SCHEMAS: Final = (
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
)

_Path: TypeAlias = tuple[str, ...]


@attrs.frozen
class MirroredParameter:
    """``path`` leads to the value in a call's arguments that ``header`` repeats."""

    header: str
    path: _Path

    def value_in(self, arguments: Any) -> Any:
        """The value in these arguments, ``None`` if there is none."""
        value = arguments
        for name in self.path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value


def mirrored_parameters(schema: Mapping[str, Any]) -> tuple[MirroredParameter, ...]:
    """What a tool's input schema wants mirrored. Raises ``ValueError`` where it may not be."""
    found: dict[str, MirroredParameter] = {}
    for path, part in _parts(schema):
        if HEADER_KEYWORD not in part:
            continue
        header = part[HEADER_KEYWORD]
        if not path:
            raise ValueError(
                f"x-mcp-header {header!r} is on something else than a parameter, or a property of "
                "one that is an object in the schema itself (a part of a union or a list is not)"
            )
        where = ".".join(path)
        if not isinstance(header, str) or not _TOKEN.fullmatch(header):
            raise ValueError(f"x-mcp-header of {where} is no name of a header: {header!r}")
        if part.get("type") not in _TYPES:
            raise ValueError(
                f"x-mcp-header is for strings, integers and booleans, and {where} is none"
            )
        if header.lower() in found:
            raise ValueError(f"x-mcp-header {header!r} is there twice (case does not count)")
        found[header.lower()] = MirroredParameter(f"Mcp-Param-{header}", path)
    return tuple(found.values())


def _parts(schema: Any) -> Iterator[tuple[_Path | None, Mapping[str, Any]]]:
    """Every schema in a schema; its path, or ``None`` if not only ``properties`` lead to it.

    Whatever is not plainly a value counts as a schema, below unknown keywords too: an annotation
    "anywhere else" is not allowed, and a ``$ref`` may lead anywhere. No recursion: a server decides
    how deep it is.
    """
    rest: list[tuple[_Path | None, Any]] = [((), schema)]
    while rest:
        path, part = rest.pop()
        if not isinstance(part, Mapping):
            continue
        yield path, part
        for key, value in part.items():
            if key == "properties" and isinstance(value, Mapping):
                rest += [
                    (None if path is None else (*path, name), inner)
                    for name, inner in value.items()
                ]
            elif key in _NAMED_SCHEMAS and isinstance(value, Mapping):
                rest += [(None, inner) for inner in value.values()]
            elif isinstance(value, list) and key not in _VALUES:
                rest += [(None, inner) for inner in value]
            elif key not in _VALUES:
                rest.append((None, value))
