"""Limits: places of a queue and of a key, rates, aging. Counted where a Lease is decided."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import START, World

from holdfast.model import commands as c
from holdfast.model.events import JobChanges, QueueChanges
from holdfast.model.jobs import Job, JobStatus, RetryKind, Run
from holdfast.model.records import Queue, pair
from holdfast.model.times import later
from holdfast.rules.jobs.limits import next_opening, rate_opens_at, settings_of


@pytest.fixture
def world():
    return World()


def limit(world, queue="default", **changes):
    return world.do(c.SetQueue(queue=queue, changes=QueueChanges(**changes)))


def ids(grants):
    return [grant.job.job_id for grant in grants]


def complete(world, *grants):
    for grant in grants:
        world.do(c.Complete(job_id=grant.job.job_id, token=grant.token))


def fill(world, *job_ids, **options):
    for job_id in job_ids:
        world.enqueue(job_id, **options)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_only_named_settings_change_and_none_takes_them_away(world):
    limit(world, max_running=3, rate_count=5, rate_period_s=60)
    limit(world, aging_s=300, rate_scope="key")
    assert settings_of(world.tables, "", "default") == Queue(
        "", "default", max_running=3, rate_count=5, rate_period_s=60, rate_scope="key", aging_s=300
    )
    limit(world, max_running=None, rate_count=None, rate_period_s=None, aging_s=None, rate_scope="queue")
    assert settings_of(world.tables, "", "default") == Queue("", "default")


def test_a_pause_and_the_limits_leave_each_other_alone(world):
    world.do(c.PauseQueue(queue="default", reason="r"))
    limit(world, max_running=3)
    world.do(c.ResumeQueue(queue="default"))
    assert settings_of(world.tables, "", "default") == Queue("", "default", max_running=3)


def test_setting_what_is_set_writes_nothing(world):
    limit(world, max_running=3)
    seq = world.tables.seq
    limit(world, max_running=3)
    limit(world, "other", max_running=None)
    assert world.tables.seq == seq


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({}, "changes"),
        ({"max_running": 0}, "max_running"),
        ({"max_running": 1_000_001}, "max_running"),
        ({"rate_count": 1}, "rate_period_s"),
        ({"rate_period_s": 1.0}, "rate_period_s"),
        ({"rate_count": None, "rate_period_s": 1.0}, "rate_period_s"),
        ({"rate_count": 1, "rate_period_s": None}, "rate_period_s"),
        ({"rate_count": None}, "rate_period_s"),
        ({"rate_count": 0, "rate_period_s": 1.0}, "rate_count"),
        ({"rate_count": 1, "rate_period_s": 0.0}, "rate_period_s"),
        ({"rate_count": 1, "rate_period_s": 32 * 86_400.0}, "rate_period_s"),
        ({"rate_count": 1, "rate_period_s": float("nan")}, "rate_period_s"),
        ({"aging_s": 0}, "aging_s"),
        ({"aging_s": float("inf")}, "aging_s"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(world, changes, field):
    outcome = world.tell(c.SetQueue(queue="q", changes=QueueChanges(**changes)))
    assert (outcome.code, outcome.facts["field"]) == ("invalid_value", field)
    assert world.refused(c.SetQueue(queue="no name", changes=QueueChanges(max_running=1))) == "invalid_value"
    assert world.groups == []


# --- places of a queue ------------------------------------------------------------------------------------------------


def test_a_queue_never_runs_more_than_its_places(world):
    limit(world, max_running=2)
    fill(world, "a", "b", "c", "d")
    first = world.lease(10)
    assert ids(first) == ["a", "b"]
    assert world.lease(10, worker_id="w2") == ()
    complete(world, first[0])
    assert ids(world.lease(10)) == ["c"]
    assert world.lease(10) == ()


@pytest.mark.parametrize("ending", ["fail", "release", "snooze", "give up", "force", "bury", "expire"])
def test_a_place_is_free_however_the_execution_ended(world, ending):
    limit(world, max_running=1)
    fill(world, "a", "b", max_attempts=2)
    (grant,) = world.lease()
    held = {"job_id": "a", "token": grant.token}
    match ending:
        case "fail":
            world.do(c.Fail(**held, error="e"))
        case "release":
            world.do(c.Release(**held, begun=True, delay_s=5))
        case "snooze":
            world.do(c.Snooze(**held, delay_s=5))
        case "give up":
            world.do(c.GiveUp(**held))
        case "force":
            world.do(c.Cancel(job_id="a", force=True))
        case "bury":
            world.do(c.Bury(job_id="a"))
        case "expire":
            world.wait(29.999999)
            assert world.lease() == ()
            world.wait(0.000001)
            world.do(c.Expire())
            world.do(c.Cancel(job_id="a"))
    assert ids(world.lease(2)) == ["b"]


def test_a_full_queue_does_not_hold_back_the_others(world):
    limit(world, max_running=1)
    fill(world, "a", "b", priority=5)
    fill(world, "x", "y", queue="other")
    assert ids(world.lease(10, queues=("default", "other"))) == ["a", "x", "y"]
    fill(world, "z", queue="other")
    assert ids(world.lease(10, queues=("default", "other"))) == ["z"]


def test_of_a_queue_that_is_full_no_more_jobs_are_met(world, monkeypatch):
    limit(world, max_running=1)
    fill(world, *(f"a{n:02}" for n in range(20)))
    fill(world, "x", priority=-1, queue="other")
    met = []
    walk = world.tables.ready

    def walked(*asked, free):
        for job in walk(*asked, free=free):
            met.append(job.job_id)
            yield job

    monkeypatch.setattr(world.tables, "ready", walked)
    assert ids(world.lease(5, queues=("default", "other"))) == ["a00", "x"]
    assert met == ["a00", "x"]


def test_places_are_counted_by_queue_and_namespace(world):
    limit(world, max_running=1)
    fill(world, "a", "b")
    fill(world, "c", "d", namespace="x")
    assert ids(world.lease(10, namespace="x")) == ["c", "d"]
    assert ids(world.lease(10)) == ["a"]


def test_a_limit_below_what_runs_ends_nothing_and_starts_nothing(world):
    fill(world, "a", "b", "c", "d")
    grants = world.lease(3)
    limit(world, max_running=1)
    assert world.lease() == ()
    complete(world, *grants[:2])
    assert world.lease() == ()
    complete(world, grants[2])
    assert ids(world.lease(3)) == ["d"]


def test_two_leases_of_one_batch_share_the_places(world):
    limit(world, max_running=3)
    fill(world, "a", "b", "c", "d")
    assert [len(world.lease(2, worker_id=name)) for name in ("w1", "w2", "w3")] == [2, 1, 0]


# --- places of a key --------------------------------------------------------------------------------------------------


def test_jobs_of_one_limit_key_share_its_places_and_hold_back_no_other(world):
    fill(world, "a", "b", limit_key="k")
    fill(world, "c", limit_key="l")
    fill(world, "d")
    grants = world.lease(10)
    assert ids(grants) == ["a", "c", "d"]
    complete(world, grants[0])
    assert ids(world.lease(10)) == ["b"]


def test_a_key_has_as_many_places_as_the_job_that_asks_allows(world):
    fill(world, "a", "b", "c", limit_key="k", key_limit=2)
    fill(world, "d", limit_key="k", key_limit=3)
    assert ids(world.lease(10)) == ["a", "b", "d"]
    assert world.lease(10) == ()


def test_a_key_is_shared_by_all_queues_of_its_namespace(world):
    fill(world, "a", limit_key="k")
    fill(world, "b", limit_key="k", queue="other")
    fill(world, "c", limit_key="k", namespace="x")
    assert ids(world.lease(10, queues=("default", "other"))) == ["a"]
    assert world.lease(10, queues=("other",)) == ()
    assert ids(world.lease(10, namespace="x")) == ["c"]


def test_a_waiting_or_delayed_job_does_not_hold_its_key(world):
    fill(world, "a", limit_key="k", delay_s=60, priority=9)
    fill(world, "b", limit_key="k", job_type="unknown")
    fill(world, "c", limit_key="k")
    assert ids(world.lease(10, job_types=("t",))) == ["c"]


def test_jobs_whose_key_is_full_are_left_out_of_the_walk_and_of_nothing_else(world):
    fill(world, "a", "b", limit_key="k")
    fill(world, "c", limit_key="k", key_limit=2)
    fill(world, "d", namespace="x", limit_key="k")
    fill(world, "e")
    (grant,) = world.lease()

    def ready(**how):
        return [job.job_id for job in world.tables.ready("", ("default",), None, world.now, **how)]

    assert (ready(), ready(free=True)) == (["b", "c", "e"], ["c", "e"])
    complete(world, grant)
    assert ready(free=True) == ["b", "c", "e"]


def test_another_key_given_to_a_waiting_job_counts_from_then_on(world):
    fill(world, "a", "b", limit_key="k")
    world.lease()
    assert world.lease() == ()
    world.do(c.Update(job_id="b", changes=JobChanges(limit_key="l")))
    assert ids(world.lease()) == ["b"]
    world.enqueue("d", limit_key="l")
    assert world.lease() == ()
    world.do(c.Update(job_id="d", changes=JobChanges(key_limit=2)))
    assert ids(world.lease()) == ["d"]


# --- rates ------------------------------------------------------------------------------------------------------------


def test_no_more_start_in_a_period_than_the_rate_allows(world):
    limit(world, rate_count=2, rate_period_s=60)
    fill(world, *"abcde")
    assert ids(world.lease(10)) == ["a", "b"]
    world.wait(59.999999)
    assert world.lease(10) == ()
    world.wait(0.000001)
    assert ids(world.lease(1)) == ["c"]
    world.wait(30)
    assert ids(world.lease(10)) == ["d"]
    world.wait(29)
    assert world.lease(10) == ()
    world.wait(1)
    assert ids(world.lease(10)) == ["e"]


def test_a_rate_counts_starts_whatever_became_of_them(world):
    limit(world, rate_count=2, rate_period_s=60)
    fill(world, *"abc")
    first, second = world.lease(10)
    complete(world, first)
    world.do(c.Release(job_id="b", token=second.token, begun=False))
    assert world.lease(10) == ()


def test_a_job_that_was_skipped_has_not_started(world):
    limit(world, rate_count=1, rate_period_s=60)
    fill(world, "stale", ttl_s=1, limit_key="k")
    fill(world, "a", limit_key="k")
    world.wait(1)
    assert ids(world.lease(10)) == ["a"]


def test_a_rate_for_each_key_leaves_jobs_without_one_alone(world):
    limit(world, rate_count=1, rate_period_s=60, rate_scope="key")
    fill(world, "a", "b", limit_key="k", key_limit=9)
    fill(world, "c", limit_key="l", key_limit=9)
    fill(world, "d", "e")
    assert ids(world.lease(10)) == ["a", "c", "d", "e"]
    world.wait(60)
    assert ids(world.lease(10)) == ["b"]


def test_starts_before_the_rate_was_set_count_too(world):
    fill(world, *"abc")
    world.lease(2)
    limit(world, rate_count=2, rate_period_s=60)
    assert world.lease() == ()
    limit(world, rate_count=3, rate_period_s=60)
    assert ids(world.lease()) == ["c"]


def test_after_the_clock_was_set_back_a_rate_is_kept_rather_too_long_than_broken(world):
    limit(world, rate_count=2, rate_period_s=60)
    fill(world, *"abcd")
    assert ids(world.lease(10)) == ["a", "b"]
    world.wait(-3600)
    assert world.lease(10) == ()
    world.wait(3600 + 60)
    assert ids(world.lease(10)) == ["c", "d"]


def test_a_rate_and_places_hold_together(world):
    limit(world, max_running=1, rate_count=2, rate_period_s=60)
    fill(world, *"abc")
    for expected in ("a", "b"):
        (grant,) = world.lease(10)
        assert grant.job.job_id == expected
        complete(world, grant)
    assert world.lease(10) == ()
    world.wait(60)
    assert ids(world.lease(10)) == ["c"]


def test_when_a_rate_opens_is_known(world):
    limit(world, rate_count=2, rate_period_s=60)
    queue = settings_of(world.tables, "", "default")
    fill(world, *"abcd")
    assert rate_opens_at(world.tables, queue, None, world.now) is None
    assert next_opening(world.tables, "", ("default", "other"), world.now) is None
    world.lease()
    assert next_opening(world.tables, "", ("default",), world.now) is None
    world.wait(10)
    world.lease()
    assert next_opening(world.tables, "", ("other", "default"), world.now) == later(START, 60)
    world.wait(50)
    assert next_opening(world.tables, "", ("default",), world.now) is None
    world.lease()
    assert next_opening(world.tables, "", ("default",), world.now) == later(START, 70)


def test_a_rate_lowered_below_what_started_opens_when_enough_of_it_ceases_to_count(world):
    fill(world, *"abcd")
    for _ in range(3):
        world.lease()
        world.wait(10)
    limit(world, rate_count=2, rate_period_s=60)
    queue = settings_of(world.tables, "", "default")
    assert rate_opens_at(world.tables, queue, None, world.now) == later(START, 70)
    world.wait(39.999999)
    assert world.lease() == ()
    world.wait(0.000001)
    assert ids(world.lease()) == ["d"]


def test_with_a_rate_for_each_key_the_next_start_that_ceases_to_count_is_known(world):
    limit(world, rate_count=1, rate_period_s=60, rate_scope="key")
    queue = settings_of(world.tables, "", "default")
    fill(world, "a", limit_key="k")
    fill(world, "b", limit_key="l")
    world.lease()
    world.wait(10)
    world.lease()
    assert rate_opens_at(world.tables, queue, "k", world.now) == later(START, 60)
    assert rate_opens_at(world.tables, queue, "l", world.now) == later(START, 70)
    assert rate_opens_at(world.tables, queue, "m", world.now) is None
    assert rate_opens_at(world.tables, queue, None, world.now) is None
    assert next_opening(world.tables, "", ("default",), world.now) == later(START, 60)
    world.wait(60)
    assert next_opening(world.tables, "", ("default",), world.now) is None


def test_retention_keeps_runs_that_a_rate_still_counts(world):
    sweep = c.Prune(retention=c.Retention(done_s=0, failed_s=0))
    limit(world, rate_count=1, rate_period_s=60)
    fill(world, "a", "b")
    (grant,) = world.lease()
    world.do(c.Fail(job_id="a", token=grant.token, error="e"))
    # Counted where it ran, although it waits elsewhere now.
    world.do(c.Update(job_id="a", changes=JobChanges(queue="other")))
    world.do(c.Cancel(job_id="a"))
    world.wait(59)
    assert world.do(sweep).count == 0
    assert world.lease() == ()
    world.wait(1)
    assert world.do(sweep).count == 1
    assert world.job("a") is None


# --- aging ------------------------------------------------------------------------------------------------------------


def test_with_aging_a_job_that_waited_long_enough_comes_before_a_higher_priority(world):
    limit(world, aging_s=60)
    world.enqueue("old")
    world.wait(59)
    world.enqueue("urgent", priority=1)
    world.wait(61)
    world.enqueue("late", priority=1)
    assert ids(world.lease(10)) == ["urgent", "old", "late"]


def test_without_aging_priority_alone_decides(world):
    world.enqueue("old")
    world.wait(86_400)
    world.enqueue("urgent", priority=1)
    assert ids(world.lease(10)) == ["urgent", "old"]


def test_another_aging_puts_waiting_jobs_into_new_bands_in_the_order_they_had(world):
    for number in range(6):
        world.enqueue(f"j{number}", priority=number % 2, **({"delay_s": 1000} if number == 4 else {}))
        world.wait(60)
    limit(world, aging_s=60)
    assert [job.job_id for job in world.tables.queued("", "default")] == ["j1", "j0", "j3", "j2", "j5", "j4"]
    (event,) = world.last
    assert event.changes == QueueChanges(aging_s=60)
    limit(world, aging_s=None)
    assert [job.job_id for job in world.tables.queued("", "default")] == ["j1", "j3", "j5", "j0", "j2", "j4"]
    assert [job.position for job in world.tables.queued("", "default")] == [100, 200, 300, 100, 200, 300]
    assert {job.rank for job in world.tables.queued("", "default")} == {-1, 0}


def test_a_running_job_comes_back_into_the_band_of_the_new_aging(world):
    fill(world, "a", "b")
    (grant,) = world.lease()
    limit(world, aging_s=1)
    world.wait(1)
    world.enqueue("c")
    world.do(c.Release(job_id="a", token=grant.token, begun=True))
    assert ids(world.lease(3)) == ["a", "b", "c"]


def test_a_moved_updated_or_retried_job_has_the_band_of_its_new_queue(world):
    limit(world, "aged", aging_s=60)
    queue = settings_of(world.tables, "", "aged")
    steps = 1767225600 // 60  # whole minutes from 1970 to the start
    fill(world, "a", priority=3)
    world.do(c.Update(job_id="a", changes=JobChanges(queue="aged")))
    assert world.job("a").rank == steps - 3
    world.do(c.Update(job_id="a", changes=JobChanges(priority=0)))
    assert (world.job("a").rank, queue.aging_s) == (steps, 60)
    world.do(c.Cancel(job_id="a"))
    world.wait(600)
    world.do(c.Retry(job_id="a", new_job_id="again"))
    assert world.job("again").rank == steps + 10
    world.do(c.Update(job_id="again", changes=JobChanges(queue="default")))
    assert world.job("again").rank == 0


def test_a_successor_keeps_the_age_of_its_chain(world):
    limit(world, aging_s=60)
    token = world.start("a", retry_mode="chain")
    world.wait(20)
    world.do(c.Fail(job_id="a", token=token, error="e", retry_after_s=600))
    (heir,) = (job for job in world.tables.all(Job) if job.retry_kind is RetryKind.AUTO)
    assert heir.rank == world.job("a").rank


def test_replacing_a_keyed_job_keeps_its_age(world):
    limit(world, aging_s=60)
    world.enqueue("a", key="k")
    rank = world.job("a").rank
    world.wait(600)
    world.enqueue("b", key="k", on_conflict="replace", priority=2)
    assert world.job("a").rank == rank - 2


# --- all together -----------------------------------------------------------------------------------------------------

KEYS = (None, "k", "l")
limits = st.builds(
    QueueChanges,
    max_running=st.sampled_from([None, 1, 2, 3]),
    rate_count=st.sampled_from([1, 2, 4]),
    rate_period_s=st.sampled_from([1.0, 7.5, 30.0]),
    rate_scope=st.sampled_from(["queue", "key"]),
    aging_s=st.sampled_from([None, 5.0]),
)
jobs = st.tuples(st.sampled_from(["default", "other"]), st.sampled_from(KEYS), st.integers(1, 2), st.integers(0, 2))
steps = st.one_of(
    st.tuples(st.just("enqueue"), st.lists(jobs, min_size=1, max_size=4)),
    st.tuples(st.just("lease"), st.integers(1, 5)),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([0.000001, 0.5, 1, 3, 7.5, 29, -2])),
)


@settings(max_examples=150, deadline=None)
@given(default=limits, other=limits, story=st.lists(steps, min_size=5, max_size=40))
def test_no_moment_exceeds_a_limit_and_no_window_exceeds_its_rate(default, other, story):
    world = World()
    for queue, changes in (("default", default), ("other", other)):
        world.do(c.SetQueue(queue=queue, changes=changes))
    number = 0
    live = []
    for verb, what in story:
        match verb:
            case "enqueue":
                for queue, key, key_limit, priority in what:
                    number += 1
                    options = {"queue": queue, "limit_key": key, "key_limit": key_limit, "priority": priority}
                    world.enqueue(f"j{number}", lease_s=86_400, **options)
            case "lease":
                live += world.lease(what, queues=("default", "other"))
            case "end" if live:
                grant = live.pop(what % len(live))
                if what % 3:
                    complete(world, grant)
                else:
                    world.do(c.Release(job_id=grant.job.job_id, token=grant.token, begun=True))
            case "wait":
                world.wait(what)
        demand_limits(world)
    # Nothing that could start was held back: a Lease for all there is leaves only blocked jobs.
    live += world.lease(100, queues=("default", "other"))
    demand_limits(world)
    assert world.lease(100, queues=("default", "other")) == ()


def demand_limits(world):
    running = [job for job in world.tables.all(Job) if job.status is JobStatus.RUNNING]
    for name in ("default", "other"):
        queue = world.tables.get(Queue, pair("", name))
        if queue.max_running is not None:
            assert sum(job.queue == name for job in running) <= queue.max_running
        for key in (None,) if queue.rate_scope == "queue" else ("k", "l"):
            starts = sorted(
                run.started_at for run in world.tables.all(Run) if run.queue == name and key in (None, run.limit_key)
            )
            for first, beyond in zip(starts, starts[queue.rate_count :], strict=False):
                assert beyond >= later(first, queue.rate_period_s)
    for key in ("k", "l"):
        # Each was let in by its own limit, so the newest to start bounds how many there are.
        carriers = [job for job in running if job.limit_key == key]
        if carriers:
            assert len(carriers) <= max(job.key_limit for job in carriers)
