"""Bytes at a coordinator's port, and what comes back: for what no client library would send."""

from __future__ import annotations

import socket
from typing import NamedTuple
from urllib.parse import urlsplit


class Said(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def dial(url, timeout=20):
    place = urlsplit(url)
    return socket.create_connection((place.hostname, place.port), timeout=timeout)


def hear(line):
    """Read one answer, to its end or the connection's; None if there is none."""
    text = b""
    try:
        while b"\r\n\r\n" not in text and (more := line.recv(65536)):
            text += more
        head, _, body = text.partition(b"\r\n\r\n")
        if not head:
            return None
        status, *fields = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        if status.split()[1] == "204":
            headers["content-length"] = "0"
        while len(body) < int(headers.get("content-length", 1 << 40)) and (more := line.recv(65536)):
            body += more
    except ConnectionResetError:
        return None
    return Said(int(status.split()[1]), headers, body)


def say(url, text):
    """Send bytes as they are, and give the answer."""
    with dial(url) as line:
        line.sendall(text)
        return hear(line)


def head(target="/healthz", *, method="GET", host="localhost", version="1.1", **fields):
    """Write a head; names of fields with `_` for `-`."""
    lines = [f"{method} {target} HTTP/{version}", *([f"Host: {host}"] if host is not None else [])]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
