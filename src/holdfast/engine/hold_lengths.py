"""How long leases, locks, reservations and holds on sessions were granted for, as the last events of the feed tell.

Reads the feed only. Used after the clock was set back: a record has its expiry, and not how long it was granted for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from holdfast.errors import InvalidValue
from holdfast.model import events as ev
from holdfast.model.jobs import Job
from holdfast.model.reservations import Reservation
from holdfast.model.times import Timestamp, seconds_between
from holdfast.model.workflows.instances import Affinity, Turn
from holdfast.rules import far_expiries
from holdfast.rules.far_expiries import HoldKey
from holdfast.stores.protocol import Dated, Entry, Store

#: The last events in which grants are looked for.
LAST_EVENTS = 10_000
#: Numbers among which the last event is: a journal also gives numbers to lines of its own.
_FEW = 10
_TAGS = tuple(
    str(kind.__struct_config__.tag).encode()
    for kind in (
        ev.LeaseGranted,
        ev.LeaseExtended,
        ev.TurnLocked,
        ev.TurnExtended,
        ev.ReservationAcquired,
        ev.ReservationRenewed,
        ev.AffinityClaimed,
        ev.AffinityExtended,
    )
)


def was_set_back(store: Store, now: Timestamp) -> bool:
    """Tell whether the clock was set back since the last event of a store was written."""
    return far_expiries.was_set_back(last_event_at(store), now)


def last_event_at(store: Store) -> Timestamp | None:
    """Return when the last event was written, or None if nothing tells."""
    with store.read() as view:
        if isinstance(view, Dated):
            return view.ts or None
        seq = view.seq
    entries = _last_entries(store, seq, _FEW)
    return entries[-1].ts if entries else None


def granted_lengths(store: Store) -> dict[HoldKey, tuple[Timestamp, float]]:
    """Return, by hold, the expiry that the last events gave it and the seconds until then."""
    with store.read() as view:
        seq = view.seq
    found: dict[HoldKey, tuple[Timestamp, float]] = {}
    for entry in _last_entries(store, seq, LAST_EVENTS):
        raw = bytes(entry.event)
        if not any(tag in raw for tag in _TAGS):
            continue
        event = ev.decode_event(entry.event, seq=entry.seq, file="feed")
        for key, until in _granted(event):
            if key not in found or found[key][0] != until:
                found[key] = (until, seconds_between(entry.ts, until))
    return found


def _last_entries(store: Store, seq: int, count: int) -> list[Entry]:
    """Return up to `count` of the last events, fewer where older ones have been trimmed away."""
    while count:
        with suppress(InvalidValue):
            return list(store.feed(max(0, seq - count)))
        count //= 10
    return []


def _granted(event: ev.Event | None) -> Iterator[tuple[HoldKey, Timestamp]]:
    match event:
        case ev.LeaseGranted() | ev.LeaseExtended():
            yield (Job, event.job_id), event.lease_expires_at
        case ev.TurnLocked() | ev.TurnExtended():
            yield (Turn, event.instance_id), event.locked_until
        case ev.ReservationAcquired():
            yield (Reservation, event.reservation.reservation_id), event.reservation.expires_at
        case ev.ReservationRenewed():
            yield (Reservation, event.reservation_id), event.expires_at
        case ev.AffinityClaimed() | ev.AffinityExtended():
            yield (Affinity, event.session), event.locked_until
        case _:
            return
