from __future__ import annotations

import pytest
from journal_kit import QUIET, checkpoint, crashed, events, kinds, log_of, numbers, opened, put, segments, snapshots

from holdfast.errors import JournalDamaged, LogMissing, NotFound, StoreLocked
from holdfast.journal import Journal, JournalOptions
from holdfast.testing import ManualClock, SimCrash, SimFS

TINY = JournalOptions(flush_after_s=None, segment_bytes=250)


def check(fs: SimFS):
    before = fs.tree()
    problems = Journal.check("store", fs=fs)
    assert fs.tree() == before, "checking reads only"
    return problems


def plan(fs: SimFS, **more):
    before = fs.tree()
    made = Journal.plan_repair("store", fs=fs, options=QUIET, **more)
    assert fs.tree() == before, "planning reads only"
    return made


def rolled() -> SimFS:
    """Twelve records, about three a segment."""
    fs = SimFS()
    journal = opened(fs, TINY)
    for number in range(1, 13):
        put(journal, number)
    return fs.reboot()


def spoil(fs: SimFS, number: int) -> str:
    """Change what record `number` says; gives its file."""
    path = next(path for path in segments(fs) if b'"n":%d}' % number in fs.tree()[path])
    fs.put(path, fs.tree()[path].replace(b'"n":%d}' % number, b'"m":%d}' % number))
    return path


# --- check ------------------------------------------------------------------------------------------------------------


def test_a_journal_that_is_well_has_no_problem():
    assert check(crashed((1, 2), (3,))) == []
    assert check(rolled()) == []


def test_there_is_nothing_to_check_where_there_is_no_journal(tmp_path):
    with pytest.raises(NotFound):
        Journal.check(tmp_path / "nowhere")
    with pytest.raises(NotFound):
        Journal.check("store", fs=SimFS())


def test_every_damaged_segment_and_snapshot_is_listed():
    fs = rolled()
    journal = opened(fs, TINY)
    checkpoint(journal)
    fs = fs.reboot()
    first, third = spoil(fs, 2), spoil(fs, 8)
    path = snapshots(fs)[0]
    fs.put(path, fs.tree()[path][:-2])
    found = check(fs)
    assert [(problem.code, problem.file) for problem in found] == [
        ("snapshot_damaged", path),
        ("journal_damaged", first),
        ("journal_damaged", third),
    ]
    assert (found[1].line, found[1].seq) == (2, 2)
    assert found[1].offset > 0
    assert "holdfast store repair" in found[1].remedy


def test_a_torn_tail_is_a_finding_that_the_next_opening_mends():
    fs = crashed((1,), (2,))
    fs.put(segments(fs)[0], log_of(fs)[:-9])
    assert [problem.code for problem in check(fs)] == ["torn_tail"]
    opened(fs)
    assert check(fs.reboot()) == []


def test_what_no_single_file_shows_is_found_too():
    fs = rolled()
    fs.unlink(segments(fs)[1])
    assert [problem.code for problem in check(fs)] == ["journal_damaged"]
    fs = crashed((1,))
    fs.unlink("journal.json")
    assert [problem.code for problem in check(fs)] == ["journal_damaged"]
    fs = crashed((1,))
    fs.unlink(segments(fs)[0])
    assert [problem.code for problem in check(fs)] == ["log_missing"]


def test_an_open_journal_verifies_itself_up_to_its_durable_end():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1)
    assert journal.verify() == []
    fs.put(segments(fs)[0], log_of(fs).replace(b'"n":1', b'"n":2'))
    assert [problem.code for problem in journal.verify()] == ["journal_damaged"]


# --- repair -----------------------------------------------------------------------------------------------------------


def test_a_journal_that_opens_needs_no_repair():
    made = plan(crashed((1,)))
    assert not made.is_needed
    assert made.lines == ["store: nothing to repair."]
    assert made.apply() == []


def test_the_plan_says_what_would_be_kept_and_lost():
    fs = rolled()
    spoil(fs, 5)
    made = plan(fs)
    assert made.is_needed
    assert made.end.seq == 5
    assert (made.first_lost, made.last_lost, made.count) == (5, 12, 8)
    assert made.types == {"t:put": 8}
    told = "\n".join(made.lines)
    assert "checksum" in told
    assert "up to 4 are kept" in told
    assert "5 to 12" in told
    assert "t:put (8)" in told


def test_a_repair_keeps_the_valid_prefix_and_the_original():
    fs = rolled()
    damaged = spoil(fs, 5)
    original = b"".join(fs.tree()[path] for path in segments(fs) if path >= damaged)
    assert "repaired" in plan(fs).apply(ManualClock())[0]
    assert fs.tree()["log.bak"] == original
    journal = opened(fs)
    assert numbers(journal) == [1, 2, 3, 4]
    seq, note = events(journal)[-1]
    assert seq == 5
    assert b'"journal:repaired"' in note
    assert damaged.encode() in note
    assert b"checksum" in note
    assert put(journal, 50).first_seq == 6
    assert check(fs) == []


def test_a_repair_cuts_at_the_start_of_the_damaged_group():
    fs = crashed((1,), (2, 3, 4), (5,))
    spoil(fs, 3)
    plan(fs).apply(ManualClock())
    assert numbers(opened(fs)) == [1]


def test_a_gap_is_repaired_by_keeping_what_lies_before_it():
    fs = rolled()
    gone = segments(fs)[1]
    first = int(gone[4:24])
    fs.unlink(gone)
    rest = b"".join(fs.tree()[path] for path in segments(fs)[1:])
    plan(fs).apply(ManualClock())
    assert fs.tree()["log.bak"] == rest
    assert numbers(opened(fs)) == list(range(1, first))


def test_a_repair_cut_short_anywhere_and_run_again_gives_the_same():
    broken = rolled()
    spoil(broken, 5)
    for nth in range(1, 100):
        fs = broken.image()
        made = plan(fs)
        fs.crash(nth)
        try:
            made.apply(ManualClock())
        except SimCrash:
            for after in (fs.reboot(), fs.power_loss("lose", nth, "mixed")):
                again = plan(after)
                again.apply(ManualClock())
                journal = opened(after)
                assert numbers(journal) == [1, 2, 3, 4]
                backups = b"".join(after.tree()[path] for path in after.tree() if path.startswith("log.bak"))
                assert all(b'"n":%d}' % number in backups for number in range(6, 13))
        else:
            assert nth > 8
            return
    raise AssertionError


def test_a_repair_takes_the_lock():
    fs = rolled()
    spoil(fs, 5)
    fs.lock("LOCK", b"{}")
    with pytest.raises(StoreLocked):
        plan(fs).apply(ManualClock())


def test_a_plan_that_no_longer_fits_is_not_applied():
    fs = rolled()
    spoil(fs, 7)
    made = plan(fs)
    spoil(fs, 3)
    with pytest.raises(JournalDamaged, match="changed since"):
        made.apply(ManualClock())


def test_at_most_three_backups_of_a_kind_are_kept_newest_first():
    fs = SimFS()
    cuts = []
    for number in range(5):
        journal = opened(fs)
        put(journal, number)
        fs = fs.reboot()
        cuts.append(log_of(fs)[log_of(fs).rindex(b'{"seq"') : -9 - number])
        fs.put(segments(fs)[0], log_of(fs)[: -9 - number])
        opened(fs)
        fs = fs.reboot()
    kept = sorted(path for path in fs.tree() if path.startswith("log.bak"))
    assert kept == ["log.bak", "log.bak.2", "log.bak.3"]
    assert [fs.tree()[path] for path in kept] == cuts[:1:-1]


# --- the snapshot alone -----------------------------------------------------------------------------------------------


def snapshotted() -> SimFS:
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1, 2, 3)
    checkpoint(journal, [{"n": 1}])
    put(journal, 4)
    return fs.reboot()


def test_a_lost_log_is_accepted_only_by_request():
    fs = snapshotted()
    for path in segments(fs):
        fs.unlink(path)
    with pytest.raises(LogMissing, match="--accept-snapshot"):
        plan(fs)


def test_after_a_lost_log_is_accepted_the_next_number_follows_the_snapshot_and_survives():
    fs = snapshotted()
    for path in segments(fs):
        fs.unlink(path)
    made = plan(fs, accept_snapshot=True)
    assert "begins with the snapshot at record 3" in "\n".join(made.lines)
    made.apply(ManualClock())
    journal = opened(fs)
    assert journal.load().seq == 3
    assert [seq for seq, _ in events(journal, 3)] == [4], "the note of the repair takes the next number"
    assert put(journal, 50).first_seq == 5
    fs = fs.power_loss("lose", names="lose")
    again = opened(fs)
    assert again.load().seq == 3
    assert numbers(again, 3) == [50]


def test_a_log_directory_that_is_gone_is_made_again():
    fs = snapshotted()
    for path in segments(fs):
        fs.unlink(path)
    fs.rmdir("log")
    plan(fs, accept_snapshot=True).apply(ManualClock())
    assert put(opened(fs), 50).first_seq == 5


def test_damage_before_the_snapshot_needs_the_snapshot_alone_and_keeps_the_bytes():
    fs = snapshotted()
    journal = opened(fs)
    put(journal, 5)
    fs = fs.reboot()
    whole = log_of(fs)
    spoil(fs, 4)
    plan(fs).apply(ManualClock())
    assert numbers(opened(fs.image()), 3) == []
    assert whole.count(b"\n") == 5
    assert "journal:repaired" in kinds(opened(fs))


def test_what_nothing_can_mend_is_told():
    fs = rolled()
    fs.unlink(segments(fs)[0])
    with pytest.raises(JournalDamaged, match="are missing"):
        plan(fs, accept_snapshot=True)
    with pytest.raises(NotFound):
        Journal.plan_repair("store", fs=SimFS())
