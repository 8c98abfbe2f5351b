from __future__ import annotations

import errno
import os
import threading
from datetime import timedelta

import msgspec
import pytest
from journal_kit import NOW, QUIET, events, kinds, numbers, opened, put

from holdfast.errors import StoreClosed, StoreFailed, StoreFull
from holdfast.failpoints import listening
from holdfast.journal import Journal, JournalOptions
from holdfast.journal.group_commit import _wake
from holdfast.testing import ManualClock, SimFS


def in_thread(work):
    """Run `work`; gives the thread and a list that gets what it returned or raised."""
    ended = []

    def run():
        try:
            ended.append(work())
        except BaseException as error:  # noqa: BLE001 - told to the test, whatever it was
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ended


def waiting(journal: Journal, count: int) -> None:
    """Return once `count` threads sleep in the line."""
    turn = threading.Event()
    while len(journal._commit._waiters) < count:
        turn.wait(0.001)


class Gate:
    """Stops a thread at a point until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.open.wait(30)


def test_append_numbers_without_gap_and_is_not_durable_before_a_flush():
    fs = SimFS()
    journal = opened(fs)
    first = journal.append([{"type": "t:put", "n": 1}, {"type": "t:put", "n": 2}], ts=NOW)
    second = journal.append([{"type": "t:put", "n": 3}], ts=NOW)
    assert [(t.first_seq, t.last_seq) for t in (first, second)] == [(1, 2), (3, 3)]
    assert not first.done()
    assert (journal.durable_seq, numbers(journal)) == (0, [])
    assert journal.flush() == 3
    assert first.done()
    assert first.error is None
    assert numbers(journal) == [1, 2, 3]


def test_a_batch_is_one_write_and_one_sync():
    fs = SimFS()
    journal = opened(fs)
    for number in range(250):
        journal.append([{"type": "t:put", "n": number}], ts=NOW)
    before = len(fs.calls)
    journal.flush()
    assert [call.kind for call in fs.calls[before:] if call.kind in {"write", "sync"}] == ["write", "sync"]
    assert journal.stats().batch_records.total == 250


def test_b_names_the_first_record_of_the_batch():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1, 2)
    put(journal, 3)
    written = b"".join(call.data for call in fs.calls if call.kind == "write" and call.path.startswith("log/"))
    assert [msgspec.json.decode(line)["b"] for line in written.splitlines()] == [1, 1, 3]


def test_time_is_raised_to_the_previous_record_when_a_clock_goes_back():
    journal = opened(SimFS())
    put(journal, 1, ts=NOW)
    put(journal, 2, ts=NOW - timedelta(hours=1))
    put(journal, 3, ts=NOW + timedelta(seconds=1))
    assert [record.ts for record in journal.read()] == [NOW, NOW, NOW + timedelta(seconds=1)]


def test_time_does_not_go_back_over_a_reopening_either():
    fs = SimFS()
    put(opened(fs), 1, ts=NOW)
    journal = opened(fs.reboot())
    put(journal, 2, ts=NOW - timedelta(days=1))
    assert [record.ts for record in journal.read()] == [NOW, NOW]


def test_an_encoding_error_reaches_its_caller_and_uses_no_number():
    journal = opened(SimFS())
    with pytest.raises(TypeError):
        journal.append([{"type": "t:put", "n": object()}], ts=NOW)
    assert put(journal, 1).first_seq == 1


def test_those_who_come_during_a_sync_share_the_next():
    fs = SimFS()
    journal = opened(fs)
    gate = Gate()
    with listening("journal.written", gate):
        leader, led = in_thread(lambda: put(journal, 0))
        assert gate.reached.wait(30)
        followers = [in_thread(lambda n=n: put(journal, n)) for n in range(1, 9)]
        waiting(journal, 8)
        gate.open.set()
        for thread, _ in (*followers, (leader, led)):
            thread.join(30)
    assert all(ended and not isinstance(ended[0], BaseException) for _, ended in (*followers, (leader, led)))
    assert journal.stats().batch_records.counts[:2] == [1, 0]
    assert journal.stats().batch_records.count == 2
    assert sorted(numbers(journal)) == list(range(9))


def test_a_timeout_means_unknown_and_the_record_may_still_become_durable():
    journal = opened(SimFS())
    gate = Gate()
    with listening("journal.written", gate):
        leader, _ = in_thread(lambda: put(journal, 0))
        assert gate.reached.wait(30)
        ticket = journal.append([{"type": "t:put", "n": 1}], ts=NOW)
        with pytest.raises(TimeoutError, match="unknown"):
            ticket.wait(0)
        gate.open.set()
        leader.join(30)
    ticket.wait()
    assert numbers(journal) == [0, 1]


def test_a_heir_that_gave_up_waiting_strands_nobody():
    journal = opened(SimFS())
    gate = Gate()
    with listening("journal.written", gate):
        leader, _ = in_thread(lambda: put(journal, 0))
        assert gate.reached.wait(30)
        impatient, gave_up = in_thread(lambda: journal.append([{"type": "t:put", "n": 1}], ts=NOW).wait(0))
        impatient.join(30)
        patient, served = in_thread(lambda: put(journal, 2))
        waiting(journal, 1)
        gate.open.set()
        leader.join(30)
        patient.join(30)
    assert isinstance(gave_up[0], TimeoutError)
    assert not isinstance(served[0], BaseException)
    assert numbers(journal) == [0, 1, 2]


@pytest.mark.parametrize("point", ["journal.leading", "journal.written", "journal.synced"])
def test_an_interrupted_leader_strands_no_follower_and_leaves_no_partial_line(point):
    fs = SimFS()
    journal = opened(fs)
    put(journal, 0)
    gate = Gate()
    interrupted = []

    def interrupt():
        if not interrupted:
            interrupted.append(True)
            gate()
            raise KeyboardInterrupt

    with listening(point, interrupt):
        leader, led = in_thread(lambda: put(journal, 1))
        assert gate.reached.wait(30)
        follower, followed = in_thread(lambda: put(journal, 2))
        waiting(journal, 1)
        gate.open.set()
        leader.join(30)
        follower.join(30)
    assert isinstance(led[0], KeyboardInterrupt)
    assert not isinstance(followed[0], BaseException)
    assert numbers(journal) == [0, 1, 2]
    assert numbers(opened(fs.reboot())) == [0, 1, 2]


def test_callbacks_run_in_order_once_durable_and_a_bad_one_takes_nothing_from_the_others():
    journal = opened(SimFS())
    gate = Gate()
    heard, last = [], threading.Event()
    with listening("journal.leading", gate):
        tickets = [journal.append([{"type": "t:put", "n": n}], ts=NOW) for n in range(3)]
        for ticket in reversed(tickets):
            ticket.on_done(lambda t: (heard.append((t.last_seq, t.error, t.done())), 1 // (t.last_seq - 2)))
        tickets[2].on_done(lambda _: last.set())
        assert gate.reached.wait(30)
        gate.open.set()
        assert last.wait(30)
    assert heard == [(1, None, True), (2, None, True), (3, None, True)]
    tickets[0].on_done(lambda t: heard.append(t.first_seq))
    assert heard[-1] == 1


def test_records_nobody_waits_for_are_flushed_by_themselves_when_they_grow_old():
    clock = ManualClock()
    journal = Journal.open("store", fs=SimFS(), clock=clock, options=JournalOptions())
    synced = threading.Event()
    with listening("journal.synced", synced.set):
        journal.append([{"type": "t:put", "n": 1}], ts=NOW)
        clock.advance(0.011)
        assert synced.wait(30)
    journal.close()


def test_more_than_a_hundred_records_are_flushed_without_anybody_waiting():
    clock = ManualClock()  # stands still, so age cannot be the reason
    journal = Journal.open("store", fs=SimFS(), clock=clock, options=JournalOptions())
    synced = threading.Event()
    with listening("journal.synced", synced.set):
        for number in range(101):
            journal.append([{"type": "t:put", "n": number}], ts=NOW)
        assert synced.wait(30)
    journal.close()


def test_above_the_limit_of_the_buffer_append_waits_for_a_flush():
    options = JournalOptions(flush_after_s=None, buffer_bytes=1000)
    journal = opened(SimFS(), options)
    for number in range(50):
        journal.append([{"type": "t:put", "n": number}], ts=NOW)
    assert journal._commit._buffered_bytes <= 1200
    assert journal.durable_seq > 30
    journal.close()


def test_relaxed_durability_acknowledges_at_once_and_says_so():
    fs = SimFS()
    journal = opened(fs, JournalOptions(flush_after_s=None, durability="relaxed"))
    ticket = journal.append([{"type": "t:put", "n": 1}], ts=NOW)
    ticket.wait()
    assert ticket.done()
    heard = []
    ticket.on_done(heard.append)
    assert heard == [ticket]
    assert journal.durable_seq == 0
    assert journal.stats().durability == "relaxed"
    assert journal.flush() == 1


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_any_failing_sync_fails_the_journal_for_good_and_is_not_repeated(error):
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1)
    fs.fail("sync", 1, error)
    ticket = journal.append([{"type": "t:put", "n": 2}], ts=NOW)
    with pytest.raises(StoreFailed):
        ticket.wait()
    syncs = sum(call.kind == "sync" for call in fs.calls)
    for call in (
        ticket.wait,
        lambda: put(journal, 3),
        journal.flush,
        lambda: list(journal.read()),
        journal.load,
        lambda: journal.truncate_before(1),
        lambda: journal.checkpoint(lambda: None),
    ):
        with pytest.raises(StoreFailed):
            call()
    assert ticket.done()
    assert isinstance(ticket.error, StoreFailed)
    assert journal.stats().state == "failed"
    assert journal.stats().flush_errors_total == 1
    journal.close()
    assert sum(call.kind == "sync" for call in fs.calls) == syncs
    assert numbers(opened(fs.reboot())) == [1]


def test_everybody_in_the_line_learns_of_a_failed_sync():
    fs = SimFS()
    journal = opened(fs)
    gate = Gate()
    with listening("journal.written", gate):
        fs.fail("sync")
        threads = [in_thread(lambda: put(journal, 0))]
        assert gate.reached.wait(30)
        threads += [in_thread(lambda n=n: put(journal, n)) for n in range(1, 5)]
        waiting(journal, 4)
        gate.open.set()
        for thread, _ in threads:
            thread.join(30)
    assert [type(ended[0]) for _, ended in threads] == [StoreFailed] * 5


def test_a_write_failing_midway_leaves_no_partial_line_and_tells_every_caller():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1)
    fs.shorten("write", 1)
    fs.fail("write", 2, errno.EIO)
    ticket = journal.append([{"type": "t:put", "n": 2}], ts=NOW)
    with pytest.raises(StoreFailed):
        ticket.wait()
    assert numbers(opened(fs.reboot())) == [1]
    assert fs.tree()[journal._segments.last.path].count(b"\n") == 1


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_waited_out_and_the_whole_batch_is_retried(error):
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1)
    fs.shorten("write", 1)
    fs.fail("write", 2, error)
    assert put(journal, 2, 3).last_seq == 3
    assert journal.stats().state == "open"
    assert numbers(opened(fs.reboot())) == [1, 2, 3]


def test_while_the_disk_is_full_appends_are_refused_and_reading_goes_on():
    fs = SimFS()
    journal = opened(fs, JournalOptions(flush_after_s=None, full_retry_s=600))
    put(journal, 1)
    fs.fail("write", 1, errno.ENOSPC, times=None)
    ticket = journal.append([{"type": "t:put", "n": 2}], ts=NOW)
    with pytest.raises(TimeoutError):
        ticket.wait(0.01)
    assert journal.stats().state == "full"
    with pytest.raises(StoreFull):
        journal.append([{"type": "t:put", "n": 3}], ts=NOW)
    assert numbers(journal) == [1]
    journal._commit.stop()


def test_a_disk_that_stays_full_fails_the_journal_and_tells_all_who_wait():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1)
    fs.fail("write", 1, errno.ENOSPC, times=None)
    ticket = journal.append([{"type": "t:put", "n": 2}], ts=NOW)
    with pytest.raises(StoreFull, match="stayed full"):
        ticket.wait()
    with pytest.raises(StoreFull):
        journal.flush()
    journal.close()
    assert numbers(opened(fs.reboot())) == [1]


@pytest.mark.parametrize("what", ["log", "directory"])
def test_a_log_or_directory_replaced_beneath_us_is_noticed_before_any_acknowledgement(tmp_path, what):
    journal = Journal.open(tmp_path / "store", options=QUIET)
    put(journal, 1)
    if what == "log":
        segment = next((tmp_path / "store" / "log").iterdir())
        segment.rename(tmp_path / "away")
    else:
        (tmp_path / "store").rename(tmp_path / "away")
    with pytest.raises(StoreFailed, match="removed or replaced"):
        put(journal, 2)
    journal.close()


# --- the end ----------------------------------------------------------------------------------------------------------


def test_close_flushes_says_so_and_is_idempotent():
    fs = SimFS()
    journal = opened(fs)
    journal.append([{"type": "t:put", "n": 1}], ts=NOW)
    journal.close()
    journal.close()
    assert journal.stats().state == "closed"
    for call in (lambda: put(journal, 2), journal.flush, journal.read, journal.load):
        with pytest.raises(StoreClosed):
            call()
    assert kinds(opened(fs)) == ["t:put", "journal:closed"]


def test_closing_a_journal_that_nothing_was_added_to_adds_nothing():
    fs = SimFS()
    opened(fs).close()
    for _ in range(3):
        opened(fs).close()
    assert kinds(opened(fs)) == ["journal:closed"]


def test_a_ticket_acknowledged_before_closing_stays_acknowledged():
    journal = opened(SimFS())
    ticket = put(journal, 1)
    journal.close()
    ticket.wait()
    assert ticket.error is None


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_after_a_fork_the_child_cannot_write_and_the_parent_can(tmp_path):
    journal = Journal.open(tmp_path / "store")
    put(journal, 1)
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            journal.append([{"type": "t:put", "n": 2}], ts=NOW)
        except StoreClosed:
            journal.close()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    put(journal, 3)
    journal.close()
    with Journal.open(tmp_path / "store") as again:
        assert numbers(again) == [1, 3]
        assert [seq for seq, _ in events(again)] == [1, 2, 3]


def test_a_leader_that_lingers_takes_company_along():
    journal = opened(SimFS(), JournalOptions(flush_after_s=None, linger_s=0.001))
    put(journal, 1)
    assert numbers(journal) == [1]
    journal.close()


def test_a_batch_that_can_be_neither_written_nor_removed_fails_the_journal():
    fs = SimFS()
    journal = opened(fs)
    put(journal, 1)
    fs.shorten("write", 1)
    fs.fail("write", 2, errno.ENOSPC)
    fs.fail("truncate", 1, errno.EIO)
    with pytest.raises(StoreFailed, match="neither written nor removed"):
        put(journal, 2)
    assert numbers(opened(fs.reboot())) == [1]


def test_a_flushing_thread_that_dies_takes_nobody_with_it_in_silence():
    clock = ManualClock()
    journal = Journal.open("store", fs=SimFS(), clock=clock, options=JournalOptions())
    told = threading.Event()

    def die():
        raise SystemExit

    with listening("journal.leading", die):
        ticket = journal.append([{"type": "t:put", "n": 1}], ts=NOW)
        ticket.on_done(lambda _: told.set())
        assert told.wait(30)
    assert isinstance(ticket.error, StoreFailed)
    with pytest.raises(StoreFailed):
        put(journal, 2)
    journal.close()


def test_a_forked_journal_forgets_what_other_threads_were_doing():
    journal = opened(SimFS())
    journal._commit._lock.acquire()
    journal._leave_to_parent()
    with pytest.raises(StoreClosed):
        put(journal, 1)
    journal.close()


def test_an_interrupt_while_waking_others_still_wakes_them_all():
    class Sleeper:
        def __init__(self):
            self.calls = 0

        def wake(self):
            self.calls += 1
            if self.calls == 1 and self is sleepers[1]:
                raise KeyboardInterrupt

    sleepers = [Sleeper() for _ in range(3)]
    with pytest.raises(KeyboardInterrupt):
        _wake(sleepers)
    assert all(sleeper.calls for sleeper in sleepers)


@pytest.fixture
def no_threads(monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("holdfast.journal.group_commit.Thread.start", start)


def test_without_a_thread_to_flush_appends_wait_for_whoever_flushes(no_threads):
    journal = opened(SimFS(), JournalOptions())
    ticket = journal.append([{"type": "t:put", "n": 1}], ts=NOW)
    heard = []
    ticket.on_done(heard.append)
    assert heard == [ticket], "the caller itself flushed"
    journal.append([{"type": "t:put", "n": 2}], ts=NOW)
    journal.close()
    assert journal.durable_seq == 3


def test_a_full_disk_without_a_thread_to_wait_for_space_is_told_at_once(no_threads):
    fs = SimFS()
    journal = opened(fs)
    fs.fail("write", 1, errno.ENOSPC, times=None)
    with pytest.raises(StoreFull):
        put(journal, 1)
    heard = []
    with pytest.raises(StoreFull):
        journal.append([{"type": "t:put", "n": 2}], ts=NOW).on_done(heard.append)


def test_an_append_interrupted_halfway_leaves_numbers_and_lines_in_step():
    clock = ManualClock()
    fs = SimFS()
    journal = Journal.open("store", fs=fs, clock=clock, options=QUIET)
    put(journal, 1)
    whole = journal._commit._monotonic

    def interrupt():
        journal._commit._monotonic = whole
        raise KeyboardInterrupt

    journal._commit._monotonic = interrupt
    with pytest.raises(KeyboardInterrupt):
        journal.append([{"type": "t:put", "n": 2}], ts=NOW)
    assert put(journal, 3).first_seq == 2
    assert numbers(opened(fs.reboot())) == [1, 3]


def test_an_interrupted_batch_is_written_again_before_what_came_after_it():
    fs = SimFS()
    journal = opened(fs)
    interrupted = []

    def interrupt():
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt

    first = journal.append([{"type": "t:put", "n": 1}, {"type": "t:put", "n": 2}], ts=NOW)
    with listening("journal.written", interrupt), pytest.raises(KeyboardInterrupt):
        first.wait()
    put(journal, 3)
    first.wait()
    written = [msgspec.json.decode(line) for line in fs.tree()[journal._segments.last.path].splitlines()]
    assert [(line["seq"], line["b"]) for line in written] == [(1, 1), (2, 1), (3, 3)]
    assert numbers(opened(fs.reboot())) == [1, 2, 3]
