"""Which jobs retry which, in memory: the links of a chain. Part of `stores.memory.tables`. Knows ids alone."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.ids import JobId
from holdfast.model.jobs import Job


class Chains:
    """Job → those whose `retry_of` it is."""

    def __init__(self) -> None:
        self._followers: dict[JobId, tuple[JobId, ...]] = {}

    def link(self, job: Job, before: JobId) -> None:
        """Note that a job retries the one before."""
        self._followers[before] = (*self._followers.get(before, ()), job.job_id)

    def unlink(self, job: Job, before: JobId) -> None:
        """Forget it."""
        left = tuple(other for other in self._followers.pop(before) if other != job.job_id)
        if left:
            self._followers[before] = left

    def followers(self, job_id: JobId) -> Sequence[JobId]:
        """Give the jobs that retry this one."""
        return self._followers.get(job_id, ())
