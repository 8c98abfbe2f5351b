"""Each call SQLite makes on its files fails, falls short, or is the last before a death or a power cut.

What was acknowledged is there, whole and once; what was under way is there or not, and stays so; the rest is not. Only
typed errors come out of the store, and after a failed commit it acknowledges nothing. The short form takes a sample of
the calls that differs from fault to fault; the long one takes them all.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from itertools import count
from pathlib import Path

import pytest
from sqlitestory import DATABASE, Oracle, run

from holdfast.errors import StoreError, StoreFailed, StoreFull
from holdfast.stores.sqlite import SqliteStore, connections, store
from support.simvfs import CHANGES, Call, SimVfs, available
from support.vfsdisk import VfsDisk, write_image

is_available, reason = available()
SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
pytestmark = [pytest.mark.skipif(not is_available, reason=reason), pytest.mark.timeout(7200 if SOAK else 300)]

#: What becomes of bytes and of names that were not synced.
CUTS = [
    ("lose", "lose"),
    ("lose", "keep"),
    ("keep", "keep"),
    ("keep", "lose"),
    *[("blocks", "mixed")] * (6 if SOAK else 1),
    *[("blocks", "keep")] * (6 if SOAK else 1),
    *[("junk", "mixed")] * (3 if SOAK else 1),
]
#: Kind of call, code, times, how much of a write is taken nevertheless; and, for the short form, every how many calls.
FAULTS = [
    ("write", sqlite3.SQLITE_IOERR_WRITE, 1, None, 61),
    ("write", sqlite3.SQLITE_IOERR_WRITE, None, None, 97),
    ("write", sqlite3.SQLITE_FULL, 1, None, 67),
    ("write", sqlite3.SQLITE_FULL, None, None, 101),
    ("write", sqlite3.SQLITE_FULL, 1, 1, 71),
    ("write", sqlite3.SQLITE_IOERR_WRITE, 1, 2048, 79),
    ("write", sqlite3.SQLITE_IOERR_WRITE, 1, 4096, 89),  # all of a page is written, and the answer is an error
    ("sync", sqlite3.SQLITE_IOERR_FSYNC, 1, None, 3),
    ("sync", sqlite3.SQLITE_IOERR_FSYNC, None, None, 5),
    ("sync", sqlite3.SQLITE_IOERR_DIR_FSYNC, 1, None, 5),
    ("truncate", sqlite3.SQLITE_IOERR_TRUNCATE, 1, None, 1),
    ("delete", sqlite3.SQLITE_IOERR_DELETE, 1, None, 1),
    ("create", sqlite3.SQLITE_CANTOPEN, 1, None, 1),
    ("open", sqlite3.SQLITE_CANTOPEN, 1, None, 2),
    ("read", sqlite3.SQLITE_IOERR_READ, 1, None, 37),
    ("read", sqlite3.SQLITE_IOERR_READ, None, None, 61),
    ("size", sqlite3.SQLITE_IOERR_FSTAT, 1, None, 7),
    ("access", sqlite3.SQLITE_IOERR_ACCESS, 1, None, 3),
]

injected = {"faults": 0, "deaths": 0, "cuts": 0}


@pytest.fixture(scope="module")
def oracle():
    return Oracle()


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A store with nothing in it, to start every life from."""
    folder = tmp_path_factory.mktemp("empty")
    SqliteStore.open(folder / DATABASE).close()
    return folder


@pytest.fixture(autouse=True, scope="module")
def small_log():
    """Let the log be copied into the database within some commits, as it happens every few thousand pages in life."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "COPY_AT", 40 * 4120)
        yield


@pytest.fixture
def fresh(empty, tmp_path):
    """Gives folders with a new store, one after the other; the last one's is removed."""

    def make():
        shutil.rmtree(tmp_path / "life", ignore_errors=True)
        return shutil.copytree(empty, tmp_path / "life")

    return make


def lived(folder, oracle):
    """A whole life without faults; gives its calls and the book."""
    with SimVfs(folder) as vfs:
        book = run(vfs, oracle.steps)
    assert book.errors == []
    assert len(book.yes) == len(oracle.steps)
    return vfs.calls, book


@pytest.fixture(scope="module")
def whole(empty, oracle, tmp_path_factory):
    """A whole life without faults, once for all who look at its calls and its book."""
    return lived(shutil.copytree(empty, tmp_path_factory.mktemp("whole") / "life"), oracle)


def sample(total: int, every: int, offset: int) -> range:
    """Which calls of a kind a fault is tried at: all, or some."""
    return range(1, total + 1) if SOAK else range(1 + offset % every, total + 1, every)


# --- calls that fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code", "times", "keep", "every"), FAULTS, ids=[f"{f[0]}-{f[1]}-{f[2]}-{f[3]}" for f in FAULTS]
)
def test_a_failing_call_is_told_by_a_typed_error_and_loses_nothing(
    oracle, whole, fresh, kind, code, times, keep, every
):
    calls, _ = whole
    total = sum(call.kind == kind for call in calls)
    for nth in sample(total, every, offset=code):
        folder = fresh()
        with SimVfs(folder) as vfs:
            if keep is None:
                vfs.fail(kind, nth, code, times=times)
            else:
                vfs.shorten(nth, code, keep=keep)
            # Half of the processes die at once, half close what failed.
            book = run(vfs, oracle.steps, closes=bool(nth // every % 2))
        assert vfs.injected, "the life made other calls this time"
        injected["faults"] += vfs.injected
        try:
            low, high = book.bounds()
            # The machine goes on; or the power goes, now that the store has been closed.
            left = VfsDisk(vfs.calls)
            cut = left.cut("lose", names="lose")
            oracle.examine(folder, low, high)
            if cut != left.seen():  # else a power cut leaves what was examined just now
                image = write_image(cut, folder.parent / f"cut-{nth}")
                oracle.examine(image, low, high)
                shutil.rmtree(image)
            injected["cuts"] += 1
        except BaseException as error:
            error.add_note(f"{kind} {nth} of {total} failed, the store said {book.errors}")
            raise


def test_a_failed_sync_is_final(oracle, whole, fresh):
    calls, book = whole
    first = sum(call.kind == "sync" for call in calls[: book.sent[3]]) + 1
    folder = fresh()
    with SimVfs(folder) as vfs:
        vfs.fail("sync", first)
        book = run(vfs, oracle.steps)
    assert [type(error) for error in book.errors] == [StoreFailed]
    assert sum(call.kind == "sync" for call in vfs.calls) == first, "a failed sync was repeated"
    assert max(book.yes) == 2


def test_a_full_disk_is_told_as_such_and_when_space_returns_the_store_goes_on(oracle, whole, fresh):
    calls, book = whole
    write = sum(call.kind == "write" for call in calls[: book.sent[3]]) + 2
    folder = fresh()
    with SimVfs(folder) as vfs:
        vfs.fail("write", write, sqlite3.SQLITE_FULL)
        book = run(vfs, oracle.steps)
    assert [type(error) for error in book.errors] == [StoreFull]
    assert len(book.yes) == len(oracle.steps)
    assert oracle.examine(folder, *book.bounds()) == len(oracle.steps)


def test_a_store_that_cannot_be_made_leaves_nothing_and_can_be_made_later(tmp_path):
    kinds = ("open", "create", "write", "sync", "read", "size", "delete", "truncate", "access")
    often = {"write": 29, "read": 7, "size": 5, "access": 5}  # every so many of those that are many
    for kind in kinds:
        for nth in count(1, 1 if SOAK else often.get(kind, 1)):
            folder = tmp_path / f"{kind}-{nth}"
            folder.mkdir()
            with SimVfs(folder) as vfs:
                vfs.fail(kind, nth)
                try:
                    SqliteStore.open(folder / DATABASE).close()
                except StoreError:
                    assert vfs.injected
            if not vfs.injected:
                break
            injected["faults"] += 1
            assert {path.name for path in folder.iterdir()} <= {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"}
            store = SqliteStore.open(folder / DATABASE)
            assert store.check() == []
            store.close()
        assert nth > 1 or kind == "truncate"


# --- deaths and power cuts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_dies_at_any_call_loses_nothing_acknowledged(oracle, whole, fresh, when):
    calls, _ = whole
    total = sum(call.kind in CHANGES for call in calls)
    for nth in sample(total, 83, offset=len(when)):
        folder = fresh()
        with SimVfs(folder) as vfs:
            vfs.crash(nth, when=when)
            book = run(vfs, oracle.steps)
        assert vfs.injected == 1
        injected["deaths"] += 1
        try:
            oracle.examine(folder, *book.bounds(), to_the_end=True)
        except BaseException as error:
            error.add_note(f"death {when} change {nth} of {total}")
            raise


def judge_cuts(oracle, calls, book, into, every=1):
    """Cut the power before each call that changes the disk; gives how many different disks were judged."""
    disk, judged = VfsDisk(), set()
    places = 0
    for at, call in enumerate(calls):
        if call.kind in CHANGES:
            places += 1
            low, high = book.bounds(at)
            for way, (mode, names) in enumerate(CUTS):
                # What is lost whole changes only with a sync; the rest is different before every call.
                if mode != "lose" and (places + 5 * way) % every:
                    continue
                files = disk.cut(mode, 1000 * at + way, names)
                key = (hash(tuple(sorted(files.items()))), low, high)
                if key in judged:
                    continue
                judged.add(key)
                image = write_image(files, into / "image")
                try:
                    oracle.examine(image, low, high, to_the_end=not len(judged) % 50)
                except BaseException as error:
                    error.add_note(f"cut {mode}/{names} before call {at}, {call.kind} {call.file}")
                    raise
                finally:
                    shutil.rmtree(image)
        disk.apply(call)
    return len(judged)


def test_a_power_cut_before_any_call_loses_nothing_acknowledged(oracle, whole, tmp_path):
    calls, book = whole
    cuts = judge_cuts(oracle, calls, book, tmp_path, every=1 if SOAK else 61)
    injected["cuts"] += cuts
    assert cuts >= 120


@pytest.fixture
def rewrites_listed(monkeypatch):
    """Lists what the store itself writes into a claimed folder, beside SQLite: gives a function that says for which."""
    pwrite, fsync = os.pwrite, os.fsync
    watched: list[SimVfs] = []

    def note(fd, kind, data=b"", at=0):
        place = Path(f"/proc/self/fd/{fd}").readlink()
        for vfs in watched:
            # The file of sessions says who lives, not what is; it is none of SQLite's.
            if place.parent == vfs.folder and "-sessions" not in place.name:
                vfs.calls.append(Call(kind, place.name, data, at))

    def listed_pwrite(fd, data, at):
        written = pwrite(fd, data, at)
        note(fd, "write", bytes(data[:written]), at)
        return written

    def listed_fsync(fd):
        fsync(fd)
        note(fd, "sync")

    monkeypatch.setattr(os, "pwrite", listed_pwrite)
    monkeypatch.setattr(os, "fsync", listed_fsync)
    return watched.append


def test_recovery_can_be_interrupted_anywhere_and_ends_the_same(oracle, whole, rewrites_listed, tmp_path):
    """A cut, then an opening and a closing that another cut ends: as if they had not been interrupted."""
    calls, book = whole
    changes = [at for at, call in enumerate(calls) if call.kind in CHANGES]
    for at in changes[5 :: 10 if SOAK else 150]:
        torn = write_image(VfsDisk(calls[:at]).cut("blocks", at), tmp_path / "torn")
        with SimVfs(torn) as vfs:
            rewrites_listed(vfs)
            found = oracle.open_and_find(torn, *book.bounds(at))
            oracle.close_found()
        steps = [n for n, call in enumerate(vfs.calls) if call.kind in CHANGES]
        opened = next((n for n in steps if vfs.calls[n] == Call("sync", f"{DATABASE}-wal")), 0)
        for n in steps[at % 9 :: 1 if SOAK else 9]:
            image = write_image(VfsDisk(vfs.calls[:n]).cut("blocks", n), tmp_path / "image")
            # Until the opening is done, what was under way may still be there or not.
            low, high = (found, found) if n > opened else book.bounds(at)
            try:
                oracle.examine(image, low, high)
            except BaseException as error:
                error.add_note(f"cut before call {at}, then before call {n} of the opening")
                raise
            finally:
                shutil.rmtree(image)
            injected["cuts"] += 1
        shutil.rmtree(torn)


def find_then_cut(oracle, folder, rewrites_listed, fault, nth):
    """Die at a sync, or after it failed; let the next process find and answer what it can read; then cut the power."""
    with SimVfs(folder) as vfs:
        if fault == "death":
            vfs.crash(nth, "sync")
        else:
            vfs.fail("sync", nth)
        book = run(vfs, oracle.steps)
        injected["deaths"] += 1
        vfs.revive()
        rewrites_listed(vfs)
        found = oracle.open_and_find(folder, *book.bounds())
        vfs.die()
        oracle.abandon()
    for seed, (mode, names) in enumerate([("lose", "lose"), ("blocks", "mixed")]):
        image = write_image(VfsDisk(vfs.calls).cut(mode, seed, names), folder.parent / "image")
        try:
            oracle.examine(image, found, found)
        except BaseException as error:
            error.add_note(f"{fault} at sync {nth}, then a cut {mode}/{names}")
            raise
        finally:
            shutil.rmtree(image)
        injected["cuts"] += 1


@pytest.mark.parametrize("fault", ["death", "failure"])
def test_what_the_next_process_found_and_answered_stays_through_a_power_cut(
    oracle, whole, fresh, rewrites_listed, fault
):
    """It was written and not synced, or the sync failed: it can be read, and yet it need not be on the disk."""
    calls, _ = whole
    total = sum(call.kind == "sync" for call in calls)
    for nth in sample(total, 4, offset=len(fault)):
        find_then_cut(oracle, fresh(), rewrites_listed, fault, nth)


@pytest.mark.parametrize(("fault", "instead"), [("death", "nothing"), ("failure", "nothing"), ("failure", "sync")])
def test_the_oracle_sees_what_is_lost_unless_the_log_is_written_again(
    oracle, fresh, rewrites_listed, monkeypatch, fault, instead
):
    def only_sync(db, path, patience_s):
        with Path(f"{path}-wal").open("rb") as log:
            os.fsync(log.fileno())

    monkeypatch.setattr(store, "write_log_again", only_sync if instead == "sync" else lambda *_: None)
    with pytest.raises(AssertionError, match="acknowledged, and lost"):  # noqa: PT012 - at one of the first syncs
        for nth in range(3, 12):
            find_then_cut(oracle, fresh(), rewrites_listed, fault, nth)


def fail_a_sync_of_the_database(oracle, folder, nth):
    """A sync fails while the log is copied, the power goes after any later answer; tells if there was such a sync."""
    with SimVfs(folder) as vfs:
        vfs.fail("sync", nth, file=DATABASE)
        book = run(vfs, oracle.steps)
    if not vfs.injected:
        return False
    injected["faults"] += 1
    failed = next(at for at, call in enumerate(vfs.calls) if call.failed)
    for mark in {*book.yes.values(), len(vfs.calls)}:
        if mark > failed:
            image = write_image(VfsDisk(vfs.calls[:mark]).cut("lose", names="lose"), folder.parent / "image")
            try:
                oracle.examine(image, *book.bounds(mark))
            finally:
                shutil.rmtree(image)
            injected["cuts"] += 1
    return True


def test_a_sync_that_fails_while_the_log_is_copied_loses_nothing(oracle, fresh):
    """Part of it had been copied before, while a reader was in the way; that part is lost with the sync, too."""
    calls, book = lived(fresh(), oracle)
    lingers, goes_on = (
        next(at for at, step in enumerate(oracle.steps) if step.does == does) for does in ("linger", "go on")
    )
    assert ("write", DATABASE) in [call[:2] for call in calls[book.sent[lingers] : book.sent[goes_on]]]
    nth = next(nth for nth in count(1) if not fail_a_sync_of_the_database(oracle, fresh(), nth))
    assert nth > 3


def test_the_oracle_sees_what_is_lost_when_sqlite_copies_the_log_by_itself(oracle, fresh, monkeypatch):
    monkeypatch.setitem(connections._SETTINGS, "wal_autocheckpoint", ("40", 40))
    monkeypatch.setattr(store, "COPY_AT", 1 << 40)
    with pytest.raises((AssertionError, StoreError)):
        all(fail_a_sync_of_the_database(oracle, fresh(), nth) for nth in count(1))


@pytest.mark.parametrize("setting", [("OFF", 0), ("NORMAL", 1)])
def test_the_oracle_sees_what_is_lost_without_full_syncs(oracle, fresh, tmp_path, monkeypatch, setting):
    monkeypatch.setitem(connections._SETTINGS, "synchronous", setting)
    calls, book = lived(fresh(), oracle)
    with pytest.raises((AssertionError, StoreError), match=r"acknowledged, and lost|neither|malformed"):
        judge_cuts(oracle, calls, book, tmp_path, every=23 if SOAK else 997)


# --- every call of a few commits --------------------------------------------------------------------------------------

#: The first steps of the life: few commits, so that every one of their calls can meet a fault.
FEW = 4 if SOAK else 2
#: Kind of call, code, how much of a write is taken; and, for the short form, which of every how many calls: between
#: them the three faults of writes meet every write. The long form tries each at all.
AT_EVERY_CALL = [
    ("write", sqlite3.SQLITE_IOERR_WRITE, None, 1, 3),
    ("write", sqlite3.SQLITE_FULL, None, 2, 3),
    ("write", sqlite3.SQLITE_IOERR_WRITE, 1, 3, 3),
    ("sync", sqlite3.SQLITE_IOERR_FSYNC, None, 1, 1),
    ("sync", sqlite3.SQLITE_FULL, None, 1, 1),
]


def few_commits(folder, steps, arm=None):
    """Take the first steps, with a fault armed or without; gives the calls and the book."""
    with SimVfs(folder) as vfs:
        if arm is not None:
            arm(vfs)
        book = run(vfs, steps)
    return vfs, book


@pytest.mark.parametrize(
    ("kind", "code", "keep", "first", "every"),
    AT_EVERY_CALL,
    ids=[f"{f[0]}-{f[1]}-{f[2]}" for f in AT_EVERY_CALL],
)
def test_a_few_commits_survive_a_failure_at_every_one_of_their_calls(oracle, fresh, kind, code, keep, first, every):
    steps = oracle.steps[:FEW]
    for nth in count(1) if SOAK else count(first, every):
        folder = fresh()

        def arm(vfs, nth=nth):
            if keep is None:
                vfs.fail(kind, nth, code)
            else:
                vfs.shorten(nth, code, keep=keep)

        vfs, book = few_commits(folder, steps, arm)
        if not vfs.injected:
            break
        injected["faults"] += 1
        oracle.examine(folder, *book.bounds())
    assert nth > every, f"these commits make no call of kind {kind}"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_few_commits_survive_a_death_at_every_one_of_their_calls(oracle, fresh, when):
    """After a call is before the next: by every second call, both ways leave all that a death can leave."""
    steps = oracle.steps[:FEW]
    for nth in count(1, 1 if SOAK else 2):
        folder = fresh()
        vfs, book = few_commits(folder, steps, lambda vfs, nth=nth: vfs.crash(nth, when=when))
        if not vfs.injected:
            break
        injected["deaths"] += 1
        oracle.examine(folder, *book.bounds())
    assert nth > 10


def test_a_few_commits_survive_a_power_cut_before_every_one_of_their_calls(oracle, fresh, tmp_path):
    vfs, book = few_commits(fresh(), oracle.steps[:FEW])
    assert book.errors == []
    # Before every call in the long form all ways, in the short one two or so of those that keep something.
    injected["cuts"] += judge_cuts(oracle, vfs.calls, book, tmp_path, every=1 if SOAK else 3)


def test_the_number_of_injected_faults():
    """Last in this file: what all of the above have injected."""
    print(f"\nsqlite: {injected['faults']} failed calls, {injected['deaths']} deaths, {injected['cuts']} power cuts")
    assert injected["faults"] >= 150
    assert injected["deaths"] >= 15
    assert injected["cuts"] >= 250
