"""What happens to reservations."""

from __future__ import annotations

from holdfast.model.events.base import Fact
from holdfast.model.reservations import Reservation
from holdfast.model.times import Timestamp


class ReservationAcquired(Fact, frozen=True, kw_only=True, tag="reservation:acquired"):
    """A queue is held: nothing of it is dispatched."""

    reservation: Reservation


class ReservationRenewed(Fact, frozen=True, kw_only=True, tag="reservation:renewed"):
    """The holder keeps the queue longer."""

    reservation_id: str
    expires_at: Timestamp


class ReservationReleased(Fact, frozen=True, kw_only=True, tag="reservation:released"):
    """The holder gave the queue back."""

    reservation_id: str


class ReservationExpired(Fact, frozen=True, kw_only=True, tag="reservation:expired"):
    """The hold is over without its holder's word."""

    reservation_id: str
    #: timeout, or restart: the process of its holder is gone.
    reason: str


class ReservationPruned(Fact, frozen=True, kw_only=True, tag="reservation:pruned"):
    """Retention removed an ended reservation."""

    reservation_id: str


ReservationEvent = (
    ReservationAcquired | ReservationRenewed | ReservationReleased | ReservationExpired | ReservationPruned
)
