"""Recovery and tick: what time asks for, once, by the ordinary path."""

from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest

from holdfast.engine import Engine, maintenance
from holdfast.engine.maintenance import Report, next_wake, recover, tick
from holdfast.errors import InvalidValue, StoreBusy, StoreFailed
from holdfast.failpoints import listening
from holdfast.model import commands as c
from holdfast.model.jobs import Job, RetryMode
from holdfast.model.records import DoneCommand
from holdfast.model.times import later, stamp
from holdfast.rules.jobs.retention import FEED_S
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.clock import START, ManualClock

NOW = stamp(START)
DAY = 86_400


class Scene:
    """An engine on a memory store; `reopen` makes the next opening of the same store."""

    def __init__(self):
        self.clock = ManualClock()
        self.store = MemoryStore()
        self.reopen()

    def reopen(self):
        self.engine = Engine(self.store, clock=self.clock)

    def enqueue(self, *job_ids, **options):
        jobs = tuple(c.NewJob(job_id=name, job_type="t", params=msgspec.Raw(b"{}"), **options) for name in job_ids)
        self.engine.ask(c.Enqueue(jobs=jobs))

    def lease(self, n=1, **options):
        return self.engine.ask(c.Lease(worker_id="w", n=n, session_id=self.engine.session_id, **options)).grants

    def complete(self, grant):
        self.engine.ask(c.Complete(job_id=grant.job.job_id, token=grant.token))

    def job(self, job_id):
        return self.engine.job(job_id)

    @property
    def seq(self):
        return self.store._tables.seq

    def idle(self, act):
        """Do it again, and see that nothing is left to do."""
        seq = self.seq
        report = act(self.engine)
        assert (self.seq, report) == (seq, Report())


@pytest.fixture
def scene():
    return Scene()


# --- recovery ---------------------------------------------------------------------------------------------------------


def test_recovery_ends_local_leases_of_earlier_openings_once(scene):
    scene.enqueue("a", "b", "c")
    scene.lease(2)
    scene.engine.ask(c.Lease(worker_id="remote"))
    scene.reopen()
    assert recover(scene.engine) == Report(ended_sessions=2)
    assert [scene.job(name).status for name in "abc"] == ["QUEUED", "QUEUED", "RUNNING"]
    assert scene.engine.runs("a")[0].reason == "restart"
    scene.idle(recover)
    scene.idle(recover)


def test_recovery_leaves_the_leases_of_this_opening_alone(scene):
    scene.enqueue("a")
    scene.lease()
    scene.idle(recover)


def test_recovery_ends_what_has_lapsed_too(scene):
    scene.enqueue("a", lease_s=5)
    scene.enqueue("b", ttl_s=5)
    scene.engine.ask(c.Lease(worker_id="remote"))
    scene.clock.advance(5)
    scene.reopen()
    assert recover(scene.engine) == Report(expired=2)
    assert (scene.job("a").status, scene.job("b").status) == ("QUEUED", "CANCELLED")
    scene.idle(recover)


def test_recovery_of_a_store_with_many_processes_ends_nobodys_lease(scene):
    scene.enqueue("a")
    scene.lease()
    scene.store.promises = msgspec.structs.replace(scene.store.promises, many_processes=True)
    scene.reopen()
    scene.idle(recover)


def test_a_thousand_leases_end_in_bounded_commits(scene):
    names = [f"j{number:04}" for number in range(1001)]
    for at in range(0, 1001, 1000):
        scene.enqueue(*names[at : at + 1000])
    while scene.lease(100):
        pass
    scene.reopen()
    sizes = []
    write = scene.store.write

    def measured():
        sizes.append(scene.seq)
        return write()

    scene.store.write = measured
    assert recover(scene.engine).ended_sessions == 1001
    sizes.append(scene.seq)
    assert max(after - before for before, after in pairwise(sizes)) <= 500


def test_tokens_go_on_growing_over_openings(scene):
    scene.enqueue("a")
    (first,) = scene.lease()
    scene.reopen()
    recover(scene.engine)
    (second,) = scene.lease()
    assert second.token > first.token
    outcome = scene.engine.submit(c.Complete(job_id="a", token=first.token))
    assert outcome.code == "lease_lost"


# --- tick -------------------------------------------------------------------------------------------------------------


def test_an_idle_tick_writes_nothing(scene):
    scene.enqueue("a")
    scene.idle(tick)


def test_a_tick_ends_lapsed_leases_and_stale_jobs(scene):
    scene.enqueue("a")
    scene.lease()
    scene.enqueue("b", ttl_s=30)
    assert next_wake(scene.engine) == later(NOW, 30)
    scene.clock.advance(29.999999)
    scene.idle(tick)
    scene.clock.advance(0.000001)
    assert tick(scene.engine) == Report(expired=2)
    scene.idle(tick)
    assert next_wake(scene.engine) is None


def remote(scene, job_id="a"):
    """Lease a job to a worker elsewhere, of which this process does not know whether it lives."""
    scene.enqueue(job_id)
    return scene.engine.ask(c.Lease(worker_id="remote")).grants


def test_a_jump_of_the_clock_is_not_held_against_the_jobs(scene):
    remote(scene)
    scene.clock.advance(10)
    scene.clock.set_wall(scene.clock.now() + timedelta(hours=2))
    assert tick(scene.engine).expired == 1
    assert (scene.job("a").expiries, scene.engine.runs("a")[0].reason) == (0, "clock_jump")


def test_lease_of_this_process_outlives_a_jump_of_the_clock_by_the_seconds_it_had_left(scene):
    scene.enqueue("a", timeout_s=60)
    (grant,) = scene.lease()
    scene.clock.advance(10)
    scene.clock.set_wall(scene.clock.now() + timedelta(hours=2))
    assert tick(scene.engine).expired == 0
    scene.clock.advance(20 - 0.000001)
    assert tick(scene.engine).expired == 0
    assert (scene.job("a").status, scene.job("a").token) == ("RUNNING", grant.token)
    scene.clock.advance(0.000001)
    assert tick(scene.engine).expired == 1
    assert (scene.job("a").expiries, scene.engine.runs("a")[0].reason) == (1, "timeout")


def test_lease_of_this_process_that_was_over_before_the_jump_ends(scene):
    scene.enqueue("a")
    scene.lease()
    scene.clock.advance(30)
    scene.clock.set_wall(scene.clock.now() + timedelta(hours=2))
    assert tick(scene.engine).expired == 1
    assert (scene.job("a").expiries, scene.engine.runs("a")[0].reason) == (1, "timeout")


def test_deadline_of_this_process_moves_along_with_the_clock(scene):
    scene.enqueue("a", timeout_s=3 * 3600)
    (grant,) = scene.lease()
    scene.clock.set_wall(scene.clock.now() + timedelta(hours=2))
    for _ in range(1080):
        scene.clock.advance(10)
        assert scene.engine.ask(c.Extend(job_id="a", token=grant.token)).lease_s > 0
    scene.complete(grant)


@pytest.mark.parametrize("jumps", [1, 3])
def test_holds_of_this_process_survive_a_jump_that_a_busy_store_did_not_take_down(scene, jumps):
    scene.enqueue("a")
    (grant,) = scene.lease()
    for _ in range(jumps):
        scene.clock.set_wall(scene.clock.now() + timedelta(hours=2))
        scene.engine.look()

    def busy():
        raise StoreBusy("others keep it")

    with listening("engine.decided", busy), pytest.raises(StoreBusy):
        tick(scene.engine)
    assert tick(scene.engine).expired == 0
    scene.complete(grant)


def test_reservation_of_this_process_outlives_a_jump_of_the_clock(scene):
    scene.engine.ask(
        c.Reserve(reservation_id="r", queue="default", reserved_by="me", ttl_s=60, session_id=scene.engine.session_id)
    )
    scene.engine.ask(c.Reserve(reservation_id="far", queue="other", reserved_by="somebody", ttl_s=60))
    scene.clock.set_wall(scene.clock.now() + timedelta(hours=2))
    assert tick(scene.engine).expired == 1
    scene.clock.advance(59)
    assert scene.engine.ask(c.RenewReservation(reservation_id="r", ttl_s=60)).left_s == 60


def test_a_jump_that_was_corrected_excuses_nothing_that_lapses_later(scene):
    scene.clock.set_wall(scene.clock.now() + timedelta(hours=1))
    scene.idle(tick)
    scene.clock.set_wall(scene.clock.now() - timedelta(hours=1))
    scene.enqueue("a")
    scene.lease()
    scene.clock.advance(30)
    assert tick(scene.engine).expired == 1
    assert (scene.job("a").expiries, scene.engine.runs("a")[0].reason) == (1, "timeout")


@pytest.mark.parametrize("how", ["complete", "extend", "lease"])
def test_whoever_comes_first_after_a_jump_finds_the_same(scene, how):
    (grant,) = remote(scene)
    scene.clock.set_wall(scene.clock.now() + timedelta(hours=2))
    scene.engine.new_id()  # somebody else looked at the clock before
    match how:
        case "complete":
            scene.engine.submit(c.Complete(job_id="a", token=grant.token))
        case "extend":
            scene.engine.submit(c.Extend(job_id="a", token=grant.token))
        case "lease":
            assert len(scene.lease()) == 1
    assert (scene.job("a").expiries, scene.engine.runs("a")[0].reason) == (0, "clock_jump")


def test_a_lease_ends_in_its_own_seconds_although_the_clock_was_set_back(scene):
    scene.enqueue("a")
    scene.lease()
    scene.clock.set_wall(scene.clock.now() - timedelta(hours=1))
    scene.clock.advance(29)
    scene.idle(tick)
    scene.clock.advance(1)
    assert tick(scene.engine).expired == 1
    assert (scene.job("a").status, scene.engine.runs("a")[0].reason) == ("QUEUED", "timeout")


def test_a_lease_of_an_earlier_process_is_not_immortal_after_a_step_back(scene):
    scene.enqueue("a", lease_s=30)
    scene.engine.ask(c.Lease(worker_id="remote"))
    scene.reopen()  # this process has not seen the grant
    scene.clock.set_wall(scene.clock.now() - timedelta(hours=1))
    scene.idle(tick)
    scene.clock.advance(29)
    scene.idle(tick)
    scene.clock.advance(1)
    assert tick(scene.engine).expired == 1


def test_a_step_back_leaves_leases_within_reach_to_the_wall(scene):
    scene.enqueue("a", lease_s=60)
    scene.engine.ask(c.Lease(worker_id="remote", lease_s=10))
    scene.reopen()
    scene.clock.set_wall(scene.clock.now() - timedelta(seconds=20))
    scene.clock.advance(29)
    scene.idle(tick)
    scene.clock.advance(1)
    assert tick(scene.engine).expired == 1


def test_a_holder_that_keeps_asking_keeps_its_lease_although_the_clock_was_set_back(scene):
    scene.enqueue("a")
    (grant,) = scene.lease()
    scene.clock.set_wall(scene.clock.now() - timedelta(hours=1))
    for _ in range(9):
        scene.clock.advance(10)
        assert scene.engine.ask(c.Extend(job_id="a", token=grant.token)).lease_s == 30
        scene.idle(tick)
    scene.clock.advance(29)
    scene.idle(tick)
    scene.clock.advance(1)
    assert tick(scene.engine).expired == 1


def test_a_store_that_was_busy_does_not_make_an_overdue_lease_immortal(scene):
    scene.enqueue("a")
    scene.lease()
    scene.clock.set_wall(scene.clock.now() - timedelta(hours=1))
    scene.clock.advance(30)

    def busy():
        raise StoreBusy("others keep it")

    with listening("engine.decided", busy), pytest.raises(StoreBusy):
        tick(scene.engine)
    assert tick(scene.engine).expired == 1


def test_many_overdue_leases_all_end(scene):
    scene.enqueue(*(f"j{number}" for number in range(600)))
    while scene.lease(100):
        pass
    scene.clock.set_wall(scene.clock.now() - timedelta(hours=1))
    scene.clock.advance(30)
    assert tick(scene.engine).expired == 600
    scene.idle(tick)


# --- retention --------------------------------------------------------------------------------------------------------


def test_what_succeeded_goes_after_a_week_and_what_failed_after_a_month(scene):
    scene.enqueue("done", "failed")
    done, failed = scene.lease(2)
    scene.complete(done)
    scene.engine.ask(c.Fail(job_id="failed", token=failed.token, error="e", fatal=True))
    scene.clock.advance(7 * DAY - 1)
    assert tick(scene.engine).pruned == 0
    scene.clock.advance(1)
    assert tick(scene.engine).pruned == 1
    assert [job.job_id for job in jobs(scene)] == ["failed"]
    scene.idle(tick)
    scene.clock.advance(23 * DAY)
    assert tick(scene.engine).pruned == 1
    assert (jobs(scene), scene.engine.runs("failed")) == ([], ())
    scene.idle(tick)


def jobs(scene):
    with scene.engine.read() as view:
        return list(view.all(Job))


def test_a_chain_goes_whole_or_not_at_all(scene):
    scene.enqueue("a", retry_mode=RetryMode.CHAIN)
    (grant,) = scene.lease()
    heir = scene.engine.ask(c.Fail(job_id="a", token=grant.token, error="e")).successor
    scene.clock.advance(40 * DAY)
    assert tick(scene.engine).pruned == 0  # its last link waits
    (grant,) = scene.lease()
    scene.complete(grant)
    scene.clock.advance(7 * DAY - 1)
    scene.idle(tick)
    scene.clock.advance(1)
    assert tick(scene.engine).pruned == 2
    assert jobs(scene) == []
    assert heir == grant.job.job_id


def test_retention_can_be_chosen_even_for_ever(scene):
    scene.enqueue("a")
    scene.complete(*scene.lease())
    scene.clock.advance(1000 * DAY)
    for long in (float("inf"), 1e12):
        assert tick(scene.engine, c.Retention(done_s=long)).pruned == 0
    assert tick(scene.engine, c.Retention(done_s=1)).pruned == 1


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("-inf")])
def test_a_retention_that_makes_no_sense_is_refused(scene, seconds):
    scene.enqueue("a")
    scene.complete(*scene.lease())
    scene.clock.advance(DAY)
    with pytest.raises(InvalidValue):
        tick(scene.engine, c.Retention(done_s=seconds))
    assert len(jobs(scene)) == 1


def test_remembered_commands_are_forgotten_after_an_hour(scene):
    scene.engine.ask(c.PauseDispatch(cmd="p"))
    scene.clock.advance(3599)
    scene.idle(tick)
    scene.clock.advance(1)
    assert tick(scene.engine).pruned == 1
    with scene.engine.read() as view:
        assert list(view.all(DoneCommand)) == []


def test_old_events_leave_the_feed(scene):
    scene.enqueue("a")
    scene.clock.advance(FEED_S + 1)
    assert tick(scene.engine) == Report(trimmed=1)
    with pytest.raises(InvalidValue):
        scene.store.feed(0)


def test_content_that_cannot_be_swept_stops_nobody(scene, monkeypatch, caplog):
    def fails(before, limit):
        raise StoreFailed("jobs: removing old blobs failed: [Errno 13] Permission denied.")

    monkeypatch.setattr(scene.store.blobs, "sweep", fails)
    scene.enqueue("a")
    scene.clock.advance(FEED_S + 1)
    assert tick(scene.engine) == Report(trimmed=1)
    (record,) = caplog.records
    assert record.message == "store.not_swept"
    assert "Permission denied" in record.error


def test_a_tick_drops_all_events_that_are_old_however_many(scene):
    for part in range(0, 1200, 400):
        scene.enqueue(*(f"j{number}" for number in range(part, part + 400)))
    scene.clock.advance(FEED_S + 1)
    assert tick(scene.engine).trimmed == 1200
    scene.idle(tick)


def test_a_lease_extended_through_another_engine_is_not_ended_by_the_granters_watch(tmp_path):
    clock = ManualClock()
    granter = Engine(SqliteStore.open(tmp_path / "jobs.db"), clock=clock)
    other = Engine(SqliteStore.open(tmp_path / "jobs.db"), clock=clock)
    granter.ask(c.Enqueue(jobs=(c.NewJob(job_id="a", job_type="work", params=msgspec.Raw(b"{}")),)))
    (grant,) = granter.ask(c.Lease(worker_id="w")).grants
    clock.advance(20)
    other.ask(c.Extend(job_id="a", token=grant.token))
    clock.advance(20)
    assert tick(granter).expired == 0
    assert granter.job("a").status == "RUNNING"
    granter.close()
    other.close()


# --- steps that stand alone -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["mend", "_end_sessions", "end_lapsed", "adopt"])
def test_a_step_of_recovery_that_fails_is_told_and_the_others_go_on(scene, monkeypatch, caplog, broken):
    scene.enqueue("a", "b")
    scene.lease()
    scene.engine.ask(c.Lease(worker_id="remote", lease_s=5))
    scene.clock.advance(5)
    scene.reopen()

    def fail(*_args):
        raise ZeroDivisionError("a mistake in a rule")

    with monkeypatch.context() as once:
        once.setattr(maintenance, broken, fail)
        report = recover(scene.engine)
    assert len(report.failed) == 1
    assert (report.ended_sessions, report.expired) == (broken != "_end_sessions", broken != "end_lapsed")
    (told,) = [record for record in caplog.records if record.message == "maintenance.failed"]
    assert (told.step, told.error) == (report.failed[0], "a mistake in a rule")
    recover(scene.engine)
    scene.idle(recover)


@pytest.mark.parametrize("broken", ["end_lapsed", "fire_due", "_prune", "_trim", "_sweep"])
def test_a_step_of_the_tick_that_fails_is_told_and_the_others_go_on(scene, monkeypatch, broken):
    scene.enqueue("a", "b", lease_s=5)
    scene.complete(scene.lease()[0])
    scene.clock.advance(8 * DAY)
    scene.lease()
    scene.clock.advance(5)

    def fail(*_args):
        raise ZeroDivisionError("a mistake in a rule")

    monkeypatch.setattr(maintenance, broken, fail)
    report = tick(scene.engine)
    assert len(report.failed) == 1
    found = (report.expired, report.pruned, report.trimmed > 0)
    assert found == (broken != "end_lapsed", broken != "_prune", broken != "_trim")


def test_what_the_store_itself_raises_is_raised_after_the_other_steps(scene, monkeypatch):
    scene.enqueue("a", lease_s=5)
    scene.lease()
    scene.clock.advance(5)

    def busy(*_args):
        raise StoreBusy("someone else writes.")

    monkeypatch.setattr(maintenance, "mend", busy)
    with pytest.raises(StoreBusy):
        recover(scene.engine)
    assert scene.job("a").status == "QUEUED"
