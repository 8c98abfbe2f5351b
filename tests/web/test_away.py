"""A worker whose coordinator is away, slow, or cut off: it goes on with what it can, and ends when it is asked to."""

from __future__ import annotations

import logging
import threading

import httpx2
import pytest
from coordinators import running

from holdfast import Holdfast
from holdfast.errors import StoreBusy, StoreError
from holdfast.failpoints import listening
from holdfast.model.commands import Lease
from holdfast.stores.http.store import HttpStore
from holdfast.testing import ManualClock
from holdfast.testing.conformance.harness import dump_of
from holdfast.workers import remote_calls, shutdown
from holdfast.workers.reservation_keeper import Hold
from support.faultproxy import Fault, FaultProxy, Weather, first_time

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 20
#: What the line does to requests, each once.
ONCE = sorted({Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.CUT_REQUEST, Fault.CUT_ANSWER, Fault.TWICE})


@pytest.fixture(autouse=True)
def _brief_ends(monkeypatch, brief_pauses):
    monkeypatch.setattr(remote_calls, "FIRST_S", 0.001)
    monkeypatch.setattr(remote_calls, "LONGEST_S", 0.01)
    monkeypatch.setattr(shutdown, "LEAVE_S", 0.1)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def coordinator(tmp_path, clock):
    with running(f"wal:{tmp_path / 'jobs'}", clock=clock) as serving:
        yield serving


@pytest.fixture
def near(coordinator, clock):
    """An application beside the coordinator, which nothing cuts off."""
    with Holdfast(coordinator.url, clock=clock) as hf:
        yield hf


class Gate:
    """A handler that says that it has begun and waits to be let go."""

    def __init__(self, hf):
        self.started, self.open = threading.Event(), threading.Event()
        self.context = None

        @hf.task(name="waits")
        def waits() -> str:
            self.context = hf.current
            self.started.set()
            assert self.open.wait(LONG)
            return "done"

        self.task = waits


def drive(w, until):
    """Let the pump do what there is to do until something is so."""
    while not until():
        if not w.pump.cycle():
            w.pump.look()
            w.slots.wait(0.01)


def lost_once(only, fault=Fault.LOSE_ANSWER):
    """Do it to the first request that has these bytes."""
    fares = iter([Weather(fault)])
    return lambda _number, request: next(fares, Weather()) if only in request else Weather()


@pytest.mark.parametrize("fault", ONCE)
def test_jobs_and_workflows_end_once_whatever_happens_to_each_request_the_first_time(coordinator, fault):
    with FaultProxy(coordinator.url, first_time(fault, only=b"/commands")) as proxy, Holdfast(proxy.url) as hf:
        ran = []

        @hf.task
        def count(n: int) -> int:
            ran.append(n)
            return n

        @hf.workflow
        async def total(n: int) -> int:
            return await count.call(n) + await count.call(n + 1)

        jobs = [count.enqueue(n) for n in range(5)]
        sums = [total.start(10 * n, id=f"sum-{n}") for n in range(1, 4)]
        hf.worker(until_idle=True).run()
        assert [job.result(timeout=0) for job in jobs] == [0, 1, 2, 3, 4]
        assert [one.result(timeout=0) for one in sums] == [21, 41, 61]
        # An answer that is lost, or a request that comes twice, makes nothing run again.
        assert sorted(ran) == [0, 1, 2, 3, 4, 10, 11, 20, 21, 30, 31]
        assert {job.refresh().executions for job in jobs} == {1}


def test_that_it_is_away_and_that_it_is_back_is_said_once_and_the_worker_goes_on(proxy, near, caplog):
    caplog.set_level(logging.INFO, "holdfast.worker")
    tries = threading.Semaphore(0)
    with Holdfast(proxy.url) as hf:
        gate = Gate(hf)
        job = near.task(name="waits")(lambda: None).enqueue()
        worker = hf.worker()
        worker.start()
        assert gate.started.wait(LONG)
        with listening("messenger.pausing", tries.release):
            proxy.refuse()
            gate.open.set()
            for _ in range(4):
                assert tries.acquire(timeout=LONG)
        proxy.heal()
        assert job.result(timeout=LONG) == "done"
        worker.drain(0)
        worker.join()
    said = [record.message for record in caplog.records if record.message.startswith("store.")]
    assert said == ["store.away", "store.back"]


@pytest.mark.parametrize("way", ["refused", "swallowed"])
def test_a_worker_that_is_asked_to_stop_ends_although_its_coordinator_is_away(proxy, way):
    noticed = threading.Event()
    with Holdfast(proxy.url) as hf:
        Gate(hf)
        worker = hf.worker()
        worker.start()
        with listening("messenger.pausing" if way == "refused" else "http.sending", noticed.set):
            proxy.refuse() if way == "refused" else proxy.partition()
            assert noticed.wait(LONG)
        worker.drain(30)
        assert worker.join(LONG)
        assert worker.left == 0


def test_a_worker_that_could_not_report_says_so_when_it_ends(proxy, near):
    noticed = threading.Event()
    with Holdfast(proxy.url) as hf:
        gate = Gate(hf)
        job = near.task(name="waits")(lambda: None).enqueue()
        worker = hf.worker()
        worker.start()
        assert gate.started.wait(LONG)
        with listening("messenger.pausing", noticed.set):
            proxy.refuse()
            gate.open.set()
            assert noticed.wait(LONG)
        worker.drain(0)
        with pytest.raises(StoreError):
            worker.join(LONG)
        assert worker.left == 1
        assert job.refresh().status == "RUNNING"


def test_handlers_are_stopped_while_no_answer_comes(proxy, near, clock, monkeypatch):
    """The lease ends by the worker's own clock, and a timeout does not wait for the coordinator."""
    monkeypatch.setattr(remote_calls, "BEAT_S", 0.01)
    with Holdfast(proxy.url, clock=clock) as hf:
        gate = Gate(hf)
        job = near.task(name="waits")(lambda: None).enqueue()
        w = hf.worker(concurrency=1)
        drive(w, gate.started.is_set)
        proxy.partition()
        sending = threading.Event()
        with listening("http.sending", sending.set):
            clock.advance(10)  # a heartbeat is due, and swallowed
            pumping = threading.Thread(target=w.pump.cycle)
            pumping.start()
            assert sending.wait(LONG)
            clock.advance(19.9)
            assert not gate.context.cancelled
            clock.advance(0.1)
            assert gate.context.wait_cancelled(LONG)
        (taken,) = near.engine.submit(Lease(worker_id="other")).grants
        proxy.heal()
        gate.open.set()
        pumping.join(LONG)
        drive(w, lambda: w.pump.lost)
        assert (job.refresh().status, job.refresh().token) == ("RUNNING", taken.token)
        assert [run.status for run in job.runs()] == ["LOST", None]
        w.slots.close()


@pytest.mark.parametrize("way", [Fault.HOLE_REQUEST, Fault.HOLE_ANSWER])
def test_a_worker_cut_off_past_its_lease_is_refused_when_it_reports_and_replay_agrees(
    tmp_path, clock, way, monkeypatch
):
    monkeypatch.setattr(remote_calls, "BEAT_S", 0.01)
    url = f"wal:{tmp_path / 'jobs'}"
    with (
        running(url, clock=clock) as serving,
        FaultProxy(serving.url) as proxy,
        Holdfast(proxy.url, clock=clock) as far,
        Holdfast(serving.url, clock=clock) as near,
    ):
        gate = Gate(far)
        job = near.task(name="waits")(lambda: "other").enqueue()
        first, second = far.worker(concurrency=1), near.worker(concurrency=1)
        drive(first, gate.started.is_set)
        proxy.partition(way)
        clock.advance(31)
        drive(second, lambda: second.pump.reported)
        # By its own clock the first knows that its lease is over, whatever it hears.
        cut_off = threading.Thread(target=drive, args=(first, lambda: first.pump.lost))
        cut_off.start()
        assert gate.context.wait_cancelled(LONG)
        gate.open.set()
        proxy.heal()
        cut_off.join(LONG)
        assert first.pump.lost == 1
        assert job.result(timeout=0) == "other"
        assert [run.status for run in job.runs()] == ["LOST", "COMPLETED"]
        counted = httpx2.get(f"{serving.url}/metrics").text
        assert "holdfast_duplicate_executions_total 1\n" in counted
        first.slots.close()
        second.slots.close()
        seen = dump_of(near.engine.store)
    with running(url, clock=clock) as again:
        store = HttpStore.open(again.url, clock=clock)
        assert dump_of(store) == seen
        store.close()


def test_a_lease_whose_answer_took_half_of_it_is_extended_before_the_handler_begins(proxy, near, clock):
    sent = []

    def slow(_number, request):
        if b"/commands" in request:
            sent.append(request)
            clock.advance(16 if b'"lease"' in request else 0)
        return Weather()

    proxy.script = slow
    with Holdfast(proxy.url, clock=clock) as hf:
        gate = Gate(hf)
        near.task(name="waits")(lambda: None).enqueue()
        w = hf.worker(concurrency=1)
        drive(w, gate.started.is_set)
        assert b'"extend"' in sent[-1]
        (held,) = w.slots.held()
        assert held.lost_at == clock.monotonic() + 30
        gate.open.set()
        drive(w, lambda: w.pump.reported)
        w.slots.close()


def test_a_lease_that_lapsed_on_the_way_is_not_begun(proxy, near, clock):
    def very_slow(_number, request):
        if b'"lease"' in request and b"/commands" in request:
            return Weather(Fault.LOSE_ANSWER)
        return Weather()

    proxy.script = very_slow
    with Holdfast(proxy.url, clock=clock) as hf:
        gate = Gate(hf)
        job = near.task(name="waits")(lambda: None).enqueue()
        w = hf.worker(concurrency=1)

        def lapse():
            clock.advance(31)
            (_taken,) = near.engine.submit(Lease(worker_id="other")).grants
            proxy.script = lambda *_: Weather()

        with listening("messenger.pausing", lapse):
            w.pump.cycle()
        assert not gate.started.is_set()
        assert w.slots.held() == []
        assert job.refresh().worker_id == "other"
        w.slots.close()


def test_what_was_granted_to_a_worker_that_was_told_to_stop_is_given_back(proxy, near, clock):
    proxy.script = lost_once(b'"lease"')
    with Holdfast(proxy.url, clock=clock) as hf:
        gate = Gate(hf)
        job = near.task(name="waits")(lambda: None).enqueue()
        worker = hf.worker(concurrency=1)
        with listening("messenger.pausing", lambda: worker.drain(30)):
            worker.start()
            assert worker.join(LONG)
        assert not gate.started.is_set()
        assert job.refresh().status == "QUEUED"
        assert [run.status for run in job.runs()] == ["CANCELLED"]


def test_a_report_is_given_up_a_minute_after_its_lease_has_ended(proxy, near, clock):
    with Holdfast(proxy.url, clock=clock) as hf:
        gate = Gate(hf)
        near.task(name="waits")(lambda: None).enqueue()
        w = hf.worker(concurrency=1)
        drive(w, gate.started.is_set)
        gate.open.set()
        tries = []

        def wait():
            tries.append(clock.monotonic())
            clock.advance(5)

        # Away from the report on: whoever looks before has somebody to ask.
        with listening("pump.sending", proxy.refuse), listening("messenger.pausing", wait):
            drive(w, lambda: w.pump.lost)
        assert tries[-1] < 30 + remote_calls.RESENT_S <= tries[-1] + 5
        assert w.pump.unreported == 0
        w.slots.close()


def test_a_turn_that_could_not_be_read_is_tried_again_and_not_counted(proxy, clock):
    refused = threading.Event()

    def no_reading(_number, request):
        if b'"look":"history"' not in request:
            return Weather()
        refused.set()
        return Weather(Fault.LOSE_REQUEST)

    with Holdfast(proxy.url, clock=clock) as hf:

        @hf.task
        def one() -> int:
            return 1

        @hf.workflow(name="adds", max_turn_attempts=1)
        async def adds() -> int:
            return await one.call() + await one.call()

        instance = adds.start(id="sum")
        w = hf.worker()
        hf.engine.store._channel._patience_s = 0.0
        drive(w, lambda: w.pump.reported)
        w.turns._residents.clear()
        proxy.script = no_reading
        drive(w, lambda: w.turns.abandoned)
        assert refused.is_set()
        proxy.script = lambda *_: Weather()
        clock.advance(60)
        w.slots.close()
        w.turns.close()
        hf.worker(until_idle=True).run()
        assert instance.result(timeout=0) == 2


def test_parameters_that_cannot_be_fetched_now_fail_no_job(proxy):
    proxy.script = lost_once(b"GET /api/v1/blobs", Fault.LOSE_REQUEST)
    with Holdfast(proxy.url) as hf:
        hf.engine.store._channel._patience_s = 0.0

        @hf.task
        def size(text: str) -> int:
            return len(text)

        job = size.enqueue("x" * 200_000)
        hf.worker(until_idle=True).run()
        assert job.result(timeout=0) == 200_000
        assert job.refresh().executions == 1


def test_an_enqueue_of_unknown_outcome_names_its_job_and_the_way_to_settle_it(proxy, clock):
    with Holdfast(proxy.url, clock=clock) as hf:
        hf.engine.store._channel._patience_s = 0.0

        @hf.task(name="waits")
        def waits() -> str: ...

        proxy.script = lambda *_: Weather(Fault.LOSE_ANSWER)
        with pytest.raises(StoreError, match="not known") as told:
            waits.enqueue()
        proxy.script = lambda *_: Weather()
        (job_id,) = told.value.facts["job_ids"]
        assert hf.job(job_id).status == "QUEUED"


def test_a_reservation_whose_renewal_was_not_answered_is_held_on(proxy, clock):
    with Holdfast(proxy.url, clock=clock) as hf:
        hf.engine.store._channel._patience_s = 0.0
        hold = Hold(hf.engine, "", "own", by="me", ttl_s=60.0)
        assert hold.take() is None
        proxy.script = lambda *_: Weather(Fault.LOSE_ANSWER)
        with pytest.raises(StoreBusy):
            hold.renew()
        proxy.script = lambda *_: Weather()
        assert hold.is_held
        hold.renew()
        hold.release()
