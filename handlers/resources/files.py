"""Files of a directory as resources. Specification: *Resources*, "file://", "Security
Considerations".

A client names a file; what it gets is always a regular file below the root, whatever happens to the
directory in the meantime. A path is never checked and then used: it is walked, one component at a
time, each opened relative to the one before and without following links (``openat`` with
``O_NOFOLLOW``). So there is no link, swapped in at any moment, that leads out of the root. What was
opened is then looked at (``fstat``), and only that is read.

Not served, by this rule: links to files and to directories, named pipes, sockets, devices, hidden
names (unless asked for), names that are not UTF-8, what may not be read. For all of them, for what
is missing and for what no path can be, the answer is the same, so it tells nothing about the rest
of the file system. Hard links are files like any other, and mounts below the root are part of it.

The functions are plain and may block on a disk: call them in a worker thread. A :class:`Directory`
never changes, so any number of threads may use one.
"""

from __future__ import annotations

import base64
import errno
import fnmatch
import heapq
import mimetypes
import os
import re
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import attrs

from ...runtime.errors import TrioMcpError
from ...runtime.limits import Limits

__all__ = [
    "Directory",
    "FileContents",
    "FileEntry",
    "FileNotServed",
    "FileTooLarge",
    "Listing",
    "largest_file",
]

#: Bytes of a message that are kept for what is around a file's contents: URI, metadata, id.
ENVELOPE = 64 * 1024
#: Bytes that are read at once; between two reads the reader asks whether it should go on.
CHUNK = 1024 * 1024

Check = Callable[[], None]

_SAFE: Final = "!$&'()*+,;=:@"
_STRAY_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PREFIX: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.\-]*:(?:[A-Za-z0-9\-._~:/@!$&'()*+,;=\[\]]|%[0-9A-Fa-f]{2})*/"
)

#: Whatever kind of thing it is, a client learns only that it is not served.
_NOT_SERVED: Final = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.EMLINK,  # a link, on FreeBSD
        errno.EACCES,
        errno.EPERM,
        errno.ENAMETOOLONG,
        errno.EINVAL,
        errno.EILSEQ,
        errno.ENXIO,  # a socket, or a device that is not there
        errno.ENODEV,
        errno.EOPNOTSUPP,  # a socket, on macOS
        errno.EAGAIN,  # somebody has a lease on it
        errno.ESTALE,
    }
)

_DIRECTORY_FLAGS: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FILE_FLAGS: Final = (
    os.O_RDONLY | _NO_LINK | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)
)

#: Where the types known to Python are wrong for source code, or there are none.
_TYPES: Final = {
    ".cts": "text/typescript",
    ".go": "text/x-go",
    ".jsonl": "application/jsonl",
    ".mts": "text/typescript",
    ".rs": "text/x-rust",
    ".toml": "application/toml",
    ".ts": "text/typescript",
    ".tsx": "text/typescript",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
_COMPRESSED: Final = {
    "br": "application/x-brotli",
    "bzip2": "application/x-bzip2",
    "compress": "application/x-compress",
    "gzip": "application/gzip",
    "xz": "application/x-xz",
}
_SHORT_ESCAPES: Final = b'"\\\b\f\n\r\t'
_LONG_ESCAPES: Final = bytes(code for code in range(0x20) if code not in _SHORT_ESCAPES)


class FileNotServed(TrioMcpError):
    """There is no such file for a client; why, is not said. Attribute ``path``: what was asked."""

    def __init__(self, path: str) -> None:
        super().__init__("there is no such file")
        self.path = path


class FileTooLarge(TrioMcpError):
    """The file does not fit into a message. Attributes: ``path``, and ``limit`` in bytes."""

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(f"the file is too large for one message: more than {limit} bytes")
        self.path = path
        self.limit = limit


@attrs.frozen
class FileEntry:
    """A file in a listing.

    ``path`` is relative to the root, with ``/``; ``size`` is in bytes; ``last_modified`` is ISO
    8601 in UTC, ``None`` for a time that no calendar has; ``mime_type`` is ``None`` if the name
    tells none.
    """

    path: str
    name: str
    uri: str
    mime_type: str | None
    size: int
    last_modified: str | None


@attrs.frozen
class Listing:
    """Files in the order of their paths. ``truncated``: there are more than the limits allow."""

    entries: tuple[FileEntry, ...]
    truncated: bool


@attrs.frozen
class FileContents:
    """What a file holds: ``text``, or ``blob`` in base64; the other one is ``None``."""

    uri: str
    mime_type: str
    text: str | None
    blob: str | None


def largest_file(message_bytes: int) -> int:
    """The bytes of the largest file of which the base64 fits into a message of that length."""
    return max(1, (message_bytes - min(ENVELOPE, message_bytes // 4)) // 4 * 3)


class Directory:
    """The files below one directory, to list and to read.

    :param root: the directory. It is opened anew each time, so it may be replaced; links in this
        path itself are followed.
    :param uri: what stands before a file's path in its URI, with a ``/`` at its end; the ``file:``
        URI of ``root`` unless given, which tells clients where on this machine it is.
    :param include: patterns such as ``"*.md"``; a file's name must match one of them. All by
        default.
    :param hidden: whether names that begin with a dot are served, directories included.
    :param max_bytes: of one file; see :func:`largest_file`.
    :param max_entries: how many files are listed, and how many directories are looked into for it.
    :param max_depth: how many components a path has, for listing and for reading.

    Raises ``ValueError`` for a URI that is none, for limits below 1, and ``NotADirectoryError`` or
    another ``OSError`` if the root cannot be opened; ``NotImplementedError`` on systems without
    ``openat`` (Windows), where none of this could be promised.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        uri: str | None = None,
        include: tuple[str, ...] | list[str] | None = None,
        hidden: bool = False,
        max_bytes: int | None = None,
        max_entries: int = 10_000,
        max_depth: int = 32,
    ) -> None:
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise NotImplementedError("serving a directory needs a system with openat()")
        self.root: Final = Path(os.path.abspath(root))
        if uri is None:
            uri = self.root.as_uri().removesuffix("/") + "/"
        if not _PREFIX.fullmatch(uri):
            raise ValueError(f"uri must be an absolute URI that ends in '/', not {uri!r}")
        self.uri: Final = uri
        self.hidden: Final = hidden
        self.max_bytes: Final = (
            largest_file(Limits().message_bytes) if max_bytes is None else max_bytes
        )
        self.max_entries: Final = max_entries
        self.max_depth: Final = max_depth
        for name in ("max_bytes", "max_entries", "max_depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)!r}")
        if isinstance(include, str):
            raise TypeError(f"include is a list of patterns, such as [{include!r}]")
        self._include: Final = (
            None if include is None else [re.compile(fnmatch.translate(each)) for each in include]
        )
        os.close(os.open(self.root, _DIRECTORY_FLAGS))

    @property
    def uri_template(self) -> str:
        """The template of all URIs; its ``path`` is what :meth:`read` takes."""
        return self.uri + "{+path}"

    def uri_of(self, path: str) -> str:
        """The URI of a relative path."""
        return self.uri + "/".join(quote(part, safe=_SAFE) for part in path.split("/"))

    def path_of(self, uri: str) -> str:
        """The relative path of a URI, percent-decoded once. Raises :class:`FileNotServed`.

        Takes the URI apart before it decodes, so an encoded slash is part of a name, and no name
        has one.
        """
        rest = uri.removeprefix(self.uri)
        if len(rest) == len(uri) or _STRAY_PERCENT.search(rest) or "?" in rest or "#" in rest:
            raise FileNotServed(uri)
        try:
            parts = [unquote_to_bytes(part).decode() for part in rest.split("/")]
        except UnicodeError:
            raise FileNotServed(uri) from None
        if any("/" in part for part in parts):
            raise FileNotServed(uri)
        path = "/".join(parts)
        self._components(path)
        return path

    # Listing --------------------------------------------------------------------------------------

    def listing(self, check: Check | None = None) -> Listing:
        """The files below the root, sorted by path, component by component.

        Memory and the number of directories opened are bounded by the limits; a directory that
        cannot be opened is left out, and a missing root has no files. ``check`` is called whenever
        a name is looked at, and may raise to stop, for example ``ctx.check_cancelled``.
        """
        walk = _Walk(self, check or _go_on)
        try:
            root = os.open(self.root, _DIRECTORY_FLAGS)
        except OSError as error:
            if error.errno not in _NOT_SERVED:
                raise
            return Listing((), False)
        try:
            walk.directory(root, "", 1)
        finally:
            os.close(root)
        return Listing(tuple(walk.entries), walk.truncated)

    # Reading --------------------------------------------------------------------------------------

    def read(self, path: str, check: Check | None = None) -> bytes:
        """The bytes of a file. ``path`` is relative to the root, with ``/``, nothing encoded.

        Raises :class:`FileNotServed` and :class:`FileTooLarge`, and ``OSError`` for what is the
        server's own trouble (a broken disk, no descriptors left). ``check`` is called between two
        reads. Never waits for a pipe or a device, only for the disk.
        """
        try:
            descriptor = self._open(path)
        except OSError as error:
            if error.errno not in _NOT_SERVED:
                raise
            raise FileNotServed(path) from None
        try:
            return self._read_all(descriptor, path, check or _go_on)
        finally:
            os.close(descriptor)

    def read_contents(self, path: str, check: Check | None = None) -> FileContents:
        """Like :meth:`read`, ready for ``resources/read``.

        Text is what is UTF-8 without a NUL, unless its name says image, audio, video or font. A
        text that JSON makes longer than the base64 of the largest file is refused as well.
        """
        data = self.read(path, check)
        mime_type = guess_type(path.rpartition("/")[2])
        text = None if _is_media(mime_type) else _as_text(data)
        if text is not None and _escaped_length(data) > (self.max_bytes + 2) // 3 * 4:
            raise FileTooLarge(path, self.max_bytes)
        default = "application/octet-stream" if text is None else "text/plain"
        return FileContents(
            uri=self.uri_of(path),
            mime_type=mime_type or default,
            text=text,
            blob=base64.b64encode(data).decode() if text is None else None,
        )

    def _open(self, path: str) -> int:
        """A descriptor of a regular file. Raises ``OSError`` and :class:`FileNotServed`."""
        *parents, name = self._components(path)
        directory = os.open(self.root, _DIRECTORY_FLAGS)
        try:
            for parent in parents:
                inner = os.open(parent, _DIRECTORY_FLAGS | _NO_LINK, dir_fd=directory)
                os.close(directory)
                directory = inner
            # To open some devices does something already, so what is none of ours is not opened.
            # That it still is the same thing is then seen on the descriptor.
            if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                raise FileNotServed(path)
            descriptor = os.open(name, _FILE_FLAGS, dir_fd=directory)
        finally:
            os.close(directory)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileNotServed(path)
        return descriptor

    def _read_all(self, descriptor: int, path: str, check: Check) -> bytes:
        """All of it, as long as that is not too much; what ``fstat`` says may be old already."""
        if os.fstat(descriptor).st_size > self.max_bytes:
            raise FileTooLarge(path, self.max_bytes)
        data = bytearray()
        while True:
            check()
            chunk = os.read(descriptor, min(CHUNK, self.max_bytes + 1 - len(data)))
            data += chunk
            if len(data) > self.max_bytes:
                raise FileTooLarge(path, self.max_bytes)
            if not chunk:
                return bytes(data)

    def _components(self, path: str) -> list[bytes]:
        """As bytes, so that no file system encoding has a say. Raises :class:`FileNotServed`."""
        parts = path.split("/", self.max_depth)
        if len(parts) > self.max_depth or not all(map(self._serves, parts)):
            raise FileNotServed(path)
        if not self._includes(parts[-1]):
            raise FileNotServed(path)
        try:
            return [part.encode() for part in parts]
        except UnicodeEncodeError:
            raise FileNotServed(path) from None

    def _serves(self, name: str) -> bool:
        if name in ("", ".", "..") or "\0" in name or "/" in name:
            return False
        return self.hidden or not name.startswith(".")

    def _includes(self, name: str) -> bool:
        return self._include is None or any(each.match(name) for each in self._include)


class _Walk:
    """One listing in the making."""

    def __init__(self, served: Directory, check: Check) -> None:
        self._served = served
        self._check = check
        self._directories = served.max_entries
        self.entries: list[FileEntry] = []
        self.truncated = False

    def directory(self, descriptor: int, prefix: str, depth: int) -> None:
        """Add what is in it and below it. The number of descriptors is that of the depth."""
        room = self._served.max_entries - len(self.entries) + self._directories
        found = heapq.nsmallest(room + 1, self._names(descriptor))
        self.truncated |= len(found) > room
        for name, is_directory in found[:room]:
            self._check()  # there may be many, and what is still to be done takes longest
            if len(self.entries) >= self._served.max_entries:
                self.truncated = True
                return
            if not is_directory:
                self._file(descriptor, prefix, name)
            elif depth >= self._served.max_depth or not self._directories:
                self.truncated = True
            else:
                self._directories -= 1
                self._inner(descriptor, prefix, name, depth)

    def _names(self, descriptor: int) -> Iterator[tuple[str, bool]]:
        """Names of files and directories, which of both; links and all else are left out."""
        with os.scandir(descriptor) as found:
            for entry in found:
                self._check()
                try:
                    name = os.fsencode(entry.name).decode()
                    is_directory = entry.is_dir(follow_symlinks=False)
                    is_file = entry.is_file(follow_symlinks=False)
                except (UnicodeDecodeError, OSError):
                    continue
                if not self._served._serves(name):
                    continue
                if is_directory or (is_file and self._served._includes(name)):
                    yield name, is_directory

    def _inner(self, descriptor: int, prefix: str, name: str, depth: int) -> None:
        try:
            inner = os.open(name.encode(), _DIRECTORY_FLAGS | _NO_LINK, dir_fd=descriptor)
        except OSError as error:
            if error.errno not in _NOT_SERVED:
                raise
            return
        try:
            self.directory(inner, f"{prefix}{name}/", depth + 1)
        finally:
            os.close(inner)

    def _file(self, descriptor: int, prefix: str, name: str) -> None:
        try:
            status = os.stat(name.encode(), dir_fd=descriptor, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NOT_SERVED:
                raise
            return
        if not stat.S_ISREG(status.st_mode):
            return
        path = prefix + name
        self.entries.append(
            FileEntry(
                path=path,
                name=name,
                uri=self._served.uri_of(path),
                mime_type=guess_type(name),
                size=status.st_size,
                last_modified=_iso(status.st_mtime),
            )
        )


def guess_type(name: str) -> str | None:
    """The MIME type that a file's name tells, of the compression if it is compressed."""
    ours = _TYPES.get(os.path.splitext(name)[1].lower())
    if ours is not None:
        return ours
    # The prefix keeps it from being taken for a URL, as "data:," would be.
    kind, encoding = mimetypes.guess_type(f"./{name}")
    return kind if encoding is None else _COMPRESSED.get(encoding, "application/octet-stream")


def _go_on() -> None:
    pass


def _is_media(mime_type: str | None) -> bool:
    main, _, sub = (mime_type or "").partition("/")
    return main in ("audio", "font", "image", "video") and not sub.endswith(("+xml", "+json"))


def _as_text(data: bytes) -> str | None:
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _escaped_length(data: bytes) -> int:
    """Bytes of UTF-8 once they are a JSON string: two or six for what is escaped."""
    rest = len(data.translate(None, _SHORT_ESCAPES))
    long = rest - len(data.translate(None, _SHORT_ESCAPES + _LONG_ESCAPES))
    return len(data) + (len(data) - rest) + 5 * long


def _iso(timestamp: float) -> str | None:
    try:
        moment = datetime.fromtimestamp(int(timestamp), UTC)
    except (OverflowError, OSError, ValueError):
        return None
    return moment.isoformat().replace("+00:00", "Z")
