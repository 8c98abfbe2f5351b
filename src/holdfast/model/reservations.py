"""Reservations: somebody's right to run a job of a queue directly, alone, until a time. A record only."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.model.times import Timestamp


class ReservationStatus(StrEnum):
    """What became of a reservation."""

    #: The queue is held: nothing of it is dispatched while the reservation has not expired.
    ACTIVE = "ACTIVE"
    #: Given back by its holder.
    RELEASED = "RELEASED"
    #: Ended by time, or because its holder's process is gone.
    EXPIRED = "EXPIRED"


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One hold on a queue; at most one ACTIVE per queue."""

    reservation_id: str
    queue: str
    #: Who holds it, in words for people.
    reserved_by: str
    reserved_at: Timestamp
    expires_at: Timestamp
    namespace: str = ""
    #: The opening of the store by the holder's process; None for a remote one.
    session_id: str | None = None
    status: ReservationStatus = ReservationStatus.ACTIVE
    ended_at: Timestamp | None = None
