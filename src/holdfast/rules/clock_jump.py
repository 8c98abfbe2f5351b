"""What a step of the clock forward does to the holds of the process that decides: they keep the seconds they had left.

That process knows by its monotonic clock that no time has passed for them. Holds of others lapse within the jump, and
that is not counted against them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.model.commands import ClockJump
from holdfast.model.events import Event, LeaseExtended, ReservationRenewed, TurnExtended
from holdfast.model.reservations import Reservation
from holdfast.model.times import Timestamp, later, seconds_between
from holdfast.rules.reservations.commands import local_holders
from holdfast.rules.state import State


def carried_over(state: State, session_id: str, jump: ClockJump) -> Iterator[Event]:
    """Move the expiries of one opening's leases, locks and reservations by as much as the clock jumped.

    A hold that was over before the jump stays over.
    """
    jumped_s = seconds_between(jump.since, jump.until)

    def moved(when: Timestamp) -> Timestamp:
        return later(when, jumped_s)

    for held in local_holders(state):
        if held.session_id != session_id:
            continue
        if isinstance(held, Reservation):
            if held.expires_at > jump.since:
                yield ReservationRenewed(reservation_id=held.reservation_id, expires_at=moved(held.expires_at))
        elif held.lease_expires_at is not None and held.lease_expires_at > jump.since and held.token is not None:
            yield LeaseExtended(
                job_id=held.job_id,
                token=held.token,
                lease_expires_at=moved(held.lease_expires_at),
                deadline_at=None if held.deadline_at is None else moved(held.deadline_at),
            )
    for turn in state.local_turns():
        if turn.session_id != session_id or turn.token is None or turn.locked_until is None:
            continue
        if turn.locked_until > jump.since:
            yield TurnExtended(instance_id=turn.instance_id, token=turn.token, locked_until=moved(turn.locked_until))
