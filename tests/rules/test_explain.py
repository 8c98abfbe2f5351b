"""Every job has exactly one reason, with what holds it and until when."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.model.commands import (
    Bury,
    Cancel,
    Complete,
    CreateGroup,
    EndSession,
    Enqueue,
    Fail,
    Lease,
    NewJob,
    PauseDispatch,
    PauseQueue,
    PutSchedule,
    Release,
    ReleaseReservation,
    Reserve,
    SetQueue,
    Snooze,
    StartDirect,
    Trigger,
)
from holdfast.model.events import QueueChanges
from holdfast.model.jobs import Backoff, Job, RetryMode
from holdfast.model.schedules import NewSchedule, Overlap
from holdfast.rules.explain import COUNTED, explain
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def engine(clock):
    return Engine(MemoryStore(), clock=clock)


def put(engine, *job_ids, **options):
    params = msgspec.Raw(b"{}")
    jobs = tuple(NewJob(job_id=job_id, job_type="work", params=params, **options) for job_id in job_ids)
    engine.ask(Enqueue(jobs=jobs))


def why(engine, job_id, served=None, sees=None):
    now = engine.look().now
    with engine.read() as view:
        return explain(view, view.get(Job, job_id), now, served, sees)


def test_job_that_must_run_alone_says_so(engine):
    put(engine, "a")
    for lost in range(3):
        assert ("alone" in why(engine, "a").sentence) is (lost == 2)
        engine.ask(Lease(worker_id="w", session_id="dead"))
        engine.ask(EndSession(session_id="dead"))
    assert why(engine, "a").code == "ready"


def test_the_first_in_line_is_ready_and_the_others_are_behind_it(engine):
    put(engine, "a", "b", "c")
    assert why(engine, "a").code == "ready"
    third = why(engine, "c")
    assert (third.code, third.sentence, third.holder) == ("behind", "2 ahead in queue default", "a")


def test_a_delayed_job_whose_time_has_come_counts_from_its_own_place(engine, clock):
    put(engine, "early", delay_s=5)
    put(engine, "a", "b")
    clock.advance(5)
    assert why(engine, "early").code == "ready"  # although no Lease has met it yet


def test_a_long_line_is_not_counted_to_its_end(engine):
    for at in range(0, COUNTED + 200, 100):
        put(engine, *(f"{at + n:05}" for n in range(100)))
    assert why(engine, f"{COUNTED + 150:05}").sentence == f"{COUNTED} or more ahead in queue default"


def test_a_pause_is_named_before_everything_else(engine):
    put(engine, "a", delay_s=60)
    engine.ask(PauseQueue(queue="default", reason="deploy"))
    found = why(engine, "a")
    assert (found.code, found.sentence, found.holder) == ("queue_paused", "queue default is paused: deploy", "default")
    engine.ask(PauseDispatch())
    assert why(engine, "a").sentence == "dispatch is paused"


def test_a_delay_says_until_when(engine):
    put(engine, "a", delay_s=60)
    found = why(engine, "a")
    assert (found.code, found.until) == ("delayed", "2026-01-01T00:01:00.000000Z")
    assert found.sentence == "not before 2026-01-01T00:01:00.000000Z"


def test_backing_off_names_the_attempt_and_the_last_error(engine):
    put(engine, "a", backoff=Backoff(jitter=0))
    engine.ask(Lease(worker_id="w"))
    engine.ask(Fail(job_id="a", token=1, error="Traceback …\nTimeoutError: too slow\n"))
    found = why(engine, "a")
    assert found.code == "delayed"
    assert found.sentence == "attempt 2 of 4 at 2026-01-01T00:00:10.000000Z; last: TimeoutError: too slow"


def test_a_snooze_says_so(engine):
    put(engine, "a")
    engine.ask(Lease(worker_id="w"))
    engine.ask(Snooze(job_id="a", token=1, delay_s=5))
    assert why(engine, "a").sentence == "snoozed until 2026-01-01T00:00:05.000000Z"


def test_a_task_nobody_knows_is_named(engine):
    put(engine, "a")
    assert why(engine, "a", lambda queue, task: False).code == "no_worker"
    assert why(engine, "a", lambda queue, task: True).code == "ready"


def test_a_running_job_names_its_worker_until_its_lease_lapses(engine, clock):
    put(engine, "a")
    engine.ask(Lease(worker_id="w-3"))
    found = why(engine, "a")
    assert (found.code, found.holder, found.until) == ("running", "w-3", "2026-01-01T00:00:30.000000Z")
    engine.ask(Cancel(job_id="a", reason="enough"))
    assert why(engine, "a").code == "cancel_requested"
    clock.advance(30)
    assert why(engine, "a").code == "lease_lapsed"


def test_ended_work_says_how_it_ended(engine):
    put(engine, "a", "b", "c", "d", max_attempts=1)
    for number in range(1, 4):
        engine.ask(Lease(worker_id="w", n=1))
        assert number
    engine.ask(Complete(job_id="a", token=1))
    engine.ask(Fail(job_id="b", token=2, error="ValueError: no"))
    engine.ask(Release(job_id="c", token=3, begun=True))
    engine.ask(Bury(job_id="c", reason="poison"))
    engine.ask(Cancel(job_id="d", reason="not needed"))
    said = [why(engine, job_id).sentence for job_id in "abcd"]
    assert said == [
        "completed at 2026-01-01T00:00:00.000000Z",
        "failed after 1 of 1 attempts: ValueError: no",
        "buried: poison",
        "cancelled at 2026-01-01T00:00:00.000000Z: not needed",
    ]


def test_a_job_that_kills_its_worker_says_so(engine, clock):
    put(engine, "a", max_expiries=2)
    for _ in range(3):
        engine.ask(Lease(worker_id="w"))
        clock.advance(31)
    assert why(engine, "a").sentence == "its lease expired 2 times; it seems to kill its worker"


def test_a_link_of_a_chain_names_who_carries_on(engine):
    put(engine, "a", retry_mode=RetryMode.CHAIN)
    engine.ask(Lease(worker_id="w"))
    heir = engine.ask(Fail(job_id="a", token=1, error="no")).successor
    found = why(engine, "a")
    assert found.holder == heir
    assert found.sentence.endswith(f"carried on by {heir}")


# --- limits -----------------------------------------------------------------------------------------------------------


def limit(engine, **changes):
    engine.ask(SetQueue(queue="default", changes=QueueChanges(**changes)))


def lease(engine, n=1):
    return engine.ask(Lease(worker_id="w", n=n)).grants


def test_a_full_queue_is_named_with_the_jobs_that_hold_its_places(engine):
    put(engine, "0f3a-one", "77c1-two", "waits")
    limit(engine, max_running=2)
    lease(engine, 3)
    found = why(engine, "waits")
    assert (found.code, found.holder, found.held_by) == ("queue_limit", "0f3a-one", ("0f3a-one", "77c1-two"))
    assert found.sentence == "queue limit 2 of 2, held by 0f3a…, 77c1…"
    assert found.until is None


def test_of_many_holders_a_few_are_named_as_far_as_they_differ(engine):
    put(engine, *(f"same-{n}" for n in range(5)), "waits")
    limit(engine, max_running=5)
    lease(engine, 6)
    found = why(engine, "waits")
    assert found.sentence == "queue limit 5 of 5, held by same-0, same-1, same-2 and 2 more"
    assert len(found.held_by) == 5


def test_a_full_key_is_named_before_a_full_queue(engine):
    put(engine, "a", "b", limit_key="api")
    put(engine, "c")
    limit(engine, max_running=1)
    lease(engine)
    assert (why(engine, "b").code, why(engine, "b").holder) == ("key_limit", "a")
    assert why(engine, "b").sentence == "limit key api 1 of 1, held by a"
    assert why(engine, "c").code == "queue_limit"


def test_a_used_up_rate_tells_when_it_opens(engine, clock):
    put(engine, "a", "b", "c")
    limit(engine, rate_count=2, rate_period_s=60)
    lease(engine)
    clock.advance(10)
    lease(engine)
    clock.advance(10)
    found = why(engine, "c")
    assert (found.code, found.holder, found.until) == ("rate_limit", "default", "2026-01-01T00:01:00.000000Z")
    assert found.sentence == "rate of 2 in 60 s is used up; next start at 2026-01-01T00:01:00.000000Z"
    clock.advance(40)
    assert why(engine, "c").code == "ready"


def test_a_rate_for_each_key_holds_back_its_own_key_only(engine):
    put(engine, "a", "b", limit_key="k", key_limit=9)
    put(engine, "c", limit_key="l", key_limit=9)
    put(engine, "d")
    limit(engine, rate_count=1, rate_period_s=60, rate_scope="key")
    lease(engine)
    assert why(engine, "b").code == "rate_limit"
    assert "for limit key k" in why(engine, "b").sentence
    assert [why(engine, job_id).code for job_id in ("c", "d")] == ["behind", "behind"]


def test_a_limit_comes_after_a_pause_and_a_delay_and_before_a_missing_worker(engine):
    put(engine, "a", "b", limit_key="k")
    put(engine, "later", limit_key="k", delay_s=60)
    limit(engine, max_running=1)
    lease(engine)
    assert why(engine, "later").code == "delayed"
    assert why(engine, "b", served=lambda *_: False).code == "key_limit"
    engine.ask(PauseQueue(queue="default"))
    assert why(engine, "b").code == "queue_paused"


# --- who may not see what holds a job ---------------------------------------------------------------------------------


def sees_own(thing):
    return getattr(thing, "submitted_by", None) == "me"


def limited(engine):
    put(engine, "their-1", "their-2")
    put(engine, "own", submitted_by="me")
    put(engine, "waits", submitted_by="me")
    limit(engine, max_running=3)
    lease(engine, 3)
    return "queue limit 3 of 3, held by own and 2 more", "own", ("own",)


def keyed(engine):
    put(engine, "their", "waits", limit_key="k")
    lease(engine, 1)
    return "limit key k 1 of 1", None, ()


def behind(engine):
    put(engine, "their", "their too", "waits")
    return "2 ahead in queue default", None, ()


def grouped(engine):
    params = msgspec.Raw(b"{}")
    members = tuple(NewJob(job_id=name, job_type="work", params=params) for name in ("their", "waits"))
    engine.ask(CreateGroup(group_id="g", members=members))
    return "waits for number 1 of 2 in its group, which is QUEUED", None, ()


def reserved(engine):
    put(engine, "waits")
    held = engine.ask(Reserve(reservation_id="r", queue="default", reserved_by="somebody"))
    return f"queue default is reserved until {held.expires_at}", None, ()


def direct(engine):
    reserved(engine)
    job = NewJob(job_id="their", job_type="work", params=msgspec.Raw(b"{}"))
    engine.ask(StartDirect(reservation_id="r", job=job, worker_id="w"))
    engine.ask(ReleaseReservation(reservation_id="r"))
    return "a job runs directly, alone on queue default", None, ()


def overlapping(engine):
    schedule = NewSchedule(name="s", job_type="work", interval_s=60.0, overlap=Overlap.QUEUE)
    engine.ask(PutSchedule(schedule_id="s", schedule=schedule))
    for name in ("their", "waits"):
        engine.ask(Trigger(schedule_id="s", job_id=name))
    lease(engine, 1)
    return "waits until another job of the same schedule has ended", None, ()


@pytest.mark.parametrize(
    "arrange", [limited, keyed, behind, grouped, reserved, direct, overlapping], ids=lambda arrange: arrange.__name__
)
def test_what_somebody_may_not_see_is_counted_and_not_named(engine, arrange):
    sentence, holder, held_by = arrange(engine)
    found, whole = why(engine, "waits", sees=sees_own), why(engine, "waits")
    assert (found.sentence, found.holder, found.held_by) == (sentence, holder, held_by)
    assert (found.code, found.until) == (whole.code, whole.until)
    assert why(engine, "waits", sees=lambda _thing: True) == whole
    for name in ("their", "somebody"):
        assert name not in repr(found)
