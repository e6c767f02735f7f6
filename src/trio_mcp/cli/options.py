"""Options whose values are more than a word, and which of them go together.

Whatever is wrong with one is a usage error, before anything is opened or loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import attrs
import click
import msgspec
from click.core import ParameterSource

from ..runtime.logs import LEVELS
from ..runtime.models.base import LoggingLevel
from .failure import USAGE, CommandError

__all__ = [
    "ANSWER",
    "HEADER",
    "HOST_NAME",
    "LOG_LEVEL",
    "NAMED_TOOL",
    "ORIGIN",
    "PEM_FILE",
    "PLACE",
    "URL_PATH",
    "Answer",
    "NetworkOptions",
    "Place",
    "RequestOptions",
    "above_zero",
    "answers_of",
    "headers_of",
    "network_options",
]

DEFAULT_HOST: Final = "127.0.0.1"
_PORTS: Final = range(65536)

_PLACE: Final = re.compile(r"(?:(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s/:@\[\]]+)):)?([0-9]{1,5})")
_URL_PATH: Final = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_HOST_NAME: Final = re.compile(r"\*|(?:\[[0-9a-fA-F:.]+\]|[^\s/:@\[\]?#]+)(?::[0-9]{1,5})?")
_ORIGIN: Final = re.compile(r"\*|null|https?://[^\s/@?#]+", re.IGNORECASE)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")

Answer: TypeAlias = dict[str, Any] | str
"""A form that is filled in; or what was decided: accept, decline, cancel."""
_DECISIONS: Final = ("accept", "decline", "cancel")

PEM_FILE: Final = click.Path(exists=True, dir_okay=False, readable=True)


# Values -------------------------------------------------------------------------------------------


@attrs.frozen
class Place:
    """Where to listen. Port 0 is any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic in newer versions only


class _Value(_ParamType):
    """A word of which all must match a pattern; ``why`` says what it must look like."""

    def __init__(self, name: str, pattern: re.Pattern[str], why: str) -> None:
        self.name = name
        self._pattern = pattern
        self._why = why

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        match = self._pattern.fullmatch(value) if isinstance(value, str) else None
        found = self.found(match) if match is not None else None
        return found if found is not None else self._refuse(value, param, ctx)

    def found(self, match: re.Match[str]) -> Any:
        """The value; ``None`` if it is none after all."""
        return match[0]

    def _refuse(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> NoReturn:
        self.fail(f"{value!r} is not {self._why}", param, ctx)


class _PlaceValue(_Value):
    def found(self, match: re.Match[str]) -> Place | None:
        bracketed, plain, port = match.groups()
        return Place(bracketed or plain or DEFAULT_HOST, int(port)) if int(port) in _PORTS else None


class _HeaderValue(_Value):
    """Does not quote what it refuses: it may be a secret."""

    def found(self, match: re.Match[str]) -> tuple[str, str] | None:
        name, value = match[1].strip(), match[2].strip()
        proper = _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)
        return (name, value) if proper else None

    def _refuse(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> NoReturn:
        self.fail(f"this is not {self._why}", param, ctx)


class _AnswerValue(_Value):
    def found(self, match: re.Match[str]) -> tuple[str, Answer] | None:
        key, text = match.groups()
        if text in _DECISIONS:
            return key, text
        try:
            form = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return None
        return (key, form) if isinstance(form, dict) else None


class _NamedToolValue(_Value):
    def found(self, match: re.Match[str]) -> tuple[str, dict[str, Any]] | None:
        name, text = match.groups()
        try:
            arguments = msgspec.json.decode(text) if text is not None else {}
        except (msgspec.DecodeError, RecursionError):
            return None
        return (name, arguments) if isinstance(arguments, dict) else None


PLACE: Final = _PlaceValue(
    "place", _PLACE, "[HOST:]PORT, like 8000, 0.0.0.0:8000 or [::1]:8000; port 0 is a free one"
)
URL_PATH: Final = _Value("path", _URL_PATH, "the path of a URL, like /mcp")
HOST_NAME: Final = _Value("name", _HOST_NAME, "a host name, like mcp.example.com, or '*' for any")
ORIGIN: Final = _Value("origin", _ORIGIN, "an origin, like https://example.com, or '*' for any")
HEADER: Final = _HeaderValue(
    "header", re.compile(r"([^:]*):(.*)", re.DOTALL), "'Name: value', in printable ASCII"
)
ANSWER: Final = _AnswerValue(
    "answer",
    re.compile(r"([^=]+)=(.*)", re.DOTALL),
    'KEY=JSON with a form like {"name": "value"}, or KEY=accept, KEY=decline or KEY=cancel',
)
NAMED_TOOL: Final = _NamedToolValue(
    "tool",
    re.compile(r"([^=]+)(?:=(.*))?", re.DOTALL),
    'NAME, or NAME=JSON with its arguments like {"seconds": 30}',
)
LOG_LEVEL: Final = click.Choice(LEVELS)


def above_zero(
    ctx: click.Context, parameter: click.Parameter, seconds: float | None
) -> float | None:
    """Callback of options that take seconds."""
    if seconds is not None and not seconds > 0:
        raise click.BadParameter("must be more than 0 seconds.", ctx, parameter)
    return seconds


def answers_of(
    ctx: click.Context, parameter: click.Parameter, answers: tuple[tuple[str, Answer], ...]
) -> dict[str, Answer]:
    """Callback of an option that takes answers: each question may be answered once."""
    found: dict[str, Answer] = {}
    for key, answer in answers:
        if key in found:
            raise click.BadParameter(f"{key} is given twice.", ctx, parameter)
        found[key] = answer
    return found


def headers_of(
    ctx: click.Context, parameter: click.Parameter, headers: tuple[tuple[str, str], ...]
) -> dict[str, str]:
    """Callback of an option that takes headers: each name may be there once."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name.lower() in (known.lower() for known in found):
            raise click.BadParameter(f"{name} is given twice.", ctx, parameter)
        found[name] = value
    return found


# Together -----------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class RequestOptions:
    """How a request is made, watched and answered. Times are in seconds, ``None`` for the client's
    defaults.

    :param answers: to questions of the server, by their keys.
    :param log_level: the least severe level of log messages that are shown; ``None`` for none.
    """

    timeout: float | None
    max_timeout: float | None
    cancel_after: float | None
    answers: Mapping[str, Answer]
    log_level: LoggingLevel | None
    as_json: bool
    verbose: bool


@attrs.frozen(kw_only=True)
class NetworkOptions:
    """What ``run`` serves over networks: over HTTP, over WebSockets, or both."""

    http: Place | None
    websocket: Place | None
    path: str
    hosts: tuple[str, ...]
    origins: tuple[str, ...]
    certfile: str | None
    keyfile: str | None
    carrier: str


def network_options(ctx: click.Context, *, stdio: bool, **options: Any) -> NetworkOptions | None:
    """The options of ``run`` as a whole; ``None`` for standard input and output."""
    found = NetworkOptions(**options)
    listens = found.http is not None or found.websocket is not None
    if listens and stdio:
        raise click.UsageError("--stdio goes with neither --http nor --websocket.", ctx)
    if not listens:
        for parameter in ctx.command.params:
            if parameter.name in options and (
                ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
            ):
                raise click.UsageError(f"{parameter.opts[0]} needs --http or --websocket.", ctx)
        return None
    if found.carrier != "native" and found.http is None:
        raise click.UsageError("--carrier needs --http.", ctx)
    if found.keyfile is not None and found.certfile is None:
        raise click.UsageError("--keyfile needs --certfile.", ctx)
    if found.carrier == "hypercorn":
        _check_hypercorn()
    return found


def _check_hypercorn() -> None:
    from importlib.util import find_spec

    if find_spec("hypercorn") is None:
        raise CommandError(
            "--carrier hypercorn needs the package hypercorn: pip install 'trio-mcp[http2]'", USAGE
        )
