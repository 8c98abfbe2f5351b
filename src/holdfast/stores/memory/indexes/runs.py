"""Runs in memory: those of each job in order, and when they started where a queue has a rate.

Part of `stores.memory.tables`, which owns the records; a rate that comes later is counted from those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import cast

from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Run
from holdfast.model.records import Queue
from holdfast.model.times import Timestamp
from holdfast.rules.jobs.dispatch_order import run_place
from holdfast.stores.memory.indexes.rate_starts import Starts


class RunLines:
    """What was tried for each job, and how often a queue began something."""

    def __init__(self, runs: Mapping[str, Run]) -> None:
        """Find the runs of a queue that gets a rate among all `runs`."""
        self._all = runs
        self._of: dict[JobId, tuple[Run, ...]] = {}
        self._starts = Starts()

    # --- following changes ------------------------------------------------------------------------------------------

    def reindex_run(self, before: Run | None, after: Run | None) -> None:
        """Follow a run."""
        job_id = cast("Run", after or before).job_id
        runs = self._of.get(job_id, ())
        if before is not None:
            runs = tuple(run for run in runs if run.run_id != before.run_id)
        if after is not None:
            runs = tuple(sorted((*runs, after), key=run_place)) if runs else (after,)
        if runs:
            self._of[job_id] = runs
        else:
            self._of.pop(job_id, None)
        if self._starts and (before is None or after is None):
            if before is not None:
                self._starts.discard(before)
            if after is not None:
                self._starts.add(after)

    def reindex_queue(self, before: Queue | None, after: Queue | None) -> None:
        """Follow a queue that has a rate, and no other."""
        queue = cast("Queue", after or before)
        if after is not None and after.rate_count is not None:
            self._starts.follow(queue.namespace, queue.name, self._all.values())
        else:
            self._starts.forget(queue.namespace, queue.name)

    # --- looking up -------------------------------------------------------------------------------------------------

    def of(self, job_id: JobId) -> Sequence[Run]:
        """Give the job's runs, oldest first."""
        return self._of.get(job_id, ())

    def with_token(self, job_id: JobId, token: Token) -> Run | None:
        """Give the job's run that was granted with `token`, or None."""
        return next((run for run in reversed(self._of.get(job_id, ())) if run.token == token), None)

    def starts(
        self, namespace: str, queue: str, limit_key: str | None, after: Timestamp, skip: int
    ) -> Iterator[Timestamp]:
        """Walk the starts of a queue that has a rate, after a time."""
        return islice(self._starts.walk(namespace, queue, limit_key, after), skip, None)
