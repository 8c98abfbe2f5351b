"""Queues as programs read them: settings, counts, and who keeps one to himself."""

from __future__ import annotations

import msgspec

from holdfast.engine.records.reservations import active
from holdfast.model.jobs import JobStatus
from holdfast.model.records import Queue
from holdfast.model.reservations import Reservation
from holdfast.model.retention import Retention
from holdfast.model.times import Timestamp
from holdfast.rules.reservations import holds
from holdfast.stores.protocol import View


class QueueRow(msgspec.Struct, frozen=True):
    """A queue as lists show it."""

    namespace: str
    name: str
    paused: bool
    pause_reason: str | None
    max_running: int | None
    rate_count: int | None
    rate_period_s: float | None
    rate_scope: str
    aging_s: float | None
    #: How its ended jobs are kept; None as the store keeps them.
    retention: Retention | None
    #: Status → how many jobs; each status is there.
    counts: dict[str, int]
    #: Who keeps it to himself, and the job that runs alone there.
    reservation: Reservation | None
    direct: str | None


def queue_rows(view: View, now: Timestamp, namespace: str | None = None) -> list[QueueRow]:
    """Give every queue that has settings or jobs, of one namespace or of all."""
    settings = {(queue.namespace, queue.name): queue for queue in view.all(Queue)}
    counted: dict[tuple[str, str], dict[str, int]] = {name: {} for name in settings}
    reserved = {(held.namespace, held.queue): held for held in active(view) if holds(held, now)}
    for place in reserved:
        counted.setdefault(place, {})
    for count in view.counts():
        counted.setdefault((count.namespace, count.queue), {})[count.status.value] = count.count
    rows = []
    for (space, name), counts in sorted(counted.items()):
        if namespace not in (None, space):
            continue
        queue = settings.get((space, name)) or Queue(space, name)
        every = {status.value: counts.get(status.value, 0) for status in JobStatus}
        known = {field: getattr(queue, field) for field in QueueRow.__struct_fields__ if hasattr(queue, field)}
        held = reserved.get((space, name))
        rows.append(QueueRow(**known, counts=every, reservation=held, direct=view.direct(space, name)))
    return rows
