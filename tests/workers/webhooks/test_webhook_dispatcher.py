"""Deliveries as a worker sends them: beside its jobs, a few at a time, woken when one is due, and to the end."""

import hashlib
import hmac
import json
import logging
import threading

import pytest

from holdfast import Holdfast
from holdfast.engine.engine import Engine
from holdfast.errors import StoreBusy
from holdfast.failpoints import listening
from holdfast.testing.receiver import LOOPBACK, Receiver
from holdfast.workers.webhooks import dispatcher as couriers

LONG = 30


@pytest.fixture
def hf(url, clock):
    with Holdfast(url, clock=clock, webhook_allow=[LOOPBACK]) as app:
        yield app


@pytest.fixture
def double(hf):
    @hf.task(name="double", max_attempts=1)
    def double(n: int) -> int:
        return 2 * n

    return double


class Door:
    """A receiver's answer that waits to be let go, and counts how many wait."""

    def __init__(self):
        self.open = threading.Event()
        self.arrived = threading.Semaphore(0)
        self.most = 0
        self._inside = 0
        self._lock = threading.Lock()

    def __call__(self, _received):
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        self.arrived.release()
        assert self.open.wait(LONG)
        with self._lock:
            self._inside -= 1
        return 200


def names():
    return {thread.name for thread in threading.enumerate()}


def test_what_a_run_owes_is_sent_by_the_worker_that_ran_it(hf, double):
    with Receiver() as receiver:
        hook = hf.webhook(receiver.url)
        job = double.enqueue(21)
        hf.work(until_idle=True)
        (received,) = receiver.received
        (delivery,) = hook.deliveries()
    run = job.runs()[0]
    assert (delivery.status, delivery.attempts, delivery.last_status) == ("DELIVERED", 1, 200)
    assert received.body.decode() == delivery.body
    body = json.loads(received.body)
    assert (body["run_id"], body["job_id"], body["status"], body["final"]) == (run.run_id, job.id, "COMPLETED", True)
    assert received.headers["Holdfast-Event"] == "job.run.completed"
    assert received.headers["Holdfast-Delivery"] == delivery.delivery_id
    assert received.headers["Idempotency-Key"] == run.run_id
    stamped, proof = received.headers["Holdfast-Signature"].split(",")
    assert stamped == "t=1767225600"  # by the store's clock
    signed = b"1767225600." + received.body
    assert proof == "v1=" + hmac.new(hook.secret.encode(), signed, hashlib.sha256).hexdigest()


def test_while_secrets_are_changed_both_sign(hf, double):
    with Receiver() as receiver:
        hook = hf.webhook(receiver.url, secret="the-old-secret")
        new = hook.rotate()
        double.enqueue(1)
        hf.work(until_idle=True)
        (received,) = receiver.received
    stamped, *proofs = received.headers["Holdfast-Signature"].split(",")
    signed = stamped[2:].encode() + b"." + received.body
    assert proofs == [
        "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in (new, "the-old-secret")
    ]


def test_a_failure_is_tried_again_when_its_time_has_come_with_the_same_body(hf, double, clock):
    answers = iter([500, 302, 200])
    with Receiver(lambda _received: next(answers)) as receiver:
        hook = hf.webhook(receiver.url)
        double.enqueue(1)
        hf.work(until_idle=True)  # does not wait for what is due later
        assert [one.last_status for one in hook.deliveries(status="PENDING")] == [500]
        clock.advance(5)
        hf.work(until_idle=True)
        clock.advance(14.9)
        hf.work(until_idle=True)
        assert len(receiver.received) == 2
        clock.advance(0.1)
        hf.work(until_idle=True)
    assert [one.last_status for one in hook.deliveries(status="DELIVERED")] == [200]
    assert len({received.body for received in receiver.received}) == 1
    assert len({received.headers["Idempotency-Key"] for received in receiver.received}) == 1
    assert len({received.headers["Holdfast-Signature"] for received in receiver.received}) == 3


def test_a_receiver_that_answers_gone_is_not_asked_again(hf, double, clock):
    with Receiver(lambda _received: 410) as receiver:
        hook = hf.webhook(receiver.url)
        double.enqueue(1)
        hf.work(until_idle=True)
        clock.advance(1000)
        hf.work(until_idle=True)
        assert len(receiver.received) == 1
    assert [one.status for one in hook.deliveries()] == ["FAILED"]


def test_a_worker_that_may_not_reach_the_address_says_so_and_tries_again(url, clock, double, hf):
    with Receiver() as receiver:
        hook = hf.webhook(receiver.url)
        double.enqueue(1)
        hf.webhook_allow = ()
        hf.work(until_idle=True)
        (delivery,) = hook.deliveries()
        assert (delivery.status, delivery.last_error) == ("PENDING", "url: 127.0.0.1 is not a public address.")
        assert receiver.received == []


def test_a_slow_receiver_does_not_hold_up_a_job(hf, double):
    door = Door()
    with Receiver(door) as receiver:
        hook = hf.webhook(receiver.url)
        worker = hf.worker(concurrency=1)
        worker.start()
        try:
            assert double.enqueue(1).result(LONG) == 2
            assert door.arrived.acquire(timeout=LONG)
            assert double.enqueue(2).result(LONG) == 4
            assert [one.status for one in hook.deliveries(status="DELIVERED")] == []
        finally:
            door.open.set()
            worker.drain()
            assert worker.join(LONG)


def test_a_job_that_takes_long_does_not_hold_up_a_delivery(url):
    goes_on, started = threading.Event(), threading.Event()
    with Receiver() as receiver, Holdfast(url, webhook_allow=[LOOPBACK]) as hf:

        @hf.task(name="long")
        def long(n: int) -> None:
            if n:
                started.set()
                assert goes_on.wait(LONG)

        hf.webhook(receiver.url)
        long.enqueue_many([(0,), (1,)])
        worker = hf.worker(concurrency=1)
        worker.start()
        try:
            assert started.wait(LONG)
            receiver.wait(1)  # while the only slot is taken
            assert not goes_on.is_set()
        finally:
            goes_on.set()
            worker.drain()
            assert worker.join(LONG)


def test_no_more_are_on_their_way_than_there_are_hands(hf, double, monkeypatch):
    monkeypatch.setattr(couriers, "HANDS", 3)
    door = Door()
    with Receiver(door) as receiver:
        hook = hf.webhook(receiver.url)
        double.enqueue_many([(n,) for n in range(10)])
        worker = hf.worker(until_idle=True)
        worker.start()
        for _ in range(3):
            assert door.arrived.acquire(timeout=LONG)
        door.open.set()
        assert worker.join(LONG)
    assert door.most <= 3
    assert len(hook.deliveries(status="DELIVERED")) == 10
    assert len({received.headers["Idempotency-Key"] for received in receiver.received}) == 10
    assert len(receiver.received) == 10


def test_a_receiver_that_stands_still_and_is_owed_much_keeps_others_waiting_for_one_try(hf, double, monkeypatch):
    monkeypatch.setattr(couriers, "HANDS", 3)
    arrived, go = threading.Semaphore(0), threading.Semaphore(0)

    def still(_received):
        arrived.release()
        assert go.acquire(timeout=LONG)
        return 200

    with Receiver(still) as slow, Receiver() as quick:
        hf.webhook(slow.url, queues=["much"])
        hook = hf.webhook(quick.url, queues=["little"])
        double.options(queue="much").enqueue_many([(n,) for n in range(20)])
        worker = hf.worker(["much", "little"])
        worker.start()
        try:
            for _ in range(3):
                assert arrived.acquire(timeout=LONG)
            double.options(queue="little").enqueue_many([(n,) for n in range(5)])
            _delivered(hook, 5, status="PENDING")
            go.release()
            _delivered(hook, 5)
        finally:
            go.release(20)
            worker.drain()
            assert worker.join(LONG)


def test_a_resting_worker_is_woken_by_a_delivery_that_somebody_else_makes_due(hf, double):
    with Receiver() as receiver:
        hook = hf.webhook(receiver.url)
        double.enqueue(1)
        worker = hf.worker()
        worker.start()
        try:
            receiver.wait(1)
            delivery = _delivered(hook, 1)[0]
            hook.redeliver(delivery.delivery_id)
            receiver.wait(2)
        finally:
            worker.drain()
            assert worker.join(LONG)
        assert [one.attempts for one in _delivered(hook, 1)] == [1]


def _delivered(hook, count, status="DELIVERED"):
    """Give the deliveries that arrived, or came to another status, once there are so many."""
    pause = threading.Event()
    for _ in range(1000):
        found = hook.deliveries(status=status)
        if len(found) >= count:
            return found
        pause.wait(0.02)
    raise AssertionError(f"{len(found)} of {count} are {status}")


def test_a_worker_without_deliveries_has_no_courier_and_looks_for_none(hf, double):
    worker = hf.worker()
    double.enqueue(1)
    worker.pump.look()
    while worker.pump.reported < 1:
        while worker.pump.cycle():
            pass
        if worker.pump.reported < 1:
            worker.slots.wait(LONG)
    worker.pump.look()
    assert "holdfast-courier" not in names()
    assert worker.pump._chores._courier.due_at == float("inf")
    worker.slots.close()


def test_a_worker_sleeps_until_the_next_try(hf, double, clock):
    with Receiver(lambda _received: 500) as receiver:
        hf.webhook(receiver.url)
        double.enqueue(1)
        hf.work(until_idle=True)
    worker = hf.worker()
    worker.pump.look()
    assert worker.pump._chores.due_at(is_busy=False) <= clock.monotonic() + 5
    assert worker.pump._chores._courier.due_at == clock.monotonic() + 5
    worker.slots.close()


def test_a_worker_that_is_told_to_end_lets_what_is_on_its_way_arrive(hf, double):
    door = Door()
    with Receiver(door) as receiver:
        hook = hf.webhook(receiver.url)
        double.enqueue(1)
        worker = hf.worker()
        worker.start()
        assert door.arrived.acquire(timeout=LONG)
        closing = threading.Event()
        whole = couriers.Courier.close

        def close(courier, wait_s):
            closing.set()
            whole(courier, wait_s)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(couriers.Courier, "close", close)
            worker.drain()
            assert closing.wait(LONG)
            door.open.set()
            assert worker.join(LONG)
    assert [one.status for one in hook.deliveries()] == ["DELIVERED"]


def test_a_worker_in_a_hurry_waits_for_no_receiver_and_the_delivery_is_due_again(hf, double, clock):
    door = Door()
    with Receiver(door) as receiver:
        hook = hf.webhook(receiver.url)
        double.enqueue(1)
        worker = hf.worker()
        worker.start()
        assert door.arrived.acquire(timeout=LONG)
        worker.stop()
        assert worker.join(LONG)
        (delivery,) = hook.deliveries()
        assert (delivery.status, delivery.attempts) == ("PENDING", 0)
        assert delivery.claimed_until == "2026-01-01T00:01:00.000000Z"
        door.open.set()


def test_when_there_is_no_thread_left_the_courier_carries_by_itself(hf, double, monkeypatch):
    whole = threading.Thread.start

    def start(thread):
        if thread.name == "holdfast-delivery":
            raise RuntimeError("can't start new thread")
        whole(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with Receiver() as receiver:
        hook = hf.webhook(receiver.url)
        double.enqueue_many([(1,), (2,)])
        hf.work(until_idle=True)
    assert len(hook.deliveries(status="DELIVERED")) == 2


def test_without_a_thread_for_the_courier_the_worker_goes_on_and_tries_later(hf, double, clock, monkeypatch):
    whole = threading.Thread.start
    refused = ["not yet"]

    def start(thread):
        if thread.name == "holdfast-courier" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        whole(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with Receiver() as receiver:
        hook = hf.webhook(receiver.url)
        double.enqueue(1)
        hf.work(until_idle=True)
        hook.redeliver(_delivered(hook, 1)[0].delivery_id)
        refused.clear()
        worker = hf.worker()
        worker.pump.look()
        worker.pump.cycle()
        assert refused
        assert worker.pump._chores._courier.due_at == clock.monotonic() + 1
        clock.advance(1)
        worker.pump.cycle()
        receiver.wait(2)
        worker.slots.close()
        worker.pump._chores.close()


def test_a_store_that_is_busy_for_a_moment_loses_no_delivery(hf, double, monkeypatch):
    monkeypatch.setattr(couriers, "RETRY_S", 0.01)
    troubles = iter([StoreBusy("busy"), StoreBusy("busy")])
    whole = Engine.ask

    def ask(engine, command):
        if type(command).__name__ == "ClaimDeliveries" and (problem := next(troubles, None)) is not None:
            raise problem
        return whole(engine, command)

    monkeypatch.setattr(Engine, "ask", ask)
    with Receiver() as receiver:
        hook = hf.webhook(receiver.url)
        double.enqueue(1)
        hf.work(until_idle=True)
        assert len(receiver.received) == 1
    assert len(hook.deliveries(status="DELIVERED")) == 1


@pytest.mark.parametrize("problem", [StoreBusy("busy"), ZeroDivisionError("a bug of ours")], ids=["store", "bug"])
def test_what_could_not_be_recorded_is_sent_again_when_the_claim_has_lapsed(hf, double, clock, problem):
    def break_once():
        if not broken:
            broken.append(True)
            raise problem

    broken = []
    with Receiver() as receiver:
        hook = hf.webhook(receiver.url)
        double.enqueue(1)
        with listening("webhook.sent", break_once):
            hf.work(until_idle=True)
            assert [one.status for one in hook.deliveries()] == ["PENDING"]
            clock.advance(60)
            hf.work(until_idle=True)
        first, second = receiver.received
    assert (first.body, first.headers["Idempotency-Key"]) == (second.body, second.headers["Idempotency-Key"])
    assert [(one.status, one.attempts) for one in hook.deliveries()] == [("DELIVERED", 1)]


def test_neither_address_nor_secret_is_logged(hf, double, caplog):
    with Receiver(lambda _received: 500) as receiver, caplog.at_level(logging.DEBUG):
        hook = hf.webhook(receiver.url + "/token-in-the-path")
        double.enqueue(1)
        hf.work(until_idle=True)
    told = [vars(record) for record in caplog.records]
    assert any(record["msg"] == "delivery.tried" and record["status"] == 500 for record in told)
    assert not any(secret in repr(told) for secret in (hook.secret, "token-in-the-path"))


def test_two_workers_send_each_delivery_once(hf, double):
    with Receiver() as receiver:
        hf.webhook(receiver.url)
        double.enqueue_many([(n,) for n in range(30)])
        workers = [hf.worker(concurrency=2, until_idle=True) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            assert worker.join(LONG)
        hf.work(until_idle=True)
    assert sorted(received.headers["Idempotency-Key"] for received in receiver.received) == sorted(
        {received.headers["Idempotency-Key"] for received in receiver.received}
    )
    assert len(receiver.received) == 30
