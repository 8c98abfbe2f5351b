from __future__ import annotations

import errno
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from journal_kit import NOW, QUIET, checkpoint, numbers, opened, put, segments, snapshots

from holdfast.errors import InvalidValue, SnapshotDamaged, StoreError, StoreFull, WouldLoseData
from holdfast.failpoints import listening
from holdfast.journal import Journal, JournalOptions
from holdfast.testing import ManualClock, SimFS


def filled(count: int = 5, options: JournalOptions = QUIET) -> tuple[SimFS, Journal]:
    fs = SimFS()
    journal = opened(fs, options)
    for number in range(count):
        put(journal, number)
    return fs, journal


def seqs(fs: SimFS) -> list[int]:
    return [int(path[10:30]) for path in snapshots(fs)]


def test_the_first_checkpoint_removes_nothing():
    fs, journal = filled()
    assert checkpoint(journal).seq == 5
    assert seqs(fs) == [5]
    assert numbers(journal) == list(range(5))


def test_two_snapshots_stay_and_the_log_goes_back_to_the_older():
    fs, journal = filled()
    for number in range(5, 9):
        checkpoint(journal)
        put(journal, number)
    checkpoint(journal)
    assert seqs(fs) == [8, 9]
    assert journal.first_seq == 9
    assert journal.stats().segments == 2


def test_the_order_of_steps_is_the_contracts():
    fs, journal = filled()
    checkpoint(journal)
    put(journal, 5)
    checkpoint(journal)
    put(journal, 6)
    start = len(fs.calls)
    checkpoint(journal)
    steps = [(call.kind, call.dst or call.path) for call in fs.calls[start:] if call.kind not in {"stat", "listdir"}]
    final = f"snapshots/{7:020d}.json.zst"
    wanted = [
        ("create", f"log/{8:020d}-"),
        ("sync_dir", "log"),
        ("create", f"{final}.tmp"),
        ("sync", f"{final}.tmp"),
        ("open", f"{final}.tmp"),
        ("rename", final),
        ("sync_dir", "snapshots"),
        ("unlink", f"snapshots/{5:020d}.json.zst"),
        ("sync_dir", "snapshots"),
        ("unlink", "log/"),
        ("sync_dir", "log"),
    ]
    at = 0
    for kind, path in wanted:
        at = next(n for n in range(at, len(steps)) if steps[n][0] == kind and steps[n][1].startswith(path)) + 1
    first_removal = next(n for n, (kind, path) in enumerate(steps) if kind == "unlink" and path.startswith("log/"))
    assert steps.index(("sync_dir", "snapshots")) < first_removal


def test_a_checkpoint_with_nothing_new_writes_nothing():
    fs, journal = filled()
    checkpoint(journal)
    before = len([call for call in fs.calls if call.kind in {"write", "create"}])
    assert checkpoint(journal).done()
    assert len([call for call in fs.calls if call.kind in {"write", "create"}]) == before


def test_a_copy_that_claims_records_never_appended_is_refused():
    _, journal = filled()
    with pytest.raises(InvalidValue, match="applied_seq=99"):
        journal.checkpoint(lambda: SimpleNamespace(applied_seq=99, tables={}), wait=True)
    assert checkpoint(journal).seq == 5


def test_the_copy_is_taken_on_the_calling_thread_and_the_rest_is_not():
    _, journal = filled()
    where = []

    def copy():
        where.append(threading.get_ident())
        return SimpleNamespace(applied_seq=5, tables={"rows": rows()})

    def rows():
        where.append(threading.get_ident())
        yield {"id": 1}

    journal.checkpoint(copy).wait(30)
    assert where[0] == threading.get_ident()
    assert where[1] != threading.get_ident()


def test_two_overlapping_calls_run_once():
    fs, journal = filled()
    reached, go, copies = threading.Event(), threading.Event(), []

    def hold():
        reached.set()
        assert go.wait(30)

    def copy():
        copies.append(1)
        return SimpleNamespace(applied_seq=5, tables={})

    with listening("journal.checkpoint.copied", hold):
        first = journal.checkpoint(copy)
        assert reached.wait(30)
        second = journal.checkpoint(copy)
        assert not second.done()
        with pytest.raises(TimeoutError):
            second.wait(0)
        go.set()
        second.wait(30)
    assert first is second
    assert copies == [1]
    assert seqs(fs) == [5]


def test_a_dying_thread_surfaces_and_a_later_checkpoint_succeeds():
    fs, journal = filled()

    def die():
        raise MemoryError("no room for this thread")

    with listening("journal.checkpoint.written", die):
        failed = checkpoint(journal, wait=False)
        with pytest.raises(MemoryError):
            failed.wait(30)
    assert isinstance(failed.error, MemoryError)
    assert (seqs(fs), journal.stats().checkpoint_failures_total) == ([], 1)
    assert not [path for path in fs.tree() if path.endswith(".tmp")]
    checkpoint(journal)
    assert seqs(fs) == [5]
    assert journal.stats().checkpoint_failures_in_row == 0


def test_a_system_that_gives_no_thread_fails_the_checkpoint_and_a_later_one_succeeds(monkeypatch):
    fs, journal = filled()

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        failed = checkpoint(journal, wait=False)
    with pytest.raises(RuntimeError):
        failed.wait(0)
    assert (seqs(fs), journal.stats().checkpoint_failures_total) == ([], 1)
    checkpoint(journal, wait=False).wait(30)
    assert seqs(fs) == [5]
    journal.close()


def test_a_failing_copy_is_told_and_blocks_nothing():
    _, journal = filled()
    with pytest.raises(ZeroDivisionError):
        journal.checkpoint(lambda: 1 // 0)
    assert checkpoint(journal).seq == 5


def test_appends_go_on_while_a_checkpoint_runs_and_the_snapshot_holds_what_was_applied():
    fs, journal = filled()

    def more():
        put(journal, 50)

    with listening("journal.checkpoint.copied", more):
        made = checkpoint(journal, [{"id": n} for n in range(5)], wait=False)
        made.wait(30)
    assert made.seq == 5
    assert journal.durable_seq == 6
    again = opened(fs.reboot())
    assert again.load().seq == 5
    assert numbers(again, 5) == [50]


def test_the_sum_in_a_snapshot_is_right_though_the_log_went_on_in_the_same_batch():
    fs, journal = filled(0)
    for number in range(10):
        journal.append([{"type": "t:put", "n": number}], ts=NOW)
    journal.flush()
    journal.checkpoint(lambda: SimpleNamespace(applied_seq=4, tables={}), wait=True)
    again = opened(fs.reboot())
    assert again.load().seq == 4
    assert numbers(again, 4) == list(range(4, 10))


@pytest.mark.parametrize("kind", ["write", "create", "sync", "rename", "sync_dir", "read"])
def test_a_failing_step_ends_the_checkpoint_and_leaves_the_log_alone(kind):
    for nth in range(1, 9):
        fs, journal = filled()
        checkpoint(journal)
        put(journal, 5)
        log = {path: data for path, data in fs.tree().items() if path.startswith("log/") and data}
        fs.fail(kind, nth, errno.ENOSPC)
        try:
            checkpoint(journal)
        except StoreError:
            fs.heal()
        if journal.stats().state == "failed":  # it was the roll whose sync failed: final for the log
            continue
        kept = {path: data for path, data in fs.tree().items() if path.startswith("log/") and data}
        if journal.stats().checkpoint_failures_total:
            assert 5 in seqs(fs)
            assert log == kept or journal.stats().last_checkpoint_seq == 6
            assert not [path for path in fs.tree() if path.endswith(".tmp")]
        fs.heal()
        put(journal, 6)
        again = opened(fs.reboot())
        assert again.durable_seq == 7


def test_a_full_disk_fails_the_checkpoint_by_name_and_not_the_journal():
    fs, journal = filled()
    fs.fail("write", 1, errno.ENOSPC)
    with pytest.raises(StoreFull):
        checkpoint(journal)
    assert journal.stats().state == "open"
    put(journal, 6)


def test_what_reads_back_other_than_written_is_no_snapshot():
    fs, journal = filled()

    def rot():
        draft = next(path for path in fs.tree() if path.endswith(".tmp"))
        text = bytearray(fs.tree()[draft])
        text[-6] ^= 1
        fs.put(draft, bytes(text))

    with listening("journal.checkpoint.written", rot), pytest.raises(SnapshotDamaged):
        checkpoint(journal)
    assert seqs(fs) == []
    assert numbers(journal) == list(range(5))


# --- truncate_before --------------------------------------------------------------------------------------------------


def test_nothing_goes_that_two_verified_snapshots_do_not_cover():
    fs, journal = filled()
    with pytest.raises(WouldLoseData):
        journal.truncate_before(2)
    checkpoint(journal)
    with pytest.raises(WouldLoseData):
        journal.truncate_before(2)
    put(journal, 5)
    checkpoint(journal)
    before = fs.tree()
    with pytest.raises(WouldLoseData) as caught:
        journal.truncate_before(7)
    assert caught.value.facts["covered"] == 5
    assert fs.tree() == before
    assert journal.truncate_before(6) == 0


def test_a_previous_snapshot_that_cannot_be_read_covers_nothing():
    fs, journal = filled()
    checkpoint(journal)
    put(journal, 5)
    checkpoint(journal)
    journal.close()
    path = snapshots(fs)[0]
    fs.put(path, fs.tree()[path][:-3])
    journal = opened(fs)
    before = segments(fs)
    with pytest.raises(SnapshotDamaged):
        journal.truncate_before(6)
    assert segments(fs) == before


# --- when -------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_due_after_its_time_if_records_were_added():
    clock = ManualClock()
    journal = Journal.open("store", fs=SimFS(), clock=clock, options=QUIET)
    clock.advance(100)
    assert not journal.is_checkpoint_due()
    put(journal, 1)
    assert journal.is_checkpoint_due()
    checkpoint(journal)
    put(journal, 2)
    assert not journal.is_checkpoint_due()
    clock.advance(60)
    assert journal.is_checkpoint_due()


def test_a_checkpoint_is_due_when_the_log_has_grown():
    fs, journal = filled(0, replace(QUIET, checkpoint_after_bytes=500))
    put(journal, *range(3))
    assert not journal.is_checkpoint_due()
    put(journal, *range(10))
    assert journal.is_checkpoint_due()
    checkpoint(journal)
    assert not journal.is_checkpoint_due()
    put(journal, *range(10))
    again = opened(fs.reboot(), replace(QUIET, checkpoint_after_bytes=500))
    assert again.is_checkpoint_due(), "what was in the log after the snapshot counts over a reopening"


def test_after_a_failure_the_next_try_waits_for_its_time():
    clock = ManualClock()
    fs = SimFS()
    journal = Journal.open("store", fs=fs, clock=clock, options=replace(QUIET, checkpoint_after_bytes=10))
    put(journal, 1)
    assert journal.is_checkpoint_due()
    fs.fail("write", 1, errno.ENOSPC)
    with pytest.raises(StoreFull):
        checkpoint(journal)
    assert not journal.is_checkpoint_due()
    clock.advance(60)
    assert journal.is_checkpoint_due()


def test_closing_is_worth_a_checkpoint_after_a_thousand_records():
    _, journal = filled(1)
    assert not journal.is_checkpoint_due(closing=True)
    put(journal, *range(1000))
    assert journal.is_checkpoint_due(closing=True)


def test_closing_waits_for_a_running_checkpoint():
    fs, journal = filled()
    reached, go = threading.Event(), threading.Event()

    def hold():
        reached.set()
        assert go.wait(30)

    with listening("journal.checkpoint.copied", hold):
        checkpoint(journal, wait=False)
        assert reached.wait(30)
        closing = threading.Thread(target=journal.close)
        closing.start()
        go.set()
        closing.join(30)
    assert seqs(fs) == [5]
    assert opened(fs).load().seq == 5
