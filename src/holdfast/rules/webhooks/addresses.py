"""Addresses that a webhook may have. Judges text and numbers; resolves no name and opens no connection.

A URL is judged when it is given, every address its name stands for at every try: what a name stands for can change.
Only public addresses pass, and the networks that the operator names. An address that carries another one inside is
judged by the inner one; a number that resolvers read as an address, but people do not, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

from holdfast.errors import InvalidValue

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_URL = 2000
_PORTS = {"http": 80, "https": 443}

#: What of IPv4 is not public. All the rest is.
_CLOSED_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # behind a carrier's translator
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and there the metadata of clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
#: Of IPv6 only this is public: loopback, mapped, unique local, link-local, multicast and reserved lie outside …
_OPEN_V6 = IPv6Network("2000::/3")
#: … and of that, not these.
_CLOSED_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, among them Teredo, which carries an address of anyone's choice
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which does too
        "3fff::/20",  # documentation
    )
)
#: NAT64: the last 32 bits are an IPv4 address. In networks with IPv6 alone, public names resolve to these.
_NAT64 = IPv6Network("64:ff9b::/96")

_NAME = re.compile(
    r"(?=.{1,253}\Z)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
)
#: Resolvers take a name that ends like this for an address, in bases 8, 10 or 16, with one to four parts.
_NUMBER = re.compile(r"(?:.*\.)?(?:\d+|0x[0-9a-f]*)")


class Target(NamedTuple):
    """Where a webhook's deliveries go."""

    scheme: str
    #: A name, or an address without brackets; lower case, no dot at the end.
    host: str
    port: int
    #: Path and query.
    path: str

    @property
    def host_header(self) -> str:
        """Write host and port as the receiver knows them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def literal(self) -> Address | None:
        """Give the address that the host is, or None for a name."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None


def parse_url(url: str) -> Target:
    """Take a webhook's URL apart. Raises InvalidValue for what is none, whatever it would lead to."""
    if len(url) > MAX_URL:
        raise _wrong(f"{len(url):,} characters are more than {MAX_URL:,}")
    if not re.fullmatch(r"[\x21-\x7e]+", url) or "\\" in url:
        # Parsers disagree about these, and what one of them has checked another would send elsewhere.
        raise _wrong("has a blank, a backslash or a character beyond ASCII", hint="Write it percent-encoded.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise _wrong(f"is no URL: {problem}") from None
    if parts.scheme not in _PORTS:
        raise _wrong(f"has the scheme {parts.scheme or 'none'!r}", hint="A webhook goes to http: or https:.")
    if "@" in parts.netloc:
        raise _wrong("has user info", hint="Receivers know a delivery by its signature.")
    if "#" in url:
        raise _wrong("has a fragment, which is never sent")
    if port == 0:
        raise _wrong("has the port 0")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, _host_in(parts.netloc), port or _PORTS[parts.scheme], path)


def _host_in(place: str) -> str:
    """Give the host of `host[:port]`."""
    if place.startswith("["):
        found = re.fullmatch(r"\[([0-9a-fA-F:.]+)\](?::\d*)?", place)
        try:
            return IPv6Address(found[1] if found else "").compressed
        except ValueError:
            raise _wrong(f"has the host {place!r:.80}, which is no IPv6 address") from None
    host = place.partition(":")[0].lower().removesuffix(".")
    if _NUMBER.fullmatch(host):
        try:
            return str(IPv4Address(host))
        except ValueError:
            hint = "Write an address as four decimal numbers, such as 198.51.100.7."
            raise _wrong(f"has the host {host}, a number that stands for an address", hint=hint) from None
    if not _NAME.fullmatch(host):
        raise _wrong(f"has the host {host!r}, which is no name", hint="Names beyond ASCII are written as xn--….")
    return host


def _wrong(complaint: str, *, hint: str = "") -> InvalidValue:
    # The URL itself is not repeated: it may contain a password.
    return InvalidValue(f"url: it {complaint}.", hint=hint, field="url")


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Read networks such as `10.0.0.0/8`, or single addresses. Raises InvalidValue."""
    found = []
    for text in texts:
        try:
            found.append(ip_network(text))
        except ValueError as problem:
            raise InvalidValue(
                f"webhook_allow: {text!r:.80} is no network: {problem}.",
                hint="Write it as 10.0.0.0/8 or fd00::/8.",
                field="webhook_allow",
            ) from None
    return tuple(found)


def is_public(address: Address, allow: Sequence[Network] = ()) -> bool:
    """Tell whether a delivery may go to an address: a public one, or one of a network that is allowed."""
    inner = _inner(address)
    if any(inner in network for network in allow):
        return True
    if isinstance(inner, IPv4Address):
        return not any(inner in network for network in _CLOSED_V4)
    return inner in _OPEN_V6 and not any(inner in network for network in _CLOSED_V6)


def _inner(address: Address) -> Address:
    """Give the IPv4 address that a mapped or translated one carries, or the address without its zone."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    plain = IPv6Address(int(address))
    return IPv4Address(int(plain) & 0xFFFFFFFF) if plain in _NAT64 else plain


def check_target(url: str, allow: Sequence[Network] = ()) -> Target:
    """Judge the URL of a webhook: its form, and the address if it names one. Raises InvalidValue."""
    target = parse_url(url)
    address = target.literal
    if target.host == "localhost" or target.host.endswith(".localhost"):
        address = IPv4Address("127.0.0.1")
    if address is not None and not is_public(address, allow):
        raise refused(target.host, address)
    return target


def refused(host: str, address: Address) -> InvalidValue:
    """Say that an address is not one that deliveries go to."""
    return InvalidValue(
        f"url: {host} is {address}, which is not a public address."
        if host != str(address)
        else f"url: {address} is not a public address.",
        hint="To deliver inside your own network, name it: Holdfast(webhook_allow=…) or `serve --webhook-allow`.",
        field="url",
    )
