"""All tables in memory, with the indexes the look-ups need. Serves `memory:`, `wal:` and whatever else folds in memory.

Not thread-safe: its owner holds a lock. `put` is the only way in; it keeps every index right and returns what was there
before, so that a batch can be undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import merge, nsmallest
from itertools import chain, islice
from typing import Any, TypeVar, cast

from holdfast.model.decisions import Decision
from holdfast.model.groups import Group, GroupMode
from holdfast.model.ids import JobId, Token
from holdfast.model.instances import Affinity, Execution, HistoryRow, Instance, KeyValue, Message, Turn
from holdfast.model.jobs import Job, JobStatus, RetryKind, RetryMode, Run
from holdfast.model.records import TABLES, DoneCommand, HeldKey, Key, Queue, Record, key_of
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Overlap, Schedule
from holdfast.model.templates import Template
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import Delivery, Webhook
from holdfast.rules.order import PlaceKey, place, run_place
from holdfast.rules.state import Lane
from holdfast.stores.beside.naming import NAMING, named_by
from holdfast.stores.ended import EndedJobs
from holdfast.stores.flowlines import Flowlines
from holdfast.stores.ordered import OrderedSet
from holdfast.stores.protocol import DeliveryQuery, GroupQuery, JobQuery, QueueCount
from holdfast.stores.sidelines import Sidelines
from holdfast.stores.starts import Starts
from holdfast.stores.tasklines import TaskLines

R = TypeVar("R", bound=Record)
N = TypeVar("N")
I = TypeVar("I", bound=str)  # noqa: E741 - an id
Named = TypeVar("Named", Template, Schedule)
K = TypeVar("K", bound=tuple[Any, ...])
QueueKey = tuple[str, str]
DueKey = tuple[Timestamp, str]

_BEYOND = "\U0010ffff"
#: So many jobs of one status are sorted for a list; more are met soon enough on the way through all.
FEW = 5_000


class Tables(Flowlines):
    """Every record of a store, and the orders it can be asked in."""

    def __init__(self) -> None:
        #: Kind → key → record; `get` gives them their types back.
        self.records: dict[type, dict[Key, Any]] = {kind: {} for kind in TABLES.values()}
        self._ready: dict[QueueKey, OrderedSet[PlaceKey]] = {}
        self._task_lines = TaskLines(self.records[Job])
        #: QUEUED jobs whose `not_before` has not been seen to pass, in the order they will have.
        self._held_back: dict[QueueKey, OrderedSet[PlaceKey]] = {}
        #: Members of sequential groups that wait for their turn, among those held back.
        self._waiting: set[JobId] = set()
        #: Jobs with a `not_before` that are among the ready ones all the same.
        self._promoted: set[JobId] = set()
        self._due: dict[Lane, OrderedSet[DueKey]] = {lane: OrderedSet() for lane in Lane}
        super().__init__(self._due)
        self._ended = EndedJobs()
        #: By namespace, in the order of creation.
        self._created: dict[str, OrderedSet[DueKey]] = {}
        #: The same of those that an access token submitted, by namespace and its name: most may be others'.
        self._submitted: dict[tuple[str, str], OrderedSet[DueKey]] = {}
        #: Who has which status; the QUEUED ones stand in their queues already, and so do the RUNNING ones.
        self._by_status: dict[tuple[str, JobStatus], set[JobId]] = {}
        self._running: dict[QueueKey, set[JobId]] = {}
        #: RUNNING jobs by namespace and limit key.
        self._limited: dict[tuple[str, str], set[JobId]] = {}
        #: Jobs of schedules: the QUEUED and RUNNING ones by id, and the RUNNING ones.
        self._active_of: dict[str, OrderedSet[tuple[str]]] = {}
        self._running_of: dict[str, set[JobId]] = {}
        #: Kind → (namespace, name) → key, of what has a name beside its id.
        self._names: dict[type, dict[QueueKey, Key]] = {Template: {}, Schedule: {}}
        #: Template → the schedules that use it.
        self._users: dict[str, set[str]] = {}
        self._starts = Starts()
        self._side = Sidelines(self._due)
        self._counts: dict[tuple[str, str, JobStatus], int] = {}
        self._runs: dict[JobId, tuple[Run, ...]] = {}
        self._followers: dict[JobId, tuple[JobId, ...]] = {}
        #: How each kind's indexes follow a change from one record to another.
        self._reindex: dict[type, Callable[[Any, Any], None]] = {
            Job: self._reindex_job,
            Run: self._reindex_run,
            Queue: self._reindex_queue,
            DoneCommand: self._reindex_command,
            HeldKey: self._reindex_key,
            Template: self._reindex_name,
            Schedule: self._reindex_schedule,
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
            self._ended.fill(table.values())
            return
        for record in records:
            self.put(kind, key_of(record), record)

    def _index_jobs(self, jobs: Iterable[Job]) -> None:
        """Index many jobs by sorting once, which is several times faster than placing each."""
        places: dict[tuple[bool, QueueKey], list[PlaceKey]] = {}
        dues: dict[Lane, list[DueKey]] = {}
        created: dict[str, list[DueKey]] = {}
        submitted: dict[tuple[str, str], list[DueKey]] = {}
        for job in jobs:
            if job.group_id is not None:
                self._side.reindex_job(None, job)  # all of a group before any: who waits depends on the others
        for job in jobs:
            waits = self._must_wait(job)
            if waits:
                self._waiting.add(job.job_id)
            if job.status is JobStatus.QUEUED:
                queue = (waits or job.not_before is not None, (job.namespace, job.queue))
                found = places.get(queue)
                if found is None:
                    found = places[queue] = []
                found.append(place(job))
            for lane, when in _dues(job, waits=waits):
                dues.setdefault(lane, []).append((when, job.job_id))
            listed = created.get(job.namespace)
            if listed is None:
                listed = created[job.namespace] = []
            listed.append((job.created_at, job.job_id))
            if job.submitted_by is not None:
                submitted.setdefault((job.namespace, job.submitted_by), []).append(listed[-1])
            self._count(job, 1)
            self._reindex_activity(None, job)
            if job.group_id is None:
                self._side.reindex_job(None, job)
            if job.retry_of is not None:
                self._link(job)
        for (held_back, queue_key), keys in places.items():
            (self._held_back if held_back else self._ready)[queue_key] = OrderedSet(keys)
        for lane, due_keys in dues.items():
            self._due[lane] = OrderedSet(due_keys)  # lanes of jobs alone: nobody else has put anything there yet
        for namespace, created_keys in created.items():
            self._created[namespace] = OrderedSet(created_keys)
        self._submitted = {name: OrderedSet(keys) for name, keys in submitted.items()}

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
            key = (after.created_at, after.job_id)
            _place_of(self._created, after.namespace).add(key)
            if after.submitted_by is not None:
                _place_of(self._submitted, (after.namespace, after.submitted_by)).add(key)
            self._link(after)
        elif after is None and before is not None:
            key = (before.created_at, before.job_id)
            self._created[before.namespace].discard(key)
            if before.submitted_by is not None:
                self._submitted[before.namespace, before.submitted_by].discard(key)
            self._unlink(before)

    def _place(self, job: Job) -> None:
        waits = self._must_wait(job)
        if waits:
            self._waiting.add(job.job_id)
        if job.status is JobStatus.QUEUED:
            if job.not_before is None and not waits:
                self._make_ready(job)
            else:
                _place_of(self._held_back, (job.namespace, job.queue)).add(place(job))
        for lane_name, when in _dues(job, waits=waits):
            self._due[lane_name].add((when, job.job_id))
        self._ended.add(job)
        self._count(job, 1)

    def _make_ready(self, job: Job) -> None:
        queue, key = (job.namespace, job.queue), place(job)
        _place_of(self._ready, queue).add(key)
        if self._task_lines:
            self._task_lines.add(queue, job.job_type, key)

    def _take_out(self, job: Job) -> None:
        waits = job.job_id in self._waiting
        if job.status is JobStatus.QUEUED:
            due = job.not_before is None or job.job_id in self._promoted
            queue, key = (job.namespace, job.queue), place(job)
            if not due or waits:
                self._held_back[queue].discard(key)
            else:
                self._ready[queue].discard(key)
                if self._task_lines:
                    self._task_lines.discard(queue, job.job_type, key)
            self._promoted.discard(job.job_id)
            self._waiting.discard(job.job_id)
        for lane_name, when in _dues(job, waits=waits):
            self._due[lane_name].discard((when, job.job_id))
        self._ended.discard(job)
        self._count(job, -1)

    def _must_wait(self, job: Job) -> bool:
        """Tell whether a member of a sequential group waits for one with a lower number."""
        if job.sequence_number is None or job.group_id is None or job.status is not JobStatus.QUEUED:
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

    def _link(self, job: Job) -> None:
        if job.retry_of is not None:
            self._followers[job.retry_of] = (*self._followers.get(job.retry_of, ()), job.job_id)

    def _unlink(self, job: Job) -> None:
        if job.retry_of is not None:
            left = tuple(other for other in self._followers.pop(job.retry_of) if other != job.job_id)
            if left:
                self._followers[job.retry_of] = left

    def _reindex_run(self, before: Run | None, after: Run | None) -> None:
        job_id = cast("Run", after or before).job_id
        runs = self._runs.get(job_id, ())
        if before is not None:
            runs = tuple(run for run in runs if run.run_id != before.run_id)
        if after is not None:
            runs = tuple(sorted((*runs, after), key=run_place)) if runs else (after,)
        if runs:
            self._runs[job_id] = runs
        else:
            self._runs.pop(job_id, None)
        if self._starts and (before is None or after is None):
            if before is not None:
                self._starts.discard(before)
            if after is not None:
                self._starts.add(after)

    def _reindex_queue(self, before: Queue | None, after: Queue | None) -> None:
        queue = cast("Queue", after or before)
        if after is not None and after.rate_count is not None:
            self._starts.follow(queue.namespace, queue.name, self.records[Run].values())
        else:
            self._starts.forget(queue.namespace, queue.name)

    def _reindex_command(self, before: DoneCommand | None, after: DoneCommand | None) -> None:
        if before is not None:
            self._due[Lane.COMMAND].discard((before.at, before.cmd))
        if after is not None:
            self._due[Lane.COMMAND].add((after.at, after.cmd))

    def _reindex_key(self, before: HeldKey | None, after: HeldKey | None) -> None:
        if before is not None and before.held_until is not None:
            self._due[Lane.KEY].discard((before.held_until, key_of(before)))
        if after is not None and after.held_until is not None:
            self._due[Lane.KEY].add((after.held_until, key_of(after)))

    def _reindex_name(self, before: Template | Schedule | None, after: Template | Schedule | None) -> None:
        if before is not None:
            self._names[type(before)].pop((before.namespace, before.name), None)
        if after is not None:
            self._names[type(after)][after.namespace, after.name] = key_of(after)

    def _reindex_schedule(self, before: Schedule | None, after: Schedule | None) -> None:
        self._reindex_name(before, after)
        for schedule, by in ((before, -1), (after, 1)):
            if schedule is None:
                continue
            if schedule.template_id is not None:
                _note(self._users, schedule.template_id, schedule.schedule_id, by)
            if schedule.enabled and schedule.next_trigger_at is not None:
                due = (schedule.next_trigger_at, schedule.schedule_id)
                if by > 0:
                    self._due[Lane.SCHEDULE].add(due)
                else:
                    self._due[Lane.SCHEDULE].discard(due)

    def _count(self, job: Job, by: int) -> None:
        name = (job.namespace, job.queue, job.status)
        total = self._counts.get(name, 0) + by
        if total:
            self._counts[name] = total
        else:
            self._counts.pop(name, None)
        if job.schedule_id is not None and not job.has_ended:
            self._count_active(job, job.schedule_id, by)
        if job.status is JobStatus.QUEUED:
            return
        if job.status is JobStatus.RUNNING:
            _note(self._running, (job.namespace, job.queue), job.job_id, by)
            if job.limit_key is not None:
                _note(self._limited, (job.namespace, job.limit_key), job.job_id, by)
        else:
            _note(self._by_status, (job.namespace, job.status), job.job_id, by)

    def _count_active(self, job: Job, schedule_id: str, by: int) -> None:
        active = _place_of(self._active_of, schedule_id)
        if by > 0:
            active.add((job.job_id,))
        else:
            active.discard((job.job_id,))
            if not active:
                del self._active_of[schedule_id]
        if job.status is JobStatus.RUNNING:
            _note(self._running_of, schedule_id, job.job_id, by)

    def promote(self, now: Timestamp, limit: int) -> None:
        """Make up to `limit` delayed jobs whose time has come ready."""
        due = [key for key in islice(self._due[Lane.DELAYED].walk(), limit) if key[0] <= now]
        for key in due:
            self._due[Lane.DELAYED].discard(key)
            job = cast("Job", self.records[Job][key[1]])
            self._held_back[job.namespace, job.queue].discard(place(job))
            self._make_ready(job)
            self._promoted.add(job.job_id)
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
        return self._runs.get(job_id, ())

    def last_run(self, job_id: JobId) -> Run | None:
        """Give the job's newest run, or None."""
        runs = self._runs.get(job_id)
        return runs[-1] if runs else None

    def run_by_token(self, job_id: JobId, token: Token) -> Run | None:
        """Give the job's run that was granted with `token`, or None."""
        return next((run for run in reversed(self.runs(job_id)) if run.token == token), None)

    def successors(self, job_id: JobId) -> Sequence[Job]:
        """Give the jobs whose `retry_of` is this one, oldest first."""
        jobs = [self._job(follower) for follower in self._followers.get(job_id, ())]
        return sorted(jobs, key=lambda job: (job.created_at, job.job_id))

    def granted_by(self, cmd: str) -> Sequence[Job]:
        """Give the RUNNING jobs whose lease was granted by that command, in order of token."""
        jobs = (self._job(key[1]) for key in self._due[Lane.LEASE])
        return sorted((job for job in jobs if job.grant_cmd == cmd), key=lambda job: job.token or 0)

    def local_leases(self) -> Iterator[Job]:
        """Walk the RUNNING jobs whose lease belongs to an opening of the store."""
        jobs = (self._job(key[1]) for key in self._due[Lane.LEASE])
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
        tasks = None if job_types is None else frozenset(job_types)
        found: list[Iterable[PlaceKey]] = []
        for queue in dict.fromkeys(queues):
            line = self._ready.get((namespace, queue))
            if line is not None:
                found.append(line if tasks is None else self._task_lines.walk((namespace, queue), line, tasks))
        keys = found[0] if len(found) == 1 else merge(*found)
        jobs = (self._job(key[3]) for key in keys)
        # While no limit key and no schedule runs at all, every job is free.
        return self._free(jobs) if free and (self._limited or self._running_of) else jobs

    def _free(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Pass on the jobs whose limit key has a place, and that need not wait for another one of their schedule."""
        for job in jobs:
            key = job.limit_key
            if key is not None and len(self._limited.get((job.namespace, key), ())) >= job.key_limit:
                continue
            if job.overlap != Overlap.QUEUE or job.schedule_id not in self._running_of:
                yield job

    def running(self, namespace: str, queue: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a queue."""
        return self._running.get((namespace, queue), ())

    def running_with(self, namespace: str, limit_key: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a namespace that carry a limit key."""
        return self._limited.get((namespace, limit_key), ())

    def running_of(self, schedule_id: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a schedule."""
        return self._running_of.get(schedule_id, ())

    def active_of(self, schedule_id: str) -> JobId | None:
        """Give the QUEUED or RUNNING job of a schedule with the lowest id, or None."""
        active = self._active_of.get(schedule_id)
        return None if active is None else JobId(next(iter(active))[0])

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
        failed = (ids for (_, status), ids in self._by_status.items() if status is JobStatus.FAILED)
        for job_id in sorted(job_id for ids in failed for job_id in ids):
            job = self._job(job_id)
            if job.retry_mode is RetryMode.CHAIN and job.attempts < job.max_attempts:
                heirs = self._followers.get(job_id, ())
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
        key = self._names[kind].get((namespace, name))
        return None if key is None else cast("Named", self.records[kind][key])

    def schedules_of(self, template_id: str) -> Sequence[Schedule]:
        """Give the schedules that make jobs from a template, by id."""
        return [self.records[Schedule][key] for key in sorted(self._users.get(template_id, ()))]

    def starts(
        self, namespace: str, queue: str, limit_key: str | None, after: Timestamp, *, skip: int = 0
    ) -> Iterator[Timestamp]:
        """Walk the starts of a queue that has a rate, after a time."""
        return islice(self._starts.walk(namespace, queue, limit_key, after), skip, None)

    def queued(self, namespace: str, queue: str) -> Sequence[Job]:
        """Give all QUEUED jobs of a queue, delayed ones too, in order."""
        return [self._job(key[3]) for key in merge(*self._lanes(namespace, queue))]

    def _lanes(self, namespace: str, queue: str) -> list[OrderedSet[PlaceKey]]:
        both = (self._ready.get((namespace, queue)), self._held_back.get((namespace, queue)))
        return [keys for keys in both if keys is not None]

    def band(self, namespace: str, queue: str, rank: int) -> Sequence[Job]:
        """Give all QUEUED jobs of one band, delayed ones too, in order."""
        found: list[PlaceKey] = []
        for keys in self._lanes(namespace, queue):
            for key in keys.walk((rank,)):
                if key[0] != rank:
                    break
                found.append(key)
        return [self._job(key[3]) for key in sorted(found)]

    def bands(self, namespace: str, queue: str) -> Sequence[int]:
        """Give the ranks that QUEUED jobs of the queue have, ascending."""
        ranks: set[int] = set()
        for keys in self._lanes(namespace, queue):
            key = next(keys.walk(), None)
            while key is not None:
                ranks.add(key[0])
                key = next(keys.walk((key[0] + 1,)), None)
        return sorted(ranks)

    def edge(self, namespace: str, queue: str, rank: int, *, last: bool) -> int | None:
        """Give the lowest or highest position in the band, delayed jobs included; None if empty."""
        found: list[int] = []
        for keys in self._lanes(namespace, queue):
            key = next(keys.walk((rank + 1,) if last else (rank,), backwards=last), None)
            if key is not None and key[0] == rank:
                found.append(key[1])
        if not found:
            return None
        return max(found) if last else min(found)

    def beside(self, job: Job, *, after: bool) -> Job | None:
        """Give the QUEUED job next before or after this one in its band, delayed jobs included."""
        here = place(job)
        found: list[PlaceKey] = []
        for keys in self._lanes(job.namespace, job.queue):
            walk = keys.walk((*here, ""), backwards=False) if after else keys.walk(here, backwards=True)
            key = next(walk, None)
            if key is not None and key[0] == job.rank:
                found.append(key)
        if not found:
            return None
        return self._job(min(found)[3] if after else max(found)[3])

    def due(self, lane: Lane, until: Timestamp) -> Iterator[Record]:
        """Walk the records of a lane whose time is at or before `until`, earliest first, then by id."""
        table = self.records[_KIND_OF.get(lane, Job)]
        for when, key in self._due[lane].walk():
            if when > until:
                return
            yield table[key]

    def ended_queues(self) -> Sequence[tuple[str, str]]:
        """Give the namespaces and names of queues that have ended jobs, in order."""
        return self._ended.queues()

    def ended(self, namespace: str, queue: str, *, failed: bool, until: Timestamp) -> Iterator[Job]:
        """Walk the ended jobs of a queue, earliest end first."""
        return (self._job(job_id) for job_id in self._ended.walk((namespace, queue, failed), until))

    def ended_beyond(self, namespace: str, queue: str, *, failed: bool, keep: int) -> DueKey | None:
        """Give the end and the id of the newest ended job beyond the `keep` newest, or None."""
        return self._ended.beyond((namespace, queue, failed), keep)

    def next_due(self, lane: Lane) -> Timestamp | None:
        """Give the earliest time of a lane, or None."""
        first = next(self._due[lane].walk(), None)
        return None if first is None else first[0]

    def jobs(self, query: JobQuery) -> Sequence[Job]:
        """Give the matching jobs, newest first."""
        if query.submitted_by is None:
            order = self._created.get(query.namespace)
        else:
            order = self._submitted.get((query.namespace, query.submitted_by))
        if order is None:
            return []
        keys: Iterable[DueKey] = order.walk(query.before or (_BEYOND,), backwards=True)
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
        if status is JobStatus.RUNNING:
            held = [ids for name, ids in self._running.items() if name[0] == namespace]
            return [job_id for ids in held for job_id in ids] if sum(map(len, held)) <= FEW else None
        if status is not JobStatus.QUEUED:
            having = self._by_status.get((namespace, status), set())
            return list(having) if len(having) <= FEW else None
        lanes = [keys for lane in (self._ready, self._held_back) for name, keys in lane.items() if name[0] == namespace]
        return [key[3] for keys in lanes for key in keys] if sum(map(len, lanes)) <= FEW else None

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
        return (key[1] for key in self._created.get(namespace, ()))

    def counts(self) -> Sequence[QueueCount]:
        """Count jobs by namespace, queue and status."""
        return [QueueCount(*name, count) for name, count in sorted(self._counts.items())]

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


#: Lanes of other records than jobs.
_KIND_OF: dict[Lane, type[Record]] = {
    Lane.COMMAND: DoneCommand,
    Lane.KEY: HeldKey,
    Lane.SCHEDULE: Schedule,
    Lane.RESERVATION: Reservation,
    Lane.RESERVED: Reservation,
    Lane.GROUP: Group,
    Lane.DELIVERY: Delivery,
    Lane.DELIVERED: Delivery,
    Lane.TURN: Turn,
    Lane.MAIL: Message,
    Lane.PARKED: Message,
    Lane.ROOT: Instance,
    Lane.AGING: Instance,
    Lane.LEAVING: Instance,
    Lane.AFFINITY: Affinity,
}


def _place_of(orders: dict[N, OrderedSet[K]], name: N) -> OrderedSet[K]:
    """Give the order of that name, making it on first use."""
    found = orders.get(name)
    if found is None:
        found = orders[name] = OrderedSet()
    return found


def _note(sets: dict[N, set[I]], name: N, job_id: I, by: int) -> None:
    """Put an id into the set of that name, or take it out."""
    having = sets.get(name)
    if by > 0:
        if having is None:
            having = sets[name] = set()
        having.add(job_id)
    elif having is not None:
        having.discard(job_id)
        if not having:
            del sets[name]


def _dues(job: Job, *, waits: bool) -> Sequence[tuple[Lane, Timestamp]]:
    """Give the lanes a job stands in, with its time; one that waits for others becomes ready by no time."""
    if job.status is JobStatus.QUEUED:
        if job.not_before is None and job.expires_at is None:
            return ()
        times = ((Lane.DELAYED, None if waits else job.not_before), (Lane.TTL, job.expires_at))
        return [(lane, when) for lane, when in times if when is not None]
    if job.lease_expires_at is not None:
        return ((Lane.LEASE, job.lease_expires_at),)
    return ()
