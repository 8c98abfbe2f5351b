"""How fast the stores are: durable enqueues, leases and reports through the engine, beside the same bytes or SQL bare.

Batches of 100 throughout. The bare loops write exactly what ours left behind: the log's own lines with as many syncs,
or the database's own rows with as many commits.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from benchmarks import Row, median, seconds, seconds_of
from holdfast.engine.engine import Engine
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob
from holdfast.model.ids import JobId
from holdfast.model.outcomes import Leased
from holdfast.stores.opening import open_store

BATCH = 100
_PARAMS = msgspec.Raw(b'{"to":"someone@example.com","subject":"hello"}')
_RESULT = msgspec.Raw(b'"sent"')

#: Store → required durable enqueues and lease+complete pairs per second.
REQUIRED = {"wal": (20_000, 10_000), "sqlite": (10_000, 5_000)}


def run(directory: Path, *, jobs: int = 20_000, full: bool = False) -> Iterator[Row]:
    """Measure each store; with `full` also at a million queued jobs."""
    for scheme in REQUIRED:
        yield from _speed(scheme, directory, jobs)
    if full:
        for scheme in REQUIRED:
            yield from _at_depth(scheme, directory)
        yield from _at_rest(directory)


# --- speed ------------------------------------------------------------------------------------------------------------


def _speed(scheme: str, directory: Path, jobs: int) -> Iterator[Row]:
    required_in, required_out = REQUIRED[scheme]
    path = directory / f"speed-{scheme}"
    engine = Engine(open_store(f"{scheme}:{path}"))
    batches = _batches(engine, jobs)
    inward = jobs / seconds(lambda: [engine.submit(batch) for batch in batches])
    outward = jobs / seconds(lambda: drain(engine, jobs))
    engine.close()
    bare_in, bare_out = _BARE[scheme](path, directory / f"bare-{scheme}", jobs)
    yield Row(f"{scheme}: enqueue", inward, "jobs/s", bare_in, f">= {required_in:,}/s", inward >= required_in)
    yield Row(
        f"{scheme}: lease + complete", outward, "jobs/s", bare_out, f">= {required_out:,}/s", outward >= required_out
    )


def _batches(engine: Engine, jobs: int) -> list[Enqueue]:
    return [
        Enqueue(
            jobs=tuple(NewJob(job_id=JobId(engine.new_id()), job_type="send", params=_PARAMS) for _ in range(BATCH))
        )
        for _ in range(jobs // BATCH)
    ]


def drain(engine: Engine, jobs: int) -> None:
    """Lease and complete `jobs` jobs, a batch at a time."""
    done = 0
    while done < jobs:
        leased = engine.submit(Lease(worker_id="bench", n=BATCH, session_id=engine.session_id))
        assert isinstance(leased, Leased)
        assert leased.grants, "there are as many jobs as we enqueued"
        reports = [Complete(job_id=grant.job.job_id, token=grant.token, result=_RESULT) for grant in leased.grants]
        done += len(engine.submit_many(reports))


def _bare_wal(path: Path, place: Path, jobs: int) -> tuple[float, float]:
    """Write the log's own lines again, a batch a sync; half of the batches of draining are leases, half reports."""
    lines = [line for part in sorted((path / "log").iterdir()) for line in part.read_bytes().splitlines(keepends=True)]
    bodies = [json.loads(line)["event"] for line in lines[: 3 * jobs]]

    def write(first: int, count: int, per_sync: int) -> Callable[[], None]:
        def loop() -> None:
            descriptor = os.open(place, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            try:
                for at in range(first, first + count, per_sync):
                    encoded = [msgspec.json.encode(body) for body in bodies[at : at + per_sync]]
                    assert len(encoded) <= per_sync
                    os.write(descriptor, b"".join(lines[at : at + per_sync]))
                    os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

        return loop

    return jobs / seconds(write(0, jobs, BATCH)), jobs / seconds(write(jobs, 2 * jobs, BATCH))


def _bare_sqlite(path: Path, place: Path, jobs: int) -> tuple[float, float]:
    """Put the database's own rows into a copy of its schema: the same statements without rules, records and sums."""
    source = sqlite3.connect(path)
    schema = [sql for (sql,) in source.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")]
    stored = {name: _table(source, name) for name in ("jobs", "job_runs", "events")}
    source.close()
    target = sqlite3.connect(place, isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL"):
        target.execute(f"PRAGMA {pragma}").fetchall()
    for sql in schema:
        if "sqlite_sequence" not in sql:
            target.execute(sql)
    rows = {name: (_insert(name, columns), found) for name, (columns, found) in stored.items()}

    def put(name: str, at: int) -> None:
        sql, found = rows[name]
        target.executemany(sql, found[at : at + BATCH])

    def enqueue() -> None:
        for at in range(0, jobs, BATCH):
            target.execute("BEGIN IMMEDIATE")
            put("jobs", at)
            put("events", at)
            target.execute("COMMIT")

    columns, found = stored["jobs"]
    names = ("status", "token", "worker_id", "lease_expires_at", "finished_at", "job_id")
    spots = {name: columns.index(name) for name in names}
    ids = [row[spots["job_id"]] for row in found]
    ended = [row[spots["finished_at"]] for row in found]

    def move() -> None:
        for at in range(0, jobs, BATCH):
            keys = range(at, min(at + BATCH, jobs))
            target.execute("BEGIN IMMEDIATE")
            target.executemany(
                "UPDATE jobs SET status='RUNNING', token=?, worker_id='bench', lease_expires_at=?, finished_at=NULL"
                " WHERE job_id=?",
                [(number + 1, ended[number], ids[number]) for number in keys],
            )
            put("job_runs", at)
            put("events", jobs + 2 * at)
            target.execute("COMMIT")
            target.execute("BEGIN IMMEDIATE")
            target.executemany(
                "UPDATE jobs SET status='COMPLETED', token=NULL, worker_id=NULL, lease_expires_at=NULL, finished_at=?"
                " WHERE job_id=?",
                [(ended[number], ids[number]) for number in keys],
            )
            put("events", jobs + 2 * at + BATCH)
            target.execute("COMMIT")

    # The stored jobs have ended; queue them, or the first statement would be another one than ours.
    queued = [
        tuple(
            "QUEUED" if spot == spots["status"] else None if spot == spots["finished_at"] else value
            for spot, value in enumerate(row)
        )
        for row in found
    ]
    rows["jobs"] = (rows["jobs"][0], queued)
    inward = jobs / seconds(enqueue)
    outward = jobs / seconds(move)
    target.close()
    return inward, outward


def _table(source: sqlite3.Connection, name: str) -> tuple[list[str], list[tuple[object, ...]]]:
    # xinfo's last column marks generated columns, which cannot be inserted.
    columns = [row[1] for row in source.execute("SELECT * FROM pragma_table_xinfo(?)", (name,)) if row[6] == 0]
    quoted = ", ".join(f'"{column}"' for column in columns)
    found = source.execute(f'SELECT {quoted} FROM "{name}" ORDER BY rowid').fetchall()  # noqa: S608 - our own names
    return columns, found


def _insert(name: str, columns: list[str]) -> str:
    quoted = ", ".join(f'"{column}"' for column in columns)
    marks = ", ".join("?" for _ in columns)
    return f'INSERT INTO "{name}" ({quoted}) VALUES ({marks})'  # noqa: S608 - our own names


_BARE = {"wal": _bare_wal, "sqlite": _bare_sqlite}


# --- a million queued jobs --------------------------------------------------------------------------------------------


def _at_depth(scheme: str, directory: Path) -> Iterator[Row]:
    """Compare the cost of a batch at 1,000 and at 1,000,000 queued jobs."""
    path = directory / f"depth-{scheme}"
    engine = Engine(open_store(f"{scheme}:{path}"))
    costs: dict[int, tuple[float, float]] = {}
    depth = 0
    for goal in (1_000, 1_000_000):
        for batch in _batches(engine, goal - depth):
            engine.submit(batch)
        inward = _median_batch(engine)
        outward = _median_lease(engine)
        costs[goal] = (inward, outward)
        depth = goal
    engine.close()
    for number, verb in enumerate(("enqueue", "lease")):
        ratio = costs[1_000_000][number] / costs[1_000][number]
        yield Row(f"{scheme}: {verb}, cost at 1,000,000 to 1,000 queued", ratio, "x", None, "<= 2x", ratio <= 2)


def _median_batch(engine: Engine) -> float:
    return median(lambda: seconds_of(partial(engine.submit, _batches(engine, BATCH)[0])), 51)


def _median_lease(engine: Engine) -> float:
    return median(lambda: seconds_of(lambda: engine.submit(Lease(worker_id="bench", n=BATCH, lease_s=3600))), 9)


_MEASURE_OPEN = """
import resource, sys, time
from holdfast.stores.opening import open_store
import holdfast.stores.wal
def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()
before, began = rss(), time.perf_counter()
store = open_store(sys.argv[1])
print(time.perf_counter() - began, rss() - before)
store.close()
"""


def _at_rest(directory: Path) -> Iterator[Row]:
    """Open a `wal:` of a million queued jobs from its snapshot, in a process of its own; see time and memory."""
    path = directory / "depth-wal"
    store = open_store(f"wal:{path}")
    store.snapshot()
    with store.read() as view:
        queued = sum(count.count for count in view.counts())
    store.close()
    answer = subprocess.run(  # noqa: S603 - our own interpreter on our own text
        [sys.executable, "-c", _MEASURE_OPEN, f"wal:{path}"], check=True, capture_output=True, text=True
    )
    took, grown = (float(part) for part in answer.stdout.split())
    each = grown / queued
    yield Row(f"wal: open {queued:,} jobs from snapshot", took, "s", None, "<= 15 s", took <= 15)
    yield Row("wal: memory per queued job", each, "bytes", None, "<= 1,500 bytes", each <= 1_500)
    shutil.rmtree(path)
