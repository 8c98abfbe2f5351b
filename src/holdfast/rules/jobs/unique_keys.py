"""Unique keys: which job holds one, and when it lets go."""

from __future__ import annotations

from holdfast.model.commands import NewJob
from holdfast.model.jobs import Job, KeyHold, KeyScope
from holdfast.model.records import HeldKey, Key, pair
from holdfast.model.times import Timestamp
from holdfast.rules.state import State


def unique_key(scope: KeyScope, job_type: str, queue: str, key: str) -> str:
    """Write the key with its scope in front, so that scopes do not meet."""
    match scope:
        case KeyScope.TASK:
            return f"task {job_type} {key}"
        case KeyScope.QUEUE:
            return f"queue {queue} {key}"
        case KeyScope.NAMESPACE:
            return f"namespace {key}"


def table_key(job: Job) -> Key | None:
    """Give the key under which the job's hold is kept; None for a job without one."""
    return None if job.key is None else key_of(job)


def key_of(job: NewJob | Job) -> Key:
    """Give the key under which the hold of a job that has one is kept."""
    return pair(job.namespace, unique_key(job.key_scope, job.job_type, job.queue, job.key or ""))


def holder(state: State, job: NewJob | Job, now: Timestamp) -> HeldKey | None:
    """Give the live hold on the key this job asks for, or None if it is free or lapsed."""
    if job.key is None:
        return None
    held = state.get(HeldKey, key_of(job))
    if held is None or (held.hold is KeyHold.WINDOW and held.held_until is not None and held.held_until <= now):
        return None
    return held


def hold_of(job: Job) -> HeldKey | None:
    """Give the hold the job takes when it is created or queued again."""
    if job.key is None:
        return None
    name = unique_key(job.key_scope, job.job_type, job.queue, job.key)
    return HeldKey(job.namespace, name, job.job_id, job.key_hold, job.key_until)
