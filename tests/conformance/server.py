"""The server that the conformance suite asks for: every fixture it names, and no other.

:func:`build` makes one; ``trio-mcp run tests/conformance/server.py --http 8000`` serves one by
itself. The suite follows no cursor, so each list has to fit on one page; and it calls the first
tool of the list without arguments.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import trio

from trio_mcp import (
    AudioContent,
    ContentBlock,
    Context,
    EmbeddedResource,
    ImageContent,
    Server,
    TextContent,
    TextResourceContents,
    ToolError,
)

__all__ = ["build", "server"]

PNG: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mP4DwABAQEAHLCMmQAAAABJRU5ErkJggg=="
)
"""One white pixel."""

WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="
"""One sample of silence."""

PAUSE: Final = 0.05
"""Seconds between two notifications, as the suite wants it; more than
``Limits.progress_interval``, which would make one of two."""

_REGION: Final = msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})
_RETRIES: Final = msgspec.Meta(extra_json_schema={"x-mcp-header": "Retries"})


def build() -> Server:
    """A server with all fixtures. Some of them change its lists, so each run wants its own."""
    made = Server("trio-mcp-conformance", version="1.0.0")
    for tool in (
        test_simple_text,  # the first, see above
        test_image_content,
        test_audio_content,
        test_embedded_resource,
        test_multiple_content_types,
        test_error_handling,
        test_tool_with_progress,
        test_mirrored_parameters,
    ):
        made.tool(tool)
    return made


# Tools --------------------------------------------------------------------------------------------


async def test_simple_text() -> str:
    """Answer with a text."""
    return "This is a simple text response for testing."


async def test_image_content() -> ImageContent:
    """Answer with an image."""
    return ImageContent(PNG, "image/png")


async def test_audio_content() -> AudioContent:
    """Answer with a sound."""
    return AudioContent(WAV, "audio/wav")


async def test_embedded_resource() -> EmbeddedResource:
    """Answer with a resource's contents."""
    return EmbeddedResource(
        TextResourceContents(
            "test://embedded-resource",
            "This is an embedded resource content.",
            mime_type="text/plain",
        )
    )


async def test_multiple_content_types() -> list[ContentBlock]:
    """Answer with a text, an image and a resource."""
    return [
        TextContent("Multiple content types test:"),
        ImageContent(PNG, "image/png"),
        EmbeddedResource(
            TextResourceContents(
                "test://mixed-content-resource",
                '{"test":"data","value":123}',
                mime_type="application/json",
            )
        ),
    ]


async def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    for done in (0, 50, 100):
        ctx.progress(done, 100)
        await trio.sleep(PAUSE)
    return "Progress was reported."


async def test_mirrored_parameters(
    region: Annotated[str, _REGION], retries: Annotated[int, _RETRIES]
) -> str:
    """Take parameters that are repeated in headers."""
    return f"{region}, {retries} retries"


server = build()
