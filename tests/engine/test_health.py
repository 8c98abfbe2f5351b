"""What is not well although no record contradicts another: blocked, parked, overlong, silent."""

from datetime import timedelta

import msgspec
import pytest
from test_missing_workers import Scene

from holdfast.engine import health
from holdfast.engine.health import (
    ailments,
    blocked,
    impossible_schedules,
    long_histories,
    parked,
    undelivered,
    waiting_for_nothing,
)
from holdfast.engine.hold_lengths import granted_lengths
from holdfast.model import commands as c
from holdfast.model.schedules import NewSchedule
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.block_reasons import blocked_reason
from holdfast.model.workflows.history import Event
from holdfast.model.workflows.work_items import QueueMessage


@pytest.fixture
def scene():
    return Scene()


def found(scene, look, *more):
    with scene.engine.read() as view:
        return list(look(view, *more))


def block(scene, name):
    scene.begun(name)
    scene.provider.enqueue_for_orchestrator(QueueMessage(instance=name, name="s", data="1"))
    _, token, _ = scene.provider.fetch_orchestration_item(30)
    reason = blocked_reason("Nondeterminism", "event 7 differs\nrecorded: x")
    scene.provider.abandon_orchestration_item(token, 60.0, ignore_attempt=True, reason=reason)


def test_a_blocked_instance_is_named_with_the_first_difference(scene):
    block(scene, "user-42")
    (one,) = found(scene, blocked)
    assert (one.code, one.id) == ("instance_blocked", "user-42")
    assert "(Nondeterminism): event 7 differs" in one.message
    assert "holdfast explain user-42" in one.remedy


def test_very_many_of_a_kind_are_counted_after_the_first(scene, monkeypatch):
    monkeypatch.setattr(health, "TOLD", 2)
    for number in range(4):
        block(scene, f"i{number}")
    *_, last = told = found(scene, blocked)
    assert len(told) == 3
    assert last.ids == ("i2", "i3")
    for number in range(3):
        scene.provider.enqueue_for_orchestrator(QueueMessage(instance=f"ghost-{number}", name="s", data="1"))
    scene.clock.advance(301)
    *_, last = told = found(scene, parked, scene.now)
    assert len(told) == 3
    assert last.ids == ("ghost-2",)


def send(scene, name):
    scene.provider.enqueue_for_orchestrator(QueueMessage(instance=name, name="s", data="1"))


def test_instance_that_waits_for_nothing_is_named_once_it_has_waited(scene):
    scene.begun("stuck", waiting_on=())
    scene.begun("fine", waiting_on=("signal 'paid'",))
    scene.begun("silent")  # of a runtime that does not say what it waits for
    assert found(scene, waiting_for_nothing, scene.now) == []
    scene.clock.advance(301)
    (one,) = found(scene, waiting_for_nothing, scene.now)
    assert (one.code, one.id) == ("instance_waits_for_nothing", "stuck")
    assert "holdfast workflows history stuck" in one.remedy
    assert one in found(scene, ailments, scene.now, ())


def test_instance_with_a_message_or_a_turn_does_not_wait_for_nothing(scene):
    scene.begun("i", waiting_on=())
    scene.clock.advance(301)
    send(scene, "i")
    assert found(scene, waiting_for_nothing, scene.now) == []
    scene.provider.fetch_orchestration_item(30)
    assert found(scene, waiting_for_nothing, scene.now) == []


def test_blocked_instance_is_named_once(scene):
    block(scene, "i")
    scene.clock.advance(301)
    having = (scene.worker("onboard 1.0.0", age=600),)
    assert [one.code for one in found(scene, ailments, scene.now, having)] == ["instance_blocked"]


@pytest.mark.parametrize("given_back", [False, True])
def test_message_that_stays_undelivered_is_named_while_workers_have_the_code(scene, given_back):
    scene.begun("i", waiting_on=("signal 's'",))
    send(scene, "i")
    having = (scene.worker("onboard 1.0.0", age=600),)
    if given_back:
        _, token, _ = scene.provider.fetch_orchestration_item(30)
        scene.provider.abandon_orchestration_item(token, 600.0, reason="the store is busy")
    assert found(scene, undelivered, scene.now, having) == []
    scene.clock.advance(301)
    (one,) = found(scene, undelivered, scene.now, having)
    assert (one.code, one.id) == ("messages_undelivered", "i")
    assert "1 message for instance i" in one.message
    assert ("the store is busy" in one.message) == given_back
    assert one in found(scene, ailments, scene.now, having)
    # Without code that is what is wrong, and is said so.
    assert found(scene, undelivered, scene.now, ()) == []
    assert found(scene, undelivered, scene.now, (scene.worker("other 1.0.0", age=600),)) == []


def test_message_that_is_being_delivered_is_no_finding(scene):
    having = (scene.worker("onboard 1.0.0", age=600),)
    scene.begun("i", waiting_on=("signal 's'",))
    send(scene, "i")
    scene.clock.advance(301)
    scene.provider.fetch_orchestration_item(30)
    assert found(scene, undelivered, scene.now, having) == []


def test_many_undelivered_messages_are_counted_after_the_first(scene, monkeypatch):
    monkeypatch.setattr(health, "TOLD", 2)
    for number in range(4):
        scene.begun(f"i{number}", waiting_on=())
    scene.clock.advance(301)
    *first, last = found(scene, waiting_for_nothing, scene.now)
    assert {*(one.id for one in first), *last.ids} == {"i0", "i1", "i2", "i3"}
    assert (len(first), len(last.ids)) == (2, 2)
    for number in range(4):
        send(scene, f"i{number}")
    scene.clock.advance(301)
    *_, last = told = found(scene, undelivered, scene.now, (scene.worker("onboard 1.0.0", age=600),))
    assert (len(told), last.ids) == (3, ("i2", "i3"))


def test_messages_for_nobody_are_named_with_the_time_they_go(scene):
    scene.provider.enqueue_for_orchestrator(QueueMessage(instance="ghost", name="s", data="1"))
    assert found(scene, parked, scene.now) == []
    scene.clock.advance(301)
    (one,) = found(scene, parked, scene.now)
    assert (one.code, one.id) == ("messages_parked", "ghost")
    assert "dropped at 2026-01-08T00:00:00.000000Z" in one.message


def test_a_history_over_twice_the_size_is_named(scene, monkeypatch):
    monkeypatch.setattr(health, "MANY_EVENTS", 2)
    scene.begun("long")

    def grow(*ids):
        signals = [event_kinds.QueueEventDelivered(name="s", data="1") for _ in ids]
        made = [
            Event(event_id=n, instance="long", execution_id=1, timestamp_ms=1, kind=k)
            for n, k in zip(ids, signals, strict=True)
        ]
        scene.provider.append_with_execution("long", 1, made)

    grow(2, 3)
    assert found(scene, long_histories) == []
    grow(4)
    (one,) = found(scene, long_histories)
    assert (one.code, one.id) == ("history_long", "long")
    assert "4 events" in one.message


def plan(scene, **more):
    new = NewSchedule(name="nightly", job_type="send", **more)
    scene.engine.ask(c.PutSchedule(schedule_id="s", schedule=new))


def test_a_schedule_that_nobody_fires_is_named(scene):
    plan(scene, interval_s=3600.0)
    scene.clock.advance(3600 + 299)
    assert found(scene, impossible_schedules, scene.now) == []
    scene.clock.advance(2)
    (one,) = found(scene, impossible_schedules, scene.now)
    assert (one.code, one.id) == ("schedule_overdue", "s")


def test_a_schedule_that_fired_by_a_clock_ahead_is_named(scene):
    plan(scene, interval_s=60.0)
    start = scene.clock.now()
    scene.clock.advance(7 * 86_400)
    scene.engine.ask(c.Fire(schedule_id="s", expected="2026-01-01T00:01:00.000000Z"))
    scene.clock.set_wall(start)
    assert [one.code for one in found(scene, impossible_schedules, scene.now)] == ["schedule_ahead"]


def test_a_paused_schedule_and_one_past_its_end_are_well(scene):
    plan(scene, interval_s=60.0, end_at="2026-01-01T00:02:00.000000Z")
    scene.clock.advance(60)
    scene.engine.ask(c.Fire(schedule_id="s", expected="2026-01-01T00:01:00.000000Z"))
    scene.clock.advance(86_400)
    assert found(scene, impossible_schedules, scene.now) == []


def test_a_store_without_trouble_has_nothing_to_say(scene):
    scene.begun("a")
    plan(scene, interval_s=3600.0)
    assert found(scene, ailments, scene.now, (scene.worker("onboard 1.0.0", age=600),)) == []


def test_a_finding_is_readable_by_programs(scene):
    block(scene, "user-42")
    (one,) = found(scene, blocked)
    assert set(msgspec.to_builtins(one)) == {"code", "message", "remedy", "id"}


def test_holds_further_off_than_they_are_long_are_named_after_a_step_back(scene, monkeypatch):
    monkeypatch.setattr(health, "TOLD", 3)
    scene.enqueue("a")
    scene.engine.ask(c.Lease(worker_id="gone", lease_s=5))
    for number in range(2):
        reserve = c.Reserve(reservation_id=f"r{number}", queue=f"q{number}", reserved_by="gone", ttl_s=60)
        scene.engine.ask(reserve)
    scene.start("i")
    scene.provider.fetch_orchestration_item(30)
    scene.clock.set_wall(scene.clock.now() - timedelta(hours=2))
    job, *_, rest = told = found(scene, ailments, scene.now, (), granted_lengths(scene.engine.store))
    assert [one.code for one in told] == ["expiry_far"] * 4
    assert (job.id, rest.ids) == ("a", ("r1",))
    assert job.message == (
        "job a is held until 2026-01-01T00:00:05.000000Z, which is further off than the 5 s it was granted for: "
        "the clock was set back, and it is 2025-12-31T22:00:00.000000Z"
    )
    scene.clock.set_wall(scene.clock.now() + timedelta(hours=2))
    assert found(scene, ailments, scene.now, (), granted_lengths(scene.engine.store)) == []
