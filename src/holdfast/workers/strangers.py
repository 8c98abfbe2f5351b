"""Jobs that wait in a worker's queues for tasks it does not know: renamed since, or never imported."""

from __future__ import annotations

from itertools import chain, islice

from holdfast.engine.engine import Engine
from holdfast.model.jobs import JobStatus
from holdfast.stores.protocol import JobQuery
from holdfast.workers.pump import Scope

#: Jobs looked at: so many at the head of the line, where those gather that nobody takes, and so many of the newest.
HEAD, NEWEST = 10_000, 1000


def strangers(engine: Engine, scope: Scope) -> list[str]:
    """Give the names of such tasks, sorted. A long line is looked at from both ends, not in the middle."""
    now = engine.look().now
    with engine.read() as view:
        line = islice(view.ready(scope.namespace, scope.queues, None, now), HEAD)
        query = JobQuery(namespace=scope.namespace, status=JobStatus.QUEUED, limit=NEWEST)
        waiting = {job.job_type for job in chain(line, view.jobs(query)) if job.queue in scope.queues}
    return sorted(waiting - set(scope.tasks.names()))
