"""An HTTP/1.1 server on a real socket whose answers have faults.

It answers as it is told, or hands each request on to a :class:`~trio_mcp.Server` of this process
and its answer back. Every client sees the same.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import trio

from ...runtime.groups import leaf_of
from ...server import Server
from ..blocks import first_of
from ..transcripts.recorded_stream import RecordedStream
from ..transcripts.transcript import Transcript, given_transcript
from .faults import Fault, check_schedule
from .faulty_stream import FaultsMissed, FaultyStream, Happened
from .http_answers import Answer, Answering, StubRequest, discovery_answer
from .http_reader import Data, End, Head, HttpMeter, HttpReader, NoHttp

__all__ = ["Faults", "HttpStub", "http_stub"]

Faults: TypeAlias = Mapping[int, Iterable[Fault]] | Callable[[StubRequest], Iterable[Fault]]
"""By the number of the request, from 1, or by what it is."""

BODY_BYTES: Final = 16 * 1024 * 1024
"""Of a request; a longer one is answered 413."""

KEPT: Final = 1000
KEPT_BYTES: Final = 64 * 1024 * 1024
"""Requests, the latest ones, and what their bodies come to at most."""

AHEAD_BYTES: Final = 64 * 1024
"""Read of the next requests while one is being answered."""

LINGER: Final = 1.0
"""Seconds for a client to read why its request is refused."""

_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class HttpStub:
    """What :func:`http_stub` gives.

    ``requests`` has the latest 1,000 that have come, of up to 64 MiB together, ``transcript`` what
    has gone over the wire, ``happened`` the faults, with the numbers of their requests.
    """

    def __init__(self, url: str, transcript: Transcript) -> None:
        self.url = url
        self.transcript = transcript
        self.requests: deque[StubRequest] = deque(maxlen=KEPT)
        self.happened: list[Happened] = []
        self._missed: dict[int, tuple[Fault, ...]] = {}

    @property
    def pending(self) -> tuple[tuple[int, Fault], ...]:
        """Faults that have not happened, with the numbers of their requests; those of a function
        only once their request has come."""
        missed = sorted(self._missed.items())
        return tuple((number, one) for number, left in missed for one in left)

    def check_happened(self) -> None:
        """Raises :class:`.FaultsMissed`, an ``AssertionError``, if some have not."""
        if self.pending:
            missed = ", ".join(f"{fault!r} in request {number}" for number, fault in self.pending)
            raise FaultsMissed(f"did not happen: {missed}")


@asynccontextmanager
async def http_stub(
    answers: Server | Answering,
    *,
    faults: Faults | None = None,
    must_happen: bool = True,
    transcript: Transcript | None = None,
) -> AsyncGenerator[HttpStub, None]:
    """Listen on a free port of 127.0.0.1 for the time of the block: ``connect(stub.url)``.

    :param answers: a server to hand requests on to; a list of :class:`.Answer`, in order; or a
        function, async or not, that is called with each :class:`.StubRequest`. For
        ``server/discover`` there is an answer anyway: a list does not have it, and a function may
        return ``None``. Where no other answer is left, the status is 500.
    :param faults: of the answers: ``{3: [HalfClose(at=Body(20))]}``, or what returns them for a
        request. Positions count from the beginning of the answer.
    :param must_happen: whether all of them have to happen; :class:`.FaultsMissed` if not.
    :param transcript: is filled with what goes over the wire, as clients see it, instead of a new
        one.

    An answer ends when the client hangs up, or shuts down its side, and with it the request to the
    server. What the block raises, and what ``answers`` and ``faults`` raise, comes out as it is.
    Cancelling ends it at once, the server as :meth:`~trio_mcp.Server.serve_http` does. Raises
    ``TypeError`` for answers and faults that are none.
    """
    _check_answers(answers)
    scheduled = _by_number(faults)
    transcript = given_transcript(transcript)
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            upstream = None
            if isinstance(answers, Server):
                upstream = await nursery.start(partial(answers.serve_http, port=0))
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            stub = HttpStub(f"http://127.0.0.1:{_port_of(listener)}/mcp", transcript)
            site = _Site(stub, answers, faults if callable(faults) else scheduled, upstream)
            async with trio.open_nursery() as connections:
                connections.start_soon(trio.serve_listeners, site.serve, [listener])
                try:
                    yield stub
                except BaseException as raised:
                    failure = raised
                connections.cancel_scope.cancel("the stub is over")
            nursery.cancel_scope.cancel("the stub is over")
    except BaseExceptionGroup as group:
        failure = first_of(failure, group)
    if failure is not None:
        raise failure
    if must_happen:
        stub.check_happened()


def _check_answers(answers: Any) -> None:
    if isinstance(answers, Server):
        return
    if callable(answers):
        _check_takes_request("answers", answers, f"http_stub({_name_of(answers)}())")
        return
    if isinstance(answers, (str, bytes)) or not isinstance(answers, Sequence):
        raise TypeError(
            "http_stub takes a Server, a list of Answers, such as [Answer(result={…})], or a "
            f"function of the request, not {answers!r:.200}"
        )
    for one in answers:
        if not isinstance(one, Answer):
            raise TypeError(f"a list of answers has Answer(result=…) in it, not {one!r:.200}")


def _by_number(faults: Any) -> dict[int, tuple[Fault, ...]]:
    """The schedules of those that are given by the number of the request."""
    if faults is None:
        return {}
    if callable(faults):
        _check_takes_request("faults", faults, "faults={3: [HalfClose(at=Body(20))]}")
        return {}
    if not isinstance(faults, Mapping):
        raise TypeError(
            "faults= takes schedules by the number of the request, from 1: "
            f"{{1: [Drop(at=Body())]}}, or a function of the request, not {faults!r:.200}"
        )
    for number in faults:
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise TypeError(f"requests have the numbers 1, 2, …, as in {{1: […]}}, not {number!r}")
    return {number: check_schedule(one, http=True) for number, one in faults.items()}


def _check_takes_request(what: str, function: Callable[..., Any], instead: str) -> None:
    try:
        inspect.signature(function).bind(None)
    except ValueError:
        return  # it does not tell
    except TypeError:
        raise TypeError(
            f"{what} that are a function are called with the request, and {_name_of(function)} "
            f"does not take one; did you mean {instead}?"
        ) from None


def _name_of(function: Any) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def _port_of(listener: trio.SocketListener) -> int:
    port: int = listener.socket.getsockname()[1]
    return port


class _Site:
    """What all connections share."""

    def __init__(
        self,
        stub: HttpStub,
        answers: Server | Answering,
        faults: Callable[[StubRequest], Iterable[Fault]] | Mapping[int, tuple[Fault, ...]],
        upstream: int | None,
    ) -> None:
        self.stub = stub
        self.upstream = upstream
        self._answers = answers
        self._left = None if isinstance(answers, Server) or callable(answers) else deque(answers)
        self._by_request = faults if callable(faults) else None
        self._by_number = {} if callable(faults) else dict(faults)
        stub._missed.update(self._by_number)
        self._count = 0
        self._bug: BaseException | None = None

    async def serve(self, socket: trio.SocketStream) -> None:
        with_http = RecordedStream(socket, self.stub.transcript, far=True, http=True)
        stream = FaultyStream(with_http)
        stream.happened = self.stub.happened
        connection = _Connection(self, stream)
        try:
            await connection.run()
        except _GONE as error:
            if error is self._bug:
                raise
        finally:
            await trio.aclose_forcefully(stream)

    def enter(self, head: Head, body: bytes) -> StubRequest:
        self._count += 1
        request = StubRequest(self._count, head.method, head.target, head.headers, body)
        requests = self.stub.requests
        requests.append(request)
        while sum(len(one.body) for one in requests) > KEPT_BYTES:
            requests.popleft()
        return request

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the user's functions raise is no end of a connection, whatever it looks like."""
        try:
            yield
        except Exception as error:
            self._bug = error
            raise

    def faults_of(self, request: StubRequest) -> tuple[Fault, ...]:
        if self._by_request is not None:
            with self._told():
                return check_schedule(self._by_request(request), http=True)
        return self._by_number.get(request.number, ())

    async def answer_to(self, request: StubRequest) -> Answer:
        found: Any = None
        if callable(self._answers):
            with self._told():
                found = self._answers(request)
                if inspect.isawaitable(found):
                    found = await found
                if found is not None and not isinstance(found, Answer):
                    raise TypeError(
                        "a function that answers returns an Answer or None, and "
                        f"{_name_of(self._answers)} returned something that is not: {found!r:.200}"
                    )
        if found is None:
            found = discovery_answer(request)
        if found is None and self._left:
            found = self._left.popleft()
        return found if found is not None else Answer(status=500, body=b"no answer is left\n")


class _Connection:
    """One connection of a client: one request after the other."""

    def __init__(self, site: _Site, stream: FaultyStream) -> None:
        self._site = site
        self._stream = stream
        self._reader = HttpReader("requests", raw=True)
        self._ahead = b""
        self._over = False
        self._upstream: trio.SocketStream | None = None

    async def run(self) -> None:
        try:
            while not self._over and (request := await self._next_request()) is not None:
                await self._serve(request)
        finally:
            if self._upstream is not None:
                await trio.aclose_forcefully(self._upstream)

    # Requests -------------------------------------------------------------------------------------

    async def _next_request(self) -> StubRequest | None:
        """``None`` at the end. What is no request is refused, and is the end."""
        self._reader.raw.clear()
        head: Head | None = None
        body = bytearray()
        while True:
            data, self._ahead = self._ahead, b""
            for part in self._reader.feed(data):
                if isinstance(part, Head):
                    head = part
                elif isinstance(part, Data):
                    body += part.data
                elif isinstance(part, End) and head is not None:
                    return self._site.enter(head, bytes(body))
                elif isinstance(part, NoHttp):
                    await self._refuse(400)
                    return None
                if len(body) > BODY_BYTES:
                    await self._refuse(413)
                    return None
            if len(self._reader.raw) > 2 * BODY_BYTES:  # chunks without much in them, or trailers
                await self._refuse(413)
                return None
            self._ahead = await self._stream.receive_some()
            if not self._ahead:
                return None

    async def _refuse(self, status: int) -> None:
        """Before there is a request that faults could belong to. The client may still be sending,
        and is to read it all the same."""
        nothing = StubRequest(0, "", "", {}, b"")
        await self._stream.send_all(b"".join(Answer(status=status).pieces(nothing)))
        await self._stream.send_eof()
        with trio.move_on_after(LINGER):
            while await self._stream.receive_some():
                pass

    # Answers --------------------------------------------------------------------------------------

    async def _serve(self, request: StubRequest) -> None:
        stream, missed = self._stream, self._site.stub._missed
        faults = self._site.faults_of(request)
        stream.reschedule(faults, HttpMeter(), request.number)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                if self._site.upstream is not None:
                    await self._hand_on(bytes(self._reader.raw), self._site.upstream)
                else:
                    await self._say(request)
                await stream.end_schedule()
                nursery.cancel_scope.cancel("it is answered")
        except BaseExceptionGroup as group:
            raise leaf_of(group) from None
        finally:
            missed.pop(request.number, None)
            if stream.pending:
                missed[request.number] = stream.pending

    async def _watch(self, answer: trio.CancelScope) -> None:
        """Until the client hangs up."""
        while len(self._ahead) < AHEAD_BYTES:
            try:
                data = await self._stream.receive_some()
            except trio.BrokenResourceError:
                data = b""
            if not data:
                self._over = True
                answer.cancel("the client hung up")
                return
            self._ahead += data

    async def _say(self, request: StubRequest) -> None:
        answer = await self._site.answer_to(request)
        for piece in answer.pieces(request):
            if piece:
                await self._stream.send_all(piece)
        headers = {name.lower(): value.lower() for name, value in answer.headers.items()}
        self._over = headers.get("connection") == "close"

    async def _hand_on(self, raw: bytes, port: int) -> None:
        if self._upstream is None:
            self._upstream = await trio.open_tcp_stream("127.0.0.1", port)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_on, self._upstream, raw)
            await self._hand_back(self._upstream)
            nursery.cancel_scope.cancel("it is answered")

    async def _send_on(self, upstream: trio.SocketStream, raw: bytes) -> None:
        try:
            await upstream.send_all(raw)
        except trio.BrokenResourceError:
            pass  # the server does not want all of it; it says why

    async def _hand_back(self, upstream: trio.SocketStream) -> None:
        reader = HttpReader("responses")
        final = complete = False
        while not complete:
            data = await upstream.receive_some()
            if not data:
                self._over = True
                return
            for part in reader.feed(bytes(data)):
                if isinstance(part, Head):
                    final = part.status >= 200
                complete = complete or (final and isinstance(part, End))
            await self._stream.send_all(data)
