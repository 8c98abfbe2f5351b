from __future__ import annotations

import threading

from journal_kit import NOW, opened, put, segments

from holdfast.failpoints import listening
from holdfast.journal import JournalOptions
from holdfast.journal.segments import MARK_EVERY, Mark, Segment, Segments, find
from holdfast.testing import SimFS


def test_a_name_is_the_first_record_and_the_chain_value_before_it():
    assert Segment(1, 0x7759B50E).path == "log/00000000000000000001-7759b50e.jsonl"


def test_names_of_other_forms_are_left_alone():
    fs = SimFS()
    assert find(fs) == []
    fs.mkdir("log")
    for name in ("1-7759b50e.jsonl", "x", f"{5:020d}-0000000A.jsonl", f"{5:020d}-0000000a.jsonl.tmp"):
        fs.put(f"log/{name}", b"")
    fs.put(f"log/{7:020d}-0000000a.jsonl", b"")
    fs.put(f"log/{2:020d}-0000000b.jsonl", b"")
    assert [(segment.first, segment.chain) for segment in find(fs)] == [(2, 11), (7, 10)]


def test_a_record_is_found_in_the_segment_that_holds_it():
    log = Segments([Segment(5, 0), Segment(9, 0)])
    assert log.holding(4) is None
    assert [log.holding(seq).first for seq in (5, 8, 9, 100)] == [5, 5, 9, 9]
    first = log.all[0]
    log.replace(first, Segment(7, 0))
    log.add(Segment(12, 0))
    assert [segment.first for segment in log.all] == [7, 9, 12]
    log.replace(log.all[1])
    assert [segment.first for segment in log.all] == [7, 12]
    assert "00000000000000000007" in repr(log.all[0])


def test_marks_are_thinly_spread_and_the_nearest_below_is_given():
    segment = Segment(1, 9)
    for n in range(1, 11):
        segment.note(Mark(1 + n * 100, n * MARK_EVERY // 4, n))
    assert [mark.seq for mark in segment.marks] == [1, 401, 801]
    assert [segment.mark_before(seq).seq for seq in (1, 400, 401, 800, 5000)] == [1, 1, 401, 401, 801]


def test_the_log_rolls_between_batches_and_a_group_never_spans_segments():
    fs = SimFS()
    journal = opened(fs, JournalOptions(flush_after_s=None, segment_bytes=300))
    for number in range(10):
        put(journal, number, number, number)
    for path in segments(fs):
        lines = fs.tree()[path].splitlines()
        assert not lines or b'"more"' not in lines[-1]
        assert len(lines) % 3 == 0
    assert len(segments(fs)) > 4


def test_a_new_segment_has_a_durable_name_before_its_first_record():
    fs = SimFS()
    journal = opened(fs, JournalOptions(flush_after_s=None, segment_bytes=50))
    put(journal, 1)
    start = len(fs.calls)
    put(journal, 2)
    steps = [
        (call.kind, call.path) for call in fs.calls[start:] if call.kind in {"create", "write", "sync", "sync_dir"}
    ]
    path = segments(fs)[-1]
    assert steps == [("create", path), ("sync_dir", "log"), ("write", path), ("sync", path)]


def test_reading_from_late_in_a_long_segment_does_not_read_it_all():
    fs = SimFS()
    journal = opened(fs)
    for _ in range(20):
        journal.append([{"type": "t:put", "n": 0, "pad": "x" * 900} for _ in range(100)], ts=NOW).wait()
    start = len(fs.calls)
    assert [record.seq for record in journal.read(1999)] == [2000]
    offsets = [call.at for call in fs.calls[start:] if call.kind == "read"]
    assert min(offsets) > 1_500_000


def test_readers_appends_and_rolls_at_once_give_every_record_once_and_in_order():
    fs = SimFS()
    journal = opened(fs, JournalOptions(flush_after_s=None, segment_bytes=2000))
    failures, stop = [], threading.Event()

    def follow():
        seen = 0
        while not stop.is_set() or seen < journal.durable_seq:
            for record in journal.read(seen):
                if record.seq != seen + 1:
                    failures.append((seen, record.seq))
                seen = record.seq

    readers = [threading.Thread(target=follow) for _ in range(3)]
    for reader in readers:
        reader.start()
    with listening("journal.synced", lambda: None):
        for number in range(300):
            put(journal, number, number)
    stop.set()
    for reader in readers:
        reader.join(30)
    assert failures == []
