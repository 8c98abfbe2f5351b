"""`dir:` beside the bare limit: commits, opening, memory and leasing, with the floors its format promises.

A commit waits for the disk several times, one after the other; bare is one file created, synced and renamed, and its
directory synced, which is the least that any file of it costs.
"""

from __future__ import annotations

import os
import shutil
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from benchmarks import Row, median, seconds, seconds_of
from holdfast.engine.engine import Engine
from holdfast.journal.filesystem import Handle, OsFS, atomic_write
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.outcomes import Grant, Leased
from holdfast.model.times import stamp
from holdfast.stores.dir import DirStore
from holdfast.stores.dir.format import job_file
from holdfast.stores.dir.format.file_names import name_of
from holdfast.stores.dir.format.record_files import COMPLETED
from holdfast.stores.dir.format.record_text import pretty
from holdfast.testing.clock import START

#: Floors on a local SSD, and their meaning.
SINGLE, OPEN_S, LEASE_MS = 100.0, 3.0, 10.0
GROUP = 50
PARAMS = msgspec.Raw(b'{"to":"user@example.com","subject":"hello"}')


def run(
    directory: Path, *, commits: int = 200, sizes: tuple[int, ...] = (1_000, 10_000, 100_000), pending: int = 10_000
) -> Iterator[Row]:
    """Measure everything: so many commits, openings with so many files, a lease among so many that wait."""
    bare = 1 / median(lambda: _bare(directory), 51)
    yield from _commits(directory, commits, bare)
    for size in sizes:
        yield from _openings(directory, size)
    yield _leasing(directory, pending)


def _bare(directory: Path) -> float:
    fs = OsFS(directory)
    return seconds_of(lambda: atomic_write(fs, "bare.json", bytes(PARAMS)))


def _commits(directory: Path, count: int, bare: float) -> Iterator[Row]:
    """Create, lease and complete, one at a time and in groups."""
    for size in (1, GROUP):
        engine = Engine(DirStore.open(directory / f"commits-{size}"))
        rounds = max(count // size, 4)
        grants: list[Grant] = []
        for verb in ("create", "lease", "complete"):
            rate = rounds * size / seconds(partial(_round, engine, verb, rounds, size, grants))
            what = f"dir: {verb}, " + ("single commits" if size == 1 else f"groups of {size}")
            floor = f">= {SINGLE:g}/s" if size == 1 else ""
            yield Row(what, rate, "/s", bare, floor, size > 1 or rate >= SINGLE)
        engine.close()


def _round(engine: Engine, verb: str, rounds: int, size: int, grants: list[Grant]) -> None:
    for turn in range(rounds):
        match verb:
            case "create":
                engine.ask(Enqueue(jobs=_jobs(f"{turn}-", size)))
            case "lease":
                grants += _lease(engine, size)
            case _:
                taken, grants[:] = grants[:size], grants[size:]
                engine.submit_many([Complete(job_id=grant.job.job_id, token=grant.token) for grant in taken])


def _jobs(prefix: str, count: int) -> tuple[NewJob, ...]:
    return tuple(NewJob(job_id=JobId(f"j{prefix}{n:06}"), job_type="send", params=PARAMS) for n in range(count))


def _lease(engine: Engine, count: int) -> tuple[Grant, ...]:
    outcome = engine.ask(Lease(worker_id="bench", n=count, lease_s=3600))
    assert isinstance(outcome, Leased)
    assert len(outcome.grants) == count
    return outcome.grants


# --- opening ----------------------------------------------------------------------------------------------------------


def _openings(directory: Path, size: int) -> Iterator[Row]:
    """Open a store with so many completed files and a hundredth of pending ones, at most a thousand."""
    place = directory / f"open-{size}"
    pending = min(1_000, max(size // 100, 10))
    _fill(place, size, pending)
    took = median(lambda: seconds(lambda: DirStore.open(place).close()), 3)
    floor = f"<= {OPEN_S:g} s" if size == 100_000 else ""
    title = f"dir: open, {size:,} completed, {pending:,} pending"
    yield Row(title, took, "s", None, floor, not floor or took <= OPEN_S)
    tracemalloc.start()
    store = DirStore.open(place)
    opened = tracemalloc.get_traced_memory()[0]
    with store.read() as view:
        list(view.counts())
    whole = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    store.close()
    yield Row("  memory when opened", opened / 1e6, "MB", None, "", holds=True)
    yield Row("  memory with every ended job read", whole / 1e6, "MB", None, "", holds=True)
    store = DirStore.open(place)

    def read_all() -> None:
        with store.read() as view:
            list(view.counts())

    yield Row("  reading every ended job, once", seconds(read_all), "s", None, "", holds=True)
    store.close()
    shutil.rmtree(place)


class _Unsynced(OsFS):
    """Real files without syncs, to fill a store quickly."""

    def sync(self, h: Handle, *, metadata: bool) -> None:
        """Do nothing."""

    def sync_dir(self, path: str) -> None:
        """Do nothing."""


def _fill(place: Path, completed: int, pending: int) -> None:
    """Make a store with so many files, without waiting for the disk."""
    engine = Engine(DirStore.open(place, fs=_Unsynced(place, create=True)))
    for at in range(0, pending, 500):
        engine.ask(Enqueue(jobs=_jobs(f"p{at}-", min(500, pending - at))))
    engine.close()
    fs, when = _Unsynced(place / "data"), stamp(START)
    for number in range(completed):
        job_id = JobId(f"019b76da-a800-7000-8000-{number:012}")
        done = Job(job_id, "send", PARAMS, when, status=JobStatus.COMPLETED, position=100, finished_at=when, seq=1)
        handle = fs.open(f"{COMPLETED}/{name_of(job_id)}.json", "create")
        fs.write(handle, pretty(job_file.write(done, ())))
        fs.close(handle)
    os.sync()


def _leasing(directory: Path, pending: int) -> Row:
    """Lease one of many that wait: what it costs beside the disk."""
    place = directory / "leasing"
    engine = Engine(DirStore.open(place, fs=_Unsynced(place, create=True)))
    for at in range(0, pending, 1000):
        engine.ask(Enqueue(jobs=_jobs(f"{at}-", min(1000, pending - at))))
    took = median(lambda: seconds_of(lambda: _lease(engine, 1)), 51) * 1000
    engine.close()
    shutil.rmtree(place)
    return Row(
        f"dir: lease one of {pending:,} pending, beside fsync",
        took,
        "ms",
        None,
        f"<= {LEASE_MS:g} ms",
        took <= LEASE_MS,
    )
