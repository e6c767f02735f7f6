"""Requests of a server to its client, in a session. The application's callbacks answer them.

Each question is answered in a task of its own: it belongs to the connection and not to a call,
as far as anybody can tell. A call on whose stream it comes, or otherwise each call in flight, does
not count as silent meanwhile. Where only one is in flight the question is taken for that call's,
and ends with its cancellation. As that is a guess, the server gets an answer then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import attrs
import trio

from ...runtime.call import Call
from ...runtime.eras.earlier import read_question, write_answer
from ...runtime.errors import ErrorCode, ProtocolError, ProtocolViolation
from ...runtime.jsonrpc import Request, encode_error, encode_result, id_key
from ...runtime.limits import Limits
from ...transports.calling import SessionConnection
from ..answers import Answers, Ask

__all__ = ["Questions"]

logger = logging.getLogger("trio_mcp.client")


@attrs.define(eq=False)
class _Question:
    request: Request
    call: Call | None
    guessed: bool  # that it belongs to that call
    waiting: tuple[Call, ...]
    abandoned: bool = False
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)


def _abandoned() -> ProtocolError:
    why = "The call that this seemed to belong to was cancelled, and with it the answer"
    return ProtocolError(ErrorCode.INTERNAL_ERROR, why)


class Questions:
    """What a server has asked, and who is about to answer it. ``nursery`` is where callbacks run;
    what they raise does not come out there.
    ``version`` tells the revision that is spoken."""

    def __init__(
        self,
        connection: SessionConnection,
        answers: Answers,
        limits: Limits,
        nursery: trio.Nursery,
        version: Callable[[], str],
    ) -> None:
        self._connection = connection
        self._version = version
        self._answers = answers
        self._limits = limits
        self._nursery = nursery
        self._open: dict[str, _Question] = {}

    def asked(self, request: Request, call: Call | None) -> str | None:
        """Start to answer. Never waits. Returns what is wrong if there will be no answer."""
        key = id_key(request.id)
        if request.method == "ping":
            self._say(encode_result(request.id, {}))
            return None
        if key in self._open:
            return "a second request with the id of one that is being answered"
        try:
            if len(self._open) >= self._limits.session_questions:
                raise ProtocolError(
                    ErrorCode.OVERLOADED,
                    f"more than session_questions={self._limits.session_questions} at once",
                )
            ask = self._ask(request)
        except ProtocolError as error:
            self._say(encode_error(request.id, error))
            return None
        waiting = (call,) if call is not None else self._connection.calls
        candidates = [one for one in waiting if one.sent and one.listener is None]
        guessed = call is None and len(candidates) == 1
        call = candidates[0] if guessed else call
        question = self._open[key] = _Question(request, call, guessed, waiting)
        for one in waiting:
            one.asking += 1
            one.wake()
        self._nursery.start_soon(self._answer, key, question, ask)
        return None

    def withdrawn(self, request_id: object) -> None:
        """The server does not want to know any more. Unknown ids are nothing to worry about."""
        if isinstance(request_id, (str, int)) and not isinstance(request_id, bool):
            question = self._open.get(id_key(request_id))
            if question is not None:
                question.scope.cancel("the server has cancelled its request")

    def call_cancelled(self, call: Call) -> None:
        """What was asked on the stream of a call is not wanted any more either."""
        for question in self._open.values():
            if question.call is call:
                question.abandoned = True
                question.scope.cancel("the call that it belongs to was cancelled")

    def drop(self) -> None:
        """Nobody waits for any answer any more."""
        for question in self._open.values():
            question.scope.cancel("the session has ended")

    def _ask(self, request: Request) -> Ask:
        """What asks the callback. Raises :class:`ProtocolError` if there is none to ask."""
        question = read_question(request)
        try:
            return self._answers.question(str(request.id), question, request.method)
        except ProtocolViolation as error:
            offered = request.method in self._answers.methods
            code = ErrorCode.INVALID_PARAMS if offered else ErrorCode.METHOD_NOT_FOUND
            raise ProtocolError(code, str(error)) from None

    async def _answer(self, key: str, question: _Question, ask: Ask) -> None:
        request = question.request
        frame: bytes | None = None
        try:
            with question.scope:
                answer = write_answer(self._version(), request.method, await ask())
                frame = self._framed(encode_result(request.id, answer))
        except ProtocolError as error:  # how a callback refuses in its own words
            frame = encode_error(request.id, error)
        except Exception:
            logger.exception("no answer to the server's %s: a callback failed", request.method)
            failure = ProtocolError(ErrorCode.INTERNAL_ERROR, "The client could not answer")
            frame = encode_error(request.id, failure)
        else:
            if frame is None and question.abandoned and question.guessed:
                frame = encode_error(request.id, _abandoned())
        finally:
            del self._open[key]
            now = trio.current_time()
            for call in question.waiting:
                call.asking -= 1
                call.heard_at = now
                call.wake()
        if frame is not None:
            self._say(frame)

    def _framed(self, frame: bytes) -> bytes:
        if len(frame) > self._limits.message_bytes:
            raise ValueError(
                f"the answer is longer than message_bytes={self._limits.message_bytes}"
            )
        return frame

    def _say(self, frame: bytes) -> None:
        self._connection.say(frame)
