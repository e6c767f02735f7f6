"""Revisions 2024-11-05 to 2025-11-25, the client's side: a session that begins with ``initialize``.

Version, client and capabilities are said once. In the session, the server may ask the client, too.
Specification 2025-11-25: *Lifecycle*; *Cancellation*; *Ping*.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import ErrorCode, IncompatibleServer, ProtocolError
from ..jsonrpc import Request
from ..models.base import META_SERVER_INFO, ClientCapabilities, Implementation, JSONObject
from ..models.converter import ModelError, structure, unstructure
from ..models.discovery import DiscoverResult
from ..models.elicitation import ElicitRequestFormParams, ElicitRequestURLParams
from ..models.initialization import InitializeResult
from ..models.input import CreateMessageRequest, ElicitRequest, InputRequest, ListRootsRequest
from ..models.sampling import CreateMessageRequestParams

__all__ = [
    "LATEST",
    "VERSIONS",
    "agreed_version",
    "as_sent",
    "discovered_from",
    "initialize_params",
    "read_question",
    "write_answer",
]

VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""What a client of these revisions speaks, the newest first."""

LATEST: Final = VERSIONS[0]


_NOT_YET: Final = ("resultType", "ttlMs", "cacheScope")
"""Members of results that these revisions do not have, and our models always."""


def as_sent(version: str, result: JSONObject) -> JSONObject:
    """A written result, without what a server that speaks ``version`` cannot have sent."""
    if version not in VERSIONS:
        return result
    return {name: value for name, value in result.items() if name not in _NOT_YET}


def initialize_params(info: Implementation, capabilities: ClientCapabilities) -> dict[str, Any]:
    """What a client says of itself, once."""
    return {
        "protocolVersion": LATEST,
        "capabilities": unstructure(capabilities),
        "clientInfo": unstructure(info),
    }


def discovered_from(result: InitializeResult) -> DiscoverResult:
    """What a server says of itself, as discovery would have told it."""
    return DiscoverResult(
        [result.protocol_version],
        result.capabilities,
        result.instructions,
        meta={META_SERVER_INFO: unstructure(result.server_info)},
    )


def agreed_version(result: InitializeResult) -> str:
    """The revision to speak. Raises :class:`~..errors.IncompatibleServer` if it is none of ours."""
    version = result.protocol_version
    if version not in VERSIONS:
        raise IncompatibleServer(
            f"the server wants to speak {version!r}; after initialize, this client speaks "
            + ", ".join(VERSIONS),
            (version,),
        )
    return version


def read_question(request: Request) -> InputRequest:
    """What a server asks its client for.

    Raises :class:`~..errors.ProtocolError`: -32601 for a method that is none of a client's, -32602
    for malformed parameters.
    """
    params = request.params
    try:
        if request.method == "elicitation/create":
            model: Any = ElicitRequestFormParams | ElicitRequestURLParams
            return ElicitRequest(structure(model, params, at="params"))
        if request.method == "sampling/createMessage":
            return CreateMessageRequest(structure(CreateMessageRequestParams, params, at="params"))
    except ModelError as error:
        raise ProtocolError(ErrorCode.INVALID_PARAMS, f"Invalid params: {error}") from None
    if request.method == "roots/list":
        return ListRootsRequest()
    raise ProtocolError(ErrorCode.METHOD_NOT_FOUND, "Method not found")


def write_answer(version: str, method: str, answer: JSONObject) -> JSONObject:
    """An answer to such a question in the words of this revision.

    Raises :class:`~..errors.ProtocolError` for what it has no words for.
    """
    content = answer.get("content")
    if method != "sampling/createMessage" or version == LATEST or type(content) is not list:
        return answer
    if len(content) != 1:
        raise ProtocolError(
            ErrorCode.INTERNAL_ERROR, f"a message has one content block in revision {version}"
        )
    return {**answer, "content": content[0]}
