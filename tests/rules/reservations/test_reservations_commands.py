"""Reservations: one holder of a queue at a time, until it gives the queue back or its time is over."""

import pytest
from world import World

from holdfast.errors import CorruptState
from holdfast.model import events as ev
from holdfast.model.commands import (
    EndSession,
    EndSessions,
    Expire,
    Lease,
    Prune,
    ReleaseReservation,
    RenewReservation,
    Reserve,
    Retention,
)
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.model.times import later
from holdfast.rules.explain import explain
from holdfast.rules.fold import fold
from holdfast.rules.fold_changes import Stamp


@pytest.fixture
def w():
    return World()


def reserve(reservation_id="r1", queue="default", **options):
    return Reserve(**{"reservation_id": reservation_id, "queue": queue, "reserved_by": "me"} | options)


def held(w, reservation_id="r1"):
    return w.tables.get(Reservation, reservation_id)


# --- acquire ----------------------------------------------------------------------------------------------------------


def test_a_reservation_holds_for_its_ttl_and_says_for_how_long(w):
    outcome = w.do(reserve(ttl_s=60))
    assert (outcome.status, outcome.left_s, outcome.expires_at) == ("ACTIVE", 60, later(w.now, 60))
    assert held(w) == Reservation("r1", "default", "me", w.now, later(w.now, 60))


def test_the_second_is_told_who_holds_the_queue_by_which_id_and_until_when(w):
    w.do(reserve(reserved_by="anna"))
    refusal = w.tell(reserve("r2", reserved_by="bert"))
    assert refusal.code == "reservation_conflict"
    expected = {"reservation_id": "r1", "reserved_by": "anna", "expires_at": later(w.now, 60), "queue": "default"}
    assert refusal.facts == expected
    assert "holdfast reservations release r1" in refusal.hint
    assert held(w, "r2") is None


def test_queues_and_namespaces_are_held_each_for_itself(w):
    w.do(reserve())
    w.do(reserve("r2", "other"))
    w.do(reserve("r3", namespace="x"))


def test_the_same_id_again_gets_the_same_reservation_and_writes_nothing(w):
    first = w.do(reserve())
    wrote = len(w.groups)
    assert w.do(reserve()) == first
    assert len(w.groups) == wrote


def test_the_same_id_for_something_else_is_refused(w):
    w.do(reserve())
    assert w.refused(reserve(queue="other")) == "id_reused"
    assert w.refused(reserve(reserved_by="you")) == "id_reused"


def test_the_same_id_after_the_end_is_told_that_it_is_over(w):
    w.do(reserve())
    w.wait(60)
    again = w.do(reserve())
    assert (again.status, again.left_s) == (ReservationStatus.EXPIRED, 0)
    assert [type(event) for event in w.last] == [ev.ReservationExpired]
    assert w.do(reserve()) == again


@pytest.mark.parametrize(("wait", "taken"), [(59.999999, False), (60, True), (60.000001, True)])
def test_a_holder_whose_time_is_over_makes_room_in_the_same_commit(w, wait, taken):
    w.do(reserve())
    w.wait(wait)
    if not taken:
        assert w.refused(reserve("r2")) == "reservation_conflict"
        return
    w.do(reserve("r2"))
    assert [type(event) for event in w.last] == [ev.ReservationExpired, ev.ReservationAcquired]
    assert (held(w).status, held(w).ended_at) == (ReservationStatus.EXPIRED, w.now)


@pytest.mark.parametrize("ttl_s", [0, 0.5, -1, 86_401, float("nan"), float("inf")])
def test_a_ttl_that_is_none_is_refused(w, ttl_s):
    refusal = w.tell(reserve(ttl_s=ttl_s))
    assert (refusal.code, refusal.facts["field"]) == ("invalid_value", "ttl_s")
    w.do(reserve())
    assert w.refused(RenewReservation(reservation_id="r1", ttl_s=ttl_s)) == "invalid_value"


@pytest.mark.parametrize(
    ("field", "value"), [("queue", "no name"), ("reserved_by", ""), ("reserved_by", "a\nb"), ("reservation_id", "")]
)
def test_what_is_no_name_is_refused(w, field, value):
    refusal = w.tell(reserve(**{field: value}))
    assert (refusal.code, refusal.facts["field"]) == ("invalid_value", field)


# --- renew and release ------------------------------------------------------------------------------------------------


def test_a_renewal_counts_from_now(w):
    w.do(reserve())
    w.wait(20)
    outcome = w.do(RenewReservation(reservation_id="r1", ttl_s=60))
    assert (outcome.left_s, held(w).expires_at) == (60, later(w.now, 60))


def test_a_renewal_that_gains_little_writes_nothing(w):
    w.do(reserve())
    w.wait(5)
    wrote = len(w.groups)
    assert w.do(RenewReservation(reservation_id="r1", ttl_s=60)).left_s == 55
    assert len(w.groups) == wrote


def test_after_the_clock_was_set_back_a_renewal_brings_the_expiry_near_again(w):
    w.do(reserve())
    w.now = later(w.now, -3600)
    w.do(RenewReservation(reservation_id="r1", ttl_s=60))
    assert held(w).expires_at == later(w.now, 60)


def test_what_is_over_is_not_renewed(w):
    w.do(reserve())
    w.wait(60)
    refusal = w.tell(RenewReservation(reservation_id="r1"))
    assert (refusal.code, refusal.facts["status"]) == ("invalid_operation", "EXPIRED")
    assert held(w).status is ReservationStatus.EXPIRED
    assert w.refused(RenewReservation(reservation_id="r1")) == "invalid_operation"
    assert w.refused(RenewReservation(reservation_id="r9")) == "reservation_not_found"


def test_a_release_opens_the_queue_and_may_be_sent_again(w):
    w.do(reserve())
    first = w.do(ReleaseReservation(reservation_id="r1"))
    assert (first.status, first.left_s, held(w).ended_at) == (ReservationStatus.RELEASED, 0, w.now)
    wrote = len(w.groups)
    w.wait(1)
    assert w.do(ReleaseReservation(reservation_id="r1")) == first
    assert len(w.groups) == wrote
    w.do(reserve("r2"))


def test_giving_back_is_safe_after_the_end(w):
    w.do(reserve())
    w.wait(61)
    assert w.do(ReleaseReservation(reservation_id="r1")).status is ReservationStatus.RELEASED
    w.do(reserve("r2"))
    w.wait(61)
    w.do(Expire())
    assert w.do(ReleaseReservation(reservation_id="r2")).status is ReservationStatus.EXPIRED
    assert w.refused(ReleaseReservation(reservation_id="r9")) == "reservation_not_found"


# --- what a reservation does to its queue -----------------------------------------------------------------------------


def test_a_reserved_queue_gives_nothing_and_others_do(w):
    w.enqueue("a")
    w.enqueue("b", queue="other")
    w.do(reserve())
    assert [grant.job.job_id for grant in w.lease(9, queues=("default", "other"))] == ["b"]
    w.do(ReleaseReservation(reservation_id="r1"))
    assert [grant.job.job_id for grant in w.lease(9)] == ["a"]


def test_a_lease_ends_a_reservation_in_its_way_whose_time_is_over(w):
    w.enqueue("a")
    w.do(reserve())
    w.wait(60)
    w.do(Lease(worker_id="w"))
    assert [type(event) for event in w.last] == [ev.ReservationExpired, ev.LeaseGranted]


def test_a_lease_ends_it_also_if_there_is_nothing_to_lease(w):
    w.do(reserve())
    w.wait(60)
    assert w.lease(queues=("other",)) == ()
    assert held(w).status is ReservationStatus.ACTIVE
    assert w.lease(queues=("default", "default")) == ()
    assert held(w).status is ReservationStatus.EXPIRED


def test_the_order_of_the_queue_is_the_same_before_and_after(w):
    for job_id in ("a", "b", "c"):
        w.enqueue(job_id, priority={"b": 5}.get(job_id, 0))
    w.do(reserve())
    w.do(ReleaseReservation(reservation_id="r1"))
    assert [grant.job.job_id for grant in w.lease(9)] == ["b", "a", "c"]


def test_explain_names_who_holds_the_queue_and_until_when(w):
    w.enqueue("a", delay_s=5)
    w.do(reserve(reserved_by="anna"))
    reason = explain(w.tables, w.job("a"), w.now)
    until = later(w.now, 60)
    assert (reason.code, reason.holder, reason.until) == ("reserved", "r1", until)
    assert reason.sentence == f"queue default is reserved by anna until {until}"
    w.wait(60)
    assert explain(w.tables, w.job("a"), w.now).code == "ready"


# --- the end that time and death bring --------------------------------------------------------------------------------


def test_expiry_ends_what_is_over_and_counts_it(w):
    w.do(reserve(ttl_s=10))
    w.do(reserve("r2", "other", ttl_s=20))
    w.wait(10)
    assert w.do(Expire()).count == 1
    assert (held(w).status, held(w, "r2").status) == (ReservationStatus.EXPIRED, ReservationStatus.ACTIVE)
    assert w.last[0].reason == "timeout"
    assert w.do(Expire()).count == 0


def test_expiry_stops_at_its_limit_and_says_so(w):
    for number in range(3):
        w.do(reserve(f"r{number}", f"q{number}", ttl_s=10))
    w.wait(10)
    assert (w.do(Expire(limit=2)).more, w.do(Expire(limit=2)).more) == (True, False)


@pytest.mark.parametrize("command", [EndSession(session_id="dead"), EndSessions(session_id="mine")])
def test_the_reservations_of_an_opening_that_is_gone_end_with_it(w, command):
    w.do(reserve("r1", "a", session_id="dead"))
    w.do(reserve("r2", "b", session_id="mine"))
    w.do(reserve("r3", "c"))
    assert w.do(command).count == 1
    assert w.last[0].reason == "restart"
    assert [held(w, name).status for name in ("r1", "r2", "r3")] == ["EXPIRED", "ACTIVE", "ACTIVE"]
    assert w.do(command).count == 0


def test_retention_removes_what_has_long_been_over(w):
    w.do(reserve())
    w.do(ReleaseReservation(reservation_id="r1"))
    w.do(reserve("r2"))
    w.wait(100)
    assert w.do(Prune(retention=Retention(reservations_s=101))).count == 0
    assert w.do(Prune(retention=Retention(reservations_s=100))).count == 1
    assert (held(w), held(w, "r2").status) == (None, ReservationStatus.ACTIVE)


# --- folding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        ev.ReservationAcquired(reservation=Reservation("r1", "default", "me", "a", "b")),
        ev.ReservationAcquired(
            reservation=Reservation("r2", "default", "me", "a", "b", status=ReservationStatus.EXPIRED)
        ),
        ev.ReservationReleased(reservation_id="r9"),
        ev.ReservationPruned(reservation_id="r1"),
        ev.ReservationPruned(reservation_id="r9"),
    ],
)
def test_an_event_that_cannot_be_stops_the_fold(w, event):
    w.do(reserve())
    with pytest.raises(CorruptState):
        fold(w.tables, event, Stamp(9, w.now))


@pytest.mark.parametrize(
    "event",
    [
        ev.ReservationRenewed(reservation_id="r1", expires_at="z"),
        ev.ReservationReleased(reservation_id="r1"),
        ev.ReservationExpired(reservation_id="r1", reason="timeout"),
    ],
)
def test_what_is_over_changes_no_more(w, event):
    w.do(reserve())
    w.do(ReleaseReservation(reservation_id="r1"))
    with pytest.raises(CorruptState):
        fold(w.tables, event, Stamp(9, w.now))
