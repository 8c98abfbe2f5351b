"""Reservations and sessions by the monotonic clock."""

import pytest

from holdfast.engine.hold_timer import HoldWatch
from holdfast.model import events as ev
from holdfast.model.commands import OverdueHold
from holdfast.model.reservations import Reservation
from holdfast.model.times import Timestamp, later
from holdfast.model.workflows.instances import Affinity

NOW = Timestamp("2026-01-01T00:00:00.000000Z")
BACK = later(NOW, -7200)
UNTIL = later(NOW, 30)


def reserved():
    return ev.ReservationAcquired(reservation=Reservation("r", "default", "me", NOW, UNTIL))


def claimed():
    return ev.AffinityClaimed(session="s", owner_id="w", locked_until=UNTIL)


def overdue(watch, monotonic):
    found = watch.overdue(monotonic)
    return [hold.id for kind in (Reservation, Affinity) for hold in found[kind]]


def test_hold_is_overdue_when_its_seconds_have_passed_and_told_once():
    watch = HoldWatch()
    watch.note([reserved(), claimed()], NOW, 100.0)
    assert watch.next_deadline() == 130.0
    assert overdue(watch, 129.9) == []
    assert watch.overdue(130.0) == {Reservation: (OverdueHold("r", UNTIL),), Affinity: (OverdueHold("s", UNTIL),)}
    assert (overdue(watch, 1e9), watch.next_deadline()) == ([], None)


def test_renewal_gives_more_time():
    watch = HoldWatch()
    watch.note([reserved()], NOW, 0.0)
    watch.note([ev.ReservationRenewed(reservation_id="r", expires_at=later(BACK, 80))], later(BACK, 20), 20.0)
    assert (overdue(watch, 79.9), overdue(watch, 80.0)) == ([], ["r"])


def test_sign_of_life_with_the_same_expiry_gives_its_own_seconds_again():
    watch = HoldWatch()
    watch.note([claimed()], NOW, 0.0)
    watch.note([ev.AffinityExtended(session="s", locked_until=UNTIL, active=True)], BACK, 20.0)
    assert (overdue(watch, 49.9), overdue(watch, 50.0)) == ([], ["s"])


@pytest.mark.parametrize(
    "end",
    [
        ev.ReservationReleased(reservation_id="r"),
        ev.ReservationExpired(reservation_id="r", reason="restart"),
        ev.AffinityRemoved(session="s"),
        ev.AffinityExtended(session="s", locked_until=NOW),
    ],
    ids=lambda event: type(event).__name__,
)
def test_hold_that_ended_is_not_watched(end):
    watch = HoldWatch()
    watch.note([claimed() if hasattr(end, "session") else reserved(), end, ev.DispatchPaused()], NOW, 0.0)
    assert overdue(watch, 1e9) == []


def test_hold_of_unknown_start_is_timed_once():
    watch = HoldWatch()
    watch.limit((Reservation, "r"), UNTIL, 5.0, 10.0)
    watch.limit((Reservation, "r"), UNTIL, 5.0, 12.0)
    assert (overdue(watch, 14.9), overdue(watch, 15.0)) == ([], ["r"])
    watch.limit((Reservation, "r"), UNTIL, 5.0, 20.0)
    watch.limit((Reservation, "r"), later(UNTIL, 1), 5.0, 22.0)  # renewed meanwhile, by another process
    assert (overdue(watch, 26.0), overdue(watch, 27.0)) == ([], ["r"])
