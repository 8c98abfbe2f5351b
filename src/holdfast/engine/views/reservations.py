"""Reservations as programs read them: who holds which queue, and what runs there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.engine.views.projection import fill, shown
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.model.times import FOREVER, Timestamp
from holdfast.rules.reservations.commands import holds
from holdfast.rules.state import Lane
from holdfast.stores.protocol import View

#: `holds`: whether it keeps its queue now. `job_id`: the job that its holder runs directly.
ReservationRow = shown("ReservationRow", Reservation, holds=bool, job_id=str | None)


def active(view: View) -> Iterator[Reservation]:
    """Walk the reservations that have not ended, by their expiry."""
    for record in view.due(Lane.RESERVATION, FOREVER):
        assert isinstance(record, Reservation)
        yield record


def newest(view: View) -> list[Reservation]:
    """Give all reservations, those that have ended too, newest first."""
    return sorted(view.all(Reservation), key=lambda one: (one.reserved_at, one.reservation_id), reverse=True)


def direct_job(view: View, reservation: Reservation) -> str | None:
    """Give the job that runs under a reservation, or None."""
    is_active = reservation.status is ReservationStatus.ACTIVE
    return view.direct(reservation.namespace, reservation.queue) if is_active else None


def reservation_row(reservation: Reservation, job_id: str | None, now: Timestamp) -> Any:
    """Give a reservation with every field, and whether it holds its queue now."""
    return fill(ReservationRow, reservation, holds=holds(reservation, now), job_id=job_id)
