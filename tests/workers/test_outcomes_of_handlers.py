"""How a handler ends is how its job goes on, wherever the handler runs and whatever store keeps the job."""

import asyncio
import inspect
import threading
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from holdfast import Backoff, Cancel, Fatal, Retry, Snooze
from holdfast.errors import InvalidOperation, JobCancelled, JobFailed
from holdfast.model import payloads
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.ids import JobId
from holdfast.model.times import later, stamp


def flavours(hf, function, **options):
    """Register a function twice: for a thread, and as a coroutine."""

    async def twin(*args, **kwargs):
        await asyncio.sleep(0)
        return function(*args, **kwargs)

    twin.__annotations__ = function.__annotations__
    twin.__signature__ = inspect.signature(function)
    return [hf.task(name="thread", **options)(function), hf.task(name="loop", **options)(twin)]


def work(hf):
    hf.work(concurrency=4, until_idle=True)


def test_what_a_handler_returns_is_the_result_of_its_job(hf):
    def double(n: int) -> int:
        return n * 2

    for task in flavours(hf, double):
        jobs = [task.enqueue(n) for n in range(20)]
        work(hf)
        assert [job.result(timeout=0) for job in jobs] == [n * 2 for n in range(20)]
        assert [job.status for job in jobs] == ["COMPLETED"] * 20


def test_what_a_handler_raises_fails_its_run_and_the_job_waits_for_its_backoff(hf, clock):
    def broken():
        raise ValueError("no such address")

    for task in flavours(hf, broken, max_attempts=2, backoff=Backoff(base_s=10, jitter=0)):
        job = task.enqueue()
        work(hf)
        record = job.refresh()
        assert (record.status, record.attempts) == ("QUEUED", 1)
        assert record.not_before == later(stamp(clock.now()), 10)
        assert "ValueError: no such address" in record.error
        clock.advance(10)
        work(hf)
        with pytest.raises(JobFailed, match="no such address"):
            job.result(timeout=0)
        assert [(run.status, run.error_kind) for run in job.runs()] == [("FAILED", "exception")] * 2


def test_a_handler_chooses_when_it_is_retried(hf, clock):
    def busy():
        raise Retry("the far end is busy", after=77)

    for task in flavours(hf, busy):
        job = task.enqueue()
        work(hf)
        record = job.refresh()
        assert (record.status, record.attempts, record.not_before) == ("QUEUED", 1, later(stamp(clock.now()), 77))


def test_a_fatal_failure_is_not_retried(hf):
    def hopeless():
        raise Fatal("the account is gone")

    for task in flavours(hf, hopeless):
        job = task.enqueue()
        work(hf)
        assert job.refresh().error == "the account is gone"
        assert [(run.status, run.error_kind) for run in job.runs()] == [("FAILED", "fatal")]
        assert job.status == "FAILED"


def test_an_exception_the_task_names_is_not_retried(hf):
    def strict():
        raise KeyError("x")

    for task in flavours(hf, strict, no_retry=(LookupError,)):
        job = task.enqueue()
        work(hf)
        assert (job.status, job.refresh().attempts) == ("FAILED", 1)


def test_a_snoozed_job_uses_up_no_attempt(hf, clock):
    calls = []

    def later_please():
        calls.append(1)
        if len(calls) % 2:
            raise Snooze(30)

    for task in flavours(hf, later_please):
        job = task.enqueue()
        work(hf)
        record = job.refresh()
        assert (record.status, record.attempts, record.snoozes) == ("QUEUED", 0, 1)
        clock.advance(30)
        work(hf)
        assert job.status == "COMPLETED"


def test_a_handler_cancels_its_own_job(hf):
    def unwanted():
        raise Cancel("nobody wants it")

    for task in flavours(hf, unwanted):
        job = task.enqueue()
        work(hf)
        with pytest.raises(JobCancelled, match="nobody wants it"):
            job.result(timeout=0)


def test_even_system_exit_ends_the_run_and_not_the_worker(hf):
    def quits():
        raise SystemExit(3)

    for task in flavours(hf, quits, max_attempts=1):
        job, other = task.enqueue(), task.enqueue()
        work(hf)
        assert (job.status, other.status) == ("FAILED", "FAILED")


def test_arguments_that_no_longer_fit_fail_the_run_and_the_handler_is_not_called(hf):
    called = threading.Event()

    def strict(n: int):
        called.set()

    for task in flavours(hf, strict, max_attempts=2):
        new = NewJob(job_id=JobId(f"j-{task.name}"), job_type=task.name, params=msgspec.Raw(b'{"m":1}'))
        hf.engine.ask(Enqueue(jobs=(new,)))
        job = hf.job(new.job_id)
        work(hf)
        assert [(run.status, run.error_kind) for run in job.runs()] == [("FAILED", "bad_params")]
        assert (job.status, job.refresh().attempts) == ("QUEUED", 1)  # it counts as any failure does
    assert not called.is_set()


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), "\ud800", 2**70])
def test_a_result_that_is_no_json_fails_the_run_and_says_so(hf, value):
    def odd():
        return value

    for task in flavours(hf, odd, max_attempts=1):
        job = task.enqueue()
        work(hf)
        assert [(run.status, run.error_kind) for run in job.runs()] == [("FAILED", "bad_result")]
        assert job.status == "FAILED"


class Moment:
    """Has no form in JSON."""


class Sealed(dict):
    """Raises what no handler of exceptions expects when it is read."""

    def items(self):
        raise SystemExit(3)


@dataclass
class Row:
    when: Any


@dataclass
class Table:
    rows: list[Row]


def table() -> Table:
    return Table([Row(1), Row(2), Row(3), Row(Moment())])


def listed():
    return {"rows": [{"when": 1}, {"when": 2}, {"when": 3}, {"when": Moment()}]}


def subclassed():
    return {"rows": [1, 2, 3, {"when": type("Moment", (int,), {})(1)}]}


def sealed():
    return Sealed(a=1)


@pytest.mark.parametrize("retry", ["requeue", "chain"])
@pytest.mark.parametrize("function", [table, listed, subclassed])
def test_returned_value_that_cannot_be_encoded_fails_the_job_at_once(hf, function, retry):
    calls = []

    def odd():
        calls.append(1)
        return function()

    odd.__annotations__ = function.__annotations__
    for task in flavours(hf, odd, max_attempts=4, retry=retry):
        calls.clear()
        job = task.enqueue()
        work(hf)
        assert (job.status, job.refresh().attempts, calls) == ("FAILED", 1, [1])
        (run,) = job.runs()
        assert run.error_kind == "bad_result"
        assert "result.rows[3].when: object of type Moment cannot be encoded as JSON" in run.error
        assert {other.status for other in hf.jobs()} == {"FAILED"}  # no successor


def test_returned_value_whose_encoding_raises_ends_the_run_and_not_the_worker(hf):
    for task in flavours(hf, sealed, max_attempts=4):
        jobs = [task.enqueue() for _ in range(8)]  # more than there are threads
        work(hf)
        assert {(job.status, job.refresh().attempts) for job in jobs} == {("FAILED", 1)}
        assert "SystemExit" in jobs[0].runs()[0].error


def test_a_result_too_large_to_keep_fails_the_run(hf, monkeypatch):
    monkeypatch.setattr(payloads.pack, "__defaults__", ("params", 1 << 20, *payloads.pack.__defaults__[2:]))

    def huge() -> str:
        return "x" * (2 << 20)

    for task in flavours(hf, huge, max_attempts=1):
        job = task.enqueue()
        work(hf)
        assert [(run.status, run.error_kind) for run in job.runs()] == [("FAILED", "bad_result")]


@pytest.mark.parametrize("wish", [Snooze(float("nan")), Snooze(-1), Retry(after=float("inf"))])
def test_a_wish_that_makes_no_sense_fails_the_run(hf, wish):
    def odd():
        raise wish

    for task in flavours(hf, odd, max_attempts=1):
        job = task.enqueue()
        work(hf)
        assert [run.status for run in job.runs()] == ["FAILED"]
        assert job.status == "FAILED"


def test_a_handler_knows_its_own_execution(hf):
    seen = []

    def look():
        me = hf.current
        me.progress(3, 4, "nearly")
        seen.append((me.job_id, me.run_no, me.token, me.cancelled, me.notes.progress.fraction, me.job.job_type))

    jobs = []
    for task in flavours(hf, look):
        jobs.append(task.enqueue())
        work(hf)
    assert [entry[0] for entry in seen] == [job.id for job in jobs]
    assert [entry[1:2] + entry[3:] for entry in seen] == [
        (1, False, 0.75, "thread"),
        (1, False, 0.75, "loop"),
    ]
    assert [entry[2] for entry in seen] == [job.runs()[0].token for job in jobs]
    with pytest.raises(InvalidOperation):
        _ = hf.current


def test_a_task_nobody_here_knows_stays_queued(hf):
    hf.engine.ask(Enqueue(jobs=(NewJob(job_id=JobId("stranger"), job_type="renamed", params=msgspec.Raw(b"{}")),)))

    @hf.task
    def known():
        return 1

    job = known.enqueue()
    work(hf)
    assert (job.status, hf.job("stranger").status) == ("COMPLETED", "QUEUED")
    assert hf.job("stranger").refresh().executions == 0


def test_a_paused_queue_is_left_alone_and_the_worker_does_not_wait_for_it(hf):
    @hf.task(queue="mail")
    def send():
        return 1

    job = send.enqueue()
    hf.queue("mail").pause("moving house")
    work(hf)
    assert job.status == "QUEUED"
    hf.queue("mail").resume()
    work(hf)
    assert job.status == "COMPLETED"


def test_a_worker_takes_only_the_queues_it_was_given(hf):
    @hf.task(queue="mail")
    def send():
        return 1

    here, there = send.enqueue(), send.options(queue="other").enqueue()
    hf.work(queues=["other"], until_idle=True)
    assert (here.status, there.status) == ("QUEUED", "COMPLETED")


def test_attempts_count_reports_and_runs_count_leases(hf):
    seen = []

    @hf.task(max_attempts=3, backoff=Backoff(base_s=0, jitter=0))
    def told() -> None:
        at = hf.current
        seen.append((at.attempt, at.run_no))
        if at.run_no == 1:
            raise Snooze(0)
        if at.attempt == 1:
            raise ValueError

    told.enqueue()
    hf.work(until_idle=True)
    assert seen == [(1, 1), (1, 2), (2, 3)]
