"""``trio-mcp listen``: changes of a server, as they come."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import click
import trio

from ..client import Client
from ..client.subscriptions import Changes
from ..handlers.changes import Change
from ..runtime.journal import Record, Subscription
from ..runtime.jsonrpc import encode
from ..runtime.models.subscriptions import SubscriptionFilter
from .failure import FAILED, INTERRUPTED, CommandError
from .interrupts import Interrupts
from .printable import few, json_text, one_line
from .targets import Target, connected

__all__ = ["ListenRequest", "listen_for_changes"]


@attrs.frozen(kw_only=True)
class ListenRequest:
    """What the user wants to hear of: of lists, and of the resources with these URIs; of all lists
    if nothing is said."""

    tools: bool
    prompts: bool
    resources: bool
    uris: Sequence[str]
    as_json: bool
    verbose: bool

    @property
    def all_lists(self) -> bool:
        return not (self.tools or self.prompts or self.resources or self.uris)


async def listen_for_changes(interrupts: Interrupts, target: Target, request: ListenRequest) -> int:
    """Print changes until the server ends it, or the user does; the exit status."""
    async with connected(interrupts, target, "listening", verbose=request.verbose) as client:
        listening = _Listening(client, request)
        interrupts.gently = listening.cancel
        with client.journal.subscribe() as endings:
            ended = await listening.until_it_ends(endings)
        if ended:
            return 0
        interrupts.leaving(target.leave)
        return interrupts.status or INTERRUPTED


class _Listening:
    """A subscription, and its states on standard error."""

    def __init__(self, client: Client, request: ListenRequest) -> None:
        self._client = client
        self._request = request
        self._scope = trio.CancelScope()

    def cancel(self, why: str) -> bool:
        """Ask for the end; ``False`` if that has been done already."""
        if self._scope.cancel_called:
            return False
        self._scope.cancel(why)
        _stands(f"cancelling: {why}")
        return True

    async def until_it_ends(self, endings: Subscription[Record]) -> bool:
        """Whether the server has ended it, in order; otherwise the user has, and the server has
        been told."""
        request, lists = self._request, self._request.all_lists
        with self._scope:
            async with self._client.listen(
                tools=request.tools or lists,
                prompts=request.prompts or lists,
                resources_list=request.resources or lists,
                resources=request.uris,
            ) as changes:
                _agreed(changes.agreed, request)
                await self._print(changes)
        if self._scope.cancelled_caught:
            await anext(endings)  # there is one request, so this is how it has ended
            _stands("stopped")
            return False
        _stands("ended by the server")
        return True

    async def _print(self, changes: Changes) -> None:
        dropped = 0
        async for change in changes:
            if changes.dropped > dropped:
                _stands(f"too fast: {changes.dropped - dropped} changes were dropped")
                dropped = changes.dropped
            click.echo(_line(change, self._request.as_json))


def _agreed(agreed: SubscriptionFilter, request: ListenRequest) -> None:
    """Say what the server will tell of, and what it will not. Raises :class:`CommandError` if that
    is nothing."""
    lists = {
        "tools": (request.tools, agreed.tools_list_changed),
        "prompts": (request.prompts, agreed.prompts_list_changed),
        "resources": (request.resources, agreed.resources_list_changed),
    }
    uris = agreed.resource_subscriptions or []
    told = [name for name, (_, said) in lists.items() if said] + uris
    if not told:
        raise CommandError("the server tells of no such changes", FAILED)
    _stands(f"running: {few(told)}")
    missing = [name for name, (wanted, said) in lists.items() if wanted and not said]
    missing += [uri for uri in request.uris if uri not in uris]
    if missing:
        _stands(f"the server does not tell of {few(missing)}")


def _line(change: Change, as_json: bool) -> str:
    if as_json:
        uri = {} if change.uri is None else {"uri": change.uri}
        return json_text(encode({"kind": change.kind, **uri}))
    return one_line(change.kind if change.uri is None else f"{change.kind} {change.uri}")


def _stands(how: str) -> None:
    click.echo(f"listen: {one_line(how)}", err=True)
