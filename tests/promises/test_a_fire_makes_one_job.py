"""One due time of a schedule makes one job."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.engine import Engine
from holdfast.engine.schedule_rounds import fire_due
from holdfast.model.commands import Fire, PutSchedule
from holdfast.model.jobs import Job
from holdfast.model.schedules import NewSchedule, Overlap
from holdfast.model.times import FOREVER
from holdfast.rules.state import Lane
from holdfast.stores.opening import open_store
from holdfast.testing import ManualClock, killed_at

HOUR = 3600


@pytest.fixture(params=["memory", "wal", "sqlite"])
def url(request, tmp_path):
    return "memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'jobs'}"


def opened(url, clock):
    return Engine(open_store(url, clock=clock), clock=clock)


def put(engine):
    new = NewSchedule(name="s", job_type="t", cron_expression="0 * * * *", overlap=Overlap.ALLOW)
    engine.ask(PutSchedule(schedule_id="s", schedule=new))


def fires(engine):
    with engine.read() as view:
        return [job.fire_at for job in view.all(Job)]


def test_however_many_ask_at_once(url):
    clock = ManualClock()
    engine = opened(url, clock)
    put(engine)
    for number in range(1, 11):
        clock.advance(HOUR)
        with ThreadPoolExecutor(8) as pool:
            found = [done.result()[0] for done in [pool.submit(fire_due, engine) for _ in range(8)]]
        assert sum(found) == 1
        assert len(set(fires(engine))) == len(fires(engine)) == number
    engine.close()


def test_when_the_one_who_fired_never_heard_the_answer(url):
    clock = ManualClock()
    engine = opened(url, clock)
    put(engine)
    clock.advance(HOUR)
    with engine.read() as view:
        fire = Fire(schedule_id="s", expected=next(iter(view.due(Lane.SCHEDULE, FOREVER))).next_fire_at)
    first = engine.ask(fire)
    for _ in range(3):
        again = engine.ask(fire)
        assert [job.job_id for job in again.jobs] == [job.job_id for job in first.jobs]
        assert not any(job.created for job in again.jobs)
    assert len(fires(engine)) == 1
    engine.close()


@pytest.mark.parametrize("point", ["engine.decided", "engine.committed"])
def test_when_the_process_dies_in_the_middle(url, point):
    if url == "memory:":
        pytest.skip("memory: dies with its process")
    clock = ManualClock()
    engine = opened(url, clock)
    put(engine)
    engine.close()
    clock.advance(HOUR)
    killed_at(point, lambda: fire_due(opened(url, clock)))
    engine = opened(url, clock)
    fire_due(engine)
    assert len(fires(engine)) == 1
    engine.close()
