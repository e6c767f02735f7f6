"""What this server gives to clients to keep, and nobody else can make or read.

Sealing is authenticated encryption (Fernet) under a key made of the server's secret and of what is
sealed: a cursor opens no state, nor the other way round.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

__all__ = ["Seal", "Secret", "SecretKeys"]

Secret: TypeAlias = str | bytes | Sequence[str | bytes]


class SecretKeys:
    """The secrets of one server: the first one seals, all of them open.

    :param secret: ``None`` for one that is good for this process.

    Raises ``TypeError`` or ``ValueError`` for what is no secret, the empty one among it.
    """

    def __init__(self, secret: Secret | None) -> None:
        given = [secret] if isinstance(secret, (str, bytes)) else secret
        if given is None:
            given = [secrets.token_bytes(32)]
        self._secrets = [text.encode() if isinstance(text, str) else text for text in given]
        if not all(type(text) is bytes for text in self._secrets):
            raise TypeError("secret takes text or bytes, or a list of them: the newest first")
        if not self._secrets or not all(self._secrets):
            raise ValueError("secret is empty; leave it out, or take 32 random bytes")

    def derive(self, purpose: str) -> list[bytes]:
        """One key of 32 bytes for each secret."""
        label = b"trio-mcp " + purpose.encode()
        return [hmac.digest(text, label, "sha256") for text in self._secrets]


class Seal:
    """Seals and opens for one purpose. Times are seconds since the epoch."""

    def __init__(self, keys: SecretKeys, purpose: str) -> None:
        self._keys = keys
        self._purpose = purpose
        self._made: MultiFernet | None = None

    def close(self, data: bytes, now: float) -> str:
        """``data``, sealed: a third longer, and 100 bytes."""
        return self._fernet().encrypt_at_time(data, int(now)).decode()

    def open(self, sealed: str, now: float | None, age: float) -> bytes | None:
        """What was sealed at most ``age`` seconds before ``now`` (``None``: at any time).

        ``None`` for anything else: also for a text that is another way to write the same bytes.
        """
        from cryptography.fernet import InvalidToken

        try:
            token = sealed.encode("ascii")
            if base64.urlsafe_b64encode(base64.urlsafe_b64decode(token)) != token:
                return None
            if now is None:
                return self._fernet().decrypt(token)
            return self._fernet().decrypt_at_time(token, int(age), int(now))
        except (InvalidToken, UnicodeError, binascii.Error):
            return None

    def _fernet(self) -> MultiFernet:
        if self._made is None:
            from cryptography.fernet import Fernet, MultiFernet  # takes long, and few need it

            keys = self._keys.derive(self._purpose)
            self._made = MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys])
        return self._made
