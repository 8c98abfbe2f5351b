"""What the rules may look up: one consistent view of a store, during one batch. It only reads.

Stores implement it. Every look-up sees the effects of the commands decided before in the same batch, and nothing of a
command that is only being decided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

from holdfast.model.groups import Group
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.records import Key, Record
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import Webhook
from holdfast.rules.workflows.state import FlowState

R = TypeVar("R", bound=Record)
#: Records that have a name beside their id, unique within a namespace.
N = TypeVar("N", Template, Schedule)


class Lane(StrEnum):
    """What becomes due: an ordered index of records by the time at which something must happen to them."""

    #: RUNNING jobs by the end of their lease.
    LEASE = "lease"
    #: QUEUED jobs by their latest start.
    TTL = "ttl"
    #: QUEUED jobs by `not_before`, without those that wait for others of their group.
    DELAYED = "delayed"
    #: Remembered commands by the time they were done.
    COMMAND = "command"
    #: Held keys by the end of their window.
    KEY = "key"
    #: Enabled schedules by their next trigger.
    SCHEDULE = "schedule"
    #: ACTIVE reservations by their expiry.
    RESERVATION = "reservation"
    #: Ended reservations by their end.
    RESERVED = "reserved"
    #: Ended groups by their end, and those without members by their creation.
    GROUP = "group"
    #: PENDING deliveries by their next try, or by the end of the claim of who is sending them.
    DELIVERY = "delivery"
    #: Ended deliveries by their end.
    DELIVERED = "delivered"
    #: Turns that are held, by the end of their lock.
    TURN = "turn"
    #: Messages that are held back, by the time they are delivered.
    MAIL = "mail"
    #: Parked messages by the time they are dropped.
    PARKED = "parked"
    #: Instances without a parent that are over, by their end.
    ROOT = "root"
    #: Those of them that say nothing of how long they are kept, by their end; and the others, by when they go.
    AGING = "aging"
    LEAVING = "leaving"
    #: Sessions of activities by the end of their hold.
    AFFINITY = "affinity"


class State(FlowState, Protocol):
    """The look-ups a rule may use."""

    def get(self, kind: type[R], key: Key) -> R | None:
        """Give the record of that key, or None."""
        ...

    def last_run(self, job_id: JobId) -> Run | None:
        """Give the job's newest run, or None."""
        ...

    def run_by_token(self, job_id: JobId, token: Token) -> Run | None:
        """Give the job's run that was granted with `token`, or None."""
        ...

    def runs(self, job_id: JobId) -> Sequence[Run]:
        """Give the job's runs, oldest first."""
        ...

    def successors(self, job_id: JobId) -> Sequence[Job]:
        """Give the jobs whose `retry_of` is this one, oldest first."""
        ...

    def granted_by(self, cmd: str) -> Sequence[Job]:
        """Give the RUNNING jobs whose lease was granted by that command, in order of token."""
        ...

    def ready(
        self,
        namespace: str,
        queues: Sequence[str],
        job_types: Sequence[str] | None,
        now: Timestamp,
        *,
        free: bool = False,
    ) -> Iterator[Job]:
        """Walk the QUEUED jobs of these queues that no `not_before` holds back, in the order of dispatch.

        - Members of a sequential group are left out while one with a lower number is QUEUED or RUNNING; however many
          they are, they cost nothing.
        - Queues asked together are merged by the same order.
        - With `job_types`, other tasks are left out; however many stand before, finding the next one costs the same.
        - With `free`, jobs are left out whose limit key is carried by as many RUNNING ones as they allow, and those
          that wait until no other job of their schedule is RUNNING.
        - Lazy: what is not asked for costs nothing.
        """
        ...

    def running(self, namespace: str, queue: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a queue, in no order."""
        ...

    def running_with(self, namespace: str, limit_key: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a namespace that carry a limit key, in no order."""
        ...

    def running_of(self, schedule_id: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a schedule, in no order."""
        ...

    def active_of(self, schedule_id: str) -> JobId | None:
        """Give the job of a schedule that is QUEUED or RUNNING and has the lowest id, or None."""
        ...

    def reservation(self, namespace: str, queue: str) -> Reservation | None:
        """Give the ACTIVE reservation of a queue, expired or not, or None."""
        ...

    def direct(self, namespace: str, queue: str) -> JobId | None:
        """Give the RUNNING direct job of a queue, or None."""
        ...

    def members(self, group_id: str, status: JobStatus | None = None) -> Sequence[Job]:
        """Give the members of a group by sequence number, then creation, then id; of one status, or all.

        The jobs of a member's chain all carry its number. The callback job is no member.
        """
        ...

    def turn_of(self, group_id: str) -> Job | None:
        """Give the member of a group that is QUEUED or RUNNING and has the lowest number, or None if none is."""
        ...

    def unfollowed(self) -> Iterator[Job]:
        """Walk the FAILED jobs of chains that have attempts left and no automatic successor, by id.

        Asked once, at start. What has no chains pays nothing.
        """
        ...

    def live_groups(self) -> Iterator[Group]:
        """Walk the groups that have members and have not ended, by id. Those that have ended cost nothing."""
        ...

    def webhooks(self, namespace: str) -> Sequence[Webhook]:
        """Give the enabled webhooks of a namespace, by id. Cheap where there are none: every ended run asks."""
        ...

    def by_name(self, kind: type[N], namespace: str, name: str) -> N | None:
        """Give the template or schedule of that name, or None."""
        ...

    def schedules_of(self, template_id: str) -> Sequence[Schedule]:
        """Give the schedules that make jobs from a template, by id."""
        ...

    def starts(
        self, namespace: str, queue: str, limit_key: str | None, after: Timestamp, *, skip: int = 0
    ) -> Iterator[Timestamp]:
        """Walk the times after `after` at which executions of a queue started, earliest first.

        - Without the first `skip`.
        - With `limit_key`, only those of jobs that carried it.
        - A run that was skipped has not started.
        - Promised for queues that have a rate. Lazy.
        """
        ...

    def queued(self, namespace: str, queue: str) -> Sequence[Job]:
        """Give all QUEUED jobs of a queue, delayed ones too, in order."""
        ...

    def band(self, namespace: str, queue: str, rank: int) -> Sequence[Job]:
        """Give all QUEUED jobs of one band, delayed ones too, in order."""
        ...

    def bands(self, namespace: str, queue: str) -> Sequence[int]:
        """Give the ranks that QUEUED jobs of the queue have, ascending."""
        ...

    def edge(self, namespace: str, queue: str, rank: int, *, last: bool) -> int | None:
        """Give the lowest (or with `last` the highest) position in the band, delayed jobs included; None if empty."""
        ...

    def beside(self, job: Job, *, after: bool) -> Job | None:
        """Give the QUEUED job next before (or after) this one in its band, delayed jobs included."""
        ...

    def due(self, lane: Lane, until: Timestamp) -> Iterator[Record]:
        """Walk the records of a lane whose time is at or before `until`, earliest first, then by id. Lazy."""
        ...

    def ended_queues(self) -> Sequence[tuple[str, str]]:
        """Give the namespaces and names of queues that have ended jobs, in order."""
        ...

    def ended(self, namespace: str, queue: str, *, failed: bool, until: Timestamp) -> Iterator[Job]:
        """Walk the ended jobs of a queue whose end is at or before `until`, earliest first, then by id.

        - With `failed` the FAILED and DEAD ones, otherwise the COMPLETED and CANCELLED ones.
        - What belongs to a group is left out.
        - Lazy.
        """
        ...

    def ended_beyond(self, namespace: str, queue: str, *, failed: bool, keep: int) -> tuple[Timestamp, str] | None:
        """Give the end and the id of the newest such job beyond the `keep` newest, or None if there are no more."""
        ...

    def local_leases(self) -> Iterator[Job]:
        """Walk the RUNNING jobs whose lease belongs to an opening of the store (`session_id` set)."""
        ...
