"""Opening: what recovery does, what it refuses, and that it can be cut short anywhere."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest
from journal_kit import (
    NOW,
    QUIET,
    chained,
    checkpoint,
    crashed,
    events,
    kinds,
    log_of,
    numbers,
    opened,
    put,
    segments,
    snapshots,
    start_of,
)

from holdfast.errors import (
    JournalDamaged,
    LogMissing,
    NotFound,
    SnapshotDamaged,
    StoreFailed,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
)
from holdfast.journal import Journal, JournalOptions
from holdfast.testing import SimCrash, SimFS


def bytes_of(fs: SimFS) -> dict[str, bytes]:
    return {path: data for path, data in fs.tree().items() if path != "LOCK"}


def refuses(fs: SimFS, kind, *words: str):
    before = bytes_of(fs)
    with pytest.raises(kind) as caught:
        opened(fs)
    assert bytes_of(fs) == before, "a refusal changes no byte"
    for word in words:
        assert word in str(caught.value), str(caught.value)
    return caught.value


# --- making one -------------------------------------------------------------------------------------------------------


def test_a_new_journal_has_the_contracts_files_and_rights(tmp_path):
    with Journal.open(tmp_path / "a" / "store") as journal:
        put(journal, 1)
    root = tmp_path / "a" / "store"
    identity = json.loads((root / "journal.json").read_text())
    assert list(identity) == ["format", "id", "created_at"]
    assert (identity["format"], len(identity["id"])) == (1, 32)
    assert sorted(path.name for path in root.iterdir()) == ["LOCK", "journal.json", "log", "snapshots"]
    assert {oct(path.stat().st_mode & 0o777) for path in root.rglob("*") if path.is_file()} == {"0o600"}
    assert {oct(path.stat().st_mode & 0o777) for path in (root, root / "log", root / "snapshots")} == {"0o700"}


def test_a_creation_cut_short_anywhere_is_begun_again():
    for nth in range(1, 200):
        fs = SimFS()
        fs.crash(nth)
        try:
            opened(fs)
        except SimCrash:
            for after in (fs.reboot(), fs.power_loss("lose", names="lose"), fs.power_loss("keep", nth, "mixed")):
                put(opened(after), 1)
                assert numbers(opened(after.reboot())) == [1]
        else:
            assert nth > 5
            return
    raise AssertionError


def test_a_log_without_journal_json_is_refused():
    fs = crashed((1,))
    fs.unlink("journal.json")
    refuses(fs, JournalDamaged, "journal.json is missing")


def test_an_unreadable_journal_json_is_refused():
    fs = crashed((1,))
    fs.put("journal.json", b'{"format":')
    refuses(fs, JournalDamaged, "journal.json cannot be read")


def test_a_journal_json_whose_id_is_none_of_ours_is_refused():
    fs = crashed((1,))
    known = fs.tree()["journal.json"]
    at = known.index(b'"id":"') + 6
    for wrong in ("é".encode() * 16, b"xyz"):
        fs.put("journal.json", known[:at] + wrong + known[at + 32 :])
        refuses(fs, JournalDamaged, "journal.json cannot be read")


def test_a_changed_journal_id_is_refused():
    fs = crashed((1,))
    text = bytearray(fs.tree()["journal.json"])
    at = text.index(b'"id":"') + 6
    text[at] = ord("0") if text[at] != ord("0") else ord("1")
    fs.put("journal.json", bytes(text))
    refuses(fs, JournalDamaged, "another journal")


# --- reopening --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
def test_after_reopening_a_short_log_reading_from_zero_begins_with_record_one(count):
    fs = crashed(*((n,) for n in range(count)))
    journal = opened(fs)
    assert [seq for seq, _ in events(journal)] == list(range(1, count + 1))
    assert journal.load().seq == 0
    assert list(journal.load().records) == []


def test_the_same_files_give_the_same_records():
    fs = crashed((1, 2), (3,))
    first = list(opened(fs.image()).read())
    assert [(r.seq, r.ts, r.event) for r in first] == [(r.seq, r.ts, r.event) for r in opened(fs.image()).read()]


def test_unless_closed_in_order_the_last_segment_is_written_anew_before_anything_is_served():
    fs = crashed((1,))
    opened(fs)
    path = segments(fs)[0]
    order = [(call.kind, call.dst or call.path) for call in fs.calls]
    rename = order.index(("rename", path))
    assert ("sync", f"{path}.tmp") in order[:rename]
    assert ("sync_dir", "log") in order[rename:]


def test_after_an_orderly_closing_the_log_keeps_its_bytes_and_inode():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1)
    journal.close()
    before, inode = log_of(fs), fs.stat(segments(fs)[0]).inode
    opened(fs)
    assert (log_of(fs), fs.stat(segments(fs)[0]).inode) == (before, inode)


def test_recovery_cut_short_anywhere_and_run_again_gives_the_same():
    torn = crashed((1,), (2, 3))
    torn.put(segments(torn)[0], log_of(torn)[:-20])
    expected = None
    for nth in range(1, 200):
        fs = torn.image()
        fs.crash(nth)
        try:
            opened(fs)
        except SimCrash:
            for after in (fs.reboot(), fs.power_loss("lose", names="mixed", seed=nth), fs.power_loss("blocks", nth)):
                journal = opened(after)
                assert numbers(journal) == [1]
                backups = [path for path in after.tree() if path.startswith("log.bak")]
                expected = expected or after.tree()["log.bak"]
                assert {after.tree()[path] for path in backups} == {expected}
        else:
            assert nth > 8
            return
    raise AssertionError


def test_leftover_drafts_of_ours_are_removed_and_other_names_left_alone():
    fs = crashed((1,))
    kept = ["notes.txt", "log/mine.tmp", "snapshots/x.json.zst.tmp", "blobs.tmp"]
    drafts = [
        "journal.json.tmp",
        "log.bak.tmp",
        f"{segments(fs)[0]}.tmp",
        "snapshots/" + "1".zfill(20) + ".json.zst.tmp",
    ]
    for path in kept + drafts:
        fs.put(path, b"x")
    opened(fs)
    assert set(kept) <= set(fs.tree())
    assert not set(drafts) & set(fs.tree())


def test_a_refusal_leaves_even_drafts_where_they_are():
    fs = crashed((1,), (2,))
    fs.put("log.bak.tmp", b"x")
    fs.put(segments(fs)[0], log_of(fs).replace(b'"n":1', b'"n":7'))
    refuses(fs, JournalDamaged)


# --- segments ---------------------------------------------------------------------------------------------------------

TINY = JournalOptions(flush_after_s=None, segment_bytes=150)


def rolled(count: int = 8) -> SimFS:
    fs = SimFS()
    journal = opened(fs, TINY)
    for number in range(count):
        put(journal, number)
    assert len(segments(fs)) > 3
    return fs.reboot()


def test_segments_concatenated_are_one_chain():
    fs = rolled()
    whole, other = log_of(fs), crashed()
    for path in segments(fs):
        fs.unlink(path)
    fs.put(f"log/{1:020d}-{start_of(fs):08x}.jsonl", whole)
    assert numbers(opened(fs)) == list(range(8))
    assert start_of(other) != start_of(fs)


def test_a_missing_segment_is_refused_and_the_range_is_named():
    fs = rolled()
    fs.unlink(segments(fs)[1])
    refuses(fs, JournalDamaged, "records 3 to 4 are missing")


def test_a_missing_first_segment_is_refused():
    fs = rolled()
    fs.unlink(segments(fs)[0])
    refuses(fs, JournalDamaged, "records 1 to 2 are missing")


def test_a_segment_of_another_journal_is_refused():
    fs, other = rolled(), rolled()
    fs.unlink(segments(fs)[0])
    fs.put(segments(other)[0], other.tree()[segments(other)[0]])
    refuses(fs, JournalDamaged, "another journal")
    fs = rolled()
    fs.unlink(segments(fs)[-1])
    fs.put(segments(other)[-1], other.tree()[segments(other)[-1]])
    refuses(fs, JournalDamaged, "does not continue")


def test_a_torn_end_is_damage_in_any_segment_but_the_last():
    for cut in (1, 5):
        fs = rolled()
        path = segments(fs)[0]
        fs.put(path, fs.tree()[path][:-cut])
        refuses(fs, JournalDamaged)


def test_an_incomplete_group_is_damage_in_any_segment_but_the_last():
    fs = crashed()
    chain = start_of(fs)
    first = chained(chain, (1, b'{"type":"t:put","n":1}', {"tail": b',"more":true'}))
    end = int(first[-11:-3], 16)
    fs.put(segments(fs)[0], first)
    fs.put(f"log/{2:020d}-{end:08x}.jsonl", b"")
    refuses(fs, JournalDamaged, "not complete")


def test_an_empty_last_segment_is_legal_and_used():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1)
    checkpoint(journal)
    fs = fs.reboot()
    assert fs.tree()[segments(fs)[-1]] == b""
    journal = opened(fs)
    put(journal, 2)
    assert len(segments(fs)) == 2
    assert numbers(journal) == [1, 2]


def test_a_journal_whose_log_is_gone_is_never_an_empty_start():
    fs = crashed((1,))
    fs.unlink(segments(fs)[0])
    refuses(fs, LogMissing, "the log is gone")


# --- beside snapshots -------------------------------------------------------------------------------------------------


def with_snapshots(*after: int) -> SimFS:
    """Ten records, a checkpoint after each of these numbers, and a crash."""
    fs = SimFS()
    journal = opened(fs)
    for number in range(1, 11):
        put(journal, number)
        if number in after:
            checkpoint(journal, [{"n": n} for n in range(1, number + 1)])
    return fs.reboot()


def state(journal: Journal) -> list[int]:
    """What a store would have: the snapshot's numbers, then the log's."""
    loaded = journal.load()
    rows = [json.loads(raw)["n"] for _, raw in loaded.records]
    return rows + numbers(journal, loaded.seq)


def test_the_newest_snapshot_and_the_log_after_it_are_the_state():
    fs = with_snapshots(3, 7)
    journal = opened(fs)
    assert journal.load().seq == 7
    assert state(journal) == list(range(1, 11))
    assert put(journal, 11).first_seq == 11


def damage(fs: SimFS, path: str) -> None:
    text = bytearray(fs.tree()[path])
    text[len(text) // 2] ^= 1
    fs.put(path, bytes(text))


def test_a_damaged_newest_snapshot_costs_replay_time_only():
    fs = with_snapshots(3, 7)
    broken = fs.tree()[snapshots(fs)[1]]
    damage(fs, snapshots(fs)[1])
    journal = opened(fs)
    assert journal.load().seq == 3
    assert state(journal) == list(range(1, 11))
    assert "journal:repaired" in kinds(journal)
    assert fs.tree()["snapshot.bak"] != broken
    assert len(snapshots(fs)) == 1


def test_a_damaged_only_snapshot_is_made_up_for_by_the_whole_log():
    fs = with_snapshots(7)
    damage(fs, snapshots(fs)[0])
    journal = opened(fs)
    assert journal.load().seq == 0
    assert state(journal) == list(range(1, 11))


def test_two_damaged_snapshots_are_refused_by_name_and_never_an_empty_start():
    fs = with_snapshots(3, 7)
    for path in snapshots(fs):
        damage(fs, path)
    error = refuses(fs, SnapshotDamaged, *snapshots(fs))
    assert error.facts["files"] == snapshots(fs)[::-1]


@pytest.mark.parametrize("loss", ["gone", "empty", "short"])
def test_a_log_that_does_not_reach_its_snapshot_is_refused(loss):
    fs = with_snapshots(3, 7)
    for path in segments(fs)[1:]:
        fs.unlink(path)
    path = segments(fs)[0]
    if loss == "gone":
        fs.unlink(path)
    else:
        fs.put(path, b"" if loss == "empty" else fs.tree()[path].splitlines(keepends=True)[0])
    refuses(fs, LogMissing, "--accept-snapshot", "record 7")


def test_a_log_that_begins_after_its_snapshot_is_refused_and_the_range_named():
    fs = with_snapshots(3, 7)
    fs.unlink(snapshots(fs)[1])
    fs.unlink(segments(fs)[0])
    refuses(fs, JournalDamaged, "records 4 to 7 are missing")


def test_a_snapshot_that_the_log_does_not_meet_is_refused():
    fs, other = with_snapshots(3, 7), with_snapshots(3, 7)
    fs.put("journal.json", other.tree()["journal.json"])
    for path in snapshots(fs):
        fs.put(path, other.tree()[path])
    refuses(fs, JournalDamaged, "snapshot at record 7")


def test_records_before_the_snapshot_need_not_be_right():
    fs = with_snapshots(3, 7)
    path = segments(fs)[0]
    fs.put(path, fs.tree()[path].replace(b'"n":5', b'"n":6', 1))
    journal = opened(fs)
    assert state(journal) == list(range(1, 11))
    with pytest.raises(JournalDamaged):
        list(journal.read(3))


# --- who may open -----------------------------------------------------------------------------------------------------


def test_a_second_opening_is_refused_by_name_and_changes_nothing():
    fs = SimFS()
    journal = opened(fs, JournalOptions(flush_after_s=None, program="holdfast serve"))
    put(journal, 1)
    before = fs.tree()
    with pytest.raises(StoreLocked) as caught:
        opened(fs)
    assert f"store is in use by pid {os.getpid()} (holdfast serve) on host" in str(caught.value)
    assert fs.tree() == before
    journal.note_url("http://127.0.0.1:8480")
    with pytest.raises(StoreLocked, match="serving http://127"):
        opened(fs)
    journal.close()
    opened(fs).close()


def test_a_second_process_is_refused_until_the_first_has_closed(tmp_path):
    script = (
        "import sys\nfrom holdfast.journal import Journal\nfrom holdfast.errors import StoreLocked\n"
        "try:\n    Journal.open(sys.argv[1]).close()\nexcept StoreLocked as error:\n    print(error)\n    sys.exit(6)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "store")]
    with Journal.open(tmp_path / "store"):
        loser = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (loser.returncode, f"pid {os.getpid()}" in loser.stdout) == (6, True)
    assert subprocess.run(command, check=False).returncode == 0


def test_a_lock_whose_text_says_nothing_is_refused_all_the_same():
    fs = SimFS()
    fs.lock("LOCK", b"\xff{")
    with pytest.raises(StoreLocked, match="another process"):
        opened(fs)


def test_a_read_only_file_system_is_told_and_reading_works():
    fs = crashed((1, 2))
    fs.fail("change", 1, errno.EROFS, times=None)
    with pytest.raises(StoreReadOnly):
        opened(fs)
    assert numbers(opened(fs, readonly=True)) == [1, 2]


@pytest.mark.parametrize("kind", ["read", "listdir", "stat", "open"])
def test_a_failing_read_refuses_the_start_and_is_never_taken_for_the_end(kind):
    for nth in range(1, 60):
        fs = with_snapshots(3, 7)
        fs.fail(kind, nth, errno.EIO)
        try:
            journal = opened(fs)
        except StoreFailed:
            continue
        if not fs.injected:
            fs.heal()
            assert state(journal) == list(range(1, 11))
            return
    raise AssertionError


def test_a_full_disk_at_opening_is_told_as_such():
    fs = crashed((1,))
    fs.fail("write", 1, errno.ENOSPC)
    with pytest.raises(StoreFull):
        opened(fs)
    assert numbers(opened(fs)) == [1]


def test_reading_only_takes_no_lock_repairs_nothing_and_stops_at_the_last_whole_group():
    fs = crashed((1,), (2, 3))
    fs.put(segments(fs)[0], log_of(fs)[:-5])
    before = fs.tree()
    with opened(fs, readonly=True) as reader:
        assert numbers(reader) == [1]
        with pytest.raises(StoreReadOnly):
            put(reader, 4)
        with pytest.raises(StoreReadOnly):
            reader.truncate_before(1)
        assert reader.stats().state == "open"
    assert reader.stats().state == "closed"
    assert fs.tree() == before


def test_reading_only_works_beside_a_writer():
    fs = SimFS()
    writer = opened(fs)
    put(writer, 1)
    reader = opened(fs, readonly=True)
    put(writer, 2)
    assert numbers(reader) == [1]
    assert numbers(opened(fs, readonly=True)) == [1, 2]


def test_there_is_nothing_to_read_where_nothing_was_made(tmp_path):
    with pytest.raises(NotFound):
        Journal.open(tmp_path / "nowhere", readonly=True)
    with pytest.raises(NotFound):
        Journal.open(tmp_path, readonly=True)
    assert list(tmp_path.iterdir()) == []


def test_a_network_file_system_is_refused_unless_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.journal.journal.filesystem_kind", lambda _: "nfs4")
    with pytest.raises(StoreFailed, match="nfs4"):
        Journal.open(tmp_path / "store", options=QUIET)
    Journal.open(tmp_path / "store", options=JournalOptions(network="allow")).close()


def test_closing_after_recovery_keeps_time_and_numbers_rising():
    fs = crashed((1,))
    journal = opened(fs)
    journal.close()
    found = list(opened(fs).read())
    assert [record.seq for record in found] == [1, 2]
    assert found[1].ts >= NOW
