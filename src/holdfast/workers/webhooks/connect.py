"""Connections to checked addresses only, within a time.

A name is resolved once, every address it stands for is checked, and the connection goes to one of these by its number:
a name that stands for another address a moment later leads nowhere else. For TLS the name is still the name.
"""

from __future__ import annotations

import queue
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from ipaddress import ip_address

from holdfast.rules.webhooks.addresses import Network, Target, is_public, refused

#: Gives the addresses that a name stands for, as text.
Resolver = Callable[[str], Sequence[str]]


class Deadline:
    """A moment after which nothing is waited for."""

    def __init__(self, monotonic: Callable[[], float], seconds: float) -> None:
        self._monotonic = monotonic
        self._at = monotonic() + seconds

    def left(self, what: str) -> float:
        """Give the seconds that are left, more than 0. Raises TimeoutError, naming what took too long."""
        left = self._at - self._monotonic()
        if left <= 0:
            raise TimeoutError(f"{what} took too long")
        return left


def addresses_of(name: str) -> list[str]:
    """Ask the system's resolver."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def dial(target: Target, allow: Sequence[Network], resolve: Resolver, deadline: Deadline) -> socket.socket:
    """Connect to the first address of the target that answers.

    Raises InvalidValue if any of its addresses is not public or allowed, OSError if none answers in time.
    """
    found = [target.host] if target.literal is not None else _resolved(target.host, resolve, deadline)
    for text in found:
        address = ip_address(text)
        if not is_public(address, allow):
            raise refused(target.host, address)
    problem = OSError(f"{target.host} has no address")
    for tried, text in enumerate(found):
        # One that is silent must leave time for the others.
        share_s = deadline.left("connecting") / (len(found) - tried)
        try:
            return socket.create_connection((text, target.port), timeout=share_s)
        except OSError as error:
            problem = error
    raise problem


def _resolved(name: str, resolve: Resolver, deadline: Deadline) -> Sequence[str]:
    """Resolve a name in a thread of its own, since no resolver can be told to hurry."""
    answer: queue.SimpleQueue[Sequence[str] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answer.put(resolve(name))
        except Exception as problem:  # noqa: BLE001 - raised again in the thread that waits
            answer.put(problem)

    threading.Thread(target=ask, name="holdfast-resolver", daemon=True).start()
    try:
        found = answer.get(timeout=deadline.left("resolving"))
    except queue.Empty:
        raise TimeoutError(f"resolving {name} took too long") from None
    if isinstance(found, Exception):
        raise found
    return found


def secured(line: socket.socket, target: Target, context: ssl.SSLContext, deadline: Deadline) -> ssl.SSLSocket:
    """Begin TLS, with whoever can prove to be the target. Raises OSError."""
    line.settimeout(deadline.left("connecting"))
    return context.wrap_socket(line, server_hostname=target.host)
