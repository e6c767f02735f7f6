"""A Trio-native structured-concurrency runtime for the Model Context Protocol.

Servers and clients in which "protocol cancelled" and "work stopped" are the same event.
"""

from .calls import ToolCall
from .client import Client
from .connecting import Target, connect
from .handlers.caching import CacheHint
from .runtime.context import Context
from .runtime.errors import (
    CallCancelled,
    CallTimeout,
    ConnectionLost,
    ErrorCode,
    IncompatibleServer,
    ProtocolError,
    ProtocolViolation,
    ServerError,
    ToolError,
    TrioMcpError,
    Unauthorized,
)
from .runtime.journal import Journal, Record
from .runtime.lifecycle import CancelCause, CancelSource, LateOutcome, State
from .runtime.limits import Limits
from .runtime.models.base import UNSET, Annotations, Icon, Implementation
from .runtime.models.content import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    UnknownContent,
)
from .runtime.models.discovery import DiscoverResult
from .runtime.models.tools import CallToolResult, ListToolsResult, Tool, ToolAnnotations
from .runtime.principal import Principal
from .runtime.progress import ProgressUpdate
from .runtime.scopes import Scope, ScopeKind
from .server import Server
from .transports.framing import Frame, Oversize
from .transports.http.authentication import Authenticate
from .transports.http.message import RequestHead
from .transports.wire import Wire

__all__ = [
    "UNSET",
    "Annotations",
    "AudioContent",
    "Authenticate",
    "BlobResourceContents",
    "CacheHint",
    "CallCancelled",
    "CallTimeout",
    "CallToolResult",
    "CancelCause",
    "CancelSource",
    "Client",
    "ConnectionLost",
    "ContentBlock",
    "Context",
    "DiscoverResult",
    "EmbeddedResource",
    "ErrorCode",
    "Frame",
    "Icon",
    "ImageContent",
    "Implementation",
    "IncompatibleServer",
    "Journal",
    "LateOutcome",
    "Limits",
    "ListToolsResult",
    "Oversize",
    "Principal",
    "ProgressUpdate",
    "ProtocolError",
    "ProtocolViolation",
    "Record",
    "RequestHead",
    "ResourceLink",
    "Scope",
    "ScopeKind",
    "Server",
    "ServerError",
    "State",
    "Target",
    "TextContent",
    "TextResourceContents",
    "Tool",
    "ToolAnnotations",
    "ToolCall",
    "ToolError",
    "TrioMcpError",
    "Unauthorized",
    "UnknownContent",
    "Wire",
    "connect",
]
