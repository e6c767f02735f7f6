"""A Trio-native structured-concurrency runtime for the Model Context Protocol.

Servers and clients in which "protocol cancelled" and "work stopped" are the same event.
"""

from .calls import ToolCall
from .client import Client, connect
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
)
from .runtime.journal import Journal, Record
from .runtime.lifecycle import CancelCause, CancelSource, LateOutcome, State
from .runtime.limits import Limits
from .runtime.models.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from .runtime.models.tools import CallToolResult, Tool, ToolAnnotations
from .runtime.progress import ProgressUpdate
from .runtime.scopes import Scope, ScopeKind
from .server import Server

__all__ = [
    "AudioContent",
    "CacheHint",
    "CallCancelled",
    "CallTimeout",
    "CallToolResult",
    "CancelCause",
    "CancelSource",
    "Client",
    "ConnectionLost",
    "Context",
    "EmbeddedResource",
    "ErrorCode",
    "ImageContent",
    "IncompatibleServer",
    "Journal",
    "LateOutcome",
    "Limits",
    "ProgressUpdate",
    "ProtocolError",
    "ProtocolViolation",
    "Record",
    "ResourceLink",
    "Scope",
    "ScopeKind",
    "Server",
    "ServerError",
    "State",
    "TextContent",
    "Tool",
    "ToolAnnotations",
    "ToolCall",
    "ToolError",
    "TrioMcpError",
    "connect",
]
