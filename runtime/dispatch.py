"""From a request to its handler and back: one :class:`Dispatcher` per server.

It knows methods, not features: the face fills :attr:`Dispatcher.methods`. It knows connections, not
wires: transports register theirs. It is the root of the scope tree.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import attrs
import trio

from .admission.admission import Admission, client_of, overloaded, retry_later
from .context import Context
from .draining import Draining
from .eras.base import Era
from .errors import ErrorCode, ProtocolError
from .exchange import Exchange, Peer, Reply
from .groups import leaf_of
from .journal import Journal, printable
from .jsonrpc import NonFiniteNumber, Request, encode_error, encode_result
from .limits import Limits
from .logs import LogReporter
from .models.base import META_TIMEOUT
from .offload.pools import Pools
from .principal import Principal
from .rounds import InputRequired, Round, Rounds
from .scopes import Scope, ScopeKind
from .tracing import TracedRequest, Tracing, guarded, read_trace

__all__ = ["Connection", "Dispatcher", "Method"]

logger = logging.getLogger("trio_mcp.exchange")


@attrs.frozen
class Method:
    """How one method is served: the model of its parameters, and an async function.

    ``target`` names the parameter that says what the request is about: for the journal.
    ``mirrored`` names, for given parameters, the headers that repeat some of them on HTTP, with
    their values there, ``None`` for none: ``("Mcp-Param-Region", "eu")``.
    ``recover`` may turn what the handler or one of its children raised into a result.
    ``asks``: the handler may ask the client for input; ``params`` then has ``request_state`` and
    ``input_responses``.
    """

    params: type
    run: Callable[[Context, Any], Awaitable[Any]]
    target: str | None = None
    mirrored: Callable[[Mapping[str, Any]], Iterable[tuple[str, Any]]] | None = None
    recover: Callable[[BaseException], Any] | None = None
    asks: bool = False


class Connection(Peer, Protocol):
    """A connection, as the scope tree and an operator see it."""

    def scope(self) -> Scope: ...

    def exchanges(self) -> Iterable[Exchange]:
        """Those that it has now; some of them may be over, but for what has to be written."""


class Dispatcher:
    """All that the exchanges of one server share. Lives in one Trio run at a time."""

    def __init__(
        self,
        name: str,
        era: Era,
        limits: Limits,
        tracing: Tracing | None = None,
        pools: Mapping[str, int] | None = None,
    ) -> None:
        """``pools`` are the sizes of the thread pools that have a name."""
        self.name = name
        self.era = era
        self.limits = limits
        self.tracing = guarded(tracing)
        self.journal = Journal(limits.journal_records, limits.journal_backlog)
        self.methods: dict[str, Method] = {}
        self.rounds: Rounds | None = None
        self.timeout: float | None = None
        self._named_pools = pools or {}
        self.pools = Pools(limits, self._named_pools)
        self.admission = Admission(limits)
        self.connections: set[Connection] = set()
        self.inflight = 0
        self.thread = threading.get_ident()
        self.draining = Draining(self)
        self._token: trio.lowlevel.TrioToken | None = None
        self._began_at = 0.0

    def enter_run(self) -> None:
        """A transport starts to serve, in the current Trio run.

        What an earlier run left behind, threads that outlived it, is not this one's.
        """
        token = trio.lowlevel.current_trio_token()
        if token is not self._token:
            self._token = token
            self.pools = Pools(self.limits, self._named_pools)
            self.admission = Admission(self.limits)
            self.connections.clear()
            self.draining.reset()
            self.inflight = 0
            self._began_at = trio.current_time()
            self.thread = threading.get_ident()

    @property
    def has_served(self) -> bool:
        """Whether a transport has ever begun to serve."""
        return self._token is not None

    def call_soon(self, fn: Callable[[], object]) -> None:
        """From a worker thread: call ``fn`` in the loop, once however often this is called."""
        assert self._token is not None
        try:
            self._token.run_sync_soon(fn, idempotent=True)
        except trio.RunFinishedError:
            pass  # an abandoned thread that outlived the loop: nobody is left to tell

    # From a request to its handler --------------------------------------------------------------

    def admit(self, peer: Peer, principal: Principal | None) -> ProtocolError | None:
        """Whether one more request may start; otherwise the error to answer it with. One that waits
        may have been refused for it: ask last."""
        bound = self.limits.exchanges
        if self.inflight >= bound and not self.admission.make_way(client_of(peer, principal)):
            return self.overloaded("the server", bound)
        return None

    def shutting_down(self) -> ProtocolError:
        return ProtocolError(
            ErrorCode.SHUTTING_DOWN, "The server is shutting down", retry_later(self.limits)
        )

    def overloaded(self, who: str, bound: int) -> ProtocolError:
        return overloaded(f"{who} has reached its limit of {bound}", self.limits)

    def mirrored(self, request: Request) -> Iterable[tuple[str, Any]]:
        """The headers that repeat parameters of this request on HTTP; see :class:`Method`."""
        method = self.methods.get(request.method)
        return () if method is None or method.mirrored is None else method.mirrored(request.params)

    def open(
        self,
        request: Request,
        peer: Peer,
        reply: Reply,
        received_at: float,
        principal: Principal | None = None,
    ) -> Exchange:
        """A new exchange. The transport starts its :meth:`~.Exchange.run` and forgets it later."""
        self.inflight += 1
        exchange = Exchange(self, request, peer, reply, received_at, principal)
        exchange.method = method = self.methods.get(request.method)
        if method is not None and method.target is not None:
            target = request.params.get(method.target)
            exchange.target = target if type(target) is str else None
        if self.tracing is not None:
            exchange.span = self.tracing.exchange(self._traced(exchange))
        return exchange

    def _traced(self, exchange: Exchange) -> TracedRequest:
        clip, request, target = self.limits.text_length, exchange.request, exchange.target
        meta = request.params.get("_meta")
        return TracedRequest(
            method=printable(request.method[:clip]),
            target=printable(target[:clip]) if target is not None else None,
            request_id=request.id,
            connection=exchange.peer.label,
            protocol_version=None,
            meta=meta if type(meta) is dict else {},
            trace=read_trace(meta),
        )

    def close(self, exchange: Exchange) -> None:
        """One exchange is over, or is to be refused after it has waited."""
        if not exchange.refused:
            self.inflight -= 1

    @trio.lowlevel.disable_ki_protection
    async def handle(self, exchange: Exchange) -> dict[str, Any]:
        """Run the handler of a request; its result as JSON. Raises what is to be explained."""
        request, method = exchange.request, exchange.method
        if method is None:
            raise self.era.unknown_method(request, self.limits.text_length)
        era = exchange.era = self.era
        exchange.metadata = metadata = era.read_metadata(request.params)
        exchange.progress_token = metadata.progress_token
        if metadata.log_level is not None:
            exchange.logs = LogReporter(exchange, metadata.log_level)
        if (announced := metadata.raw.get(META_TIMEOUT)) is not None:
            exchange.heed_timeout(announced)
        params: Any = era.read_params(method.params, request.params)
        if method.asks and (params.request_state is not None or params.input_responses is not None):
            exchange.round = self._open_round(exchange, params)
        ctx, span = Context(exchange), exchange.span
        running = method.run(ctx, params) if span is None else span.run(method.run, ctx, params)
        return era.write_result(await running)

    def round_of(self, exchange: Exchange) -> Round:
        """What the handler of an exchange asks. Raises ``RuntimeError`` where none may ask."""
        if exchange.round is None:
            method, era = exchange.method, exchange.era
            if method is None or era is None or not method.asks:
                raise RuntimeError(
                    f"the handler of {exchange.request.method} cannot ask the client for input: "
                    "only those of tools/call, prompts/get and resources/read can"
                )
            params: Any = era.read_params(method.params, exchange.request.params)
            exchange.round = self._open_round(exchange, params)
        return exchange.round

    def _open_round(self, exchange: Exchange, params: Any) -> Round:
        if self.rounds is None:
            raise RuntimeError("this server has nothing to ask clients with")
        return self.rounds.open(exchange, params)

    def input_required(self, exchange: Exchange, asked: InputRequired) -> dict[str, Any]:
        """The result that asks for input, as JSON. Raises what is to be explained."""
        if exchange.round is None or exchange.era is None:
            raise RuntimeError("InputRequired was raised by hand") from asked
        return exchange.era.write_result(exchange.round.result(asked))

    def recover(self, exchange: Exchange, error: BaseException) -> dict[str, Any] | None:
        """The result that a failure stands for, if it stands for one."""
        method, era = exchange.method, exchange.era
        if method is None or method.recover is None or era is None:
            return None
        try:
            result = method.recover(leaf_of(error))
            return None if result is None else era.write_result(result)
        except Exception:
            logger.exception("exchange %d: a failure that cannot be told", exchange.key)
            return None

    # And back -----------------------------------------------------------------------------------

    def encode_result(self, exchange: Exchange, result: dict[str, Any]) -> bytes:
        frame = encode_result(exchange.request.id, result)
        if len(frame) > self.limits.message_bytes:
            problem = (
                f"The result has {len(frame)} bytes, more than the server's limit "
                f"message_bytes={self.limits.message_bytes}"
            )
            logger.error("exchange %d: %s failed: %s", exchange.key, exchange.name, problem)
            raise ProtocolError(ErrorCode.INTERNAL_ERROR, f"{problem}; {_more(exchange)}")
        return frame

    def encode_error(self, exchange: Exchange, error: ProtocolError) -> bytes:
        try:
            return encode_error(exchange.request.id, error)
        except Exception:
            logger.exception("exchange %d: an error that is no JSON", exchange.key)
            return encode_error(exchange.request.id, _internal(exchange))

    def explain(self, exchange: Exchange, error: BaseException | None) -> ProtocolError:
        """The JSON-RPC error for what a handler raised. Surprises are logged, and not told."""
        error = leaf_of(error) if error is not None else None
        if isinstance(error, ProtocolError):
            try:
                return ProtocolError(error.code, str(error.message), error.data)
            except Exception:  # a subclass that is not made as its base wants it
                logger.exception("exchange %d: a broken ProtocolError", exchange.key)
        logger.error("exchange %d: %s failed", exchange.key, exchange.name, exc_info=error)
        if exchange.span is not None and error is not None:
            exchange.span.raised(error)
        if isinstance(error, NonFiniteNumber):
            return ProtocolError(
                ErrorCode.INTERNAL_ERROR,
                f"The result cannot be sent as JSON: {error}; {_more(exchange)}",
            )
        return _internal(exchange)

    # Looking inside -----------------------------------------------------------------------------

    def exchanges(self) -> Iterator[Exchange]:
        """The requests in flight: those whose answer has not begun to go out. No order."""
        for connection in tuple(self.connections):
            for exchange in tuple(connection.exchanges()):
                if exchange.ended_at is None:
                    yield exchange

    def scopes(self) -> Scope:
        """The server with everything that lives below it, stragglers last."""
        below = [connection.scope() for connection in self.connections]
        below += [work.scope() for work in self.pools.stragglers]
        return Scope(
            kind=ScopeKind.SERVER,
            label=self.name,
            state="idle" if not below else "draining" if self.draining.begun else "serving",
            age=trio.current_time() - self._began_at if below else 0.0,
            children=tuple(below),
        )


def _internal(exchange: Exchange) -> ProtocolError:
    return ProtocolError(ErrorCode.INTERNAL_ERROR, f"Internal error; {_more(exchange)}")


def _more(exchange: Exchange) -> str:
    return f"the server's log has more under exchange {exchange.key}"
