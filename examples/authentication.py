"""Who asks, and what they may do: ``python examples/authentication.py``.

Over HTTP and WebSockets the application finds out who it is, before a request's JSON is looked at.
"""

from functools import partial

import trio

from trio_mcp import (
    Context,
    Principal,
    RequestHead,
    Server,
    ToolError,
    TrioMcpError,
    Unauthorized,
    connect,
)

server = Server("library", version="1.0.0")

TOKENS = {
    "9f2c": Principal("ada", scopes=["read", "lend"]),
    "77e1": Principal("bob", scopes=["read"]),
}


async def authenticate(request: RequestHead) -> Principal | None:
    """``None`` is answered 401. It is cancelled if the client leaves meanwhile."""
    await trio.sleep(0.01)  # ask whoever knows
    scheme, _, token = (request.get("authorization") or "").partition(" ")
    if scheme and scheme != "Bearer":
        raise Unauthorized('Bearer error="invalid_request"')
    return TOKENS.get(token)


@server.tool
async def lend(title: str, ctx: Context) -> str:
    """Lend a book."""
    assert ctx.principal is not None
    if "lend" not in ctx.principal.scopes:
        raise ToolError(f"{ctx.principal.name} may only read here.")
    return f"{title!r} for {ctx.principal.name}"


async def visit(url: str, token: str) -> None:
    try:
        async with connect(url, headers={"Authorization": f"Bearer {token}"}) as client:
            print((await client.call_tool("lend", {"title": "Emma"})).text)
    except TrioMcpError as error:
        print(type(error).__name__, error)


async def main() -> None:
    async with trio.open_nursery() as nursery:
        serve = partial(server.serve_http, port=0, authenticate=authenticate)
        url = f"http://127.0.0.1:{await nursery.start(serve)}/mcp"
        for token in ("9f2c", "77e1", "guess"):
            await visit(url, token)
        nursery.cancel_scope.cancel("closing time")
    print([record.principal for record in server.journal if record.target == "lend"])


if __name__ == "__main__":
    trio.run(main)
