"""The fake below SQLite must list every call, fail exactly where it is told to, and lose what a real disk may lose."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from support import child_env, sqliteshim
from support.simvfs import CHANGES, SimVfs, available
from support.sqliteshim import NAME
from support.vfsdisk import VfsDisk, write_image

is_available, reason = available()
pytestmark = pytest.mark.skipif(not is_available, reason=reason)

CUTS = [("lose", "lose"), ("lose", "keep"), ("keep", "lose"), ("keep", "keep"), ("blocks", "mixed"), ("blocks", "keep")]


def connect(folder, journal="WAL", synchronous="FULL"):
    db = sqlite3.connect(folder / "x.db", isolation_level=None, check_same_thread=False)
    assert db.execute(f"PRAGMA journal_mode = {journal}").fetchone()[0] == journal.lower()
    db.execute(f"PRAGMA synchronous = {synchronous}")
    return db


def made(folder, journal="WAL", synchronous="FULL"):
    """A connection to a new table."""
    db = connect(folder, journal, synchronous)
    db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, pad TEXT)")
    return db


def add(db, n, pad=10):
    db.execute("INSERT INTO t VALUES (?, ?)", (n, "x" * pad))


def numbers(folder):
    with closing(sqlite3.connect(folder / "x.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        try:
            return [n for (n,) in db.execute("SELECT n FROM t ORDER BY n")]
        except sqlite3.OperationalError:
            return []


@pytest.fixture
def vfs(tmp_path):
    (tmp_path / "store").mkdir()
    with SimVfs(tmp_path / "store") as vfs:
        yield vfs


# --- the list ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", ["WAL", "DELETE", "TRUNCATE", "PERSIST"])
def test_the_list_of_calls_tells_every_byte_of_every_file(vfs, journal):
    db = made(vfs.folder, journal)
    for n in range(20):
        add(db, n, 3000)
        if n == 10:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.execute("DELETE FROM t WHERE n < 15")
    db.execute("VACUUM")
    real = {path.name: path.read_bytes() for path in vfs.folder.iterdir() if not path.name.endswith("-shm")}
    assert VfsDisk(vfs.calls).seen() == real
    db.close()
    assert VfsDisk(vfs.calls).seen().keys() == {path.name for path in vfs.folder.iterdir()}


def test_a_commit_in_wal_mode_ends_with_a_sync_of_the_log(vfs):
    db = made(vfs.folder)
    before = len(vfs.calls)
    add(db, 1)
    calls = [(call.kind, call.file) for call in vfs.calls[before:] if call.kind in CHANGES]
    assert calls[-1] == ("sync", "x.db-wal")
    assert {kind for kind, _ in calls[:-1]} == {"write"}
    db.close()


def test_what_was_there_before_is_known_from_the_first_opening(tmp_path):
    with closing(made(tmp_path)) as db:
        add(db, 1)
    before = (tmp_path / "x.db").read_bytes()
    with SimVfs(tmp_path) as vfs, closing(connect(tmp_path)):
        assert VfsDisk(vfs.calls).cut("lose", names="lose")["x.db"] == before


def test_several_connections_and_threads_pass_through_it_at_once(vfs):
    made(vfs.folder).close()

    def work(base):
        with closing(connect(vfs.folder)) as db:
            db.execute("PRAGMA busy_timeout = 60000")
            for n in range(base, base + 25):
                db.execute("BEGIN IMMEDIATE")
                add(db, n)
                db.execute("COMMIT")
                db.execute("SELECT count(*) FROM t").fetchone()

    threads = [threading.Thread(target=work, args=(1000 * at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(numbers(vfs.folder)) == 100
    assert VfsDisk(vfs.calls).seen()["x.db"] == (vfs.folder / "x.db").read_bytes()


def test_only_its_folder_is_claimed_and_only_while_it_is_entered(tmp_path):
    (tmp_path / "other").mkdir()
    with SimVfs(tmp_path) as vfs:
        vfs.die()
        with closing(made(tmp_path / "other")) as db:
            add(db, 1)
        with pytest.raises(sqlite3.OperationalError):
            made(tmp_path)
    assert numbers(tmp_path / "other") == [1]
    with closing(made(tmp_path)) as db:
        add(db, 1)
    assert vfs.calls == []


def test_it_can_also_be_asked_for_by_name(vfs):
    with closing(sqlite3.connect(f"file:{vfs.folder}/y.db?vfs={NAME}", uri=True)) as db:
        db.execute("CREATE TABLE t (n)")
    assert any(call.file == "y.db" for call in vfs.calls)


def test_an_exception_inside_becomes_an_io_error_and_is_raised_at_the_end(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise ValueError("ours")

    def story():
        with SimVfs(tmp_path) as vfs, closing(made(tmp_path)) as db:
            monkeypatch.setattr(vfs, "sync", broken)
            with pytest.raises(sqlite3.OperationalError):
                add(db, 1)
            monkeypatch.undo()

    with pytest.raises(ValueError, match="ours"):
        story()


@pytest.mark.parametrize(
    "problem", [AttributeError("sqlite3_vfs_find"), OSError("no such file"), ImportError("_sqlite3")]
)
def test_where_sqlite_cannot_be_reached_the_reason_is_told(monkeypatch, problem):
    def hidden():
        raise problem

    monkeypatch.setattr(sqliteshim, "shim", hidden)
    usable, why = available()
    assert not usable
    assert str(problem) in why


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("write", None),
        ("write", sqlite3.SQLITE_FULL),
        ("sync", None),
        ("sync", sqlite3.SQLITE_IOERR_DIR_FSYNC),
    ],
)
def test_the_call_that_was_named_fails_with_the_code_that_was_named(vfs, kind, code):
    expected = {"write": sqlite3.SQLITE_IOERR_WRITE, "sync": sqlite3.SQLITE_IOERR_FSYNC}[kind] if code is None else code
    db = made(vfs.folder)
    add(db, 1)
    vfs.fail(kind, 1, code)
    with pytest.raises(sqlite3.OperationalError) as caught:
        add(db, 2)
    assert caught.value.sqlite_errorcode == expected
    assert vfs.injected == 1
    assert (vfs.calls[-1].kind, vfs.calls[-1].failed) == (kind, True)
    add(db, 3)
    db.close()
    assert numbers(vfs.folder) == [1, 3]


def test_a_fault_for_ever_stays_until_it_is_healed(vfs):
    db = made(vfs.folder)
    vfs.fail("write", 1, sqlite3.SQLITE_FULL, times=None)
    for n in range(3):
        with pytest.raises(sqlite3.OperationalError, match="full"):
            add(db, n)
    assert vfs.injected >= 3
    vfs.heal()
    add(db, 9)
    db.close()
    assert numbers(vfs.folder) == [9]


def test_a_fault_can_be_bound_to_one_file(vfs):
    db = made(vfs.folder)
    vfs.fail("write", 1, file="x.db")
    add(db, 1)
    assert vfs.injected == 0
    with pytest.raises(sqlite3.OperationalError):
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert vfs.injected == 1
    db.close()


def test_a_shortened_write_leaves_its_first_half_in_the_file(vfs):
    db = made(vfs.folder)
    before = (vfs.folder / "x.db-wal").stat().st_size
    vfs.shorten(2)  # the second write of a frame is its page
    with pytest.raises(sqlite3.OperationalError, match="full"):
        add(db, 1)
    assert (vfs.folder / "x.db-wal").stat().st_size == before + 24 + 2048
    assert len(vfs.calls[-1].data) == 2048
    db.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_after_a_death_no_call_changes_anything(vfs, when):
    db = made(vfs.folder)
    add(db, 1)
    vfs.crash(1, "sync", when)
    with pytest.raises(sqlite3.OperationalError):
        add(db, 2)
    calls, seen = len(vfs.calls), (vfs.folder / "x.db-wal").read_bytes()
    assert (vfs.calls[-1].kind == "sync") == (when == "after")
    for statement in ("INSERT INTO t VALUES (3, '')", "PRAGMA wal_checkpoint(TRUNCATE)", "VACUUM"):
        with pytest.raises(sqlite3.OperationalError):
            db.execute(statement).fetchall()
    db.close()
    assert len(vfs.calls) == calls
    assert (vfs.folder / "x.db-wal").read_bytes() == seen
    vfs.revive()
    assert numbers(vfs.folder) == [1, 2]  # the process died, the machine did not


# --- power cuts -------------------------------------------------------------------------------------------------------


def survived(tmp_path, disk, acked, cuts=CUTS, seeds=3):
    """Cut the power in every way; give how many cuts lost something acknowledged."""
    lost, seen = 0, set()
    for mode, names in cuts:
        for seed in range(seeds if mode == "blocks" else 1):
            files = disk.cut(mode, seed, names)
            if "x.db" not in files or (key := tuple(sorted(files.items()))) in seen:
                continue
            seen.add(key)
            folder = write_image(files, tmp_path / f"cut-{sum(1 for _ in tmp_path.iterdir())}")
            found = numbers(folder)
            assert found[: len(acked)] == acked[: len(found)], "not a prefix"
            lost += found[: len(acked)] != acked
    return lost


def lives(vfs, journal, synchronous, count=6):
    """Insert and acknowledge; give for each call how many were acknowledged before it."""
    db = made(vfs.folder, journal, synchronous)
    acked, marks = [], []
    for n in range(count):
        add(db, n, 2000)
        acked.append(n)
        marks.append(len(vfs.calls))
        if n == 3 and journal == "WAL":
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    return marks


def test_wal_with_full_loses_nothing_acknowledged_at_any_call(vfs, tmp_path):
    marks = lives(vfs, "WAL", "FULL")
    disk, cuts = VfsDisk(), 0
    for at, call in enumerate(vfs.calls):
        if call.kind in CHANGES and at > marks[0]:
            acked = [n for n, mark in enumerate(marks) if mark <= at]
            assert survived(tmp_path, disk, acked) == 0, f"cut before call {at}, {call.kind} {call.file}"
            cuts += 1
        disk.apply(call)
    assert cuts > 40


def test_delete_with_full_loses_the_last_acknowledged_commit(vfs, tmp_path):
    """The removal of the journal is the commit, and nobody syncs the directory after it."""
    marks = lives(vfs, "DELETE", "FULL")
    disk = VfsDisk(vfs.calls[: marks[3]])
    assert survived(tmp_path, disk, [0, 1, 2, 3], [("lose", "lose")]) == 1
    assert survived(tmp_path, disk, [0, 1, 2], [("lose", "lose")]) == 0
    assert survived(tmp_path, disk, [0, 1, 2, 3], [("lose", "keep")]) == 0


def test_delete_with_extra_syncs_the_directory_and_loses_nothing(vfs, tmp_path):
    marks = lives(vfs, "DELETE", "EXTRA")
    assert survived(tmp_path, VfsDisk(vfs.calls[: marks[3]]), [0, 1, 2, 3]) == 0


def test_wal_with_normal_loses_what_came_after_the_checkpoint(vfs, tmp_path):
    marks = lives(vfs, "WAL", "NORMAL")
    disk = VfsDisk(vfs.calls[: marks[5]])
    assert survived(tmp_path, disk, [0, 1, 2, 3, 4, 5], [("lose", "lose")]) == 1
    assert survived(tmp_path, disk, [0, 1, 2, 3], [("lose", "lose")]) == 0


def test_what_a_failed_sync_left_is_gone_although_a_later_one_succeeds(vfs, tmp_path):
    db = made(vfs.folder)
    vfs.fail("sync")
    with pytest.raises(sqlite3.OperationalError):
        add(db, 1)
    disk = VfsDisk(vfs.calls)
    frame = len(disk.seen()["x.db-wal"])
    vfs.die()
    db.close()
    disk.apply(next(call for call in vfs.calls if call.kind == "sync" and not call.failed)._replace(file="x.db-wal"))
    left = disk.cut("keep", names="keep")["x.db-wal"]
    assert len(left) == frame
    assert not any(left[-4096:])


def test_the_same_seed_leaves_the_same_disk(vfs):
    marks = lives(vfs, "WAL", "NORMAL", 3)
    middle = VfsDisk(vfs.calls[: marks[-1]])
    assert middle.cut("blocks", 7) == middle.cut("blocks", 7)
    assert len({tuple(sorted(middle.cut("blocks", seed).items())) for seed in range(20)}) > 5


def test_a_connection_left_open_at_the_end_of_the_program_does_no_harm(tmp_path):
    program = (
        "import sqlite3, sys\n"
        "from support.simvfs import SimVfs\n"
        "SimVfs(sys.argv[1]).__enter__()\n"
        "sys.left_open = sqlite3.connect(sys.argv[1] + '/x.db')\n"
        "sys.left_open.execute('PRAGMA journal_mode=WAL')\n"
        "sys.left_open.execute('CREATE TABLE t (a)')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=child_env(), capture_output=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
