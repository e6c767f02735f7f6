"""What requests look like, in the revision that the server speaks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from ..runtime.eras.earlier import VERSIONS as EARLIER
from ..runtime.eras.earlier import initialize_params
from ..runtime.eras.revision_2026_07_28 import VERSION, client_meta
from ..runtime.models.base import META_PROGRESS_TOKEN, ClientCapabilities, Implementation

__all__ = ["REVISIONS", "InSession", "Speech", "Stateless", "speech_of"]

REVISIONS: Final = (VERSION, *EARLIER)
"""What a probe speaks, the newest first."""

_NOTHING: Final = ClientCapabilities()


class Speech(ABC):
    """A revision, as a client speaks it."""

    in_session: bool
    cancellation: str
    """Where the specification speaks of it."""

    def __init__(self, version: str) -> None:
        self.version = version

    @abstractmethod
    def params(self, params: Mapping[str, Any], token: Any) -> dict[str, Any]:
        """Those of a request; ``token`` is that of its progress, ``None`` for none."""


class Stateless(Speech):
    """2026-07-28: every request says all."""

    in_session = False

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self._meta = client_meta(_info(), _NOTHING)

    def params(self, params: Mapping[str, Any], token: Any) -> dict[str, Any]:
        meta = self._meta if token is None else {**self._meta, META_PROGRESS_TOKEN: token}
        return {**params, "_meta": meta}


class InSession(Speech):
    """2025-11-25 and before: a session, begun with ``initialize``."""

    in_session = True

    def initialize(self) -> dict[str, Any]:
        return {**initialize_params(_info(), _NOTHING), "protocolVersion": self.version}

    def params(self, params: Mapping[str, Any], token: Any) -> dict[str, Any]:
        return dict(params) if token is None else {**params, "_meta": {META_PROGRESS_TOKEN: token}}


def speech_of(revision: str) -> Stateless | InSession:
    """How to speak it."""
    return Stateless(revision) if revision == VERSION else InSession(revision)


def _info() -> Implementation:
    return Implementation("trio-mcp probe", version("trio-mcp"))
