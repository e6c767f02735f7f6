"""Files of a directory: what is served, and that nothing else ever is."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trio_mcp import Limits
from trio_mcp.handlers.resources import files
from trio_mcp.handlers.resources.files import Directory, FileNotServed, FileTooLarge, largest_file
from trio_mcp.handlers.resources.uri_templates import UriTemplate

SECRET = "the secret"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """``root/`` is served, ``secret.txt`` stands beside it."""
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    made = tmp_path / "root"
    (made / "sub").mkdir(parents=True)
    (made / "sub" / "inner.md").write_text("# inner")
    (made / "a.txt").write_text("a")
    return made


@pytest.fixture
def no_descriptor_left() -> Iterator[None]:
    """Whatever happened, what was opened is closed."""
    before = os.listdir("/dev/fd")
    yield
    assert len(os.listdir("/dev/fd")) == len(before)


pytestmark = pytest.mark.usefixtures("no_descriptor_left")


def paths(directory: Directory) -> list[str]:
    return [entry.path for entry in directory.listing().entries]


def refused(directory: Directory, path: str) -> str:
    with pytest.raises(FileNotServed) as error:
        directory.read(path)
    return str(error.value)


# Reading and listing ------------------------------------------------------------------------------


def test_files_are_listed_in_order_with_what_is_known_of_them(root: Path) -> None:
    (root / "sub" / "main.rs").write_text("fn main() {}")
    (root / "sub.txt").write_bytes(b"12345")
    os.utime(root / "a.txt", (0, 1736694058))
    listing = Directory(root, uri="docs://shelf/").listing()
    assert not listing.truncated
    assert [entry.path for entry in listing.entries] == [
        "a.txt",
        "sub/inner.md",
        "sub/main.rs",
        "sub.txt",
    ]
    first, inner, rust, _ = listing.entries
    assert (first.name, first.uri, first.mime_type, first.size, first.last_modified) == (
        "a.txt",
        "docs://shelf/a.txt",
        "text/plain",
        1,
        "2025-01-12T15:00:58Z",
    )
    assert (inner.name, inner.uri) == ("inner.md", "docs://shelf/sub/inner.md")
    assert rust.mime_type == "text/x-rust"
    assert Directory(root).read("sub/inner.md") == b"# inner"


def test_every_listed_uri_leads_back_to_its_file(root: Path) -> None:
    names = [
        "space and %25 and 50%",
        "Käse.txt",  # composed
        "Ka\u0308se.txt",  # decomposed: another file here
        "q?a=b#c&d;e,f.txt",
        "{braces}'\"`.txt",
        "%2e%2e",
        "%2E%2E%2Fsecret.txt",
        "...",
        "back\\slash",
        "new\nline",
        "x" * 255,
        "data:,x",
        "~",
        "日本語.md",
    ]
    for name in names:
        (root / "sub" / name).write_text(name)
    for directory in (Directory(root, hidden=True), Directory(root, uri="docs://", hidden=True)):
        listing = directory.listing()
        assert {entry.name for entry in listing.entries} == {*names, "a.txt", "inner.md"}
        template = UriTemplate(directory.uri_template)
        for entry in listing.entries:
            assert directory.path_of(entry.uri) == entry.path
            assert directory.uri_of(entry.path) == entry.uri
            assert template.match(entry.uri) == {"path": entry.path}
            if entry.name in names:
                assert directory.read(entry.path).decode() == entry.name


def test_the_default_uri_is_that_of_the_root(root: Path) -> None:
    assert Directory(root).uri == f"{root.as_uri()}/"
    assert Directory("/").uri == "file:///"


@pytest.mark.parametrize("uri", ["", "docs:", "docs://x", "/docs/", "docs://{x}/", "docs://?/"])
def test_a_prefix_that_is_no_uri_is_refused(root: Path, uri: str) -> None:
    with pytest.raises(ValueError, match="uri must be"):
        Directory(root, uri=uri)


def test_bad_settings_are_refused(root: Path) -> None:
    with pytest.raises(ValueError, match="max_depth"):
        Directory(root, max_depth=0)
    with pytest.raises(TypeError, match="list of patterns"):
        Directory(root, include="*.md")  # type: ignore[arg-type]
    with pytest.raises(NotADirectoryError):
        Directory(root / "a.txt")
    with pytest.raises(FileNotFoundError):
        Directory(root / "missing")


def test_a_root_that_has_gone_serves_nothing(root: Path) -> None:
    directory = Directory(root)
    root.rename(root.with_name("moved"))
    assert paths(directory) == []
    refused(directory, "a.txt")


def test_the_root_may_be_a_link_of_the_operator(root: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(root)
    assert Directory(tmp_path / "current").read("a.txt") == b"a"


def test_hidden_names_are_served_only_on_demand(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("c")
    (root / ".env").write_text("e")
    closed, opened = Directory(root), Directory(root, hidden=True)
    assert paths(closed) == ["a.txt", "sub/inner.md"]
    assert paths(opened) == [".env", ".git/config", "a.txt", "sub/inner.md"]
    refused(closed, ".env")
    refused(closed, ".git/config")
    assert opened.read(".git/config") == b"c"
    for path in ("..", ".", "../secret.txt", "sub/../a.txt"):
        refused(opened, path)


def test_patterns_decide_for_listing_and_reading_alike(root: Path) -> None:
    directory = Directory(root, include=["*.md", "b?.txt"])
    (root / "b1.txt").write_text("b")
    assert paths(directory) == ["b1.txt", "sub/inner.md"]
    refused(directory, "a.txt")
    assert directory.read("b1.txt") == b"b"
    refused(directory, "B1.TXT")


# Nothing outside ----------------------------------------------------------------------------------

TRAVERSALS = [
    "",
    ".",
    "..",
    "/",
    "//",
    "/etc/passwd",
    "//etc/passwd",
    "../secret.txt",
    "sub/../../secret.txt",
    "sub/../a.txt",
    "./a.txt",
    "sub/./inner.md",
    "sub//inner.md",
    "a.txt/",
    "a.txt/.",
    "a.txt/x",
    "sub",
    "sub/",
    "..\\secret.txt",
    "a.txt\0",
    "a.txt\0.md",
    "\0",
    "x" * 256,
    "x/" * 5000 + "x",
    "sub/" * 31 + "x",
    "\udcff",
    "a.txt\udcff",
    "~/a.txt",
    "file:///etc/passwd",
    "\uff052e\uff052e/secret.txt",
    "\uff0e\uff0e/secret.txt",
]


@pytest.mark.parametrize("path", TRAVERSALS, ids=range(len(TRAVERSALS)))
def test_what_is_no_path_below_the_root_is_not_served(root: Path, path: str) -> None:
    missing = refused(Directory(root), "missing")
    for hidden in (False, True):
        assert refused(Directory(root, hidden=hidden), path) == missing


@pytest.mark.parametrize("layers", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "sub/../../secret.txt",
        "..\\secret.txt",
        "/etc/passwd",
        "a.txt\0",
        "./a.txt",
    ],
)
@pytest.mark.parametrize("everything", [False, True])
def test_percent_encoded_traversal_of_any_layers(
    root: Path, path: str, layers: int, everything: bool
) -> None:
    directory = Directory(root, uri="docs://shelf/", hidden=True)
    template = UriTemplate(directory.uri_template)
    simple = UriTemplate(directory.uri + "{path}")
    for _ in range(layers):
        path = (
            "".join(f"%{byte:02x}" for byte in path.encode())
            if everything
            else path.replace("%", "%25").replace(".", "%2E").replace("/", "%2f")
        )
        path = path.replace("\0", "%00")
    uri = f"docs://shelf/{path}"
    with pytest.raises(FileNotServed):
        directory.read(directory.path_of(uri))
    for values in (template.match(uri), simple.match(uri)):
        if values is not None:
            assert isinstance(values["path"], str)
            refused(directory, values["path"])


@pytest.mark.parametrize(
    "uri",
    [
        "docs://shelf",
        "docs://shelf/",
        "docs://other/a.txt",
        "DOCS://shelf/a.txt",
        "docs://shelf/../shelf/a.txt",
        "docs://shelf//a.txt",
        "docs://shelf/sub%2Finner.md",
        "docs://shelf/a.txt?",
        "docs://shelf/a.txt?x=1",
        "docs://shelf/a.txt#x",
        "docs://shelf/a.txt%",
        "docs://shelf/%FF",
        "docs://shelf/\ud800",
        "docs://shelf/%C0%AE%C0%AE/secret.txt",
        "xdocs://shelf/a.txt",
    ],
)
def test_uris_that_are_none_of_a_file(root: Path, uri: str) -> None:
    with pytest.raises(FileNotServed):
        Directory(root, uri="docs://shelf/").path_of(uri)


def test_links_are_neither_listed_nor_followed(root: Path, tmp_path: Path) -> None:
    (root / "file").symlink_to(tmp_path / "secret.txt")
    (root / "dir").symlink_to(tmp_path / "outside")
    (root / "near").symlink_to("a.txt")
    (root / "up").symlink_to("..")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("nowhere")
    (root / "descriptors").symlink_to("/proc/self/fd")
    directory = Directory(root, hidden=True)
    assert paths(directory) == ["a.txt", "sub/inner.md"]
    for path in (
        "file",
        "dir",
        "dir/secret.txt",
        "near",
        "up/secret.txt",
        "up/root/a.txt",
        "loop",
        "loop/a.txt",
        "dangling",
        "descriptors/0",
    ):
        refused(directory, path)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_the_links_of_proc_are_links(root: Path) -> None:
    with (root / "a.txt").open() as opened:
        directory = Directory("/proc/self")
        refused(directory, f"fd/{opened.fileno()}")
        refused(directory, f"root{root}/a.txt")
        refused(directory, "cwd/pyproject.toml")
    assert directory.read("status").startswith(b"Name:")  # has no size, and is read to its end


def test_what_could_block_is_not_even_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(root / "socket"))
        opened: list[Any] = []
        real = os.open

        def watched(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            opened.append(path)
            return real(path, flags, mode, dir_fd=dir_fd)

        directory = Directory(root)
        monkeypatch.setattr(os, "open", watched)
        assert paths(directory) == ["a.txt", "sub/inner.md"]
        refused(directory, "pipe")
        refused(directory, "socket")
    assert not {b"pipe", b"socket", "pipe", "socket"} & {*opened}


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="devices")
def test_devices_are_not_served() -> None:
    directory = Directory("/dev")
    for path in ("null", "zero", "tty", "stdin", "fd/0"):
        refused(directory, path)


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_a_file_swapped_between_the_look_and_the_opening(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The narrowest race there is: after ``stat`` saw a regular file, before ``open``."""
    directory = Directory(root)
    real = os.stat

    def swap(path: Any, **options: Any) -> os.stat_result:
        status = real(path, **options)
        if path == b"a.txt" and not (root / "a.txt").is_symlink():
            (root / "a.txt").unlink()
            if kind == "link":
                (root / "a.txt").symlink_to(tmp_path / "secret.txt")
            elif kind == "pipe":
                os.mkfifo(root / "a.txt")
            else:
                (root / "a.txt").mkdir()
        return status

    monkeypatch.setattr(os, "stat", swap)
    refused(directory, "a.txt")


def test_a_directory_swapped_for_a_link_after_it_was_listed(root: Path, tmp_path: Path) -> None:
    (root / "sub" / "secret.txt").write_text("harmless")
    directory = Directory(root)
    assert "sub/secret.txt" in paths(directory)
    (root / "sub").rename(tmp_path / "moved")
    (root / "sub").symlink_to(tmp_path / "outside")
    refused(directory, "sub/secret.txt")
    assert paths(directory) == ["a.txt"]


@pytest.mark.parametrize("reading", [True, False])
def test_a_directory_swapped_while_the_path_is_walked(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: bool
) -> None:
    """Before each opening a component is swapped: what is opened is never what is outside."""
    (root / "sub" / "secret.txt").write_text("harmless")
    directory = Directory(root)
    real = os.open

    def swap(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == b"sub":
            (root / "sub").rename(tmp_path / "moved")
            (root / "sub").symlink_to(tmp_path / "outside")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap)
    if reading:
        refused(directory, "sub/secret.txt")
    else:
        assert paths(directory) == ["a.txt"]


def test_a_directory_moved_out_while_it_is_open_is_still_the_one_that_was_inside(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "sub" / "secret.txt").write_text("harmless")
    directory = Directory(root)
    real = os.stat

    def swap(path: Any, **options: Any) -> os.stat_result:
        if path == b"secret.txt":
            (root / "sub").rename(tmp_path / "moved")
            (root / "sub").symlink_to(tmp_path / "outside")
        return real(path, **options)

    monkeypatch.setattr(os, "stat", swap)
    assert directory.read("sub/secret.txt") == b"harmless"


def test_names_that_are_no_utf_8_are_left_out(root: Path) -> None:
    try:
        with open(os.fsencode(root) + b"/\xff.txt", "w") as made:
            made.write("x")
    except OSError:
        pytest.skip("this file system has only UTF-8 names")
    directory = Directory(root)
    assert paths(directory) == ["a.txt", "sub/inner.md"]
    refused(directory, "\udcff.txt")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_not_served(root: Path) -> None:
    (root / "a.txt").chmod(0)
    (root / "sub").chmod(0)
    try:
        directory = Directory(root)
        assert refused(directory, "a.txt") == refused(directory, "sub/inner.md")
        assert paths(directory) == ["a.txt"]
    finally:
        (root / "sub").chmod(0o700)


@pytest.mark.parametrize("error", [PermissionError(13, "no"), OSError(5, "I/O error")])
def test_trouble_of_the_server_is_told_from_what_is_not_served(
    root: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    directory = Directory(root)
    real = os.open

    def fail(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path in (b"a.txt", b"sub"):
            raise error
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", fail)
    if error.errno == 13:
        refused(directory, "a.txt")
        refused(directory, "sub/inner.md")
        assert paths(directory) == ["a.txt"]
    else:
        for action in (lambda: directory.read("a.txt"), directory.listing):
            with pytest.raises(OSError, match="I/O error"):
                action()


# Bounds -------------------------------------------------------------------------------------------


def test_a_file_of_the_limit_is_read_and_one_byte_more_is_not(root: Path) -> None:
    directory = Directory(root, max_bytes=1000)
    (root / "a.txt").write_bytes(b"x" * 1000)
    assert len(directory.read("a.txt")) == 1000
    (root / "a.txt").write_bytes(b"x" * 1001)
    with pytest.raises(FileTooLarge, match="more than 1000 bytes") as error:
        directory.read("a.txt")
    assert (error.value.path, error.value.limit) == ("a.txt", 1000)


def test_a_huge_file_is_refused_before_it_is_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (root / "huge").open("wb") as huge:
        huge.truncate(1 << 40)
    monkeypatch.setattr(os, "read", None)
    with pytest.raises(FileTooLarge):
        Directory(root).read("huge")


def test_a_file_that_grows_while_it_is_read_is_still_bounded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK", 100)
    looks = 0

    def grow() -> None:
        nonlocal looks
        looks += 1
        with (root / "a.txt").open("ab") as grown:
            grown.write(b"x" * 200)

    with pytest.raises(FileTooLarge):
        Directory(root, max_bytes=1000).read("a.txt", grow)
    assert looks == 11  # 1001 bytes, 100 at a time


def test_a_listing_is_stopped_after_its_names_are_known_too(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number}.txt").touch()

    class Stopped(Exception):
        pass

    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked > 150:
            raise Stopped

    with pytest.raises(Stopped):
        Directory(tmp_path).listing(check)


def test_the_check_can_stop_reading_and_listing(root: Path) -> None:
    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    for action in (Directory(root).listing, lambda check: Directory(root).read("a.txt", check)):
        with pytest.raises(Stopped):
            action(stop)


def test_a_listing_is_bounded_and_says_so(root: Path) -> None:
    many = root / "many"
    many.mkdir()
    for number in range(50):
        (many / f"{number:02}").touch()
        (many / f"{number:02}.d").mkdir()
    listing = Directory(root, max_entries=10).listing()
    assert listing.truncated
    assert [entry.path for entry in listing.entries] == [
        "a.txt",
        *(f"many/{number:02}" for number in range(9)),
    ]
    whole = Directory(root, max_entries=60).listing()
    assert (len(whole.entries), whole.truncated) == (52, False)


def test_directories_without_files_are_bounded_too(root: Path) -> None:
    for number in range(30):
        (root / f"b{number:02}").mkdir()
    listing = Directory(root, max_entries=20).listing()
    assert listing.truncated
    assert [entry.path for entry in listing.entries] == ["a.txt"]


def test_the_depth_is_the_same_for_listing_and_reading(root: Path) -> None:
    (root / "sub" / "sub").mkdir()
    (root / "sub" / "sub" / "deep.txt").write_text("deep")
    directory = Directory(root, max_depth=2)
    listing = directory.listing()
    assert [entry.path for entry in listing.entries] == ["a.txt", "sub/inner.md"]
    assert listing.truncated
    refused(directory, "sub/sub/deep.txt")
    assert Directory(root, max_depth=3).read("sub/sub/deep.txt") == b"deep"


# Text and bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "mime_type", "is_text"),
    [
        ("a.md", "Käse\r\n".encode(), "text/markdown", True),
        ("a.json", b"{}", "application/json", True),
        ("a.ts", b"let a;", "text/typescript", True),
        ("a.svg", b"<svg/>", "image/svg+xml", True),
        ("a.PNG", b"plain", "image/png", False),
        ("a.pdf", b"%PDF-1.7\n%\xe2\xe3", "application/pdf", False),
        ("a.txt", b"\xff\xfe", "text/plain", False),
        ("b.txt", b"a\0b", "text/plain", False),
        ("Makefile", b"all:\n", "text/plain", True),
        ("noname", b"\x80", "application/octet-stream", False),
        ("a.tar.gz", b"\x1f\x8b\x08", "application/gzip", False),
        ("a.txt.xz", b"\xfd7zXZ", "application/x-xz", False),
        ("data:,x.png", b"x", "image/png", False),
        ("empty", b"", "text/plain", True),
    ],
)
def test_text_and_bytes(root: Path, name: str, data: bytes, mime_type: str, is_text: bool) -> None:
    (root / "sub" / name).write_bytes(data)
    contents = Directory(root, uri="docs://").read_contents(f"sub/{name}")
    assert contents.mime_type == mime_type
    assert contents.uri == f"docs://sub/{name}"
    if is_text:
        assert (contents.text, contents.blob) == (data.decode(), None)
    else:
        assert contents.text is None
        assert contents.blob is not None
        assert base64.b64decode(contents.blob, validate=True) == data


@pytest.mark.parametrize("message_bytes", [1000, 100_000, Limits().message_bytes])
def test_the_largest_file_fits_into_a_message(message_bytes: int) -> None:
    size = largest_file(message_bytes)
    room = message_bytes - (size + 2) // 3 * 4
    assert room >= min(files.ENVELOPE, message_bytes // 4)
    assert size > message_bytes // 2


def test_a_text_that_json_makes_too_long_is_refused(root: Path) -> None:
    directory = Directory(root, max_bytes=300)
    (root / "a.txt").write_bytes(b"\x01" * 66)
    contents = directory.read_contents("a.txt")
    assert len(json.dumps(contents.text)) - 2 == 396
    (root / "a.txt").write_bytes(b"\x01" * 67)
    with pytest.raises(FileTooLarge):
        directory.read_contents("a.txt")


def test_the_length_of_escaped_text_is_that_of_the_encoder() -> None:
    for text in (*map(chr, range(0x100)), "é日\U0001f600", "\u2028", 'a"\\\n\x00\x1f/\x7f'):
        assert files._escaped_length(text.encode()) == len(msgspec.json.encode(text)) - 2


def test_a_time_of_no_calendar_is_no_time(root: Path) -> None:
    assert files._iso(1e300) is None
    last = Directory(root).listing().entries[0].last_modified
    assert last is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", last)
