"""Opening a store by its URL, the only configuration there is: `sqlite:PATH`, `http://HOST:PORT` and others.

Stores are imported when asked for, so that a program pays only for the one it uses.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import parse_qsl

from holdfast.clock import Clock
from holdfast.errors import InvalidValue, MissingExtra
from holdfast.stores.protocol import Store

#: Scheme → option → its values.
_OPTIONS = {
    "memory": {},
    "dir": {"network": ("refuse", "allow")},
    "wal": {"network": ("refuse", "allow"), "durability": ("sync", "relaxed")},
    "sqlite": {"network": ("refuse", "allow")},
    "http": {},
    "https": {},
}
#: A coordinator: a host, perhaps a port, perhaps a path below which it was put; no user, no query.
_HOST = re.compile(r"//[^/@?#\s]+(/[^?#\s]*)?")


class StoreUrl(NamedTuple):
    """A store's URL in its parts."""

    scheme: str
    path: str
    #: Whether a network file system is accepted.
    network: bool
    #: Whether answers may leave up to 10 ms before the sync.
    relaxed: bool

    @property
    def is_elsewhere(self) -> bool:
        """Whether a coordinator is named, and no place on this machine."""
        return self.scheme in {"http", "https"}


def parse_url(url: str) -> StoreUrl:
    """Take a URL apart. Raises InvalidValue, saying which forms there are."""
    if not isinstance(url, str):
        raise InvalidValue(f"{url!r} is no text; a store is named by a URL such as sqlite:jobs.db.", url=repr(url))
    scheme, colon, rest = url.partition(":")
    path, _, query = rest.partition("?")
    if not colon or scheme not in _OPTIONS:
        raise InvalidValue(
            f"{url!r} is not a store URL.",
            hint="Use memory:, dir:PATH, wal:PATH, sqlite:PATH or http://HOST:PORT, for example sqlite:jobs.db.",
            url=url,
        )
    if bool(path) == (scheme == "memory") or not _can_be_path(path):
        raise InvalidValue(f"{url!r}: {scheme}: takes {'no path' if scheme == 'memory' else 'a path'}.", url=url)
    if scheme in {"http", "https"} and "@" in rest:  # not repeated: it may hold a password
        raise InvalidValue(
            "the URL of a coordinator has no user and no password.",
            hint="Use http://HOST:PORT, and HOLDFAST_ACCESS_TOKEN for the access token.",
        )
    if scheme in {"http", "https"} and not _HOST.fullmatch(rest):
        raise InvalidValue(f"{url!r} names no coordinator.", hint="Use http://HOST:PORT.", url=url)
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        if value not in _OPTIONS[scheme].get(name, ()):
            known = ", ".join(f"{option}={'|'.join(values)}" for option, values in _OPTIONS[scheme].items()) or "none"
            raise InvalidValue(f"{url!r}: {scheme}: has no option {name}={value}.", hint=f"There is: {known}.", url=url)
    return StoreUrl(scheme, path, options.get("network") == "allow", options.get("durability") == "relaxed")


def _can_be_path(path: str) -> bool:
    """Tell whether the system could have a file of that name: no NUL, and no half of a character."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    readonly: bool = False,
    access_token: str | None = None,
    patience_s: float | None = None,
) -> Store:
    """Open or create the store a URL names.

    A coordinator may ask for an `access_token`, and one that does not answer is waited for so many seconds; the others
    have neither.

    Raises InvalidValue for a URL that is none, StoreError if the store cannot be opened.
    """
    where = parse_url(url)
    match where.scheme:
        case "memory":
            from holdfast.stores.memory.store import MemoryStore  # noqa: PLC0415 - only what is used is imported

            return MemoryStore(clock=clock)
        case "dir":
            from holdfast.stores.dir import DirStore  # noqa: PLC0415 - the same

            return DirStore.open(where.path, clock=clock, network=where.network, readonly=readonly)
        case "wal":
            from holdfast.journal import JournalOptions  # noqa: PLC0415 - the same
            from holdfast.stores.wal import WalStore  # noqa: PLC0415 - the same

            options = JournalOptions(
                network="allow" if where.network else "refuse", durability="relaxed" if where.relaxed else "full"
            )
            return WalStore.open(where.path, clock=clock, options=options, readonly=readonly)
        case "http" | "https":
            return _open_http(url, clock, access_token, patience_s)
        case _:
            from holdfast.stores.sqlite import SqliteStore  # noqa: PLC0415 - the same

            return SqliteStore.open(where.path, network=where.network, readonly=readonly, clock=clock)


def _open_http(url: str, clock: Clock | None, access_token: str | None, patience_s: float | None) -> Store:
    try:
        from holdfast.stores.http.store import PATIENCE_S, HttpStore  # noqa: PLC0415 - only what is used is imported
    except ModuleNotFoundError as missing:
        if missing.name != "httpx2":
            raise
        raise MissingExtra(
            "a coordinator is reached with the package httpx2, which is not installed. Nothing was opened.",
            hint="pip install 'holdfast[web]'",
        ) from missing
    waits_s = PATIENCE_S if patience_s is None else patience_s
    return HttpStore.open(url, access_token=access_token, clock=clock, patience_s=waits_s)
