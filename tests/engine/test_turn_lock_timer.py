"""Locks of instances by the monotonic clock: known by token, forgotten when they end, given more time when asked."""

from holdfast.engine.turn_lock_timer import TurnWatch
from holdfast.model import events as ev
from holdfast.model.times import Timestamp, later
from holdfast.model.workflows.instances import InstanceStatus

NOW = Timestamp("2026-01-01T00:00:00.000000Z")


def locked(token, seconds=30.0):
    return ev.TurnLocked(instance_id="i", token=token, locked_until=later(NOW, seconds), messages=(1,))


def committed(token, held=None):
    until = None if held is None else later(NOW, held)
    return ev.TurnCommitted(
        instance_id="i",
        execution_id=1,
        token=token,
        orchestration_name="f",
        status=InstanceStatus.RUNNING,
        held_until=until,
    )


def test_a_lock_is_overdue_once_its_seconds_have_passed():
    watch = TurnWatch()
    watch.note([locked(1), locked(2, 60.0)], NOW, 100.0)
    assert watch.overdue(129.9) == ()
    assert watch.overdue(130.0) == (1,)
    assert watch.overdue(130.0) == ()
    assert watch.overdue(160.0) == (2,)


def test_a_lock_that_ended_is_not_watched():
    watch = TurnWatch()
    watch.note([locked(token) for token in (1, 2, 3)], NOW, 0.0)
    ends = [
        committed(1),
        ev.TurnAbandoned(instance_id="i", token=2),
        ev.TurnExpired(instance_id="i", token=3, reason="restart", counted=True),
    ]
    watch.note(ends, NOW, 1.0)
    assert watch.overdue(1e9) == ()


def test_a_lock_that_is_kept_or_extended_has_more_time():
    watch = TurnWatch()
    watch.note([locked(1), locked(2), locked(3)], NOW, 0.0)
    watch.note([committed(1, held=50.0)], NOW, 10.0)
    watch.note([ev.TurnExtended(instance_id="i", token=2, locked_until=later(NOW, 40.0))], NOW, 10.0)
    watch.renew(3, 45.0)
    watch.renew(3, 12.0)
    watch.renew(9, 5.0)
    assert watch.overdue(44.0) == ()
    assert (watch.overdue(45.0), watch.overdue(50.0), watch.overdue(60.0)) == ((3,), (2,), (1,))


def test_a_lock_of_unknown_start_is_timed_once():
    watch = TurnWatch()
    watch.limit(1, 10.0)
    watch.limit(1, 99.0)
    assert watch.overdue(10.0) == (1,)


def test_lock_that_is_kept_after_a_step_back_has_its_own_seconds():
    watch = TurnWatch()
    back = later(NOW, -7200)
    watch.note([locked(1)], NOW, 0.0)
    watch.limit(2, 30.0, later(NOW, 30.0), 30.0)
    watch.note([committed(1, held=30.0), committed(2, held=30.0)], back, 20.0)
    assert watch.next_deadline() == 50.0
    assert (watch.overdue(49.9), watch.overdue(50.0)) == ((), (1, 2))
