"""How statuses and reasons are written for people: glyph, word, colour, and the command that changes them.

The sentences themselves come from `rules.explain`, the same everywhere. Colour never stands alone: glyph and word are
always there.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple


class Look(NamedTuple):
    """How one kind of state is drawn."""

    glyph: str
    #: Where the locale is not UTF-8.
    ascii: str
    #: On a dark surface, on a light one, and by name where a terminal knows only its own colours.
    dark: str
    light: str
    named: str


_CALM = ("#8A93A9", "#5F6478", "bright_black")
_WARN = ("#FF9E33", "#7F5C00", "yellow")
_BUSY = ("#4A90FF", "#0A58E2", "blue")
_GOOD = ("#7FDBA6", "#14532B", "green")
_BAD = ("#FF4B66", "#B3203F", "red")
_AWAIT = ("#E3C4FA", "#57378A", "magenta")

READY = Look("○", "o", *_CALM)
DELAYED = Look("◷", ".", *_CALM)
HELD = Look("‖", "=", *_CALM)
BACKOFF = Look("↻", "~", *_WARN)
STUCK = Look("⚠", "!", *_WARN)
RUNNING = Look("▶", ">", *_BUSY)
WAITING = Look("⧗", ":", *_AWAIT)
ASKING = Look("◆", "*", *_AWAIT)
COMPLETED = Look("✓", "+", *_GOOD)
FAILED = Look("✕", "x", *_BAD)
PARTIAL = Look("◐", "%", *_WARN)
DEAD = Look("†", "X", *_BAD)
CANCELLED = Look("⊘", "-", *_CALM)
SKIPPED = Look("»", "/", *_CALM)
LOST = Look("?", "?", *_WARN)

#: Status of a job or of a run → its look. A job that waits is drawn by its reason.
_BY_STATUS = {
    "RUNNING": RUNNING,
    "COMPLETED": COMPLETED,
    "FAILED": FAILED,
    "PARTIAL": PARTIAL,
    "DEAD": DEAD,
    "CANCELLED": CANCELLED,
    "SKIPPED": SKIPPED,
    "LOST": LOST,
}
_BY_WORKER = {"ready": COMPLETED, "draining": HELD, "lost": LOST}
_BY_REASON = {
    "dispatch_paused": HELD,
    "queue_paused": HELD,
    "delayed": DELAYED,
    "group_wait": HELD,
    "overlap_wait": HELD,
    "key_limit": HELD,
    "queue_limit": HELD,
    "reserved": HELD,
    "rate_limit": HELD,
    "no_worker": STUCK,
    "lease_lapsed": STUCK,
}


def look_of(status: str, reason: str = "", attempts: int = 0) -> Look:
    """Give how a job or run is drawn; `attempts` tells a backoff from a delay."""
    if reason == "delayed" and attempts:
        return BACKOFF
    return _BY_REASON.get(reason) or _BY_STATUS.get(status, READY)


def look_of_worker(state: str) -> Look:
    """Give how a worker is drawn."""
    return _BY_WORKER[state]


def ways_on(job_id: str, queue: str, namespace: str, reason: str) -> list[tuple[str, str]]:
    """Give what would change a job that has this reason: what for, and the command."""
    job, name = shlex.quote(job_id), shlex.quote(queue)
    start = ("start a worker of the application that knows its task", f"holdfast worker APP --queues {name}")
    if namespace:
        name = f"{name} --namespace {shlex.quote(namespace)}"
    first = ("before the others of its priority", f"holdfast jobs move {job} --to first")
    cancel = ("not at all", f"holdfast jobs cancel {job}")
    match reason:
        case "dispatch_paused":
            return [("dispatch again", "holdfast dispatch resume"), cancel]
        case "queue_paused":
            return [("lease from the queue again", f"holdfast queues resume {name}"), cancel]
        case "key_limit":
            return [("more at a time", f"holdfast jobs update {job} --key-limit N"), cancel]
        case "reserved":
            return [("who holds the queue, and how to end it", "holdfast reservations ls"), cancel]
        case "queue_limit":
            return [("more at a time", f"holdfast queues limit {name} --max-running N"), cancel]
        case "rate_limit":
            return [("more often", f"holdfast queues limit {name} --rate N/PERIOD"), cancel]
        case "delayed":
            return [("now", f"holdfast jobs update {job} --at now"), cancel]
        case "no_worker":
            return [start, cancel]
        case "behind":
            return [first, ("before lower priorities", f"holdfast jobs update {job} --priority 100"), cancel]
        case "running":
            return [("ask it to stop", f"holdfast jobs cancel {job}")]
        case "cancel_requested":
            return [("revoke its lease at once", f"holdfast jobs cancel {job} --force")]
        case "lease_lapsed":
            return [("give it up", f"holdfast jobs bury {job}")]
        case "ended":
            return [("run it again, as a new job", f"holdfast jobs retry {job}")]
        case _:
            return [cancel]
