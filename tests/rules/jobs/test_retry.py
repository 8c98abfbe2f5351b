"""Retry: how long to wait, what a successor is, and running an ended job again by hand."""

import msgspec
import pytest
from world import START, World, content

from holdfast.model import commands as c
from holdfast.model.jobs import Backoff
from holdfast.model.payloads import NULL
from holdfast.model.times import later
from holdfast.model.workflows.instances import owner_of
from holdfast.rules.jobs.retry import delay_s


@pytest.mark.parametrize(
    ("backoff", "failures", "fraction", "expected"),
    [
        (Backoff(jitter=0), 0, 0.9, 10),
        (Backoff(jitter=0), 1, 0.9, 20),
        (Backoff(jitter=0), 2, 0.9, 40),
        (Backoff(jitter=0), 50, 0.9, 3600),
        (Backoff(jitter=0), 10_000, 0.9, 3600),
        (Backoff(base_s=1.5, factor=1000.0, jitter=0), 999, 0.9, 3600),
        (Backoff(base_s=5, factor=1, jitter=0), 7, 0.9, 5),
        (Backoff(base_s=0, jitter=0), 7, 0.9, 0),
        (Backoff(base_s=10, jitter=0.2), 0, 0.0, 10),
        (Backoff(base_s=10, jitter=0.2), 0, 0.5, 11),
        (Backoff(base_s=10, cap_s=4, jitter=1), 0, 0.5, 6),
    ],
)
def test_the_delay_doubles_up_to_its_cap_and_is_raised_by_jitter(backoff, failures, fraction, expected):
    assert delay_s(backoff, failures, fraction) == pytest.approx(expected)


# --- by hand ----------------------------------------------------------------------------------------------------------


def ended(how, **options):
    world = World()
    token = world.start("j", **{"max_expiries": 1} | options)
    held = {"job_id": "j", "token": token}
    match how:
        case "FAILED":
            world.do(c.Fail(**held, error="e", fatal=True))
        case "DEAD":
            world.wait(30)
            world.do(c.Expire())
        case "CANCELLED":
            world.do(c.GiveUp(**held))
        case "COMPLETED":
            world.do(c.Complete(**held))
    assert world.job().status == how
    return world


@pytest.mark.parametrize("how", ["FAILED", "DEAD", "CANCELLED"])
def test_a_job_that_did_not_succeed_is_run_again_as_a_new_job_with_a_full_budget(how):
    options = {
        "namespace": "", "priority": 4, "max_attempts": 2, "max_expiries": 1, "timeout_s": 9, "lease_s": 60,
        "tags": {"a": "b"}, "retry_mode": "chain", "limit_key": "l", "key_limit": 3, "submitted_by": "s",
        "traceparent": "t", "ttl_s": 500,
    }  # fmt: skip
    world = ended(how, **options)
    before = world.job()
    reply = world.do(c.Retry(job_id="j", new_job_id="j2", cmd="c", actor="me"))
    assert [(job.job_id, job.created) for job in reply.jobs] == [("j2", True)]
    assert world.job() == before
    job = world.job("j2")
    assert (job.retry_of, job.retry_kind, job.status, job.created_at) == ("j", "manual", "QUEUED", world.now)
    assert (job.attempts, job.expiries, job.snoozes, job.executions, job.deliveries) == (0, 0, 0, 0, 0)
    assert (job.error, job.result, job.started_at, job.not_before, job.expires_at) == (None, NULL, None, None, None)
    for field in ("job_type", "params", "queue", *(set(options) - {"ttl_s"})):
        assert getattr(job, field) == getattr(before, field), field


def test_any_number_of_manual_retries_is_allowed():
    world = ended("FAILED")
    for number in range(3):
        world.do(c.Retry(job_id="j", new_job_id=f"again{number}"))
    assert [job.retry_kind for job in world.tables.successors("j")] == ["manual"] * 3


def test_other_params_and_priority_may_be_given():
    world = ended("FAILED", params=b'{"a":1}', priority=3)
    world.do(c.Retry(job_id="j", new_job_id="same"))
    world.do(c.Retry(job_id="j", new_job_id="other", params=msgspec.Raw(b'{"a":2}'), priority=0))
    same, other = world.job("same"), world.job("other")
    assert (bytes(same.params), same.priority, same.rank) == (b'{"a":1}', 3, -3)
    assert (bytes(other.params), other.priority, other.rank) == (b'{"a":2}', 0, 0)


def test_a_job_cancelled_before_its_first_run_is_retried_with_its_own_params():
    world = World()
    world.enqueue("j", params=b'{"a":1}')
    world.do(c.Cancel(job_id="j"))
    world.do(c.Retry(job_id="j", new_job_id="j2"))
    assert bytes(world.job("j2").params) == b'{"a":1}'


def test_a_retry_goes_to_the_back_of_its_band():
    world = ended("FAILED")
    world.enqueue("waiting")
    world.do(c.Retry(job_id="j", new_job_id="j2"))
    assert world.job("j2").position == 200


def test_a_retry_sent_again_gives_the_job_it_made():
    world = ended("FAILED")
    world.do(c.Retry(job_id="j", new_job_id="j2"))
    before = content(world.tables)
    assert not world.do(c.Retry(job_id="j", new_job_id="j2")).jobs[0].created
    assert content(world.tables) == before


def test_an_id_that_is_taken_is_refused():
    world = ended("FAILED")
    world.enqueue("taken")
    assert world.refused(c.Retry(job_id="j", new_job_id="taken")) == "id_reused"
    assert world.refused(c.Retry(job_id="j", new_job_id="j")) == "id_reused"


def test_a_completed_job_is_not_retried():
    assert ended("COMPLETED").refused(c.Retry(job_id="j", new_job_id="j2")) == "invalid_operation"


def test_a_link_of_a_chain_that_was_followed_is_not_retried_and_its_follower_is_named():
    world = World()
    token = world.start("j", retry_mode="chain", max_attempts=2)
    heir = world.do(c.Fail(job_id="j", token=token, error="e")).successor
    outcome = world.tell(c.Retry(job_id="j", new_job_id="j2"))
    assert (outcome.code, outcome.facts["job_id"]) == ("invalid_operation", heir)
    world.wait(60)
    (grant,) = world.lease()
    world.do(c.Fail(job_id=heir, token=grant.token, error="e"))
    world.do(c.Retry(job_id=heir, new_job_id="j2"))
    assert world.job("j2").retry_of == heir


def test_a_retry_takes_the_key_if_it_is_free():
    world = ended("FAILED", key="k")
    world.do(c.Retry(job_id="j", new_job_id="j2"))
    assert not world.enqueue("other", key="k").created
    world = ended("FAILED", key="k")
    world.enqueue("other", key="k")
    outcome = world.tell(c.Retry(job_id="j", new_job_id="j2"))
    assert (outcome.code, outcome.facts["job_id"]) == ("duplicate_key", "other")


def test_a_key_the_job_itself_still_holds_passes_to_its_retry():
    world = ended("FAILED", key="k", key_hold="forever")
    world.do(c.Retry(job_id="j", new_job_id="j2"))
    assert world.enqueue("other", key="k").job_id == "j2"
    world = ended("FAILED", key="k", key_hold="window", key_window_s=100)
    world.wait(50)
    world.do(c.Retry(job_id="j", new_job_id="j2"))
    assert world.job("j2").key_until == later(world.now, 100)


def test_a_job_without_limit_of_expiries_gets_one_when_retried_by_hand():
    world = World()
    world.enqueue("j", max_expiries=None, owner=owner_of("i", 1, 2))
    world.do(c.Cancel(job_id="j"))
    world.do(c.Retry(job_id="j", new_job_id="j2"))
    assert (world.job("j2").max_expiries, world.job("j2").owner) == (5, None)


# --- a chain ----------------------------------------------------------------------------------------------------------


def test_a_successor_is_the_same_request_with_the_budget_that_is_left():
    world = World()
    options = {
        "params": b'{"a":1}', "priority": 4, "timeout_s": 9, "lease_s": 60, "tags": {"a": "b"}, "retry_mode": "chain",
        "limit_key": "l", "key_limit": 3, "submitted_by": "s", "traceparent": "t", "affinity": "a",
        "owner": owner_of("i", 1, 2), "ttl_s": 500,
    }  # fmt: skip
    token = world.start("j", **options)
    world.wait(5)
    heir_id = world.do(c.Fail(job_id="j", token=token, error="boom")).successor
    heir, job = world.job(heir_id), world.job()
    same = {"job_type", "queue", "namespace", "rank", "backoff", "max_attempts", "max_expiries", "expires_at"} | set(
        options
    )
    for field in same - {"ttl_s"}:
        assert getattr(heir, field) == getattr(job, field), field
    assert (heir.attempts, heir.error, heir.result, heir.created_at) == (1, "boom", NULL, world.now)
    assert (heir.retry_of, heir.retry_kind, heir.not_before) == ("j", "auto", later(START, 15))
    assert (heir.token, heir.worker_id, heir.lease_expires_at, heir.deadline_at, heir.session_id) == (None,) * 5


def test_no_link_of_a_chain_runs_twice_and_the_budget_is_spent_over_all_links():
    world = World()
    world.enqueue("j", retry_mode="chain", max_attempts=4)
    seen = []
    for _ in range(6):
        for grant in world.lease():
            seen.append(grant.job.job_id)
            world.do(c.Fail(job_id=grant.job.job_id, token=grant.token, error="e"))
        world.wait(3600)
    assert len(seen) == len(set(seen)) == 4
    assert [world.job(job_id).attempts for job_id in seen] == [1, 2, 3, 4]
    assert {world.job(job_id).executions for job_id in seen} == {1}
