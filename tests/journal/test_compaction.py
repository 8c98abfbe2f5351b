from __future__ import annotations

from types import SimpleNamespace

import pytest
from journal_kit import checkpoint, numbers, opened, put, segments

from holdfast.errors import JournalDamaged, LogMissing
from holdfast.journal import JournalOptions
from holdfast.journal.compaction import drop_before, place_of
from holdfast.journal.scan import BadRecord
from holdfast.journal.segments import Segments, find
from holdfast.testing import SimCrash, SimFS
from holdfast.testing.simfs import CHANGES

SMALL = JournalOptions(flush_after_s=None, segment_bytes=900)


def rolled(count: int = 40) -> SimFS:
    """About nine records a segment."""
    fs = SimFS()
    journal = opened(fs, SMALL)
    for number in range(1, count + 1):
        put(journal, number)
    assert len(segments(fs)) > 2
    return fs.reboot()


def test_whole_segments_go_oldest_first_each_synced_before_the_next():
    fs = rolled()
    log = Segments(find(fs))
    doomed = [segment.path for segment in log.all[:2]]
    freed = sum(len(fs.tree()[path]) for path in doomed)
    assert drop_before(fs, log, log.all[2].first) == freed
    calls = [(call.kind, call.path) for call in fs.calls if call.kind in {"unlink", "sync_dir"}]
    assert calls == [("unlink", doomed[0]), ("sync_dir", "log"), ("unlink", doomed[1]), ("sync_dir", "log")]


def test_a_boundary_segment_less_than_half_droppable_stays():
    fs = rolled()
    log = Segments(find(fs))
    before = segments(fs)
    assert drop_before(fs, log, log.all[0].first + 2) == 0
    assert segments(fs) == before


def test_a_boundary_segment_more_than_half_droppable_is_copied_byte_for_byte():
    fs = rolled()
    log = Segments(find(fs))
    old = log.all[0]
    text, cut = fs.tree()[old.path], log.all[1].first - 2
    assert drop_before(fs, log, cut) > 0
    assert old.path not in fs.tree()
    assert log.all[0].first == cut
    assert text.endswith(fs.tree()[log.all[0].path])
    assert fs.tree()[log.all[0].path].startswith(b'{"seq":%d,' % cut)


def test_the_last_segment_is_never_rewritten():
    fs = rolled()
    log = Segments(find(fs))
    last = log.last
    drop_before(fs, log, last.first + 3)
    assert [segment.path for segment in log.all] == [last.path]


def test_a_bad_line_met_while_copying_raises_and_removes_nothing():
    fs = rolled()
    log = Segments(find(fs))
    path = log.all[1].path
    text = fs.tree()[path]
    fs.put(path, text[:-10] + bytes([text[-10] ^ 1]) + text[-9:])  # whatever digit of the sum stood there
    before = fs.tree()
    with pytest.raises(BadRecord):
        drop_before(fs, log, log.all[2].first - 2)
    assert fs.tree() == before


def test_truncation_meeting_damage_removes_nothing():
    fs = SimFS()
    journal = opened(fs)
    for number in range(1, 11):
        put(journal, number)
    journal.checkpoint(lambda: SimpleNamespace(applied_seq=8, tables={}), wait=True)
    put(journal, 11)
    path = segments(fs)[0]
    fs.put(path, fs.tree()[path].replace(b'"n":10', b'"n":77'))
    before = {path: data for path, data in fs.tree().items() if path.startswith("log/")}
    with pytest.raises(JournalDamaged) as caught:
        checkpoint(journal)
    assert (caught.value.facts["file"], caught.value.facts["line"]) == (path, 10)
    after = {path: data for path, data in fs.tree().items() if path.startswith("log/")}
    assert {path: data for path, data in after.items() if data} == before
    with pytest.raises(JournalDamaged):
        journal.truncate_before(9)


def test_a_compaction_cut_short_anywhere_leaves_a_log_that_opens():
    def life(fs):
        journal = opened(fs, SMALL)
        for number in range(1, 10):
            put(journal, number)
        checkpoint(journal, [])
        for number in range(10, 30):
            put(journal, number)
        checkpoint(journal, [])
        put(journal, 30)
        checkpoint(journal, [])

    undisturbed = SimFS()
    life(undisturbed)
    assert len([call for call in undisturbed.calls if call.kind == "unlink" and "log/" in call.path]) > 2
    total = sum(call.kind in CHANGES for call in undisturbed.calls)
    for nth in range(1, total):
        fs = SimFS()
        fs.crash(nth)
        with pytest.raises(SimCrash):
            life(fs)
        for seed in range(3):
            after = fs.image().power_loss("keep", seed, "mixed")
            if "journal.json" in after.tree():
                journal = opened(after, SMALL)
                loaded = journal.load()
                found = numbers(journal, loaded.seq)
                assert found == list(range(loaded.seq + 1, loaded.seq + 1 + len(found)))
                put(journal, 99)


def test_a_rewritten_segment_beside_its_longer_original_is_a_leftover():
    fs = rolled()
    log = Segments(find(fs))
    old, text = log.all[1], fs.tree()[log.all[1].path]
    cut = log.all[2].first - 2
    place = place_of(fs, old, cut)
    fs.put(f"log/{cut:020d}-{place.chain:08x}.jsonl", text[place.offset :])
    journal = opened(fs, SMALL)
    assert numbers(journal) == list(range(1, 41))
    assert f"log/{cut:020d}-{place.chain:08x}.jsonl" not in fs.tree()


def test_a_segment_that_only_looks_like_a_leftover_is_refused():
    fs = rolled()
    log = Segments(find(fs))
    old, text = log.all[1], fs.tree()[log.all[1].path]
    cut = log.all[2].first - 2
    place = place_of(fs, old, cut)
    fs.put(f"log/{cut:020d}-{place.chain:08x}.jsonl", text[place.offset :].splitlines(keepends=True)[0])
    with pytest.raises(JournalDamaged, match="repeats records"):
        opened(fs, SMALL)


def test_an_undone_removal_below_two_snapshots_is_finished_at_opening():
    fs = SimFS()
    journal = opened(fs, SMALL)
    kept = {}
    for number in range(1, 30):
        put(journal, number)
        kept.update({path: data for path, data in fs.tree().items() if path.startswith("log/")})
        if number in {15, 25}:
            checkpoint(journal, [])
    fs = fs.reboot()
    oldest = min(kept)
    assert oldest not in fs.tree()
    fs.put(oldest, kept[oldest])
    journal = opened(fs, SMALL)
    assert oldest not in fs.tree()
    assert numbers(journal, 25) == list(range(26, 30))


def test_a_reader_that_asks_for_what_is_gone_is_told():
    fs = SimFS()
    journal = opened(fs, SMALL)
    for number in range(1, 30):
        put(journal, number)
        if number in {10, 20}:
            checkpoint(journal, [])
    with pytest.raises(LogMissing) as caught:
        list(journal.read(0))
    assert caught.value.facts["first"] == journal.first_seq
    assert numbers(journal, journal.first_seq - 1)[0] == journal.first_seq


def test_a_reader_under_way_survives_a_compaction():
    fs = SimFS()
    journal = opened(fs, SMALL)
    for number in range(1, 30):
        put(journal, number)
    checkpoint(journal, [])
    reader = journal.read(0)
    first = [next(reader).seq for _ in range(12)]
    put(journal, 30)
    checkpoint(journal, [])
    with pytest.raises(LogMissing):
        first += [record.seq for record in reader]
    assert first == list(range(1, len(first) + 1))
