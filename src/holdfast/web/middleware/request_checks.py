"""Heads of requests: what is refused before anybody is asked who they are.

Too long a head, a length told in two ways or by what is not known here, paths that two readers could read differently,
names that are not this machine's where only it is let in, pages of other origins. Looks at nothing but the head.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.types import Scope

from holdfast.errors import Forbidden, HoldfastError, InvalidValue
from holdfast.rules.webhooks.loopback import is_loopback

#: Bytes of a path, as it was sent.
LONGEST_PATH = 4096
#: A path may hold everything that ids and names may, encoded, and nothing that a reader could stumble over.
_ODD = re.compile("[\x00-\x1f\x7f-\x9f]")
#: Segments that proxies and clients take out of a path, encoded or not. Beside an encoded slash dots are part of an id.
_CLIMBING = re.compile(rb"(?:\A|/)(?:\.|%2e){1,2}(?:/|\Z)", re.IGNORECASE)
#: Two of these could be read as either.
_ONCE = (b"host", b"origin", b"authorization", b"content-length", b"transfer-encoding")
#: What a browser says of a page that is not this server's.
_FOREIGN = frozenset({b"cross-site", b"same-site"})

#: Headers by their names in lower case; of several alike the last.
Told = dict[bytes, bytes]


class Turned(NamedTuple):
    """A request turned away: why, and with which status."""

    why: HoldfastError
    status: int


def flaw_in(scope: Scope, told: Told, longest: int) -> Turned | None:
    """Give what is wrong with a head, whoever sent it."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    size = len(raw) + len(scope["query_string"]) + 4 * len(headers) + len(b"".join(chain.from_iterable(headers)))
    if size > longest:
        return _flawed(f"the head has more than {longest:,} bytes", 431)
    if len(raw) > LONGEST_PATH:
        return _flawed(f"the path has more than {LONGEST_PATH:,} bytes", 414)
    if scope["http_version"] not in {"1.0", "1.1"}:
        return _flawed("this is not HTTP/1.1", 505)
    if len(told) != len(headers) and any([name for name, _ in headers].count(one) > 1 for one in _ONCE):
        return _flawed("a header that counts is there twice", 400)
    if b"host" not in told and scope["http_version"] == "1.1":
        return _flawed("the Host is missing", 400)
    flaw = _flaw_of_length(scope, told)
    if flaw is not None:
        return flaw
    if not raw.startswith(b"/") or b"#" in raw:
        # A proxy's form, a whole address, or no path at all. This is no proxy.
        return _flawed("the target is no path", 400)
    path: str = scope["path"]
    if b"//" in raw or _ODD.search(path) or ("\ufffd" in path and not _is_text(raw)):
        return _flawed("the path holds what no path holds", 400)
    if _CLIMBING.search(raw):
        return _flawed("the path climbs", 400)
    return None


def _is_text(raw: bytes) -> bool:
    """Tell whether a path is text once it is decoded."""
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return False
    return True


def _flaw_of_length(scope: Scope, told: Told) -> Turned | None:
    """Give what is wrong with how a head tells where its body ends."""
    length, coding = told.get(b"content-length"), told.get(b"transfer-encoding")
    if coding is not None:
        if length is not None or scope["http_version"] == "1.0":
            return _flawed("the length of the body is told in two ways", 400)
        if coding.lower() != b"chunked":
            return _flawed("this transfer coding is not known here", 501)
    if b"upgrade" in told and (coding is not None or length not in {None, b"0"}):
        # To one reader the body is the first of another protocol, to another it is a body.
        return _flawed("there is a body with the wish for another protocol", 400)
    return None


def _flawed(what: str, status: int) -> Turned:
    return Turned(InvalidValue(f"{what}. Nothing was done."), status)


def demand_own_name(told: Told) -> None:
    """Refuse a Host that is not this machine: a page whose name was made to point here."""
    host = told.get(b"host", b"").decode("latin-1")
    if not is_loopback(_name_in(host)):
        raise Forbidden(
            f"the Host {host!r:.100} is not a name of this machine. Nothing was done.",
            hint="Use http://127.0.0.1 or http://localhost.",
        )


def demand_own_page(told: Told, method: str) -> None:
    """Refuse what a page of another origin asks. Following a link from there to here is no asking."""
    origin = told.get(b"origin")
    is_link = method == "GET" and told.get(b"sec-fetch-mode") == b"navigate"
    if origin is None and not (told.get(b"sec-fetch-site") in _FOREIGN and not is_link):
        return
    if origin is None or _place_of(origin.decode("latin-1")) != told.get(b"host", b"").decode("latin-1").lower():
        raise Forbidden("a page of another origin may not ask this. Nothing was done.")


def _place_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name_in(host: str) -> str:
    """Give the name of a Host header without its port."""
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() and not host.endswith("]") else host
