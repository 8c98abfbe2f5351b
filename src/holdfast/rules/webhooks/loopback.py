"""Hosts: which names are those of this machine itself. Judges text; resolves no name and opens no connection."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address


@lru_cache(256)
def is_loopback(name: str) -> bool:
    """Tell whether a host name or address, in brackets or not, is this machine's own."""
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
