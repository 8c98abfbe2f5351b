"""Why an instance was given back, as a text that its record keeps and that people are shown again.

`blocked <kind>: <text>` is one that waits for other code; any other text is told as it is.
"""

from __future__ import annotations

from typing import NamedTuple

_BLOCKED = "blocked "


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
