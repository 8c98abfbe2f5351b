"""What users test with: jobs on a store of the test's own, run at once or by hand, by the worker's own rules."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass
from unittest.mock import ANY

import msgspec
import pytest

from holdfast import Cancel, Fatal, Holdfast, Retry, Snooze
from holdfast.errors import InvalidOperation, JobFailed
from holdfast.failpoints import listening
from holdfast.model.commands import Enqueue, Lease, NewJob
from holdfast.testing import ManualClock, assert_enqueued, drain, enqueued, inline, use


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path, clock):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param], clock=clock) as app:
        yield app


def thread() -> int:
    return threading.get_ident()


# --- drain ------------------------------------------------------------------------------------------------------------


def test_drain_runs_what_is_due_in_the_queues_order_and_tells_it(hf):
    seen = []
    note = hf.task(name="note")(seen.append)
    note.enqueue("second")
    note.options(priority=5).enqueue("first")
    note.options(delay=60).enqueue("later")
    runs = drain(hf)
    assert seen == ["first", "second"]
    assert [run.status for run in runs] == ["COMPLETED", "COMPLETED"]
    assert drain(hf) == []


def test_drain_works_in_the_calling_thread(hf):
    task = hf.task(name="where")(thread)
    job = task.enqueue()
    drain(hf)
    assert job.result(0) == threading.get_ident()


def test_drain_serves_queues_no_task_names_and_those_that_appear_meanwhile(hf):
    seen = []
    inner = hf.task(name="inner")(lambda: seen.append("inner"))

    @hf.task(name="outer")
    def outer():
        inner.options(queue="appears").enqueue()

    outer.options(queue="odd").enqueue()
    assert len(drain(hf)) == 2
    assert seen == ["inner"]


def test_drain_of_one_queue_leaves_the_others(hf):
    task = hf.task(name="t")(lambda: None)
    mine, other = task.options(queue="mine").enqueue(), task.options(queue="other").enqueue()
    drain(hf, queues=["mine"])
    assert (mine.status, other.status) == ("COMPLETED", "QUEUED")


def test_drain_until_empty_walks_through_backoffs_and_delays(hf, clock):
    @hf.task(name="flaky", max_attempts=3)
    def flaky():
        if hf.current.run_no < 3:
            raise ValueError("not yet")
        return hf.current.run_no

    began = clock.monotonic()
    job = flaky.options(delay=3600).enqueue()
    runs = drain(hf, until="empty")
    assert [run.status for run in runs] == ["FAILED", "FAILED", "COMPLETED"]
    assert job.result(0) == 3
    # The delay, then 10 s and 20 s of backoff, each with up to a fifth of jitter.
    assert 3630 <= clock.monotonic() - began <= 3636.1


def test_drain_until_empty_runs_chained_retries(hf):
    @hf.task(name="chained", retry="chain", max_attempts=2)
    def chained():
        raise ValueError("never")

    job = chained.enqueue()
    assert [run.status for run in drain(hf, until="empty")] == ["FAILED", "FAILED"]
    assert job.wait(0).status == "FAILED"


def test_drain_takes_over_from_a_worker_that_died(hf, clock):
    task = hf.task(name="t")(lambda: "done")
    job = task.enqueue()
    hf.engine.ask(Lease(worker_id="dead", session_id="gone"))
    assert drain(hf) == []
    assert [run.status for run in drain(hf, until="empty")] == ["COMPLETED"]
    assert [run.status for run in job.runs()] == ["LOST", "COMPLETED"]


def test_drain_until_empty_ends_although_a_queue_is_paused_or_a_task_unknown(hf):
    task = hf.task(name="t")(lambda: None)
    hf.queue("stopped").pause()
    task.options(queue="stopped", delay=5).enqueue()
    hf.engine.ask(Enqueue(jobs=(NewJob(job_id="x", job_type="nobody.knows", params=msgspec.Raw(b"{}"), delay_s=5),)))
    assert drain(hf, until="empty") == []


def test_drain_gives_up_on_a_task_that_enqueues_itself_for_ever(hf):
    @hf.task(name="again")
    def again():
        again.enqueue()

    again.enqueue()
    with pytest.raises(AssertionError, match="enqueue itself"):
        drain(hf, most=50)
    assert [job.status for job in hf.jobs(status="RUNNING")] == []
    assert len(hf.jobs(status="COMPLETED", limit=100)) == 51


def test_time_can_be_moved_on_a_manual_clock_only(tmp_path):
    with Holdfast("memory:") as app, pytest.raises(InvalidOperation, match="manual clock"):
        drain(app, until="empty")


def test_a_handler_that_runs_too_long_by_the_clock_has_timed_out(hf, clock):
    task = hf.task(name="slow", timeout=5, max_attempts=1)(lambda: clock.advance(6))
    job = task.enqueue()
    (run,) = drain(hf)
    assert run.error_kind == "timeout"
    assert job.status == "FAILED"


def test_a_handler_that_outlives_its_lease_loses_the_job(hf, clock):
    task = hf.task(name="slow", lease=30)(lambda: clock.advance(31))
    job = task.enqueue()
    drain(hf, queues=["default"], most=5)
    assert job.runs()[0].status == "LOST"


def test_what_is_meant_for_the_test_run_itself_passes_through(hf):
    @hf.task(name="failing")
    def failing():
        pytest.fail("from inside")

    job, other = failing.enqueue(), failing.enqueue()
    with pytest.raises(pytest.fail.Exception, match="from inside"):
        drain(hf)
    assert job.runs()[0].status == "FAILED"
    assert list(other.runs()) == []


def test_what_is_meant_for_the_test_run_passes_through_nested_handlers(hf):
    @hf.task(name="inner")
    def inner():
        pytest.fail("from inside")

    @hf.task(name="outer")
    def outer():
        inner.enqueue()

    with inline(hf), pytest.raises(pytest.fail.Exception, match="from inside"):
        outer.enqueue()
    assert {job.runs()[0].status for job in hf.jobs()} == {"FAILED"}


# --- handlers of every kind -------------------------------------------------------------------------------------------


def test_coroutines_run_also_where_a_loop_runs_already(hf):
    @hf.task(name="co")
    async def co(n: int) -> int:
        await asyncio.sleep(0)
        assert hf.current.run_no == 1
        return n + 1

    first = co.enqueue(1)
    drain(hf)

    async def inside():
        job = co.enqueue(2)
        drain(hf)
        return job

    assert (first.result(0), asyncio.run(inside()).result(0)) == (2, 3)


def test_a_coroutine_that_fails_where_a_loop_runs_is_a_failed_run(hf):
    @hf.task(name="co", max_attempts=1)
    async def co():
        raise ValueError("broken")

    async def inside():
        co.enqueue()
        return drain(hf)

    (run,) = asyncio.run(inside())
    assert "ValueError: broken" in run.error


def test_a_task_meant_for_a_process_of_its_own_runs_here(hf):
    task = hf.task(name="p", isolation="process")(thread)
    job = task.enqueue()
    drain(hf)
    assert job.result(0) == threading.get_ident()


def test_a_command_is_run_and_waited_for(hf):
    @hf.task(name="say", isolation="shell", max_attempts=1)
    def say(word: str) -> list[str]:
        return ["sh", "-c", f"echo {word}; exit {len(word) - 2}"]

    well, ill = say.enqueue("hi"), say.enqueue("hello")
    drain(hf)
    assert well.result(0).stdout == "hi\n"
    assert (ill.status, ill.runs()[0].exit_code) == ("FAILED", 3)


def test_what_a_handler_prints_logs_and_leaves_behind_is_kept(hf, capsys, tmp_path):
    (tmp_path / "report.txt").write_text("all is well")

    @hf.task(name="talk")
    def talk():
        print("printed")
        hf.current.log.info("logged")
        hf.current.progress(1, 2, "half")
        hf.current.artifact(tmp_path / "report.txt")

    job = talk.enqueue()
    drain(hf)
    assert [line.text for line in job.log()] == ["printed", "logged"]
    assert job.progress.fraction == 0.5
    assert b"report.txt" in bytes(job.runs()[0].artifacts)
    assert capsys.readouterr().out == "printed\n"


def test_large_arguments_and_results_are_kept_and_found(hf):
    large = "x" * 100_000
    echo = hf.task(name="echo")(lambda text: text)
    job = echo.enqueue(large)
    drain(hf)
    assert job.result(0) == large
    assert assert_enqueued(echo, large).id == job.id


def test_drain_until_empty_waits_for_a_rate_by_moving_the_clock(hf, clock):
    task = hf.task(name="t", queue="slow")(lambda: None)
    hf.queue("slow").set(rate=(1, 10))
    task.enqueue_many([()] * 3)
    assert len(drain(hf)) == 1
    began = clock.monotonic()
    assert len(drain(hf, until="empty")) == 2
    assert clock.monotonic() - began == 20


@pytest.mark.parametrize(
    ("signal", "status", "reason"),
    [
        (Retry("once more", after=7), "QUEUED", None),
        (Snooze(7), "QUEUED", "snoozed"),
        (Cancel("no need"), "CANCELLED", "gave_up"),
        (Fatal("hopeless"), "FAILED", None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_signals_choose_the_outcome(hf, clock, signal, status, reason):
    @hf.task(name="t")
    def t():
        raise signal

    job = t.enqueue()
    (run,) = drain(hf)
    assert (job.status, run.reason) == (status, reason)
    if status == "QUEUED":
        clock.advance(6.9)
        assert drain(hf) == []
        clock.advance(0.2)
        assert len(drain(hf)) == 1


# --- inline -----------------------------------------------------------------------------------------------------------


def test_inline_runs_a_job_before_enqueue_returns(hf):
    @hf.task(name="add")
    def add(a: int, b: int) -> int:
        assert hf.current.job_id
        return a + b

    with inline(hf):
        job = add.enqueue(1, 2)
        assert (job.status, job.result(0)) == ("COMPLETED", 3)
        assert [made.result(0) for made in add.enqueue_many([(1, 1), (2, 2)])] == [2, 4]
    assert add.enqueue(1, 2).status == "QUEUED"


def test_inline_records_a_failure_and_leaves_its_retry_to_time(hf):
    @hf.task(name="t", max_attempts=2)
    def t():
        raise ValueError("broken")

    with inline(hf):
        job = t.enqueue()
        assert (job.status, len(job.runs())) == ("QUEUED", 1)
        drain(hf, until="empty")
        with pytest.raises(JobFailed, match="broken"):
            job.result(0)
        again = job.retry()
        assert len(again.runs()) == 1


def test_inline_handlers_may_enqueue_and_await_others(hf):
    inner = hf.task(name="inner")(lambda: "inner")

    @hf.task(name="outer")
    def outer() -> str:
        mine = hf.current.job_id
        said = inner.enqueue().result(0)
        assert hf.current.job_id == mine
        return f"outer of {said}"

    with inline(hf):
        assert outer.enqueue().result(0) == "outer of inner"


def test_a_chain_of_inline_jobs_may_be_longer_than_the_stack(hf):
    seen = []

    @hf.task(name="count")
    def count(n: int) -> None:
        seen.append(n)
        if n:
            count.enqueue(n - 1)

    with inline(hf):
        count.enqueue(100)
    assert sorted(seen) == list(range(101))


def test_inline_enqueue_returns_when_its_job_has_ended_although_another_thread_runs_it(hf):
    standing, begun, go = threading.Event(), threading.Event(), threading.Event()
    ended = []

    @hf.task(name="slow")
    def slow():
        begun.set()
        go.wait(60)

    quick = hf.task(name="quick")(lambda: None)

    def hold():
        # The first thread has enqueued and is about to lease: the second one takes its job meanwhile.
        if threading.current_thread() is first and not begun.is_set():
            standing.set()
            begun.wait(60)

    first = threading.Thread(target=lambda: ended.append(slow.enqueue().status))
    second = threading.Thread(target=quick.enqueue)
    with inline(hf), listening("pump.sending", hold):
        first.start()
        standing.wait(60)
        second.start()
        begun.wait(60)
        assert ended == []
        go.set()
        first.join(60)
        second.join(60)
    assert ended == ["COMPLETED"]


def test_inline_does_not_wait_for_a_job_that_was_there_before(hf):
    @hf.task(name="single")
    def single() -> bool:
        return single.options(key="one").enqueue().created

    with inline(hf):
        assert single.options(key="one").enqueue().result(0) is False


def test_inline_works_for_awaited_enqueues(hf):
    task = hf.task(name="t")(lambda: "done")

    async def main():
        job = await task.aio.enqueue()
        return job.status

    with inline(hf):
        assert asyncio.run(main()) == "COMPLETED"


# --- use --------------------------------------------------------------------------------------------------------------


def test_an_application_of_its_own_url_is_tested_on_another_store(tmp_path, clock):
    file = tmp_path / "production.db"
    app = Holdfast(f"sqlite:{file}")
    task = app.task(name="t")(lambda: "done")
    with use(app, clock=clock):
        job = task.enqueue()
        app.close()  # as a server's shutdown does
        drain(app)
        assert job.result(0) == "done"
    assert not file.exists()
    assert app.jobs() == []  # its own store, made just now
    app.close()


def test_what_is_awaited_on_a_lent_store_is_told(tmp_path):
    app = Holdfast(f"sqlite:{tmp_path / 'production.db'}")
    task = app.task(name="t")(lambda: "done")

    async def story():
        job = await task.aio.enqueue()
        awaited = asyncio.create_task(job.aio.result(60))
        await asyncio.to_thread(drain, app)
        return await awaited

    with use(app):
        assert asyncio.run(story()) == "done"


def test_use_and_inline_go_together(tmp_path):
    app = Holdfast(f"sqlite:{tmp_path / 'production.db'}")
    task = app.task(name="t")(lambda: "done")
    with use(app), inline(app):
        assert task.enqueue().result(0) == "done"


# --- assert_enqueued --------------------------------------------------------------------------------------------------


@dataclass
class Address:
    street: str


@pytest.fixture
def send(hf):
    @hf.task(name="send", queue="mail")
    def send(to: str, subject: str = "hi", where: Address | None = None) -> None: ...

    return send


def test_a_call_is_found_by_its_arguments_whole_or_in_part(send):
    send.enqueue("a@example.com", subject="one")
    made = send.enqueue("b@example.com", where=Address("High Street"))
    assert assert_enqueued(send).id == made.id
    assert assert_enqueued(send, "b@example.com").id == made.id
    assert assert_enqueued(send, to="b@example.com", subject="hi").id == made.id
    assert assert_enqueued(send, ANY, subject="one").refresh().queue == "mail"
    assert assert_enqueued(send, where=Address("High Street")).id == made.id
    assert len(enqueued(send)) == 2


def test_a_call_that_was_not_made_is_told_beside_those_that_were(send):
    send.enqueue("a@example.com")
    with pytest.raises(AssertionError, match=r"send\(to='c'\) was not enqueued(.|\n)*to='a@example.com', subject='hi'"):
        assert_enqueued(send, "c")
    with pytest.raises(TypeError):
        assert_enqueued(send, nonsense=1)


def test_nothing_enqueued_is_said_so(send):
    assert enqueued(send) == []
    with pytest.raises(AssertionError, match="none"):
        assert_enqueued(send)


def test_a_job_joins_a_transaction_on_the_store_that_is_used(tmp_path):
    hf = Holdfast("sqlite:never-opened.db")
    task = hf.task(name="t")(lambda: None)
    path = tmp_path / "jobs.db"
    with use(hf, f"sqlite:{path}"), closing(sqlite3.connect(path)) as db:
        assert hf.is_open
        db.execute("BEGIN IMMEDIATE")
        job = task.options(connection=db).enqueue()
        db.commit()
        assert job.status == "QUEUED"
    assert not hf.is_open
