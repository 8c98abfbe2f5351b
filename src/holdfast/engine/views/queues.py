"""Queues as programs read them: settings, counts, and who keeps one to himself."""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec

from holdfast.engine.reasons import Reasons
from holdfast.engine.views.jobs import JobRow, job_row
from holdfast.engine.views.projection import fill, shown
from holdfast.engine.views.reservations import active
from holdfast.model.jobs import JobStatus
from holdfast.model.records import Queue
from holdfast.model.reservations import Reservation
from holdfast.model.retention import Retention
from holdfast.model.times import Timestamp
from holdfast.rules.reservations.commands import holds
from holdfast.stores.protocol import View

#: Jobs at the head of a queue that are shown with it.
HEAD = 10
#: Jobs of a line that a list of queues looks at.
IN_LINE = 100


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


#: `oldest_at`: since when that of the first in line waits which could have run for longest; None if none could.
ListedQueue = shown("ListedQueue", QueueRow, oldest_at=Timestamp | None)
#: `head`: the jobs at its head, in the order they will be leased. `oldest_at`: as in lists, of more of the line.
FullQueue = shown("FullQueue", QueueRow, head=list[JobRow], oldest_at=Timestamp | None)  # type: ignore[valid-type]  # made of the record


def full_queue(row: QueueRow, reasons: Reasons, now: Timestamp) -> Any:
    """Give a queue with the jobs at its head."""
    line = list(reasons.ready(row.namespace, (row.name,), None, now))
    head = [job_row(job, reasons.of(job)) for job in line[:HEAD]]
    return fill(FullQueue, row, head=head, oldest_at=min((job.due_at for job in line), default=None))


def listed_queue(row: QueueRow, view: View, now: Timestamp) -> Any:
    """Give a queue with how long somebody waits there."""
    line = view.ready(row.namespace, (row.name,), None, now) if row.counts[JobStatus.QUEUED.value] else iter(())
    return fill(ListedQueue, row, oldest_at=min((job.due_at for job in islice(line, IN_LINE)), default=None))


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
