"""What is not well although no record contradicts another: blocked, parked, overlong, silent."""

import msgspec
import pytest
from test_missing_workers import Scene

from holdfast.engine import health
from holdfast.engine.health import ailments, blocked, impossible_schedules, long_histories, parked
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
