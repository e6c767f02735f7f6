"""``trio-mcp read``: one resource, and where what is in it goes."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import click

from ..client.started import start_read
from ..runtime.models.content import BlobResourceContents, TextResourceContents
from .failure import FAILED, USAGE, CommandError
from .interrupts import Interrupts
from .options import RequestOptions
from .printable import one_line, printable
from .questions import Questions
from .show import print_json_of
from .targets import Target, connected
from .watching import watch

__all__ = ["read_resource"]

_Contents: TypeAlias = TextResourceContents | BlobResourceContents


async def read_resource(
    interrupts: Interrupts, target: Target, uri: str, output: str | None, request: RequestOptions
) -> int:
    """Read the resource, print it or write it to the file ``output``; the exit status."""
    questions = Questions(request)
    async with connected(
        interrupts,
        target,
        f"reading {one_line(uri)}",
        verbose=request.verbose,
        **questions.callbacks,
    ) as client:
        started = start_read(client, uri, timeout=request.timeout, max_timeout=request.max_timeout)
        result, status = await watch(
            interrupts, target, uri, started, questions, request.cancel_after
        )
        if result is None:
            return status
        if request.as_json:
            print_json_of(client, result)
        elif output is not None:
            _write(output, _whole(result.contents))
        elif sys.stdout.isatty():
            _print(result.contents)
        else:
            sys.stdout.buffer.write(_whole(result.contents))
            sys.stdout.buffer.flush()
        questions.tell_unasked()
        return 0


def _print(contents: Sequence[_Contents]) -> None:
    """To a terminal: texts, as they may be shown."""
    for part in contents:
        if isinstance(part, BlobResourceContents):
            kind = part.mime_type or "of no said type"
            raise CommandError(
                f"{part.uri} is binary ({kind}, {len(_bytes(part))} bytes); --output FILE takes it"
            )
    for part in contents:
        if isinstance(part, TextResourceContents):
            click.echo(printable(part.text), nl=not part.text.endswith("\n"))


def _whole(contents: Sequence[_Contents]) -> bytes:
    """As it is. Several texts make one; several files do not."""
    if len(contents) > 1 and any(isinstance(part, BlobResourceContents) for part in contents):
        raise CommandError(
            f"there are {len(contents)} contents here, binary ones among them; --json prints them"
        )
    return b"".join(map(_bytes, contents))


def _bytes(part: _Contents) -> bytes:
    if isinstance(part, TextResourceContents):
        return part.text.encode(errors="replace")
    try:
        return base64.b64decode(part.blob, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CommandError(f"{part.uri}: what the server sent is no base64: {error}") from None


def _write(output: str, data: bytes) -> None:
    try:
        Path(output).write_bytes(data)
    except OSError as error:
        status = FAILED if Path(output).parent.is_dir() else USAGE
        raise CommandError(f"cannot write {output!r}: {error.strerror or error}", status) from None
