"""Content blocks: what tools, prompts and messages are made of.

Specification 2026-07-28: *Tools*, "Tool Result"; *Resources*, "Annotations"; *Sampling*, "Tool
Use". Binary data is base64 text here, as on the wire.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import define, field

from .base import UNSET, Annotations, Icon, JSONObject, JSONValue

__all__ = [
    "AudioContent",
    "BlobResourceContents",
    "ContentBlock",
    "EmbeddedResource",
    "ImageContent",
    "ResourceLink",
    "TextContent",
    "TextResourceContents",
    "ToolResultContent",
    "ToolUseContent",
    "UnknownContent",
]


@define
class TextContent:
    """Text to or from a model."""

    type: Literal["text"] = field(default="text", init=False, repr=False)
    text: str
    annotations: Annotations | None = None
    meta: JSONObject | None = None


@define
class ImageContent:
    """An image to or from a model; `data` is base64."""

    type: Literal["image"] = field(default="image", init=False, repr=False)
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: JSONObject | None = None


@define
class AudioContent:
    """Sound to or from a model; `data` is base64."""

    type: Literal["audio"] = field(default="audio", init=False, repr=False)
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: JSONObject | None = None


@define
class ResourceLink:
    """A resource that the client may read; it need not appear in ``resources/list``."""

    type: Literal["resource_link"] = field(default="resource_link", init=False, repr=False)
    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    """Bytes of the raw content, before base64."""
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: JSONObject | None = None


@define
class TextResourceContents:
    """The contents of a resource that is text."""

    uri: str
    text: str
    mime_type: str | None = None
    meta: JSONObject | None = None


@define
class BlobResourceContents:
    """The contents of a resource that is binary; `blob` is base64."""

    uri: str
    blob: str
    mime_type: str | None = None
    meta: JSONObject | None = None


@define
class EmbeddedResource:
    """A resource's contents inside of a message."""

    type: Literal["resource"] = field(default="resource", init=False, repr=False)
    resource: TextResourceContents | BlobResourceContents
    annotations: Annotations | None = None
    meta: JSONObject | None = None


@define
class UnknownContent:
    """A content block of a type that this library does not know, exactly as the peer sent it.

    It goes out again as the same object, so intermediaries lose nothing.
    """

    raw: JSONObject

    @property
    def type(self) -> str:
        """The type that the peer gave it."""
        return str(self.raw["type"])


ContentBlock: TypeAlias = (
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent
)
"""One element of a tool result or prompt, told apart by its ``type`` member."""


@define
class ToolUseContent:
    """A model asks for a tool to be called."""

    type: Literal["tool_use"] = field(default="tool_use", init=False, repr=False)
    id: str
    name: str
    input: JSONObject
    meta: JSONObject | None = None


@define
class ToolResultContent:
    """The outcome of a tool call, on its way back to the model that asked for it."""

    type: Literal["tool_result"] = field(default="tool_result", init=False, repr=False)
    tool_use_id: str
    content: list[ContentBlock]
    structured_content: JSONValue = UNSET
    is_error: bool | None = None
    meta: JSONObject | None = None
