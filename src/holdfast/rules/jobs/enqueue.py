"""Enqueue: create jobs, all or none. Decides about ids sent again, unique keys and the place in the queue."""

from __future__ import annotations

import msgspec

from holdfast.errors import DuplicateKey, IdReused
from holdfast.model.command_base import Order
from holdfast.model.commands import Enqueue, NewJob
from holdfast.model.events import Event, JobChanges, JobCreated, JobUpdated
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.outcomes import Enqueued, Refusal, Submitted, refuse
from holdfast.model.records import Key, Queue, pair
from holdfast.model.times import Timestamp, later
from holdfast.rules.decision import Decision, answer
from holdfast.rules.idempotency import remember, seen_before
from holdfast.rules.jobs.dispatch_order import GAP, back, rank_of
from holdfast.rules.jobs.unique_keys import holder, unique_key
from holdfast.rules.state import State


class Drafts:
    """What this one command has decided so far: its jobs see each other, although nothing is committed yet."""

    def __init__(self, state: State, command: Order, now: Timestamp) -> None:
        self.state = state
        self.command = command
        self.now = now
        self.events: list[Event] = []
        self.created: dict[str, Job] = {}
        self.keys: dict[Key, Job] = {}
        #: Holders of a key that this command has changed already, as they will be.
        self.replaced: dict[JobId, Job] = {}
        #: An answer names the holder of a key instead of the job that was asked for.
        self.met_holder = False
        self._backs: dict[tuple[str, str, int], int] = {}
        self._queues: dict[Key, Queue | None] = {}

    def rank(self, priority: int, queued_at: Timestamp, namespace: str, queue: str) -> int:
        """Give the band of a job in a queue."""
        name = pair(namespace, queue)
        if name not in self._queues:
            self._queues[name] = self.state.get(Queue, name)
        return rank_of(priority, queued_at, self._queues[name])

    def next_position(self, namespace: str, queue: str, rank: int) -> int:
        """Give the position behind the last job of a band, drafts included."""
        band = (namespace, queue, rank)
        found = self._backs.get(band)
        position = back(self.state, *band) if found is None else found + GAP
        self._backs[band] = position
        return position


def decide_enqueue(state: State, command: Enqueue, now: Timestamp) -> Decision:
    """Create every job of the command that is not there yet, or refuse them all."""
    keyed = command.cmd and any(new.key is not None for new in command.jobs)
    if keyed and (repeat := seen_before(state, command)) is not None and repeat.outcome is not None:
        return answer(repeat.outcome)
    drafts = Drafts(state, command, now)
    submitted: list[Submitted] = []
    for new in command.jobs:
        result = _submit(drafts, new)
        if isinstance(result, Refusal):
            return answer(result)
        submitted.append(result)
    outcome = Enqueued(jobs=tuple(submitted))
    if drafts.met_holder and command.cmd:
        # No job carries the id that was asked for, so a repeat can only find the command.
        drafts.events.append(remember(command, outcome))
    return answer(outcome, *drafts.events)


def _submit(drafts: Drafts, new: NewJob) -> Submitted | Refusal:
    existing = drafts.created.get(new.job_id) or drafts.state.get(Job, new.job_id)
    if existing is not None:
        return _sent_again(existing, new)
    if new.key is not None:
        held_by = key_holder(drafts, new)
        if held_by is not None:
            return _conflict(drafts, new, held_by)
    job = draft(drafts, new)
    drafts.created[job.job_id] = job
    if new.key is not None:
        drafts.keys[key_wanted(new)] = job
    drafts.events.append(JobCreated(job=job, cmd=drafts.command.cmd, actor=drafts.command.actor))
    return Submitted(job.job_id, created=True)


def _sent_again(existing: Job, new: NewJob) -> Submitted | Refusal:
    same = existing.job_type == new.job_type and existing.namespace == new.namespace and existing.params == new.params
    if same:
        return Submitted(existing.job_id, created=False)
    return refuse(
        IdReused,
        f"job {new.job_id} exists already, with another task or other parameters. Nothing was stored.",
        job_id=new.job_id,
    )


def key_wanted(new: NewJob) -> Key:
    """Give the place of the key that a new job asks for."""
    return pair(new.namespace, unique_key(new.key_scope, new.job_type, new.queue, new.key or ""))


def key_holder(drafts: Drafts, new: NewJob) -> Job | str | None:
    """Give the job that holds the key: a draft, a stored job, or only its id where retention removed the job."""
    draft = drafts.keys.get(key_wanted(new))
    if draft is not None:
        return drafts.replaced.get(draft.job_id, draft)
    held = holder(drafts.state, new, drafts.now)
    if held is None:
        return None
    return drafts.replaced.get(held.job_id) or drafts.state.get(Job, held.job_id) or held.job_id


def _conflict(drafts: Drafts, new: NewJob, held_by: Job | str) -> Submitted | Refusal:
    job_id = held_by.job_id if isinstance(held_by, Job) else held_by
    if new.on_conflict == "reject":
        return refuse(
            DuplicateKey,
            f"the key {new.key!r} is held by job {job_id}. Nothing was stored.",
            hint="Wait for that job, cancel it, or use another key.",
            job_id=job_id,
            key=new.key or "",
        )
    if new.on_conflict == "replace" and isinstance(held_by, Job) and _may_change(held_by):
        _replace(drafts, new, held_by)
    drafts.met_holder = True
    return Submitted(held_by.job_id if isinstance(held_by, Job) else job_id, created=False)  # type: ignore[arg-type]  # an id of a pruned job


def _may_change(held_by: Job) -> bool:
    """Tell whether a holder takes new parameters: they are frozen by its first lease, for all attempts."""
    return held_by.status is JobStatus.QUEUED and held_by.started_at is None


def _replace(drafts: Drafts, new: NewJob, held_by: Job) -> None:
    """Give a queued holder the new params, priority and delay."""
    rank = drafts.rank(new.priority, held_by.created_at, held_by.namespace, held_by.queue)
    moves = rank != held_by.rank
    changes = JobChanges(params=new.params, priority=new.priority, not_before=_not_before(new, drafts.now))
    drafts.replaced[held_by.job_id] = msgspec.structs.replace(held_by, rank=rank)
    drafts.events.append(
        JobUpdated(
            job_id=held_by.job_id,
            changes=changes,
            position=drafts.next_position(held_by.namespace, held_by.queue, rank) if moves else None,
            rank=rank if moves else None,
            cmd=drafts.command.cmd,
            actor=drafts.command.actor,
        )
    )


def draft(drafts: Drafts, new: NewJob) -> Job:
    """Give the job that is asked for, at the back of its band."""
    created_at = drafts.now if new.created_at is None else min(new.created_at, drafts.now)
    rank = drafts.rank(new.priority, created_at, new.namespace, new.queue)
    return Job(
        job_id=new.job_id,
        job_type=new.job_type,
        params=new.params,
        created_at=created_at,
        namespace=new.namespace,
        queue=new.queue,
        priority=new.priority,
        position=drafts.next_position(new.namespace, new.queue, rank),
        rank=rank,
        not_before=_not_before(new, drafts.now),
        expires_at=_expires_at(new, drafts.now),
        timeout_s=new.timeout_s,
        lease_s=new.lease_s,
        retry_mode=new.retry_mode,
        max_attempts=new.max_attempts,
        max_expiries=new.max_expiries,
        backoff=new.backoff,
        key=new.key,
        key_scope=new.key_scope,
        key_hold=new.key_hold,
        key_until=None if new.key_window_s is None else later(drafts.now, new.key_window_s),
        limit_key=new.limit_key,
        key_limit=new.key_limit,
        owner=new.owner,
        affinity=new.affinity,
        tags=new.tags,
        submitted_by=new.submitted_by,
        traceparent=new.traceparent,
    )


def _not_before(new: NewJob, now: Timestamp) -> Timestamp | None:
    wishes = [new.not_before] if new.not_before is not None else []
    if new.delay_s is not None:
        wishes.append(later(now, new.delay_s))
    # A time that has come holds nothing back; not keeping it spares the job the lane of the delayed.
    latest = max(wishes, default=now)
    return latest if latest > now else None


def _expires_at(new: NewJob, now: Timestamp) -> Timestamp | None:
    wishes = [new.expires_at] if new.expires_at is not None else []
    if new.ttl_s is not None:
        wishes.append(later(now, new.ttl_s))
    return min(wishes, default=None)
