"""``trio-mcp prompt``: one prompt, filled in."""

from __future__ import annotations

from collections.abc import Sequence

from ..client.started import start_prompt
from .arguments import parse_texts
from .failure import no_such
from .interrupts import Interrupts
from .listing import all_of
from .options import RequestOptions
from .questions import Questions
from .show import print_json_of, print_messages
from .targets import Target, connected
from .watching import watch

__all__ = ["get_prompt"]


async def get_prompt(
    interrupts: Interrupts, target: Target, name: str, words: Sequence[str], request: RequestOptions
) -> int:
    """Get the prompt, print its messages; the exit status."""
    questions = Questions(request)
    async with connected(
        interrupts, target, "listing prompts", verbose=request.verbose, **questions.callbacks
    ) as client:
        prompts = {prompt.name: prompt for prompt in await all_of(client.prompts())}
        if name not in prompts:
            raise no_such("prompt", name, prompts)
        arguments = parse_texts(words, prompts[name].arguments or [])
        started = start_prompt(
            client, name, arguments, timeout=request.timeout, max_timeout=request.max_timeout
        )
        result, status = await watch(
            interrupts, target, name, started, questions, request.cancel_after
        )
        if result is None:
            return status
        if request.as_json:
            print_json_of(client, result)
        else:
            print_messages(result)
        questions.tell_unasked()
        return 0
