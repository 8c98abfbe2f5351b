"""The file of a `sqlite:` store: made whole, recognised, never overwritten, migrated once."""

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from holdfast.errors import (
    InvalidValue,
    MigrationFailed,
    NoPath,
    StoreBusy,
    StoreDamaged,
    StoreFailed,
    StoreReadOnly,
    TooNew,
)
from holdfast.failpoints import listening
from holdfast.stores.sqlite import SqliteStore, connections, schema, store
from holdfast.stores.sqlite.schema import migrate

NOW = schema.VERSION
CHILD = str(Path(__file__).with_name("sqlite_child.py"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def made(path: Path) -> Path:
    SqliteStore.open(path).close()
    return path


def raw(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


def edit(path: Path, *statements: str) -> None:
    db = raw(path)
    for statement in statements:
        db.execute(statement)
    db.close()


def refused(path: Path, kind: type[Exception], words: str, **options: bool) -> None:
    """Demand that opening is refused, naming the file, and that no byte of it changed."""
    before = path.read_bytes()
    with pytest.raises(kind, match=words) as caught:
        SqliteStore.open(path, **options)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


# --- making -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_every_file_is_for_the_owner_only_whatever_the_umask(path, umask):
    before = os.umask(umask)
    try:
        opened = SqliteStore.open(path)
        opened.wait(0, 0)
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    opened.close()
    wake = modes.pop("jobs.db-wake")
    assert wake & 0o077 == 0
    assert modes == {"jobs.db": 0o600, "jobs.db-wal": 0o600, "jobs.db-shm": 0o600}


@pytest.mark.parametrize("name", ["file/jobs.db", "n" * 250])
def test_a_path_where_no_file_can_be_is_told_in_our_words(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailed, match="cannot be made"):
        SqliteStore.open(tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
@pytest.mark.parametrize("readonly", [False, True])
def test_what_is_no_file_is_refused_as_such(path, make, readonly):
    make(path)
    with pytest.raises(StoreFailed, match="is no file") as caught:
        SqliteStore.open(path, readonly=readonly)
    assert str(path) in str(caught.value)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_nothing_but_the_database_is_left_after_making_it(made):
    assert [file.name for file in made.parent.iterdir()] == ["jobs.db"]


def test_a_new_database_carries_our_mark_and_version(made):
    db = raw(made)
    assert db.execute("PRAGMA application_id").fetchone() == (schema.APPLICATION_ID,)
    assert db.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


def test_what_was_not_finished_is_not_there(path):
    with listening("sqlite.built", _break), pytest.raises(Broken):
        SqliteStore.open(path)
    assert list(path.parent.iterdir()) == []


def test_of_two_that_make_the_store_at_once_one_wins_and_both_use_it(path):
    others: list[SqliteStore] = []
    mine = _open_while_built(path, lambda: others.append(SqliteStore.open(path)))
    with mine.read() as one, others[0].read() as two:
        assert one._meta.store_id == two._meta.store_id
    mine.close()
    others[0].close()


def test_processes_that_open_a_new_store_at_once_find_the_same_one(path):
    command = [sys.executable, CHILD, "opens", str(path)]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    answers = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        answers.append(child.communicate(timeout=60)[0])
        assert child.returncode == 0
    assert len(set(answers)) == 1


def test_a_directory_that_is_missing_is_named(tmp_path):
    with pytest.raises(StoreFailed, match=r"missing/jobs.db.*cannot be made"):
        SqliteStore.open(tmp_path / "missing" / "jobs.db")


# --- recognising ------------------------------------------------------------------------------------------------------


def test_a_newer_schema_is_refused_naming_both_versions(made):
    edit(made, f"PRAGMA user_version = {NOW + 1}")
    refused(made, TooNew, f"version {NOW + 1}.*up to {NOW}")
    refused(made, TooNew, f"version {NOW + 1}.*up to {NOW}", readonly=True)


def test_an_older_schema_without_a_way_up_is_refused(made):
    edit(made, "PRAGMA user_version = 0")
    refused(made, NoPath, "from version 0 to 1")


def test_another_programs_database_is_refused(path):
    edit(path, "CREATE TABLE t (x)", "PRAGMA application_id = 42")
    refused(path, InvalidValue, "not one of Holdfast")


def test_a_text_file_is_no_database(path):
    path.write_text("dear diary, " * 1000)
    refused(path, StoreDamaged, "not a database")


def test_an_empty_file_is_refused_and_not_filled(path):
    path.touch()
    refused(path, StoreDamaged, "empty")


def test_a_cut_file_is_refused(made):
    made.write_bytes(made.read_bytes()[:4096])
    with pytest.raises(StoreDamaged):
        SqliteStore.open(made)


def test_no_new_store_is_made_beside_the_log_of_one_that_is_gone(path):
    log = path.with_name("jobs.db-wal")
    log.write_bytes(b"the log of a database that was removed")
    with pytest.raises(StoreDamaged, match=r"jobs\.db-wal"):
        SqliteStore.open(path)
    assert list(path.parent.iterdir()) == [log]
    assert log.read_bytes() == b"the log of a database that was removed"


def test_an_empty_log_without_a_store_is_no_obstacle(path):
    path.with_name("jobs.db-wal").touch()
    SqliteStore.open(path).close()


def test_reading_makes_nothing(path):
    with pytest.raises(StoreReadOnly, match="no such file"):
        SqliteStore.open(path, readonly=True)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["a b?c#d%41.db", "ü&=;'\".db", "file:x?mode=memory"])
def test_a_name_of_any_letters_is_a_name_and_nothing_else(tmp_path, name):
    opened = SqliteStore.open(tmp_path / name)
    opened.wait(0, 0)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        [name, f"{name}-shm", f"{name}-wal", f"{name}-wake"]
    )
    opened.close()


def test_a_network_file_system_is_refused_unless_allowed(path, monkeypatch):
    monkeypatch.setattr(store, "filesystem_kind", lambda _: "nfs4")
    with pytest.raises(StoreFailed, match=r"nfs4.*network"):
        SqliteStore.open(path)
    assert not path.exists()
    SqliteStore.open(path, network=True).close()


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_settings_the_promises_rest_on_are_in_force(made):
    opened = SqliteStore.open(made)
    db = opened._writer
    found = {
        name: db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "trusted_schema")
    }
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 0,  # beginning a write waits by itself
        "trusted_schema": 0,
    }
    assert db.execute("PRAGMA journal_size_limit").fetchone() == (67_108_864,)
    opened.close()


@pytest.mark.parametrize("name", list(connections._SETTINGS))
def test_a_setting_that_is_not_taken_is_refused(made, monkeypatch, name):
    value, _ = connections._SETTINGS[name]
    monkeypatch.setitem(connections._SETTINGS, name, (value, "another answer"))
    with pytest.raises(StoreFailed, match=f"{name} = "):
        SqliteStore.open(made)


def test_readers_cannot_write(made):
    opened = SqliteStore.open(made)
    with opened.read() as view, pytest.raises(sqlite3.OperationalError, match="readonly"):
        view._db.execute("DELETE FROM jobs")
    opened.close()


# --- migrating --------------------------------------------------------------------------------------------------------


@pytest.fixture
def db(made: Path) -> Iterator[sqlite3.Connection]:
    opened = raw(made)
    yield opened
    opened.close()


def _add_column(db: sqlite3.Connection) -> None:
    db.execute("ALTER TABLE queues ADD COLUMN colour INTEGER")


def _columns(db: sqlite3.Connection) -> list[str]:
    return [row[1] for row in db.execute("PRAGMA table_info(queues)")]


def test_migrations_run_in_order_in_one_transaction(db, made):
    steps: list[int] = []

    def first(db: sqlite3.Connection) -> None:
        assert db.in_transaction
        steps.append(1)
        _add_column(db)

    migrate(db, str(made), 1, migrations={NOW: first, NOW + 1: lambda _: steps.append(2)}, version=NOW + 2)
    assert (steps, db.execute("PRAGMA user_version").fetchone()) == ([1, 2], (NOW + 2,))
    assert "colour" in _columns(db)


def test_a_failing_migration_leaves_the_database_as_it_was(db, made):
    def failing(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO no_such_table VALUES (1)")

    with pytest.raises(MigrationFailed, match=rf"from version {NOW + 1} to {NOW + 2} failed.*no_such_table"):
        migrate(db, str(made), 1, migrations={NOW: _add_column, NOW + 1: failing}, version=NOW + 2)
    assert db.execute("PRAGMA user_version").fetchone() == (NOW,)
    assert "colour" not in _columns(db)


def test_processes_that_migrate_at_once_run_it_once(db, made):
    steps: list[int] = []
    other = sqlite3.connect(made, isolation_level=None, check_same_thread=False, timeout=30)
    threads: list[Thread] = []

    def step(connection: sqlite3.Connection) -> None:
        steps.append(1)
        if not threads:
            # The other one comes while we hold the lock, and must find it done when it gets it.
            threads.append(Thread(target=migrate, args=(other, str(made), 30), kwargs=options))
            threads[0].start()
        _add_column(connection)

    options = {"migrations": {NOW: step}, "version": NOW + 1}
    migrate(db, str(made), 30, **options)
    threads[0].join()
    assert steps == [1]
    assert other.execute("PRAGMA user_version").fetchone() == (NOW + 1,)
    other.close()


def test_a_migration_does_not_wait_for_ever(db, made):
    holder = raw(made)
    holder.execute("BEGIN IMMEDIATE")
    db.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(StoreBusy):
        migrate(db, str(made), 0, migrations={NOW: _add_column}, version=NOW + 1)
    holder.close()


class Broken(Exception):
    """What a test makes fail."""


def _break() -> None:
    raise Broken


def _open_while_built(path: Path, meanwhile) -> SqliteStore:
    """Open a new store, and let `meanwhile` run when it is built and not yet in its place."""
    busy = False

    def arrive() -> None:
        nonlocal busy
        if not busy:
            busy = True
            meanwhile()

    with listening("sqlite.built", arrive):
        return SqliteStore.open(path)
