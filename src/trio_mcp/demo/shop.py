"""A shop as a server process, opened and closed, whatever wire leads to it."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

import attrs
import trio

from ..client import Client
from ..client.connecting import connect
from ..runtime.limits import Limits
from .network_process import network_process

__all__ = ["Shop", "Wire", "open_shop"]

Wire: TypeAlias = Literal["stdio", "http", "websocket"]


@attrs.define(eq=False)
class Shop:
    """A shop. The fields below ``told`` are about its process, and there once it is closed.

    :param told: to be set by who has had the shop close itself; its process gets no signal then.
    :param signalled: whether it was ended by SIGTERM, and not by the end of its input.
    :param in_time: whether it has ended then, within its time.
    :param log: the end of what it wrote to its standard error.
    """

    client: Client
    told: bool = False
    signalled: bool = False
    exit_status: int | None = None
    in_time: bool = False
    log: str = ""


@asynccontextmanager
async def open_shop(
    file: str, over: Wire, limits: Limits, **options: Any
) -> AsyncGenerator[Shop, None]:
    """Launch the shop, connect to it; leave it and end its process when the block ends.

    ``options`` are further ones of :func:`.connect`: callbacks, above all.

    Left by an error or a cancellation, nothing of it is left either, without such grace.
    """
    run = [sys.executable, "-m", "trio_mcp", "run", file]
    if over == "stdio":
        async with connect(run, limits=limits, **options) as client:
            shop = Shop(client)
            yield shop
            left_at = trio.current_time()
        shop.in_time = trio.current_time() - left_at < limits.exit_wait
        shop.exit_status = client.exit_status
        shop.log = client.stderr_tail
        return
    async with network_process([*run, f"--{over}", "127.0.0.1:0"], limits) as process:
        async with connect(process.address, limits=limits, **options) as client:
            shop = Shop(client)
            yield shop
        process.told = shop.told
    shop.signalled = not shop.told
    shop.in_time = process.in_time
    shop.exit_status = process.exit_status
    shop.log = process.stderr_tail
