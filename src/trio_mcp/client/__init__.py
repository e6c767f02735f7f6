"""The client: connections to servers, and what can be asked through them."""

from .client import Client
from .connecting import Target, connect

__all__ = ["Client", "Target", "connect"]
