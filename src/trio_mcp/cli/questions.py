"""What a server asks its user while a request is made, and what it tells.

``--answer`` answers beforehand. Else the user is asked on the terminal, in the task that waits for
the request: no thread reads the terminal, so that Ctrl-C cancels a question as it does all else.
Without a terminal, a question nobody has answered ends the command. What a callback raises does not
come out of every call (in a session, the question is the connection's): so it is told, and
:func:`.watch` ends the call.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final, NoReturn

import click
import trio

from ..client.elicitation import Elicitation, elicitation_of, problems_of
from ..client.logs import LogMessage
from ..runtime.errors import ErrorCode, ProtocolError
from ..runtime.jsonrpc import encode
from ..runtime.models.elicitation import ElicitRequestFormParams, ElicitResult
from .arguments import parameters_of, parse_value, required_of, type_name
from .failure import USAGE, CommandError, complain
from .options import Answer, RequestOptions
from .printable import few, json_text, one_line, printable
from .show import CallView, print_log

__all__ = ["Questions"]

_LINE: Final = 4096
"""Bytes of a typed line that are read at once: no terminal's line is longer."""
_QUESTIONS: Final = 5
"""Questions that one error message names."""
_MESSAGE: Final = 200
"""Characters of a question that an error message repeats."""

_FORMATS: Final = {
    "email": "email address",
    "uri": "URI",
    "date": "date like 2026-01-31",
    "date-time": "date and time like 2026-01-31T12:00:00Z",
}

_BOOLEANS: Final = {"y": True, "yes": True, "n": False, "no": False}


class Questions:
    """Who answers for one request. ``view`` makes room for a question on the terminal."""

    view: CallView | None = None

    def __init__(self, request: RequestOptions) -> None:
        self._answers = request.answers
        self._log_level = request.log_level
        self._one_by_one = trio.Lock()
        self._asked: dict[str, None] = {}
        self._unanswered: list[Elicitation] = []
        self._misfit: CommandError | None = None
        self._failed = trio.Event()
        self._open: trio.CancelScope | None = None
        self._closed = False

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
        """The answer to a question. Raises :class:`ProtocolError` if there is none to be had, which
        :attr:`failure` explains.

        To cancel it gives the terminal back. After :meth:`close` it never returns.
        """
        self._asked[question.key] = None
        given = self._answers.get(question.key)
        if given is not None:
            try:
                return _given(question, given)
            except CommandError as error:
                self._misfit = self._misfit or error
        elif sys.stdin.isatty() and sys.stderr.isatty():
            return await self._on_terminal(question)
        else:
            self._unanswered.append(question)
        # No checkpoint up to here: of what is asked together, all is known before anybody is told.
        self._failed.set()
        raise ProtocolError(ErrorCode.INTERNAL_ERROR, "There is nobody to ask")

    async def _on_terminal(self, question: Elicitation) -> ElicitResult:
        async with self._one_by_one:
            if not self._closed:
                with trio.CancelScope() as self._open:
                    with self.view.paused() if self.view is not None else nullcontext():
                        return await _ask(question)
        return await trio.sleep_forever()  # the request is over: so is who asked, soon

    @property
    def failure(self) -> CommandError | None:
        """Why there are questions without an answer; ``None`` if there are none."""
        if self._misfit is not None:
            return self._misfit
        if not self._unanswered:
            return None
        return _unanswered(sorted(self._unanswered, key=lambda question: question.key))

    async def fail(self) -> NoReturn:
        """Raise :attr:`failure` once there is one; a task beside the request."""
        await self._failed.wait()
        assert self.failure is not None
        raise self.failure

    def close(self) -> None:
        """The request is over: take back what is asked on the terminal. Never waits."""
        self._closed = True
        if self._open is not None:
            self._open.cancel("the request is over")

    async def left(self) -> None:
        """Wait, after :meth:`close`, until the terminal is free."""
        async with self._one_by_one:
            pass

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


def _unanswered(questions: Sequence[Elicitation]) -> CommandError:
    asked, answers, declines = [], [], []
    for question in questions[:_QUESTIONS]:
        what, how = _asked_for(question)
        key = one_line(question.key)
        asked.append(f"{_line(question.message)} ({_line(what)})")
        answers.append(f"--answer {key}={_line(how)}")
        declines.append(f"{key}=decline")
    if len(questions) > _QUESTIONS:
        asked.append(f"… and {len(questions) - _QUESTIONS} more questions")
    return CommandError(
        f"the server asks: {'; '.join(asked)}; answer with {' '.join(answers)}, "
        f"or {', '.join(declines)}",
        USAGE,
    )


def _asked_for(question: Elicitation) -> tuple[str, str]:
    """What to answer with, for a person to read; and as one writes it on the command line."""
    if question.mode == "url":
        return f"open {question.url}", "accept"
    fields = _fields(question)
    needed = [f"{json_text(encode(name))}: …" for name, _, mark in fields if not mark]
    what = few(f"{name}{mark}: {_kind(field)}" for name, field, mark in fields)
    return what, f"'{{{', '.join(needed)}}}'"


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
    """Field by field, each until it fits, unless the user declines."""
    form: dict[str, Any] = {}
    for name, field, mark in _fields(question):
        value = await _ask_field(name, field, mark)
        if value is _DECLINED:
            return question.decline()
        if value is not _LEFT_OUT:
            form[name] = value
    return question.accept(form)


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
        if not text and default is None and mark:
            return _LEFT_OUT
        try:
            value = default if not text and default is not None else _read(name, field, text)
        except CommandError as error:
            _say(f"  {_line(error.message)}\n")
            continue
        wrong = problems_of(_form_of(name, field), {name: value})
        if not wrong:
            return value
        _say(f"  {_line('; '.join(wrong))}\n")


def _read(name: str, field: Mapping[str, Any], text: str) -> Any:
    if field.get("type") == "boolean" and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    return parse_value(name, text, field, {})


def _form_of(name: str, field: Mapping[str, Any]) -> Elicitation:
    """A form with this field alone: what it takes, the whole one takes there."""
    schema = {"type": "object", "properties": {name: field}}
    return elicitation_of(name, ElicitRequestFormParams("", schema), name)


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
    if field.get("type") == "string" and not field.keys() & {"enum", "oneOf"}:
        return _FORMATS.get(str(field.get("format")), "string")
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
