"""`check` of `sqlite:` finds what SQLite itself does not see, and names it."""

import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.model.commands import (
    Complete,
    CreateGroup,
    Enqueue,
    Fail,
    Lease,
    NewJob,
    PauseQueue,
    PutSchedule,
    PutTemplate,
    PutWebhook,
    Reserve,
)
from holdfast.model.ids import JobId
from holdfast.model.records import TABLES
from holdfast.model.schedules import NewSchedule
from holdfast.model.templates import JobOptions, NewTemplate
from holdfast.model.webhooks import NewWebhook
from holdfast.stores.check_and_repair import check
from holdfast.stores.protocol import Finding
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.statements import COLUMNS
from holdfast.testing import ManualClock
from holdfast.testing.conformance.provider_kit import activity, event, signal, start, started
from holdfast.workflows.provider import EventKind, Provider, SessionFetchConfig


def fill(path: Path) -> None:
    """Give every table something to keep."""
    engine = Engine(SqliteStore.open(path), clock=ManualClock())
    jobs = (
        NewJob(job_id=JobId("plain"), job_type="t", params=msgspec.Raw(b'{"a":1}')),
        NewJob(job_id=JobId("keyed"), job_type="t", params=msgspec.Raw(b"{}"), key="k", tags={"x": "y"}),
        NewJob(job_id=JobId("later"), job_type="t", params=msgspec.Raw(b"{}"), delay_s=60),
        NewJob(job_id=JobId("next"), job_type="t", params=msgspec.Raw(b"{}")),
    )
    engine.ask(Enqueue(jobs=jobs))
    hook = NewWebhook(url="https://receiver.example/hook", secrets=("a-secret-of-ours",), queues=("default",))
    engine.ask(PutWebhook(webhook_id="w-1", webhook=hook))
    grants = engine.ask(Lease(worker_id="w", n=2, cmd="lease-1")).grants
    engine.ask(Complete(job_id=grants[0].job.job_id, token=grants[0].token, result=msgspec.Raw(b"[1]")))
    engine.ask(Fail(job_id=grants[1].job.job_id, token=grants[1].token, error="boom"))
    engine.ask(Lease(worker_id="w"))
    engine.ask(PauseQueue(queue="mail", reason="holiday"))
    params = msgspec.Raw(b'{"a":1}')
    template = NewTemplate(name="report", job_type="t", default_params=params, options=JobOptions(priority=3))
    engine.ask(PutTemplate(template_id="t-1", template=template))
    schedule = NewSchedule(name="nightly", template_id="t-1", cron_expression="0 3 * * *", param_overrides=params)
    engine.ask(PutSchedule(schedule_id="s-1", schedule=schedule))
    engine.ask(Reserve(reservation_id="r-1", queue="mail", reserved_by="me", session_id="s"))
    members = tuple(NewJob(job_id=JobId(f"m{number}"), job_type="t", params=params) for number in range(3))
    called = NewJob(job_id=JobId("called"), job_type="t", params=params)
    engine.ask(CreateGroup(group_id="g-1", name="night", members=members, callback=called))
    provider = Provider(engine)
    for item in (start("i"), signal("i")):
        provider.enqueue_for_orchestrator(item)
    item, token, _ = provider.fetch_orchestration_item(30.0)
    kinds = [EventKind.KeyValueSet(key="k", value="v"), EventKind.DecisionRequested(prompt="?")]
    events = [started("i"), *(event(number, kind) for number, kind in enumerate(kinds, start=2))]
    provider.ack_orchestration_item(token, 1, events, [activity(9, session_id="s")], [signal("i"), signal("ghost")])
    provider.fetch_work_item(30.0, session=SessionFetchConfig("me", 30.0))
    provider.fetch_orchestration_item(30.0)
    engine.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.db"
    fill(path)
    return path


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    raw = laid_open(path)
    yield raw
    raw.close()


def laid_open(path: Path) -> sqlite3.Connection:
    """Give a raw connection that may do anything."""
    raw = sqlite3.connect(path, isolation_level=None)
    for (trigger,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        raw.execute(f"DROP TRIGGER {trigger}")
    raw.execute("PRAGMA ignore_check_constraints = ON")
    return raw


def checked(path: Path) -> list[Finding]:
    store = SqliteStore.open(path, readonly=True)
    try:
        return store.check()
    finally:
        store.close()


def codes(path: Path) -> set[str]:
    return {finding.code for finding in checked(path)}


def test_a_sound_store_has_no_findings(path):
    assert checked(path) == []


@pytest.mark.parametrize("table", list(TABLES))
def test_a_changed_value_of_any_column_is_found(path, tmp_path, table):
    columns = [name for name, _ in _columns(path, table)]
    assert set(COLUMNS[table]) <= set(columns)
    for column, kind in _columns(path, table):
        changed = tmp_path / f"{column}.db"
        shutil.copy(path, changed)
        db = laid_open(changed)
        other = f"coalesce({column}, '') || 'x'" if kind == "TEXT" else f"coalesce({column}, 0) + 1000"
        db.execute(f"UPDATE {table} SET {column} = {'1 - lane' if column == 'lane' else other}")
        db.close()
        assert "row_sum" in codes(changed), column


def _columns(path: Path, table: str) -> list[tuple[str, str]]:
    db = sqlite3.connect(path)
    found = [(row[1], row[2]) for row in db.execute(f"PRAGMA table_info({table})") if row[1] not in ("row", "sum")]
    db.close()
    return found


def test_the_record_with_the_wrong_sum_is_named(path, db):
    db.execute("""UPDATE jobs SET params = '{"a":2}' WHERE job_id = 'plain'""")
    (finding,) = checked(path)
    assert (finding.code, finding.id, finding.file) == ("row_sum", "plain", str(path))


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET event = replace(event, 'plain', 'plane') WHERE seq = 1",
        "UPDATE events SET ts = '2030-01-01T00:00:00.000000Z' WHERE seq = 3",
        "UPDATE events SET sum = sum + 1 WHERE seq = 4",
        "DELETE FROM events WHERE seq = 4",
        "DELETE FROM events WHERE seq = 1",
        "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)",
        "UPDATE events SET event = (SELECT event FROM events WHERE seq = 2) WHERE seq = 3",
        "UPDATE events SET seq = 99 WHERE seq = (SELECT max(seq) FROM events)",
        "INSERT INTO events SELECT max(seq) + 1, max(ts), event, sum FROM events",
    ],
)
def test_a_changed_lost_doubled_or_added_event_is_found(path, db, damage):
    db.execute(damage)
    assert codes(path) == {"event_chain"}


def test_a_lost_row_is_found_by_those_that_need_it(path, db):
    db.execute("DELETE FROM job_runs WHERE status IS NULL")
    assert "PERS-001" in codes(path)
    db.execute("DELETE FROM jobs WHERE job_id = 'plain'")
    assert {"reference", "PERS-002"} <= codes(path)


def test_an_index_that_disagrees_with_its_table_is_found(path, db):
    db.execute("PRAGMA writable_schema = ON")
    (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'ix_commands_at'").fetchone()
    db.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'ix_commands_at'", (sql.replace("(at,", "(digest,"),))
    db.close()
    assert "page" in codes(path)


def test_a_row_that_cannot_be_read_as_a_record_is_named_not_raised(path, db):
    db.execute("UPDATE jobs SET status = 'ASLEEP', backoff = 'x' WHERE job_id = 'next'")
    assert {"row_sum", "unreadable"} <= codes(path)


def test_a_flipped_bit_is_found_harmless_or_refused(path, tmp_path):
    """Flip bits all over the file: whatever changes what is kept is found, whatever is not found changed nothing."""
    whole = path.read_bytes()
    before = _everything(path)
    chance = random.Random(20260101)
    found = 0
    flips = 150
    for _ in range(flips):
        at, bit = chance.randrange(len(whole)), chance.randrange(8)
        flipped = tmp_path / "flipped.db"
        flipped.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        try:
            named = str(checked(flipped) or "")
        except HoldfastError as error:
            named = str(error)
        if named:
            assert str(flipped) in named
            found += 1
        else:
            assert _everything(flipped) == before, (at, bit)
        for beside in ("-wal", "-shm"):
            Path(f"{flipped}{beside}").unlink(missing_ok=True)
    print(f"{flips} bits flipped, {found} found, the others changed nothing")
    assert found


def _everything(path: Path) -> dict[str, list[object]]:
    store = SqliteStore.open(path, readonly=True)
    with store.read() as view:
        kept: dict[str, list[object]] = {name: list(view.all(kind)) for name, kind in TABLES.items()}
    kept["feed"] = list(store.feed(0))
    store.close()
    return kept


def test_malformed_page_is_not_answered_with_the_advice_to_check(tmp_path):
    path = tmp_path / "jobs.db"
    fill(path)
    text = bytearray(path.read_bytes())
    text[4096 : 4096 + 8 * 4096] = b"\xff" * (8 * 4096)
    path.write_bytes(text)
    found = check(f"sqlite:{path}")
    assert found
    for one in found:
        assert "store check" not in f"{one.message} {one.remedy}"
        assert "copy" in one.remedy.lower()


def test_file_that_is_no_database_is_not_answered_with_the_advice_to_check(tmp_path):
    path = tmp_path / "jobs.db"
    path.write_bytes(b"not a database" * 1000)
    (found,) = check(f"sqlite:{path}")
    assert found.code == "store_damaged"
    assert "store check" not in f"{found.message} {found.remedy}"
