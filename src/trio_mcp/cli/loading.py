"""From ``FILE.py[:name]`` to the server object that the file defines."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

import attrs
import click

from ..server import Server
from .failure import USAGE, CommandError

__all__ = ["ServerFile", "load_server"]

_STAND_IN: Final = "__trio_mcp_server__"
"""The module's name where its own is taken by a module that is loaded already."""


@attrs.frozen
class ServerFile:
    """A Python file, and the name of the server in it, or of a function that makes one; without a
    name, its only server is meant."""

    path: Path
    name: str | None = None

    @classmethod
    def parse(cls, word: str) -> ServerFile | None:
        """``server.py`` or ``server.py:name``; ``None`` for what is neither."""
        for path, colon, name in ((word, "", ""), word.rpartition(":")):
            if path.endswith(".py") and (name.isidentifier() or not colon):
                return cls(Path(path), name or None)
        return None

    def check(self) -> None:
        """Raises :class:`CommandError` if there is no such file."""
        if not self.path.is_file():
            raise CommandError(f"there is no file {str(self.path)!r}", USAGE)


def load_server(file: ServerFile) -> Server:
    """Run the file as a module, and find the server in it.

    What it imports is looked for in its own folder first, as with ``python FILE.py``; its
    ``__name__`` is not ``"__main__"``. Raises :class:`CommandError`; where the file itself raised,
    its traceback has been printed.
    """
    file.check()
    module = _import(file.path.resolve())
    servers = {name: value for name, value in vars(module).items() if isinstance(value, Server)}
    if file.name is not None:
        maker = vars(module).get(file.name)
        if inspect.isroutine(maker):
            return _made(file, maker)
        if file.name not in servers:
            raise CommandError(
                f"{file.path} has no server named {file.name!r}; {_candidates(servers)}", USAGE
            )
        return servers[file.name]
    distinct = {id(server): server for server in servers.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if not distinct:
        raise CommandError(
            f"{file.path} has no server: it needs a module-level "
            "server = trio_mcp.Server(name, version=…); "
            f'a server of another kind is launched with "python {file.path}"; '
            f"a function that makes one is named, as in {file.path}:make_server",
            USAGE,
        )
    first = next(iter(servers))
    raise CommandError(
        f"{file.path} has several servers: {_listed(servers)}; say which, "
        f"for example {file.path}:{first}",
        USAGE,
    )


def _made(file: ServerFile, maker: Any) -> Server:
    """What a function of the file returns."""
    named = f"{file.path} has a function {file.name!r}"
    try:
        inspect.signature(maker).bind()
    except (TypeError, ValueError):
        why = "which is called without arguments if it is to make a server, and needs some"
        raise CommandError(f"{named}, {why}", USAGE) from None
    if inspect.iscoroutinefunction(maker):
        raise CommandError(f"{named}, which is async; one that makes a server is not", USAGE)
    try:
        made = maker()
    except Exception as error:
        raise _told(error, file.path.resolve(), f"{file.name}() of {file.path.name}") from None
    if not isinstance(made, Server):
        raise CommandError(f"{named}, which returned {made!r:.80} and not a server", USAGE)
    return made


def _candidates(servers: dict[str, Server]) -> str:
    if not servers:
        return "there is no server in it at all"
    return f"the servers in it: {_listed(servers)}"


def _listed(servers: dict[str, Server]) -> str:
    return ", ".join(servers)


def _import(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent))
    sys.argv[:] = [str(path)]
    name = path.stem if path.stem not in sys.modules else _STAND_IN
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None  # the loader is given
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        # Not loader.exec_module(): a script that is run leaves no __pycache__ beside itself.
        exec(loader.source_to_code(path.read_bytes(), str(path)), vars(module))
    except Exception as error:
        raise _told(error, path, path.name) from None
    return module


def _told(error: Exception, path: Path, what: str) -> CommandError:
    """Prints the traceback; what is left to be said."""
    lines = traceback.format_exception(type(error), error, _below(error, path))
    click.echo("".join(lines), nl=False, err=True)
    why = traceback.format_exception_only(error)[-1].strip()
    return CommandError(f"cannot load {what}: {why}")


def _below(error: Exception, path: Path) -> TracebackType | None:
    """The traceback from the file on, without our own frames."""
    rest = error.__traceback__
    while rest is not None and rest.tb_frame.f_code.co_filename != str(path):
        rest = rest.tb_next
    return rest
