"""Every invariant is noticed when it is broken, and by its name."""

import msgspec
import pytest
from world import START, World, new

from holdfast.model import commands as c
from holdfast.model.jobs import Job, JobStatus, KeyHold, RetryKind, RetryMode, Run, RunStatus
from holdfast.model.records import AUTHORITY, Authority, HeldKey
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.model.webhooks import Delivery, DeliveryStatus, NewWebhook
from holdfast.rules.invariants import violations


def replace(world, record, **fields):
    key = record.job_id if isinstance(record, Job) else record.run_id
    world.tables.put(type(record), key, None)  # some fields never change, and so are indexed once
    world.tables.put(type(record), key, msgspec.structs.replace(record, **fields))


def running():
    world = World()
    world.start("j", key="k")
    return world


def done():
    world = running()
    world.do(c.Complete(job_id="j", token=1))
    return world


def lease_without_job_running(world):
    replace(world, world.job(), status=JobStatus.QUEUED)


def lease_half_gone(world):
    replace(world, world.job(), worker_id=None)


def two_open_runs(world):
    world.tables.put(Run, "twin", msgspec.structs.replace(world.run(), run_id="twin", run_no=2, token=2))


def no_open_run(world):
    replace(world, world.run(), status=RunStatus.LOST, finished_at=START)


def other_token(world):
    replace(world, world.run(), token=77)
    world.tables.put(Authority, AUTHORITY, Authority(last_token=77))


def token_beyond_counter(world):
    world.tables.put(Authority, AUTHORITY, Authority(last_token=0))


def runs_miscounted(world):
    replace(world, world.job(), executions=5)


def key_lost(world):
    world.tables.put(HeldKey, "\0task t k", None)


def key_of_another(world):
    world.tables.put(HeldKey, "\0task t k", HeldKey("", "task t k", "other", KeyHold.FOREVER))


def orphan_run(world):
    world.tables.put(Job, "j", None)
    world.tables.put(HeldKey, "\0task t k", None)


def run_ended_without_time(world):
    replace(world, world.run(), finished_at=None)


def run_open_with_time(world):
    replace(world, world.run(), finished_at=START)


def ended_without_time(world):
    replace(world, world.job(), finished_at=None)


def alive_with_time(world):
    replace(world, world.job(), finished_at=START)


def held_by_the_dead(world):
    world.tables.put(HeldKey, "\0x", HeldKey("", "x", "j", KeyHold.ACTIVE))


def held_by_nobody(world):
    world.tables.put(HeldKey, "\0x", HeldKey("", "x", "nobody", KeyHold.QUEUED))


def held_by_a_running_job(world):
    world.tables.put(HeldKey, "\0x", HeldKey("", "x", "j", KeyHold.QUEUED))


def in_another_band(world):
    replace(world, world.job(), rank=7)


def two_heirs(world):
    for name in ("h1", "h2"):
        world.enqueue(name)
        replace(world, world.job(name), retry_of="j", retry_kind=RetryKind.AUTO)


def heir_of_the_living(world):
    world.enqueue("h1")
    replace(world, world.job("h1"), retry_of="j", retry_kind=RetryKind.AUTO)


def chain_ran_twice(world):
    replace(world, world.job(), executions=2, retry_mode=RetryMode.CHAIN)
    world.tables.put(Run, "twin", msgspec.structs.replace(world.run(), run_id="twin", run_no=2, token=None))


def shared_token(world):
    world.enqueue("other")
    world.do(c.Cancel(job_id="other"))
    replace(world, world.job("other"), executions=1)
    world.tables.put(Run, "twin", msgspec.structs.replace(world.run(), run_id="twin", job_id="other"))


def owing():
    world = World()
    world.do(c.PutWebhook(webhook_id="w", webhook=NewWebhook(url="https://receiver.example/", secrets=("a-secret",))))
    world.do(c.Complete(job_id="j", token=world.start("j")))
    return world


def change_delivery(world, **fields):
    (delivery,) = world.tables.all(Delivery)
    changed = msgspec.structs.replace(delivery, **fields)
    world.tables.put(Delivery, changed.delivery_id, changed)


def told_twice(world):
    change_delivery(world, delivery_id="twin")


def delivered_without_time(world):
    change_delivery(world, status=DeliveryStatus.DELIVERED)


def claimed_after_its_end(world):
    change_delivery(world, status=DeliveryStatus.FAILED, finished_at=START, claimed_until=START)


def reserved():
    world = World()
    world.do(c.Reserve(reservation_id="r", queue="default", reserved_by="me"))
    return world


def direct():
    world = reserved()
    world.do(c.StartDirect(reservation_id="r", job=new("j"), worker_id="here"))
    return world


def reserved_twice(world):
    held = world.tables.get(Reservation, "r")
    world.tables.put(Reservation, "r2", msgspec.structs.replace(held, reservation_id="r2"))


def over_without_time(world):
    held = world.tables.get(Reservation, "r")
    world.tables.put(Reservation, "r", msgspec.structs.replace(held, status=ReservationStatus.RELEASED))


def held_with_an_end(world):
    held = world.tables.get(Reservation, "r")
    world.tables.put(Reservation, "r", msgspec.structs.replace(held, ended_at=START))


def direct_and_queued(world):
    replace(world, world.job(), status=JobStatus.QUEUED)


def direct_without_reservation(world):
    replace(world, world.job(), reservation_id=None)


def direct_and_retried(world):
    replace(world, world.job(), status=JobStatus.FAILED)
    world.tables.put(
        Job, "h", msgspec.structs.replace(world.job(), job_id="h", retry_of="j", retry_kind=RetryKind.MANUAL)
    )


def direct_beside_another(world):
    world.tables.put(Job, "other", msgspec.structs.replace(world.job(), job_id="other", direct=False))


@pytest.mark.parametrize(
    ("start", "damage", "code"),
    [
        (running, lease_without_job_running, "A1"),
        (running, lease_half_gone, "A1"),
        (done, shared_token, "A2"),
        (running, token_beyond_counter, "A3"),
        (running, two_open_runs, "PERS-001"),
        (running, no_open_run, "PERS-001"),
        (done, orphan_run, "PERS-002"),
        (running, other_token, "PERS-003"),
        (done, runs_miscounted, "PERS-003"),
        (done, chain_ran_twice, "PERS-003"),
        (reserved, reserved_twice, "PERS-005"),
        (reserved, over_without_time, "reservation"),
        (reserved, held_with_an_end, "reservation"),
        (direct, direct_and_queued, "direct"),
        (direct, direct_without_reservation, "direct"),
        (direct, direct_and_retried, "direct"),
        (direct, direct_beside_another, "direct"),
        (done, two_heirs, "PERS-006"),
        (running, heir_of_the_living, "PERS-006"),
        (running, key_lost, "PERS-008"),
        (running, key_of_another, "PERS-008"),
        (done, held_by_the_dead, "PERS-008"),
        (done, held_by_nobody, "PERS-008"),
        (running, held_by_a_running_job, "PERS-008"),
        (owing, told_twice, "PERS-009"),
        (owing, delivered_without_time, "delivery"),
        (owing, claimed_after_its_end, "delivery"),
        (done, run_ended_without_time, "INV-002"),
        (running, run_open_with_time, "INV-002"),
        (running, in_another_band, "INV-004"),
        (done, ended_without_time, "ended"),
        (running, alive_with_time, "ended"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_broken_invariant_is_named(start, damage, code):
    world = start()
    assert list(violations(world.tables)) == []
    damage(world)
    found = {fault.code for fault in violations(world.tables)}
    assert code in found
    assert all(fault.message and fault.id for fault in violations(world.tables))
