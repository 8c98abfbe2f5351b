"""A worker shows itself in the roster, hears what people wish of it, and is not disturbed by a roster that fails."""

import os
import socket
import threading

import msgspec
import pytest

from holdfast.errors import InvalidOperation, InvalidValue, StoreBusy
from holdfast.model.workers import Wish, WorkerState

LONG = 20


@pytest.fixture
def roster(hf):
    return hf.engine.store.workers


@pytest.fixture
def noted(roster, monkeypatch):
    """Every note that is left, as it is left."""
    seen, note = [], roster.note

    def count(info):
        seen.append(info)
        note(info)

    monkeypatch.setattr(roster, "note", count)
    return seen


class Gate:
    """A handler that reports its start, says how far it is, and waits to be let go."""

    def __init__(self, hf):
        self.started = threading.Event()
        self.open = threading.Event()

        @hf.task(name="waits")
        def waits() -> None:
            self.current = hf.current
            self.started.set()
            assert self.open.wait(LONG)

        self.task = waits


@pytest.fixture
def gate(hf):
    made = Gate(hf)
    yield made
    made.open.set()


@pytest.fixture
def w(hf, gate):
    """A worker that has arrived, driven by hand."""
    worker = hf.worker(concurrency=2, name="alpha")
    worker.presence.arrive()
    yield worker
    gate.open.set()
    worker.slots.close()


def drive(w):
    while w.pump.cycle():
        pass


def finish(w):
    while not w.pump.reported:
        w.slots.wait(LONG)
        drive(w)


def test_a_worker_says_who_it_is_and_leaves_no_trace(hf, roster, gate):
    w = hf.worker(["default", "mail"], concurrency=3, name="alpha")
    assert w.worker_id.startswith(f"{socket.gethostname()}-{os.getpid()}-")
    w.start()
    (me,) = roster.all()
    assert (me.worker_id, me.name, me.host, me.pid) == (w.worker_id, "alpha", socket.gethostname(), os.getpid())
    assert (me.queues, me.job_types, me.slots, me.state) == (("default", "mail"), ("waits",), 3, "ready")
    assert (me.session_id, me.namespace, me.runs) == (hf.engine.session_id, "", ())
    assert me.version
    w.drain(0)
    assert w.join(LONG)
    assert roster.all() == []


def test_without_a_name_the_id_is_the_name(hf, roster):
    w = hf.worker()
    w.start()
    assert [info.name for info in roster.all()] == [w.worker_id]
    w.stop()
    assert w.join(LONG)


def test_an_idle_worker_writes_nothing(hf, w, noted, clock):
    w.pump.look()
    for _ in range(59):
        clock.advance(60)
        drive(w)
    assert noted == []


def test_a_worker_that_is_idle_for_days_is_neither_lost_nor_forgotten(hf, w, roster, clock):
    w.pump.look()
    for _ in range(3 * 24):
        clock.advance(3600)
        drive(w)
    assert [info.state for info in roster.all()] == ["ready"]


def test_a_worker_that_fell_silent_at_work_is_lost(hf, w, roster, clock, gate):
    gate.task.enqueue()
    clock.advance(60)
    w.pump.look()
    drive(w)
    assert gate.started.wait(LONG)
    clock.advance(20)
    drive(w)
    assert [info.state for info in roster.all()] == ["ready"]
    clock.advance(181)
    assert [info.state for info in roster.all()] == ["lost"]


def test_a_worker_at_work_is_noted_now_and_then_with_what_it_runs(hf, w, noted, clock, gate):
    clock.advance(60)
    job = gate.task.enqueue()
    w.pump.look()
    drive(w)
    assert gate.started.wait(LONG)
    for _ in range(60):
        clock.advance(1)
        drive(w)
    assert len(noted) <= 4  # one at once, then one in 20 s
    (run,) = noted[-1].runs
    assert (run.job_id, run.run_id, run.job_type) == (job.id, job.runs()[0].run_id, "waits")
    assert run.started_at == job.runs()[0].started_at
    gate.open.set()
    finish(w)
    clock.advance(1)
    drive(w)
    assert noted[-1].runs == ()
    before = len(noted)
    clock.advance(60)
    drive(w)
    assert len(noted) == before


def test_progress_is_seen_within_a_second_and_not_more_often(hf, w, noted, clock, gate):
    gate.task.enqueue()
    clock.advance(60)
    w.pump.look()
    drive(w)
    assert gate.started.wait(LONG)
    noted.clear()
    for n in range(50):
        gate.current.progress(n, 100)
        clock.advance(0.1)
        drive(w)
    assert 4 <= len(noted) <= 5
    assert noted[-1].runs[0].progress.total == 100
    assert [info.runs[0].progress.done for info in noted] == sorted({i.runs[0].progress.done for i in noted})


def test_a_draining_worker_says_so_at_once(hf, w, noted, gate):
    gate.task.enqueue()
    w.pump.look()
    drive(w)
    assert gate.started.wait(LONG)
    w.drain(30)
    drive(w)
    assert noted[-1].state is WorkerState.DRAINING


def test_a_wish_for_quiet_stops_leasing_and_nothing_else(hf, w, roster, gate, clock):
    running = gate.task.enqueue()
    w.pump.look()
    drive(w)
    assert gate.started.wait(LONG)
    assert roster.ask(w.worker_id, Wish.QUIET)
    clock.advance(1)
    drive(w)
    late = gate.task.enqueue()
    w.pump.look()
    drive(w)
    assert (running.status, late.status) == ("RUNNING", "QUEUED")
    assert [info.state for info in roster.all()] == ["draining"]
    gate.open.set()
    finish(w)
    assert (running.status, late.status) == ("COMPLETED", "QUEUED")


@pytest.mark.parametrize("busy", [True, False])
def test_a_wish_to_stop_ends_the_worker_cleanly(hf, roster, gate, busy):
    w = hf.worker(concurrency=2)
    w.start()
    if busy:
        job = gate.task.enqueue()
        assert gate.started.wait(LONG)
    assert roster.ask(w.worker_id, Wish.STOP)
    gate.open.set()
    assert w.join(LONG)
    assert not busy or job.status == "COMPLETED"
    assert roster.all() == []


def test_two_live_workers_cannot_have_one_name(hf, w, roster, clock):
    clock.advance(1)
    second = hf.worker(name="alpha")
    with pytest.raises(InvalidOperation, match=f"host {socket.gethostname()} with pid {os.getpid()}"):
        second.start()
    assert [info.worker_id for info in roster.all()] == [w.worker_id]


def test_the_name_of_a_worker_that_is_gone_may_be_taken(hf, w, roster, clock, monkeypatch):
    lost = [msgspec.structs.replace(info, state=WorkerState.LOST) for info in roster.all()]
    second = hf.worker(name="alpha")
    monkeypatch.setattr(roster, "all", lambda: lost)
    second.start()
    second.stop()
    assert second.join(LONG)


def test_a_name_is_a_name(hf):
    with pytest.raises(InvalidValue) as refused:
        hf.worker(name="a b\n")
    assert "letters, digits" in refused.value.hint


def test_a_roster_that_fails_fails_nothing(hf, gate, roster, monkeypatch):
    def fails(*_):
        raise StoreBusy("not now.")

    for name in ("note", "drop", "all", "wish"):
        monkeypatch.setattr(roster, name, fails)
    w = hf.worker(concurrency=1, name="alpha")
    w.start()
    job = gate.task.enqueue()
    assert gate.started.wait(LONG)
    gate.open.set()
    job.wait(LONG)
    w.drain(0)
    assert w.join(LONG)
    assert job.status == "COMPLETED"


def test_a_name_belongs_to_who_arrived_first_not_to_who_was_made_first(hf, clock):
    made_first = hf.worker(concurrency=1, name="one")
    clock.advance(1)
    arrives_first = hf.worker(concurrency=1, name="one")
    arrives_first.presence.arrive()
    clock.advance(1)
    with pytest.raises(InvalidOperation, match="is at work on this store"):
        made_first.presence.arrive()
    assert [worker.worker_id for worker in hf.workers()] == [arrives_first.worker_id]
    arrives_first.presence.leave()
