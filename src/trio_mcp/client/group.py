"""Many servers at once, none of which can hurt the others."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Any, Literal, TypeAlias, get_args

import trio

from ..runtime.call import Call
from ..runtime.errors import CallTimeout, ConnectionLost
from ..runtime.groups import leaf_of
from ..runtime.journal import CallStatus, Subscription, printable
from ..runtime.limits import Limits
from ..runtime.models.tools import CallToolResult, Tool
from ..runtime.tracing import TraceContext
from ..server import Server
from .calls import OnProgress, cancel_calls
from .checks import check_mapping, check_seconds, check_text
from .client import Client
from .connecting import Target, connect
from .handles import ToolCall
from .members import GroupCall, Member, MemberState
from .naming import NAME_LENGTH, GroupTools, Naming
from .retries import Retry

__all__ = ["ClientGroup", "MemberTarget", "Require"]

logger = logging.getLogger("trio_mcp.client")

MemberTarget: TypeAlias = Target | AbstractAsyncContextManager[Client]
"""What becomes a member: what :func:`.connecting.connect` returns, or a target for it."""

Require: TypeAlias = Literal["none", "any", "all"]


class ClientGroup:
    """Connections to any number of servers: ``async with ClientGroup({name: target}) as group``.

    :param members: by name, each what :func:`~trio_mcp.connect` returns (not entered), or a target
        for it.
    :param require: ``"none"``: the block begins with those that could be connected to, and shows
        the others; ``"any"``: at least one must; ``"all"``: all must.
    :param wait: seconds that entering the block waits for members. Those that take longer go on,
        and join when they are there.
    :param separator: between the names of a member and of its tool: ``"shop.order_book"``.
    :param name_length: most characters of such a name.

    Members are connected to at the same time, each within its own ``Limits.connect``, and closed at
    the same time, so both take as long as the slowest one. Each lives in a task of its own: what
    goes wrong with one is seen in ``members`` and in its own calls, and nowhere else.

    What the block raises comes out as it is. If members may not be missing, or fail while they are
    closed, their error comes out, too: as it is if it is the only one, otherwise in an
    ``ExceptionGroup``. Raises ``ValueError`` for names and options that are none. However the block
    is left, no process, task or socket is left. Leave it in the task that entered it. ``TypeError``
    and ``ValueError`` for a target that is none come at once, and make no member.
    """

    def __init__(
        self,
        members: Mapping[str, MemberTarget] | None = None,
        *,
        require: Require = "none",
        wait: float = math.inf,
        separator: str = ".",
        name_length: int = NAME_LENGTH,
    ) -> None:
        if require not in get_args(Require):
            raise ValueError(f'require is "none", "any" or "all", not {require!r}')
        if isinstance(wait, bool) or not isinstance(wait, (int, float)):
            raise TypeError(f"wait is a number of seconds, not {wait!r:.80}")
        if not wait >= 0:
            raise ValueError(f"wait must be 0 seconds or more, not {wait!r}")
        if members is not None:
            check_mapping("members", members)
        self._require = require
        self._wait = wait
        self._naming = Naming(separator, name_length)
        self._first = {
            self._naming.check(name): _connecting(target)
            for name, target in (members or {}).items()
        }
        self._members: dict[str, Member] = {}
        self._failures: list[Exception] = []
        self._changed = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._closing = False
        self._watchers: set[Subscription[GroupCall]] = set()
        self._watching_ended = False
        self._lived = self._live()
        self._task: trio.lowlevel.Task

    # Life -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> ClientGroup:
        if self._nursery is not None or self._closing:
            raise RuntimeError("a ClientGroup is entered once")
        self._task = trio.lowlevel.current_task()
        await self._lived.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        if trio.lowlevel.current_task() is not self._task:
            self._close()
            raise RuntimeError(
                "a ClientGroup must be left in the task that entered it; "
                "its members are being closed, but its block has not been left"
            )
        return await self._lived.__aexit__(kind, error, traceback)

    @asynccontextmanager
    async def _live(self) -> AsyncGenerator[None, None]:
        failure: BaseException | None = None
        try:
            async with trio.open_nursery() as self._nursery:
                try:
                    for name, connecting in self._first.items():
                        self._join(name, connecting)
                    await self._begun()
                    yield
                except BaseException as raised:
                    failure = raised
                self._close()
        except BaseExceptionGroup as group:  # a Ctrl-C that struck in one of our tasks
            failure = failure if isinstance(failure, Exception) else leaf_of(group)
        finally:
            self._end_watching()
        if isinstance(failure, Exception) or failure is None:
            failure = _one_or_several([*([failure] if failure else []), *self._failures])
        if failure is not None:
            raise failure

    async def _begun(self) -> None:
        """Wait for the members, and raise if too many of them are missing."""
        with trio.move_on_after(self._wait):
            while self._awaited():
                await self._changed.wait()
        await trio.lowlevel.checkpoint()
        missing = [member for member in self._members.values() if member.client is None]
        lacking = {"none": False, "any": len(missing) == len(self._members), "all": True}
        if missing and lacking[self._require]:
            known = [member.error for member in missing if member.error is not None]
            late = f"no member was connected within wait={self._wait:g} s"
            raise _one_or_several(known) or ConnectionLost(late)

    def _awaited(self) -> bool:
        states = [member.state for member in self._members.values()]
        if self._require == "all" and MemberState.FAILED in states:
            return False
        return MemberState.CONNECTING in states

    def _close(self) -> None:
        self._closing = True
        for member in self._members.values():
            member.leave("the group was closed")

    def abort(self) -> None:
        """End all members without grace, as :meth:`.client.Client.abort`. Never waits."""
        for member in self._members.values():
            if member.client is not None:
                member.client.abort()

    # Members --------------------------------------------------------------------------------------

    @property
    def members(self) -> Mapping[str, Member]:
        """All members, in order: ``state``, ``error`` and ``client`` of each."""
        return MappingProxyType(dict(self._members))

    def __getitem__(self, name: str) -> Client:
        """A member's client. Raises ``KeyError`` if there is none of that name, and
        :class:`~trio_mcp.ConnectionLost` if it is not connected, whose cause is why."""
        return self._members[name].usable()

    async def add(self, name: str, target: MemberTarget) -> Client:
        """Connect to one more server, which is a member then.

        Raises what connecting raises, and ``ValueError`` for a name that is none or is taken; then,
        and if it is cancelled, there is no such member.
        """
        member = self._join(self._naming.check(name), _connecting(target))
        try:
            await member.settled.wait()
        finally:
            if member.client is None:
                self._forget(member)
        if member.client is None:
            raise member.error or ConnectionLost(f"{name!r} was removed before it was connected")
        return member.client

    async def remove(self, name: str) -> None:
        """Close a member, in bounded time; its calls in flight end with
        :class:`~trio_mcp.ConnectionLost`. Raises ``KeyError`` if there is none of that name.

        The name is free at once. Cancelling it does not keep the member.
        """
        member = self._members[name]
        self._forget(member)
        await member.over.wait()
        if member.error is not None and member.client is not None:
            raise member.error

    async def settled(self) -> None:
        """Wait until no member is CONNECTING any more."""
        await trio.lowlevel.checkpoint()
        while any(it.state is MemberState.CONNECTING for it in self._members.values()):
            await self._changed.wait()

    def _join(self, name: str, connecting: AbstractAsyncContextManager[Client]) -> Member:
        if self._nursery is None or self._closing:
            raise RuntimeError("members join while the block of the group is being executed")
        if name in self._members:
            raise ValueError(f"there is a member {name!r} already")
        member = self._members[name] = Member(name)
        self._nursery.start_soon(self._belong, member, connecting, name=f"member {name}")
        return member

    def _forget(self, member: Member) -> None:
        if self._members.get(member.name) is member:
            del self._members[member.name]
        member.leave("it was removed")
        self._wake()

    async def _belong(
        self, member: Member, connecting: AbstractAsyncContextManager[Client]
    ) -> None:
        """A member's task. Its errors are its own."""
        try:
            with member.scope:
                async with connecting as client:
                    client.journal.watch_along(self._watchers, partial(self._tell, member.name))
                    member.connected(client)
                    self._wake()
                    await trio.sleep_forever()
        except Exception as error:
            self._note(member, member.failed(error))
        finally:
            member.ended()
            self._wake()

    def _note(self, member: Member, error: Exception) -> None:
        if self._closing and member.client is not None:
            self._failures.append(error)
        else:
            logger.warning("%r of the group failed: %s", member.name, printable(str(error)))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # Names ----------------------------------------------------------------------------------------

    def split(self, name: str) -> tuple[str, str]:
        """The member and its tool, of a name in the group: ``("shop", "order_book")``.

        Raises ``ValueError`` if there is no such member; whether it has the tool is not known here.
        """
        member, tool = self._naming.split(name)
        if tool is None or member not in self._members:
            raise ValueError(
                f"{name[:NAME_LENGTH]!r} is not a member's name, {self._naming.separator!r}, and a "
                f"tool; the members are {', '.join(self._members) or 'none'}"
            )
        return member, tool

    # Tools ----------------------------------------------------------------------------------------

    async def tools(self, *, timeout: float | None = None) -> GroupTools:
        """All tools of all members, which are asked at the same time.

        :param timeout: seconds for each member's whole list, instead of its own ``timeout``.

        Raises nothing of a member's own: that is in ``failures``, also of those not connected.
        """
        if timeout is not None:
            check_seconds("timeout", timeout)
        answers: dict[str, list[Tool] | Exception] = {name: [] for name in self._members}

        async def ask(member: Member) -> None:
            try:
                answers[member.name] = await _tools_of(member.usable(), timeout)
            except Exception as error:
                answers[member.name] = error

        try:
            async with trio.open_nursery() as nursery:
                for member in self._members.values():
                    nursery.start_soon(ask, member)
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None
        return self._naming.tools(answers)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        reset_on_progress: bool | None = None,
        on_progress: OnProgress | None = None,
        trace: TraceContext | None = None,
        retry: Retry | None = None,
        idempotency_key: str | None = None,
    ) -> CallToolResult:
        """Call a tool of a member, ``"shop.order_book"``: :meth:`.client.Client.call_tool`.

        Raises ``ValueError`` if there is no such member, and :class:`~trio_mcp.ConnectionLost` if
        it is not connected.
        """
        client, tool = self._tool(name)
        return await client.call_tool(
            tool,
            arguments,
            timeout=timeout,
            max_timeout=max_timeout,
            reset_on_progress=reset_on_progress,
            on_progress=on_progress,
            trace=trace,
            retry=retry,
            idempotency_key=idempotency_key,
        )

    def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        reset_on_progress: bool | None = None,
        trace: TraceContext | None = None,
        idempotency_key: str | None = None,
    ) -> AbstractAsyncContextManager[ToolCall]:
        """Start a tool of a member and get a handle: :meth:`.client.Client.start_tool`."""
        client, tool = self._tool(name)
        return client.start_tool(
            tool,
            arguments,
            timeout=timeout,
            max_timeout=max_timeout,
            reset_on_progress=reset_on_progress,
            trace=trace,
            idempotency_key=idempotency_key,
        )

    def _tool(self, name: str) -> tuple[Client, str]:
        member, tool = self.split(name)
        return self[member], tool

    # All calls ------------------------------------------------------------------------------------

    def calls(self) -> tuple[GroupCall, ...]:
        """Calls in flight to all members as they are now, subscriptions not among them."""
        return self._of_all(
            lambda client: [call for call in client._connection.calls if call.listener is None]
        )

    def watch_calls(self) -> Subscription[GroupCall]:
        """Calls of all members, those that join later too, as they come to another state, as
        :meth:`.client.Client.watch_calls` tells them: ``with group.watch_calls() as changes: async
        for call in changes``. The loop ends once the group has closed.

        At most ``Limits.journal_backlog``, its default, wait to be taken.
        """
        watcher = Subscription(self._watchers, Limits().journal_backlog)
        if self._watching_ended:
            watcher.end()
        return watcher

    def _tell(self, server: str, status: CallStatus) -> None:
        call = GroupCall.of(server, status)
        for watcher in self._watchers:
            watcher.deliver(call)

    def _end_watching(self) -> None:
        self._watching_ended = True
        for watcher in self._watchers:
            watcher.end()

    def cancel_all(self, reason: str | None = None) -> tuple[GroupCall, ...]:
        """Cancel all calls in flight to all members; each server is told why. Never waits.

        Returns what was cancelled. Who waits for one gets :class:`~trio_mcp.CallCancelled`.
        Subscriptions go on. Raises ``TypeError`` for a reason that is no text.
        """
        if reason is not None:
            check_text("the reason of a cancellation", reason)
        return self._of_all(lambda client: cancel_calls(client._connection, reason))

    def _of_all(self, calls_of: Callable[[Client], list[Call]]) -> tuple[GroupCall, ...]:
        return tuple(
            GroupCall.of(member.name, call.status())
            for member in self._members.values()
            if member.client is not None
            for call in calls_of(member.client)
        )


async def _tools_of(client: Client, timeout: float | None) -> list[Tool]:
    seconds = client._timeouts.idle if timeout is None else timeout
    began_at = trio.current_time()
    with trio.move_on_after(seconds):
        return [tool async for tool in client.tools()]
    raise CallTimeout(
        "tools/list",
        limit="timeout",
        seconds=seconds,
        elapsed=trio.current_time() - began_at,
    )


def _connecting(target: MemberTarget) -> AbstractAsyncContextManager[Client]:
    if isinstance(target, (trio.abc.Stream, Server)) or not isinstance(
        target, AbstractAsyncContextManager
    ):
        return connect(target)
    return target


def _one_or_several(errors: list[Exception]) -> Exception | None:
    if len(errors) > 1:
        return ExceptionGroup(f"{len(errors)} failures in a group of servers", errors)
    return errors[0] if errors else None
