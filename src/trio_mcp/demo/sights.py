"""What there is to see in the showroom: each feature once, and what has to come of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import trio

from ..client import Client
from ..client.elicitation import Elicitation
from ..client.logs import LogMessage
from ..client.subscriptions import Changes
from ..runtime.models.content import TextContent, TextResourceContents
from ..runtime.models.elicitation import ElicitResult
from ..runtime.tracing import TraceContext

__all__ = ["SIGHTS", "Sight", "Visitor"]

_TRACE_ID: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
"""That of W3C's own example; a real one is made at random."""


class Visitor:
    """Somebody who looks around, and what the shop has told of its own accord.

    ``client`` and ``changes``, those of ``stock://Dune``, are there once the shop is open.
    """

    client: Client
    changes: Changes

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.remarks: list[str] = []
        self.receipt: Any = None

    def answer(self, question: Elicitation) -> ElicitResult:
        """A real client asks its user."""
        self.questions.append(question.message)
        return question.accept({"paper": "stars"})

    def hear(self, message: LogMessage) -> None:
        self.remarks.append(f"{message.level}: {message.data}")

    async def read(self, uri: str) -> str:
        """The text of a resource."""
        contents = (await self.client.read_resource(uri)).contents
        return " ".join(part.text for part in contents if isinstance(part, TextResourceContents))

    async def look_up(self, target: str) -> dict[str, Any]:
        """What the shop says about the end of a request; ``look_up`` there says what is in it."""
        result = await self.client.call_tool("look_up", {"target": target})
        ending = result.structured_content
        return ending if isinstance(ending, dict) else {"state": result.text}


@attrs.frozen
class Sight:
    """One feature: what is asked for, who sees what comes, and what that has to be, in words."""

    feature: str
    asked: str
    see: Callable[[Visitor], Awaitable[str]]
    expected: str


# What a server offers -----------------------------------------------------------------------------


async def _resource(visitor: Visitor) -> str:
    return await visitor.read("shop://hours")


async def _template(visitor: Visitor) -> str:
    return await visitor.read("stock://Dune")


async def _prompt(visitor: Visitor) -> str:
    prompt = await visitor.client.get_prompt("recommend", {"liked": "Dune"})
    contents = [message.content for message in prompt.messages]
    return " ".join(content.text for content in contents if isinstance(content, TextContent))


async def _completion(visitor: Visitor) -> str:
    found = await visitor.client.complete(prompt="recommend", argument="liked", value="d")
    return ", ".join(found.values)


async def _pages(visitor: Visitor) -> str:
    names = [tool.name async for tool in visitor.client.tools()]
    pages = sum(record.method == "tools/list" for record in visitor.client.journal)
    return f"{', '.join(names)}; {pages} pages"


# One order, and what comes of it ------------------------------------------------------------------


async def _question(visitor: Visitor) -> str:
    trace = TraceContext(f"00-{_TRACE_ID}-00f067aa0ba902b7-01")
    result = await visitor.client.call_tool("order", {"title": "Dune"}, trace=trace)
    visitor.receipt = result.structured_content
    return f"the shop asks: {' '.join(visitor.questions)}"


async def _structured_output(visitor: Visitor) -> str:
    return json.dumps(visitor.receipt, default=repr)


async def _log(visitor: Visitor) -> str:
    return ", ".join(visitor.remarks)


async def _subscription(visitor: Visitor) -> str:
    async for change in visitor.changes:
        return f"told; now {await visitor.read(change.uri or '')}"
    return "the subscription has ended"


async def _trace(visitor: Visitor) -> str:
    here = {record.trace_id for record in visitor.client.journal if record.target == "order"}
    there = (await visitor.look_up("order")).get("trace")
    both = here == {there} == {_TRACE_ID}
    return "in both sides' journals" if both else f"here {here}, there {there}"


# Cancellation, and the end ------------------------------------------------------------------------


async def _cancellation(visitor: Visitor) -> str:
    """Given up at the first sign of progress: there is no doubt that the work had begun."""
    uri = "catalogue://1904"
    with trio.CancelScope() as reading:
        await visitor.client.read_resource(uri, on_progress=lambda _: reading.cancel("enough"))
    ending = await visitor.look_up(uri)
    state, cleanup = ending["state"], ending.get("cleanup")
    well = reading.cancelled_caught and (state, cleanup) == ("cancelled", "clean")
    became = "stopped, cleaned up" if well else f"{state}, clean-up {cleanup}"
    return f"{became}; {await visitor.read('shop://cellar')}"


async def _closing(visitor: Visitor) -> str:
    await visitor.client.call_tool("close_shop")
    further = [change async for change in visitor.changes]
    return f"{len(further)} more changes" if further else "the subscription ended in order"


SIGHTS: Final = (
    Sight("resource", "shop://hours", _resource, "9 to 17, but not on Sundays"),
    Sight("template", "stock://Dune", _template, '{"title":"Dune","copies":3}'),
    Sight("prompt", "recommend, liked: Dune", _prompt, "After Dune: Emma, Ulysses, Dracula?"),
    Sight("completion", "recommend, liked: d…", _completion, "Dune, Dracula"),
    Sight("pages", "tools, two a page", _pages, "order, look_up, close_shop; 2 pages"),
    Sight("question", "order Dune", _question, "the shop asks: A gift? Which paper?"),
    Sight(
        "structured",
        "its receipt, as JSON",
        _structured_output,
        '{"title": "Dune", "paper": "stars"}',
    ),
    Sight("log", "notice and above, of that", _log, "notice: 2 copies of Dune are left"),
    Sight(
        "subscription",
        "stock://Dune, meanwhile",
        _subscription,
        'told; now {"title":"Dune","copies":2}',
    ),
    Sight("trace", f"{_TRACE_ID[:16]}…", _trace, "in both sides' journals"),
    Sight(
        "cancellation",
        "catalogue://1904, given up",
        _cancellation,
        "stopped, cleaned up; the light is off",
    ),
    Sight("closing time", "close_shop", _closing, "the subscription ended in order"),
)
"""In the order in which they are visited. In words of at most 14, 28 and 38 columns."""
