"""What applications make wrong is refused, in words, before a peer sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trio_mcp import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ErrorCode,
    ImageContent,
    Server,
    ServerError,
    TextContent,
    ToolResult,
    connect,
)

wrong: Any = 3
BLOCKS: dict[str, Callable[[], Any]] = {
    "text": lambda: TextContent(wrong),
    "embedded": lambda: EmbeddedResource(wrong),
    "annotations": lambda: TextContent("x", annotations=wrong),
    "image": lambda: ImageContent("not base64!", "image/png"),
    "audio": lambda: AudioContent("not base64!", "audio/wav"),
    "blob": lambda: EmbeddedResource(BlobResourceContents("a://b", "not base64!")),
}


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda block: block,
        lambda block: ["beside", block],
        lambda block: ToolResult([block]),
        lambda block: CallToolResult([block]),
    ],
    ids=["alone", "listed", "ToolResult", "CallToolResult"],
)
async def test_a_tools_content_that_is_none_is_an_internal_error(
    block: str, wrap: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s", version="1")

    @server.tool
    async def make() -> Any:
        return wrap(BLOCKS[block]())

    async with connect(server) as client:
        with pytest.raises(ServerError) as caught:
            await client.call_tool("make")
    assert caught.value.code == ErrorCode.INTERNAL_ERROR
    assert "tools/call make failed" in caplog.text


@pytest.mark.parametrize("block", ["image", "blob"])
async def test_data_of_prompts_and_resources_is_base64(
    block: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s", version="1")
    server.prompt(name="make")(lambda: BLOCKS[block]())
    server.resource("a://b", name="b")(lambda: BlobResourceContents("a://b", "not base64!"))
    async with connect(server) as client:
        with pytest.raises(ServerError, match="Internal error"):
            await client.get_prompt("make")
        with pytest.raises(ServerError, match="Internal error"):
            await client.read_resource("a://b")
    assert "base64.b64encode" in caplog.text


async def test_sound_content_goes_out_as_it_is() -> None:
    server = Server("s", version="1")
    blocks = [
        ImageContent("iVBORw==", "image/png"),
        EmbeddedResource(BlobResourceContents("a://b", "")),
        TextContent("x", meta={"k": 1}),
    ]

    @server.tool
    async def make() -> Any:
        return blocks

    async with connect(server) as client:
        assert (await client.call_tool("make")).content == blocks
