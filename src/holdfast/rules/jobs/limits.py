"""Limits: how many jobs of a queue, or with one limit key, may run at once, and how many may start in a time.

Counted in the state in which a Lease is decided, never in memory; what the same Lease has granted counts too. Only a
RUNNING job holds a place, so a job that waits never holds back the one behind it.

A rate counts the starts in (now - period, now]. Starts stamped later than now, after a clock was set back, count too:
a rate is rather kept too long than broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.model.commands import SetQueue
from holdfast.model.events import QueueSet
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job
from holdfast.model.outcomes import Done
from holdfast.model.records import Queue, pair
from holdfast.model.schedules import Overlap
from holdfast.model.times import Timestamp, later
from holdfast.rules.decision import Decision, answer
from holdfast.rules.reservations.commands import reserved_by
from holdfast.rules.state import State


def decide_set_queue(state: State, command: SetQueue) -> Decision:
    """Change the limits of a queue. What runs goes on, even beyond a new limit."""
    queue = settings_of(state, command.namespace, command.queue)
    if all(getattr(queue, name) == value for name, value in command.changes.given().items()):
        return answer(Done())
    event = QueueSet(
        namespace=command.namespace,
        queue=command.queue,
        changes=command.changes,
        cmd=command.cmd,
        actor=command.actor,
    )
    return answer(Done(), event)


def settings_of(state: State, namespace: str, name: str) -> Queue:
    """Give the settings of a queue; one without a record has the defaults."""
    return state.get(Queue, pair(namespace, name)) or Queue(namespace, name)


# --- counting ---------------------------------------------------------------------------------------------------------


def _counted(
    state: State, queue: Queue, limit_key: str | None, now: Timestamp, *, skip: int = 0
) -> Iterator[Timestamp]:
    """Walk the starts that count against the rate now, earliest first, without the first `skip`."""
    assert queue.rate_period_s is not None
    return state.starts(queue.namespace, queue.name, limit_key, later(now, -queue.rate_period_s), skip=skip)


def _starts_left(state: State, queue: Queue, limit_key: str | None, now: Timestamp, n: int) -> int:
    """Give how many more of at most `n` the rate lets start now."""
    assert queue.rate_count is not None
    most = min(n, queue.rate_count)
    # Only the starts that bear on these few are looked at one by one, however many the rate allows.
    return most - sum(1 for _ in _counted(state, queue, limit_key, now, skip=queue.rate_count - most))


def _is_rated(queue: Queue, scope: str) -> bool:
    return queue.rate_count is not None and queue.rate_scope == scope


def _capacity(state: State, queue: Queue, now: Timestamp, n: int) -> int | None:
    """Give how many of `n` jobs the queue as a whole may start now; None for any number."""
    places = None
    if queue.max_running is not None:
        places = queue.max_running - len(state.running(queue.namespace, queue.name))
        if places <= 0:
            return 0
    if _is_rated(queue, "queue"):
        left = _starts_left(state, queue, None, now, n)
        places = left if places is None else min(places, left)
    return places


def rate_opens_at(state: State, queue: Queue, limit_key: str | None, now: Timestamp) -> Timestamp | None:
    """Give when the queue's rate lets the next job with that limit key start; None if it holds nothing back."""
    if queue.rate_count is None or queue.rate_period_s is None:
        return None
    if queue.rate_scope == "key" and limit_key is None:
        return None
    key = limit_key if queue.rate_scope == "key" else None
    too_many = sum(1 for _ in _counted(state, queue, key, now, skip=queue.rate_count - 1))
    if not too_many:
        return None
    return later(next(_counted(state, queue, key, now, skip=too_many - 1)), queue.rate_period_s)


def next_opening(state: State, namespace: str, queues: Sequence[str], now: Timestamp) -> Timestamp | None:
    """Give when a rate may let a job of these queues start that it holds back now, or None.

    Never too late. With a rate for each key it may be too early: some start ceases to count then, perhaps of another
    key.
    """
    times: list[Timestamp] = []
    for name in queues:
        queue = settings_of(state, namespace, name)
        if _is_rated(queue, "queue"):
            when = rate_opens_at(state, queue, None, now)
            times += [] if when is None else [when]
        elif queue.rate_period_s is not None:
            oldest = next(_counted(state, queue, None, now), None)
            times += [] if oldest is None else [later(oldest, queue.rate_period_s)]
    return min(times, default=None)


def is_counted(state: State, job: Job, now: Timestamp) -> bool:
    """Tell whether a start of the job still counts against a rate, so that its runs must stay."""
    for run in state.runs(job.job_id):
        period_s = settings_of(state, run.namespace, run.queue).rate_period_s
        if period_s is not None and run.token is not None and run.started_at > later(now, -period_s):
            return True
    return False


# --- while a Lease is decided -----------------------------------------------------------------------------------------


class Places:
    """What the limits leave of some queues while one Lease is decided."""

    def __init__(self, state: State, namespace: str, queues: Sequence[str], now: Timestamp, n: int) -> None:
        """Count for a Lease of at most `n` jobs."""
        self._state = state
        self._n = n
        self._namespace = namespace
        self._now = now
        #: Queues that may start something, with their settings.
        self._open: dict[str, Queue] = {}
        #: Queue → how many more it may start, where that is limited.
        self._left: dict[str, int] = {}
        #: Limit key → RUNNING jobs that carry it.
        self._running: dict[str, int] = {}
        #: (queue, limit key) → how many more may start.
        self._starts_left: dict[tuple[str, str], int] = {}
        #: Schedules of which this Lease has granted a job.
        self._scheduled: set[str] = set()
        for name in queues:
            queue = settings_of(state, namespace, name)
            if queue.paused or reserved_by(state, namespace, name, now) is not None:
                continue
            left = _capacity(state, queue, now, n)
            if left is not None and left <= 0:
                continue
            self._open[name] = queue
            if left is not None:
                self._left[name] = left

    def candidates(self, job_types: Sequence[str] | None) -> Iterator[Job]:
        """Walk the ready jobs that no limit holds back, in order; each that is taken counts for the next."""
        seen: set[JobId] = set()
        while self._open:
            for job in self._state.ready(self._namespace, tuple(self._open), job_types, self._now, free=True):
                if job.job_id in seen or (job.limit_key is not None and not self._has_place(job, job.limit_key)):
                    continue
                if job.overlap == Overlap.QUEUE and job.schedule_id in self._scheduled:
                    continue  # what ran before it was asked for is left out by the state itself
                seen.add(job.job_id)
                yield job
                if job.queue not in self._open:
                    break  # walk anew without the queue that is full: all its other jobs would be met for nothing
            else:
                return

    def take(self, job: Job) -> None:
        """Count a job that was granted."""
        if job.schedule_id is not None:
            self._scheduled.add(job.schedule_id)
        left = self._left.get(job.queue)
        if left is not None:
            self._left[job.queue] = left - 1
            if left == 1:
                del self._open[job.queue]
        if job.limit_key is not None:
            self._running[job.limit_key] += 1
            rated = (job.queue, job.limit_key)
            if rated in self._starts_left:
                self._starts_left[rated] -= 1

    def _has_place(self, job: Job, limit_key: str) -> bool:
        running = self._running.get(limit_key)
        if running is None:
            running = self._running[limit_key] = len(self._state.running_with(self._namespace, limit_key))
        if running >= job.key_limit:
            return False
        queue = self._open[job.queue]
        if not _is_rated(queue, "key"):
            return True
        rated = (job.queue, limit_key)
        left = self._starts_left.get(rated)
        if left is None:
            left = self._starts_left[rated] = _starts_left(self._state, queue, limit_key, self._now, self._n)
        return left > 0
