"""What a server asks its user while a request is made, and what it tells.

``--answer`` answers beforehand. Else the user is asked on the terminal, in the task that waits for
the request: no thread reads the terminal, so that Ctrl-C cancels a question as it does all else.
Without a terminal, a question nobody has answered ends the command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import click
import trio

from ..client.elicitation import Elicitation
from ..client.logs import LogMessage
from ..runtime.jsonrpc import encode
from ..runtime.models.elicitation import ElicitResult
from .arguments import parameters_of, parse_value, required_of, type_name
from .failure import USAGE, CommandError, complain
from .options import Answer, RequestOptions
from .printable import few, json_text, one_line, printable
from .show import CallView, print_log

__all__ = ["Questions"]

_LINE: Final = 4096
"""Bytes of a typed line that are read at once: no terminal's line is longer."""
_MESSAGE: Final = 200
"""Characters of a question that an error message repeats."""

_BOOLEANS: Final = {"y": True, "yes": True, "n": False, "no": False}


class Questions:
    """Who answers for one request. ``view`` makes room for a question on the terminal."""

    view: CallView | None = None

    def __init__(self, request: RequestOptions) -> None:
        self._answers = request.answers
        self._log_level = request.log_level
        self._one_by_one = trio.Lock()
        self._asked: dict[str, None] = {}

    @property
    def callbacks(self) -> dict[str, Any]:
        """For :func:`.connect`."""
        callbacks: dict[str, Any] = {"on_elicit": self.answer, "elicit_modes": ("form", "url")}
        if self._log_level is not None:
            callbacks.update(on_log=self.hear, log_level=self._log_level)
        return callbacks

    def hear(self, message: LogMessage) -> None:
        """A log message of the server."""
        print_log(message)

    async def answer(self, question: Elicitation) -> ElicitResult:
        """The answer to a question. Raises :class:`CommandError` if there is none to be had.

        To cancel it gives the terminal back.
        """
        self._asked[question.key] = None
        given = self._answers.get(question.key)
        if given is not None:
            return _given(question, given)
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise _unanswered(question)
        async with self._one_by_one:
            assert self.view is not None
            with self.view.paused():
                return await _ask(question)

    def tell_unasked(self) -> None:
        """Say which answers were given to questions that nobody asked: a typo, perhaps. For a
        request that has ended by itself."""
        asked = f"asked: {few(self._asked)}" if self._asked else "nothing was asked"
        for key in self._answers:
            if key not in self._asked:
                complain(f"--answer {one_line(key)}=… was not asked for; {asked}")


# Beforehand ---------------------------------------------------------------------------------------


def _given(question: Elicitation, answer: Answer) -> ElicitResult:
    if answer == "decline":
        return question.decline()
    if answer == "cancel":
        return question.cancel()
    try:
        return question.accept(answer if isinstance(answer, dict) else None)
    except ValueError as error:
        raise CommandError(f"--answer {question.key}: {_line(str(error))}", USAGE) from None


def _unanswered(question: Elicitation) -> CommandError:
    asked = _line(question.message)
    if question.mode == "url":
        what, how = f"open {question.url}", "accept"
    else:
        fields = _fields(question)
        what = few(f"{name}{mark}: {_kind(field)}" for name, field, mark in fields)
        needed = [f"{json_text(encode(name))}: …" for name, _, mark in fields if not mark]
        how = f"'{{{', '.join(needed)}}}'"
    return CommandError(
        f"the server asks: {asked} ({_line(what)}); answer with "
        f"--answer {one_line(question.key)}={_line(how)}, or {one_line(question.key)}=decline",
        USAGE,
    )


# On the terminal ----------------------------------------------------------------------------------


async def _ask(question: Elicitation) -> ElicitResult:
    _say(f"the server asks: {_indented(question.message)}\n  (Ctrl-D declines)\n")
    done = False
    try:
        answer = await (_ask_page(question) if question.mode == "url" else _ask_form(question))
        done = True
    finally:
        if not done:
            _say("\n")  # leave the line that nobody has finished
    return answer


async def _ask_page(question: Elicitation) -> ElicitResult:
    _say(f"  it wants you to open this page: {one_line(question.url or '')}\n")
    text = await _typed("  do you agree, and open it? (yes or no): ")
    agreed = text is not None and _BOOLEANS.get(text.lower(), False)
    return question.accept() if agreed else question.decline()


async def _ask_form(question: Elicitation) -> ElicitResult:
    """Until what was typed fits the form, or the user declines."""
    while True:
        form: dict[str, Any] = {}
        for name, field, mark in _fields(question):
            value = await _ask_field(name, field, mark)
            if value is _DECLINED:
                return question.decline()
            if value is not _LEFT_OUT:
                form[name] = value
        try:
            return question.accept(form)
        except ValueError as error:
            _say(f"  {_line(str(error))}\n")


_DECLINED: Final = object()
_LEFT_OUT: Final = object()


async def _ask_field(name: str, field: Mapping[str, Any], mark: str) -> Any:
    about = field.get("description") or field.get("title")
    if isinstance(about, str):
        _say(f"  {_line(about)}\n")
    default = field.get("default")
    hint = f" = {_line(json_text(encode(default)))}" if default is not None else ""
    while True:
        text = await _typed(f"  {one_line(name)}{mark} ({_line(_kind(field))}{hint}): ")
        if text is None:
            return _DECLINED
        if not text and default is not None:
            return default
        if not text and mark:
            return _LEFT_OUT
        if field.get("type") == "boolean" and text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        try:
            return parse_value(name, text, field, {})
        except CommandError as error:
            _say(f"  {_line(error.message)}\n")


async def _typed(prompt: str) -> str | None:
    """A line of the terminal; ``None`` for its end, Ctrl-D. Cancelled, it takes nothing."""
    _say(prompt)
    descriptor = sys.stdin.fileno()
    data = b""
    while not data.endswith(b"\n"):
        await trio.lowlevel.wait_readable(descriptor)
        piece = os.read(descriptor, _LINE)
        if not piece:
            _say("\n")
            return None
        data += piece
    return data.decode(errors="replace").strip()


def _say(text: str) -> None:
    click.echo(text, err=True, nl=False)


# What is asked ------------------------------------------------------------------------------------


def _fields(question: Elicitation) -> list[tuple[str, Mapping[str, Any], str]]:
    """Name, schema, and a question mark for those that may be left out."""
    schema = question.schema or {}
    required = required_of(schema)
    return [
        (name, field if isinstance(field, dict) else {}, "" if name in required else "?")
        for name, field in parameters_of(schema).items()
    ]


def _kind(field: Mapping[str, Any]) -> str:
    return type_name(_with_choices(field), {})


def _with_choices(field: Any) -> Any:
    """Choices that have titles, as those without."""
    if not isinstance(field, dict):
        return field
    for word in ("oneOf", "anyOf"):
        options = field.get(word)
        if isinstance(options, list) and all(isinstance(o, dict) and "const" in o for o in options):
            return {"enum": [option["const"] for option in options]}
    return {**field, "items": _with_choices(field["items"])} if "items" in field else field


def _indented(text: str) -> str:
    """Lines that follow are indented: none of them looks like one of ours."""
    return printable(text).replace("\n", "\n  ")


def _line(text: str) -> str:
    shown = one_line(" ".join(text.split()))
    return shown if len(shown) <= _MESSAGE else shown[:_MESSAGE] + "…"
