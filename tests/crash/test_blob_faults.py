"""Large payloads on `wal:`, with the disk failing, the process dying or the power cut at every call that changes it.

Whatever the fault: a job that was acknowledged has its content, a job that is there at all has its content, and what a
put that was cut short left is never taken for content.
"""

from __future__ import annotations

import errno
import itertools
import os
from contextlib import suppress

import msgspec
import pytest

from holdfast.engine import Engine, engine
from holdfast.engine.blob_content import fetch
from holdfast.errors import StoreError
from holdfast.journal import JournalOptions
from holdfast.model.commands import Complete, Enqueue, Lease, NewJob
from holdfast.model.jobs import Job, Run
from holdfast.model.times import FOREVER
from holdfast.stores.wal import WalStore
from holdfast.testing import ManualClock, SimCrash, SimFS
from holdfast.testing.simdisk import disk_of
from holdfast.testing.simfs import CHANGES

SOAK = os.environ.get("HOLDFAST_SOAK") == "1"
#: No thread flushes on its own, so that every run makes the same calls.
QUIET = JournalOptions(flush_after_s=None, full_retry_s=0.0, full_retries=2)
CUTS = [
    *((mode, names, 0) for mode in ("lose", "keep") for names in ("lose", "keep")),
    *(("blocks", "mixed", seed) for seed in range(30 if SOAK else 2)),
]


def content(mark: str) -> msgspec.Raw:
    return msgspec.Raw(b'{"mark":"%s","pad":"%s"}' % (mark.encode(), mark.encode() * 70_000))


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    drawn = itertools.count(1)
    monkeypatch.setattr(engine, "_seed", lambda: next(drawn))


def opened(fs: SimFS) -> Engine:
    return Engine(WalStore.open("jobs", fs=fs, clock=ManualClock(), options=QUIET), clock=ManualClock())


def story(fs: SimFS, told: list[str]) -> None:
    """Enqueue and complete with large payloads, the same content twice, sweeps in between; note what was told."""
    for life in range(2):
        running = opened(fs)
        for mark in ("a", "b"):
            new = NewJob(job_id=f"{mark}{life}", job_type="work", params=content(mark))
            running.ask(Enqueue(jobs=(new,)))
            told.append(f"{mark}{life}")
        (grant,) = running.ask(Lease(worker_id="w")).grants
        running.ask(Complete(job_id=grant.job.job_id, token=grant.token, result=content("r")))
        told.append(f"result of {grant.job.job_id}")
        running.store.blobs.put(b"nobody names this")
        running.store.blobs.sweep(FOREVER, 10)
        running.close()


def examine(fs: SimFS, told: list[str]) -> None:
    """Demand that everything acknowledged is there with its content, and that nothing is there without."""
    found = opened(fs)
    with found.read() as view:
        jobs = {job.job_id: job for job in view.all(Job)}
        runs = list(view.all(Run))
    for job_id in (line for line in told if "result" not in line):
        assert fetch(found.store, jobs[job_id].params) == content(job_id[0])
    for line in (line for line in told if "result" in line):
        assert fetch(found.store, jobs[line.removeprefix("result of ")].result) == content("r")
    for payload in (*(job.params for job in jobs.values()), *(run.params_snapshot for run in runs)):
        fetch(found.store, payload)
    assert found.store.check() == []
    # And the next process can go on: the same content again, and a sweep of whatever was left.
    again = NewJob(job_id="again", job_type="work", params=content("a"))
    found.ask(Enqueue(jobs=(again,)))
    found.store.blobs.sweep(FOREVER, 100)
    assert fetch(found.store, found.job("again").params) == content("a")
    assert found.store.check() == []
    assert not [path for path in fs.tree() if path.endswith(".tmp")]
    found.close()


def test_a_power_cut_before_any_call_takes_no_content_that_is_named():
    fs, told, moments = SimFS(), [], []
    fs.before = lambda call: moments.append((fs.image(), list(told))) if call.kind in CHANGES else None
    story(fs, told)
    fs.before = None
    moments.append((fs.image(), list(told)))
    seen = set()
    for at, (disk, known) in enumerate(moments):
        for mode, names, seed in CUTS:
            left = disk.image().power_loss(mode, seed, names)
            if (key := (disk_of(left._root), *known)) in seen:
                continue
            seen.add(key)
            try:
                examine(left, known)
            except BaseException as error:
                error.add_note(f"cut {mode}/{names}/{seed} before change {at} of {len(moments)}")
                raise
    assert len(moments) > 40


@pytest.mark.parametrize("fault", [errno.EIO, errno.ENOSPC, "crash"])
def test_a_failing_call_or_a_death_at_any_call_takes_no_content_that_is_named(fault):
    rehearsal = SimFS()
    story(rehearsal, [])
    changes = [call for call in rehearsal.calls if call.kind in CHANGES]
    for nth, call in enumerate(changes, 1):
        fs, told = SimFS(), []
        if fault == "crash":
            fs.crash(nth, when="during" if call.kind == "write" else "after")
        else:
            fs.fail("change", nth, fault)
        with suppress(StoreError, SimCrash):
            story(fs, told)
        fs.heal()
        try:
            examine(fs.reboot(), told)
        except BaseException as error:
            error.add_note(f"{fault} at change {nth} of {len(changes)}: {call.kind} {call.path}")
            raise


def test_content_that_a_dead_process_left_stays_once_it_is_named():
    rehearsal = SimFS()
    story(rehearsal, [])
    changes = [call for call in rehearsal.calls if call.kind in CHANGES]
    renames = [nth for nth, call in enumerate(changes, 1) if call.kind == "rename" and call.dst.startswith("blobs/")]
    assert len(renames) >= 3
    for nth in renames:
        # Its name is there, and nobody has synced it.
        fs = SimFS()
        fs.crash(nth, when="after")
        with suppress(SimCrash):
            story(fs, [])
        after = fs.reboot()
        second = opened(after)
        for mark in ("a", "b", "r"):
            second.ask(Enqueue(jobs=(NewJob(job_id=f"{mark} again", job_type="work", params=content(mark)),)))
        examine(after.image().power_loss("lose", 0, "lose"), ["a again", "b again", "r again"])
