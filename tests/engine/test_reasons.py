"""Every job that has not ended has exactly one reason, and it names what holds the job."""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.engine.engine import Engine
from holdfast.engine.maintenance import tick
from holdfast.engine.reasons import reason_of
from holdfast.model.commands import (
    Cancel,
    Complete,
    Enqueue,
    Fail,
    Lease,
    NewJob,
    PauseDispatch,
    PauseQueue,
    Release,
    ResumeDispatch,
    ResumeQueue,
    SetQueue,
    Snooze,
)
from holdfast.model.events import QueueChanges
from holdfast.model.jobs import Backoff, RetryMode
from holdfast.model.outcomes import Refusal
from holdfast.model.times import later, stamp
from holdfast.model.workers import Wish, WorkerInfo, WorkerState
from holdfast.stores.opening import open_store
from holdfast.stores.protocol import JobQuery
from holdfast.testing.clock import ManualClock

WAITING = {
    "dispatch_paused",
    "queue_paused",
    "delayed",
    "key_limit",
    "queue_limit",
    "rate_limit",
    "no_worker",
    "behind",
    "ready",
}
RUNNING = {"running", "cancel_requested", "lease_lapsed"}
EMPTY = msgspec.Raw(b"{}")


class World:
    """An engine, and the shortest way to put a job into any state."""

    def __init__(self, url="memory:"):
        self.clock = ManualClock()
        self.engine = Engine(open_store(url, clock=self.clock), clock=self.clock)

    def now(self):
        return stamp(self.clock.now())

    def enqueue(self, job_id, **more):
        self.engine.ask(Enqueue(jobs=(NewJob(job_id=job_id, job_type="send", params=EMPTY, queue="mail", **more),)))
        return job_id

    def lease(self, n=1):
        command = Lease(cmd=self.engine.new_id(), worker_id="w-1", queues=("mail",), n=n)
        return self.engine.ask(command).grants

    def worker(self, **more):
        known = {
            "worker_id": "w-1",
            "name": "w-1",
            "host": "h",
            "pid": 1,
            "version": "0",
            "queues": ("mail",),
            "job_types": ("send",),
            "started_at": self.now(),
            "last_seen": self.now(),
        }
        self.engine.store.workers.note(WorkerInfo(**{**known, **more}))

    def reason(self, job_id):
        return reason_of(self.engine, self.engine.job(job_id))


@pytest.fixture(params=["memory", "wal", "sqlite"])
def world(request, tmp_path):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    found = World(urls[request.param])
    found.worker()
    yield found
    found.engine.close()


def test_a_job_nobody_holds_back_is_next(world):
    reason = world.reason(world.enqueue("a"))
    assert (reason.code, reason.holder) == ("ready", "mail")


def test_a_job_behind_others_names_the_first_of_them_and_their_number(world):
    for name in ("a", "b", "c"):
        world.enqueue(name)
    reason = world.reason("c")
    assert (reason.code, reason.holder, reason.sentence) == ("behind", "a", "2 ahead in queue mail")


def test_a_job_that_waits_for_its_time_says_when(world):
    reason = world.reason(world.enqueue("a", delay_s=60))
    assert (reason.code, reason.until, reason.holder) == ("delayed", later(world.now(), 60), None)
    assert "not before" in reason.sentence


def test_a_job_whose_time_has_come_stands_in_line_before_anybody_leases(world):
    world.enqueue("early", delay_s=60)
    world.clock.advance(61)
    world.worker()
    world.enqueue("late")
    assert (world.reason("early").code, world.reason("late").holder) == ("ready", "early")


def test_a_job_that_backs_off_names_the_run_that_failed(world):
    world.enqueue("a", backoff=Backoff(jitter=0))
    (grant,) = world.lease()
    world.engine.ask(Fail(job_id=grant.job.job_id, token=grant.token, error="ValueError: no"))
    reason = world.reason("a")
    assert (reason.code, reason.holder, reason.until) == ("delayed", grant.run_id, later(world.now(), 10))
    assert reason.sentence == f"attempt 2 of 4 at {reason.until}; last: ValueError: no"


def test_a_snoozed_job_names_the_run_that_snoozed(world):
    world.enqueue("a")
    (grant,) = world.lease()
    world.engine.ask(Snooze(job_id=grant.job.job_id, token=grant.token, delay_s=90))
    reason = world.reason("a")
    assert (reason.code, reason.holder, reason.until) == ("delayed", grant.run_id, later(world.now(), 90))
    assert "snoozed" in reason.sentence


def test_a_paused_queue_is_named_with_why(world):
    world.enqueue("a")
    world.engine.ask(PauseQueue(queue="mail", reason="the relay is down"))
    reason = world.reason("a")
    assert (reason.code, reason.holder) == ("queue_paused", "mail")
    assert "the relay is down" in reason.sentence


def test_paused_dispatch_comes_before_all_else(world):
    world.enqueue("a", delay_s=60)
    world.engine.ask(PauseQueue(queue="mail"))
    world.engine.ask(PauseDispatch(reason="inventory"))
    reason = world.reason("a")
    assert (reason.code, reason.holder) == ("dispatch_paused", "dispatch")
    assert "inventory" in reason.sentence


@pytest.mark.parametrize(
    "worker",
    [
        {"queues": ("other",)},
        {"job_types": ("receive",)},
        {"namespace": "elsewhere"},
        {"state": WorkerState.DRAINING},
        {"wish": Wish.QUIET},
    ],
)
def test_a_job_that_no_live_worker_would_take_says_so(world, worker):
    world.worker(**worker)
    reason = world.reason(world.enqueue("a"))
    assert (reason.code, reason.holder) == ("no_worker", "send")


def test_a_worker_that_was_not_heard_of_for_long_is_no_live_one(world):
    world.enqueue("a")
    world.clock.advance(3600)
    assert world.reason("a").code == "no_worker"
    world.worker()
    assert world.reason("a").code == "ready"


def test_a_worker_that_knows_every_task_serves_any(world):
    world.worker(job_types=None)
    assert world.reason(world.enqueue("a")).code == "ready"


def test_a_running_job_names_its_worker_and_the_end_of_its_lease(world):
    world.enqueue("a")
    world.lease()
    reason = world.reason("a")
    assert (reason.code, reason.holder, reason.until) == ("running", "w-1", later(world.now(), 30))


def test_a_job_that_was_asked_to_stop_says_so(world):
    world.enqueue("a")
    world.lease()
    world.engine.ask(Cancel(job_id="a", reason="changed my mind"))
    reason = world.reason("a")
    assert (reason.code, reason.holder) == ("cancel_requested", "w-1")
    assert "changed my mind" in reason.sentence


def test_a_lapsed_lease_is_named_until_it_is_ended(world):
    world.enqueue("a")
    world.lease()
    world.clock.advance(31)
    reason = world.reason("a")
    assert (reason.code, reason.holder) == ("lease_lapsed", "w-1")
    tick(world.engine)
    world.worker()
    assert world.reason("a").code == "ready"


class Life(RuleBasedStateMachine):
    """Whatever is done to jobs, each that has not ended has one reason that fits its status."""

    def __init__(self):
        super().__init__()
        self.world = World()
        self.names = 0
        self.grants = []

    def teardown(self):
        self.world.engine.close()

    @rule(
        delay=st.sampled_from([None, None, 30.0]),
        priority=st.integers(-1, 1),
        limit_key=st.sampled_from([None, "k"]),
        retry=st.sampled_from(list(RetryMode)),
        ttl=st.sampled_from([None, None, 20.0]),
    )
    def enqueue(self, delay, priority, limit_key, retry, ttl):
        self.names += 1
        name = f"j{self.names}"
        self.world.enqueue(name, delay_s=delay, priority=priority, limit_key=limit_key, retry_mode=retry, ttl_s=ttl)

    @rule(n=st.integers(1, 3))
    def lease(self, n):
        self.grants += self.world.lease(n)

    @precondition(lambda self: self.grants)
    @rule(pick=st.integers(0, 9), how=st.sampled_from(["complete", "fail", "snooze", "release"]))
    def report(self, pick, how):
        grant = self.grants.pop(pick % len(self.grants))
        job_id, token = grant.job.job_id, grant.token
        command = {
            "complete": Complete(job_id=job_id, token=token),
            "fail": Fail(job_id=job_id, token=token, error="no"),
            "snooze": Snooze(job_id=job_id, token=token, delay_s=15),
            "release": Release(job_id=job_id, token=token, begun=True),
        }[how]
        self.world.engine.submit(command)  # refused if the lease is over

    @rule(pick=st.integers(1, 20), force=st.booleans())
    def cancel(self, pick, force):
        self.world.engine.submit(Cancel(job_id=f"j{pick}", force=force))

    @rule(paused=st.booleans())
    def pause_queue(self, paused):
        self.world.engine.ask(PauseQueue(queue="mail") if paused else ResumeQueue(queue="mail"))

    @rule(paused=st.booleans())
    def pause_dispatch(self, paused):
        self.world.engine.ask(PauseDispatch() if paused else ResumeDispatch())

    @rule(limit=st.sampled_from([None, 1, 2]), rate=st.sampled_from([None, 2]))
    def limit(self, limit, rate):
        changes = QueueChanges(max_running=limit, rate_count=rate, rate_period_s=None if rate is None else 20.0)
        self.world.engine.ask(SetQueue(queue="mail", changes=changes))

    @rule(there=st.booleans())
    def worker(self, there):
        self.world.worker() if there else self.world.engine.store.workers.drop("w-1")

    @rule(seconds=st.sampled_from([1.0, 10.0, 31.0]), ticked=st.booleans())
    def time_passes(self, seconds, ticked):
        self.world.clock.advance(seconds)
        if ticked:
            tick(self.world.engine)

    @invariant()
    def every_job_that_has_not_ended_has_one_reason(self):
        engine = self.world.engine
        with engine.read() as view:
            jobs = view.jobs(JobQuery(limit=1000))
        now = self.world.now()
        for job in jobs:
            reason = reason_of(engine, job)
            assert reason.sentence
            assert reason.code in ({"ended"} if job.has_ended else RUNNING if job.status == "RUNNING" else WAITING)
            if not job.has_ended:
                assert reason.holder or (reason.code == "delayed" and reason.until > now)
        ready = [job for job in jobs if not job.has_ended and reason_of(engine, job).code == "ready"]
        assert len(ready) <= 1

    @rule()
    def what_is_next_is_leased_next(self):
        """The reason is true: the job that is said to be next is the one a worker gets."""
        self.world.worker()
        engine = self.world.engine
        with engine.read() as view:
            jobs = [job for job in view.jobs(JobQuery(limit=1000)) if not job.has_ended]
        # Time may have ended leases and starts of jobs, which a Lease would see to first.
        tick(engine)
        jobs = [engine.job(job.job_id) for job in jobs]
        reasons = {job.job_id: reason_of(engine, job).code for job in jobs if not job.has_ended}
        outcome = self.world.engine.submit(Lease(cmd=engine.new_id(), worker_id="w-1", queues=("mail",)))
        assert not isinstance(outcome, Refusal)
        self.grants += outcome.grants
        got = [grant.job.job_id for grant in outcome.grants]
        held = {"dispatch_paused", "queue_paused", "delayed", "key_limit", "queue_limit", "rate_limit"}
        assert [name for name in got if reasons.get(name, "ready") in held] == []
        if "ready" in reasons.values():
            assert [reasons[name] for name in got if name in reasons] == ["ready"]


Life.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestEveryReachableState = Life.TestCase
