"""Under a constant load a store stops growing: what it takes on disk after months is what it took after one."""

from hashlib import shake_256

import msgspec
import pytest

from holdfast import Engine, Retention, open_store
from holdfast.engine.maintenance import tick
from holdfast.model.commands import Complete, Enqueue, Fail, Lease, NewJob
from holdfast.testing import ManualClock

DAY = 86_400


@pytest.fixture(params=["wal", "sqlite"])
def place(request, tmp_path):
    return request.param, tmp_path / "jobs"


def page(name):
    """A page that cannot be packed, so that what is kept too long shows."""
    return msgspec.Raw(msgspec.json.encode({"text": shake_256(name.encode()).hexdigest(2000)}))


def live(engine, clock, days, retention, *, first=0):
    """Eight jobs a day, one of which fails; the machine looks for what is old every day."""
    for day in range(first, first + days):
        jobs = tuple(
            NewJob(job_id=name, job_type="t", params=page(name), max_attempts=1)
            for name in (f"{day:04}-{number:02}" for number in range(8))
        )
        engine.ask(Enqueue(jobs=jobs))
        grants = engine.ask(Lease(worker_id="w", n=8)).grants
        reports = [Complete(job_id=grant.job.job_id, token=grant.token) for grant in grants[1:]]
        reports.append(Fail(job_id=grants[0].job.job_id, token=grants[0].token, error="boom"))
        engine.submit_many(reports)
        clock.advance(DAY)
        tick(engine, retention)
        engine.store.snapshot()


def size(path):
    files = path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}*")
    return sum(file.stat().st_size for file in files if file.is_file())


@pytest.mark.parametrize("retention", [None, Retention(done_max=20, failed_max=4, feed_max=100)], ids=["age", "number"])
def test_the_files_stop_growing(place, retention):
    scheme, path = place
    clock = ManualClock()
    sizes = []
    for months in range(1, 4):
        engine = Engine(open_store(f"{scheme}:{path}", clock=clock), clock=clock)
        live(engine, clock, 35, retention, first=35 * (months - 1))
        assert engine.store.check() == []
        engine.close()
        sizes.append(size(path))
    assert max(sizes[1:]) <= sizes[0] * 1.1, sizes


def test_without_retention_they_would_not(place):
    """The check above can fail: what is kept for ten years grows."""
    scheme, path = place
    clock = ManualClock()
    forever = Retention(done_s=3650 * DAY, failed_s=3650 * DAY, feed_s=3650 * DAY)
    engine = Engine(open_store(f"{scheme}:{path}", clock=clock), clock=clock)
    sizes = []
    for months in range(2):
        live(engine, clock, 20, forever, first=20 * months)
        sizes.append(size(path))
    engine.close()
    assert sizes[1] > sizes[0] * 1.5, sizes
