"""Recovery from damage: what no command leaves behind is brought back to what every command knows."""

import msgspec
import pytest
from world import STEADY, World, replay

from holdfast.errors import CorruptState
from holdfast.model import commands as c
from holdfast.model import events as ev
from holdfast.model.jobs import Backoff, Job, JobStatus, Run, RunStatus
from holdfast.model.outcomes import Mended
from holdfast.model.times import later
from holdfast.rules.decide import decide
from holdfast.rules.fold_changes import Stamp
from holdfast.rules.random_source import Draws

replace = msgspec.structs.replace


class Damaged(World):
    """A world whose records can be changed below the rules."""

    def mend(self, **options):
        """Mend, twice: the second time nothing is found."""
        outcome = self.do(c.Mend(**options))
        length = len(self.groups)
        assert self.do(c.Mend(**options)) == Mended()
        assert len(self.groups) == length
        return outcome

    def lose_run(self, job_id):
        self.tables.put(Run, self.tables.last_run(job_id).run_id, None)

    def end_run(self, job_id, **end):
        run = replace(self.tables.last_run(job_id), finished_at=self.now, **end)
        self.tables.put(Run, run.run_id, run)
        return run


@pytest.fixture
def world():
    return Damaged()


def test_what_is_well_is_left_alone(world):
    world.start("running")
    world.enqueue("queued")
    world.do(c.Complete(job_id="done", token=world.start("done", queue="q")))
    assert world.mend(chains=True) == Mended()


@pytest.mark.parametrize(
    ("options", "status"),
    [({}, "QUEUED"), ({"retry_mode": "chain"}, "FAILED"), ({"max_expiries": 1}, "DEAD")],
)
def test_a_lease_without_a_run_is_a_lost_one(world, options, status):
    token = world.start("j", **options)
    world.lose_run("j")
    assert world.mend() == Mended(runs=1)
    job, run = world.job("j"), world.tables.last_run("j")
    assert (job.status, job.expiries, job.token) == (status, 1, None)
    assert (run.status, run.reason, run.run_no, run.token) == (RunStatus.LOST, "damaged", 1, token)


def test_a_lease_whose_run_is_an_earlier_one_has_none(world):
    world.start("j")
    world.wait(30)
    world.do(c.Expire())
    world.do(c.Lease(worker_id="w"))
    world.lose_run("j")
    assert world.mend() == Mended(runs=1)
    assert [run.run_no for run in world.tables.runs("j")] == [1, 2]


def test_a_cancelled_job_without_a_run_is_not_tried_again(world):
    world.start("j")
    world.do(c.Cancel(job_id="j"))
    world.lose_run("j")
    world.mend()
    assert world.job("j").status is JobStatus.CANCELLED


def test_a_failure_that_the_job_has_not_heard_of_is_retried_with_its_backoff(world):
    world.start("j", backoff=Backoff(base_s=50, jitter=0))
    run = world.end_run("j", status=RunStatus.FAILED, error="boom")
    world.wait(7)
    assert world.mend() == Mended(jobs=1)
    job = world.job("j")
    assert (job.status, job.attempts, job.error) == (JobStatus.QUEUED, 1, "boom")
    assert job.not_before == later(world.now, 50)
    assert world.tables.runs("j") == (run,)


def test_after_a_cancel_request_only_completion_wins(world):
    for name in "abd":
        world.start(name, queue=name)
        world.do(c.Cancel(job_id=name))
    for name, status in (("a", RunStatus.COMPLETED), ("b", RunStatus.FAILED), ("d", RunStatus.LOST)):
        world.end_run(name, status=status, error="boom")
    assert world.mend() == Mended(jobs=3)
    assert [world.job(name).status for name in "abd"] == ["COMPLETED", "CANCELLED", "CANCELLED"]


def test_what_lapsed_in_a_jump_of_the_clock_is_not_held_against_the_job(world):
    world.start("j", max_expiries=1)
    world.end_run("j", status=RunStatus.LOST, reason="clock_jump")
    world.mend()
    assert (world.job("j").status, world.job("j").expiries) == (JobStatus.QUEUED, 0)


def unfollowed(world, **options):
    token = world.start("j", retry_mode="chain", **options)
    failed = ev.JobFailed(job_id="j", token=token, error="e", error_kind="exception", to=JobStatus.FAILED)
    world.tables.add([failed], world.now)


def test_a_chain_that_broke_off_is_carried_on_when_it_is_looked_for(world):
    unfollowed(world)
    assert decide(world.tables, c.Mend(), world.now, Draws(world.now, 7)).events == ()
    assert world.mend(chains=True) == Mended(chains=1)
    (heir,) = world.tables.successors("j")
    assert (heir.attempts, heir.max_attempts, heir.not_before) == (1, 4, later(world.now, STEADY.base_s))


def test_a_chain_that_has_ended_is_not_carried_on(world):
    unfollowed(world, max_attempts=1)
    world.do(c.Fail(job_id="k", token=world.start("k", queue="q", retry_mode="chain"), error="e", fatal=True))
    bad = {"error": "e", "error_kind": "bad_result"}
    world.do(c.Fail(job_id="l", token=world.start("l", queue="r", retry_mode="chain"), **bad))
    assert world.mend(chains=True) == Mended()


def test_a_commit_mends_no_more_than_its_limit(world):
    for number in range(3):
        world.start(f"j{number}", queue=f"q{number}")
    for number in range(3):
        world.lose_run(f"j{number}")
    decision = world.decide(c.Mend(limit=2))
    assert decision.outcome == Mended(runs=2, more=True)


def test_what_was_mended_replays(world):
    unfollowed(world)
    world.do(c.Mend(chains=True))
    (heir,) = world.tables.successors("j")
    assert replay(world.groups).get(Job, heir.job_id) == heir


@pytest.mark.parametrize("run_id", ["r", None])
def test_no_event_mends_what_is_well(world, run_id):
    world.start("j")
    run = run_id or world.tables.last_run("j").run_id
    mended = ev.JobMended(job_id="j", run_id=run, to=JobStatus.FAILED, attempts=1, expiries=0, snoozes=0)
    with pytest.raises(CorruptState, match="no ended run"):
        world.tables.add([mended], world.now)
    lost = ev.LeaseExpired(job_id="j", token=1, reason="damaged", counted=True, to=JobStatus.QUEUED, run_id="new")
    with pytest.raises(CorruptState, match="for its lease"):
        world.tables.add([lost], world.now)
    with pytest.raises(CorruptState, match="has its job"):
        world.tables.replay(ev.RunDropped(run_id=run), Stamp(9, world.now))


def test_only_runs_without_a_job_can_be_dropped(world):
    world.do(c.Complete(job_id="j", token=world.start("j")))
    run = world.tables.last_run("j")
    assert world.refused(c.DropRuns(runs=(run.run_id,))) == "invalid_operation"
    assert world.refused(c.DropRuns(runs=("none",))) == "run_not_found"
    assert world.refused(c.DropRuns(runs=())) == "invalid_value"
    assert world.refused(c.DropRuns(runs=("\n",))) == "invalid_value"
    world.tables.put(Run, "lost", replace(run, run_id="lost", job_id="gone", token=None))
    assert world.do(c.DropRuns(runs=("lost", "lost"))).count == 1
