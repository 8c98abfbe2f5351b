"""Reservations as people see them: a line each, with who holds the queue, for how long still, and what runs there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.cli.render.output import Record
from holdfast.cli.render.status_labels import HELD, READY, STUCK
from holdfast.cli.render.tables import Column, age, id_length, lines
from holdfast.cli.render.terminal import Screen, safe
from holdfast.engine.views.reservations import direct_job, reservation_row
from holdfast.model.reservations import Reservation, ReservationStatus
from holdfast.model.times import Timestamp, seconds_between
from holdfast.rules.reservations.commands import holds
from holdfast.stores.protocol import View


class Seen(NamedTuple):
    """A reservation, and the job that its holder runs directly."""

    reservation: Reservation
    job_id: str | None

    def record(self, now: Timestamp) -> Record:
        """Give it with every field, as programs read it, and whether it holds its queue now."""
        return msgspec.structs.asdict(reservation_row(self.reservation, self.job_id, now))


def seen(view: View, reservation: Reservation) -> Seen:
    """Look what runs under a reservation."""
    return Seen(reservation, direct_job(view, reservation))


def table(found: Sequence[Seen], now: Timestamp, screen: Screen) -> list[str]:
    """Lay out reservations."""
    columns = (
        Column("ID"),
        Column("QUEUE"),
        Column("AGE", right=True),
        Column("EXPIRES", spare=True),
        Column("BY", spare=True),
        Column("STATE", least=24),
    )
    size = id_length([one.reservation.reservation_id for one in found], screen)
    rows = [
        [
            safe(one.reservation.reservation_id[:size]),
            safe(one.reservation.queue),
            age(seconds_between(one.reservation.reserved_at, now)),
            one.reservation.expires_at,
            safe(one.reservation.reserved_by),
            _state(one, now, screen),
        ]
        for one in found
    ]
    return lines(columns, rows, screen)


def _state(one: Seen, now: Timestamp, screen: Screen) -> str:
    held = one.reservation
    if held.status is not ReservationStatus.ACTIVE:
        return f"{screen.glyph(READY)} {held.status.value.lower()} at {held.ended_at}"
    if not holds(held, now):
        return f"{screen.glyph(STUCK)} over for {age(seconds_between(held.expires_at, now))}; holds nothing any more"
    left = f"{screen.glyph(HELD)} {left_of(held, now)}"
    return left if one.job_id is None else f"{left}, runs job {safe(one.job_id)}"


def left_of(held: Reservation, now: Timestamp) -> str:
    """Say for how long a reservation still holds."""
    return f"{age(seconds_between(now, held.expires_at))} left"
