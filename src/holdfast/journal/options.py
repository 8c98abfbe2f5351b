"""What a journal can be told when it is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: Changes a whole snapshot document, in place, from the version it is registered for to the next.
SnapshotMigration = Callable[[dict[str, Any]], None]
#: Gives an event of the next version.
EventMigration = Callable[[dict[str, Any]], dict[str, Any]]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions:
    """Settings of one open journal; the defaults are what the promises are made for."""

    #: `relaxed` acknowledges after the append, at most `flush_after_s` ahead of the disk.
    durability: Literal["full", "relaxed"] = "full"
    #: On a network file system locks, renames and syncs promise less; opening one is refused unless allowed.
    network: Literal["refuse", "allow"] = "refuse"
    #: A segment of this many bytes is followed by a new one.
    segment_bytes: int = 64 * _MIB
    #: So many buffered records are flushed without anybody waiting.
    flush_records: int = 100
    #: Seconds after which a record nobody waits for is flushed; None leaves flushing to waiters and `flush`.
    flush_after_s: float | None = 0.010
    #: Seconds a leader waits for company. Off: waiting during the previous sync already groups.
    linger_s: float = 0.0
    #: Above so many buffered bytes `append` waits for a flush.
    buffer_bytes: int = 64 * _MIB
    #: A full disk is tried again after so many seconds, this often, before the journal fails.
    full_retry_s: float = 1.0
    full_retries: int = 30
    #: What this program writes and how it reads what older ones wrote; by source version.
    schema_version: int = 1
    snapshot_migrations: Mapping[int, SnapshotMigration] = field(default_factory=dict)
    event_version: int = 1
    event_migrations: Mapping[int, EventMigration] = field(default_factory=dict)
    #: Seconds and bytes of log after which a checkpoint is due, and records that make one worth it at close.
    checkpoint_after_s: float = 60.0
    checkpoint_after_bytes: int = 64 * _MIB
    checkpoint_at_close_records: int = 1000
    #: Shown to whoever finds the lock taken; by default the program's name.
    program: str | None = None
