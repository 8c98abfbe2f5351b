"""Why an instance was given back, as a text that its record keeps and that people are shown again.

`blocked <kind>: <text>` is one that waits for other code, `no live worker has workflow …` one that waits for any; every
other text is told as it is.
"""

from __future__ import annotations

from typing import NamedTuple

_BLOCKED = "blocked "
_UNREGISTERED = "no live worker has workflow"


class Blockage(NamedTuple):
    """What an instance waits for that only other code can change."""

    kind: str
    text: str


def blocked_reason(kind: str, text: str) -> str:
    """Write down that an instance is blocked."""
    return f"{_BLOCKED}{kind}: {text}"


def blockage_of(reason: str | None) -> Blockage | None:
    """Read whether a reason says that the instance is blocked, and by what."""
    if reason is None or not reason.startswith(_BLOCKED):
        return None
    kind, _, text = reason.removeprefix(_BLOCKED).partition(": ")
    return Blockage(kind, text)


def unregistered_reason(name: str, version: str | None) -> str:
    """Write down that nobody has the code of an instance; any version would do, if none is named."""
    return f"{_UNREGISTERED} {name!r}{'' if version is None else f' {version}'}"


def is_unregistered(reason: str | None) -> bool:
    """Read whether a reason says that nobody has the code."""
    return reason is not None and reason.startswith(_UNREGISTERED)
