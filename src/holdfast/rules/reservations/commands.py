"""Reservations: who may keep a queue to himself, and until when. One ACTIVE per queue.

A reservation holds in [acquired, expiry): over when now >= expiry, everywhere, whether or not that has been written
down yet. It ends by an explicit event. Giving it back is always safe, so a release is taken even after expiry. The
order of the queue is never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from holdfast.errors import IdReused, InvalidOperation, ReservationConflict, ReservationNotFound
from holdfast.model.commands import OverdueHold, ReleaseReservation, RenewReservation, Reserve
from holdfast.model.events import (
    Event,
    ReservationAcquired,
    ReservationExpired,
    ReservationReleased,
    ReservationRenewed,
)
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Refusal, Reserved, refuse
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.model.times import FOREVER, Timestamp, later, seconds_between
from holdfast.rules.decision import Decision, answer, deny
from holdfast.rules.state import Lane, State

replace = msgspec.structs.replace


# --- who holds a queue ------------------------------------------------------------------------------------------------


def holds(reservation: Reservation, now: Timestamp) -> bool:
    """Tell whether a reservation keeps its queue at `now`."""
    return reservation.status is ReservationStatus.ACTIVE and now < reservation.expires_at


def reserved_by(state: State, namespace: str, queue: str, now: Timestamp) -> Reservation | JobId | None:
    """Give what keeps a queue from being dispatched: its reservation, or else the direct job that runs alone there."""
    found = state.reservation(namespace, queue)
    if found is not None and holds(found, now):
        return found
    return state.direct(namespace, queue)


def held_by(reservation: Reservation) -> Refusal:
    """Refuse because somebody else has the queue; name who, by which reservation, and until when."""
    return refuse(
        ReservationConflict,
        f"queue {reservation.queue} is reserved by {reservation.reserved_by} until {reservation.expires_at} "
        f"(reservation {reservation.reservation_id}). Nothing was reserved.",
        hint=f"Wait for it, or end it with `holdfast reservations release {reservation.reservation_id}`.",
        reservation_id=reservation.reservation_id,
        reserved_by=reservation.reserved_by,
        expires_at=reservation.expires_at,
        queue=reservation.queue,
    )


# --- acquire, renew, release ------------------------------------------------------------------------------------------


def decide_reserve(state: State, command: Reserve, now: Timestamp) -> Decision:
    """Take the queue if nobody has it. The same id sent again is told how its reservation stands."""
    known = state.get(Reservation, command.reservation_id)
    if known is not None:
        return _sent_again(known, command, now)
    current = state.reservation(command.namespace, command.queue)
    if current is not None and holds(current, now):
        return answer(held_by(current))
    new = Reservation(
        reservation_id=command.reservation_id,
        queue=command.queue,
        reserved_by=command.reserved_by,
        reserved_at=now,
        expires_at=later(now, command.ttl_s),
        namespace=command.namespace,
        session_id=command.session_id,
    )
    lapsed = () if current is None else (_expiry(current, "timeout", command.cmd),)
    return answer(
        standing(new, now), *lapsed, ReservationAcquired(reservation=new, cmd=command.cmd, actor=command.actor)
    )


def _sent_again(known: Reservation, command: Reserve, now: Timestamp) -> Decision:
    asked = (command.namespace, command.queue, command.reserved_by)
    if (known.namespace, known.queue, known.reserved_by) != asked:
        message = f"reservation {known.reservation_id} exists already, for something else. Nothing was reserved."
        return deny(IdReused, message, reservation_id=known.reservation_id)
    return answer(standing(known, now), *_lapse(known, now, command.cmd))


def decide_renew(state: State, command: RenewReservation, now: Timestamp) -> Decision:
    """Move the expiry to now + ttl; one that is over stays over."""
    found = live(state, command.reservation_id, now, command.cmd)
    if isinstance(found, Decision):
        return found
    renewed = replace(found, expires_at=later(now, command.ttl_s))
    # After a clock was set back the expiry comes nearer again: a holder that dies must not block for longer than a ttl.
    if abs(seconds_between(found.expires_at, renewed.expires_at)) < command.ttl_s / 6:
        return answer(standing(found, now))
    event = ReservationRenewed(
        reservation_id=found.reservation_id, expires_at=renewed.expires_at, cmd=command.cmd, actor=command.actor
    )
    return answer(standing(renewed, now), event)


def decide_release_reservation(state: State, command: ReleaseReservation, now: Timestamp) -> Decision:
    """Give the queue back."""
    found = state.get(Reservation, command.reservation_id)
    if found is None:
        return _unknown(command.reservation_id)
    if found.status is not ReservationStatus.ACTIVE:
        return answer(standing(found, now))
    event = ReservationReleased(reservation_id=found.reservation_id, cmd=command.cmd, actor=command.actor)
    return answer(standing(replace(found, status=ReservationStatus.RELEASED), now), event)


def live(state: State, reservation_id: str, now: Timestamp, cmd: str) -> Reservation | Decision:
    """Give the reservation if it holds; else the refusal, with the expiry if that was not written down yet."""
    found = state.get(Reservation, reservation_id)
    if found is None:
        return _unknown(reservation_id)
    if holds(found, now):
        return found
    status = standing(found, now).status
    refusal = refuse(
        InvalidOperation,
        f"reservation {reservation_id} of queue {found.queue} is {status}; it holds nothing any more.",
        hint="Reserve the queue again.",
        reservation_id=reservation_id,
        status=status,
    )
    return answer(refusal, *_lapse(found, now, cmd))


def standing(reservation: Reservation, now: Timestamp) -> Reserved:
    """Say how a reservation stands at `now`."""
    lapsed = reservation.status is ReservationStatus.ACTIVE and not holds(reservation, now)
    return Reserved(
        reservation_id=reservation.reservation_id,
        status=ReservationStatus.EXPIRED if lapsed else reservation.status,
        expires_at=reservation.expires_at,
        left_s=seconds_between(now, reservation.expires_at) if holds(reservation, now) else 0.0,
    )


def _unknown(reservation_id: str) -> Decision:
    message = f"there is no reservation {reservation_id}."
    return deny(ReservationNotFound, message, reservation_id=reservation_id)


# --- expiry -----------------------------------------------------------------------------------------------------------


def _expiry(reservation: Reservation, reason: str, cmd: str) -> ReservationExpired:
    return ReservationExpired(reservation_id=reservation.reservation_id, reason=reason, cmd=cmd)


def _lapse(reservation: Reservation, now: Timestamp, cmd: str) -> Iterator[Event]:
    if reservation.status is ReservationStatus.ACTIVE and not holds(reservation, now):
        yield _expiry(reservation, "timeout", cmd)


def lapsed_in_the_way(state: State, namespace: str, queues: Iterable[str], now: Timestamp, cmd: str) -> Iterator[Event]:
    """End the reservations of these queues whose time is over."""
    for queue in dict.fromkeys(queues):
        found = state.reservation(namespace, queue)
        if found is not None:
            yield from _lapse(found, now, cmd)


def all_lapsed(state: State, now: Timestamp, cmd: str, overdue: Iterable[OverdueHold] = ()) -> Iterator[Event]:
    """End the reservations whose seconds have passed by a monotonic clock, then those that the wall clock has ended."""
    late: set[str] = set()
    for hold in overdue:
        found = state.get(Reservation, hold.id)
        is_held = found is not None and found.status is ReservationStatus.ACTIVE and found.expires_at == hold.until
        if found is not None and is_held and hold.id not in late:
            late.add(hold.id)
            yield _expiry(found, "timeout", cmd)
    for record in state.due(Lane.RESERVATION, now):
        assert isinstance(record, Reservation)
        if record.reservation_id not in late:
            yield _expiry(record, "timeout", cmd)


def local_holders(state: State) -> Iterator[Job | Reservation]:
    """Walk what openings of the store hold: the leases of RUNNING jobs first, then ACTIVE reservations.

    In this order, so that a queue is open only when what ran alone on it is over.
    """
    yield from state.local_leases()
    for record in state.due(Lane.RESERVATION, FOREVER):
        assert isinstance(record, Reservation)
        if record.session_id is not None:
            yield record


def of_dead(reservation: Reservation, cmd: str) -> Event:
    """End a reservation whose holder's process is gone."""
    return _expiry(reservation, "restart", cmd)
