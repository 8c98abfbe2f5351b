"""Jobs inside the user's own transaction: there with its commit, gone with its rollback, decided by the same rules."""

import sqlite3
import threading

import pytest

from holdfast import Holdfast
from holdfast.errors import (
    DuplicateKey,
    InvalidArguments,
    InvalidOperation,
    InvalidValue,
    JobNotFound,
    StoreBusy,
    StoreFailed,
)
from holdfast.failpoints import listening


@pytest.fixture
def place(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def hf(place):
    with Holdfast(f"sqlite:{place}") as app:
        yield app
        assert app.engine.store.check() == []


@pytest.fixture
def send(hf):
    @hf.task(queue="mail")
    def send(to: str) -> str:
        return to

    return send


@pytest.fixture
def db(hf, place):
    hf.jobs()
    connection = sqlite3.connect(place)
    connection.execute("CREATE TABLE users (name TEXT)")
    yield connection
    connection.close()


def users(db):
    return [name for (name,) in db.execute("SELECT name FROM users ORDER BY name")]


def test_a_job_is_there_with_the_callers_commit_and_not_before(hf, send, db):
    db.execute("INSERT INTO users VALUES ('ann')")
    job = send.options(connection=db, priority=3).enqueue("ann")
    assert db.in_transaction
    with pytest.raises(JobNotFound):
        job.refresh()
    db.commit()
    assert (job.refresh().priority, job.created) == (3, True)
    hf.work(until_idle=True)
    assert job.result(timeout=0) == "ann"
    assert users(db) == ["ann"]


def test_a_rollback_leaves_nothing(hf, send, db):
    db.execute("INSERT INTO users VALUES ('ann')")
    before = [entry.seq for entry in hf.engine.store.feed(0)]
    send.options(connection=db).enqueue("ann")
    db.rollback()
    assert (hf.jobs(), users(db)) == ([], [])
    assert [entry.seq for entry in hf.engine.store.feed(0)] == before
    send.enqueue("bob")
    assert len(hf.jobs()) == 1


def test_jobs_of_one_transaction_see_each_other(hf, send, db):
    db.execute("BEGIN IMMEDIATE")
    within = send.options(connection=db)
    first, again = (within.options(key="k").enqueue("a") for _ in range(2))
    assert (first.created, again.created, again.id) == (True, False, first.id)
    many = within.enqueue_many([("b",), {"to": "c"}])
    db.commit()
    assert len({job.refresh().position for job in (first, *many)}) == 3


def test_the_stores_own_writes_and_the_callers_take_turns(hf, send, db):
    """What the store knows between its batches is forgotten when the caller has committed."""
    jobs = []
    for number in range(6):
        jobs.append(send.options(id=f"own-{number}").enqueue(str(number)))
        db.execute("BEGIN")
        # Above every id the store has seen, so that its memory of the highest one matters.
        jobs.append(send.options(connection=db, id=f"zz-{number}").enqueue(str(number)))
        db.commit() if number % 2 else db.rollback()
        if number % 2:
            again = send.options(id=f"zz-{number}").enqueue(str(number))
            assert again.created is False
    entries = list(hf.engine.store.feed(0))
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    hf.work(until_idle=True)
    assert {job.status for job in hf.jobs()} == {"COMPLETED"}
    assert len(hf.jobs()) == 9


def test_waiters_are_woken_after_the_commit(hf, send, db, monkeypatch):
    monkeypatch.setattr("holdfast.stores.sqlite.wakeup.WITH_BELL_S", 60)  # so that nobody wakes by themselves
    store = hf.engine.store
    for _ in range(2):
        with store.read() as view:
            seen = view.seq
        woken = []
        thread = threading.Thread(target=lambda seen=seen, woken=woken: woken.append(store.wait(seen, 30)))
        thread.start()
        db.execute("BEGIN")
        send.options(connection=db).enqueue("a")
        db.commit()
        thread.join(30)
        assert woken == [True]


def test_a_caller_that_never_commits_is_not_waited_for(hf, send, db, monkeypatch):
    monkeypatch.setattr("holdfast.stores.sqlite.caller_transaction.LOOKS", 2)
    for _ in range(2):
        db.execute("BEGIN")
        send.options(connection=db).enqueue("a")
        db.rollback()
        for thread in threading.enumerate():
            if thread.name == "holdfast-sqlite-late":
                thread.join(20)
        assert "holdfast-sqlite-late" not in [thread.name for thread in threading.enumerate()]


def test_rows_come_as_the_caller_likes_them_before_and_after(send, db):
    db.row_factory = lambda cursor, row: {"row": row}
    db.text_factory = bytes
    db.execute("BEGIN")
    send.options(connection=db).enqueue("a")
    assert db.execute("SELECT 'x'").fetchone() == {"row": (b"x",)}
    db.commit()


def test_wrong_arguments_and_refusals_leave_the_callers_work_alone(hf, send, db):
    send.options(key="k").enqueue("a")
    db.execute("INSERT INTO users VALUES ('ann')")
    within = send.options(connection=db)
    with pytest.raises(InvalidArguments):
        within.enqueue(3)
    with pytest.raises(DuplicateKey):
        within.options(key="k", on_conflict="reject").enqueue("b")
    with pytest.raises(InvalidValue):
        within.options(priority=999).enqueue("b")
    db.commit()
    assert (users(db), len(hf.jobs())) == (["ann"], 1)


def test_a_write_that_fails_halfway_takes_nothing_of_the_caller_with_it(hf, send, db):
    def fail():
        raise sqlite3.OperationalError("disk I/O error")

    db.execute("INSERT INTO users VALUES ('ann')")
    with listening("sqlite.settled", fail), pytest.raises(StoreFailed):
        send.options(connection=db).enqueue("a")
    db.commit()
    assert (users(db), hf.jobs()) == (["ann"], [])
    # The store itself has seen no failure.
    assert send.enqueue("b").created


def test_a_transaction_that_reads_an_old_state_is_refused(hf, send, db):
    db.execute("BEGIN")
    assert users(db) == []
    send.enqueue("somebody else")
    with pytest.raises(StoreBusy, match="BEGIN IMMEDIATE"):
        send.options(connection=db).enqueue("a")
    db.rollback()
    assert len(hf.jobs()) == 1


def test_a_connection_without_a_transaction_is_refused(hf, send, db):
    with pytest.raises(InvalidOperation, match="no transaction"):
        send.options(connection=db).enqueue("a")
    assert hf.jobs() == []


def test_a_connection_to_another_database_is_refused(hf, send, db, tmp_path, place):
    for target in (tmp_path / "other.db", ":memory:"):
        other = sqlite3.connect(target)
        other.execute("BEGIN")
        with pytest.raises(InvalidOperation, match="open on"):
            send.options(connection=other).enqueue("a")
        other.close()
    assert hf.jobs() == []


def test_a_database_that_is_only_attached_is_refused(hf, send, place, tmp_path):
    hf.jobs()
    other = sqlite3.connect(tmp_path / "app.db")
    other.execute("ATTACH ? AS store", (str(place),))
    other.execute("BEGIN")
    with pytest.raises(InvalidOperation, match="Two files cannot be committed as one"):
        send.options(connection=other).enqueue("a")
    other.close()


def test_the_database_is_known_by_its_file_not_by_its_name(hf, send, db, place, tmp_path):
    link = tmp_path / "link.db"
    link.symlink_to(place)
    other = sqlite3.connect(link)
    other.execute("BEGIN")
    job = send.options(connection=other).enqueue("a")
    other.commit()
    other.close()
    assert job.status == "QUEUED"


def test_a_second_name_of_the_file_is_refused_as_it_has_a_log_of_its_own(hf, send, db, place, tmp_path):
    hf.engine.store.snapshot()
    (tmp_path / "second.db").hardlink_to(place)
    other = sqlite3.connect(tmp_path / "second.db")
    other.execute("BEGIN")
    with pytest.raises(InvalidOperation, match=r"second\.db, not on"):
        send.options(connection=other).enqueue("a")
    other.close()
    assert hf.jobs() == []


def test_a_connection_that_syncs_nothing_is_refused(hf, send, db):
    """Once it copies the log into the database, a power cut would take what others were promised."""
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN")
    with pytest.raises(InvalidOperation, match="synchronous"):
        send.options(connection=db).enqueue("a")
    db.rollback()
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("BEGIN")
    send.options(connection=db).enqueue("b")
    db.commit()
    assert len(hf.jobs()) == 1


@pytest.mark.parametrize("name", ["jobs", "JOBS", "Events"])
def test_a_temporary_table_that_hides_one_of_the_stores_is_refused(hf, send, db, name):
    db.execute(f"CREATE TEMP TABLE {name} (job_id TEXT)")
    db.execute("BEGIN")
    with pytest.raises(InvalidOperation, match="temporary table"):
        send.options(connection=db).enqueue("a")
    db.rollback()
    assert hf.jobs() == []


def test_what_is_no_connection_is_refused(hf, send, db):
    with pytest.raises(InvalidValue, match="no sqlite3"):
        send.options(connection="jobs.db").enqueue("a")
    db.close()
    with pytest.raises(InvalidOperation, match="closed"):
        send.options(connection=db).enqueue("a")
    assert hf.jobs() == []


def test_a_connection_of_another_thread_is_refused(hf, send, db):
    db.execute("BEGIN")
    told = []

    def other():
        try:
            send.options(connection=db).enqueue("a")
        except InvalidOperation as problem:
            told.append(problem.message)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(20)
    db.rollback()
    assert "thread" in told[0]
    assert hf.jobs() == []


@pytest.mark.parametrize("store", ["memory", "wal"])
def test_stores_without_transactions_of_users_refuse(store, tmp_path):
    with Holdfast("memory:" if store == "memory" else f"wal:{tmp_path / 'journal'}") as hf:
        task = hf.open().task(name="t")(lambda: None)
        connection = sqlite3.connect(":memory:")
        with pytest.raises(InvalidOperation, match=f"{store}:.*Use sqlite:"):
            task.options(connection=connection).enqueue()
        connection.close()
        assert hf.jobs() == []


def test_the_store_must_be_open_before_the_transaction_is(place):
    """Opening waits for writers, and the caller's transaction may be the one that writes."""
    with Holdfast(f"sqlite:{place}") as hf:
        hf.open()
    db = sqlite3.connect(place)
    with Holdfast(f"sqlite:{place}") as hf:
        task = hf.task(name="t")(lambda: None)
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(InvalidOperation, match=r"hf.open\(\)"):
            task.options(connection=db).enqueue()
        db.rollback()
        assert hf.open().is_open
        db.execute("BEGIN IMMEDIATE")
        job = task.options(connection=db).enqueue()
        db.commit()
        assert job.status == "QUEUED"
    db.close()


def test_a_task_takes_no_connection_for_all_its_calls(hf, db):
    with pytest.raises(InvalidArguments, match="connection"):
        hf.task(name="t", connection=db)(lambda: None)
    with pytest.raises(InvalidArguments, match="connection"):
        hf.task(name="u")(lambda: None).enqueue().update(connection=db)
