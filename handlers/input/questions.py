"""Each kind of question: as a request, which capability it needs, and how its answer is read.

Specification: *Elicitation*, *Sampling*, *Roots*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import attrs

from ...runtime.models.base import ClientCapabilities, ElicitationCapability, SamplingCapability
from ...runtime.models.content import TextContent, ToolResultContent, ToolUseContent
from ...runtime.models.converter import ModelError, structure
from ...runtime.models.elicitation import (
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
)
from ...runtime.models.input import (
    CreateMessageRequest,
    ElicitRequest,
    InputRequest,
    ListRootsRequest,
)
from ...runtime.models.roots import ListRootsResult, Root
from ...runtime.models.sampling import (
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
)
from ...runtime.questions import Elicit, Elicited, ElicitUrl, Roots, Sample
from .forms import Misfit, form_of

__all__ = ["Prepared", "missing_capabilities", "prepare"]

T = TypeVar("T")


@attrs.frozen(eq=False)
class Prepared:
    """A question that has been looked at.

    ``needs`` is what a client must be able to do; ``read`` makes the answer that the handler gets
    of a client's JSON, and raises :class:`~.forms.Misfit`.
    """

    request: InputRequest
    needs: ClientCapabilities
    read: Callable[[Any], Any]


def prepare(question: object) -> Prepared:
    """Raises ``TypeError`` or ``ValueError`` for what cannot be asked."""
    if isinstance(question, Elicit):
        return _form(question)
    if isinstance(question, ElicitUrl):
        return _page(question)
    if isinstance(question, Sample):
        return _sample(question)
    if isinstance(question, Roots):
        return Prepared(ListRootsRequest(), ClientCapabilities(roots={}), _read_roots)
    raise TypeError(f"a question is an Elicit, ElicitUrl, Sample or Roots, not {question!r}")


# Elicitation --------------------------------------------------------------------------------------


def _form(question: Elicit[Any]) -> Prepared:
    form = form_of(question.schema_type)

    def read(value: Any) -> Elicited[Any]:
        answer = _structure(ElicitResult, value)
        if answer.action != "accept":
            return Elicited(answer.action)
        try:
            return Elicited("accept", form.read(answer.content or {}))
        except Misfit as error:
            raise Misfit(f"content does not fit: {error}") from None

    params = ElicitRequestFormParams(_text(question.message, "message"), form.schema)
    needs = ClientCapabilities(elicitation=ElicitationCapability(form={}))
    return Prepared(ElicitRequest(params), needs, read)


def _page(question: ElicitUrl) -> Prepared:
    url = _text(question.url, "url")
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"url must be an https:// or http:// address, not {url!r}")
    if "@" in parts.netloc:
        raise ValueError("url must not hold a name and a password")
    params = ElicitRequestURLParams(_text(question.message, "message"), url)
    needs = ClientCapabilities(elicitation=ElicitationCapability(url={}))
    return Prepared(ElicitRequest(params), needs, _read_consent)


def _read_consent(value: Any) -> Elicited[None]:
    return Elicited(_structure(ElicitResult, value).action)


# Sampling -----------------------------------------------------------------------------------------


def _sample(question: Sample) -> Prepared:
    if type(question.max_tokens) is not int or question.max_tokens < 1:
        raise ValueError(f"max_tokens must be 1 or more, not {question.max_tokens!r}")
    params = CreateMessageRequestParams(
        _messages(question.messages),
        question.max_tokens,
        system_prompt=question.system_prompt,
        model_preferences=question.model_preferences,
        include_context=question.include_context,
        temperature=question.temperature,
        stop_sequences=_listed(question.stop_sequences),
        tools=_listed(question.tools),
        tool_choice=question.tool_choice,
        metadata=question.metadata,
    )
    sampling = SamplingCapability(
        context={} if question.include_context in ("thisServer", "allServers") else None,
        tools={} if question.tools is not None or question.tool_choice is not None else None,
    )
    needs = ClientCapabilities(sampling=sampling)
    return Prepared(CreateMessageRequest(params), needs, _read_message)


def _messages(given: Any) -> list[SamplingMessage]:
    if isinstance(given, str):
        given = [SamplingMessage("user", TextContent(given))]
    elif isinstance(given, SamplingMessage):
        given = [given]
    messages = list(given)
    if not messages or not all(isinstance(message, SamplingMessage) for message in messages):
        raise TypeError("messages are a text, or one or more SamplingMessage")
    _check_tool_use(messages)
    return messages


def _check_tool_use(messages: Iterable[SamplingMessage]) -> None:
    """Specification: *Sampling*, "Message Content Constraints"."""
    open_uses: set[str] = set()
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        results = [block for block in blocks if isinstance(block, ToolResultContent)]
        if results and (message.role != "user" or len(results) < len(blocks)):
            raise ValueError("tool results stand in a message of the user that has nothing else")
        if {block.tool_use_id for block in results} != open_uses:
            raise ValueError("each tool use is followed by its result, before any other message")
        open_uses = {block.id for block in blocks if isinstance(block, ToolUseContent)}
    if open_uses:
        raise ValueError("each tool use is followed by its result, before any other message")


def _read_message(value: Any) -> CreateMessageResult:
    return _structure(CreateMessageResult, value)


# Roots --------------------------------------------------------------------------------------------


def _read_roots(value: Any) -> list[Root]:
    roots = _structure(ListRootsResult, value).roots
    if not all(root.uri.startswith("file://") for root in roots):
        raise Misfit("roots: each uri begins with file://")
    return roots


# Capabilities -------------------------------------------------------------------------------------


_NO_SAMPLING: Final = SamplingCapability()


def missing_capabilities(
    questions: Iterable[Prepared], client: ClientCapabilities
) -> ClientCapabilities | None:
    """What a client would have to be able to do besides, to be asked all of this."""
    lacks_form = lacks_url = lacks_sampling = lacks_roots = False
    context: dict[str, Any] | None = None
    tools: dict[str, Any] | None = None
    can = client.elicitation
    for question in questions:
        needs = question.needs
        if needs.elicitation is not None:
            if needs.elicitation.url is not None:
                lacks_url |= can is None or can.url is None
            else:
                lacks_form |= can is None or (can.form is None and can.url is not None)
        if needs.sampling is not None:
            has = client.sampling if client.sampling is not None else _NO_SAMPLING
            lacks_sampling |= client.sampling is None
            context = {} if needs.sampling.context is not None and has.context is None else context
            tools = {} if needs.sampling.tools is not None and has.tools is None else tools
        lacks_roots |= needs.roots is not None and client.roots is None
    missing = ClientCapabilities(roots={} if lacks_roots else None)
    if lacks_form or lacks_url:
        missing.elicitation = ElicitationCapability(
            form={} if lacks_form else None, url={} if lacks_url else None
        )
    if lacks_sampling or context is not None or tools is not None:
        missing.sampling = SamplingCapability(context=context, tools=tools)
    return None if missing == ClientCapabilities() else missing


def _structure(model: type[T], value: Any) -> T:
    try:
        return structure(model, value)
    except ModelError as error:
        raise Misfit(str(error)) from None


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, not {value!r}")
    return value


def _listed(values: Any) -> list[Any] | None:
    return None if values is None else list(values)
