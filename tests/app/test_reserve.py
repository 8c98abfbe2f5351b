"""`hf.reserve`: a queue held inside a block, renewed by itself, seen by others, given back whatever happens."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from holdfast import Holdfast
from holdfast.errors import (
    HoldfastError,
    InvalidOperation,
    InvalidValue,
    ReservationConflict,
    ReservationTimeout,
    StoreBusy,
)
from holdfast.failpoints import listening
from holdfast.model.commands import Complete, Lease, ReleaseReservation
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.testing.clock import ManualClock
from holdfast.workers import reservation_keeper


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture(params=["memory", "wal", "sqlite"])
def hf(request, tmp_path, clock):
    urls = {"memory": "memory:", "wal": f"wal:{tmp_path / 'journal'}", "sqlite": f"sqlite:{tmp_path / 'jobs.db'}"}
    with Holdfast(urls[request.param], clock=clock) as app:
        app.task(queue="mail", name="send")(lambda: "sent")
        yield app


def kept(hf, held):
    with hf.engine.read() as view:
        return view.get(Reservation, held.reservation_id)


def lease(hf):
    return hf.engine.ask(Lease(worker_id="w", queues=("mail",))).grants


def enqueue(hf):
    return hf.task(queue="mail", name="other")(lambda: "sent").enqueue()


def test_inside_the_block_nothing_is_dispatched_and_after_it_all_is(hf):
    job = enqueue(hf)
    with hf.reserve("mail", by="the nightly import") as held:
        assert lease(hf) == ()
        assert "the nightly import" in job.explain().sentence
        assert held.is_held
    assert not held.is_held
    assert kept(hf, held).status is ReservationStatus.RELEASED
    assert [grant.job.job_id for grant in lease(hf)] == [job.id]


def test_without_a_name_the_process_is_named(hf):
    with hf.reserve("mail") as held:
        assert f"pid {os.getpid()}" in kept(hf, held).reserved_by


def test_an_exception_gives_the_queue_back(hf):
    with pytest.raises(KeyError), hf.reserve("mail") as held:
        raise KeyError
    assert kept(hf, held).status is ReservationStatus.RELEASED


def test_it_tells_when_it_ends_and_a_renewal_moves_that(hf, clock):
    with hf.reserve("mail", ttl=timedelta(seconds=90)) as held:
        assert held.expires_at == clock.now() + timedelta(seconds=90)
        clock.advance(60)
        held.renew()
        assert held.expires_at == clock.now() + timedelta(seconds=90)
        assert held.renewed == 1


def test_it_is_renewed_by_itself_at_a_third_of_its_ttl(tmp_path):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
        renewals = threading.Semaphore(0)
        with listening("reservation.renewed", renewals.release), hf.reserve("mail", ttl=1) as held:
            for _ in range(4):  # longer than the ttl
                assert renewals.acquire(timeout=30)
            assert held.is_held
            assert held.renewed >= 4
            with pytest.raises(ReservationConflict):
                Holdfast(hf.url).reserve("mail", wait=0).acquire()


def test_one_that_was_taken_away_is_noticed(hf, clock):
    with hf.reserve("mail") as held:
        hf.engine.ask(ReleaseReservation(reservation_id=held.reservation_id))
        assert held.is_held  # so far nobody has told it
        with pytest.raises(InvalidOperation, match="RELEASED"):
            held.renew()
        assert not held.is_held


def test_one_that_was_not_renewed_in_time_is_not_held(hf, clock):
    with hf.reserve("mail") as held:
        clock.advance(61)
        assert not held.is_held
    with hf.reserve("mail", wait=0):
        pass


def test_a_busy_store_is_asked_again_before_the_hold_is_over(hf, clock, monkeypatch):
    monkeypatch.setattr(reservation_keeper, "RETRY_S", 0.001)
    answers = threading.Semaphore(0)
    with hf.reserve("mail") as held:
        ask = hf.engine.submit
        problems = iter([StoreBusy("busy")] * 3)

        def submit(command):
            problem = next(problems, None)
            if problem is not None:
                raise problem
            answer = ask(command)
            answers.release()
            return answer

        monkeypatch.setattr(hf.engine, "submit", submit)
        clock.advance(20)
        with held._changed:  # its thread sleeps by the machine's clock
            held._renew_at = 0.0
            held._changed.notify_all()
        while not answers.acquire(timeout=0.01):
            clock.advance(0.01)
        monkeypatch.undo()
    assert kept(hf, held).status is ReservationStatus.RELEASED


def test_a_release_that_the_store_cannot_take_is_left_to_the_ttl(hf, monkeypatch, caplog):
    def ask(_command):
        raise StoreBusy("busy")

    with hf.reserve("mail") as held:
        monkeypatch.setattr(hf.engine, "ask", ask)
    monkeypatch.undo()
    assert "reservation.unreleased" in caplog.messages
    assert kept(hf, held).status is ReservationStatus.ACTIVE


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_without_waiting_the_holder_is_named(hf):
    with hf.reserve("mail", by="anna"), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(hf.reserve("mail", wait=0).__enter__)
        with pytest.raises(ReservationConflict, match="anna"):
            asked.result(60)


def test_with_a_limit_it_gives_up_in_time(hf, clock):
    late = listening("reservation.waiting", lambda: clock.advance(3))
    with hf.reserve("mail", by="anna"), ThreadPoolExecutor(1) as pool, late:
        asked = pool.submit(hf.reserve("mail", wait=2).__enter__)
        with pytest.raises(ReservationTimeout, match="anna"):
            asked.result(60)


def test_the_next_gets_it_when_it_is_given_back(hf):
    waiting = threading.Event()
    with ThreadPoolExecutor(1) as pool, listening("reservation.waiting", waiting.set):
        other = hf.reserve("mail")
        with hf.reserve("mail"):
            asked = pool.submit(other.acquire)
            assert waiting.wait(60)
        asked.result(60)
        assert other.is_held
        other.release()


def test_code_that_holds_a_queue_and_asks_for_it_again_is_told_so_at_once(hf):
    with hf.reserve("mail") as held, pytest.raises(ReservationConflict, match="this very code") as caught:
        hf.reserve("mail").__enter__()
    assert caught.value.facts["reservation_id"] == held.reservation_id


def test_a_direct_execution_inside_the_block_uses_it(hf):
    task = hf.task(queue="mail", name="inner")(lambda: "ran")
    with hf.reserve("mail") as held:
        assert task.direct() == "ran"
        assert held.is_held
    (job,) = hf.jobs()
    assert job.refresh().reservation_id == held.reservation_id


def test_a_handler_of_a_direct_execution_cannot_reserve_its_own_queue(hf):
    @hf.task(queue="mail")
    def nests():
        hf.reserve("mail").__enter__()

    with pytest.raises(InvalidOperation, match="its own end"):
        nests.direct()


def test_it_can_wait_until_nothing_runs(hf, clock):
    enqueue(hf)
    (grant,) = lease(hf)
    with hf.reserve("mail") as held:
        with pytest.raises(ReservationConflict) as caught:
            held.wait_idle(0)
        assert caught.value.facts["job_id"] == grant.job.job_id
        waiting = threading.Event()
        with ThreadPoolExecutor(1) as pool, listening("reservation.waiting", waiting.set):
            idle = pool.submit(held.wait_idle)
            assert waiting.wait(60)
            hf.engine.ask(Complete(job_id=grant.job.job_id, token=grant.token))
            idle.result(60)


def test_it_is_used_once(hf):
    held = hf.reserve("mail")
    with held:
        pass
    with pytest.raises(InvalidOperation, match="used before"), held:
        pass


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("queue", {"queue": "no name"}),
        ("queue", {"queue": 5}),
        ("ttl_s", {"ttl": 0}),
        ("ttl_s", {"ttl": 86_401}),
        ("ttl_s", {"ttl": "60"}),
        ("reserved_by", {"by": ""}),
        ("reserved_by", {"by": "a\nb"}),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_asked(hf, field, options):
    with pytest.raises(InvalidValue) as caught:
        hf.reserve(**{"queue": "mail"} | options)
    assert caught.value.facts["field"] == field


# --- the end of an application ----------------------------------------------------------------------------------------


def test_closing_gives_back_what_is_held(tmp_path):
    url = f"sqlite:{tmp_path / 'jobs.db'}"
    hf = Holdfast(url)
    held = hf.reserve("mail")
    held.acquire()
    hf.close()
    with Holdfast(url) as other:
        assert kept(other, held).status is ReservationStatus.RELEASED


def test_a_worker_that_ends_gives_back_what_its_handlers_have_left(hf):
    left = []

    @hf.task(queue="other")
    def leaves():
        left.append(hf.reserve("mail"))
        left[0].acquire()

    leaves.enqueue()
    with hf.reserve("third") as mine:
        hf.work(["other"], 1, until_idle=True)
        assert kept(hf, left[0]).status is ReservationStatus.RELEASED
        assert kept(hf, mine).status is ReservationStatus.ACTIVE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_holds_nothing_and_gives_nothing_back(tmp_path):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf, hf.reserve("mail") as held:
        child = os.fork()
        if not child:
            code = 1
            try:
                hf.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert kept(hf, held).status is ReservationStatus.ACTIVE


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_inside_the_block_is_outside_of_it(tmp_path):
    with Holdfast(f"sqlite:{tmp_path / 'jobs.db'}") as hf:
        task = hf.task(queue="mail", name="inner")(lambda: "ran")
        with hf.reserve("mail", by="anna"):
            child = os.fork()
            if not child:
                code = 1
                try:
                    task.options(wait=0).direct()
                except ReservationConflict as problem:
                    code = 0 if "anna" in problem.message else 2
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
            assert task.direct() == "ran"


# --- awaited ----------------------------------------------------------------------------------------------------------


def test_awaited_it_holds_and_gives_back(hf):
    task = hf.task(queue="mail", name="inner")(lambda: "ran")

    async def story():
        async with hf.aio.reserve("mail", by="anna") as held:
            await held.aio.wait_idle()
            await held.aio.renew()
            assert await task.aio.direct() == "ran"
            with pytest.raises(ReservationConflict):
                async with hf.aio.reserve("mail"):
                    pass
        return held

    held = asyncio.run(story())
    assert kept(hf, held).status is ReservationStatus.RELEASED


def test_an_awaited_one_that_is_cancelled_while_it_waits_holds_nothing(hf):
    async def story():
        waiting = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def hold():
            async with hf.aio.reserve("mail"):
                pass

        with listening("reservation.waiting", lambda: loop.call_soon_threadsafe(waiting.set)):
            call = asyncio.create_task(hold())
            await waiting.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    with hf.reserve("mail") as held, ThreadPoolExecutor(1) as pool:  # in a context of its own, outside of the block
        pool.submit(asyncio.run, story()).result(60)
    with hf.engine.read() as view:
        assert {one.reservation_id for one in view.all(Reservation)} == {held.reservation_id}


def test_its_error_is_one_of_ours_and_a_timeout(hf):
    assert issubclass(ReservationTimeout, HoldfastError)
    assert issubclass(ReservationTimeout, TimeoutError)
