"""Resources: listed in pages, found by URI, read by functions, from memory and from directories."""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import json
import logging
import math
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypedDict

import attrs
import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.peers.checked import check_schema, checked_client
from tests.peers.raw import RawPeer, cancel, request, until
from tests.peers.raw_http import HttpPeer, Response, post

from trio_mcp import (
    Annotations,
    BlobResourceContents,
    CacheHint,
    CancelSource,
    Context,
    Icon,
    Limits,
    ProtocolError,
    ReadResourceResult,
    ResourceNotFound,
    Server,
    State,
    TextResourceContents,
)
from trio_mcp.handlers.resources.files import Directory

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
BLOB = base64.b64encode(PNG).decode()


def make_server(**options: Any) -> Server:
    server = Server("resources", version="1", **options)

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


async def ask(peer: RawPeer, method: str, **params: Any) -> Any:
    """The result of a request."""
    answer = await answer_to(peer, method, **params)
    assert "result" in answer, answer
    return answer["result"]


async def refused(peer: RawPeer, method: str, **params: Any) -> Any:
    """The error of a request."""
    answer = await answer_to(peer, method, **params)
    assert "error" in answer, answer
    return answer["error"]


async def answer_to(peer: RawPeer, method: str, **params: Any) -> Any:
    request_id = f"r{len(peer.seen)}"
    await peer.send(request(request_id, method, params))
    return await peer.answer(request_id)


async def read(peer: RawPeer, uri: str) -> Any:
    """The only contents of a resource."""
    (contents,) = (await ask(peer, "resources/read", uri=uri))["contents"]
    return contents


async def text_of(peer: RawPeer, uri: str) -> Any:
    return (await read(peer, uri))["text"]


async def pages(peer: RawPeer, method: str = "resources/list") -> list[list[str]]:
    """The URIs of each page."""
    key = "resourceTemplates" if "templates" in method else "resources"
    uri = "uriTemplate" if "templates" in method else "uri"
    found: list[list[str]] = []
    params: dict[str, str] = {}
    while True:
        result = await ask(peer, method, **params)
        found.append([entry[uri] for entry in result[key]])
        if "nextCursor" not in result:
            return found
        params = {"cursor": result["nextCursor"]}
        assert len(found) < 1000


def not_found(uri: str) -> Any:
    return {"code": -32602, "message": "Resource not found", "data": {"uri": uri}}


# What is told ------------------------------------------------------------------------------------


async def test_a_server_without_resources_has_no_such_methods_until_the_first_one_comes() -> None:
    server = make_server()
    async with checked_client(server) as peer:
        assert "resources" not in (await ask(peer, "server/discover"))["capabilities"]
        for method in ("resources/list", "resources/templates/list"):
            assert (await refused(peer, method))["code"] == -32601
        assert (await refused(peer, "resources/read", uri="a:b"))["code"] == -32601

        server.add_resource("config://app", "on")
        assert (await ask(peer, "server/discover"))["capabilities"]["resources"] == {
            "subscribe": True,
            "listChanged": True,
        }
        assert await pages(peer) == [["config://app"]]
        assert await pages(peer, "resources/templates/list") == [[]]

        server.remove_resource("config://app")
        assert await pages(peer) == [[]]
        assert await refused(peer, "resources/read", uri="config://app") == not_found(
            "config://app"
        )


async def test_a_definition_says_all_that_was_given_and_what_the_function_says() -> None:
    server = make_server()

    @server.resource("config://app")
    async def config() -> str:
        """How the application is set up."""
        return ""

    @server.resource(
        "logo://app",
        name="logo.png",
        title="The logo",
        description="Drawn by hand.",
        mime_type="image/png",
        annotations=Annotations(audience=["user"], priority=0.5),
        size=10,
        icons=[Icon("https://example.com/icon.png")],
    )
    def logo() -> bytes:
        """Not told."""
        return PNG

    @server.resource("stock://{title}{?branch}", title="Stock", mime_type="text/plain")
    async def stock(title: str, branch: str = "north") -> str:
        """Copies of a book.

        Args:
            title: Which book.
        """
        return ""

    async with checked_client(server) as peer:
        assert (await ask(peer, "resources/list"))["resources"] == [
            {
                "uri": "config://app",
                "name": "config",
                "description": "How the application is set up.",
            },
            {
                "uri": "logo://app",
                "name": "logo.png",
                "title": "The logo",
                "description": "Drawn by hand.",
                "mimeType": "image/png",
                "annotations": {"audience": ["user"], "priority": 0.5},
                "size": 10,
                "icons": [{"src": "https://example.com/icon.png"}],
            },
        ]
        assert (await ask(peer, "resources/templates/list"))["resourceTemplates"] == [
            {
                "uriTemplate": "stock://{title}{?branch}",
                "name": "stock",
                "title": "Stock",
                "description": "Copies of a book.",
                "mimeType": "text/plain",
            }
        ]


async def test_fixed_contents_tell_their_name_type_and_size() -> None:
    server = make_server()
    server.add_resource("docs:///guide/first.md", "Grüße", mime_type="text/markdown")
    server.add_resource("docs:///logo", PNG, name="logo")
    async with checked_client(server) as peer:
        assert (await ask(peer, "resources/list"))["resources"] == [
            {
                "uri": "docs:///guide/first.md",
                "name": "first.md",
                "mimeType": "text/markdown",
                "size": 7,
            },
            {
                "uri": "docs:///logo",
                "name": "logo",
                "mimeType": "application/octet-stream",
                "size": 10,
            },
        ]
        assert await read(peer, "docs:///guide/first.md") == {
            "uri": "docs:///guide/first.md",
            "mimeType": "text/markdown",
            "text": "Grüße",
        }
        assert await read(peer, "docs:///logo") == {
            "uri": "docs:///logo",
            "mimeType": "application/octet-stream",
            "blob": BLOB,
        }


def named(**parameters: Any) -> Callable[..., Any]:
    """A function with these parameters."""
    source = f"def function({', '.join(parameters)}): ..."
    space: dict[str, Any] = {}
    exec(source, space)
    function: Callable[..., Any] = space["function"]
    function.__annotations__ = parameters
    return function


@pytest.mark.parametrize(
    ("uri", "parameters", "options", "words"),
    [
        ("app", {}, {}, "is no URI"),
        ("config://a b", {}, {}, "is no URI"),
        ("config://ü", {}, {}, "is no URI"),
        ("config://%zz", {}, {}, "is no URI"),
        ("config://" + "x" * 8192, {}, {}, "at most 8192"),
        ("config://app", {"title": str}, {}, "'title' is no variable"),
        ("stock://{title}", {}, {}, "'title' of the URI is no parameter"),
        ("stock://{title}", {"title": str, "more": str}, {}, "'more' is no variable"),
        ("stock://{title}", {"title": dict[str, str]}, {}, "'title' cannot be a variable"),
        ("stock://{title}", {"title": list[str]}, {}, "'title' cannot be a variable"),
        ("stock://{titles*}", {"titles": str}, {}, "annotate it list"),
        ("stock://{title}", {"title": str, "uri": int}, {}, "'uri' takes the URI"),
        ("stock://{title}", {"title": str}, {"size": 3}, "no size"),
        ("stock://{title", {"title": str}, {}, "cannot stand"),
        ("config://app", {}, {"timeout": 0}, "more than 0"),
        ("config://app", {}, {"name": ""}, "no name"),
        ("config://app", {}, {"description": "\udcff"}, "cannot be sent"),
        ("taken://app", {}, {}, "already"),
        ("taken://{name}", {"name": str}, {}, "already"),
    ],
)
def test_what_cannot_be_a_resource_is_refused_at_once(
    uri: str, parameters: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    server = make_server()
    server.add_resource("taken://app", "")
    server.resource("taken://{name}")(named(name=str))
    with pytest.raises(ValueError, match=words):
        server.resource(uri, **options)(named(**parameters))


def test_what_is_given_in_the_wrong_place_is_refused_with_words() -> None:
    server = make_server()
    with pytest.raises(TypeError, match=r'@server.resource\("config://app"\)'):
        server.resource(named())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="text or bytes"):
        server.add_resource("config://app", {"a": 1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is no URI"):
        server.add_resource("app", "")
    for remove in (server.remove_resource, server.remove_resource_template):
        with pytest.raises(KeyError, match="no"):
            remove("config://app")
    with pytest.raises(KeyError, match="no directory"):
        server.remove_directory("config://app")


# What is read ------------------------------------------------------------------------------------


@attrs.frozen
class Book:
    title: str


@dataclasses.dataclass
class Shelf:
    books: list[Book]


class Row(TypedDict):
    title: str


class Branch(msgspec.Struct):
    name: str


class Text(str):
    def __str__(self) -> str:
        return "not this"


URI = "any://thing"
PLAIN = {"uri": URI, "mimeType": "text/plain"}
BINARY = {"uri": URI, "mimeType": "application/octet-stream"}
JSON = {"uri": URI, "mimeType": "application/json"}


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("text", [{**PLAIN, "text": "text"}]),
        ("", [{**PLAIN, "text": ""}]),
        (Text("text"), [{**PLAIN, "text": "text"}]),
        (PNG, [{**BINARY, "blob": BLOB}]),
        (b"", [{**BINARY, "blob": ""}]),
        (bytearray(PNG), [{**BINARY, "blob": BLOB}]),
        (memoryview(PNG)[:4], [{**BINARY, "blob": base64.b64encode(PNG[:4]).decode()}]),
        ({"a": [1, None]}, [{**JSON, "text": '{"a":[1,null]}'}]),
        ([], [{**JSON, "text": "[]"}]),
        (["a", "b"], [{**JSON, "text": '["a","b"]'}]),
        (7, [{**JSON, "text": "7"}]),
        (False, [{**JSON, "text": "false"}]),
        (Book("Dune"), [{**JSON, "text": '{"title":"Dune"}'}]),
        (Shelf([Book("Dune")]), [{**JSON, "text": '{"books":[{"title":"Dune"}]}'}]),
        (Row(title="Dune"), [{**JSON, "text": '{"title":"Dune"}'}]),
        (Branch("north"), [{**JSON, "text": '{"name":"north"}'}]),
        ({1: Path("/a")}, [{**JSON, "text": '{"1":"/a"}'}]),
        (TextResourceContents("other://x", "t"), [{"uri": "other://x", "text": "t"}]),
        (
            [TextResourceContents("a:b", "t"), BlobResourceContents("a:c", BLOB, "image/png")],
            [
                {"uri": "a:b", "text": "t"},
                {"uri": "a:c", "blob": BLOB, "mimeType": "image/png"},
            ],
        ),
        (ReadResourceResult([]), []),
    ],
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_what_is_returned_becomes_contents(
    value: Any, contents: list[Any], in_thread: bool
) -> None:
    server = make_server()

    async def read_it() -> Any:
        return value

    def read_in_thread() -> Any:
        return value

    server.resource(URI, name="thing")(read_in_thread if in_thread else read_it)
    async with checked_client(server) as peer:
        assert (await ask(peer, "resources/read", uri=URI))["contents"] == contents


async def test_a_mime_type_is_that_of_whatever_is_returned() -> None:
    server = make_server()
    for name, value in {"text": "a,b", "bytes": PNG, "json": {"a": 1}}.items():
        server.resource(f"{name}://x", name=name, mime_type="test/type")(
            functools.partial(lambda value: value, value)
        )
    async with checked_client(server) as peer:
        for name in ("text", "bytes", "json"):
            assert (await read(peer, f"{name}://x"))["mimeType"] == "test/type"


@pytest.mark.parametrize(
    "value",
    [None, math.nan, {"a": math.inf}, object(), [TextResourceContents("a:b", ""), "b"], "\udcff"],
)
async def test_what_cannot_be_contents_is_an_internal_error(
    value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()

    @server.resource(URI)
    async def thing() -> Any:
        return value

    async with checked_client(server) as peer:
        assert (await refused(peer, "resources/read", uri=URI))["code"] == -32603
        assert await peer.probe() == []
    assert caplog.records


class Genre(enum.Enum):
    CRIME = "crime"
    POETRY = "poetry"


async def test_variables_are_read_as_what_the_function_takes() -> None:
    server = make_server()

    @server.resource("a://{text}/{number}/{flag}/{which}/{genre}")
    async def all_kinds(
        genre: Genre, which: Literal["x", 3], flag: bool, number: int, text: str
    ) -> str:
        return repr((text, number, flag, which, genre.name))

    @server.resource("list://x{?titles*,limit}")
    async def lists(titles: list[str], limit: int | None = None) -> str:
        return repr((titles, limit))

    @server.resource("bare://{anything}")
    def bare(anything) -> str:  # type: ignore[no-untyped-def]
        return repr(anything)

    async with checked_client(server) as peer:
        assert await text_of(peer, "a://5/5/true/3/crime") == "('5', 5, True, 3, 'CRIME')"
        assert await text_of(peer, "a://a%2Fb%20%C3%BC/-7/FALSE/x/poetry") == (
            "('a/b ü', -7, False, 'x', 'POETRY')"
        )
        assert await text_of(peer, "list://x") == "([], None)"
        assert await text_of(peer, "list://x?titles=a&limit=3&titles=b") == "(['a', 'b'], 3)"
        assert await text_of(peer, "bare://5") == "'5'"
        for uri in (
            "a://5/x/true/3/crime",
            "a://5/5.0/true/3/crime",
            "a://5/5/yes/3/crime",
            "a://5/5/true/4/crime",
            "a://5/5/true/3/CRIME",
            "a://5/5/true/3",
            "a://5/5/true/3/crime/more",
            "a://5/" + "9" * 5000 + "/true/3/crime/x",
            "list://x?limit=many",
            "list://x?other=1",
            "bare://%FF",
            "",
            "a",
        ):
            assert await refused(peer, "resources/read", uri=uri) == not_found(uri)


async def test_a_function_may_ask_for_the_uri_and_the_context() -> None:
    server = make_server()

    @server.resource("a://{name}")
    async def with_both(name: str, uri: str, ctx: Context) -> list[TextResourceContents]:
        return [TextResourceContents(f"{uri}#{name}", ctx.method)]

    @server.resource("b://fixed")
    def fixed(uri, ctx: Context) -> str:  # type: ignore[no-untyped-def]
        return f"{uri} {ctx.method}"

    @server.resource("c://{uri}")
    async def a_variable_of_that_name(uri: int) -> str:
        return repr(uri)

    async with checked_client(server) as peer:
        assert await read(peer, "a://%78") == {"uri": "a://%78#x", "text": "resources/read"}
        assert await text_of(peer, "b://fixed") == "b://fixed resources/read"
        assert await text_of(peer, "c://7") == "7"


async def test_the_exact_uri_comes_first_then_the_templates_in_their_order() -> None:
    server = make_server()

    def said(text: str, **parameters: Any) -> Callable[..., Any]:
        function = named(**parameters)
        return functools.wraps(function)(lambda **_: text)

    server.resource("x://{number}")(said("number", number=int))
    server.resource("x://{word}")(said("word", word=str))
    server.resource("x://{+rest}")(said("rest", rest=str))
    server.resource("x://7")(said("exact"))
    async with checked_client(server) as peer:
        assert await text_of(peer, "x://7") == "exact"
        assert await text_of(peer, "x://%37") == "number"  # another text, the same to a template
        assert await text_of(peer, "x://8") == "number"
        assert await text_of(peer, "x://eight") == "word"
        assert await text_of(peer, "x://eight/nine") == "rest"
        assert await refused(peer, "resources/read", uri="X://7") == not_found("X://7")
        server.remove_resource_template("x://{word}")
        assert await text_of(peer, "x://eight") == "rest"
        assert await pages(peer, "resources/templates/list") == [["x://{number}", "x://{+rest}"]]


def test_the_variables_of_templates_are_known() -> None:
    server = make_server()
    server.resource("x://{a}/{b}")(lambda a, b: a + b)
    server.add_resource("x://y", "")
    known = server._resources.variables_of
    assert known("x://{a}/{b}") == ("a", "b")
    assert known("x://y") == ()
    assert known("x://z/z") is None
    server.remove_resource_template("x://{a}/{b}")
    assert known("x://{a}/{b}") is None


async def test_a_handler_says_that_there_is_no_such_resource() -> None:
    server = make_server()

    @server.resource("stock://{title}")
    async def stock(title: str) -> str:
        raise ResourceNotFound("other://place") if title == "other" else ResourceNotFound

    @server.resource("thread://{title}")
    def in_thread(title: str) -> str:
        raise ResourceNotFound

    @server.resource("refused://x")
    async def refuses() -> str:
        raise ProtocolError(-31999, "closed", {"until": 9})

    async with checked_client(server) as peer:
        for uri in ("stock://Emma", "thread://Emma"):
            assert await refused(peer, "resources/read", uri=uri) == not_found(uri)
        other = await refused(peer, "resources/read", uri="stock://other")
        assert other == not_found("other://place")
        closed = await refused(peer, "resources/read", uri="refused://x")
        assert closed == {"code": -31999, "message": "closed", "data": {"until": 9}}


async def test_a_uri_has_a_longest_length() -> None:
    server = make_server(limits=Limits(uri_length=20))
    server.resource("x://{+rest}")(lambda rest: rest)
    async with checked_client(server) as peer:
        assert await text_of(peer, "x://" + "y" * 16) == "y" * 16
        error = await refused(peer, "resources/read", uri="x://" + "y" * 17)
        assert error["code"] == -32602
        assert "longer than 20" in error["message"]
        assert "data" not in error
        for wrong in (None, 7, ["x://y"]):
            assert (await refused(peer, "resources/read", uri=wrong))["code"] == -32602


async def test_caching_hints_are_the_servers_or_the_resources_own() -> None:
    server = make_server(cache=CacheHint(60, "public"))
    own = CacheHint(1.5, "private")
    server.add_resource("fixed://default", "")
    server.add_resource("fixed://own", "", cache=own)
    server.resource("own://{x}", cache=own)(lambda x: x)
    server.resource("whole://{x}", cache=own)(
        lambda x: ReadResourceResult([TextResourceContents("a:b", x)], 7, "public")
    )

    def hint(result: Any) -> tuple[int, str]:
        return result["ttlMs"], result["cacheScope"]

    async with checked_client(server) as peer:
        for method in ("resources/list", "resources/templates/list"):
            assert hint(await ask(peer, method)) == (60_000, "public")
        for uri, expected in {
            "fixed://default": (60_000, "public"),
            "fixed://own": (1500, "private"),
            "own://x": (1500, "private"),
            "whole://x": (7, "public"),
        }.items():
            assert hint(await ask(peer, "resources/read", uri=uri)) == expected


# As tools: cancelled, limited, reported, recorded -------------------------------------------------


async def test_a_cancelled_read_stops_the_function_and_nothing_is_said() -> None:
    server = make_server()
    began, ended = [], []

    @server.resource("slow://{title}")
    async def slow(title: str) -> str:
        began.append(title)
        try:
            await trio.sleep_forever()
        finally:
            ended.append(title)
        return ""

    async with checked_client(server) as peer:
        await peer.send(request(1, "resources/read", {"uri": "slow://x"}))
        await until(lambda: began)
        await peer.send(cancel(1, "enough"))
        await until(lambda: ended == ["x"])
        assert await peer.probe() == []
    record = next(record for record in server.journal if record.method == "resources/read")
    assert (record.target, record.state) == ("slow://x", State.CANCELLED)
    assert record.cause is not None
    assert (record.cause.source, record.cause.reason) == (CancelSource.NOTIFICATION, "enough")


async def test_a_cancelled_read_is_told_in_its_thread() -> None:
    server = make_server()
    began, ended = threading.Event(), threading.Event()

    @server.resource("slow://{title}")
    def slow(title: str, ctx: Context) -> str:
        began.set()
        try:
            while True:
                ctx.check_cancelled()
        finally:
            ended.set()

    async with checked_client(server) as peer:
        await peer.send(request(1, "resources/read", {"uri": "slow://x"}))
        await until(began.is_set)
        await peer.send(cancel(1))
        await until(ended.is_set)
        assert await peer.probe() == []
    assert server.journal.ended[State.CANCELLED] == 1
    assert server.scopes().children == ()


async def test_a_read_has_a_time_limit_and_reports_progress() -> None:
    server = make_server()

    @server.resource("slow://{title}", timeout=0.05)
    async def slow(title: str, ctx: Context) -> str:
        ctx.progress(1, 2, title)
        await trio.sleep_forever()
        return ""

    async with checked_client(server) as peer:
        params = {"uri": "slow://x", "_meta": {"progressToken": "p"}}
        await peer.send(request(1, "resources/read", params))
        assert (await peer.answer(1))["error"]["code"] == -31001
        reports = [message["params"] for message in peer.seen if "method" in message]
        assert reports == [{"progressToken": "p", "progress": 1, "total": 2, "message": "x"}]


# Pages --------------------------------------------------------------------------------------------


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """Seven files, in the order of their paths, and things that are not served."""
    folder = tmp_path / "shelf"
    for path in FILES:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"this is {path}")
    (tmp_path / "secret.txt").write_text("the secret")
    (folder / ".hidden").write_text("the secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "out").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    return folder


FILES = ["a.txt", "b/c.txt", "b/d.md", "b.txt", "e/f/g.json", "h.txt", "i ü.txt"]
SHELF = [
    f"shelf:///{path}"
    for path in ("a.txt", "b/c.txt", "b/d.md", "b.txt", "e/f/g.json", "h.txt", "i%20%C3%BC.txt")
]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 9, 10, 11])
async def test_pages_go_over_resources_and_then_over_the_files_of_directories(
    size: int, shelf: Path, tmp_path: Path
) -> None:
    server = make_server(limits=Limits(page_size=size))
    for number in range(3):
        server.add_resource(f"fixed://{number}", "")
    (tmp_path / "empty").mkdir()
    server.add_directory(tmp_path / "empty", uri="empty:///")
    server.add_directory(shelf, uri="shelf:///")
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "file").write_text("")
    server.add_directory(tmp_path / "last", uri="last:///")
    async with checked_client(server) as peer:
        listed = await pages(peer)
    uris = [f"fixed://{number}" for number in range(3)] + SHELF + ["last:///file"]
    assert [uri for page in listed for uri in page] == uris
    assert [len(page) for page in listed[:-1]] == [size] * (len(listed) - 1)
    assert 1 <= len(listed[-1]) <= size


async def test_a_last_page_that_is_full_is_the_last() -> None:
    server = make_server(limits=Limits(page_size=2))
    server.add_resource("fixed://0", "")
    server.add_resource("fixed://1", "")
    async with checked_client(server) as peer:
        assert await pages(peer) == [["fixed://0", "fixed://1"]]


async def test_templates_have_pages_too() -> None:
    server = make_server(limits=Limits(page_size=2))
    for number in range(5):
        server.resource(f"{'x' * (number + 1)}://{{a}}", name="x")(lambda a: a)
    async with checked_client(server) as peer:
        listed = await pages(peer, "resources/templates/list")
    assert [len(page) for page in listed] == [2, 2, 1]


async def test_a_cursor_is_good_for_its_list_alone(shelf: Path) -> None:
    server = make_server(limits=Limits(page_size=1))
    server.add_resource("fixed://0", "")
    server.add_resource("fixed://1", "")
    server.add_directory(shelf, uri="shelf:///")
    for number in range(2):
        server.resource(f"{'x' * (number + 1)}://{{a}}", name="x")(lambda a: a)
    server.tool(name="second")(named())
    other = make_server(limits=Limits(page_size=1))
    other.add_resource("fixed://0", "")
    other.add_resource("fixed://1", "")
    cursors = {}
    async with checked_client(other) as peer:
        cursors["another server"] = (await ask(peer, "resources/list"))["nextCursor"]
    async with checked_client(server) as peer:
        for method in ("resources/list", "resources/templates/list", "tools/list"):
            cursors[method] = (await ask(peer, method))["nextCursor"]
        own = cursors["resources/list"]
        wrong = ["", "x", "\x00", "ü", own[:-4], own.lower(), "A" * 100_000]
        for method in ("resources/list", "resources/templates/list"):
            foreign = [cursor for name, cursor in cursors.items() if name != method]
            for cursor in [*wrong, *foreign]:
                assert (await refused(peer, method, cursor=cursor))["code"] == -32602
        assert (await ask(peer, "resources/list", cursor=own))["resources"][0]["uri"] == "fixed://1"


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 9])
async def test_cursors_survive_a_restart_with_the_same_secret(steps: int, shelf: Path) -> None:
    def start() -> Server:
        server = make_server(limits=Limits(page_size=1), secret="of the shop")
        server.add_resource("fixed://0", "")
        server.add_resource("fixed://1", "")
        server.add_directory(shelf, uri="shelf:///")
        return server

    params: dict[str, str] = {}
    found = []
    async with checked_client(start()) as peer:
        for _ in range(steps):
            result = await ask(peer, "resources/list", **params)
            found += [entry["uri"] for entry in result["resources"]]
            params = {} if "nextCursor" not in result else {"cursor": result["nextCursor"]}
    async with checked_client(start()) as peer:
        while params:
            result = await ask(peer, "resources/list", **params)
            found += [entry["uri"] for entry in result["resources"]]
            params = {} if "nextCursor" not in result else {"cursor": result["nextCursor"]}
    assert found == ["fixed://0", "fixed://1", *SHELF]


CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "remove"]), st.integers(0, 7), st.booleans()), max_size=6
)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 4), between=st.lists(CHANGES, max_size=6))
def test_what_stays_is_listed_once_whatever_comes_and_goes(
    tmp_path_factory: pytest.TempPathFactory, size: int, between: list[list[tuple[str, int, bool]]]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    server = make_server(limits=Limits(page_size=size))
    server.add_directory(folder, uri="files:///")
    touched: set[str] = set()

    def apply(kind: str, number: int, is_file: bool) -> None:
        uri = f"files:///{number}" if is_file else f"fixed://{number}"
        touched.add(uri)
        if is_file and kind == "add":
            (folder / str(number)).write_text("")
        elif is_file:
            (folder / str(number)).unlink(missing_ok=True)
        elif kind == "add" and uri not in present():
            server.add_resource(uri, "")
        elif kind == "remove" and uri in present():
            server.remove_resource(uri)

    def present() -> list[str]:
        return [entry.definition.uri for entry in server._resources._resources]

    for number in range(8):
        apply("add", number, is_file=True)
        apply("add", number, is_file=False)
    everything, touched = set(touched), set()

    async def main() -> list[str]:
        found: list[str] = []
        params: dict[str, str] = {}
        changes = iter(between)
        async with checked_client(server) as peer:
            while True:
                result = await ask(peer, "resources/list", **params)
                found += [entry["uri"] for entry in result["resources"]]
                if "nextCursor" not in result:
                    return found
                params = {"cursor": result["nextCursor"]}
                for change in next(changes, []):
                    apply(*change)

    listed = trio.run(main)
    stayed = everything - touched
    assert stayed <= set(listed)
    assert all(listed.count(uri) == 1 for uri in stayed)


async def test_a_directory_that_has_gone_ends_nobodys_list(shelf: Path, tmp_path: Path) -> None:
    server = make_server(limits=Limits(page_size=2))
    server.add_directory(shelf, uri="shelf:///")
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "file").write_text("")
    server.add_directory(tmp_path / "last", uri="last:///")
    async with checked_client(server) as peer:
        cursor = (await ask(peer, "resources/list"))["nextCursor"]
        server.remove_directory("shelf:///")
        result = await ask(peer, "resources/list", cursor=cursor)
        assert [entry["uri"] for entry in result["resources"]] == ["last:///file"]
        assert "nextCursor" not in result
        assert await refused(peer, "resources/read", uri=SHELF[0]) == not_found(SHELF[0])


# Directories --------------------------------------------------------------------------------------


async def test_files_are_listed_with_what_is_known_of_them_and_read(shelf: Path) -> None:
    (shelf / "logo.png").write_bytes(PNG)
    os.utime(shelf / "logo.png", (86400, 86400))
    server = make_server()
    hint = CacheHint(5, "public")
    server.add_directory(shelf, uri="shelf:///", annotations=Annotations(priority=0.1), cache=hint)
    async with checked_client(server) as peer:
        entries = (await ask(peer, "resources/list"))["resources"]
        assert [entry["uri"] for entry in entries] == [*SHELF, "shelf:///logo.png"]
        assert entries[-1] == {
            "uri": "shelf:///logo.png",
            "name": "logo.png",
            "mimeType": "image/png",
            "size": 10,
            "annotations": {"priority": 0.1, "lastModified": "1970-01-02T00:00:00Z"},
        }
        assert await read(peer, "shelf:///logo.png") == {
            "uri": "shelf:///logo.png",
            "mimeType": "image/png",
            "blob": BLOB,
        }
        for path, uri in zip(FILES, SHELF, strict=True):
            assert await text_of(peer, uri) == f"this is {path}"
        result = await ask(peer, "resources/read", uri=SHELF[2])
        assert result["contents"][0]["mimeType"] == "text/markdown"
        assert (result["ttlMs"], result["cacheScope"]) == (5000, "public")


async def test_the_uri_of_a_directory_is_its_file_uri_unless_given(shelf: Path) -> None:
    server = make_server()
    server.add_directory(shelf, include=["*.md"])
    async with checked_client(server) as peer:
        uri = f"{shelf.as_uri()}/b/d.md"
        assert await pages(peer) == [[uri]]
        assert await text_of(peer, uri) == "this is b/d.md"
        assert await refused(peer, "resources/read", uri=f"{shelf.as_uri()}/a.txt") == not_found(
            f"{shelf.as_uri()}/a.txt"
        )


async def test_below_a_directory_only_resources_of_their_own_come_before_its_files(
    shelf: Path,
) -> None:
    server = make_server()
    server.resource("shelf:///{+path}")(lambda path: "template")
    server.add_directory(shelf, uri="shelf:///")
    server.add_resource("shelf:///a.txt", "fixed")
    async with checked_client(server) as peer:
        assert await text_of(peer, "shelf:///a.txt") == "fixed"
        assert await text_of(peer, "shelf:///h.txt") == "this is h.txt"
        assert await refused(peer, "resources/read", uri="shelf:///no") == not_found("shelf:///no")
        assert await pages(peer) == [["shelf:///a.txt", *SHELF[1:]]]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"uri": "shelf:///"}, ValueError, "overlap"),
        ({"uri": "shelf:///b/"}, ValueError, "overlap"),
        ({"uri": "shelf:/"}, ValueError, "overlap"),
        ({"uri": "other:///x"}, ValueError, "ends in '/'"),
        ({"uri": "other:///", "timeout": 0}, ValueError, "more than 0"),
        ({"uri": "other:///", "include": "*.md"}, TypeError, "list of patterns"),
        (
            {"uri": "other:///", "annotations": Annotations(audience=["\udcff"])},
            ValueError,
            "cannot be sent",
        ),
    ],
)
def test_what_cannot_be_a_directory_is_refused_at_once(
    options: dict[str, Any], error: type[Exception], words: str, shelf: Path
) -> None:
    server = make_server()
    server.add_directory(shelf, uri="shelf:///")
    with pytest.raises(error, match=words):
        server.add_directory(shelf, **options)
    with pytest.raises(NotADirectoryError):
        server.add_directory(shelf / "a.txt", uri="file-as-directory:///")


async def test_a_file_that_does_not_fit_into_a_message_is_refused_with_words(shelf: Path) -> None:
    server = make_server(limits=Limits(message_bytes=100_000))
    server.add_directory(shelf, uri="shelf:///")
    (shelf / "fits").write_bytes(b"\xff" * 50_000)
    (shelf / "large").write_bytes(b"\xff" * 80_000)
    (shelf / "escaped").write_bytes(b"\x01" * 50_000)
    async with checked_client(server) as peer:
        assert len((await read(peer, "shelf:///fits"))["blob"]) > 50_000
        for name in ("large", "escaped"):
            error = await refused(peer, "resources/read", uri=f"shelf:///{name}")
            assert error["code"] == -32603
            assert "too large for one message" in error["message"]
            assert error["data"] == {"uri": f"shelf:///{name}"}


async def test_a_directory_lists_no_more_than_its_limit_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(30):
        (tmp_path / f"{number:02}").write_text("")
    server = make_server(limits=Limits(page_size=4, directory_entries=10))
    server.add_directory(tmp_path, uri="files:///")
    with caplog.at_level(logging.WARNING, "trio_mcp"):
        async with checked_client(server) as peer:
            listed = await pages(peer)
            assert await text_of(peer, "files:///29") == ""
    assert [uri for page in listed for uri in page] == [
        f"files:///{number:02}" for number in range(10)
    ]
    (record,) = caplog.records
    assert "Limits.directory_entries=10" in record.getMessage()


async def test_a_long_listing_holds_nobody_up_and_ends_when_it_is_cancelled(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    server.add_directory(shelf, uri="shelf:///")
    began, ended = threading.Event(), threading.Event()

    def endless(self: Directory, check: Any = None) -> Any:
        began.set()
        try:
            while True:
                check()
        finally:
            ended.set()

    monkeypatch.setattr(Directory, "listing", endless)
    async with checked_client(server) as peer:
        await peer.send(request(1, "resources/list"))
        await until(began.is_set)
        assert await peer.probe() == []
        (thread,) = server.scopes().children[0].children[0].children
        assert thread.label == "shelf:///"
        await peer.send(cancel(1))
        await until(ended.is_set)
        assert await peer.probe() == []


async def test_reading_a_file_ends_when_it_is_cancelled_or_its_time_is_up(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    server.add_directory(shelf, uri="shelf:///", timeout=0.05)
    server.add_directory(shelf, uri="patient:///")
    began = threading.Event()

    def endless(self: Directory, path: str, check: Any = None) -> Any:
        began.set()
        while True:
            check()

    monkeypatch.setattr(Directory, "read_contents", endless)
    async with checked_client(server) as peer:
        error = await refused(peer, "resources/read", uri="shelf:///a.txt")
        assert error["code"] == -31001
        began.clear()
        await peer.send(request(1, "resources/read", {"uri": "patient:///a.txt"}))
        await until(began.is_set)
        await peer.send(cancel(1))
        await until(lambda: server.journal.ended[State.CANCELLED] == 2)
        assert await peer.probe() == []


# Over HTTP ----------------------------------------------------------------------------------------


@asynccontextmanager
async def over_http(server: Server) -> AsyncIterator[HttpPeer]:
    async with trio.open_nursery() as nursery:
        port: int = await nursery.start(functools.partial(server.serve_http, port=0))
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            yield HttpPeer(stream)
        nursery.cancel_scope.cancel()


def checked(response: Response, definition: str) -> Any:
    message = response.json
    check_schema("JSONRPCMessage", message)
    if "result" in message:
        check_schema(definition, message["result"])
        return message["result"]
    return message["error"]


async def test_resources_are_listed_and_read_over_http(shelf: Path) -> None:
    server = make_server()
    server.add_directory(shelf, uri="shelf:///")
    server.resource("stock://{title}")(lambda title: title)
    async with over_http(server) as peer:
        listed = await peer.ask(request(1, "resources/list"))
        entries = checked(listed, "ListResourcesResult")["resources"]
        assert [entry["uri"] for entry in entries] == SHELF
        templates = await peer.ask(request(2, "resources/templates/list"))
        (template,) = checked(templates, "ListResourceTemplatesResult")["resourceTemplates"]
        assert template["uriTemplate"] == "stock://{title}"
        for uri, text in {SHELF[1]: "this is b/c.txt", "stock://D%C3%BCne": "Düne"}.items():
            answer = await peer.ask(request(3, "resources/read", {"uri": uri}))
            (contents,) = checked(answer, "ReadResourceResult")["contents"]
            assert (contents["uri"], contents["text"]) == (uri, text)
        message = request(4, "resources/read", {"uri": "stock://x"})
        for name in (None, "stock://y", "=?base64?c3RvY2s6Ly95?="):
            wrong = await peer.ask(message, mcp_name=name)
            assert (wrong.status, wrong.code) == (400, -32020)
        right = await peer.ask(message, mcp_name="=?base64?c3RvY2s6Ly94?=")
        assert checked(right, "ReadResourceResult")["contents"][0]["text"] == "x"
        gone = await peer.ask(request(5, "resources/read", {"uri": "stock://a/b"}))
        assert checked(gone, "") == not_found("stock://a/b")


TRAVERSALS = [
    "../secret.txt",
    "b/../../secret.txt",
    "%2e%2e/secret.txt",
    "%2E%2E%2Fsecret.txt",
    "..%2fsecret.txt",
    "..%5Csecret.txt",
    "%252e%252e/secret.txt",
    "./a.txt",
    "b/../a.txt",
    "/a.txt",
    "//etc/passwd",
    "%2Fetc%2Fpasswd",
    "link.txt",
    "out/secret.txt",
    "out/shelf/a.txt",
    ".hidden",
    "%2ehidden",
    "pipe",
    "b",
    "b/",
    "",
    "a.txt%00",
    "a.txt%00.md",
    "a.txt/",
    "a.txt?x",
    "a.txt#x",
    "a%zz",
    "%FF",
    "%C0%AE%C0%AE/secret.txt",
    "a.txt\n",
    "A.TXT",
    "/".join(["b"] * 1000),
    "x" * 5000,
]


@pytest.mark.parametrize("path", TRAVERSALS)
async def test_no_uri_leads_out_of_a_directory(path: str, shelf: Path) -> None:
    server = make_server()
    server.add_directory(shelf, uri="shelf:///")
    uri = "shelf:///" + path
    name = f"=?base64?{base64.b64encode(uri.encode()).decode()}?="
    async with over_http(server) as peer:
        answer = await peer.ask(request(1, "resources/read", {"uri": uri}), mcp_name=name)
        assert checked(answer, "ReadResourceResult") == not_found(uri)
        assert "secret" not in json.dumps(answer.json["error"]["message"])


async def test_closing_the_connection_ends_a_read() -> None:
    server = make_server()
    began, ended = trio.Event(), trio.Event()

    @server.resource("slow://x")
    async def slow() -> str:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        return ""

    async with over_http(server) as peer:
        await peer.send(post(request(1, "resources/read", {"uri": "slow://x"})))
        with trio.fail_after(5):
            await began.wait()
            await peer.stream.aclose()
            await ended.wait()
        await until(lambda: server.journal.ended[State.CANCELLED] == 1)
    (record,) = server.journal
    assert record.cause is not None
    assert (record.target, record.cause.source) == ("slow://x", CancelSource.DISCONNECT)


@pytest.mark.parametrize(
    "value",
    [
        TextResourceContents(5, "text"),  # type: ignore[arg-type]
        [BlobResourceContents("a:b", 6)],  # type: ignore[arg-type]
        ReadResourceResult([5]),  # type: ignore[list-item]
    ],
)
async def test_contents_that_are_none_are_not_sent(value: Any) -> None:
    server = make_server()
    server.resource("wrong://contents")(lambda: value)
    async with checked_client(server) as peer:
        error = await refused(peer, "resources/read", uri="wrong://contents")
        assert error["code"] == -32603
