"""Expiries that lie further off than the hold is long: the clock was set back since it was granted or renewed.

Covers leases of jobs, locks of instances, reservations, and holds of workers on sessions. Pure: time comes in as a
value. Ends nothing; the engine times what is found here by its monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from holdfast.model.ids import Token
from holdfast.model.jobs import Job
from holdfast.model.reservations import Reservation
from holdfast.model.times import FOREVER, Timestamp, later, seconds_between
from holdfast.model.workflows.instances import Affinity, Turn
from holdfast.rules.state import Lane, State

#: A record that somebody holds until a time.
Held = Job | Turn | Reservation | Affinity
#: A kind of held record, and the id of one: job, instance, reservation or session.
HoldKey = tuple[type[Held], str]
#: By hold, an expiry and the seconds it was granted for.
Granted = Mapping[HoldKey, tuple[Timestamp, float]]
#: Seconds by which the last event may be ahead of the clock without the clock having been set back.
SLACK_S = 5.0
LANES = (Lane.LEASE, Lane.TURN, Lane.RESERVATION, Lane.AFFINITY)


class Hold(NamedTuple):
    """A hold as its record shows it."""

    key: HoldKey
    until: Timestamp
    #: At least as long as it was granted for, in seconds, as far as the record tells.
    length_s: float
    #: Of a lease or a lock.
    token: Token | None = None
    #: The opening of the store by the holder's process; None for a remote one.
    session_id: str | None = None


def was_set_back(last_event_at: Timestamp | None, now: Timestamp) -> bool:
    """Tell whether the clock was set back since the last event was written; `last_event_at` is None if none was."""
    return last_event_at is not None and last_event_at > later(now, SLACK_S)


def far_expiries(state: State, now: Timestamp, granted: Granted | None = None) -> Iterator[Hold]:
    """Walk the holds whose expiry is further from `now` than they are long.

    What `granted` tells of a hold counts while its expiry is still that one.
    """
    known = granted or {}
    for lane in LANES:
        for record in state.due(lane, FOREVER):
            hold = _hold_of(record)
            if hold is None:
                continue
            until, length_s = known.get(hold.key, (None, 0.0))
            if until == hold.until:
                hold = hold._replace(length_s=length_s)
            # Not positive: it was granted after the clock was set back, while the times of events stood still.
            if hold.length_s > 0 and hold.until > later(now, hold.length_s):
                yield hold


def _hold_of(record: object) -> Hold | None:
    match record:
        case Job(lease_expires_at=str()):
            assert record.lease_expires_at is not None
            key: HoldKey = (Job, record.job_id)
            return Hold(key, record.lease_expires_at, record.lease_s, record.token, record.session_id)
        case Turn(locked_until=str(), locked_at=str()):
            assert record.locked_until is not None
            assert record.locked_at is not None
            # Of one that was extended: as long as it was held so far, and would have been.
            length_s = seconds_between(record.locked_at, record.locked_until)
            return Hold((Turn, record.instance_id), record.locked_until, length_s, record.token, record.session_id)
        case Reservation():
            length_s = seconds_between(record.reserved_at, record.expires_at)
            key = (Reservation, record.reservation_id)
            return Hold(key, record.expires_at, length_s, session_id=record.session_id)
        case Affinity():
            length_s = seconds_between(record.last_activity_at, record.locked_until)
            return Hold((Affinity, record.session), record.locked_until, length_s)
        case _:
            return None
