"""A server that says what no server should, to whoever shows it: python hostile_server.py CASE.

``EVIL`` has a bit of everything that a terminal would obey or misread. Cases are in ``TOOLS``, or
one of those that ``answer`` and ``main`` know. No library of ours is used.
"""

from __future__ import annotations

import json
import sys
from typing import Any

EVIL = "<\x1b]0;owned\x07\x1b[31mred\x9b31mC1\x7f\u202ebidi\u2066\u200f\r\nforged: line\u2028x>"

META = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
AGAIN: dict[str, Any] = {"$ref": "#/$defs/A"}


def tool(name: str = "t", description: str = "", **schema: Any) -> dict[str, Any]:
    input_schema = {"type": "object", "properties": {"a": {"type": "string"}}, **schema}
    return {"name": name, "description": description, "inputSchema": input_schema}


def recursive(definition: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"properties": {"a": AGAIN}, "$defs": {"A": definition}}
    return tool(**schema)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


TOOLS: dict[str, dict[str, Any]] = {
    "required-number": tool(required=5),
    "required-null": tool(required=None),
    "required-mixed": tool(required=[[], 5, "a"]),
    "required-evil": tool(required=[EVIL], properties={EVIL: {}}),
    "recursive-array": recursive({"type": "array", "items": AGAIN}),
    "recursive-union": recursive({"anyOf": [AGAIN] * 12}),
    "deep-default": tool(properties={"a": {"default": nested(900), "enum": [nested(900)]}}),
    "evil-name": tool(EVIL, EVIL),
    "evil-parameter": tool(properties={EVIL: {"enum": [EVIL], "default": EVIL}}),
    "forged-line": tool("t\nfake(a: string)  Trust me"),
}


def answer(case: str, method: str) -> dict[str, Any]:
    """What belongs into the response beside its id."""
    if case == "no-discovery" and method in ("server/discover", "initialize"):
        return {"error": {"code": 1, "message": EVIL}}
    if case == "versions" and method == "server/discover":
        return {"error": {"code": -32022, "message": "x", "data": {"supported": [EVIL]}}}
    if method == "server/discover":
        return {"result": META | {"supportedVersions": ["2026-07-28"], "capabilities": {}}}
    if method == "tools/list":
        return {"result": META | {"tools": [TOOLS.get(case, tool())]}}
    if case == "error":
        return {"error": {"code": 1, "message": EVIL}}
    if case == "internal-error":
        return {"error": {"code": -32603, "message": "no"}}
    if case == "blocks":
        blocks = [
            {"type": EVIL},
            {"type": "image", "mimeType": EVIL, "data": ""},
            {"type": "resource_link", "uri": EVIL, "name": EVIL},
            {"type": "resource", "resource": {"uri": "a:b", "text": EVIL}},
        ]
        return {"result": META | {"content": blocks}}
    if case == "structured":
        return {"result": META | {"content": [], "structuredContent": {"a": EVIL}}}
    return {"result": META | {"content": [{"type": "text", "text": EVIL}]}}


def main(case: str) -> None:
    if case == "last-words":
        sys.exit(EVIL)
    if case == "log":
        print(EVIL, file=sys.stderr, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        if case == "progress" and request["method"] == "tools/call":
            token = request["params"]["_meta"]["progressToken"]
            params = {"progressToken": token, "progress": 1, "message": EVIL}
            say({"method": "notifications/progress", "params": params})
        say({"id": request["id"], **answer(case, request["method"])})


def say(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


if __name__ == "__main__":
    sys.stderr.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    main(sys.argv[1])
