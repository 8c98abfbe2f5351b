"""Values out of range are refused by the name of their field, before anything is decided; the limits pass."""

import math

import msgspec
import pytest
from world import START, World, new

from holdfast.model import commands as c
from holdfast.model.events import JobChanges
from holdfast.model.jobs import Backoff
from holdfast.model.workflows.instances import owner_of
from holdfast.rules.field_checks import MAX_DURATION_S, MAX_TEXT
from holdfast.rules.validation import problem_with

LONG = MAX_DURATION_S
HUGE = 10**5000


def enqueue(**options):
    return c.Enqueue(jobs=(new("j", **options),))


def update(**changes):
    return c.Update(job_id="j", changes=JobChanges(**changes))


HELD = {"job_id": "j", "token": 1}
# field → builder of a command, values that pass, values that do not
RANGES = {
    "priority": (lambda v: enqueue(priority=v), [-100, 0, 100], [-101, 101, HUGE, -HUGE]),
    "lease_s": (lambda v: enqueue(lease_s=v), [1, 1.5, 86_400], [0.999, 86_400.1, 0, -1, math.nan, math.inf]),
    "max_attempts": (lambda v: enqueue(max_attempts=v), [1, 1000], [0, 1001, -1]),
    "max_expiries": (lambda v: enqueue(max_expiries=v), [1, 100], [0, 101, None]),
    "key_limit": (lambda v: enqueue(key_limit=v), [1, 1_000_000], [0, 1_000_001]),
    "timeout_s": (lambda v: enqueue(timeout_s=v), [None, 0.001, LONG], [0, -1, LONG + 1, math.nan]),
    "delay_s": (lambda v: enqueue(delay_s=v), [None, 0, LONG], [-0.1, LONG + 1, math.inf, math.nan, HUGE]),
    "ttl_s": (lambda v: enqueue(ttl_s=v), [None, 0, LONG], [-1, LONG + 1, math.nan]),
    "not_before": (lambda v: enqueue(not_before=v), [None, START], ["now", "", "2026-01-01T00:00:00Z", "\ud800"]),
    "expires_at": (lambda v: enqueue(expires_at=v), [None, START], ["now", "2026-02-30T00:00:00.000000Z"]),
    "job_id": (lambda v: c.Enqueue(jobs=(new(v),)), ["a", "x" * 200, "../é"], ["", "x" * 201, " a", "a\n", "\ud800"]),
    "job_type": (lambda v: enqueue(job_type=v), ["a", "a.b:c/d-e_f", "x" * 128], ["", "x" * 129, "a b", "é"]),
    "queue": (lambda v: enqueue(queue=v), ["a", "x" * 128], ["", "x" * 129, "a b", "a\0"]),
    "namespace": (lambda v: enqueue(namespace=v), ["", "n"], ["a b", "x" * 129, "\0"]),
    "key": (lambda v: enqueue(key=v), [None, "k", "x" * 200], ["", "x" * 201, "a\0b", "\ud800"]),
    "limit_key": (lambda v: enqueue(limit_key=v), [None, "k"], ["", "\n"]),
    "key_window_s": (
        lambda v: enqueue(key="k", key_hold="window", key_window_s=v), [0.001, LONG], [None, 0, LONG + 1, math.nan],
    ),
    "backoff.base_s": (lambda v: enqueue(backoff=Backoff(base_s=v)), [0, LONG], [-1, LONG + 1, math.inf]),
    "backoff.cap_s": (lambda v: enqueue(backoff=Backoff(cap_s=v)), [0, LONG], [-1, LONG + 1, math.nan]),
    "backoff.factor": (lambda v: enqueue(backoff=Backoff(factor=v)), [1, 1000], [0.9, 1001, math.nan]),
    "backoff.jitter": (lambda v: enqueue(backoff=Backoff(jitter=v)), [0, 1], [-0.1, 1.1, math.nan]),
    "tags": (
        lambda v: enqueue(tags=v),
        [None, {}, {"a": "b"}, {str(n): "x" for n in range(16)}],
        [{str(n): "x" for n in range(17)}, {"": "a"}, {"a": ""}, {"a": "\ud800"}, {"a\n": "b"}],
    ),
    "owner": (
        lambda v: enqueue(owner=v),
        [None, owner_of("é" * 400, 1, 2)],
        ["", "x", '["i",1]', '["i", 1, 2]', "\ud800"],
    ),
    "affinity": (lambda v: enqueue(affinity=v), [None, "a"], ["\ud800"]),
    "submitted_by": (lambda v: enqueue(submitted_by=v), [None, "a"], ["\ud800"]),
    "traceparent": (lambda v: enqueue(traceparent=v), [None, "a"], ["\ud800"]),
    "jobs": (lambda v: c.Enqueue(jobs=v), [tuple(new(f"{n}") for n in range(1000))], [(), (new("j"),) * 1001]),
    "cmd": (lambda v: c.PauseDispatch(cmd=v), ["", "c", "x" * 200], ["x" * 201, " c", "\0", "\ud800"]),
    "actor": (lambda v: c.PauseDispatch(actor=v), ["", "me", "x" * MAX_TEXT], ["x" * (MAX_TEXT + 1), "\ud800"]),
    "n": (lambda v: c.Lease(worker_id="w", n=v), [1, 100], [0, 101, -1]),
    "worker_id": (lambda v: c.Lease(worker_id=v), ["w"], ["", " w", "x" * 201, "\ud800"]),
    "session_id": (lambda v: c.Lease(worker_id="w", session_id=v), [None, "s"], ["", "\ud800"]),
    "job_types": (lambda v: c.Lease(worker_id="w", job_types=v), [None, (), ("a",)], [("a b",), ("\ud800",), ("",)]),
    "queues": (lambda v: c.Lease(worker_id="w", queues=v), [("a",), ("a", "b")], [()]),
    "retry_after_s": (lambda v: c.Fail(**HELD, error="e", retry_after_s=v), [None, 0, LONG], [-1, LONG + 1, math.nan]),
    "exit_code": (lambda v: c.Complete(**HELD, exit_code=v), [None, 0, -9, 255], [1 << 63, HUGE]),
    "token": (lambda v: c.Extend(job_id="j", token=v), [1, 0, -1], [1 << 63, -(1 << 63) - 1, HUGE]),
    "limit": (lambda v: c.Expire(limit=v), [1, 10_000], [0, 10_001]),
    "retention.done_s": (lambda v: c.Prune(retention=c.Retention(done_s=v)), [0, 1e12, math.inf], [-1, math.nan]),
    "retention.failed_s": (lambda v: c.Prune(retention=c.Retention(failed_s=v)), [0, math.inf], [-1, math.nan]),
    "new_job_id": (lambda v: c.Retry(job_id="j", new_job_id=v), ["k"], ["", " k", "\ud800"]),
    "before": (lambda v: c.Move(job_id="j", before=v), ["k"], ["", "\ud800"]),
    "after": (lambda v: c.Move(job_id="j", after=v), ["k"], ["", "\ud800"]),
    "changes": (lambda v: c.Update(job_id="j", changes=v), [JobChanges(priority=1)], [JobChanges()]),
}  # fmt: skip
# The same fields where another command carries them.
ALSO = {
    ("priority", "update"): lambda v: update(priority=v),
    ("priority", "retry"): lambda v: c.Retry(job_id="j", new_job_id="k", priority=v),
    ("queue", "update"): lambda v: update(queue=v),
    ("queue", "pause"): lambda v: c.PauseQueue(queue=v),
    ("queue", "resume"): lambda v: c.ResumeQueue(queue=v),
    ("queue", "normalize"): lambda v: c.Normalize(queue=v),
    ("queue", "lease"): lambda v: c.Lease(worker_id="w", queues=("ok", v)),
    ("namespace", "lease"): lambda v: c.Lease(worker_id="w", namespace=v),
    ("namespace", "pause"): lambda v: c.PauseQueue(queue="q", namespace=v),
    ("namespace", "normalize"): lambda v: c.Normalize(queue="q", namespace=v),
    ("lease_s", "update"): lambda v: update(lease_s=v),
    ("lease_s", "extend"): lambda v: c.Extend(**HELD, lease_s=v),
    ("lease_s", "lease"): lambda v: c.Lease(worker_id="w", lease_s=v),
    ("timeout_s", "update"): lambda v: update(timeout_s=v),
    ("max_attempts", "update"): lambda v: update(max_attempts=v),
    ("key_limit", "update"): lambda v: update(key_limit=v),
    ("not_before", "update"): lambda v: update(not_before=v),
    ("expires_at", "update"): lambda v: update(expires_at=v),
    ("backoff.factor", "update"): lambda v: update(backoff=Backoff(factor=v)),
    ("limit_key", "update"): lambda v: update(limit_key=v),
    ("tags", "update"): lambda v: update(tags=v),
    ("delay_s", "release"): lambda v: c.Release(**HELD, begun=True, delay_s=v),
    ("limit", "prune"): lambda v: c.Prune(limit=v),
    ("limit", "sessions"): lambda v: c.EndSessions(session_id="s", limit=v),
    ("limit", "session"): lambda v: c.EndSession(session_id="s", limit=v),
    ("job_id", "cancel"): lambda v: c.Cancel(job_id=v),
    ("job_id", "retry"): lambda v: c.Retry(job_id=v, new_job_id="k"),
    ("token", "complete"): lambda v: c.Complete(job_id="j", token=v),
    ("exit_code", "fail"): lambda v: c.Fail(**HELD, error="e", exit_code=v),
}
BUILDERS = [(field, build, good, bad) for field, (build, good, bad) in RANGES.items()] + [
    (field, build, RANGES[field][1], RANGES[field][2]) for (field, _), build in ALSO.items()
]
GOOD = [(field, build, value) for field, build, good, _ in BUILDERS for value in good]
BAD = [(field, build, value) for field, build, _, bad in BUILDERS for value in bad]


@pytest.mark.parametrize(("field", "build", "value"), GOOD, ids=range(len(GOOD)))
def test_what_a_field_takes_passes(field, build, value):
    assert problem_with(build(value)) is None, (field, value)


@pytest.mark.parametrize(("field", "build", "value"), BAD, ids=range(len(BAD)))
def test_what_a_field_does_not_take_is_refused_by_its_name(field, build, value):
    world = World()
    outcome = world.tell(build(value))
    assert (outcome.code, outcome.facts) == ("invalid_value", {"field": field})
    assert outcome.message.startswith(f"{field}: ")
    assert len(outcome.message) < 300
    assert world.groups == []


def test_a_snooze_needs_a_delay_in_range():
    assert problem_with(c.Snooze(**HELD, delay_s=-1)).facts == {"field": "delay_s"}
    assert problem_with(c.Snooze(**HELD, delay_s=0)) is None


def test_one_bad_job_is_enough():
    assert problem_with(c.Enqueue(jobs=(new("a"), new("b", priority=101)))).facts == {"field": "priority"}


def test_a_window_belongs_to_its_hold_and_only_to_it():
    assert problem_with(enqueue(key="k", key_window_s=5)).facts == {"field": "key_window_s"}


def test_only_an_activity_may_be_lost_for_ever():
    assert problem_with(enqueue(max_expiries=None, owner=owner_of("i", 1, 2))) is None


def test_a_command_without_values_has_no_problem():
    for command in (
        c.ResumeDispatch(),
        c.Bury(job_id="j"),
        c.GiveUp(**HELD),
        c.Complete(**HELD, result=msgspec.Raw(b"1")),
    ):
        assert problem_with(command) is None
