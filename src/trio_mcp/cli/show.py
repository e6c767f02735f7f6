"""What the commands print: tools, results, and a call as it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, Protocol

import click
import msgspec
import trio
from rich.console import Console, ConsoleDimensions
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from ..client import Client
from ..client.logs import LogMessage
from ..runtime.eras.earlier import as_sent
from ..runtime.jsonrpc import encode
from ..runtime.models.base import UNSET
from ..runtime.models.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from ..runtime.models.converter import unstructure
from ..runtime.models.prompts import GetPromptResult, Prompt
from ..runtime.models.resources import Resource, ResourceTemplate
from ..runtime.models.tools import CallToolResult, Tool
from ..runtime.progress import ProgressUpdate
from .arguments import parameters_of, required_of, type_name
from .printable import json_text, one_line, printable

__all__ = [
    "CallView",
    "call_view",
    "print_json",
    "print_json_of",
    "print_log",
    "print_messages",
    "print_prompts",
    "print_resources",
    "print_result",
    "print_tools",
]

_FRAME: Final = 0.1
"""Seconds from one picture of a live display to the next."""
_WIDE: Final = 80
"""Columns of a terminal from which on a bar is a long one."""
_BAR: Final = 24
"""Columns of a long bar."""
_DEFAULT: Final = 24
"""Characters shown of a parameter's default."""
_LINE_INTERVAL: Final = 1.0
"""Least seconds between two progress lines where there is no live display."""


def print_json(value: Any) -> None:
    """A model, or a list of models, as it looks on the wire."""
    _print_document(unstructure(value))


def print_json_of(client: Client, result: Any) -> None:
    """A result of this client's server, as it looked on the wire."""
    _print_document(as_sent(client.protocol_version, unstructure(result)))


def _print_document(value: Any) -> None:
    click.echo(json_text(msgspec.json.format(encode(value), indent=2)))


# Tools --------------------------------------------------------------------------------------------


def print_tools(tools: Sequence[Tool]) -> None:
    """A table on a terminal; elsewhere one line for each tool."""
    console = Console()
    if not console.is_terminal:
        for tool in tools:
            summary = _summary(tool)
            signature = f"{tool.name}({', '.join(_parameters(tool))})"
            click.echo(one_line(f"{signature}  {summary}" if summary else signature))
        return
    if not tools:
        console.print("the server offers no tools", style="dim")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 3, 1, 0), header_style="dim")
    table.add_column("tool", no_wrap=True, style="bold cyan")
    table.add_column("parameters", overflow="fold")
    table.add_column("what it does")
    for tool in tools:
        lines = [Text(one_line(line)) for line in _parameters(tool)]
        for line in lines:
            line.highlight_regex(r"^[^:]+", "green")
            line.highlight_regex(r"(?<=:).*", "default")
        table.add_row(
            Text(one_line(tool.name)),
            Text("\n").join(lines) if lines else Text("none", style="dim"),
            Text(one_line(_summary(tool))),
        )
    console.print(table)


def _parameters(tool: Tool) -> list[str]:
    """``title: string``, ``copies: integer = 1``; a ``?`` marks one that may be left out."""
    schema = tool.input_schema
    required = set(required_of(schema))
    lines = []
    for name, parameter in parameters_of(schema).items():
        optional = "" if name in required else "?"
        line = f"{name}{optional}: {type_name(parameter, schema)}"
        if isinstance(parameter, dict) and parameter.get("default") is not None:
            default = encode(parameter["default"]).decode()
            line += f" = {default if len(default) <= _DEFAULT else default[:_DEFAULT] + '…'}"
        lines.append(line)
    return lines


def _summary(described: Tool | Prompt | Resource | ResourceTemplate) -> str:
    """The first paragraph of the description, on one line."""
    return " ".join((described.description or described.title or "").split("\n\n")[0].split())


# Resources and prompts ----------------------------------------------------------------------------


def print_resources(resources: Sequence[Resource], templates: Sequence[ResourceTemplate]) -> None:
    """Resources, then templates: a table on a terminal; elsewhere one line for each."""
    listed: list[tuple[str, Resource | ResourceTemplate]] = [
        *((resource.uri, resource) for resource in resources),
        *((template.uri_template, template) for template in templates),
    ]
    rows = [(uri, it.mime_type or "", _summary(it) or it.name) for uri, it in listed]
    _print_rows(("resource", "type", "what it is"), rows, lambda uri, _, about: f"{uri}  {about}")


def print_prompts(prompts: Sequence[Prompt]) -> None:
    """A table on a terminal; elsewhere one line for each prompt."""
    rows = [(prompt.name, ", ".join(_texts(prompt)), _summary(prompt)) for prompt in prompts]
    _print_rows(
        ("prompt", "arguments", "what it is for"),
        rows,
        lambda name, arguments, about: f"{name}({arguments})  {about}".rstrip(),
    )


def _texts(prompt: Prompt) -> list[str]:
    arguments = prompt.arguments or []
    return [f"{argument.name}{'' if argument.required else '?'}" for argument in arguments]


def _print_rows(
    titles: tuple[str, str, str],
    rows: Sequence[tuple[str, str, str]],
    line: Callable[[str, str, str], str],
) -> None:
    console = Console()
    if not console.is_terminal:
        for row in rows:
            click.echo(one_line(line(*row)))
        return
    if not rows:
        console.print(f"the server offers no {titles[0]}s", style="dim")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for title, style in zip(titles, ("bold cyan", "green", ""), strict=True):
        table.add_column(title, style=style, overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    console.print(table)


# Results ------------------------------------------------------------------------------------------


def print_result(result: CallToolResult) -> None:
    """The content, one block after another; structured content where there is no other."""
    if not result.content and result.structured_content is not UNSET:
        _print_document(result.structured_content)
    for block in result.content:
        click.echo(_as_text(block))


def print_messages(result: GetPromptResult) -> None:
    """Who speaks, and what. Lines that follow are indented, and look like nobody's beginning."""
    for message in result.messages:
        lines = _as_text(message.content).splitlines()
        click.echo("\n  ".join([f"{message.role}: {lines[0] if lines else ''}", *lines[1:]]))


def print_log(message: LogMessage) -> None:
    """A log message of the server, on one line of standard error."""
    data = message.data
    text = data if isinstance(data, str) else json_text(encode(data))
    source = f"{message.logger}: " if message.logger is not None else ""
    click.echo(_note(f"{message.level}: {source}{text}"), err=True)


def _as_text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return printable(block.text)
        case ImageContent() | AudioContent():
            size = len(block.data) * 3 // 4
            return one_line(f"[{block.type}: {block.mime_type}, {size} bytes; --json prints them]")
        case ResourceLink():
            return one_line(f"[{block.name}: {block.uri}]")
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return printable(resource.text)
        case EmbeddedResource():
            return one_line(f"[{block.resource.uri}: binary; --json prints it]")
        case _:
            return one_line(f"[{block.type}; --json prints it]")


# A call as it goes on -----------------------------------------------------------------------------


class CallView(Protocol):
    """Shows one call, on standard error."""

    def progress(self, update: ProgressUpdate) -> None:
        """The tool reports."""

    def stands(self, how: str, why: str | None = None) -> None:
        """Where the call stands now: running, cancelling, stopped, done …; and why."""

    async def animate(self) -> None:
        """A task beside the call, until it is cancelled."""

    def paused(self) -> AbstractContextManager[None]:
        """Room for a question: nothing is shown meanwhile."""


@contextmanager
def call_view(name: str) -> Iterator[CallView]:
    """A live line with a bar on a terminal; elsewhere plain lines."""
    console = _RoomyConsole(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield _PlainView(one_line(name))
        return
    progress = Progress(
        TextColumn("{task.description}", style="bold", markup=False),
        TextColumn("{task.fields[how]}"),
        BarColumn(bar_width=_BAR if console.width >= _WIDE else _BAR // 2),
        TextColumn("{task.fields[count]}", style="progress.percentage"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False, table_column=_the_rest()),
        console=console,
        auto_refresh=False,
        get_time=trio.current_time,
        expand=True,
        redirect_stdout=False,  # only what goes to standard error must make room for the line
    )
    with progress:
        view = _LiveView(progress, one_line(name))
        try:
            yield view
        finally:
            view.over = True


class _RoomyConsole(Console):
    """Leaves room at the end of a line, where a terminal shows ``^C`` as it is typed: it would
    begin a new line there, and the live one could not be found again."""

    @property  # type: ignore[misc]  # nobody sets it
    def size(self) -> ConsoleDimensions:
        size = super().size
        return ConsoleDimensions(max(size.width - len("^C"), 1), size.height)


def _the_rest() -> Column:
    """What the other columns leave over: a long text does not take it from them."""
    return Column(ratio=1, no_wrap=True, overflow="ellipsis")


class _PlainView:
    def __init__(self, name: str) -> None:
        self._name = name
        self._printed_at = -_LINE_INTERVAL
        self._waiting: ProgressUpdate | None = None

    def progress(self, update: ProgressUpdate) -> None:
        self._waiting = update
        if trio.current_time() >= self._printed_at + _LINE_INTERVAL:
            self._flush()

    def stands(self, how: str, why: str | None = None) -> None:
        self._flush()
        self._print(f"{how}: {why}" if why else how)

    async def animate(self) -> None:
        await trio.sleep_forever()

    def paused(self) -> AbstractContextManager[None]:
        self._flush()
        return nullcontext()

    def _flush(self) -> None:
        update, self._waiting = self._waiting, None
        if update is not None:
            self._printed_at = trio.current_time()
            self._print(f"{_count(update)} {update.message or ''}".rstrip())

    def _print(self, line: str) -> None:
        click.echo(f"{self._name}: {_note(line)}", err=True)


_STYLES: Final = {
    "running": "cyan",
    "cancelling": "yellow",
    "stopped": "magenta",
    "done": "green",
    "failed": "red",
    "timed out": "red",
}


class _LiveView:
    """``over``: nothing shall bring the line back, not even a question that leaves late."""

    over = False

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._task: TaskID = progress.add_task(name, total=None, how="", count="", note="")

    def progress(self, update: ProgressUpdate) -> None:
        self._progress.update(
            self._task,
            completed=update.progress,
            total=update.total,
            count=_count(update),
            note=_note(update.message or ""),
        )

    def stands(self, how: str, why: str | None = None) -> None:
        fields: dict[str, Any] = {"how": f"[{_STYLES.get(how, 'default')}]{how:<10}[/]"}
        if why is not None:
            fields["note"] = _note(why)
        if how not in ("running", "cancelling"):
            self._progress.stop_task(self._task)
        if how == "done":
            total = self._progress.tasks[0].total or 1
            fields.update(total=total, completed=total)
        elif how != "running" and self._progress.tasks[0].total is None:
            fields.update(total=1, completed=0)  # a bar that pulses says: still at work
        self._progress.update(self._task, **fields)
        self._progress.refresh()

    async def animate(self) -> None:
        while True:
            self._progress.refresh()
            await trio.sleep(_FRAME)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._progress.stop()
        try:
            yield
        finally:
            if not self.over:
                self._progress.start()


def _note(text: str) -> str:
    """What may have been several lines, on one."""
    return one_line(text.replace("\n", " "))


def _count(update: ProgressUpdate) -> str:
    total = f"/{update.total:g}" if update.total is not None else ""
    return f"{update.progress:g}{total}"
