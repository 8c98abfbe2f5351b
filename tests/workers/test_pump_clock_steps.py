"""The pump when the clock is set: what is held ends in its own seconds, and what lives is not run twice."""

from datetime import timedelta

import pytest
from test_main_loop import begin, drive, finish, gate, worker

from holdfast.model.commands import Lease, Reserve
from holdfast.model.times import seconds_between, stamp
from holdfast.workers.main_loop import SWEEP_S

HOURS = timedelta(hours=2)


def idle(hf):
    """A worker that has nothing to run, and keeps the store."""
    return hf.worker(concurrency=1, queues=["unused"])


def look(w):
    drive(w)
    w.pump.look()


def test_pump_wakes_when_a_lease_is_over_although_the_clock_was_set_back(hf, clock):
    _, task = gate(hf, lease=5)
    job, w = task.enqueue(), idle(hf)
    look(w)
    hf.engine.ask(Lease(worker_id="gone"))
    look(w)
    clock.advance(1)
    clock.set_wall(clock.now() - HOURS)
    look(w)
    assert w.pump._outlook.tick_at == pytest.approx(clock.monotonic() + 4)
    clock.advance(4)
    drive(w)
    assert (job.status, clock.monotonic() < SWEEP_S) == ("QUEUED", True)


def test_pump_wakes_when_a_reservation_is_over_although_the_clock_was_set_back(hf, clock):
    w = idle(hf)
    hf.engine.ask(Reserve(reservation_id="r", queue="default", reserved_by="gone", ttl_s=5))
    clock.set_wall(clock.now() - HOURS)
    look(w)
    assert w.pump._outlook.tick_at == pytest.approx(clock.monotonic() + 5)


@pytest.mark.parametrize("forward", [timedelta(seconds=40), HOURS, timedelta(days=365)])
def test_job_whose_handler_lives_is_not_run_again_when_the_clock_jumps_forward(hf, clock, forward):
    handler, task = gate(hf, timeout=3600)
    job, w = task.enqueue(), worker(hf)
    begin(w, handler)
    clock.advance(5)
    clock.set_wall(clock.now() + forward)
    drive(w)
    for _ in range(12):
        clock.advance(10)  # a third of the lease
        drive(w)
    assert (job.status, w.pump.lost) == ("RUNNING", 0)
    finish(w, handler)
    found = job.refresh()
    assert (found.status, found.executions, found.expiries) == ("COMPLETED", 1, 0)
    w.slots.close()


def test_lease_goes_on_after_a_jump_forward_for_as_long_as_it_had_left(hf, clock):
    handler, task = gate(hf, timeout=100)
    job, w = task.enqueue(), worker(hf)
    begin(w, handler)
    clock.advance(5)
    before = job.refresh()
    left = [seconds_between(stamp(clock.now()), when) for when in (before.lease_expires_at, before.deadline_at)]
    clock.set_wall(clock.now() + HOURS)
    hf.engine.ask(Lease(worker_id="other", queues=("other",)))  # the first commit after the jump
    after = job.refresh()
    assert (after.token, after.status) == (before.token, "RUNNING")
    assert left == [25, 105]
    assert [seconds_between(stamp(clock.now()), when) for when in (after.lease_expires_at, after.deadline_at)] == left
    finish(w, handler)
    w.slots.close()
