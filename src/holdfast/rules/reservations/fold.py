"""Fold of reservations: what their events make of the records. The events say it all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.model import events as ev
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.rules.fold_changes import Change, Stamp, contradiction, demand, put
from holdfast.rules.state import State

replace = msgspec.structs.replace


def _active(state: State, reservation_id: str, stamp: Stamp) -> Reservation:
    found = state.get(Reservation, reservation_id)
    if found is None:
        raise contradiction(stamp, f"there is no reservation {reservation_id}")
    demand(found.status is ReservationStatus.ACTIVE, stamp, f"reservation {reservation_id} is {found.status}")
    return found


def _acquired(state: State, event: ev.ReservationAcquired, stamp: Stamp) -> list[Change]:
    new = event.reservation
    demand(state.get(Reservation, new.reservation_id) is None, stamp, f"{new.reservation_id} is reserved twice")
    demand(new.status is ReservationStatus.ACTIVE, stamp, f"reservation {new.reservation_id} begins {new.status}")
    return [put(new)]


def _renewed(state: State, event: ev.ReservationRenewed, stamp: Stamp) -> list[Change]:
    return [put(replace(_active(state, event.reservation_id, stamp), expires_at=event.expires_at))]


def _released(state: State, event: ev.ReservationReleased, stamp: Stamp) -> list[Change]:
    found = _active(state, event.reservation_id, stamp)
    return [put(replace(found, status=ReservationStatus.RELEASED, ended_at=stamp.ts))]


def _expired(state: State, event: ev.ReservationExpired, stamp: Stamp) -> list[Change]:
    found = _active(state, event.reservation_id, stamp)
    return [put(replace(found, status=ReservationStatus.EXPIRED, ended_at=stamp.ts))]


def _pruned(state: State, event: ev.ReservationPruned, stamp: Stamp) -> list[Change]:
    found = state.get(Reservation, event.reservation_id)
    gone = found is not None and found.status is not ReservationStatus.ACTIVE
    demand(gone, stamp, f"reservation {event.reservation_id} is pruned before its end")
    return [Change(Reservation, event.reservation_id, None)]


RESERVATION_FOLDS: dict[type[ev.Event], Callable[[State, Any, Stamp], list[Change]]] = {
    ev.ReservationAcquired: _acquired,
    ev.ReservationRenewed: _renewed,
    ev.ReservationReleased: _released,
    ev.ReservationExpired: _expired,
    ev.ReservationPruned: _pruned,
}
