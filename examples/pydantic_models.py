"""Pydantic models as arguments and results: ``python examples/pydantic_models.py``.

Needs ``trio-mcp[pydantic]``.
"""

import trio
from pydantic import BaseModel, Field, field_validator

from trio_mcp import Server, connect

server = Server("orders", version="1.0.0")


class Line(BaseModel):
    """One line of an order."""

    sku: str = Field(description="Number of the article, in capitals")
    count: int = Field(default=1, ge=1)

    @field_validator("sku")
    @classmethod
    def in_capitals(cls, sku: str) -> str:
        if not sku.isupper():
            raise ValueError("must be in capitals")
        return sku


@server.tool
async def largest(lines: list[Line]) -> Line:
    """The largest line of an order."""
    return max(lines, key=lambda line: line.count)


async def main() -> None:
    async with connect(server) as client:
        async for tool in client.tools():
            print(sorted((tool.output_schema or {})["properties"]))
        for lines in ([{"sku": "A"}, {"sku": "B", "count": 2}], [{"sku": "a", "count": 0}]):
            result = await client.call_tool("largest", {"lines": lines})
            print(result.text if result.is_error else result.structured_content)


if __name__ == "__main__":
    trio.run(main)
