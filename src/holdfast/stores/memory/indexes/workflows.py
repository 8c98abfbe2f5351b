"""Indexes in memory of workflow instances: what came in for whom, who holds what, which history belongs where.

The part of `stores.memory.tables` that knows of instances: only the orders they can be asked in. An instance stands in
the line of those that can be fetched with its first message alone, so that it is found, taken out and put back at the
same cost with one message waiting as with a hundred thousand.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.times import Timestamp
from holdfast.model.workflows.decisions import Decision
from holdfast.model.workflows.instances import (
    OVER,
    Affinity,
    Execution,
    HistoryRow,
    Instance,
    KeyValue,
    Message,
    Turn,
    message_key,
    owner_prefix,
)
from holdfast.rules.state import Lane
from holdfast.stores.memory.indexes.sorted_set import OrderedSet, TimeKey
from holdfast.stores.protocol import FlowTotals, InstanceQuery, MailTotals, StartQuery

K = TypeVar("K")
V = TypeVar("V")
#: The place of a message.
Place = tuple[Timestamp, int]


class _Mailbox:
    """The messages of one instance."""

    __slots__ = ("all", "begins", "starts", "visible")

    def __init__(self) -> None:
        self.all: dict[int, Message] = {}
        #: Those of them that begin an execution.
        self.begins: dict[int, Message] = {}
        #: Those that nothing holds back, in order; and how many of them begin an execution.
        self.visible: list[Place] = []
        self.starts = 0


class Flowlines:
    """Who has mail, who is at work on it, and what they remember."""

    def __init__(self, due: Mapping[Lane, OrderedSet[TimeKey]]) -> None:
        self._due = due
        self._mail: dict[str, _Mailbox] = {}
        #: The first visible message of each instance that can be fetched, and where each stands.
        self._line: OrderedSet[tuple[Timestamp, int, str]] = OrderedSet()
        self._heads: dict[str, Place] = {}
        #: Messages whose time was seen to have come.
        self._shown: set[int] = set()
        self._timers: dict[tuple[str, int, int], set[int]] = {}
        self._turns: dict[str, Turn] = {}
        self._by_token: dict[Token, str] = {}
        self._instances: dict[str, Instance] = {}
        #: All of them, oldest first.
        self._by_age: OrderedSet[tuple[int, str]] = OrderedSet()
        #: The same of those that an access token started, by its name.
        self._started_by: dict[str, OrderedSet[tuple[int, str]]] = {}
        self._children: dict[str, dict[str, Instance]] = {}
        #: Schedule → its instances that are not over; its starts that wait to be delivered; those that wait for others.
        self._of_schedule: dict[str, dict[str, Instance]] = {}
        self._starts_of: dict[str, dict[int, Message]] = {}
        self._held_of: dict[str, dict[int, Message]] = {}
        self._executions: dict[str, dict[int, Execution]] = {}
        #: History → the instance and the number of the execution that has it.
        self._of_history: dict[int, tuple[str, int]] = {}
        self._histories: dict[int, list[HistoryRow]] = {}
        #: Histories whose execution was removed in the batch under way.
        self._orphans: set[int] = set()
        self._keys: dict[str, dict[str, KeyValue]] = {}
        self._decisions: dict[str, dict[str, Decision]] = {}
        self._affinities: dict[str, dict[str, Affinity]] = {}
        #: Of jobs that are activities: by token while RUNNING, by owner, by instance; and how many wait where.
        self._leased: dict[Token, Job] = {}
        self._owned: dict[str, dict[JobId, Job]] = {}
        self._jobs_of: dict[str, dict[JobId, Job]] = {}
        self._activities_waiting: dict[str, int] = {}
        #: Starts of children that wait to be taken, by parent.
        self._starts_under: dict[str, dict[int, Message]] = {}
        #: Session of a worker → its QUEUED and RUNNING jobs.
        self._sessions: dict[str, int] = {}

    # --- messages ---------------------------------------------------------------------------------------------------

    def _reindex_message(self, before: Message | None, after: Message | None) -> None:
        """Follow a message."""
        message = after or before
        assert message is not None
        box = self._mail.get(message.instance_id)
        if box is None:
            box = self._mail[message.instance_id] = _Mailbox()
        if before is not None:
            self._unfile(box, before)
        if after is not None:
            self._file(box, after)
        if not box.all:
            del self._mail[message.instance_id]
        self._line_up(message.instance_id)

    def _file(self, box: _Mailbox, message: Message) -> None:
        box.all[message.seq] = message
        if message.is_start:
            box.begins[message.seq] = message
            if message.parent_instance_id is not None:
                self._starts_under.setdefault(message.parent_instance_id, {})[message.seq] = message
        if message.schedule_id is not None and message.is_to_begin:
            of = self._starts_of if message.parked is None else self._held_of
            of.setdefault(message.schedule_id, {})[message.seq] = message
        if message.execution_id is not None and message.event_id is not None:
            asked = (message.instance_id, message.execution_id, message.event_id)
            self._timers.setdefault(asked, set()).add(message.seq)
        if message.parked is not None:
            if message.drop_at is not None:
                self._due[Lane.PARKED].add((message.drop_at, message_key(message.seq)))
        elif message.visible_at is not None:
            self._due[Lane.MAIL].add((message.visible_at, message_key(message.seq)))
        else:
            _show(box, message)

    def _unfile(self, box: _Mailbox, message: Message) -> None:
        del box.all[message.seq]
        box.begins.pop(message.seq, None)
        if message.is_start and message.parent_instance_id is not None:
            _drop(self._starts_under, message.parent_instance_id, message.seq)
        if message.schedule_id is not None and message.is_to_begin:
            _drop(self._starts_of if message.parked is None else self._held_of, message.schedule_id, message.seq)
        if message.execution_id is not None and message.event_id is not None:
            asked = (message.instance_id, message.execution_id, message.event_id)
            self._timers[asked].discard(message.seq)
            if not self._timers[asked]:
                del self._timers[asked]
        if message.parked is not None:
            if message.drop_at is not None:
                self._due[Lane.PARKED].discard((message.drop_at, message_key(message.seq)))
            return
        if message.visible_at is not None:
            self._due[Lane.MAIL].discard((message.visible_at, message_key(message.seq)))
            if message.seq not in self._shown:
                return
            self._shown.discard(message.seq)
        del box.visible[bisect_left(box.visible, (message.due_at, message.seq))]
        box.starts -= message.is_start

    def _deliver(self, now: Timestamp, limit: int, messages: Mapping[str, Message]) -> None:
        """Let up to `limit` messages be delivered whose time has come."""
        for when, key in list(islice(self._due[Lane.MAIL].walk(), limit)):
            if when > now:
                return
            self._due[Lane.MAIL].discard((when, key))
            message = messages[key]
            self._shown.add(message.seq)
            _show(self._mail[message.instance_id], message)
            self._line_up(message.instance_id)

    def _line_up(self, instance_id: str) -> None:
        """Put an instance where it belongs in the line, or take it out."""
        box = self._mail.get(instance_id)
        turn = self._turns.get(instance_id)
        held = turn is not None and turn.locked_until is not None
        head: Place | None = None
        if box is not None and box.visible and not held and (box.starts or instance_id in self._instances):
            head = box.visible[0]
        before = self._heads.get(instance_id)
        if before == head:
            return
        if before is not None:
            self._line.discard((*before, instance_id))
            del self._heads[instance_id]
        if head is not None:
            self._line.add((*head, instance_id))
            self._heads[instance_id] = head

    def candidates(self, now: Timestamp) -> Iterator[str]:
        """Walk the instances that can be fetched, by their first message."""
        del now  # what is due has been let through
        return (key[2] for key in self._line)

    def visible(self, instance_id: str, now: Timestamp) -> Iterator[Message]:
        """Walk the messages of an instance that nothing holds back, in order."""
        del now  # what is due has been let through
        box = self._mail.get(instance_id)
        return iter(()) if box is None else (box.all[seq] for _, seq in box.visible)

    def mail(self, instance_id: str) -> Sequence[Message]:
        """Give all messages of an instance, by number."""
        box = self._mail.get(instance_id)
        return [] if box is None else [box.all[seq] for seq in sorted(box.all)]

    def beginnings(self, instance_id: str) -> Sequence[Message]:
        """Give the messages of an instance that begin an execution, by number."""
        box = self._mail.get(instance_id)
        return [] if box is None else [box.begins[seq] for seq in sorted(box.begins)]

    def timers(self, instance_id: str, execution_id: int, event_id: int) -> Sequence[Message]:
        """Give the queued timers that an event asked for: one, unless it was sent twice."""
        found = self._timers.get((instance_id, execution_id, event_id), ())
        return [self._mail[instance_id].all[seq] for seq in sorted(found)]

    # --- turns ------------------------------------------------------------------------------------------------------

    def _reindex_turn(self, before: Turn | None, after: Turn | None) -> None:
        """Follow a turn."""
        if before is not None:
            self._turns.pop(before.instance_id, None)
            if before.token is not None:
                self._by_token.pop(before.token, None)
            if before.locked_until is not None:
                self._due[Lane.TURN].discard((before.locked_until, before.instance_id))
        if after is not None:
            self._turns[after.instance_id] = after
            if after.token is not None:
                self._by_token[after.token] = after.instance_id
            if after.locked_until is not None:
                self._due[Lane.TURN].add((after.locked_until, after.instance_id))
        turn = after or before
        assert turn is not None
        self._line_up(turn.instance_id)

    def turn_by_token(self, token: Token) -> Turn | None:
        """Give the turn with that token, or None."""
        instance_id = self._by_token.get(token)
        return None if instance_id is None else self._turns[instance_id]

    def local_turns(self) -> Iterator[Turn]:
        """Walk the turns that an opening of the store holds."""
        held = (self._turns[key] for _, key in self._due[Lane.TURN])
        return (turn for turn in held if turn.session_id is not None)

    def stuck_turns(self) -> Iterator[Turn]:
        """Walk the turns that were given back with a reason and that nobody holds, by instance."""
        stuck = (turn for turn in self._turns.values() if turn.reason is not None and turn.locked_until is None)
        return iter(sorted(stuck, key=lambda turn: turn.instance_id))

    # --- instances --------------------------------------------------------------------------------------------------

    def _reindex_instance(self, before: Instance | None, after: Instance | None) -> None:
        """Follow an instance."""
        if before is not None and after is not None and before.completed_at is None and after.completed_at is None:
            # It goes on, as after most turns: all that it is found by stays.
            self._instances[after.instance_id] = after
            if after.parent_instance_id is not None:
                self._children[after.parent_instance_id][after.instance_id] = after
            if after.schedule_id is not None:
                self._of_schedule[after.schedule_id][after.instance_id] = after
            return
        if before is not None:
            del self._instances[before.instance_id]
            if before.parent_instance_id is not None:
                _drop(self._children, before.parent_instance_id, before.instance_id)
            for lane, when in _ends(before):
                self._due[lane].discard((when, before.instance_id))
            if before.schedule_id is not None and before.completed_at is None:
                _drop(self._of_schedule, before.schedule_id, before.instance_id)
        if after is not None:
            self._instances[after.instance_id] = after
            if after.parent_instance_id is not None:
                self._children.setdefault(after.parent_instance_id, {})[after.instance_id] = after
            for lane, when in _ends(after):
                self._due[lane].add((when, after.instance_id))
            if after.schedule_id is not None and after.completed_at is None:
                self._of_schedule.setdefault(after.schedule_id, {})[after.instance_id] = after
        if before is None and after is not None:
            self._by_age.add((after.seq, after.instance_id))
            if after.submitted_by is not None:
                self._started_by.setdefault(after.submitted_by, OrderedSet()).add((after.seq, after.instance_id))
            self._line_up(after.instance_id)
        elif after is None and before is not None:
            self._by_age.discard((before.seq, before.instance_id))
            if before.submitted_by is not None:
                self._started_by[before.submitted_by].discard((before.seq, before.instance_id))
            self._line_up(before.instance_id)

    def instances(self, query: InstanceQuery) -> Sequence[Instance]:
        """Give the matching instances, newest first."""
        order = self._by_age if query.submitted_by is None else self._started_by.get(query.submitted_by, OrderedSet())
        newest = order.walk((query.before or 1 << 63,), backwards=True)
        found = (self._instances[key[1]] for key in newest)
        wanted = (
            instance
            for instance in found
            if (query.statuses is None or instance.status in query.statuses)
            and query.orchestration_name in (None, instance.orchestration_name)
            and query.parent in (None, instance.parent_instance_id)
        )
        return list(islice(wanted, query.limit))

    def unbegun(self, query: StartQuery) -> Sequence[Message]:
        """Give the first starts of the matching instances that have no record, by id."""
        waiting = sorted(
            one for one, box in self._mail.items() if box.begins and one > query.after and one not in self._instances
        )
        starts = (next((start for start in self.beginnings(one) if start.is_to_begin), None) for one in waiting)
        wanted = (
            start
            for start in starts
            if start is not None
            and query.orchestration_name in (None, start.orchestration)
            and query.submitted_by in (None, start.submitted_by)
        )
        return list(islice(wanted, query.limit))

    def flow_totals(self) -> FlowTotals:
        """Count instances, executions and events."""
        having = [execution for found in self._executions.values() for execution in found.values()]
        return FlowTotals(
            instances=dict(Counter(instance.status for instance in self._instances.values())),
            executions=len(having),
            events=sum(execution.event_count for execution in having),
        )

    def mail_totals(self, now: Timestamp) -> MailTotals:
        """Count what waits: messages, timers that are not due, parked ones, activities."""
        queued = timers = parked = 0
        for name, box in self._mail.items():
            turn = self._turns.get(name)
            live = turn is not None and turn.locked_until is not None and turn.locked_until > now
            held = set(turn.messages) if live and turn is not None else set()
            for message in box.all.values():
                if message.parked is not None:
                    parked += 1
                elif message.seq in held:
                    continue
                elif message.event_id is not None and message.visible_at is not None and message.visible_at > now:
                    timers += 1
                else:
                    queued += 1
        lapsed = (job for job in self._leased.values() if (job.lease_expires_at or now) <= now)
        activities = sum(self._activities_waiting.values()) + sum(1 for _ in lapsed)
        return MailTotals(queued=queued, timers=timers, parked=parked, activities=activities)

    def children(self, instance_id: str) -> Sequence[str]:
        """Give the instances whose parent this one is, oldest first."""
        found = self._children.get(instance_id, {}).values()
        return [child.instance_id for child in sorted(found, key=lambda child: child.seq)]

    def begun_by(self, schedule_id: str) -> Sequence[str]:
        """Give the instances of a schedule that are not over, or whose start waits to be delivered, by id."""
        starts = self._starts_of.get(schedule_id, {}).values()
        return sorted({*self._of_schedule.get(schedule_id, ()), *(start.instance_id for start in starts)})

    def starts_under(self, instance_id: str) -> Sequence[Message]:
        """Give the starts of children that wait to be taken, oldest first."""
        found = self._starts_under.get(instance_id, {})
        return [found[seq] for seq in sorted(found)]

    def held_by(self, schedule_id: str) -> Sequence[Message]:
        """Give the starts of a schedule that wait for others of it, oldest first."""
        found = self._held_of.get(schedule_id, {})
        return [found[seq] for seq in sorted(found)]

    def _reindex_execution(self, before: Execution | None, after: Execution | None) -> None:
        """Follow an execution; its history goes with it, when the batch is over."""
        if before is not None and after is not None:
            self._executions[after.instance_id][after.execution_id] = after
            return
        if before is not None:
            _drop(self._executions, before.instance_id, before.execution_id)
            del self._of_history[before.history_id]
            if before.history_id in self._histories:
                self._orphans.add(before.history_id)
        if after is not None:
            self._executions.setdefault(after.instance_id, {})[after.execution_id] = after
            self._of_history[after.history_id] = after.instance_id, after.execution_id
            self._orphans.discard(after.history_id)

    def execution_of(self, history_id: int) -> Execution | None:
        """Give the execution that has a history, or None."""
        instance_id, number = self._of_history.get(history_id, ("", 0))
        return self._executions.get(instance_id, {}).get(number)

    def executions(self, instance_id: str) -> Sequence[Execution]:
        """Give the executions of an instance, ascending."""
        found = self._executions.get(instance_id, {})
        return [found[number] for number in sorted(found)]

    # --- histories --------------------------------------------------------------------------------------------------

    def _reindex_row(self, before: HistoryRow | None, after: HistoryRow | None) -> None:
        """Follow a row of a history: nearly always a new one behind the last."""
        row = after or before
        assert row is not None
        rows = self._histories.setdefault(row.history_id, [])
        if before is not None:
            del rows[bisect_left(rows, before.event_id, key=_event_id)]
        if after is not None:
            if rows and rows[-1].event_id > after.event_id:
                insort(rows, after, key=_event_id)
            else:
                rows.append(after)
        if not rows:
            del self._histories[row.history_id]

    def history(self, history_id: int, after: int = 0, limit: int | None = None) -> Sequence[HistoryRow]:
        """Give the events of a history with ids above `after`, by id; all, or the first ones."""
        rows = self._histories.get(history_id, [])
        first = bisect_left(rows, after + 1, key=_event_id)
        return rows[first:] if limit is None else rows[first : first + limit]

    def _orphaned(self) -> list[HistoryRow]:
        """Give the rows whose execution is gone for good, and forget which they are."""
        if not self._orphans:
            return []
        rows = [row for history_id in self._orphans for row in self._histories.pop(history_id, ())]
        self._orphans.clear()
        return rows

    # --- what instances remember ------------------------------------------------------------------------------------

    def _reindex_key_value(self, before: KeyValue | None, after: KeyValue | None) -> None:
        """Follow a key of an instance."""
        if after is not None:
            self._keys.setdefault(after.instance_id, {})[after.key] = after
        elif before is not None:
            _drop(self._keys, before.instance_id, before.key)

    def keys(self, instance_id: str) -> Sequence[KeyValue]:
        """Give the keys of an instance, by name."""
        found = self._keys.get(instance_id, {})
        return [found[key] for key in sorted(found)]

    def _reindex_decision(self, before: Decision | None, after: Decision | None) -> None:
        """Follow a question."""
        if after is not None:
            self._decisions.setdefault(after.instance_id, {})[after.decision_id] = after
        elif before is not None:
            _drop(self._decisions, before.instance_id, before.decision_id)

    def decisions(self, instance_id: str) -> Sequence[Decision]:
        """Give the questions of an instance, by id."""
        found = self._decisions.get(instance_id, {})
        return [found[key] for key in sorted(found)]

    # --- activities -------------------------------------------------------------------------------------------------

    def _reindex_activity(self, before: Job | None, after: Job | None) -> None:
        """Follow a job that is an activity, or goes to one worker; others cost two looks."""
        for job, by in ((before, -1), (after, 1)):
            if job is None:
                continue
            active = job.status in (JobStatus.QUEUED, JobStatus.RUNNING)
            if job.affinity is not None and active:
                _count(self._sessions, job.affinity, by)
            if job.owner is not None:
                self._count_activity(job, job.owner, by)

    def _count_activity(self, job: Job, owner: str, by: int) -> None:
        # The owner up to its last two numbers: what `owner_prefix` says for the instance.
        prefix = owner.rsplit(",", 2)[0] + ","
        if by > 0:
            self._owned.setdefault(owner, {})[job.job_id] = job
            self._jobs_of.setdefault(prefix, {})[job.job_id] = job
        else:
            _drop(self._owned, owner, job.job_id)
            _drop(self._jobs_of, prefix, job.job_id)
        if job.status is JobStatus.QUEUED:
            _count(self._activities_waiting, job.queue, by)
        if job.token is not None:
            if by > 0:
                self._leased[job.token] = job
            else:
                self._leased.pop(job.token, None)

    def leased(self, token: Token) -> Job | None:
        """Give the RUNNING activity whose lease has that token, or None."""
        return self._leased.get(token)

    def activities(self, owner: str) -> Sequence[Job]:
        """Give the jobs of an activity, oldest first."""
        return sorted(self._owned.get(owner, {}).values(), key=lambda job: (job.created_at, job.job_id))

    def activities_of(self, instance_id: str) -> Sequence[Job]:
        """Give the jobs of all activities of an instance, by id."""
        found = self._jobs_of.get(owner_prefix(instance_id), {})
        return [found[job_id] for job_id in sorted(found)]

    def owned_queues(self) -> Sequence[str]:
        """Give the queues in which activities wait, by name."""
        return sorted(self._activities_waiting)

    # --- sessions ---------------------------------------------------------------------------------------------------

    def _reindex_affinity(self, before: Affinity | None, after: Affinity | None) -> None:
        """Follow a session."""
        if before is not None:
            _drop(self._affinities, before.owner_id, before.session)
            self._due[Lane.AFFINITY].discard((before.locked_until, before.session))
        if after is not None:
            self._affinities.setdefault(after.owner_id, {})[after.session] = after
            self._due[Lane.AFFINITY].add((after.locked_until, after.session))

    def affinities(self, owner_ids: Sequence[str]) -> Sequence[Affinity]:
        """Give the sessions of these owners, by name."""
        found = [one for owner_id in set(owner_ids) for one in self._affinities.get(owner_id, {}).values()]
        return sorted(found, key=lambda one: one.session)

    def is_spoken_of(self, session: str) -> bool:
        """Tell whether a QUEUED or RUNNING job belongs to that session."""
        return session in self._sessions


def _event_id(row: HistoryRow) -> int:
    return row.event_id


def _show(box: _Mailbox, message: Message) -> None:
    """Let a message be delivered."""
    insort(box.visible, (message.due_at, message.seq))
    box.starts += message.is_start


def _drop(having: dict[str, dict[K, Any]], name: str, key: K) -> None:
    """Take one out; what is left empty goes, too."""
    found = having.get(name)
    if found is not None:
        found.pop(key, None)
        if not found:
            del having[name]


def _count(counts: dict[str, int], name: str, by: int) -> None:
    total = counts.get(name, 0) + by
    if total:
        counts[name] = total
    else:
        counts.pop(name, None)


def _ends(instance: Instance) -> Iterator[tuple[Lane, Timestamp]]:
    """Give the lanes an instance that is over stands in, with its time; only roots do."""
    if instance.parent_instance_id is not None or instance.completed_at is None or instance.status not in OVER:
        return
    yield Lane.ROOT, instance.completed_at
    if instance.keep_until is None:
        yield Lane.AGING, instance.completed_at
    else:
        yield Lane.LEAVING, instance.keep_until
