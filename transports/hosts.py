"""Names of hosts in addresses."""

from __future__ import annotations

__all__ = ["check_host"]


def check_host(host: str) -> None:
    """Raise ``ValueError`` for what can be neither a name of a host nor an IP address."""
    try:
        host.encode("ascii" if ":" in host else "idna")
    except UnicodeError:
        raise ValueError(f"{host!r} is no name of a host") from None
