"""The look-ups of a view, as queries on one connection inside one transaction.

The meaning is that of `stores.memory.tables`. Reading only. A batch builds on it: it writes what is pending before a
query looks, and gives back the records it knows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice, takewhile
from typing import Any, TypeVar, cast

import msgspec

from holdfast.model.groups import Group
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.records import Authority, Key, Record
from holdfast.model.reservations import Reservation
from holdfast.model.schedules import Schedule
from holdfast.model.templates import Template
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import Delivery, Webhook
from holdfast.rules.jobs.dispatch_order import place
from holdfast.rules.state import Lane
from holdfast.stores.feed_errors import forgotten
from holdfast.stores.protocol import DeliveryQuery, Entry, GroupQuery, JobQuery, QueueCount
from holdfast.stores.sqlite.plain_rows import DELIVERIES, GROUPS, RESERVATIONS, WEBHOOKS
from holdfast.stores.sqlite.ready_rows import ReadyRows
from holdfast.stores.sqlite.record_tables import BY_KIND
from holdfast.stores.sqlite.rows import COMMANDS, HELD_KEYS, JOBS, RUNS, SCHEDULES, Meta, Row, Table
from holdfast.stores.sqlite.statements import SQL
from holdfast.stores.sqlite.workflow_lookups import FLOW_DUE, FlowLookups

R = TypeVar("R", bound=Record)
N = TypeVar("N", Template, Schedule)
Values = Sequence[Any] | Mapping[str, Any]

#: Later than every time and below no id.
_BEYOND = "\U0010ffff"
#: Ids that are passed one by one, whosever they are, before those of some namespaces are looked for in an index.
LOOKED_AT = 1000
#: Lane → its table, its records up to a time, and its first time.
DUE: dict[Lane, tuple[Table, str, str]] = {
    Lane.LEASE: (JOBS, SQL["due_leases"], SQL["next_lease"]),
    Lane.TTL: (JOBS, SQL["due_ttl"], SQL["next_ttl"]),
    Lane.DELAYED: (JOBS, SQL["due_delayed"], SQL["next_delayed"]),
    Lane.COMMAND: (COMMANDS, SQL["due_commands"], SQL["next_command"]),
    Lane.KEY: (HELD_KEYS, SQL["due_keys"], SQL["next_key"]),
    Lane.SCHEDULE: (SCHEDULES, SQL["due_schedules"], SQL["next_schedule"]),
    Lane.RESERVATION: (RESERVATIONS, SQL["due_reservations"], SQL["next_reservation"]),
    Lane.RESERVED: (RESERVATIONS, SQL["ended_reservations"], SQL["next_ended_reservation"]),
    Lane.GROUP: (GROUPS, SQL["ended_groups"], SQL["next_ended_group"]),
    Lane.DELIVERY: (DELIVERIES, SQL["due_deliveries"], SQL["next_delivery"]),
    Lane.DELIVERED: (DELIVERIES, SQL["ended_deliveries"], SQL["next_ended_delivery"]),
    **FLOW_DUE,
}
#: The first time of every lane, in one row: a query costs more than what it reads.
_ALL_DUE = f"SELECT {', '.join(f'({first})' for _, _, first in DUE.values())}"


class Lookups(FlowLookups):
    """One consistent state of the store."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        #: Walks that were begun and not finished; an open one would keep its transaction from ending.
        self._walks: set[sqlite3.Cursor] = set()
        #: What was read of this state already.
        self._seen: Meta | None = None
        self._dues: dict[Lane, Timestamp | None] | None = None

    def finish(self) -> None:
        """End every walk."""
        while self._walks:
            self._walks.pop().close()

    # --- what a batch does differently ------------------------------------------------------------------------------

    def _settle(self, kind: type | None = None) -> None:
        """Make sure that queries see everything this view contains; or, of one kind of records, queries of these."""

    def _resolve(self, table: Table, row: Row) -> Any:
        """Give the record of a row."""
        return table.read(row)

    @property
    def _meta(self) -> Meta:
        """The store's own row; one state has one."""
        if self._seen is None:
            self._seen = Meta(*self._db.execute(SQL["meta"]).fetchone())
        return self._seen

    # --- by key -----------------------------------------------------------------------------------------------------

    def get(self, kind: type[R], key: Key) -> R | None:
        """Give the record of that key, or None."""
        if kind is Authority:
            return cast("R | None", self._meta.authority)
        table = BY_KIND[kind]
        row = self._db.execute(table.get, table.key(key)).fetchone()
        return None if row is None else cast("R", table.read(row))

    def all(self, kind: type[R]) -> Iterator[R]:
        """Walk every record of a table, in the order of its key."""
        if kind is Authority:
            authority = self.get(kind, "")
            return iter(() if authority is None else (authority,))
        table = BY_KIND[kind]
        return self._walk(table, table.all, ())

    @property
    def seq(self) -> int:
        """Number of the last event this state contains."""
        return self._meta.seq

    @property
    def ts(self) -> Timestamp:
        """Time of the last event this state contains."""
        return Timestamp(self._meta.ts)

    def entries(self, after: int, last: int, limit: int) -> list[Entry]:
        """Give up to `limit` events with numbers above `after`, up to `last`. Raises InvalidValue if some are gone."""
        trimmed = self._meta.trimmed_seq
        if after < trimmed:
            raise forgotten(trimmed)
        rows = self._db.execute(SQL["events_after"], (after, last, limit))
        return [Entry(seq, ts, msgspec.Raw(event)) for seq, ts, event in rows]

    # --- runs and relatives -----------------------------------------------------------------------------------------

    def runs(self, job_id: JobId) -> Sequence[Run]:
        """Give the job's runs, oldest first."""
        return tuple(self._walk(RUNS, SQL["runs_of_job"], (job_id,)))

    def last_run(self, job_id: JobId) -> Run | None:
        """Give the job's newest run, or None."""
        runs = self.runs(job_id)
        return runs[-1] if runs else None

    def run_by_token(self, job_id: JobId, token: Token) -> Run | None:
        """Give the job's run that was granted with `token`, or None."""
        return next((run for run in reversed(self.runs(job_id)) if run.token == token), None)

    def successors(self, job_id: JobId) -> Sequence[Job]:
        """Give the jobs whose `retry_of` is this one, oldest first."""
        return list(self._walk(JOBS, SQL["successors"], (job_id,)))

    def granted_by(self, cmd: str) -> Sequence[Job]:
        """Give the RUNNING jobs whose lease was granted by that command, in order of token."""
        return list(self._walk(JOBS, SQL["granted_by"], (cmd,)))

    def local_leases(self) -> Iterator[Job]:
        """Walk the RUNNING jobs whose lease belongs to an opening of the store."""
        return self._walk(JOBS, SQL["local_leases"], ())

    # --- the order of dispatch --------------------------------------------------------------------------------------

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
        walks: list[Iterator[Job]] = []
        for queue in dict.fromkeys(queues):
            line = ReadyRows(self._rows, namespace, queue, free=free)
            walks.append(self._jobs(line.all() if tasks is None else line.of(tasks)))
        return walks[0] if len(walks) == 1 else merge(*walks, key=place)

    def _jobs(self, rows: Iterator[Row]) -> Iterator[Job]:
        return (self._resolve(JOBS, row) for row in rows)

    def running(self, namespace: str, queue: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a queue."""
        return {row[0] for row in self._db.execute(SQL["running"], (namespace, queue))}

    def running_with(self, namespace: str, limit_key: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a namespace that carry a limit key."""
        return {row[0] for row in self._db.execute(SQL["running_with"], (namespace, limit_key))}

    def running_of(self, schedule_id: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a schedule."""
        self._settle()
        return {row[0] for row in self._db.execute(SQL["running_of"], (schedule_id,))}

    def active_of(self, schedule_id: str) -> JobId | None:
        """Give the QUEUED or RUNNING job of a schedule with the lowest id, or None."""
        self._settle()
        return cast("JobId | None", self._db.execute(SQL["active_of"], (schedule_id,)).fetchone()[0])

    def reservation(self, namespace: str, queue: str) -> Reservation | None:
        """Give the ACTIVE reservation of a queue, expired or not, or None."""
        return next(self._walk(RESERVATIONS, SQL["active_reservation"], (namespace, queue)), None)

    def direct(self, namespace: str, queue: str) -> JobId | None:
        """Give the RUNNING direct job of a queue, or None."""
        self._settle()
        row = self._db.execute(SQL["direct"], (namespace, queue)).fetchone()
        return None if row is None else cast("JobId", row[0])

    def members(self, group_id: str, status: JobStatus | None = None) -> Sequence[Job]:
        """Give the members of a group in order; of one status, or all."""
        values = {"group_id": group_id, "status": None if status is None else status.value}
        return list(self._walk(JOBS, SQL["members"], values))

    def turn_of(self, group_id: str) -> Job | None:
        """Give the active member of a group that has the lowest number, or None."""
        return next(self._walk(JOBS, SQL["turn_of"], (group_id,)), None)

    def unfollowed(self) -> Iterator[Job]:
        """Walk the FAILED jobs of chains that have attempts left and no automatic successor, by id."""
        return self._walk(JOBS, SQL["unfollowed"], ())

    def live_groups(self) -> Iterator[Group]:
        """Walk the groups that have members and have not ended, by id."""
        return self._walk(GROUPS, SQL["live_groups"], ())

    def webhooks(self, namespace: str) -> Sequence[Webhook]:
        """Give the enabled webhooks of a namespace, by id."""
        return list(self._walk(WEBHOOKS, SQL["enabled_webhooks"], (namespace,)))

    def by_name(self, kind: type[N], namespace: str, name: str) -> N | None:
        """Give the template or schedule of that name, or None."""
        sql = SQL["schedule_by_name"] if kind is Schedule else SQL["template_by_name"]
        return cast("N | None", next(self._walk(BY_KIND[kind], sql, (namespace, name)), None))

    def schedules_of(self, template_id: str) -> Sequence[Schedule]:
        """Give the schedules that make jobs from a template, by id."""
        return list(self._walk(SCHEDULES, SQL["schedules_of"], (template_id,)))

    def starts(
        self, namespace: str, queue: str, limit_key: str | None, after: Timestamp, *, skip: int = 0
    ) -> Iterator[Timestamp]:
        """Walk the starts of a queue after a time."""
        if limit_key is None:
            rows = self._rows(SQL["starts"], (namespace, queue, after, skip))
        else:
            rows = self._rows(SQL["starts_with"], (namespace, queue, limit_key, after, skip))
        return (row[0] for row in rows)

    def queued(self, namespace: str, queue: str) -> Sequence[Job]:
        """Give all QUEUED jobs of a queue, delayed ones too, in order."""
        return list(self._walk(JOBS, SQL["queued"], {"namespace": namespace, "queue": queue}))

    def band(self, namespace: str, queue: str, rank: int) -> Sequence[Job]:
        """Give all QUEUED jobs of one band, delayed ones too, in order."""
        return list(self._walk(JOBS, SQL["band"], {"namespace": namespace, "queue": queue, "rank": rank}))

    def bands(self, namespace: str, queue: str) -> Sequence[int]:
        """Give the ranks that QUEUED jobs of the queue have, ascending."""
        self._settle()
        ranks: list[int] = []
        rank: int | None = -(1 << 62)
        while True:
            values = {"namespace": namespace, "queue": queue, "rank": rank}
            rank = self._db.execute(SQL["next_band"], values).fetchone()[0]
            if rank is None:
                return ranks
            ranks.append(rank)

    def edge(self, namespace: str, queue: str, rank: int, *, last: bool) -> int | None:
        """Give the lowest or highest position in the band, delayed jobs included; None if empty."""
        self._settle()
        sql = SQL["highest_position"] if last else SQL["lowest_position"]
        values = {"namespace": namespace, "queue": queue, "rank": rank}
        return cast("int | None", self._db.execute(sql, values).fetchone()[0])

    def beside(self, job: Job, *, after: bool) -> Job | None:
        """Give the QUEUED job next before or after this one in its band, delayed jobs included."""
        values = {
            "namespace": job.namespace,
            "queue": job.queue,
            "rank": job.rank,
            "position": job.position,
            "created_at": job.created_at,
            "job_id": job.job_id,
        }
        return next(self._walk(JOBS, SQL["job_after"] if after else SQL["job_before"], values), None)

    # --- what is due ------------------------------------------------------------------------------------------------

    def due(self, lane: Lane, until: Timestamp) -> Iterator[Record]:
        """Walk the records of a lane whose time is at or before `until`, earliest first, then by id."""
        table, sql, _ = DUE[lane]
        return self._walk(table, sql, (until,))

    def next_due(self, lane: Lane) -> Timestamp | None:
        """Give the earliest time of a lane, or None. Whoever asks for one asks for others: all are read at once."""
        if self._dues is None:
            self._dues = dict(zip(DUE, self._db.execute(_ALL_DUE).fetchone(), strict=True))
        return self._dues[lane]

    def ended_queues(self) -> Sequence[tuple[str, str]]:
        """Give the namespaces and names of queues that have ended jobs, in order."""
        self._settle()
        found: list[tuple[str, str]] = []
        at = ("", "")
        while (row := self._db.execute(SQL["next_ended_queue"], at).fetchone()) is not None:
            at = (row[0], row[1])
            found.append(at)
        return found

    def ended(self, namespace: str, queue: str, *, failed: bool, until: Timestamp) -> Iterator[Job]:
        """Walk the ended jobs of a queue, earliest end first."""
        sql = SQL["ended_failed"] if failed else SQL["ended_done"]
        return self._walk(JOBS, sql, (namespace, queue, until))

    def ended_beyond(self, namespace: str, queue: str, *, failed: bool, keep: int) -> tuple[Timestamp, str] | None:
        """Give the end and the id of the newest ended job beyond the `keep` newest, or None."""
        self._settle()
        sql = SQL["failed_beyond"] if failed else SQL["done_beyond"]
        return cast("tuple[Timestamp, str] | None", self._db.execute(sql, (namespace, queue, keep)).fetchone())

    # --- what people ask for ----------------------------------------------------------------------------------------

    def jobs(self, query: JobQuery) -> Sequence[Job]:
        """Give the matching jobs, newest first."""
        created_at, job_id = query.before or (_BEYOND, "")
        values = {
            "namespace": query.namespace,
            "created_at": created_at,
            "job_id": job_id,
            "queue": query.queue,
            "job_type": query.job_type,
            "submitted_by": query.submitted_by,
            "limit": query.limit,
        }
        statuses = list(JobStatus) if query.status is None else [query.status]
        walks: list[Iterator[Job]] = [
            self._walk(JOBS, SQL["jobs_of_status"], {**values, "status": status.value}) for status in statuses
        ]
        newest_first = merge(*walks, key=lambda job: (job.created_at, job.job_id), reverse=True)
        return list(islice(newest_first, query.limit))

    def deliveries(self, query: DeliveryQuery) -> Sequence[Delivery]:
        """Give the matching deliveries of a webhook, newest first."""
        status = None if query.status is None else query.status.value
        values = {"webhook_id": query.webhook_id, "status": status, "limit": query.limit}
        return list(self._walk(DELIVERIES, SQL["deliveries_of"], values))

    def groups(self, query: GroupQuery) -> Sequence[Group]:
        """Give the matching groups, newest first."""
        created_at, group_id = query.before or (_BEYOND, "")
        values = {
            "namespace": query.namespace,
            "created_at": created_at,
            "group_id": group_id,
            "status": None if query.status is None else query.status.value,
            "limit": query.limit,
        }
        return list(self._walk(GROUPS, SQL["groups_of_namespace"], values))

    def ids_with_prefix(
        self, prefix: str, limit: int, kind: type[Job | Group] = Job, namespaces: Sequence[str] | None = None
    ) -> Sequence[str]:
        """Give the first `limit` ids of jobs, or groups, of these namespaces that begin with `prefix`, in order."""
        self._settle()
        sql = SQL["ids_from"] if kind is Job else SQL["group_ids_from"]
        most = limit if namespaces is None else LOOKED_AT
        rows = self._db.execute(sql, (prefix, most)).fetchall()
        beginning = list(takewhile(lambda row: row[0].startswith(prefix), rows))
        if namespaces is None:
            return [one for one, _ in beginning]
        if len(beginning) < most:
            return [one for one, namespace in beginning if namespace in namespaces][:limit]
        # So many begin so that looking through those of their own namespaces costs less than passing all others.
        sql = SQL["ids_within"] if kind is Job else SQL["group_ids_within"]
        values = ({"namespace": one, "prefix": prefix, "limit": limit} for one in dict.fromkeys(namespaces))
        return sorted(row[0] for one in values for row in self._db.execute(sql, one))[:limit]

    def counts(self) -> Sequence[QueueCount]:
        """Count jobs by namespace, queue and status."""
        self._settle()
        rows = self._db.execute(SQL["counts"])
        return [QueueCount(namespace, queue, JobStatus(status), count) for namespace, queue, status, count in rows]

    def _walk(self, table: Table, sql: str, values: Values, *, reads: type | None = None) -> Iterator[Any]:
        """Give the records of a query one by one; with `reads`, of one that reads no other table than that kind's."""
        for row in self._rows(sql, values, reads):
            yield self._resolve(table, row)

    def _rows(self, sql: str, values: Values, reads: type | None = None) -> Generator[Row, None, None]:
        """Give the rows of a query one by one; what is not asked for is not read."""
        self._settle(reads)
        cursor = self._db.execute(sql, values)
        self._walks.add(cursor)
        try:
            for row in cursor:  # noqa: UP028 - `yield from` would close the cursor itself, and complain as below
                yield row
        finally:
            self._walks.discard(cursor)
            with suppress(sqlite3.ProgrammingError):  # a walk that is left half way may outlive its connection
                cursor.close()
