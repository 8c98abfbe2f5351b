"""The pump, driven by hand: each cycle is one call, time is the test's, and handlers wait for events."""

import asyncio
import threading

import pytest

from holdfast import Holdfast
from holdfast.engine.engine import Engine
from holdfast.errors import StoreBusy, StoreFailed
from holdfast.failpoints import listening
from holdfast.model.commands import EndSession, Lease
from holdfast.workers.worker import Worker

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 20


class Gate:
    """A handler that reports its start and waits to be let go."""

    def __init__(self, hf):
        self.hf = hf
        self.started = threading.Event()
        self.open = threading.Event()
        self.context = None

    def __call__(self) -> str:
        self.context = self.hf.current
        self.started.set()
        assert self.open.wait(LONG)
        return "done"


def gate(hf, **options):
    handler = Gate(hf)

    def waits() -> str:
        return handler()

    return handler, hf.task(name="waits", **options)(waits)


def worker(hf, size=2):
    return hf.worker(concurrency=size)


def drive(w):
    """Let the pump do all it has to do now."""
    while w.pump.cycle():
        pass


def begin(w, handler):
    drive(w)
    assert handler.started.wait(LONG)


def drive_until_reported(w):
    """Drive until a report was answered; sleep only while no handler has ended."""
    drive(w)
    while not w.pump.reported + w.pump.lost:
        w.slots.wait(LONG)
        drive(w)


def finish(w, handler):
    handler.open.set()
    drive_until_reported(w)


def sent(hf):
    """Count the commits of a block."""
    count = []
    return count, listening("pump.sent", lambda: count.append(1))


def test_heartbeats_keep_a_long_job_alive(hf, clock):
    handler, task = gate(hf)
    job, w = task.enqueue(), worker(hf)
    begin(w, handler)
    for _ in range(12):
        clock.advance(10)  # a third of the lease
        drive(w)
    assert job.status == "RUNNING"
    finish(w, handler)
    assert (job.status, job.refresh().executions, job.refresh().expiries) == ("COMPLETED", 1, 0)
    w.slots.close()


def test_a_lease_is_not_renewed_before_a_third_of_it_has_passed(hf, clock):
    handler, task = gate(hf)
    task.enqueue()
    w = worker(hf)
    begin(w, handler)
    count, commits = sent(hf)
    with commits:
        clock.advance(9.9)
        drive(w)
        assert count == []
        clock.advance(0.1)
        drive(w)
        assert count == [1]
    finish(w, handler)
    w.slots.close()


def test_a_lease_that_was_lost_stops_the_handler_and_its_result_is_discarded(hf, clock):
    handler, task = gate(hf)
    job, w = task.enqueue(), worker(hf)
    begin(w, handler)
    clock.advance(31)  # the worker slept through its lease; someone else takes the job
    taken = hf.engine.ask(Lease(worker_id="other")).grants[0]
    drive(w)
    assert handler.context.cancelled
    finish(w, handler)  # the authority decides, and says that it is too late
    assert w.pump.lost == 1
    record = job.refresh()
    assert (record.status, record.token) == ("RUNNING", taken.token)
    assert [run.status for run in job.runs()] == ["LOST", None]
    w.slots.close()


def test_a_result_that_comes_after_the_lease_is_refused_and_counted(hf, clock):
    handler, task = gate(hf)
    job, w = task.enqueue(), worker(hf)
    begin(w, handler)
    handler.open.set()
    w.slots.wait(LONG)
    clock.advance(31)
    drive(w)
    assert w.pump.lost == 1
    assert next(run.status for run in job.runs()) == "LOST"
    w.slots.close()


def test_a_forced_cancel_stops_the_handler_at_the_next_look(hf, clock):
    handler, task = gate(hf)
    job, w = task.enqueue(), worker(hf)
    begin(w, handler)
    job.cancel("enough", force=True)
    clock.advance(1)
    w.pump.look()
    drive(w)
    assert handler.context.cancelled
    assert (job.status, w.pump.lost) == ("CANCELLED", 1)
    handler.open.set()
    w.slots.wait(LONG)
    assert w.slots.discarded == 1
    w.slots.close()


@pytest.mark.parametrize("by", ["look", "heartbeat"])
def test_a_cancelled_job_tells_its_running_thread(hf, clock, by):
    seen = threading.Event()

    @hf.task
    def patient() -> str:
        seen.set()
        assert hf.current.wait_cancelled(LONG)
        raise RuntimeError("stopped half way")

    job, w = patient.enqueue(), worker(hf)
    drive(w)
    assert seen.wait(LONG)
    assert job.cancel("not needed") == "requested"
    clock.advance(1 if by == "look" else 10)
    if by == "look":
        w.pump.look()
    drive_until_reported(w)
    record = job.refresh()
    assert (record.status, record.cancel_reason, record.executions) == ("CANCELLED", "not needed", 1)
    w.slots.close()


def test_a_cancel_right_after_a_look_is_seen_a_second_later(hf, clock):
    handler, task = gate(hf)
    job, w = task.enqueue(), worker(hf)
    begin(w, handler)
    w.pump.look()
    job.cancel()
    w.pump.look()  # woken by the cancel, but what runs was looked at just now
    assert not handler.context.cancelled
    assert w.pump._wake_at(1) == clock.monotonic() + 1
    clock.advance(1)
    w.slots.poke()
    w.pump._rest()
    assert handler.context.cancelled
    finish(w, handler)
    w.slots.close()


def test_a_cancel_is_seen_a_second_later_although_every_look_finds_work_first(hf, clock):
    handler, task = gate(hf)
    job, w = task.enqueue(), worker(hf)
    begin(w, handler)
    clock.advance(1)
    job.cancel()
    task.enqueue()
    for _ in range(2):
        w.pump.look()  # stops at the job that can be started
        assert (w.pump._outlook.hope, w.pump._outlook.is_fresh, handler.context.cancelled) == (True, False, False)
    clock.advance(1)
    w.pump.look()
    assert (w.pump._outlook.hope, w.pump._outlook.is_fresh, handler.context.cancelled) == (True, True, True)
    finish(w, handler)
    w.slots.close()


def test_a_cancelled_job_cancels_its_coroutine(hf, clock):
    seen, cleaned = threading.Event(), threading.Event()

    @hf.task
    async def patient() -> str:
        seen.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
        return "never"

    job, w = patient.enqueue(), worker(hf)
    drive(w)
    assert seen.wait(LONG)
    job.cancel("not needed")
    clock.advance(10)
    drive_until_reported(w)
    assert cleaned.is_set()
    assert (job.status, job.refresh().cancel_reason) == ("CANCELLED", "not needed")
    w.slots.close()


def test_what_completes_in_spite_of_a_cancel_is_completed(hf, clock):
    handler, task = gate(hf)
    job, w = task.enqueue(), worker(hf)
    begin(w, handler)
    job.cancel()
    clock.advance(10)
    drive(w)
    finish(w, handler)
    assert (job.status, job.result(timeout=0)) == ("COMPLETED", "done")
    w.slots.close()


def test_a_thread_that_ran_too_long_is_reported_at_once_and_keeps_its_slot(hf, clock):
    handler, task = gate(hf, timeout=5, max_attempts=1)
    job, w = task.enqueue(), worker(hf, size=1)
    begin(w, handler)
    clock.advance(4.9)
    drive(w)
    assert job.status == "RUNNING"
    clock.advance(0.1)
    drive(w)
    assert handler.context.cancelled
    assert (job.status, [run.error_kind for run in job.runs()]) == ("FAILED", ["timeout"])
    assert w.slots.room() == 0
    handler.open.set()
    w.slots.wait(LONG)
    assert (w.slots.room(), w.slots.discarded) == (1, 1)
    drive(w)
    assert job.status == "FAILED"
    w.slots.close()


def test_a_coroutine_that_ran_too_long_is_cancelled(hf, clock):
    seen = threading.Event()

    @hf.task(timeout=5, max_attempts=1)
    async def slow() -> str:
        seen.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "too late"
        return "never"

    job, w = slow.enqueue(), worker(hf)
    drive(w)
    assert seen.wait(LONG)
    clock.advance(5)
    drive_until_reported(w)
    assert (job.status, [run.error_kind for run in job.runs()]) == ("FAILED", ["timeout"])
    assert "timeout of 5 s" in job.refresh().error
    w.slots.close()


def test_many_jobs_are_leased_and_reported_in_few_commits(hf):
    @hf.task
    async def nothing() -> None:
        return None

    nothing.enqueue_many([() for _ in range(200)])
    w = hf.worker(concurrency=50, until_idle=True)
    count, commits = sent(hf)
    with commits:
        w.run()
    assert w.pump.reported == 200
    assert len(count) < 100


def test_what_was_leased_ahead_is_given_back_if_it_does_not_start_soon(hf, clock):
    handler, task = gate(hf)
    w = worker(hf, size=1)
    w.pump._mean_s = 0.0  # as after many short handlers
    jobs = [task.enqueue(), task.enqueue()]
    begin(w, handler)
    assert [job.status for job in jobs] == ["RUNNING", "RUNNING"]
    clock.advance(0.5)
    drive(w)
    assert [job.status for job in jobs] == ["RUNNING", "QUEUED"]
    assert jobs[1].refresh().attempts == 0
    assert [run.reason for run in jobs[1].runs()] == ["released"]
    handler.open.set()
    w.slots.close()


def test_the_shorter_handlers_are_the_further_ahead_they_are_leased_up_to_eight_a_slot(hf):
    w = worker(hf, size=2)
    room = []
    for mean_s in (1.0, 0.05, 0.049, 0.01, 0.0001, 0.0):
        w.pump._mean_s = mean_s
        room.append(w.pump._room(w.pump._slots.held(), w.pump._now()))
    assert room == [2, 2, 4, 12, 18, 18]
    w.slots.close()


def test_without_a_history_of_short_handlers_no_more_is_leased_than_there_are_slots(hf):
    handler, task = gate(hf)
    w = worker(hf, size=1)
    jobs = [task.enqueue(), task.enqueue()]
    begin(w, handler)
    assert [job.status for job in jobs] == ["RUNNING", "QUEUED"]
    finish(w, handler)
    w.slots.close()


def test_a_delayed_job_is_leased_when_its_time_comes(hf, clock):
    @hf.task
    def tick() -> int:
        return 1

    job, w = tick.options(delay=60).enqueue(), worker(hf)
    drive(w)
    w.pump.look()
    assert job.status == "QUEUED"
    assert w.pump._outlook.delayed_at == pytest.approx(clock.monotonic() + 60)
    assert w.pump._wake_at(1) <= clock.monotonic() + 60
    clock.advance(60)
    w.pump._rest()  # sleeps no longer: the time has come
    drive_until_reported(w)
    assert job.status == "COMPLETED"
    w.slots.close()


def test_a_lapsed_lease_of_another_worker_is_ended_by_the_tick(hf, clock):
    @hf.task
    def job_of_the_dead() -> int:
        return 1

    job = job_of_the_dead.enqueue()
    hf.engine.ask(Lease(worker_id="dead"))
    w = worker(hf)
    drive(w)
    w.pump.look()
    clock.advance(30)
    drive(w)
    w.pump.look()
    drive_until_reported(w)
    assert job.status == "COMPLETED"
    assert [run.status for run in job.runs()] == ["LOST", "COMPLETED"]
    w.slots.close()


def test_a_busy_store_delays_a_report_and_loses_nothing(hf, monkeypatch):
    handler, task = gate(hf)
    job, w = task.enqueue(), worker(hf)
    begin(w, handler)
    handler.open.set()
    w.slots.wait(LONG)

    def busy(self, commands):
        raise StoreBusy("someone else writes.")

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "submit_many", busy)
        with pytest.raises(StoreBusy):
            w.pump.cycle()
    assert job.status == "RUNNING"
    drive(w)
    assert job.status == "COMPLETED"
    w.slots.close()


def test_a_busy_store_does_not_end_the_worker(hf, monkeypatch):
    @hf.task
    def simple() -> int:
        return 1

    job = simple.enqueue()
    real, times = Engine.submit_many, []

    def busy_at_first(self, commands):
        times.append(1)
        if len(times) == 1:
            w.slots.poke()  # do not make the test wait for the pause
            raise StoreBusy("someone else writes.")
        return real(self, commands)

    monkeypatch.setattr(Engine, "submit_many", busy_at_first)
    w = hf.worker(until_idle=True)
    w.run()
    assert job.status == "COMPLETED"


def test_a_failed_store_ends_the_worker_and_whoever_waits_hears_of_it(hf, monkeypatch):
    handler, task = gate(hf)
    task.enqueue()
    w = worker(hf)
    w.start()
    assert handler.started.wait(LONG)

    def broken(self, commands):
        raise StoreFailed("the disk is gone.")

    monkeypatch.setattr(Engine, "submit_many", broken)
    handler.open.set()
    with pytest.raises(StoreFailed):
        w.join(LONG)


def test_an_idle_pump_neither_reads_nor_writes(hf, monkeypatch):
    @hf.task
    def nothing() -> None:
        return None

    w = worker(hf)
    drive(w)
    w.pump.look()
    touched = []
    for name in ("read", "write"):
        real = getattr(hf.engine.store, name)
        monkeypatch.setattr(hf.engine.store, name, lambda real=real: (touched.append(1), real())[1])
    assert not w.pump.cycle()
    w.slots.poke()
    w.pump._rest()
    assert not w.pump.cycle()
    assert touched == []
    w.pump._watcher.close()
    assert isinstance(w, Worker)


def test_a_due_job_that_nobody_may_take_does_not_keep_the_pump_busy(hf, clock):
    @hf.task
    def tick() -> int:
        return 1

    job = tick.options(delay=60).enqueue()
    hf.dispatch.pause("inventory")
    clock.advance(60)
    cycles = []
    w = hf.worker(until_idle=True)
    with listening("pump.sending", lambda: cycles.append(1)):
        w.run()
    assert job.status == "QUEUED"
    assert len(cycles) < 10


def test_a_job_of_another_queue_that_is_due_does_not_keep_the_pump_busy(hf, clock):
    @hf.task
    def tick() -> int:
        return 1

    job = tick.options(delay=60, queue="elsewhere").enqueue()
    clock.advance(60)
    cycles = []
    w = hf.worker(until_idle=True)
    with listening("pump.sending", lambda: cycles.append(1)):
        w.run()
    assert job.status == "QUEUED"
    assert len(cycles) < 10


# --- what was lost with other workers ---------------------------------------------------------------------------------


def lose(hf, *jobs, times):
    """Have a worker die that runs these."""
    for _ in range(times):
        grants = hf.engine.ask(Lease(worker_id="other", n=9, session_id="dead")).grants
        assert {grant.job.job_id for grant in grants} == {job.id for job in jobs}
        hf.engine.ask(EndSession(session_id="dead"))


def drive_until_completed(w, job):
    while job.refresh().status != "COMPLETED":
        w.pump.look()
        drive(w)
        if w.slots.held():
            w.slots.wait(LONG)


def statuses(*jobs):
    return [str(job.refresh().status) for job in jobs]


def test_job_lost_twice_runs_alone(hf, clock):
    handler, task = gate(hf)
    suspect = task.enqueue()
    lose(hf, suspect, times=2)
    fast = hf.task(name="fast")(lambda: None)
    w, before = worker(hf), fast.options(priority=1).enqueue()
    drive_until_reported(w)  # leased with what stands before it, it would not have been alone
    while suspect.refresh().status == "QUEUED":
        w.pump.look()
        drive(w)
    assert handler.started.wait(LONG)
    after = fast.enqueue()
    w.pump.look()
    drive(w)
    assert statuses(before, suspect, after) == ["COMPLETED", "RUNNING", "QUEUED"]
    finish(w, handler)
    drive_until_completed(w, after)
    assert statuses(suspect) == ["COMPLETED"]
    w.slots.close()


def test_job_lost_twice_waits_for_an_empty_worker_and_is_made_way_for(hf, clock):
    handler, task = gate(hf)
    busy, w = task.enqueue(), worker(hf)
    begin(w, handler)
    other = hf.task(name="other")(lambda: None)
    suspect = other.enqueue()
    lose(hf, suspect, times=2)
    fresh = other.enqueue()
    clock.advance(10)
    w.pump.look()
    drive(w)
    assert statuses(busy, suspect, fresh) == ["RUNNING", "QUEUED", "QUEUED"]
    clock.advance(5)  # not for ever
    w.pump.look()
    drive_until_reported(w)
    assert statuses(busy, suspect, fresh) == ["RUNNING", "QUEUED", "COMPLETED"]
    finish(w, handler)
    drive_until_completed(w, suspect)
    w.slots.close()


def test_jobs_lost_once_begin_a_moment_apart(hf, clock):
    handler, task = gate(hf)
    jobs, w = task.enqueue_many([()] * 2), worker(hf, 4)
    lose(hf, *jobs, times=1)
    begin(w, handler)
    assert statuses(*jobs) == ["RUNNING", "QUEUED"]
    clock.advance(0.9)
    w.pump.look()
    drive(w)
    assert statuses(*jobs) == ["RUNNING", "QUEUED"]
    clock.advance(1)
    drive(w)
    w.pump.look()  # nothing has happened, but it is time to ask again
    drive(w)
    assert statuses(*jobs) == ["RUNNING", "RUNNING"]
    handler.open.set()
    w.slots.close()


def test_jobs_that_wait_for_a_slot_are_marked_as_not_begun(tmp_path, clock):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}", clock=clock) as hf:
        handler, task = gate(hf)
        jobs, w = task.enqueue_many([()] * 3), worker(hf, 1)
        leased = hf.engine.ask(Lease(worker_id=w.worker_id, n=3, session_id=hf.engine.session_id))

        def unbegun():
            tokens = [(w.worker_id, grant.token) for grant in leased.grants]
            return sorted(hf.engine.store.sessions.unbegun(hf.engine.session_id, tokens))

        first, second, third = (grant.token for grant in leased.grants)
        assert unbegun() == [first, second, third]  # granted, but the answer has not come
        w.pump.take(leased, 3, clock.monotonic())
        assert handler.started.wait(LONG)
        assert unbegun() == [second, third]
        handler.open.set()
        while w.slots.held():
            w.slots.wait(LONG)
            w.slots.collect()
        assert unbegun() == []
        assert len(jobs) == 3
        w.slots.close()


def test_jobs_given_back_are_not_marked_any_more(tmp_path, clock):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}", clock=clock) as hf:
        handler, task = gate(hf)
        task.enqueue_many([()] * 3)
        w = worker(hf, 1)
        leased = hf.engine.ask(Lease(worker_id=w.worker_id, n=3, session_id=hf.engine.session_id))
        w.pump.take(leased, 3, clock.monotonic())
        assert handler.started.wait(LONG)
        clock.advance(0.5)
        drive(w)
        tokens = [(w.worker_id, grant.token) for grant in leased.grants]
        assert hf.engine.store.sessions.unbegun(hf.engine.session_id, tokens) == set()
        handler.open.set()
        w.slots.close()
