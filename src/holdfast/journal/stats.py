"""What a journal counts about itself. Only its flushing and checkpointing threads write here; readers copy."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.histogram import RECORD_BOUNDS, SYNC_BOUNDS, Histogram

BYTE_BOUNDS = tuple(float(256 * 4**n) for n in range(10))


class Counters(msgspec.Struct):
    """The part of the figures that has to be counted as things happen."""

    fsync_seconds: Histogram = msgspec.field(default_factory=lambda: Histogram.of(SYNC_BOUNDS))
    batch_records: Histogram = msgspec.field(default_factory=lambda: Histogram.of(RECORD_BOUNDS))
    batch_bytes: Histogram = msgspec.field(default_factory=lambda: Histogram.of(BYTE_BOUNDS))
    bytes_written_total: int = 0
    records_total: int = 0
    flush_errors_total: int = 0
    #: Duration of the last finished checkpoint.
    checkpoint_seconds: float = 0.0
    checkpoint_failures_total: int = 0
    #: Failures since the last success; three show as degraded.
    checkpoint_failures_in_row: int = 0
    last_checkpoint_timestamp: datetime | None = None
    last_checkpoint_seq: int = 0
    snapshot_bytes: int = 0
    replay_seconds: float = 0.0
    replay_records: int = 0

    def batch(self, records: int, size: int, sync_s: float) -> None:
        """Count one batch that reached the disk."""
        self.fsync_seconds.add(sync_s)
        self.batch_records.add(records)
        self.batch_bytes.add(size)
        self.bytes_written_total += size
        self.records_total += records


class JournalStats(Counters):
    """A journal's figures at one moment; exported with the prefix `holdfast_journal_`."""

    log_bytes: int = 0
    segments: int = 0
    first_seq: int = 1
    appended_seq: int = 0
    durable_seq: int = 0
    #: `open`, `full`, `failed` or `closed`.
    state: str = "open"
    durability: str = "full"


def report(counters: Counters, **now: Any) -> JournalStats:
    """Join the counters with what is asked for at this moment."""
    kept: dict[str, Any] = {name: getattr(counters, name) for name in Counters.__struct_fields__}
    copied: dict[str, Any] = {
        name: value.copy() if isinstance(value, Histogram) else value for name, value in kept.items()
    }
    return JournalStats(**copied, **now)
