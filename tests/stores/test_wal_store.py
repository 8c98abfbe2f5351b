"""`wal:` beyond what every store must do: its failures, its snapshots, and what it refuses to open."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.errors import (
    BadEvent,
    InvalidValue,
    LogMissing,
    SnapshotDamaged,
    StoreClosed,
    StoreDamaged,
    StoreFailed,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    UnknownEvent,
)
from holdfast.failpoints import listening
from holdfast.journal import Journal, JournalOptions
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob
from holdfast.model.jobs import Job
from holdfast.model.records import TABLES
from holdfast.stores import check_and_repair
from holdfast.stores.opening import open_store
from holdfast.stores.wal import WalStore
from holdfast.testing import ManualClock, SimFS

TINY = JournalOptions(segment_bytes=4000, flush_after_s=None, full_retry_s=0.0, full_retries=2)


def opened(fs, **more):
    return WalStore.open("store", fs=fs, clock=ManualClock(), options=TINY, **more)


def put(engine, *job_ids):
    jobs = tuple(NewJob(job_id=job_id, job_type="work", params=msgspec.Raw(b"{}")) for job_id in job_ids)
    return engine.submit(Enqueue(jobs=jobs))


def tables_of(store):
    with store.read() as view:
        return {name: list(view.all(kind)) for name, kind in TABLES.items()}


def test_after_every_command_the_state_in_memory_is_the_state_replayed_from_disk():
    fs = SimFS()
    engine = Engine(opened(fs), clock=ManualClock())
    steps = [
        lambda: put(engine, "a", "b", "c"),
        lambda: engine.submit(Lease(worker_id="w", n=2)),
        lambda: engine.submit(Complete(job_id="a", token=1, result=msgspec.Raw(b'{"x":[1,2]}'))),
        engine.store.snapshot,
        lambda: put(engine, "d"),
    ]
    for step in steps:
        step()
        replayed = opened(fs, readonly=True)
        assert tables_of(replayed) == tables_of(engine.store)
        replayed.close()


def with_snapshots(count):
    fs = SimFS()
    engine = Engine(opened(fs), clock=ManualClock())
    for at in range(count):
        put(engine, *(f"{at}-{n}" for n in range(5)))
        engine.store.snapshot()
    put(engine, "last")
    wanted = tables_of(engine.store)
    engine.close()
    return fs, wanted


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_damaged_newest_snapshot_costs_nothing_but_time(count):
    fs, wanted = with_snapshots(count)
    disk = fs.image().reboot()
    disk.put(f"snapshots/{max(disk.listdir('snapshots'))}", b"not a snapshot")
    for _ in range(2):
        store = opened(disk)
        assert tables_of(store) == wanted
        store.close()


def test_two_damaged_snapshots_are_both_named_and_nothing_starts_empty():
    fs, _ = with_snapshots(2)
    disk = fs.image().reboot()
    names = disk.listdir("snapshots")
    for name in names:
        disk.put(f"snapshots/{name}", b"not a snapshot")
    with pytest.raises(SnapshotDamaged) as refused:
        opened(disk)
    assert all(name in str(refused.value) for name in names)


def test_a_snapshot_taken_under_load_holds_exactly_what_was_durable(tmp_path):
    store = WalStore.open(tmp_path / "s")
    engine = Engine(store)
    stop = threading.Event()

    def produce(name):
        for n in range(10_000):
            if stop.is_set():
                return
            put(engine, f"{name}-{n}")

    threads = [threading.Thread(target=produce, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for _ in range(4):
        store.snapshot()
    stop.set()
    for thread in threads:
        thread.join()
    wanted = tables_of(store)
    engine.close()
    again = WalStore.open(tmp_path / "s")
    assert tables_of(again) == wanted
    assert not again.check()
    again.close()


def test_a_failed_sync_acknowledges_nothing_and_shows_nothing():
    fs = SimFS()
    engine = Engine(opened(fs), clock=ManualClock())
    put(engine, "kept")
    before = tables_of(engine.store)
    fs.fail("sync")
    with pytest.raises(StoreFailed):
        put(engine, "maybe")
    assert tables_of(engine.store) == before
    with pytest.raises(StoreFailed, match="takes no more writes"):
        put(engine, "later")
    engine.close()
    store = opened(fs.power_loss("lose"))
    assert [job.job_id for job in tables_of(store)["jobs"]] == ["kept"]


def test_a_full_disk_is_told_and_reading_goes_on():
    fs = SimFS()
    engine = Engine(opened(fs), clock=ManualClock())
    put(engine, "kept")
    fs.fail("write", 1, errno.ENOSPC, times=None)
    with pytest.raises(StoreFull):
        put(engine, "too much")
    assert [job.job_id for job in tables_of(engine.store)["jobs"]] == ["kept"]


#: A disk that is full is tried again at once, for as long as it takes.
PATIENT = JournalOptions(segment_bytes=4000, flush_after_s=None, full_retry_s=0.0, full_retries=1 << 60)


@pytest.fixture
def set_aside():
    """An engine whose disk is full, in the middle of a commit that waits for room; and what becomes of that."""
    fs, aside, told = SimFS(), threading.Event(), []
    store = WalStore.open("store", fs=fs, clock=ManualClock(), options=PATIENT)
    engine = Engine(store, clock=ManualClock())
    put(engine, "kept")
    engine.submit(Lease(worker_id="w"))
    fs.fail("write", 1, errno.ENOSPC, times=None)

    def wait_for_room():
        commands = [
            Complete(job_id="kept", token=1, result=msgspec.Raw(b"1")),
            Enqueue(jobs=(NewJob(job_id="more", job_type="work", params=msgspec.Raw(b"{}")),)),
        ]
        try:
            told.append(engine.submit_many(commands))
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            told.append(error)

    waiting = threading.Thread(target=wait_for_room)
    with listening("wal.set_aside", aside.set):
        waiting.start()
        aside.wait()
    yield fs, engine, waiting, told
    fs.heal()
    waiting.join()
    engine.close()


def test_while_a_commit_waits_for_room_readers_see_what_is_durable_and_nobody_else_writes(set_aside):
    fs, engine, waiting, told = set_aside
    (job,) = tables_of(engine.store)["jobs"]
    assert job.job_id == "kept"
    assert job.status == "RUNNING"
    assert tables_of(engine.store) == tables_of(opened(fs, readonly=True))
    with pytest.raises(StoreFull, match="nothing was stored"), engine.store.write():
        pass
    with pytest.raises(StoreFull):
        engine.store.snapshot()
    assert not told
    fs.heal()
    waiting.join()
    assert len(told[0]) == 2
    assert {job.job_id: job.status for job in tables_of(engine.store)["jobs"]} == {
        "kept": "COMPLETED",
        "more": "QUEUED",
    }
    put(engine, "next")
    assert tables_of(engine.store) == tables_of(opened(fs, readonly=True))
    with engine.read() as view:
        assert [job.job_id for job in view.queued("", "default")] == ["more", "next"]


def test_a_commit_for_which_no_room_was_made_leaves_what_was_there(set_aside):
    _fs, engine, waiting, told = set_aside
    before = tables_of(engine.store)
    engine.store.journal._commit._options = TINY  # its patience is over
    waiting.join()
    assert isinstance(told[0], StoreFull)
    assert tables_of(engine.store) == before
    with pytest.raises(StoreFailed, match="takes no more writes"):
        put(engine, "later")


def test_a_store_that_is_closed_while_a_commit_waits_for_room_waits_with_it(set_aside):
    fs, engine, waiting, told = set_aside
    closing = threading.Thread(target=engine.store.close)
    closing.start()
    fs.heal()
    waiting.join()
    closing.join()
    assert len(told[0]) == 2
    assert [job.job_id for job in tables_of(opened(fs.reboot()))["jobs"]] == ["kept", "more"]


def test_an_interruption_while_a_commit_waits_for_room_is_told_once_it_is_settled():
    fs = SimFS()
    store = WalStore.open("store", fs=fs, clock=ManualClock(), options=PATIENT)
    engine = Engine(store, clock=ManualClock())
    put(engine, "kept")
    fs.fail("write", 1, errno.ENOSPC, times=None)

    def interrupt():
        fs.heal()
        raise KeyboardInterrupt

    with listening("wal.set_aside", interrupt), pytest.raises(KeyboardInterrupt):
        put(engine, "more")
    put(engine, "next")
    assert [job.job_id for job in tables_of(store)["jobs"]] == ["kept", "more", "next"]
    assert tables_of(store) == tables_of(opened(fs, readonly=True))
    engine.close()


def test_a_blob_that_a_commit_names_while_it_waits_for_room_is_not_taken_for_forgotten(set_aside):
    _fs, engine, _waiting, _told = set_aside
    forgotten = []
    engine.store._each_unnamed(["0" * 64], forgotten.append)
    assert not forgotten


def test_an_interrupted_commit_is_settled_before_the_interruption_goes_on():
    fs = SimFS()
    engine = Engine(opened(fs), clock=ManualClock())

    def interrupt():
        raise KeyboardInterrupt

    with listening("engine.decided", interrupt), pytest.raises(KeyboardInterrupt):
        put(engine, "undone")
    assert tables_of(engine.store)["jobs"] == []
    put(engine, "next")
    assert tables_of(engine.store) == tables_of(opened(fs, readonly=True))


def test_only_one_process_has_it(tmp_path):
    store = WalStore.open(tmp_path / "s")
    program = (
        "import sys; from holdfast.stores.wal import WalStore; from holdfast.errors import StoreLocked\n"
        "try: WalStore.open(sys.argv[1])\n"
        "except StoreLocked as error: print(error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "s")], capture_output=True, text=True, check=True
    )
    assert "is in use by pid" in told.stdout
    store.close()


def test_a_second_opening_in_the_same_process_is_refused_too(tmp_path):
    store = WalStore.open(tmp_path / "s")
    with pytest.raises(StoreLocked):
        WalStore.open(tmp_path / "s")
    store.close()


def test_a_reader_beside_the_writer_changes_nothing(tmp_path):
    store = WalStore.open(tmp_path / "s")
    engine = Engine(store)
    put(engine, "a")
    reader = WalStore.open(tmp_path / "s", readonly=True)
    assert [job.job_id for job in tables_of(reader)["jobs"]] == ["a"]
    with pytest.raises(StoreReadOnly):
        put(Engine(reader), "b")
    reader.close()
    put(engine, "c")
    engine.close()


def journal_with(fs, *events):
    journal = Journal.open("store", fs=fs, clock=ManualClock(), options=TINY)
    journal.append(list(events), ts=ManualClock().now()).wait()
    journal.close()


def test_an_event_of_unknown_type_refuses_the_start_and_is_named():
    fs = SimFS()
    journal_with(fs, {"type": "job:teleported", "job_id": "a"})
    with pytest.raises(UnknownEvent, match="event 1 has the type 'job:teleported'"):
        opened(fs)


@pytest.mark.parametrize(
    "event",
    [{"type": "job:completed", "job_id": "a"}, {"type": "job:moved", "job_id": "a", "position": "first"}],
    ids=["missing field", "mistyped field"],
)
def test_an_event_that_lacks_a_field_refuses_the_start_and_is_named(event):
    fs = SimFS()
    journal_with(fs, event)
    with pytest.raises(BadEvent, match="event 1"):
        opened(fs)


def test_events_of_outsiders_are_kept_and_ignored():
    fs = SimFS()
    journal_with(fs, {"type": "x:note", "text": "hello"})
    store = opened(fs)
    assert tables_of(store)["jobs"] == []
    put(Engine(store, clock=ManualClock()), "a")
    assert [job.job_id for job in tables_of(store)["jobs"]] == ["a"]


def test_events_that_contradict_each_other_refuse_the_start():
    fs = SimFS()
    journal_with(fs, {"type": "job:moved", "job_id": "nobody", "position": 1})
    with pytest.raises(StoreDamaged, match="there is no job nobody"):
        opened(fs)


def test_the_feed_says_when_it_no_longer_reaches_back():
    fs = SimFS()
    engine = Engine(opened(fs), clock=ManualClock())
    for at in range(12):
        put(engine, f"{at}-a", f"{at}-b", f"{at}-c")
        if at % 3 == 2:
            engine.store.snapshot()
    first = engine.store.journal.first_seq
    assert first > 1
    with pytest.raises(InvalidValue):
        engine.store.feed(0)
    assert [entry.seq for entry in engine.store.feed(first - 1)] == list(range(first, 37))


def test_a_feed_overtaken_by_compaction_says_so_instead_of_calling_it_damage():
    engine = Engine(opened(SimFS()), clock=ManualClock())
    for at in range(12):
        put(engine, *(f"{at}-{number}" for number in range(20)))
        if at == 5:
            feed = engine.store.feed(0)
            assert next(feed).seq == 1
        if at > 5:
            engine.store.snapshot()
    with pytest.raises(InvalidValue, match="only in the snapshot"):
        list(feed)


def test_a_record_beyond_the_logs_limit_is_refused_alone(monkeypatch):
    monkeypatch.setattr("holdfast.stores.wal.MAX_EVENT", 400)
    engine = Engine(opened(SimFS()), clock=ManualClock())
    big = NewJob(job_id="big", job_type="work", params=msgspec.Raw(b'{"pad":"%s"}' % (b"x" * 500)))
    small = NewJob(job_id="small", job_type="work", params=msgspec.Raw(b"{}"))
    refused, taken = engine.submit_many([Enqueue(jobs=(big,)), Enqueue(jobs=(small,))])
    assert refused.code == "record_too_large"
    assert taken.jobs[0].created
    assert [job.job_id for job in tables_of(engine.store)["jobs"]] == ["small"]


def test_a_closed_store_refuses_and_lets_waiters_go():
    store = opened(SimFS())
    store.close()
    store.close()
    with pytest.raises(StoreClosed), store.read():
        pass
    assert store.wait(0, timeout=None)


def test_a_snapshot_that_fails_at_closing_does_not_keep_the_lock():
    fs, many = SimFS(), JournalOptions(flush_after_s=None, checkpoint_at_close_records=1)
    store = WalStore.open("store", fs=fs, clock=ManualClock(), options=many)
    put(Engine(store, clock=ManualClock()), "a", "b")
    fs.fail("rename", 1, errno.EIO)
    store.close()
    assert store.journal.stats().checkpoint_failures_total == 1
    again = WalStore.open("store", fs=fs, clock=ManualClock(), options=many)
    assert [job.job_id for job in tables_of(again)["jobs"]] == ["a", "b"]
    again.close()


def test_a_commit_stands_though_the_store_was_closed_before_its_snapshot_was_begun():
    fs = SimFS()
    store = WalStore.open("store", fs=fs, clock=ManualClock(), options=JournalOptions(checkpoint_after_s=0.0))
    engine = Engine(store, clock=ManualClock())
    checkpoint = store._checkpoint

    def closed_meanwhile():
        store.close()
        checkpoint()

    store._checkpoint = closed_meanwhile
    assert put(engine, "kept").jobs[0].created
    assert [job.job_id for job in tables_of(opened(fs, readonly=True))["jobs"]] == ["kept"]


def test_a_log_whose_newest_segment_was_lost_is_refused_until_the_loss_is_accepted(tmp_path):
    url = f"wal:{tmp_path}"
    engine = Engine(open_store(url))
    put(engine, "a")
    engine.store.snapshot()
    put(engine, "b")
    engine.close()
    newest = max((tmp_path / "log").iterdir())
    newest.unlink()
    with pytest.raises(LogMissing, match="is gone"):
        open_store(url)
    assert [finding.code for finding in check_and_repair.check(url)] == ["log_missing"]
    check_and_repair.plan_repair(url, accept_snapshot=True).apply()
    again = open_store(url)
    with again.read() as view:
        assert [job.job_id for job in view.all(Job)] == ["a"]
    again.close()
