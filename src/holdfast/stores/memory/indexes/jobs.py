"""All jobs in memory as people list and count them: newest first, by who submitted them, by how they ended.

Part of `stores.memory.tables`. Who is QUEUED or RUNNING stands in `queued` or `running` already, and is only counted
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.stores.memory.indexes.id_sets import IdSets
from holdfast.stores.memory.indexes.sorted_set import BEYOND, OrderedSet, TimeKey, order_of
from holdfast.stores.protocol import QueueCount


class JobLists:
    """Who was created when, by whom, and how many there are of each status."""

    def __init__(self) -> None:
        #: By namespace, in the order of creation.
        self._created: dict[str, OrderedSet[TimeKey]] = {}
        #: The same of those that an access token submitted, by namespace and its name: most may be others'.
        self._submitted: dict[tuple[str, str], OrderedSet[TimeKey]] = {}
        self._ended: IdSets[tuple[str, JobStatus], JobId] = IdSets()
        self._counts: dict[tuple[str, str, JobStatus], int] = {}

    # --- changing ---------------------------------------------------------------------------------------------------

    def add(self, job: Job) -> None:
        """List a new job. What it is listed by never changes."""
        key = (job.created_at, job.job_id)
        order_of(self._created, job.namespace).add(key)
        if job.submitted_by is not None:
            order_of(self._submitted, (job.namespace, job.submitted_by)).add(key)

    def discard(self, job: Job) -> None:
        """List a job no more."""
        key = (job.created_at, job.job_id)
        self._created[job.namespace].discard(key)
        if job.submitted_by is not None:
            self._submitted[job.namespace, job.submitted_by].discard(key)

    def fill(self, jobs: Iterable[Job]) -> None:
        """List many jobs by sorting once."""
        created: dict[str, list[TimeKey]] = {}
        submitted: dict[tuple[str, str], list[TimeKey]] = {}
        for job in jobs:
            listed = created.get(job.namespace)
            if listed is None:
                listed = created[job.namespace] = []
            key = (job.created_at, job.job_id)
            listed.append(key)
            if job.submitted_by is not None:
                submitted.setdefault((job.namespace, job.submitted_by), []).append(key)
        self._created.update((namespace, OrderedSet(keys)) for namespace, keys in created.items())
        self._submitted = {name: OrderedSet(keys) for name, keys in submitted.items()}

    def count(self, job: Job, by: int) -> None:
        """Count a job with the status it has, or no more."""
        name = (job.namespace, job.queue, job.status)
        total = self._counts.get(name, 0) + by
        if total:
            self._counts[name] = total
        else:
            self._counts.pop(name, None)
        if job.status is not JobStatus.QUEUED and job.status is not JobStatus.RUNNING:
            self._ended.note((job.namespace, job.status), job.job_id, by)

    # --- looking up -------------------------------------------------------------------------------------------------

    def newest(self, namespace: str, submitted_by: str | None, before: TimeKey | None) -> Iterator[TimeKey] | None:
        """Walk the jobs of a namespace, or what somebody submitted to it, newest first; None: there is none."""
        by = submitted_by
        order = self._created.get(namespace) if by is None else self._submitted.get((namespace, by))
        return None if order is None else order.walk(before or (BEYOND,), backwards=True)

    def few(self, namespace: str, status: JobStatus, limit: int) -> Sequence[str] | None:
        """Give those that ended so if they are not more than that, else None."""
        having = self._ended.get((namespace, status), set())
        return list(having) if len(having) <= limit else None

    def with_end(self, status: JobStatus) -> Iterator[JobId]:
        """Walk those of all namespaces that ended so, by id."""
        return iter(sorted(job_id for (_, end), ids in self._ended.items() if end is status for job_id in ids))

    def counts(self) -> Sequence[QueueCount]:
        """Count by namespace, queue and status."""
        return [QueueCount(*name, count) for name, count in sorted(self._counts.items())]
