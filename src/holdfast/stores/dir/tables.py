"""The tables of `memory:`, filled from files: live jobs at opening, ended ones when somebody asks for them.

A look-up that concerns live jobs, settings or one job alone reads at most that job's file. Any other look-up, one that
comes to be tomorrow included, first reads the files of all ended jobs; from then on it costs nothing. Events of
histories are here only until their batch is durable; from then on they are read from their files, each time.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from holdfast.model.ids import JobId, Token
from holdfast.model.jobs import Job, Run
from holdfast.model.records import Key, Record, key_of
from holdfast.model.times import FIRST, Timestamp
from holdfast.model.workflows.instances import Execution, HistoryRow
from holdfast.stores.dir.format.file_names import name_of
from holdfast.stores.dir.format.histories import Histories
from holdfast.stores.dir.format.job_file import JobFile
from holdfast.stores.memory.batch import BatchTables
from holdfast.stores.memory.tables import Tables
from holdfast.stores.sidecar.blob_refs import named_by

R = TypeVar("R", bound=Record)
T = TypeVar("T", bound=type)

#: The key of an event in a history, as `model.workflows.instances` writes it. Numbers: nothing else becomes one.
HISTORY_KEY = re.compile("([0-9]{16,19})\0([0-9]{19})")

#: Look-ups that need no ended job, or only the one they are asked for, or are answered here one by one.
NARROW = frozenset(
    {"get", "all", "runs", "last_run", "run_by_token", "successors", "due", "next_due", "put", "load", "promote"}
    | {"granted_by", "local_leases", "ready", "running", "running_with", "running_of", "active_of", "by_name"}
    | {"schedules_of", "queued", "band", "bands", "edge", "beside", "reservation", "direct", "webhooks"}
    | {"turn_of", "live_groups", "groups", "deliveries", "begin", "add", "replay", "undo", "changed"}
    | {
        "turn_by_token",
        "local_turns",
        "stuck_turns",
        "candidates",
        "visible",
        "mail",
        "beginnings",
        "timers",
        "executions",
    }
    | {"children", "history", "keys", "decisions", "leased", "owned_queues", "affinities", "is_spoken_of"}
    | {"instances", "flow_totals", "mail_totals", "names", "named", "let_go", "begun_by", "held_by"}
    | {"starts_under", "unbegun"}
)


def _reading_all_first(tables: T) -> T:
    """Let every look-up that is not narrow read the files of all ended jobs first."""
    for name in dir(Tables):
        found = getattr(Tables, name)
        if not name.startswith("_") and callable(found) and name not in NARROW:
            setattr(tables, name, _after_reading(found))
    return tables


def _after_reading(lookup: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(lookup)
    def read_first(self: DirTables, *args: Any, **options: Any) -> Any:
        self.read_all()
        return lookup(self, *args, **options)

    return read_first


@_reading_all_first
class DirTables(BatchTables):
    """Tables that read what they are asked for."""

    def __init__(
        self, read: Callable[[str, str], JobFile | None], touched: Callable[[Job], bool], histories: Histories
    ) -> None:
        """Read an ended job by `read(name, directory)`; `touched` tells whether somebody changed a pending file."""
        super().__init__()
        self.histories = histories
        self._read = read
        self._touched = touched
        #: Name → directory of ended jobs nobody has asked for yet.
        self.unread: dict[str, str] = {}
        #: Number of the last event before this opening.
        self.opened_at = 0
        #: When this store was made, around what lay there.
        self.made_at = FIRST

    # --- reading what is missing --------------------------------------------------------------------------------------

    def read_all(self) -> None:
        """Read every ended job that was not read yet."""
        if not self.unread:
            return
        # Many new records would make the collector walk them again and again, and none of them is garbage.
        collects = gc.isenabled()
        gc.disable()
        try:
            while self.unread:
                self._read_next(*next(reversed(self.unread.items())))
        finally:
            if collects:
                gc.enable()

    def read_one(self, job_id: str) -> None:
        """Read one ended job, if there is a file that may be its."""
        name = name_of(job_id)
        folder = self.unread.get(name)
        if folder is not None:
            self._read_next(name, folder)

    def _read_next(self, name: str, folder: str) -> None:
        """Read a file; if the disk fails it stays unread, and is never taken for missing."""
        file = self._read(name, folder)
        self.unread.pop(name, None)
        if file is not None:
            self.enter(file)

    def enter(self, file: JobFile) -> None:
        """Take over what a file says."""
        self.put(Job, file.job.job_id, file.job)
        for run in file.runs:
            self.put(Run, key_of(run), run)

    # --- look-ups -----------------------------------------------------------------------------------------------------

    def get(self, kind: type[R], key: Key) -> R | None:
        """Give the record of that key, or None."""
        if kind is HistoryRow and key not in self.records[kind]:
            parts = HISTORY_KEY.fullmatch(key)
            return None if parts is None else cast("R | None", self.histories.row(int(parts[1]), int(parts[2])))
        if self.unread and key not in self.records[kind]:
            if kind is Job:
                self.read_one(key)
            elif kind is Run:
                self.read_all()
        return super().get(kind, key)

    def all(self, kind: type[R]) -> Iterator[R]:
        """Walk every record of a table, in the order of its key."""
        if kind is Job or kind is Run:
            self.read_all()
        if kind is HistoryRow:
            return cast("Iterator[R]", self._all_rows())
        return super().all(kind)

    def _all_rows(self) -> Iterator[HistoryRow]:
        """Walk the events of all histories."""
        executions: Iterable[Execution] = self.records[Execution].values()
        for history_id in sorted(execution.history_id for execution in executions):
            yield from self.history(history_id)

    def runs(self, job_id: JobId) -> Sequence[Run]:
        """Give the job's runs, oldest first."""
        if self.unread:
            self.read_one(job_id)
        return super().runs(job_id)

    def last_run(self, job_id: JobId) -> Run | None:
        """Give the job's newest run, or None."""
        if self.unread:
            self.read_one(job_id)
        return super().last_run(job_id)

    def run_by_token(self, job_id: JobId, token: Token) -> Run | None:
        """Give the job's run that was granted with `token`, or None."""
        if self.unread:
            self.read_one(job_id)
        return super().run_by_token(job_id, token)

    def successors(self, job_id: JobId) -> Sequence[Job]:
        """Give the jobs whose `retry_of` is this one, oldest first."""
        if self.unread:
            job = self.get(Job, job_id)
            # Only an ended job has successors: one that was live when the store was opened has none among the unread.
            if job is None or (job.has_ended and job.seq <= self.opened_at):
                self.read_all()
        return super().successors(job_id)

    def ready(
        self,
        namespace: str,
        queues: Sequence[str],
        job_types: Sequence[str] | None,
        now: Timestamp,
        *,
        free: bool = False,
    ) -> Iterator[Job]:
        """Walk the ready jobs of these queues; one whose file somebody changed waits until that was looked at."""
        return (job for job in super().ready(namespace, queues, job_types, now, free=free) if not self._touched(job))

    # --- histories ----------------------------------------------------------------------------------------------------

    def history(self, history_id: int, after: int = 0, limit: int | None = None) -> Sequence[HistoryRow]:
        """Give the events of a history with ids above `after`, by id; all, or the first ones."""
        new = super().history(history_id, after)
        if not new:
            return self.histories.rows(history_id, after, limit)
        rows = [*self.histories.rows(history_id, after), *new]
        return sorted(rows, key=lambda row: row.event_id)[:limit]

    def let_go(self) -> None:
        """Forget the events of a batch that is durable: their files have them, or they are gone with those."""
        super().let_go()
        self.records[HistoryRow].clear()
        self._histories.clear()

    def put(self, kind: type[Record], key: Key, record: Record | None) -> Record | None:
        """Set a record, or remove it with None; return the one before. A history comes and goes with its execution."""
        before = super().put(kind, key, record)
        if kind is Execution and self._named is not None:
            old, new = cast("Execution | None", before), cast("Execution | None", record)
            if old is not None and (new is None or new.history_id != old.history_id):
                self._named.subtract(self._named_in(old))
            if new is not None and (old is None or new.history_id != old.history_id):
                self._named.update(self._named_in(new))
        return before

    def names(self, digest: str) -> bool:
        """Tell whether a record names that blob."""
        if self._named is None:
            self.read_all()
            super().names("")
            assert self._named is not None
            for execution in self.records[Execution].values():
                self._named.update(self._named_in(execution))
        return super().names(digest)

    def _named_in(self, execution: Execution) -> Iterator[str]:
        """Walk the blobs that the events of a history on the disk name."""
        return (digest for row in self.histories.rows(execution.history_id) for digest in named_by(row))
