"""The look-ups about workflow instances, as queries. The meaning is that of `stores.memory.indexes.workflows`."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Any, cast

from holdfast.model.ids import Token
from holdfast.model.jobs import Job
from holdfast.model.times import Timestamp
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.instances import (
    Affinity,
    Execution,
    HistoryRow,
    Instance,
    InstanceStatus,
    KeyValue,
    Message,
    Turn,
    owner_prefix,
)
from holdfast.rules.state import Lane
from holdfast.stores.protocol import FlowTotals, InstanceQuery, MailTotals, StartQuery
from holdfast.stores.sqlite.rows import JOBS, Row, Table
from holdfast.stores.sqlite.statements import SQL
from holdfast.stores.sqlite.workflow_rows import (
    AFFINITIES,
    DECISIONS,
    EXECUTIONS,
    HISTORY,
    INSTANCES,
    KEY_VALUES,
    MESSAGES,
    TURNS,
)

Values = Sequence[Any] | Mapping[str, Any]

#: Above every character an owner goes on with.
_BEYOND = "\U0010ffff"
#: Lane → its table, its records up to a time, and its first time.
FLOW_DUE: dict[Lane, tuple[Table, str, str]] = {
    Lane.TURN: (TURNS, SQL["due_turns"], SQL["next_turn"]),
    Lane.MAIL: (MESSAGES, SQL["due_mail"], SQL["next_mail"]),
    Lane.PARKED: (MESSAGES, SQL["due_parked"], SQL["next_parked"]),
    Lane.ROOT: (INSTANCES, SQL["ended_instances"], SQL["next_ended_instance"]),
    Lane.AGING: (INSTANCES, SQL["aging_instances"], SQL["next_aging_instance"]),
    Lane.LEAVING: (INSTANCES, SQL["leaving_instances"], SQL["next_leaving_instance"]),
    Lane.AFFINITY: (AFFINITIES, SQL["due_affinities"], SQL["next_affinity"]),
}


class FlowLookups(ABC):
    """What a view says about instances. A part of `Lookups`, which has the connection."""

    _db: sqlite3.Connection

    @abstractmethod
    def _settle(self) -> None:
        """Make sure that queries see everything this view contains."""

    @abstractmethod
    def _walk(self, table: Table, sql: str, values: Values, *, reads: type | None = None) -> Iterator[Any]:
        """Give the records of a query one by one; with `reads`, of one that reads no other table than that kind's."""

    @abstractmethod
    def _rows(self, sql: str, values: Values) -> Iterator[Row]:
        """Give the rows of a query one by one."""

    # --- turns ------------------------------------------------------------------------------------------------------

    def turn_by_token(self, token: Token) -> Turn | None:
        """Give the turn with that token, or None."""
        return next(self._walk(TURNS, SQL["turn_by_token"], (token,), reads=Turn), None)

    def local_turns(self) -> Iterator[Turn]:
        """Walk the turns that an opening of the store holds."""
        return self._walk(TURNS, SQL["local_turns"], ())

    def stuck_turns(self) -> Iterator[Turn]:
        """Walk the turns that were given back with a reason and that nobody holds, by instance."""
        return self._walk(TURNS, SQL["stuck_turns"], ())

    # --- messages ---------------------------------------------------------------------------------------------------

    def candidates(self, now: Timestamp) -> Iterator[str]:
        """Walk the instances that can be fetched, by their first message."""
        self._settle()
        heaped = self._db.execute(SQL["is_mail_heaped"], (now,)).fetchone()
        # Walking in order passes over all that were given back and wait: with 5,000 of them that took 2 ms at each try.
        timed = SQL["few_timed_mail"] if heaped is None else SQL["timed_mail"]
        walks = (self._rows(sql, {"now": now}) for sql in (SQL["ready_mail"], timed))
        seen: set[str] = set()
        for _, _, instance_id in merge(*walks):
            if instance_id not in seen:
                seen.add(instance_id)
                yield instance_id

    def visible(self, instance_id: str, now: Timestamp) -> Iterator[Message]:
        """Walk the messages of an instance that nothing holds back, in order."""
        return self._walk(MESSAGES, SQL["visible_mail"], (instance_id, now), reads=Message)

    def mail(self, instance_id: str) -> Sequence[Message]:
        """Give all messages of an instance, by number."""
        return list(self._walk(MESSAGES, SQL["mail"], (instance_id,), reads=Message))

    def beginnings(self, instance_id: str) -> Sequence[Message]:
        """Give the messages of an instance that begin an execution, by number."""
        return list(self._walk(MESSAGES, SQL["beginnings"], (instance_id,), reads=Message))

    def timers(self, instance_id: str, execution_id: int, event_id: int) -> Sequence[Message]:
        """Give the queued timers that an event asked for."""
        return list(self._walk(MESSAGES, SQL["timers"], (instance_id, execution_id, event_id), reads=Message))

    # --- instances --------------------------------------------------------------------------------------------------

    def executions(self, instance_id: str) -> Sequence[Execution]:
        """Give the executions of an instance, ascending."""
        return list(self._walk(EXECUTIONS, SQL["executions_of"], (instance_id,), reads=Execution))

    def children(self, instance_id: str) -> Sequence[str]:
        """Give the instances whose parent this one is, oldest first."""
        return [row[0] for row in self._rows(SQL["children"], (instance_id,))]

    def begun_by(self, schedule_id: str) -> Sequence[str]:
        """Give the instances of a schedule that are not over, or whose start waits to be delivered, by id."""
        return [row[0] for row in self._rows(SQL["begun_by"], {"schedule": schedule_id})]

    def starts_under(self, instance_id: str) -> Sequence[Message]:
        """Give the starts of children that wait to be taken, oldest first."""
        return list(self._walk(MESSAGES, SQL["starts_under"], (instance_id,), reads=Message))

    def held_by(self, schedule_id: str) -> Sequence[Message]:
        """Give the starts of a schedule that wait for others of it, oldest first."""
        return list(self._walk(MESSAGES, SQL["held_by"], (schedule_id,), reads=Message))

    def execution_of(self, history_id: int) -> Execution | None:
        """Give the execution that has a history, or None."""
        return next(self._walk(EXECUTIONS, SQL["execution_of"], (history_id,), reads=Execution), None)

    def history(self, history_id: int, after: int = 0, limit: int | None = None) -> Sequence[HistoryRow]:
        """Give the events of a history with ids above `after`, by id; all, or the first ones."""
        rows = self._rows(SQL["history_of"], (history_id, after, -1 if limit is None else limit))
        return [HISTORY.read(row) for row in rows]

    def keys(self, instance_id: str) -> Sequence[KeyValue]:
        """Give the keys of an instance, by name."""
        return list(self._walk(KEY_VALUES, SQL["keys_of"], (instance_id,), reads=KeyValue))

    def decisions(self, instance_id: str) -> Sequence[Decision]:
        """Give the questions of an instance, by id."""
        return list(self._walk(DECISIONS, SQL["decisions_of"], (instance_id,), reads=Decision))

    def instances(self, query: InstanceQuery) -> Sequence[Instance]:
        """Give the matching instances, newest first."""
        values = {
            "before": query.before or (1 << 63) - 1,
            "name": query.orchestration_name,
            "parent": query.parent,
            "submitted_by": query.submitted_by,
        }
        statuses = list(InstanceStatus) if query.statuses is None else query.statuses
        walks: list[Iterator[Instance]] = [
            self._walk(INSTANCES, SQL["instances_of_status"], {**values, "status": status.value})
            for status in dict.fromkeys(statuses)
        ]
        newest_first = merge(*walks, key=lambda instance: instance.seq, reverse=True)
        return list(islice(newest_first, query.limit))

    def unbegun(self, query: StartQuery) -> Sequence[Message]:
        """Give the first starts of the matching instances that have no record, by id."""
        values = {
            "after": query.after,
            "name": query.orchestration_name,
            "submitted_by": query.submitted_by,
            "limit": -1 if query.limit is None else query.limit,
        }
        return list(self._walk(MESSAGES, SQL["unbegun"], values, reads=Message))

    def flow_totals(self) -> FlowTotals:
        """Count instances, executions and events."""
        self._settle()
        executions, events = self._db.execute(SQL["count_executions"]).fetchone()
        having = {InstanceStatus(status): count for status, count in self._db.execute(SQL["count_instances"])}
        return FlowTotals(instances=having, executions=executions, events=events)

    def mail_totals(self, now: Timestamp) -> MailTotals:
        """Count what waits."""
        self._settle()
        mail, timers, whole, held = self._db.execute(SQL["count_mail"], {"now": now}).fetchone()
        waiting, lost = self._db.execute(SQL["count_activities"], (now,)).fetchone()
        return MailTotals(queued=mail - timers - held, timers=timers, parked=whole - mail, activities=waiting + lost)

    # --- activities and their sessions ------------------------------------------------------------------------------

    def leased(self, token: Token) -> Job | None:
        """Give the RUNNING activity whose lease has that token, or None."""
        return next(self._walk(JOBS, SQL["leased"], (token,), reads=Job), None)

    def activities(self, owner: str) -> Sequence[Job]:
        """Give the jobs of an activity, oldest first."""
        return list(self._walk(JOBS, SQL["activities"], (owner,), reads=Job))

    def activities_of(self, instance_id: str) -> Sequence[Job]:
        """Give the jobs of all activities of an instance, by id."""
        prefix = owner_prefix(instance_id)
        return list(self._walk(JOBS, SQL["activities_of"], (prefix, prefix + _BEYOND)))

    def owned_queues(self) -> Sequence[str]:
        """Give the queues in which activities wait, by name."""
        return [row[0] for row in self._rows(SQL["owned_queues"], ())]

    def affinities(self, owner_ids: Sequence[str]) -> Sequence[Affinity]:
        """Give the sessions of these owners, by name."""
        walks = (self._walk(AFFINITIES, SQL["affinities_of"], (owner,)) for owner in set(owner_ids))
        found = [cast("Affinity", one) for walk in walks for one in walk]
        return sorted(found, key=lambda one: one.session)

    def is_spoken_of(self, session: str) -> bool:
        """Tell whether a QUEUED or RUNNING job belongs to that session."""
        self._settle()
        return self._db.execute(SQL["is_spoken_of"], (session,)).fetchone() is not None
