"""Reasons: why jobs are where they are, from one view of the store, the roster of workers and the time.

The rule itself is `rules.explain`; here is only what it needs to know. The roster is soft: if it is wrong, a sentence
is wrong, and no job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, cast

from holdfast.engine.engine import Engine
from holdfast.model.jobs import Job
from holdfast.model.times import Timestamp
from holdfast.model.workers import WorkerInfo
from holdfast.rules.explain import COUNTED, Reason, Sees, explain, takes
from holdfast.rules.jobs.dispatch_order import place
from holdfast.rules.state import Lane, State
from holdfast.stores.protocol import Explaining, View


def reason_of(engine: Engine, job: Job) -> Reason:
    """Give the one reason why a job is where it is, now. Raises JobNotFound."""
    if isinstance(engine.store, Explaining):
        return engine.store.job_reason(job.job_id)
    workers = engine.store.workers.all()
    with engine.read() as view:
        return Reasons(view, engine.look().now, workers).of(job)


class Reasons:
    """The reasons of many jobs in one view; each queue's line is walked once."""

    def __init__(
        self, view: View, now: Timestamp, workers: Sequence[WorkerInfo] | None = None, sees: Sees = None
    ) -> None:
        """Look at `view`; without `workers` nobody knows whether one would take a job. Say what who asks `sees`."""
        self._view = view
        self._now = now
        self._workers = workers
        self._sees = sees
        self._lines: dict[tuple[str, tuple[str, ...]], list[Job]] = {}

    def of(self, job: Job) -> Reason:
        """Give the one reason why a job is where it is."""
        workers = self._workers

        def served(queue: str, job_type: str) -> bool:
            return any(takes(worker, job.namespace, queue, job_type) for worker in workers or ())

        return explain(cast("State", self), job, self._now, None if workers is None else served, self._sees)

    def ready(self, namespace: str, queues: Sequence[str], job_types: object, now: Timestamp) -> Iterator[Job]:
        """Walk the line of these queues, as far as anybody counts.

        Jobs whose time has come stand in it too, although no Lease has made them ready yet.
        """
        del job_types
        name = (namespace, tuple(queues))
        if name not in self._lines:
            due = [job for job in islice(self._view.due(Lane.DELAYED, now), COUNTED) if isinstance(job, Job)]
            line = {job.job_id: job for job in islice(self._view.ready(namespace, queues, None, now), COUNTED)}
            line |= {job.job_id: job for job in due if job.namespace == namespace and job.queue in queues}
            self._lines[name] = sorted(line.values(), key=place)[:COUNTED]
        return iter(self._lines[name])

    def __getattr__(self, name: str) -> Any:
        """Look up everything else in the view itself."""
        return getattr(self._view, name)
