"""Work that waits for code a worker does not have: tasks renamed since or never imported, versions of workflows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

from holdfast.engine.engine import Engine
from holdfast.engine.missing_workers import lacking
from holdfast.model.jobs import JobStatus
from holdfast.stores.protocol import JobQuery
from holdfast.workers.work_filter import Scope

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


def lacking_code(engine: Engine, workflows: Sequence[str]) -> dict[str, list[str]]:
    """Give the instances that these workflows, as `name version`, could not go on with, by the code they need."""
    now = engine.look().now
    with engine.read() as view:
        return lacking(view, now, workflows)
