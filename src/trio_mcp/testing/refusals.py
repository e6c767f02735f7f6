"""Why a request has failed before its handler awaited anything, and what would be right."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs
import msgspec
import trio

from ..client import Client
from ..client.connecting import connect
from ..runtime.errors import TrioMcpError
from ..server import Server
from .sweeping.options import close_to

__all__ = ["refusal"]

_Lists: TypeAlias = tuple[Callable[[Client], AsyncIterator[Any]], ...]


@attrs.frozen
class _Kind:
    """What a method asks for: its name for people, the parameter that names it, and its lists."""

    name: str
    key: str
    lists: _Lists
    named: Callable[[Any], str]


_KINDS: Final = {
    "tools/call": _Kind("tool", "name", (Client.tools,), lambda tool: tool.name),
    "prompts/get": _Kind("prompt", "name", (Client.prompts,), lambda prompt: prompt.name),
    "resources/read": _Kind(
        "resource",
        "uri",
        (Client.resources, Client.templates),
        lambda one: getattr(one, "uri", None) or one.uri_template,
    ),
}


def refusal(
    server: Server, method: str, params: Mapping[str, Any], answer: Any, failure: str | None
) -> str:
    """In words, with the name of what was asked for.

    :param answer: the message that the server has said.
    :param failure: what the runtime has logged of an exception.

    Asks the server for its lists, if they would help, in a Trio run of its own.
    """
    kind = _KINDS[method]
    name = params[kind.key]
    error = answer.get("error", {}) if isinstance(answer, dict) else {}
    why = failure or error.get("message") or _text_of(answer)
    if error and failure is None:
        names = _names(server, kind)
        # A URI that is in no list may be one of a template, and be refused for another reason.
        if name not in names and (not names or kind.key == "name" or "uri" in _data_of(error)):
            return f"the server has no {kind.name} {name!r}; {close_to(name, names)}"
    given = params.get("arguments")
    called = "" if given is None else f", called with {msgspec.json.encode(given).decode():.200},"
    return f"{name}{called} fails before it awaits: {why}"


def _names(server: Server, kind: _Kind) -> list[str]:
    """Of all that the server lists of a kind; none if it lists nothing."""
    try:
        return trio.run(_listed, server, kind)
    except TrioMcpError:
        return []


async def _listed(server: Server, kind: _Kind) -> list[str]:
    async with connect(server) as client:
        return [kind.named(one) for every in kind.lists async for one in every(client)]


def _data_of(error: dict[str, Any]) -> dict[str, Any]:
    data = error.get("data")
    return data if isinstance(data, dict) else {}


def _text_of(answer: Any) -> str:
    """Of a tool's error; of anything else, all of it."""
    try:
        return "\n".join(block["text"] for block in answer["result"]["content"])
    except (KeyError, TypeError):
        return str(answer)
