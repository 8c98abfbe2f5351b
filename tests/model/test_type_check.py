"""What is stored can be read again: the fields of a command have exactly the types they are annotated with."""

from decimal import Decimal

import msgspec
import pytest

from holdfast.engine import Engine
from holdfast.model import commands as c
from holdfast.model.events import JobChanges, decode_event
from holdfast.model.jobs import Backoff, RetryMode
from holdfast.model.outcomes import Refusal
from holdfast.model.type_check import misfit
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.clock import ManualClock

RAW = msgspec.Raw(b"{}")
HELD = {"job_id": "j", "token": 1}


class Text(str):
    __slots__ = ()


def enqueue(**fields):
    return c.Enqueue(jobs=(c.NewJob(job_id="ok", job_type="t", params=RAW), _job(**fields)))


def _job(**fields):
    return c.NewJob(**{"job_id": "j", "job_type": "t", "params": RAW} | fields)


RIGHT = [
    enqueue(),
    enqueue(
        delay_s=5,
        timeout_s=1.5,
        tags={"a": "b"},
        backoff=Backoff(base_s=1),
        retry_mode=RetryMode.CHAIN,
        max_expiries=None,
    ),
    c.Lease(worker_id="w", queues=("a", "b"), job_types=("t",)),
    c.Lease(worker_id="w", job_types=None),
    c.Extend(**HELD, lease_s=5),
    c.Complete(**HELD, exit_code=0),
    c.Fail(**HELD, error="e", error_kind="timeout", fatal=True),
    c.Move(job_id="j", to="first"),
    c.Move(job_id="j", before="k"),
    c.Update(job_id="j", changes=JobChanges(priority=1, not_before=None, tags=None, backoff=Backoff())),
    c.Update(job_id="j", changes=JobChanges(tags={"a": "b"})),
    c.Expire(jump=c.ClockJump("a", "b"), overdue=(c.Overdue("j", 1),)),
    c.Prune(retention=c.Retention(done_s=float("inf"))),
    c.ResumeDispatch(),
]
WRONG = [
    ("begun", c.Release(**HELD, begun=1)),
    ("given_back", c.Release(**HELD, begun=True, given_back="no")),
    ("fatal", c.Fail(**HELD, error="e", fatal=None)),
    ("force", c.Cancel(job_id="j", force=1)),
    ("error", c.Fail(**HELD, error=ValueError("e"))),
    ("error_kind", c.Fail(**HELD, error="e", error_kind="odd")),
    ("details", c.Fail(**HELD, error="e", details={"a": 1})),
    ("token", c.Complete(job_id="j", token=True)),
    ("token", c.Complete(job_id="j", token="1")),
    ("result", c.Complete(**HELD, result=b"1")),
    ("exit_code", c.Complete(**HELD, exit_code=1.0)),
    ("job_id", c.Bury(job_id=7)),
    ("job_id", c.Bury(job_id=Text("j"))),
    ("reason", c.Bury(job_id="j", reason=None)),
    ("to", c.Move(job_id="j", to="middle")),
    ("n", c.Lease(worker_id="w", n=1.0)),
    ("queues", c.Lease(worker_id="w", queues=["a"])),
    ("queues", c.Lease(worker_id="w", queues=("a", None))),
    ("job_types", c.Lease(worker_id="w", job_types="t")),
    ("jobs", c.Enqueue(jobs=[_job()])),
    ("jobs", c.Enqueue(jobs=("j",))),
    ("params", enqueue(params={"a": 1})),
    ("priority", enqueue(priority=1.5)),
    ("priority", enqueue(priority=True)),
    ("timeout_s", enqueue(timeout_s=Decimal(5))),
    ("timeout_s", enqueue(timeout_s="5")),
    ("retry_mode", enqueue(retry_mode="chain")),
    ("key_hold", enqueue(key="k", key_hold="queued")),
    ("on_conflict", enqueue(key="k", on_conflict="ignore")),
    ("tags", enqueue(tags={"a": 1})),
    ("tags", enqueue(tags={1: "a"})),
    ("tags", enqueue(tags=[("a", "b")])),
    ("backoff", enqueue(backoff={"base_s": 1})),
    ("base_s", enqueue(backoff=Backoff(base_s="1"))),
    ("max_attempts", enqueue(max_attempts=None)),
    ("submitted_by", enqueue(submitted_by=b"me")),
    ("done_s", c.Prune(retention=c.Retention(done_s="week"))),
    ("changes", c.Update(job_id="j", changes={"priority": 1})),
    ("priority", c.Update(job_id="j", changes=JobChanges(priority=None))),
    ("tags", c.Update(job_id="j", changes=JobChanges(tags={"a": None}))),
    ("overdue", c.Expire(overdue=(("j", 1),))),
    ("cmd", c.ResumeDispatch(cmd=None)),
]


@pytest.mark.parametrize("command", RIGHT)
def test_what_is_of_its_type_passes_every_time(command):
    assert [misfit(command), misfit(command)] == [None, None]


@pytest.mark.parametrize(("field", "command"), WRONG)
def test_what_is_not_of_its_type_is_named(field, command):
    for right in RIGHT:
        misfit(right)  # a good one before teaches nothing wrong
    assert misfit(command) == field


@pytest.mark.parametrize(("field", "command"), WRONG)
def test_nothing_is_written_that_could_not_be_read_again(field, command):
    store = MemoryStore()
    engine = Engine(store, clock=ManualClock())
    engine.submit(c.Enqueue(jobs=(_job(),)))
    engine.submit(c.Lease(worker_id="w"))
    outcome = engine.submit(command)
    assert isinstance(outcome, Refusal)
    assert (outcome.code, outcome.facts) == ("invalid_value", {"field": field})
    for entry in store.feed(0):
        assert decode_event(entry.event, seq=entry.seq, file="memory")
