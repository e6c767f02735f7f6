"""Tools with schemas of their own, added and removed while the server is served.

A gateway offers what it finds elsewhere: it has JSON Schemas, and no Python signatures. Run it:
``python examples/tools.py``.
"""

from typing import Any

import trio

from trio_mcp import Context, Server, ToolError, ToolResult, connect

FOUND = {
    "convert": {
        "input": {
            "type": "object",
            "properties": {
                "amount": {"type": "number", "exclusiveMinimum": 0},
                "to": {"$ref": "#/$defs/currency"},
            },
            "required": ["amount", "to"],
            "additionalProperties": False,
            "$defs": {"currency": {"type": "string", "pattern": "^[A-Z]{3}$"}},
        },
        "output": {"type": "array", "items": {"type": ["number", "string"]}, "minItems": 2},
    },
}
RATES = {"EUR": 0.9, "CHF": 0.8}

server = Server("gateway", version="1.0.0")


async def forward(arguments: dict[str, Any], ctx: Context) -> ToolResult[Any]:
    """Convert dollars."""
    if arguments["to"] not in RATES:
        raise ToolError(f"no rate for {arguments['to']}; there are {', '.join(RATES)}")
    amount = arguments["amount"] * RATES[arguments["to"]]
    return ToolResult(
        f"{amount:.2f} {arguments['to']}",
        structured_content=[amount, arguments["to"]],
        meta={"example.com/exchange": ctx.key},
    )


async def main() -> None:
    async with connect(server) as client:
        for name, schemas in FOUND.items():
            server.add_tool(
                forward, name=name, input_schema=schemas["input"], output_schema=schemas["output"]
            )
        for arguments in ({"amount": 20, "to": "EUR"}, {"amount": 0, "to": "eur"}):
            result = await client.call_tool("convert", arguments)
            print(result.text, result.structured_content)
        server.remove_tool("convert")
        print([tool.name async for tool in client.tools()])


if __name__ == "__main__":
    trio.run(main)
