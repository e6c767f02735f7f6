"""JSON-RPC messages in words, one line each, the same in every run.

What differs from run to run is named by the order in which it appears: ids are ``#1``, ``#2``, …,
opaque texts ``<cursor 1>``, ``<requestState 1>``. No I/O.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from ...runtime.jsonrpc import id_key, is_request_id
from ...runtime.models.base import META_PROGRESS_TOKEN, META_SUBSCRIPTION_ID

__all__ = ["Side", "Wording", "clip", "plain", "quoted"]

Side: TypeAlias = Literal["near", "far"]
"""Whose wire it is, and the other one."""

_OPAQUE: Final = {
    "requestState": "requestState",
    "cursor": "cursor",
    "nextCursor": "cursor",
    "traceparent": "trace",
}
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_QUOTED: Final = 60
"""Bytes shown of what is no message."""


class Wording:
    """What has been named so far.

    :param without: methods that are not told of, nor the answers to them.
    :param meta: whether ``_meta`` is shown.
    """

    def __init__(self, without: Collection[str], *, meta: bool) -> None:
        self._without = frozenset(without)
        self._meta = meta
        self._numbers: dict[tuple[Hashable, Side, str], int] = {}
        self._latest: dict[tuple[Side, str], int] = {}
        self._count = 0
        self._opaque: dict[str, dict[str, int]] = {}
        self._hidden: set[tuple[Hashable, Side, str]] = set()

    def say(self, where: Hashable, sender: Side, data: bytes) -> str | None:
        """One message. ``None`` if it is not to be told of.

        :param where: where ids are valid: a connection, or one exchange over HTTP.
        """
        try:
            message = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return f"malformed {quoted(data)}"
        if not isinstance(message, dict):
            return f"malformed {quoted(data)}"
        method, params = message.get("method"), message.get("params")
        if isinstance(method, str):
            params = params if isinstance(params, dict) else {}
            if "id" in message:
                return self._request(where, sender, method, message["id"], params)
            return self._notification(where, sender, method, params)
        if "result" in message or "error" in message:
            return self._response(where, sender, message)
        return f"malformed {quoted(data)}"

    # Kinds of messages ----------------------------------------------------------------------------

    def _request(
        self, where: Hashable, sender: Side, method: str, number: Any, params: dict[str, Any]
    ) -> str | None:
        key = where, sender, _key(number)
        if method in self._without:
            self._hidden.add(key)
            return None
        self._hidden.discard(key)
        self._count += 1
        self._numbers[key] = self._latest[key[1:]] = self._count
        named = _NAMED.get(method)
        words = [method, f"#{self._count}"]
        shown = dict(params)
        if named is not None and isinstance(params.get(named), str):
            words.append(str(shown.pop(named)))
            if set(shown) <= {"arguments", "_meta"} and not self._meta:
                shown = shown.get("arguments") or {}
        return self._sentence(words, shown)

    def _notification(
        self, where: Hashable, sender: Side, method: str, params: dict[str, Any]
    ) -> str | None:
        if method in self._without:
            return None
        meta = params.get("_meta")
        if method == "notifications/cancelled":
            number = self._known(where, sender, params.get("requestId"))
            words = ["cancelled", number]
            if isinstance(params.get("reason"), str):
                words.append(_json(params["reason"]))
            return " ".join(words)
        if method == "notifications/progress":
            return self._progress(where, sender, params)
        words = [method]
        if isinstance(meta, dict) and META_SUBSCRIPTION_ID in meta:
            words.append(self._known(where, _other(sender), meta[META_SUBSCRIPTION_ID]))
        return self._sentence(words, params)

    def _progress(self, where: Hashable, sender: Side, params: dict[str, Any]) -> str:
        words = ["progress", self._known(where, _other(sender), params.get("progressToken"))]
        made = _json(params.get("progress"))
        words.append(f"{made}/{_json(params['total'])}" if "total" in params else made)
        if "message" in params:
            words.append(_json(params["message"]))
        return " ".join(words)

    def _response(self, where: Hashable, sender: Side, message: dict[str, Any]) -> str | None:
        asker = _other(sender)
        if (where, asker, _key(message.get("id"))) in self._hidden:
            return None
        number = self._known(where, asker, message.get("id"))
        error = message.get("error")
        if "result" in message:
            result = message["result"]
            if not isinstance(result, dict):
                return f"result {number} {_json(result)}"
            shown = {k: v for k, v in result.items() if (k, v) != ("resultType", "complete")}
            return self._sentence(["result", number], shown)
        error = error if isinstance(error, dict) else {"message": error}
        words = ["error", number, _json(error.get("code")), _json(error.get("message"))]
        if "data" in error:
            words.append(_json(error["data"]))
        return " ".join(words)

    # Names ----------------------------------------------------------------------------------------

    def _known(self, where: Hashable, asker: Side, value: Any) -> str:
        """The number of the request with this id, or token; of either side, if need be."""
        key = _key(value)
        if value is None:
            return "#none"
        for side in (asker, _other(asker)):
            number = self._numbers.get((where, side, key), self._latest.get((side, key)))
            if number is not None:
                return f"#{number}"
        return f"#unknown({_json(value)})"

    def _sentence(self, words: list[str], shown: Mapping[str, Any]) -> str:
        kept = {
            key: self._stable(key, value)
            for key, value in shown.items()
            if key != "_meta" or self._meta
        }
        return " ".join([*words, _json(kept)] if kept else words)

    def _stable(self, key: str, value: Any) -> Any:
        if key == "_meta" and isinstance(value, dict):
            kept = {name: self._stable(name, one) for name, one in value.items()}
            for name in (META_PROGRESS_TOKEN, META_SUBSCRIPTION_ID):
                if name in kept:
                    kept[name] = self._known(None, "near", kept[name])
            return kept
        if key not in _OPAQUE or not isinstance(value, str):
            return value
        kind = _OPAQUE[key]
        seen = self._opaque.setdefault(kind, {})
        return f"<{kind} {seen.setdefault(value, len(seen) + 1)}>"


def _other(side: Side) -> Side:
    return "far" if side == "near" else "near"


def _key(value: Any) -> str:
    return id_key(value) if is_request_id(value) else f"no id: {_json(value)[:100]}"


# Text ---------------------------------------------------------------------------------------------


def quoted(data: bytes) -> str:
    """What is no message: its beginning and its length."""
    more = "…" if len(data) > _QUOTED else ""
    return f"{data[:_QUOTED]!r}{more} ({len(data)} bytes)"


def clip(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def plain(text: str) -> str:
    """Nothing in it does anything to a terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
