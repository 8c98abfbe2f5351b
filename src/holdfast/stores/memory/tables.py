"""All tables in memory, with the indexes the look-ups need. Serves `memory:`, `wal:` and whatever else folds in memory.

Not thread-safe: its owner holds a lock. `put` is the only way in; it keeps every index right and returns what was there
before, so that a batch can be undone. The records are here; the orders they can be asked in are kept by parts, each of
which knows its own records alone:

    queuelines     QUEUED jobs: ready, held back, by band        (tasklines: the ready ones of some tasks)
    running        RUNNING jobs: by queue, limit key, schedule
    joblists       all jobs: newest first, by status, counted
    ended          ended jobs, as retention walks them
    chains         which jobs retry which
    runlines       the runs of a job                             (starts: their times, where a queue has a rate)
    schedulelines  templates and schedules
    sidelines      reservations, groups, webhooks, deliveries
    flowlines      workflow instances
    lanes          what waits for which time, of all of these
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain, islice
from typing import Any, TypeVar, cast

from holdfast.model.groups import Group, GroupMode
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Job, JobStatus, RetryKind, RetryMode, Run
from holdfast.model.records import TABLES, DoneCommand, HeldKey, Key, Queue, Record, key_of
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import Delivery, Webhook
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.instances import Affinity, Execution, HistoryRow, Instance, KeyValue, Message, Turn
from holdfast.rules.state import Lane
from holdfast.stores.memory.indexes.due import Lanes, kind_of
from holdfast.stores.memory.indexes.ended import EndedJobs
from holdfast.stores.memory.indexes.job_relations import Sidelines
from holdfast.stores.memory.indexes.jobs import JobLists
from holdfast.stores.memory.indexes.queued import QueueLines
from holdfast.stores.memory.indexes.ready_by_task import TaskLines
from holdfast.stores.memory.indexes.retries import Chains
from holdfast.stores.memory.indexes.running import RunningJobs
from holdfast.stores.memory.indexes.runs import RunLines
from holdfast.stores.memory.indexes.schedules import ScheduleLines
from holdfast.stores.memory.indexes.sorted_set import TimeKey
from holdfast.stores.memory.indexes.workflows import Flowlines
from holdfast.stores.protocol import DeliveryQuery, GroupQuery, JobQuery, QueueCount
from holdfast.stores.sidecar.blob_refs import NAMING, named_by

R = TypeVar("R", bound=Record)
Named = TypeVar("Named", Template, Schedule)

#: So many jobs of one status are sorted for a list; more are met soon enough on the way through all.
FEW = 5_000


class Tables(Flowlines):
    """Every record of a store, and the orders it can be asked in."""

    def __init__(self) -> None:
        #: Kind → key → record; `get` gives them their types back.
        self.records: dict[type, dict[Key, Any]] = {kind: {} for kind in TABLES.values()}
        #: What waits for which time; parts that put something there have it, too.
        self._lanes = Lanes()
        super().__init__(self._lanes)
        # Each part below keeps the orders of some records, and is told of every change of them.
        self._task_lines = TaskLines(self.records[Job])
        self._lines = QueueLines(self._task_lines)
        self._running = RunningJobs()
        self._lists = JobLists()
        self._ended = EndedJobs()
        self._chains = Chains()
        self._runs = RunLines(self.records[Run])
        self._schedules = ScheduleLines(self._lanes)
        self._side = Sidelines(self._lanes)
        #: How each kind's indexes follow a change from one record to another.
        self._reindex: dict[type, Callable[[Any, Any], None]] = {
            Job: self._reindex_job,
            Run: self._runs.reindex_run,
            Queue: self._runs.reindex_queue,
            DoneCommand: self._lanes.reindex_command,
            HeldKey: self._lanes.reindex_key,
            Template: self._schedules.reindex_template,
            Schedule: self._schedules.reindex_schedule,
            Reservation: self._side.reindex_reservation,
            Group: self._side.reindex_group,
            Webhook: self._side.reindex_webhook,
            Delivery: self._side.reindex_delivery,
            Instance: self._reindex_instance,
            Execution: self._reindex_execution,
            HistoryRow: self._reindex_row,
            Message: self._reindex_message,
            Turn: self._reindex_turn,
            KeyValue: self._reindex_key_value,
            Affinity: self._reindex_affinity,
            Decision: self._reindex_decision,
        }
        #: Which blobs the records name; counted from the first question on, so that who has none pays nothing.
        self._named: Counter[str] | None = None
        #: Number and time of the last event folded in.
        self.seq = 0
        self.ts = Timestamp("")

    # --- changing ---------------------------------------------------------------------------------------------------

    def put(self, kind: type[Record], key: Key, record: Record | None) -> Record | None:
        """Set a record, or remove it with None; return the one before."""
        table = self.records[kind]
        before: Record | None = table.get(key)
        if record is not None:
            table[key] = record
        elif before is None:
            return None
        else:
            del table[key]
        reindex = self._reindex.get(kind)
        if reindex is not None:
            reindex(before, record)
        if self._named is not None:
            self._named.subtract(named_by(before))
            self._named.update(named_by(record))
        return before

    def load(self, kind: type[Record], records: Iterable[Record]) -> None:
        """Fill an empty table, indexing everything at once."""
        table = self.records[kind]
        if kind is Job:
            jobs = cast("Iterable[Job]", records)
            table.update({job.job_id: job for job in jobs})
            self._index_jobs(table.values())
            return
        for record in records:
            self.put(kind, key_of(record), record)

    def _index_jobs(self, jobs: Collection[Job]) -> None:
        """Index many jobs by sorting once, which is several times faster than placing each."""
        for job in jobs:
            if job.group_id is not None:
                self._side.reindex_job(None, job)  # all of a group before any: who waits depends on the others
        waiting = {job.job_id for job in jobs if job.sequence_number is not None and self._must_wait(job)}
        self._lines.fill((job for job in jobs if job.status is JobStatus.QUEUED), waiting)
        self._lists.fill(jobs)
        self._ended.fill(jobs)
        self._lanes.fill(jobs, waiting)
        for job in jobs:
            self._lists.count(job, 1)
            if job.status is JobStatus.RUNNING or job.schedule_id is not None:
                self._running.count(job, 1)
            self._reindex_activity(None, job)
            if job.group_id is None:
                self._side.reindex_job(None, job)
            if job.retry_of is not None:
                self._chains.link(job, job.retry_of)

    def _reindex_job(self, before: Job | None, after: Job | None) -> None:
        self._reindex_activity(before, after)
        group_id = cast("Job", after or before).group_id
        turn = None if group_id is None else self._side.turn_of(group_id)
        if before is not None:
            self._take_out(before)
        self._side.reindex_job(before, after)
        if after is not None:
            self._place(after)
        if group_id is not None:
            self._pass_turn(turn, self._side.turn_of(group_id))
        # What never changes in a job's life is indexed at its two ends only.
        if before is None and after is not None:
            self._lists.add(after)
            if after.retry_of is not None:
                self._chains.link(after, after.retry_of)
        elif after is None and before is not None:
            self._lists.discard(before)
            if before.retry_of is not None:
                self._chains.unlink(before, before.retry_of)

    def _place(self, job: Job) -> None:
        waits = job.sequence_number is not None and self._must_wait(job)
        if job.status is JobStatus.QUEUED:
            self._lines.add(job, waits=waits)
        self._lanes.add(job, waits=waits)
        if job.finished_at is not None:
            self._ended.add(job)
        self._lists.count(job, 1)
        if job.status is JobStatus.RUNNING or job.schedule_id is not None:
            self._running.count(job, 1)

    def _take_out(self, job: Job) -> None:
        waits = job.status is JobStatus.QUEUED and self._lines.discard(job)
        self._lanes.discard(job, waits=waits)
        if job.finished_at is not None:
            self._ended.discard(job)
        self._lists.count(job, -1)
        if job.status is JobStatus.RUNNING or job.schedule_id is not None:
            self._running.count(job, -1)

    def _must_wait(self, job: Job) -> bool:
        """Tell whether one that has a number waits for another of its sequential group, with a lower one."""
        if job.group_id is None or job.status is not JobStatus.QUEUED:
            return False
        group = self.records[Group].get(job.group_id)
        return (
            group is not None
            and group.mode is GroupMode.SEQUENTIAL
            and self._side.turn_of(job.group_id) not in (None, job.job_id)
        )

    def _pass_turn(self, before: JobId | None, after: JobId | None) -> None:
        """Place two members anew: the one whose turn it was, and the one whose turn it is."""
        if before == after:
            return
        for job_id in (before, after):
            job = None if job_id is None else self.records[Job].get(job_id)
            if job is not None and job.status is JobStatus.QUEUED:
                self._take_out(job)
                self._place(job)

    def promote(self, now: Timestamp, limit: int) -> None:
        """Make up to `limit` delayed jobs whose time has come ready."""
        due = [key for key in islice(self._lanes[Lane.DELAYED].walk(), limit) if key[0] <= now]
        for key in due:
            self._lanes[Lane.DELAYED].discard(key)
            self._lines.promote(self._job(key[1]))
        self._deliver(now, limit, self.records[Message])

    def let_go(self) -> None:
        """Forget the histories whose executions were removed; called when what was done cannot be undone any more."""
        rows = self.records[HistoryRow]
        for row in self._orphaned():
            del rows[key_of(row)]
            if self._named is not None:
                self._named.subtract(named_by(row))

    # --- looking up -------------------------------------------------------------------------------------------------

    def get(self, kind: type[R], key: Key) -> R | None:
        """Give the record of that key, or None."""
        found: R | None = self.records[kind].get(key)
        return found

    def all(self, kind: type[R]) -> Iterator[R]:
        """Walk every record of a table, in the order of its key."""
        table = self.records[kind]
        return (cast("R", table[key]) for key in sorted(table))

    def runs(self, job_id: JobId) -> Sequence[Run]:
        """Give the job's runs, oldest first."""
        return self._runs.of(job_id)

    def last_run(self, job_id: JobId) -> Run | None:
        """Give the job's newest run, or None."""
        runs = self._runs.of(job_id)
        return runs[-1] if runs else None

    def run_by_token(self, job_id: JobId, token: Token) -> Run | None:
        """Give the job's run that was granted with `token`, or None."""
        return self._runs.with_token(job_id, token)

    def successors(self, job_id: JobId) -> Sequence[Job]:
        """Give the jobs whose `retry_of` is this one, oldest first."""
        jobs = [self._job(follower) for follower in self._chains.followers(job_id)]
        return sorted(jobs, key=lambda job: (job.created_at, job.job_id))

    def granted_by(self, cmd: str) -> Sequence[Job]:
        """Give the RUNNING jobs whose lease was granted by that command, in order of token."""
        jobs = (self._job(key[1]) for key in self._lanes[Lane.LEASE])
        return sorted((job for job in jobs if job.grant_cmd == cmd), key=lambda job: job.token or 0)

    def local_leases(self) -> Iterator[Job]:
        """Walk the RUNNING jobs whose lease belongs to an opening of the store."""
        jobs = (self._job(key[1]) for key in self._lanes[Lane.LEASE])
        return (job for job in jobs if job.session_id is not None)

    def ready(
        self,
        namespace: str,
        queues: Sequence[str],
        job_types: Sequence[str] | None,
        now: Timestamp,
        *,
        free: bool = False,
    ) -> Iterator[Job]:
        """Walk the ready jobs of these queues in the order of dispatch."""
        del now  # the batch has promoted what is due
        keys = self._lines.ready(namespace, queues, None if job_types is None else frozenset(job_types))
        table: dict[Key, Job] = self.records[Job]
        jobs = (table[key[3]] for key in keys)
        return self._running.free(jobs) if free else jobs

    def running(self, namespace: str, queue: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a queue."""
        return self._running.of_queue(namespace, queue)

    def running_with(self, namespace: str, limit_key: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a namespace that carry a limit key."""
        return self._running.with_key(namespace, limit_key)

    def running_of(self, schedule_id: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a schedule."""
        return self._running.of_schedule(schedule_id)

    def active_of(self, schedule_id: str) -> JobId | None:
        """Give the QUEUED or RUNNING job of a schedule with the lowest id, or None."""
        return self._running.active_of(schedule_id)

    def reservation(self, namespace: str, queue: str) -> Reservation | None:
        """Give the ACTIVE reservation of a queue, expired or not, or None."""
        return self._side.reservation(namespace, queue)

    def direct(self, namespace: str, queue: str) -> JobId | None:
        """Give the RUNNING direct job of a queue, or None."""
        return self._side.direct(namespace, queue)

    def members(self, group_id: str, status: JobStatus | None = None) -> Sequence[Job]:
        """Give the members of a group in order; of one status, or all."""
        return self._side.members(group_id, status)

    def turn_of(self, group_id: str) -> Job | None:
        """Give the active member of a group that has the lowest number, or None."""
        job_id = self._side.turn_of(group_id)
        return None if job_id is None else self._job(job_id)

    def unfollowed(self) -> Iterator[Job]:
        """Walk the FAILED jobs of chains that have attempts left and no automatic successor, by id."""
        for job_id in self._lists.with_end(JobStatus.FAILED):
            job = self._job(job_id)
            if job.retry_mode is RetryMode.CHAIN and job.attempts < job.max_attempts:
                heirs = self._chains.followers(job_id)
                if not any(self._job(heir).retry_kind is RetryKind.AUTO for heir in heirs):
                    yield job

    def live_groups(self) -> Iterator[Group]:
        """Walk the groups that have members and have not ended, by id."""
        return (self.records[Group][group_id] for group_id in self._side.live_groups())

    def webhooks(self, namespace: str) -> Sequence[Webhook]:
        """Give the enabled webhooks of a namespace, by id."""
        return self._side.webhooks(namespace)

    def by_name(self, kind: type[Named], namespace: str, name: str) -> Named | None:
        """Give the template or schedule of that name, or None."""
        key = self._schedules.key(kind, namespace, name)
        return None if key is None else cast("Named", self.records[kind][key])

    def schedules_of(self, template_id: str) -> Sequence[Schedule]:
        """Give the schedules that make jobs from a template, by id."""
        return [self.records[Schedule][key] for key in self._schedules.users(template_id)]

    def starts(
        self, namespace: str, queue: str, limit_key: str | None, after: Timestamp, *, skip: int = 0
    ) -> Iterator[Timestamp]:
        """Walk the starts of a queue that has a rate, after a time."""
        return self._runs.starts(namespace, queue, limit_key, after, skip)

    def queued(self, namespace: str, queue: str) -> Sequence[Job]:
        """Give all QUEUED jobs of a queue, delayed ones too, in order."""
        return [self._job(job_id) for job_id in self._lines.all(namespace, queue)]

    def band(self, namespace: str, queue: str, rank: int) -> Sequence[Job]:
        """Give all QUEUED jobs of one band, delayed ones too, in order."""
        return [self._job(job_id) for job_id in self._lines.band(namespace, queue, rank)]

    def bands(self, namespace: str, queue: str) -> Sequence[int]:
        """Give the ranks that QUEUED jobs of the queue have, ascending."""
        return self._lines.bands(namespace, queue)

    def edge(self, namespace: str, queue: str, rank: int, *, last: bool) -> int | None:
        """Give the lowest or highest position in the band, delayed jobs included; None if empty."""
        return self._lines.edge(namespace, queue, rank, last=last)

    def beside(self, job: Job, *, after: bool) -> Job | None:
        """Give the QUEUED job next before or after this one in its band, delayed jobs included."""
        job_id = self._lines.beside(job, after=after)
        return None if job_id is None else self._job(job_id)

    def due(self, lane: Lane, until: Timestamp) -> Iterator[Record]:
        """Walk the records of a lane whose time is at or before `until`, earliest first, then by id."""
        table = self.records[kind_of(lane)]
        for when, key in self._lanes[lane].walk():
            if when > until:
                return
            yield table[key]

    def ended_queues(self) -> Sequence[tuple[str, str]]:
        """Give the namespaces and names of queues that have ended jobs, in order."""
        return self._ended.queues()

    def ended(self, namespace: str, queue: str, *, failed: bool, until: Timestamp) -> Iterator[Job]:
        """Walk the ended jobs of a queue, earliest end first."""
        return (self._job(job_id) for job_id in self._ended.walk((namespace, queue, failed), until))

    def ended_beyond(self, namespace: str, queue: str, *, failed: bool, keep: int) -> TimeKey | None:
        """Give the end and the id of the newest ended job beyond the `keep` newest, or None."""
        return self._ended.beyond((namespace, queue, failed), keep)

    def next_due(self, lane: Lane) -> Timestamp | None:
        """Give the earliest time of a lane, or None."""
        first = next(self._lanes[lane].walk(), None)
        return None if first is None else first[0]

    def jobs(self, query: JobQuery) -> Sequence[Job]:
        """Give the matching jobs, newest first."""
        keys: Iterable[TimeKey] | None = self._lists.newest(query.namespace, query.submitted_by, query.before)
        if keys is None:
            return []
        if query.status is not None:
            few = self._few(query.namespace, query.status)
            if few is not None:
                # Sorting a few is faster than passing by the many that have another status.
                having = sorted(((self._job(job_id).created_at, job_id) for job_id in few), reverse=True)
                keys = (key for key in having if query.before is None or key < query.before)
        jobs = (self._job(key[1]) for key in keys)
        wanted = (
            job
            for job in jobs
            if query.status in (None, job.status)
            and query.queue in (None, job.queue)
            and query.job_type in (None, job.job_type)
            and query.submitted_by in (None, job.submitted_by)
        )
        return list(islice(wanted, query.limit))

    def deliveries(self, query: DeliveryQuery) -> Sequence[Delivery]:
        """Give the matching deliveries of a webhook, newest first."""
        made: dict[str, Delivery] = self.records[Delivery]
        found = (made[key] for key in self._side.deliveries(query.webhook_id))
        return list(islice((one for one in found if query.status in (None, one.status)), query.limit))

    def _few(self, namespace: str, status: JobStatus) -> Sequence[str] | None:
        """Give the jobs of a status if they are few, else None."""
        if status is JobStatus.QUEUED:
            return self._lines.few(namespace, FEW)
        if status is JobStatus.RUNNING:
            return self._running.few(namespace, FEW)
        return self._lists.few(namespace, status, FEW)

    def groups(self, query: GroupQuery) -> Sequence[Group]:
        """Give the matching groups, newest first."""
        table = self.records[Group]
        found = (cast("Group", table[key]) for key in self._side.groups(query.namespace, query.before))
        return list(islice((group for group in found if query.status in (None, group.status)), query.limit))

    def ids_with_prefix(
        self, prefix: str, limit: int, kind: type[Job | Group] = Job, namespaces: Sequence[str] | None = None
    ) -> Sequence[str]:
        """Give the first `limit` ids of jobs, or groups, of these namespaces that begin with `prefix`, in order."""
        # Asked by people, a few times an hour: passing all keys is cheaper than an index that every new job pays for.
        found: Iterable[str] = self.records[kind]
        if namespaces is not None:
            found = chain.from_iterable(self._ids_within(kind, one) for one in dict.fromkeys(namespaces))
        return nsmallest(limit, (one for one in found if one.startswith(prefix)))

    def _ids_within(self, kind: type[Job | Group], namespace: str) -> Iterator[str]:
        """Walk the ids of jobs or groups of a namespace."""
        if kind is Group:
            return self._side.groups(namespace, None)
        return (key[1] for key in self._lists.newest(namespace, None, None) or ())

    def counts(self) -> Sequence[QueueCount]:
        """Count jobs by namespace, queue and status."""
        return self._lists.counts()

    def names(self, digest: str) -> bool:
        """Tell whether a record names that blob."""
        if self._named is None:
            self._named = Counter(
                name for kind in NAMING for record in self.records[kind].values() for name in named_by(record)
            )
        return self._named[digest] > 0

    def named(self) -> Iterator[str]:
        """Walk all blobs that records name."""
        self.names("")
        return (digest for digest, count in (self._named or {}).items() if count > 0)

    def _job(self, job_id: str) -> Job:
        return cast("Job", self.records[Job][job_id])
