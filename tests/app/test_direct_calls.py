"""`task.direct(…)`: the value or the exception, a job and a run that stay, and a queue that goes on as before."""

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import Cancel, Fatal, Holdfast, Retry, Snooze
from holdfast.errors import (
    DuplicateKey,
    InvalidOperation,
    InvalidValue,
    JobCancelled,
    JobDead,
    JobFailed,
    ReservationConflict,
    ReservationTimeout,
)
from holdfast.failpoints import listening
from holdfast.model.commands import Complete, Expire, Lease, ReleaseReservation
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.testing.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path, clock):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param], clock=clock) as app:
        yield app


@pytest.fixture
def send(hf):
    @hf.task(queue="mail", name="send")
    def send(to: str, copies: int = 1) -> str:
        return to * copies

    return send


def reservations(hf):
    with hf.engine.read() as view:
        return list(view.all(Reservation))


def active(hf):
    return [one for one in reservations(hf) if one.status is ReservationStatus.ACTIVE]


def only_job(hf):
    (job,) = hf.jobs()
    return job


def lease(hf, queue="mail"):
    return hf.engine.ask(Lease(worker_id="w", queues=(queue,), n=9)).grants


def complete(hf, grant):
    hf.engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))


# --- what the caller gets ---------------------------------------------------------------------------------------------


def test_the_caller_gets_the_value_and_the_job_is_kept(hf, send):
    assert send.direct("ab", copies=2) == "abab"
    job = only_job(hf)
    record = job.refresh()
    assert (record.status, record.direct, record.max_attempts, job.result()) == ("COMPLETED", True, 1, "abab")
    (run,) = job.runs()
    assert run.worker_id.startswith("direct:")
    (reservation,) = reservations(hf)
    assert (reservation.status, reservation.queue) == (ReservationStatus.RELEASED, "mail")
    assert record.reservation_id == reservation.reservation_id
    assert "send, directly" in reservation.reserved_by


def test_the_caller_gets_the_very_exception_and_nothing_is_tried_again(hf, clock):
    boom = KeyError("boom")

    @hf.task(max_attempts=9)
    def fails():
        raise boom

    with pytest.raises(KeyError) as caught:
        fails.direct()
    assert caught.value is boom
    clock.advance(86_400)
    hf.work(until_idle=True)
    job = only_job(hf)
    assert (job.status, len(job.runs()), active(hf)) == ("FAILED", 1, [])
    assert "boom" in job.refresh().error


@pytest.mark.parametrize("wish", [Retry("again", after=1), Snooze(5)])
def test_who_asks_to_be_called_again_has_failed(hf, wish):
    @hf.task
    def later():
        raise wish

    with pytest.raises(JobFailed) as caught:
        later.direct()
    assert caught.value.__cause__ is wish
    assert (only_job(hf).status, active(hf)) == ("FAILED", [])


def test_a_fatal_failure_is_the_handlers_own_exception(hf):
    @hf.task
    def fatal():
        raise Fatal("never")

    with pytest.raises(Fatal, match="never"):
        fatal.direct()
    assert only_job(hf).runs()[0].error_kind == "fatal"


def test_a_handler_that_cancels_itself_ends_cancelled(hf):
    @hf.task
    def cancels():
        raise Cancel("enough")

    with pytest.raises(JobCancelled, match="enough"):
        cancels.direct()
    assert only_job(hf).status == "CANCELLED"


def test_a_result_that_cannot_be_kept_is_a_failure(hf):
    @hf.task
    def opens():
        return object()

    with pytest.raises(JobFailed):
        opens.direct()
    assert only_job(hf).runs()[0].error_kind == "bad_result"


def test_arguments_that_do_not_fit_are_refused_before_anything_is_reserved(hf, send):
    with pytest.raises(TypeError):
        send.direct("a", 1, 2)
    with pytest.raises(InvalidValue):
        send.options(priority=1000).direct("a")
    assert reservations(hf) == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_inside_the_handler_ends_the_run_and_reaches_the_caller(hf, kind):
    @hf.task
    def interrupted():
        raise kind

    with pytest.raises(kind):
        interrupted.direct()
    assert (only_job(hf).status, active(hf)) == ("FAILED", [])


# --- run as any job ---------------------------------------------------------------------------------------------------


def test_a_plain_function_runs_in_the_thread_that_asks(hf):
    @hf.task
    def here() -> int:
        return threading.get_ident()

    assert here.direct() == threading.get_ident()


def test_lines_progress_artifacts_and_context_are_those_of_a_run(hf, tmp_path):
    file = tmp_path / "report.txt"
    file.write_text("done")

    @hf.task
    def tells() -> str:
        print("said")
        hf.current.log.info("noted")
        hf.current.progress(1, 2, "half")
        hf.current.artifact(file)
        return f"{hf.current.job_id} {hf.current.run_no} {hf.current.token}"

    told = tells.direct()
    job = only_job(hf)
    assert told == f"{job.id} 1 1"
    assert [line.text for line in job.log()] == ["said", "noted"]
    assert (job.progress.fraction, job.progress.message) == (0.5, "half")
    assert [(one.name, one.read()) for one in job.artifacts()] == [("report.txt", b"done")]
    assert hf.workers() == []


def test_large_arguments_and_results_come_and_go_whole(hf):
    @hf.task
    def doubles(text: str) -> str:
        return text * 2

    assert doubles.direct("x" * 100_000) == "x" * 200_000


def test_a_coroutine_function_runs_on_a_loop(hf):
    @hf.task
    async def adds(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    assert adds.direct(1, 2) == 3


def test_a_coroutine_that_raises_gives_its_very_exception(hf):
    boom = ValueError("boom")

    @hf.task
    async def fails():
        raise boom

    with pytest.raises(ValueError, match="boom") as caught:
        fails.direct()
    assert caught.value is boom


def test_a_command_runs_and_gives_its_result(hf):
    @hf.task(isolation="shell")
    def lists():
        return ["printf", "hello"]

    @hf.task(isolation="shell")
    def exits():
        return ["false"]

    assert lists.direct().exit_code == 0
    with pytest.raises(JobFailed):
        exits.direct()


def test_a_timeout_is_reported_in_time_and_the_caller_is_told_when_the_handler_lets_go(hf, clock):
    seen = []

    @hf.task(timeout=5)
    def slow() -> str:
        clock.advance(6)
        assert hf.current.wait_cancelled(60)
        with hf.engine.read() as view:
            after = view.seq
        while hf.job(hf.current.job_id).status == "RUNNING":
            hf.engine.store.wait(after, 1)
        seen.append(hf.job(hf.current.job_id).status)
        return "too late"

    with pytest.raises(JobFailed, match="timeout"):
        slow.direct()
    assert seen == ["FAILED"]
    assert active(hf) == []


def test_a_cancelled_one_is_told_and_ends_cancelled(hf, clock):
    @hf.task
    def waits():
        hf.job(hf.current.job_id).cancel("changed my mind")
        clock.advance(2)
        assert hf.current.wait_cancelled(60)
        raise RuntimeError("stopped")

    with pytest.raises(JobCancelled, match="changed my mind"):
        waits.direct()


def test_one_whose_lease_was_lost_is_dead_for_its_caller_too(hf, clock):
    @hf.task
    def sleeps() -> str:
        clock.advance(3600)  # as a machine that was suspended
        hf.engine.ask(Expire())
        return "late"

    with pytest.raises(JobDead):
        sleeps.direct()
    assert only_job(hf).status == "DEAD"


def test_no_thread_stays_behind(hf, send):
    before = set(threading.enumerate())
    send.direct("a")
    of_the_store = {"holdfast-journal-flush", "holdfast-sqlite-bell"}  # which end with it
    begun = [one for one in set(threading.enumerate()) - before if one.name not in of_the_store]
    for thread in begun:
        thread.join(10)  # a watcher ends within its pause
    assert [thread.name for thread in begun if thread.is_alive()] == []


# --- the queue --------------------------------------------------------------------------------------------------------


def test_the_queue_goes_on_where_it_was(hf, send):
    first, second = send.enqueue("1"), send.options(priority=5).enqueue("2")
    assert send.direct("now") == "now"
    assert [grant.job.job_id for grant in lease(hf)] == [second.id, first.id]


def test_while_it_runs_nothing_else_of_its_queue_does(hf, send):
    @hf.task(queue="mail")
    def looks() -> int:
        return len(lease(hf))

    queued = send.enqueue("a")
    assert looks.direct() == 0
    assert queued.status == "QUEUED"


def test_it_waits_for_what_runs_and_comes_before_what_waits(hf, send):
    current, later = send.enqueue("1"), send.enqueue("2")
    (grant,) = hf.engine.ask(Lease(worker_id="w", queues=("mail",))).grants
    waiting = threading.Event()
    with ThreadPoolExecutor(1) as pool, listening("reservation.waiting", waiting.set):
        asked = pool.submit(send.direct, "now")
        assert waiting.wait(60)
        assert lease(hf) == ()
        assert not asked.done()
        complete(hf, grant)
        assert asked.result(60) == "now"
    direct = next(job for job in hf.jobs() if job.refresh().direct)
    (next_one,) = lease(hf)
    assert next_one.job.job_id == later.id
    assert current.refresh().finished_at <= direct.refresh().started_at


def test_a_pause_does_not_stop_it(hf, send):
    hf.queue("mail").pause("holiday")
    hf.dispatch.pause()
    assert send.direct("a") == "a"


def test_a_dead_workers_lapsed_lease_is_not_waited_for(hf, send, clock):
    send.enqueue("1")
    lease(hf)
    clock.advance(31)
    assert send.options(wait=0).direct("now") == "now"


# --- how long it waits ------------------------------------------------------------------------------------------------


def test_without_waiting_it_is_told_who_holds_the_queue(hf, send):
    with hf.reserve("mail", by="anna") as held, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(send.options(wait=0).direct, "a")
        with pytest.raises(ReservationConflict, match="anna") as caught:
            asked.result(60)
    assert caught.value.facts["reservation_id"] == held.reservation_id
    assert caught.value.facts["expires_at"]
    assert hf.jobs() == []


def test_without_waiting_it_is_told_what_runs_and_gives_the_queue_back(hf, send):
    running = send.enqueue("1")
    lease(hf)
    with pytest.raises(ReservationConflict) as caught:
        send.options(wait=0).direct("now")
    assert caught.value.facts["job_id"] == running.id
    assert active(hf) == []
    assert len(hf.jobs()) == 1


def test_with_a_limit_it_gives_up_and_gives_the_queue_back(hf, send, clock):
    send.enqueue("1")
    lease(hf)
    with listening("reservation.waiting", lambda: clock.advance(6)), pytest.raises(ReservationTimeout) as caught:
        send.options(wait=5).direct("now")
    assert isinstance(caught.value, TimeoutError)
    assert "within 5 s" in str(caught.value)
    assert active(hf) == []


@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), True, "5"])
def test_what_is_no_time_to_wait_is_refused(hf, send, wait):
    with pytest.raises(InvalidValue):
        send.options(wait=wait).direct("a")
    with pytest.raises(InvalidValue):
        hf.reserve("mail", wait=wait)


def test_those_of_one_process_are_served_in_the_order_they_came(hf, send):
    order = []

    @hf.task(queue="mail")
    def notes(number: int) -> None:
        order.append(number)

    with ThreadPoolExecutor(8) as pool:
        with hf.reserve("mail"):
            calls = []
            for number in range(8):
                calls.append(pool.submit(notes.direct, number))
                waiters = hf.held.waiters("mail")
                while len(waiters._waiting) <= number:  # they can only be seen from inside
                    hf.engine.store.wait(1 << 40, 0.001)
        for call in calls:
            call.result(60)
    assert order == list(range(8))


# --- what cannot be ---------------------------------------------------------------------------------------------------


def test_a_handler_that_would_wait_for_itself_is_told_so(hf, send):
    @hf.task(queue="mail")
    def nests() -> str:
        with pytest.raises(InvalidOperation, match="its own end"):
            send.direct("inner")
        return "told"

    assert nests.direct() == "told"
    job = nests.enqueue()
    hf.work(until_idle=True)
    assert job.result() == "told"
    assert active(hf) == []


def test_a_handler_may_run_another_queue_directly(hf, send):
    @hf.task(queue="other")
    def outer() -> str:
        return send.direct("inner")

    assert outer.direct() == "inner"


def test_a_transaction_of_the_caller_cannot_hold_it(hf, send):
    with pytest.raises(InvalidOperation, match="connection"):
        send.options(connection=object()).direct("a")


def test_a_key_that_is_held_refuses_it(hf, send):
    held = send.options(queue="other", key="k").enqueue("a")
    with pytest.raises(DuplicateKey) as caught:
        send.options(key="k").direct("a")
    assert caught.value.facts["job_id"] == held.id
    assert active(hf) == []


def test_the_same_id_again_gives_the_first_result(hf):
    calls = []

    @hf.task
    def counts() -> int:
        calls.append(1)
        return len(calls)

    assert [counts.options(id="once").direct() for _ in range(3)] == [1, 1, 1]


def test_a_reservation_taken_from_it_while_it_waits_ends_the_wait(hf, send):
    send.enqueue("1")
    (grant,) = lease(hf)

    def take_away():
        for one in active(hf):
            hf.engine.ask(ReleaseReservation(reservation_id=one.reservation_id))
        complete(hf, grant)

    with listening("reservation.waiting", take_away), pytest.raises(InvalidOperation, match="RELEASED"):
        send.direct("now")


# --- interrupts and the end of the program ----------------------------------------------------------------------------


@pytest.fixture
def interruptible():
    """Let SIGINT interrupt: who starts the tests in the background may have had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_it_waits_gives_the_queue_back(hf, send):
    send.enqueue("1")
    lease(hf)
    with (
        listening("reservation.waiting", lambda: os.kill(os.getpid(), signal.SIGINT)),
        pytest.raises(KeyboardInterrupt),
    ):
        send.direct("now")
    assert active(hf) == []


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_of_a_coroutine_cancels_it_and_gives_the_queue_back(hf):
    ended = threading.Event()

    @hf.task
    async def waits():
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        waits.direct()
    assert ended.wait(60)
    assert (only_job(hf).status, active(hf)) == ("CANCELLED", [])


def test_an_interrupt_before_the_first_line_of_the_handler_leaves_nothing_running(hf, send, monkeypatch):
    begun = []

    class Interrupted(threading.Thread):
        def start(self):
            super().start()
            if self.name == "holdfast-direct":
                begun.append(self)
                raise KeyboardInterrupt  # as one that comes while the thread is waited for

    monkeypatch.setattr(threading, "Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        send.direct("now")
    (thread,) = begun
    thread.join(60)
    assert not thread.is_alive()
    assert (only_job(hf).status, active(hf)) == ("CANCELLED", [])


def test_closing_ends_the_wait_of_others(hf, send):
    waiting = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        send.enqueue("1")
        lease(hf)
        with listening("reservation.waiting", waiting.set):
            asked = pool.submit(send.direct, "now")
            assert waiting.wait(60)
        hf.close()
        assert asked.exception(60) is not None


# --- awaited ----------------------------------------------------------------------------------------------------------


def test_awaited_it_gives_the_same(hf, send):
    assert asyncio.run(send.aio.direct("a", copies=3)) == "aaa"


def test_an_awaited_one_that_is_cancelled_while_it_waits_gives_the_queue_back(hf, send):
    send.enqueue("1")
    lease(hf)

    async def story():
        waiting = asyncio.Event()
        loop = asyncio.get_running_loop()
        with listening("reservation.waiting", lambda: loop.call_soon_threadsafe(waiting.set)):
            call = asyncio.create_task(send.aio.direct("now"))
            await waiting.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(story())  # which waits for the threads of its calls
    assert active(hf) == []
    assert len(hf.jobs()) == 1
