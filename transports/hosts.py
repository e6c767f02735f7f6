"""Names of hosts in addresses."""

from __future__ import annotations

__all__ = ["check_host", "check_port"]


def check_host(host: str) -> None:
    """Raise ``ValueError`` for what can be neither a name of a host nor an IP address."""
    try:
        host.encode("ascii" if ":" in host else "idna")
    except UnicodeError:
        raise ValueError(f"{host!r} is no name of a host") from None


def check_port(port: int | None) -> None:
    """Raise ``ValueError`` for a number that no port has; ``None`` stands for the usual one."""
    if port is not None and not 0 < port < 65536:
        raise ValueError(f"{port} is no port; they are from 1 to 65535")
