"""A Trio-native structured-concurrency runtime for the Model Context Protocol.

Servers and clients in which "protocol cancelled" and "work stopped" are the same event.
"""

from .client import Client
from .client.connecting import Target, connect
from .client.elicitation import Elicitation
from .client.group import ClientGroup, MemberTarget
from .client.handles import ToolCall
from .client.logs import LogMessage
from .client.members import GroupCall, Member, MemberState
from .client.naming import GroupTools, LeftOut
from .client.retries import Retry
from .client.subscriptions import Changes
from .handlers.caching import CacheHint
from .handlers.changes import Change, ChangeBus, LocalBus
from .handlers.results import ToolResult
from .handlers.schema.type_hints import McpHeader
from .runtime.context import Context
from .runtime.draining import DrainReport
from .runtime.errors import (
    CallCancelled,
    CallTimeout,
    ConnectionLost,
    ErrorCode,
    IncompatibleServer,
    ProtocolError,
    ProtocolViolation,
    ResourceNotFound,
    ServerError,
    ToolError,
    ToolFailed,
    TrioMcpError,
    Unauthorized,
)
from .runtime.inflight import InFlight
from .runtime.journal import CallStatus, Journal, Record
from .runtime.lifecycle import CancelCause, CancelSource, LateOutcome, State
from .runtime.limits import Limits
from .runtime.models.base import UNSET, Annotations, Icon, Implementation
from .runtime.models.completion import Completion
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
from .runtime.models.elicitation import ElicitResult
from .runtime.models.prompts import (
    GetPromptResult,
    ListPromptsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
)
from .runtime.models.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from .runtime.models.roots import Root
from .runtime.models.sampling import CreateMessageRequestParams, CreateMessageResult
from .runtime.models.subscriptions import SubscriptionFilter
from .runtime.models.tools import CallToolResult, ListToolsResult, Tool, ToolAnnotations
from .runtime.offload.subprocesses import ProcessResult
from .runtime.offload.work import WorkKind, WorkRecord
from .runtime.principal import Principal
from .runtime.progress import ProgressUpdate
from .runtime.questions import Elicit, Elicited, ElicitUrl, Roots, Sample
from .runtime.rounds import InputRequired
from .runtime.scopes import Scope, ScopeKind
from .runtime.server_errors import (
    AuthorizationRequired,
    CancelledByOperator,
    DeadlineExceeded,
    HeaderMismatch,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    NoSuchResource,
    Overloaded,
    ShuttingDown,
    UnsupportedVersion,
    safe_to_repeat,
)
from .runtime.tracing import TraceContext, Tracing
from .server import Server
from .transports.framing import Frame, Oversize
from .transports.http.authentication import Authenticate
from .transports.http.message import RequestHead
from .transports.restarting import Restart
from .transports.wire import Wire

__all__ = [
    "UNSET",
    "Annotations",
    "AudioContent",
    "Authenticate",
    "AuthorizationRequired",
    "BlobResourceContents",
    "CacheHint",
    "CallCancelled",
    "CallStatus",
    "CallTimeout",
    "CallToolResult",
    "CancelCause",
    "CancelSource",
    "CancelledByOperator",
    "Change",
    "ChangeBus",
    "Changes",
    "Client",
    "ClientGroup",
    "Completion",
    "ConnectionLost",
    "ContentBlock",
    "Context",
    "CreateMessageRequestParams",
    "CreateMessageResult",
    "DeadlineExceeded",
    "DiscoverResult",
    "DrainReport",
    "Elicit",
    "ElicitResult",
    "ElicitUrl",
    "Elicitation",
    "Elicited",
    "EmbeddedResource",
    "ErrorCode",
    "Frame",
    "GetPromptResult",
    "GroupCall",
    "GroupTools",
    "HeaderMismatch",
    "Icon",
    "ImageContent",
    "Implementation",
    "InFlight",
    "IncompatibleServer",
    "InputRequired",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "Journal",
    "LateOutcome",
    "LeftOut",
    "Limits",
    "ListPromptsResult",
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ListToolsResult",
    "LocalBus",
    "LogMessage",
    "McpHeader",
    "Member",
    "MemberState",
    "MemberTarget",
    "MethodNotFound",
    "MissingCapability",
    "NoSuchResource",
    "Overloaded",
    "Oversize",
    "Principal",
    "ProcessResult",
    "ProgressUpdate",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "ProtocolError",
    "ProtocolViolation",
    "ReadResourceResult",
    "Record",
    "RequestHead",
    "Resource",
    "ResourceLink",
    "ResourceNotFound",
    "ResourceTemplate",
    "Restart",
    "Retry",
    "Root",
    "Roots",
    "Sample",
    "Scope",
    "ScopeKind",
    "Server",
    "ServerError",
    "ShuttingDown",
    "State",
    "SubscriptionFilter",
    "Target",
    "TextContent",
    "TextResourceContents",
    "Tool",
    "ToolAnnotations",
    "ToolCall",
    "ToolError",
    "ToolFailed",
    "ToolResult",
    "TraceContext",
    "Tracing",
    "TrioMcpError",
    "Unauthorized",
    "UnknownContent",
    "UnsupportedVersion",
    "Wire",
    "WorkKind",
    "WorkRecord",
    "connect",
    "safe_to_repeat",
]
