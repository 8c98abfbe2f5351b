"""A batch: one transaction, with the records it knows kept as objects between the rules and the tables.

Events are folded at once; changed records stay in memory until a query must see them or the batch ends, then each table
is written with one statement for many rows. The rules look up by key far more often than by query, so most commands
cost no query at all.

What is known stays known for the next batch as long as nobody else has written (`PRAGMA data_version`); it can always
be read again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Any, TypeVar, cast

from holdfast.errors import RecordTooLarge
from holdfast.failpoints import reach
from holdfast.journal.records import MAX_LINE
from holdfast.model.events import Event, encode_event
from holdfast.model.groups import Group, GroupMode
from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Job, JobStatus, Run
from holdfast.model.records import AUTHORITY, Authority, Key, Record
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import Webhook
from holdfast.model.workflows.instances import Execution, HistoryRow, Instance, Message, Turn, history_key, message_key
from holdfast.rules.fold import fold
from holdfast.rules.fold_changes import Stamp
from holdfast.rules.jobs.dispatch_order import place, run_place
from holdfast.rules.state import Lane
from holdfast.stores.sqlite.lookups import DUE, Lookups
from holdfast.stores.sqlite.record_tables import BY_KIND
from holdfast.stores.sqlite.rows import JOBS, RUNS, Meta, Row, Table, as_waiting, chained
from holdfast.stores.sqlite.statements import SQL
from holdfast.stores.sqlite.workflow_rows import MESSAGES

R = TypeVar("R", bound=Record)
Band = tuple[str, str, int]

#: Records of a kind that stay known between batches.
KNOWN = 20_000
#: Stands for a record nobody has looked for.
_UNKNOWN: Any = object()
_NO_META = Meta("", None, 0, None, 0, "", 0, 0, 0)


class Batch(Lookups):
    """The state of a store under the hand of its one writer in this process."""

    def __init__(self, db: sqlite3.Connection) -> None:
        super().__init__(db)
        self._version = -1
        #: Kind → key → record, or None where there is known to be none.
        self._known: dict[type, dict[Key, Any]] = {kind: {} for kind in (*BY_KIND, Authority)}
        #: Kind → key → the record its row still shows; None where there is no row.
        self._pending: dict[type, dict[Key, Any]] = {kind: {} for kind in BY_KIND}
        #: Kind → keys whose row must go before anything is written, although a new one may follow.
        self._gone: dict[type, set[Key]] = {kind: set() for kind in BY_KIND}
        self._last_runs: dict[JobId, Run] = {}
        self._backs: dict[Band, int] = {}
        #: Namespace → its enabled webhooks, mostly none: every ended run asks for them.
        self._webhooks: dict[str, Sequence[Webhook]] = {}
        #: Kind → highest id that has a row; a greater one is known to be new.
        self._highest: dict[type, str] = {}
        #: The highest instance id that a message with a row is for; and whom messages without one are for.
        self._addressed = ""
        self._written_to: set[str] = set()
        self._events: list[tuple[int, str, str, int]] = []
        self._stored = self._now = _NO_META
        self._promoted = False
        #: Token → the instance whose turn had it when it was last seen.
        self._tokens: dict[Token, str] = {}
        #: Pending timers by what asked for them: instance, execution, event.
        self._timers: dict[tuple[str, int, int], list[Key]] = {}
        #: Sequential groups in which it may be another's turn once all is written.
        self._turns: set[str] = set()

    # --- life of a batch --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start on an open transaction: forget what is known if somebody else has written since."""
        version = self._db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self.forget()
            self._stored = self._now = Meta(*self._db.execute(SQL["meta"]).fetchone())
            self._known[Authority][AUTHORITY] = self._now.authority
            job, run, instance, turn, addressed = (one or "" for one in self._db.execute(SQL["highest_ids"]).fetchone())
            self._highest = {Message: message_key(self._now.seq), Job: job, Run: run, Instance: instance, Turn: turn}
            self._addressed = addressed
            self._version = version
        for known in self._known.values():
            _shorten(known)
        _shorten(self._last_runs)

    @property
    def has_changes(self) -> bool:
        """Tell whether there is anything to commit."""
        return bool(self._events) or self._promoted or self._now != self._stored

    def write_out(self) -> None:
        """Write everything that was added into the transaction."""
        self._settle()
        reach("sqlite.settled")
        if self._events:
            self._db.executemany(SQL["insert_event"], self._events)
            seq, ts, _, chain = self._events[-1]
            self._now = self._now._replace(seq=seq, ts=ts, chain=chain)
        authority = self._known[Authority][AUTHORITY]
        if authority is not None:
            self._now = self._now._replace(
                last_token=authority.last_token,
                dispatch_paused=int(authority.dispatch_paused),
                dispatch_reason=authority.dispatch_reason,
            )
        if self._now != self._stored:
            self._db.execute(SQL["save_meta"], self._now.row())

    def committed(self) -> None:
        """Take note that the transaction is durable."""
        self._stored = self._now
        self._events.clear()
        self._promoted = False
        self._known[HistoryRow].clear()  # asked for once in a while, and then by the whole history
        if len(self._tokens) > KNOWN:
            self._tokens.clear()

    def forget(self) -> None:
        """Drop all that is known and all that is pending."""
        for known in (*self._known.values(), *self._pending.values()):
            known.clear()
        for gone in self._gone.values():
            gone.clear()
        self._last_runs.clear()
        self._backs.clear()
        self._webhooks.clear()
        self._events.clear()
        self._turns.clear()
        self._timers.clear()
        self._written_to.clear()
        self._promoted = False
        self._version = -1

    # --- adding -----------------------------------------------------------------------------------------------------

    def add(self, events: Sequence[Event], now: Timestamp) -> None:
        """Fold and keep the events of one command, all or none."""
        texts = [_encoded(event) for event in events]
        last = self._events[-1] if self._events else (self._now.seq, self._now.ts, "", self._now.chain)
        first, ts, chain = last[0] + 1, max(now, Timestamp(last[1])), last[3]
        undo: list[tuple[type[Record], Key, Any, Any, bool]] = []
        try:
            for seq, event in enumerate(events, start=first):
                for kind, key, record in fold(self, event, Stamp(seq, ts)):
                    if kind is Execution and record is None:
                        undo.extend(self._drop_history(key))
                    undo.append(self._put(kind, key, record))
        except BaseException:
            self._undo(undo)
            raise
        for seq, text in enumerate(texts, start=first):
            chain = chained(chain, seq, ts, text)
            self._events.append((seq, ts, text.decode(), chain))

    def promote(self, now: Timestamp, limit: int) -> None:
        """Make up to `limit` delayed jobs whose time has come ready."""
        self._settle()
        if self._db.execute(SQL["promote"], (now, limit)).rowcount:
            self._promoted = True

    def trim(self, before: Timestamp, limit: int, upto: int) -> int:
        """Forget events older than `before` or numbered up to `upto`; the chain goes on from the last of them."""
        count = 0
        for seq, ts, chain in self._db.execute(SQL["oldest_events"], (limit,)).fetchall():
            if ts >= before and seq > upto:
                break
            self._now = self._now._replace(trimmed_seq=seq, trimmed_chain=chain)
            count += 1
        if count:
            self._db.execute(SQL["delete_events"], (self._now.trimmed_seq,))
        return count

    def _put(self, kind: type[Record], key: Key, record: Record | None) -> tuple[type[Record], Key, Any, Any, bool]:
        """Set a record, or remove it with None; return how to take it back."""
        # What a history holds is written once: that it is new need not be asked for.
        before = None if kind is HistoryRow and record is not None else self.get(kind, key)
        if kind is Authority:
            self._known[kind][key] = record
            return kind, key, before, None, True
        pending = self._pending[kind]
        row = pending.get(key, _UNKNOWN)
        was_pending = row is not _UNKNOWN
        if not was_pending:
            row = pending[key] = before
        if record is None and row is not None:
            # What comes later under this key is a new row: an ended job's may not be changed into it.
            pending[key] = None
            self._gone[kind].add(key)
        if kind is Job:
            self._note_job(before, record)
        elif kind is Run:
            self._note_run(before, record)
        elif kind is Webhook:
            self._webhooks.clear()
        elif kind is Turn and isinstance(record, Turn) and record.token is not None:
            self._tokens[record.token] = record.instance_id
        elif kind is Message and isinstance(record, Message):
            self._written_to.add(record.instance_id)
            if record.event_id is not None:
                asked = (record.instance_id, record.execution_id or 0, record.event_id)
                self._timers.setdefault(asked, []).append(key)
        self._known[kind][key] = record
        return kind, key, before, row, was_pending

    def _drop_history(self, key: Key) -> list[tuple[type[Record], Key, Any, Any, bool]]:
        """Forget the events of an execution that goes, as far as they have no row yet; the others go with its row."""
        execution = self.get(Execution, key)
        prefix = "" if execution is None else history_key(execution.history_id, 0)[:17]
        fresh = [row for row in self._pending[HistoryRow] if row.startswith(prefix)] if prefix else []
        return [self._put(HistoryRow, row, None) for row in fresh]

    def _undo(self, undo: list[tuple[type[Record], Key, Any, Any, bool]]) -> None:
        """Take puts back, newest first."""
        for kind, key, before, row, was_pending in reversed(undo):
            self._known[kind][key] = before
            if kind is Authority:
                continue
            if row is not None:
                self._gone[kind].discard(key)
            if was_pending:
                self._pending[kind][key] = row
            else:
                del self._pending[kind][key]
        self._last_runs.clear()
        self._backs.clear()
        self._webhooks.clear()

    def _note_job(self, before: Any, after: Any) -> None:
        """Keep the back of the bands right: raised by a job behind it, unknown once the last job leaves."""
        if before is not None and before.status is JobStatus.QUEUED:
            band = (before.namespace, before.queue, before.rank)
            if self._backs.get(band) == before.position:
                del self._backs[band]
        if after is not None and after.status is JobStatus.QUEUED:
            band = (after.namespace, after.queue, after.rank)
            back = self._backs.get(band)
            if back is not None and after.position > back:
                self._backs[band] = after.position

    def _note_run(self, before: Any, after: Any) -> None:
        """Keep the newest runs right: a fold only ever touches the newest run of a job, or adds one behind it."""
        if after is not None:
            self._last_runs[after.job_id] = after
        elif before is not None:
            self._last_runs.pop(before.job_id, None)

    # --- writing ----------------------------------------------------------------------------------------------------

    def _settle(self, kind: type | None = None) -> None:
        """Write pending records: first what goes, runs before their jobs; then what stays, jobs before their runs.

        With `kind`, only if there are any of it: what waits longer is written in fewer statements.
        """
        if kind is not None and not self._pending[kind] and not self._gone[kind]:
            return
        for table in reversed(BY_KIND.values()):
            gone = self._gone[table.kind]
            if gone:
                self._db.executemany(table.delete, [table.key(key) for key in gone])
                gone.clear()
        for written, pending in self._pending.items():
            if pending:
                self._write(BY_KIND[written], pending)
                pending.clear()
        self._timers.clear()
        self._addressed = max(self._addressed, *self._written_to, "")
        self._written_to.clear()
        if self._turns:
            self._db.executemany(SQL["pass_turn"], [(group_id,) for group_id in self._turns])
            self._turns.clear()

    def _write(self, table: Table, pending: dict[Key, Any]) -> None:
        known, highest = self._known[table.kind], self._highest.get(table.kind)
        inserts: dict[str, list[Row]] = {}
        updates: dict[str, list[Row]] = {}
        for key, before in pending.items():
            record = known[key]
            if record is None or record is before:
                continue
            row = table.write(record)
            if table is JOBS and record.sequence_number is not None and self._is_sequential(record.group_id):
                # Every one that is queued waits, until the turn is passed to the first below.
                row = as_waiting(row) if record.status is JobStatus.QUEUED else row
                self._turns.add(record.group_id)
            update = None
            if before is not None:
                update = next((narrow for narrow in table.updates if narrow.fits(before, record)), None)
            if update is not None:
                updates.setdefault(update.sql, []).append(update.bind(row))
                continue
            for insert in table.inserts:
                if insert.fits(row):
                    inserts.setdefault(insert.sql, []).append(insert.bind(row))
                    break
            if highest is not None and key > highest:
                highest = self._highest[table.kind] = key
        # Updates first: an open run must have ended in its row before the next one of its job is inserted.
        for sql, rows in (*updates.items(), *inserts.items()):
            self._db.executemany(sql, rows)

    def _is_sequential(self, group_id: str) -> bool:
        group = self.get(Group, group_id)
        return group is not None and group.mode is GroupMode.SEQUENTIAL

    # --- looking up -------------------------------------------------------------------------------------------------

    @property
    def _meta(self) -> Meta:
        return self._now

    @property
    def store_id(self) -> str:
        """Which store this is."""
        return self._now.store_id

    @property
    def seq(self) -> int:
        """Number of the last event this batch contains."""
        return self._events[-1][0] if self._events else self._now.seq

    def get(self, kind: type[R], key: Key) -> R | None:
        """Give the record of that key, or None."""
        known: dict[Key, R | None] = self._known[kind]
        found = known.get(key, _UNKNOWN)
        if found is not _UNKNOWN:
            return found
        record = None if self._is_new(kind, key) else super().get(kind, key)
        known[key] = record
        return record

    def _is_new(self, kind: type, key: Key) -> bool:
        """Tell whether there is certainly no such row: its id is above all, or what it would refer to is not there."""
        if kind is Execution:
            return self._known[Instance].get(key.partition("\0")[0], _UNKNOWN) is None
        highest = self._highest.get(kind)
        return highest is not None and key > highest

    def next_due(self, lane: Lane) -> Timestamp | None:
        """Give the earliest time of a lane, or None."""
        self._settle()
        return cast("Timestamp | None", self._db.execute(DUE[lane][2]).fetchone()[0])

    def mail(self, instance_id: str) -> Sequence[Message]:
        """Give all messages of an instance, by number; mostly without a query, as every start asks."""
        return () if self._is_unheard_of(instance_id) else super().mail(instance_id)

    def beginnings(self, instance_id: str) -> Sequence[Message]:
        """Give the messages of an instance that begin an execution, by number; mostly without a query."""
        return () if self._is_unheard_of(instance_id) else super().beginnings(instance_id)

    def _is_unheard_of(self, instance_id: str) -> bool:
        """Tell whether there is certainly no message for an instance."""
        return instance_id > self._addressed and instance_id not in self._written_to

    def turn_by_token(self, token: Token) -> Turn | None:
        """Give the turn with that token, or None; mostly without a query, as every ack asks."""
        name = self._tokens.get(token)
        turn = None if name is None else self.get(Turn, name)
        return turn if turn is not None and turn.token == token else super().turn_by_token(token)

    def timers(self, instance_id: str, execution_id: int, event_id: int) -> Sequence[Message]:
        """Give the queued timers that an event asked for; without writing anything, as most turns with steps ask."""
        asked = (instance_id, execution_id, event_id)
        found = {row[0]: self._resolve(MESSAGES, row) for row in self._db.execute(SQL["timers"], asked)}
        for key in self._timers.get(asked, ()):
            message = self._known[Message][key]
            found[int(key)] = message
        return [message for _, message in sorted(found.items()) if message is not None]

    def last_run(self, job_id: JobId) -> Run | None:
        """Give the job's newest run, or None."""
        run = self._last_runs.get(job_id) or super().last_run(job_id)
        if run is not None:
            self._last_runs[job_id] = run
        return run

    def run_by_token(self, job_id: JobId, token: Token) -> Run | None:
        """Give the job's run that was granted with `token`, or None."""
        run = self._last_runs.get(job_id)
        return run if run is not None and run.token == token else super().run_by_token(job_id, token)

    def runs(self, job_id: JobId) -> Sequence[Run]:
        """Give the job's runs, oldest first; without writing anything, since folds ask for them."""
        rows = self._db.execute(SQL["runs_of_job"], (job_id,)).fetchall()
        found = {row[0]: self._resolve(RUNS, row) for row in rows}
        for key in self._pending[Run]:
            run = self._known[Run][key]
            if run is not None and run.job_id == job_id:
                found[key] = run
        return tuple(sorted((run for run in found.values() if run is not None), key=run_place))

    def successors(self, job_id: JobId) -> Sequence[Job]:
        """Give the jobs that retry this one, oldest first; without writing anything, since folds ask for them."""
        found = [self._resolve(JOBS, row) for row in self._db.execute(SQL["successors"], (job_id,)).fetchall()]
        found.extend(self._known[Job][key] for key in self._pending[Job])
        jobs = {job.job_id: job for job in found if job is not None and job.retry_of == job_id}.values()
        return sorted(jobs, key=lambda job: (job.created_at, job.job_id))

    def running(self, namespace: str, queue: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a queue; without writing anything, since folds ask for them."""
        rows = super().running(namespace, queue)
        return self._with_pending(rows, lambda job: (job.namespace, job.queue) == (namespace, queue))

    def running_with(self, namespace: str, limit_key: str) -> Collection[JobId]:
        """Give the RUNNING jobs of a namespace that carry a limit key; without writing anything."""
        rows = super().running_with(namespace, limit_key)
        return self._with_pending(rows, lambda job: (job.namespace, job.limit_key) == (namespace, limit_key))

    def _with_pending(self, rows: Collection[JobId], wanted: Callable[[Job], bool]) -> Collection[JobId]:
        """Correct which jobs run by what has not been written yet."""
        ids = set(rows)
        for key in self._pending[Job]:
            job = self._known[Job][key]
            if job is not None and job.status is JobStatus.RUNNING and wanted(job):
                ids.add(job.job_id)
            else:
                ids.discard(JobId(key))
        return ids

    def queued(self, namespace: str, queue: str) -> Sequence[Job]:
        """Give all QUEUED jobs of a queue, in order; without writing anything, since folds ask for them."""
        rows = self._db.execute(SQL["queued"], {"namespace": namespace, "queue": queue}).fetchall()
        return self._queued_of(rows, lambda job: (job.namespace, job.queue) == (namespace, queue))

    def band(self, namespace: str, queue: str, rank: int) -> Sequence[Job]:
        """Give all QUEUED jobs of one band, in order; without writing anything, since folds ask for them."""
        rows = self._db.execute(SQL["band"], {"namespace": namespace, "queue": queue, "rank": rank}).fetchall()
        return self._queued_of(rows, lambda job: (job.namespace, job.queue, job.rank) == (namespace, queue, rank))

    def _queued_of(self, rows: Sequence[Row], wanted: Callable[[Job], bool]) -> Sequence[Job]:
        """Give the QUEUED jobs among these rows and what has not been written yet, in order."""
        found = [self._resolve(JOBS, row) for row in rows]
        found.extend(self._known[Job][key] for key in self._pending[Job])
        jobs = {job.job_id: job for job in found if job is not None}.values()
        return sorted((job for job in jobs if job.status is JobStatus.QUEUED and wanted(job)), key=place)

    def edge(self, namespace: str, queue: str, rank: int, *, last: bool) -> int | None:
        """Give the lowest or highest position in the band; the highest is remembered, as every enqueue asks for it."""
        if not last:
            return super().edge(namespace, queue, rank, last=False)
        band = (namespace, queue, rank)
        found = self._backs.get(band)
        if found is None:
            found = super().edge(namespace, queue, rank, last=True)
            if found is not None:
                self._backs[band] = found
        return found

    def webhooks(self, namespace: str) -> Sequence[Webhook]:
        """Give the enabled webhooks of a namespace, by id; remembered, as every ended run asks for them."""
        found = self._webhooks.get(namespace)
        if found is None:
            found = self._webhooks[namespace] = super().webhooks(namespace)
        return found

    def _resolve(self, table: Table, row: Row) -> Any:
        """Give the record of a row: the one already known, which may be newer than the row, or None if it is gone."""
        known = self._known[table.kind]
        key = table.key_in(row)
        if key not in known:
            known[key] = table.read(row)
        return known[key]


def _encoded(event: Event) -> bytes:
    text = encode_event(event)
    if len(text) > MAX_LINE:
        raise RecordTooLarge(
            f"an event of {len(text):,} bytes is larger than the {MAX_LINE:,} a store takes. Nothing was stored.",
            limit=MAX_LINE,
        )
    return text


def _shorten(known: dict[Any, Any]) -> None:
    """Forget the older ones: half at a time, as the front of a dict is dear to cut piece by piece."""
    if len(known) > KNOWN:
        kept = dict(islice(known.items(), len(known) - KNOWN // 2, None))
        known.clear()
        known.update(kept)
