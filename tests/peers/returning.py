"""Tools that return everything a tool can return, and what has to come of it on the wire."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, TypedDict

import attrs
import msgspec

from trio_mcp import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from trio_mcp.runtime.models.base import Annotations
from trio_mcp.runtime.models.content import BlobResourceContents, TextResourceContents

__all__ = ["ABSENT", "BROKEN", "NON_FINITE", "RETURNS"]

ABSENT: Final = "there is no structured content"


@attrs.define
class Book:
    title: str
    pages: int
    price: float | None = None


@dataclasses.dataclass
class Shelf:
    name: str
    books: list[Book] = dataclasses.field(default_factory=list)


class Place(TypedDict):
    shelf: str
    row: int


class Size(NamedTuple):
    width: int
    height: int


class Order(msgspec.Struct):
    title: str
    at: datetime.date


class Genre(enum.Enum):
    SCIENCE_FICTION = "science fiction"
    POETRY = "poetry"


# Content ------------------------------------------------------------------------------------------


def text() -> str:
    return "a text, “quoted”\n"


def empty_text() -> str:
    return ""


def nothing() -> None:
    return None


def text_block() -> TextContent:
    notes = Annotations(audience=["user"], priority=0.5, last_modified="2026-07-28T12:00:00Z")
    return TextContent("a block", annotations=notes, meta={"example.com/key": [1, None]})


def image() -> ImageContent:
    return ImageContent("aGk=", "image/png")


def audio() -> AudioContent:
    return AudioContent("aGk=", "audio/wav")


def link() -> ResourceLink:
    return ResourceLink("stock://dune", "dune", size=3, mime_type="text/plain")


def embedded_text() -> EmbeddedResource:
    return EmbeddedResource(TextResourceContents("stock://dune", "three", "text/plain"))


def embedded_blob() -> EmbeddedResource:
    return EmbeddedResource(BlobResourceContents("stock://dune", "aGk="))


def blocks() -> list[TextContent | ImageContent]:
    return [TextContent("one"), ImageContent("aGk=", "image/png")]


def blocks_and_texts() -> list[TextContent | str]:
    return [TextContent("one"), "two"]


def tuple_of_blocks() -> tuple[TextContent, ResourceLink]:
    return TextContent("one"), ResourceLink("stock://dune", "dune")


def whole_result() -> CallToolResult:
    return CallToolResult(
        [TextContent("one")], structured_content={"n": 1}, is_error=False, meta={"example.com/k": 1}
    )


def whole_failure() -> CallToolResult:
    return CallToolResult([TextContent("sold out")], is_error=True)


def whole_null() -> CallToolResult:
    return CallToolResult([], structured_content=None)


def unannotated():  # type: ignore[no-untyped-def]
    return {"n": 1, "nothing": None}


def anything() -> Any:
    return [1, "two", None]


# Structured content -------------------------------------------------------------------------------


def attrs_class() -> Book:
    return Book("Dune", 412)


def dataclass() -> Shelf:
    return Shelf("A", [Book("Dune", 412, 9.5)])


def typed_dict() -> Place:
    return {"shelf": "A", "row": 2}


def named_tuple() -> Size:
    return Size(3, 4)


def struct() -> Order:
    return Order("Dune", datetime.date(2026, 7, 28))


def literal() -> Literal["yes", "no"]:
    return "yes"


def enumeration() -> Genre:
    return Genre.POETRY


def integer() -> int:
    return 2**53 + 1


def number() -> float:
    return 0.1


def boolean() -> bool:
    return False


def list_of_integers() -> list[int]:
    return [1, 2]


def list_of_texts() -> list[str]:
    return ["one", "two"]


def empty_list() -> list[Book]:
    return []


def mapping() -> dict[str, int]:
    return {"Dune": 3, "": 0}


def optional() -> int | None:
    return None


def union() -> Book | Place:
    return {"shelf": "A", "row": 2}


def moment() -> datetime.datetime:
    return datetime.datetime(2026, 7, 28, 12, 0, tzinfo=datetime.UTC)


def _text(value: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": value}]


_IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
_NOTES = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-07-28T12:00:00Z"}
_DUNE = {"uri": "stock://dune"}
_AS_TEXT: Final = None
"""The content is the structured content as JSON text."""

RETURNS: Final[list[tuple[Callable[[], Any], list[dict[str, Any]] | None, Any]]] = [
    (text, _text("a text, “quoted”\n"), ABSENT),
    (empty_text, _text(""), ABSENT),
    (nothing, [], ABSENT),
    (
        text_block,
        [{**_text("a block")[0], "annotations": _NOTES, "_meta": {"example.com/key": [1, None]}}],
        ABSENT,
    ),
    (image, [_IMAGE], ABSENT),
    (audio, [{"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}], ABSENT),
    (
        link,
        [{"type": "resource_link", "name": "dune", "size": 3, "mimeType": "text/plain", **_DUNE}],
        ABSENT,
    ),
    (
        embedded_text,
        [{"type": "resource", "resource": {**_DUNE, "text": "three", "mimeType": "text/plain"}}],
        ABSENT,
    ),
    (embedded_blob, [{"type": "resource", "resource": {**_DUNE, "blob": "aGk="}}], ABSENT),
    (blocks, [*_text("one"), _IMAGE], ABSENT),
    (blocks_and_texts, [*_text("one"), *_text("two")], ABSENT),
    (tuple_of_blocks, [*_text("one"), {"type": "resource_link", "name": "dune", **_DUNE}], ABSENT),
    (whole_result, _text("one"), {"n": 1}),
    (whole_failure, _text("sold out"), ABSENT),
    (whole_null, [], None),
    (unannotated, _text('{"n":1,"nothing":null}'), ABSENT),
    (anything, _text('[1,"two",null]'), ABSENT),
    (attrs_class, _AS_TEXT, {"title": "Dune", "pages": 412, "price": None}),
    (
        dataclass,
        _AS_TEXT,
        {"name": "A", "books": [{"title": "Dune", "pages": 412, "price": 9.5}]},
    ),
    (typed_dict, _AS_TEXT, {"shelf": "A", "row": 2}),
    (named_tuple, _AS_TEXT, [3, 4]),
    (struct, _AS_TEXT, {"title": "Dune", "at": "2026-07-28"}),
    (literal, _AS_TEXT, "yes"),
    (enumeration, _AS_TEXT, "poetry"),
    (integer, _AS_TEXT, 2**53 + 1),
    (number, _AS_TEXT, 0.1),
    (boolean, _AS_TEXT, False),
    (list_of_integers, _AS_TEXT, [1, 2]),
    (list_of_texts, _AS_TEXT, ["one", "two"]),
    (empty_list, _AS_TEXT, []),
    (mapping, _AS_TEXT, {"Dune": 3, "": 0}),
    (optional, _AS_TEXT, None),
    (union, _AS_TEXT, {"shelf": "A", "row": 2}),
    (moment, _AS_TEXT, "2026-07-28T12:00:00Z"),
]
"""Tools, the content of their results, and the structured content."""


# What cannot be sent ------------------------------------------------------------------------------


def raw_bytes() -> bytes:
    return b"the secret bytes"


def bytes_among_blocks() -> list[TextContent | bytes]:
    return [TextContent("one"), b"the secret bytes"]


def an_object() -> Any:
    return object()


def a_broken_promise() -> int:
    return "the secret text"  # type: ignore[return-value]


def an_incomplete_class() -> Place:
    return {"shelf": "the secret shelf"}  # type: ignore[typeddict-item]


def half_a_character() -> str:
    return "the secret \udc80"


def itself() -> Any:
    endless: list[Any] = []
    endless.append(endless)
    return endless


BROKEN: Final[list[Callable[[], Any]]] = [
    raw_bytes,
    bytes_among_blocks,
    an_object,
    a_broken_promise,
    an_incomplete_class,
    half_a_character,
    itself,
]
"""Tools whose result is none."""


def nan_number() -> float:
    return float("nan")


def infinite_item() -> list[float]:
    return [1.0, float("inf")]


def nan_in_class() -> Book:
    return Book("Dune", 412, float("nan"))


def nan_unannotated() -> Any:
    return {"deep": [1, {"er": float("nan")}]}


def infinite_in_result() -> CallToolResult:
    return CallToolResult([], structured_content={"n": float("-inf")})


def nan_in_meta() -> CallToolResult:
    return CallToolResult([], meta={"example.com/n": float("nan")})


def nan_in_annotations() -> TextContent:
    return TextContent("one", annotations=Annotations(priority=float("nan")))


NON_FINITE: Final[list[Callable[[], Any]]] = [
    nan_number,
    infinite_item,
    nan_in_class,
    nan_unannotated,
    infinite_in_result,
    nan_in_meta,
    nan_in_annotations,
]
"""Tools whose result has a number that JSON does not have."""
