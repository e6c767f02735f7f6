"""``trio-mcp complete``: what an argument may be completed to."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..client import Client
from ..runtime.models.completion import Completion
from ..runtime.server_errors import InvalidParams
from .failure import USAGE, CommandError
from .interrupts import Interrupts
from .printable import one_line
from .show import print_json
from .targets import Target, connected

__all__ = ["complete"]


async def complete(
    interrupts: Interrupts,
    target: Target,
    of: str,
    words: Sequence[str],
    *,
    as_json: bool,
    verbose: bool,
) -> int:
    """Print what the first argument of a prompt or of a URI template may be; the exit status."""
    pairs = [_pair(word) for word in words]
    async with connected(
        interrupts, target, f"completing {one_line(of)}", verbose=verbose
    ) as client:
        try:
            completion = await _ask(client, of, pairs)
        except InvalidParams as error:  # no such prompt, template or argument, says the server
            raise CommandError(str(error), USAGE) from None
    if as_json:
        print_json(completion)
        return 0
    for value in completion.values:
        click.echo(one_line(value))
    more = (completion.total or 0) - len(completion.values)
    if more > 0 or completion.has_more:
        click.echo(f"… and {more if more > 0 else 'some'} more", err=True)
    return 0


async def _ask(client: Client, of: str, pairs: Sequence[tuple[str, str]]) -> Completion:
    template = "{" in of
    return await client.complete(
        argument=pairs[0][0],
        value=pairs[0][1],
        prompt=None if template else of,
        resource=of if template else None,
        arguments=dict(pairs[1:]) or None,
    )


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise CommandError(f"{word!r} is no argument; write key=value", USAGE)
    return key, value
