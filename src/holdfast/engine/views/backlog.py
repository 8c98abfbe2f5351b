"""What goes on and what waits in a store as a whole, as far as anybody counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from holdfast.engine.views.queues import QueueRow
from holdfast.model.jobs import JobStatus
from holdfast.model.times import Timestamp
from holdfast.model.workflows.instances import Instance, InstanceStatus
from holdfast.rules.explain import COUNTED
from holdfast.stores.protocol import InstanceQuery, View


def running_instances(view: View) -> Sequence[Instance]:
    """Give the instances that run, as many as anybody counts."""
    return view.instances(InstanceQuery(statuses=(InstanceStatus.RUNNING,), limit=COUNTED))


def open_decisions(view: View, instances: Sequence[Instance]) -> int:
    """Count the questions of these that wait for an answer."""
    return sum(asked.is_open for one in instances for asked in view.decisions(one.instance_id))


def oldest_due(view: View, rows: Sequence[QueueRow], at: Timestamp) -> Timestamp | None:
    """Give when the job that waits longest could have run, of the first in each queue, as far as anybody counts."""
    waiting = [
        job.due_at
        for row in rows
        if row.counts[JobStatus.QUEUED.value]
        for job in islice(view.ready(row.namespace, (row.name,), None, at), COUNTED)
    ]
    return min(waiting, default=None)
