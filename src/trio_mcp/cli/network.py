"""``trio-mcp run --http`` and ``--websocket``: a server file, served over networks."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NoReturn

import click
import trio

from ..runtime.groups import leaf_of
from ..server import Server
from ..transports.stdio import cancel_on_signal, flush_stdio
from .failure import USAGE, CommandError
from .last_resort import LastResort
from .loading import ServerFile, load_server
from .options import NetworkOptions, Place
from .printable import one_line
from .running import configure_logging, ignore_signals

__all__ = ["run_network_server"]

Serve = Callable[..., Awaitable[None]]
"""Listens, reports the bound port to ``task_status``, and serves until it is cancelled."""


def run_network_server(file: ServerFile, options: NetworkOptions, *, verbose: bool) -> None:
    """Serve until SIGINT or SIGTERM has been obeyed. Raises :class:`CommandError`, with nothing
    listening any more, for what cannot be served."""
    file.check()
    context = _tls(options.certfile, options.keyfile) if options.certfile is not None else None
    server = load_server(file)
    configure_logging(verbose)
    try:
        trio.run(_serve, server, options, context)
        ignore_signals()
    except BaseExceptionGroup as group:
        raise leaf_of(group) from None
    finally:
        flush_stdio()


async def _serve(server: Server, options: NetworkOptions, context: ssl.SSLContext | None) -> None:
    last_resort = LastResort(server)
    scope = trio.CancelScope()
    with last_resort.watching():
        async with trio.open_nursery() as nursery:
            await nursery.start(cancel_on_signal, scope)
            try:
                with scope:
                    await _serve_all(server, options, context)
            finally:
                last_resort.begin()  # also where no signal has come: something may be left
            nursery.cancel_scope.cancel("all has been drained")


async def _serve_all(
    server: Server, options: NetworkOptions, context: ssl.SSLContext | None
) -> None:
    """Tells of the addresses once all of them are listened on."""
    secure = "" if context is None else "s"
    addresses = []
    async with trio.open_nursery() as nursery:
        for scheme, place, serve in (
            ("http", options.http, _over_http(server, options, context)),
            ("ws", options.websocket, _over_websocket(server, options, context)),
        ):
            if place is not None:
                bound = await _listen(nursery, serve, place)
                addresses.append(f"{scheme}{secure}://{bound}{options.path}")
        for address in addresses:
            click.echo(f"{one_line(server.name)}: serving {address}; Ctrl-C stops it", err=True)


def _over_http(server: Server, options: NetworkOptions, context: ssl.SSLContext | None) -> Serve:
    if options.carrier == "hypercorn":
        return partial(_serve_hypercorn, server, options)
    return partial(server.serve_http, **_endpoint(options), ssl_context=context)


def _over_websocket(
    server: Server, options: NetworkOptions, context: ssl.SSLContext | None
) -> Serve:
    return partial(server.serve_websocket, **_endpoint(options), ssl_context=context)


def _endpoint(options: NetworkOptions) -> dict[str, Any]:
    return {"path": options.path, "hosts": options.hosts, "origins": options.origins}


async def _serve_hypercorn(
    server: Server,
    options: NetworkOptions,
    host: str,
    port: int,
    *,
    task_status: trio.TaskStatus[int],
) -> None:
    # What comes with an extra, and takes long to import.
    from ..transports.http.hypercorn import serve_hypercorn

    app = server.asgi(path=options.path, hosts=(host, *options.hosts), origins=options.origins)
    await serve_hypercorn(
        app,
        host,
        port,
        server.limits,
        certfile=options.certfile,
        keyfile=options.keyfile,
        task_status=task_status,
    )


async def _listen(nursery: trio.Nursery, serve: Serve, place: Place) -> Place:
    """Begin to serve at a place; the one that it has become, with the port that is bound."""
    try:
        port: int = await nursery.start(serve, place.host, place.port)
    except OSError as error:
        raise CommandError(f"cannot listen on {place}: {error.strerror or error}") from None
    except UnicodeError:
        raise CommandError(f"cannot listen on {place}: this is no name of a host") from None
    return Place(place.host, port)


# TLS ----------------------------------------------------------------------------------------------


def _tls(certfile: str, keyfile: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certfile, keyfile, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"the key in {keyfile or certfile!r} is not that of the certificate"
        elif keyfile is None:
            why = f"{certfile!r} does not hold a certificate and its private key, in PEM form"
        else:
            why = f"{certfile!r} holds no certificate, or {keyfile!r} no private key, in PEM form"
        raise CommandError(why, USAGE) from None
    except OSError as error:
        raise CommandError(f"cannot read {certfile!r}: {error.strerror or error}", USAGE) from None
    return context


def _no_password() -> NoReturn:
    """Nobody may be there to be asked for it, and whoever is would have to be asked each time."""
    raise CommandError("the private key is encrypted; give one that is not", USAGE)
