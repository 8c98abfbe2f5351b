"""Changes: what a fold gives, and how it says that an event contradicts the records."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.errors import CorruptState
from holdfast.model.records import Key, Record, key_of
from holdfast.model.times import Timestamp


class Change(NamedTuple):
    """One record's new content; None removes it."""

    kind: type[Record]
    key: Key
    record: Record | None


class Stamp(NamedTuple):
    """Where and when an event stands in the feed."""

    seq: int
    ts: Timestamp


def put(record: Record) -> Change:
    """Change a record to this content."""
    return Change(type(record), key_of(record), record)


def demand(holds: bool, stamp: Stamp, complaint: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Raise CorruptState unless it holds."""
    if not holds:
        raise contradiction(stamp, complaint)


def contradiction(stamp: Stamp, complaint: str) -> CorruptState:
    """Say what cannot be. Where every job passes it is raised without `demand`: the words cost more than the look."""
    return CorruptState(
        f"event {stamp.seq}: {complaint}. The store stops rather than guess.",
        hint="Run `holdfast store check`.",
        seq=stamp.seq,
    )
