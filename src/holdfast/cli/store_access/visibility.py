"""What a command tells beside a store's records, as far as whoever asks may see it: workers, and reasons.

An access token may let somebody see their jobs, and nothing of what belongs to no namespace. Reasons are then told by
the coordinator, which names what they may see. What is left out is said beside the data, once a command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from holdfast.cli.render.terminal import say
from holdfast.engine.reasons import Reasons
from holdfast.engine.workflow_reasons import reason_in
from holdfast.errors import Forbidden
from holdfast.model.jobs import Job
from holdfast.model.times import Timestamp
from holdfast.model.workers import WorkerInfo
from holdfast.rules.explain import Reason
from holdfast.stores.protocol import Explaining, Store, View

T = TypeVar("T")


def seen(find: Callable[[], T]) -> T | None:
    """Give what is found; None if it is not for whoever asks."""
    try:
        return find()
    except Forbidden:
        return None


def workers_seen(store: Store) -> Sequence[WorkerInfo] | None:
    """Give the workers of a store; None if they are not for whoever asks."""
    return seen(store.workers.all)


def say_left_out(*what: str) -> None:
    """Say what is not shown because it may not be seen; a command that watches says it once."""
    said: set[str] = click.get_current_context().meta.setdefault("holdfast.left_out", set())
    if new := [one for one in what if one not in said]:
        said.update(new)
        say(f"holdfast: left out, because this access token may not see it: {', '.join(new)}")


class SeenReasons(Reasons):
    """The reasons of many jobs: found in the view by who sees all they are made of, else told by the coordinator."""

    def __init__(self, view: View, store: Store, now: Timestamp, workers: Sequence[WorkerInfo] | None) -> None:
        """Look at `view`; `workers` are those of the store, None: whoever asks may not see them."""
        super().__init__(view, now, workers)
        self._elsewhere = store if isinstance(store, Explaining) else None
        self._sees_all = workers is not None

    def of(self, job: Job) -> Reason:
        """Give the one reason why a job is where it is. Raises JobNotFound."""
        # An end is explained by the job itself and its retries.
        if self._elsewhere is None or self._sees_all or job.has_ended:
            try:
                return super().of(job)
            except Forbidden:
                self._sees_all = False
                if self._elsewhere is None:
                    raise
        return self._elsewhere.job_reason(job.job_id)


def reasons_seen(view: View, store: Store, now: Timestamp) -> SeenReasons:
    """Give what says why jobs are where they are."""
    return SeenReasons(view, store, now, workers_seen(store))


def instance_reason_seen(view: View, store: Store, instance_id: str, now: Timestamp) -> Reason:
    """Give the one reason why an instance is where it is. Raises WorkflowNotFound."""
    workers = workers_seen(store)
    try:
        if workers is not None:
            return reason_in(view, instance_id, now, workers)
    except Forbidden:
        if not isinstance(store, Explaining):
            raise
    assert isinstance(store, Explaining)  # no other keeps its workers from anybody
    return store.instance_reason(instance_id)
