from __future__ import annotations

from journal_kit import checkpoint, opened, put

from holdfast.journal.stats import SYNC_BOUNDS, Histogram
from holdfast.testing import SimFS


def test_a_histogram_counts_at_or_below_each_bound_and_above_the_last():
    histogram = Histogram.of((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.add(value)
    assert histogram.counts == [2, 2, 1]
    assert (histogram.count, histogram.total) == (5, 14.0)


def test_sync_times_are_counted_from_a_tenth_of_a_millisecond_to_a_second():
    assert (SYNC_BOUNDS[0], SYNC_BOUNDS[-1]) == (0.0001, 1.0)


def test_the_contracts_figures_are_all_there():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1, 2)
    put(journal, 3)
    checkpoint(journal)
    journal.append([{"type": "t:put", "n": 4}], ts=next(iter(journal.read())).ts)
    stats = journal.stats()
    assert (stats.records_total, stats.appended_seq, stats.durable_seq, stats.first_seq) == (3, 4, 3, 1)
    assert (stats.fsync_seconds.count, stats.batch_records.count, stats.batch_bytes.total) == (2, 2, stats.log_bytes)
    assert stats.bytes_written_total == stats.log_bytes
    assert (stats.segments, stats.state, stats.durability) == (2, "open", "full")
    assert (stats.last_checkpoint_seq, stats.checkpoint_failures_total, stats.flush_errors_total) == (3, 0, 0)
    assert stats.last_checkpoint_timestamp is not None
    assert stats.snapshot_bytes == len(fs.tree()[f"snapshots/{3:020d}.json.zst"])
    assert stats.checkpoint_seconds == 0
    put(journal, 5)
    assert stats.records_total == 3, "figures already given stand still"


def test_replay_is_counted_at_opening():
    fs = SimFS()
    put(opened(fs), 1, 2, 3)
    assert opened(fs.reboot()).stats().replay_records == 3
