"""``trio-mcp complete``: what an argument may be completed to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import click

from ..client import Client
from ..runtime.models.completion import Completion
from ..runtime.server_errors import InvalidParams
from .arguments import check_names
from .failure import USAGE, CommandError, no_such
from .interrupts import Interrupts
from .listing import all_of
from .printable import few, one_line
from .show import print_json
from .targets import Target, connected

__all__ = ["complete"]

_EXPRESSION: Final = re.compile(r"\{[+#./;?&]?([^{}]*)\}")
"""In braces of a URI template: an operator, and variables."""


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
        except InvalidParams as error:  # no such template, or a wrong value, says the server
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
    if template:
        _check_variables(of, [key for key, _ in pairs])
    else:
        prompts = {prompt.name: prompt for prompt in await all_of(client.prompts())}
        if of not in prompts:
            raise no_such("prompt", of, prompts)
        check_names([key for key, _ in pairs], prompts[of].arguments or [])
    return await client.complete(
        argument=pairs[0][0],
        value=pairs[0][1],
        prompt=None if template else of,
        resource=of if template else None,
        arguments=dict(pairs[1:]) or None,
    )


def _check_variables(template: str, names: Sequence[str]) -> None:
    inside = ",".join(_EXPRESSION.findall(template)).split(",")
    variables = [variable.partition(":")[0].rstrip("*") for variable in inside]
    for name in names:
        if name not in variables:
            raise CommandError(
                f"there is no variable {name!r} in {template!r}; it has {few(variables)}", USAGE
            )


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise CommandError(f"{word!r} is no argument; write key=value", USAGE)
    return key, value
