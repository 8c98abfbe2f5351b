"""Looking after a store by its URL, also where it refuses to open."""

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.engine.maintenance import tick
from holdfast.errors import InvalidOperation, StoreFailed
from holdfast.journal import journal
from holdfast.model.commands import Enqueue, NewJob, PutSchedule, ResetSchedule
from holdfast.model.schedules import CatchUp, NewSchedule, Overlap
from holdfast.rules.schedules import fire_times, next_fire
from holdfast.stores import check_and_repair
from holdfast.stores.opening import open_store
from holdfast.testing.clock import ManualClock


@pytest.fixture(params=["wal", "sqlite"])
def url(request, tmp_path):
    where = f"{request.param}:{tmp_path / 'jobs'}"
    engine = Engine(open_store(where))
    for number in range(3):
        job = NewJob(job_id=f"j{number}", job_type="t", params=msgspec.Raw(b"{}"))
        engine.ask(Enqueue(jobs=(job,)))
    engine.close()
    return where


def path_of(url):
    return Path(url.partition(":")[2])


def damage(url):
    (file,) = path_of(url).glob("log/*.jsonl")
    text = bytearray(file.read_bytes())
    text[40] ^= 1
    file.write_bytes(bytes(text))


def test_a_store_that_is_well_has_no_findings(url):
    assert check_and_repair.check(url) == []


def test_a_store_that_refuses_to_open_is_a_finding(url):
    if url.startswith("wal:"):
        damage(url)
    else:
        path_of(url).write_bytes(b"")
    (finding,) = check_and_repair.check(url)
    assert finding.code in {"journal_damaged", "store_damaged"}
    assert finding.remedy


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_a_schedule_that_a_wrong_clock_has_silenced_is_a_finding_until_it_is_reset(url, catch_up):
    clock = ManualClock()
    engine = Engine(open_store(url, clock=clock), clock=clock)
    new = NewSchedule(name="hourly", job_type="t", interval_s=3600, catch_up=catch_up, overlap=Overlap.ALLOW)
    engine.ask(PutSchedule(schedule_id="s", schedule=new))
    clock.advance(1)
    clock.set_wall(clock.now() + timedelta(days=365))
    tick(engine)
    engine.close()
    assert check_and_repair.check(url, clock=clock) == []
    clock.set_wall(clock.now() - timedelta(days=365))
    (finding,) = check_and_repair.check(url, clock=clock)
    assert (finding.code, finding.id) == ("schedule_ahead", "s")
    assert "2026-01-01T01:00:00" in finding.message
    assert "holdfast schedules reset hourly" in finding.remedy
    engine = Engine(open_store(url, clock=clock), clock=clock)
    engine.ask(ResetSchedule(schedule_id="s"))
    engine.close()
    assert check_and_repair.check(url, clock=clock) == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_store_without_a_log_of_its_own_has_nothing_to_be_cut_back_to(url):
    with pytest.raises(InvalidOperation, match="no log of its own"):
        check_and_repair.plan_repair(url)


@pytest.mark.parametrize("url", ["wal"], indirect=True)
def test_a_repair_is_planned_before_it_is_done_and_leaves_a_store_that_is_well(url):
    assert not check_and_repair.plan_repair(url).is_needed
    damage(url)
    plan = check_and_repair.plan_repair(url)
    assert plan.is_needed
    assert check_and_repair.check(url)
    assert plan.apply()
    assert check_and_repair.check(url) == []


@pytest.mark.parametrize("url", ["wal"], indirect=True)
def test_a_network_file_system_that_was_allowed_can_be_looked_after(url, monkeypatch):
    monkeypatch.setattr(journal, "is_network", lambda kind: True)
    for act in (check_and_repair.check, check_and_repair.plan_repair):
        with pytest.raises(StoreFailed, match="network"):
            act(url)
    assert check_and_repair.check(f"{url}?network=allow") == []
    assert not check_and_repair.plan_repair(f"{url}?network=allow").is_needed


def test_a_schedule_whose_zone_this_machine_has_lost_is_a_finding(url, monkeypatch):
    engine = Engine(open_store(url))
    new = NewSchedule(name="daily", job_type="t", cron_expression="@daily", timezone="Europe/Paris")
    engine.ask(PutSchedule(schedule_id="s", schedule=new))
    engine.close()
    monkeypatch.setattr(next_fire, "parse_zone", lambda name: fire_times.parse_zone(f"{name}/Lost"))
    (finding,) = check_and_repair.check(url)
    assert (finding.code, finding.id) == ("schedule_unplannable", "s")
    assert "is not a time zone" in finding.message
