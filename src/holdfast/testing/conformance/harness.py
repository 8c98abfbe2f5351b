"""What every check of the suite stands on: a store under test, an engine on it, and a clock that is set by hand.

Time begins at 2026-01-01, chance is counted and not drawn, so that a failing check fails the same way every time.
The short verbs (`enqueue`, `lease`, `complete`, …) raise refusals; `refused` demands one and that it changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from holdfast.engine import Engine, engine
from holdfast.engine.maintenance import Report as Round
from holdfast.engine.maintenance import recover, tick
from holdfast.errors import HoldfastError
from holdfast.model.commands import Command, Complete, Enqueue, Fail, Lease, NewJob, Retention
from holdfast.model.events import Event, decode_event
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus, KeyHold, KeyScope, RetryMode, Run
from holdfast.model.outcomes import Enqueued, Grant, Leased, Outcome, Refusal, Reported, Submitted
from holdfast.model.records import TABLES, Key, Record
from holdfast.model.times import Timestamp, later, stamp
from holdfast.rules.invariants import violations
from holdfast.stores.protocol import Store, View
from holdfast.testing.clock import START, ManualClock

#: When time begins.
BEGINNING = stamp(START)
NO_PARAMS = msgspec.Raw(b"{}")
#: Options that checks write as plain words.
_WORDS: dict[str, Callable[[str], Any]] = {"retry_mode": RetryMode, "key_scope": KeyScope, "key_hold": KeyHold}


class Broken(Exception):
    """What a check makes the code fail with."""


def break_here() -> None:
    """Fail, as a listener of a named point."""
    raise Broken


class Told(NamedTuple):
    """One event of the feed, read."""

    seq: int
    ts: Timestamp
    event: Event | None


class Dump(NamedTuple):
    """Everything a store shows: each table, and the feed. Numbers in between may be taken by notes of its own."""

    tables: dict[str, list[Record]]
    feed: list[Told]


def told(store: Store, after: int = 0) -> list[Told]:
    """Read the feed from `after` on."""
    return [
        Told(entry.seq, entry.ts, decode_event(entry.event, seq=entry.seq, file="feed")) for entry in store.feed(after)
    ]


def tables_of(view: View) -> dict[str, list[Record]]:
    """Read every table of a view."""
    return {name: list(view.all(kind)) for name, kind in TABLES.items()}


def dump_of(store: Store) -> Dump:
    """Read everything a store shows."""
    with store.read() as view:
        tables = tables_of(view)
    return Dump(tables, told(store))


def new_job(job_id: str, job_type: str = "work", params: Any = None, **options: Any) -> NewJob:
    """Build a job to be created; `params` are plain values."""
    raw = NO_PARAMS if params is None else msgspec.Raw(msgspec.json.encode(params))
    chosen = {name: _WORDS[name](value) if name in _WORDS else value for name, value in options.items()}
    return NewJob(job_id=JobId(job_id), job_type=job_type, params=raw, **chosen)


class Harness:
    """A store under test, opened and reopened by the check."""

    #: What a caller sees if the code that decides breaks.
    breaks: type[Exception] = Broken

    def __init__(self, opener: Callable[[Path], Store], path: Path, clock: ManualClock) -> None:
        self._opener = opener
        self._path = path
        self._opened: list[Engine] = []
        self.clock = clock
        self.engine = self.open()

    # --- opening ----------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store the present engine writes to."""
        return self.engine.store

    @property
    def authority(self) -> Engine:
        """Who decides, ticks, recovers and looks after the bytes: the engine under test, unless that is elsewhere."""
        return self.engine

    def open(self) -> Engine:
        """Open the store anew: fresh the first time, another opening of the same bytes later."""
        opened = Engine(self._opener(self._path), clock=self.clock)
        self._opened.append(opened)
        return opened

    def second(self) -> Engine:
        """Open the store a second time beside the first, as another process does."""
        if not self.store.promises.many_processes:
            pytest.skip(f"{self.store.promises.name}: promises one process only")
        return self.open()

    def neighbour(self) -> Engine:
        """Open the bytes a second time beside the authority, as another process of its machine does."""
        return self.second()

    def reopen(self) -> Engine:
        """Close the store and open it again."""
        if not self.store.promises.reopens:
            pytest.skip(f"{self.store.promises.name}: does not promise that state is there after reopening")
        self.engine.close()
        self.engine = self.open()
        return self.engine

    def restart(self) -> Engine:
        """Put a new engine on the store: what a process keeps in memory only is gone."""
        if self.store.promises.reopens:
            return self.reopen()
        self.engine = Engine(self.store, clock=self.clock)
        return self.engine

    def close(self) -> None:
        """Close whatever was opened."""
        for opened in self._opened:
            opened.close()

    # --- time -------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> Timestamp:
        """The present time of the wall clock."""
        return stamp(self.clock.now())

    def after(self, seconds: float) -> Timestamp:
        """Give the time `seconds` after the beginning."""
        return later(BEGINNING, seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance(seconds)

    # --- verbs ------------------------------------------------------------------------------------------------------

    def ask(self, command: Command) -> Outcome:
        """Send a command; raise its refusal."""
        return self.engine.ask(command)

    def enqueue(self, job_id: str, job_type: str = "work", params: Any = None, **options: Any) -> Submitted:
        """Create one job."""
        return self.enqueue_many(new_job(job_id, job_type, params, **options))[0]

    def enqueue_many(self, *jobs: NewJob, cmd: str = "") -> tuple[Submitted, ...]:
        """Create jobs with one command."""
        outcome = self.ask(Enqueue(jobs=jobs, cmd=cmd))
        assert isinstance(outcome, Enqueued)
        return outcome.jobs

    def lease(self, n: int = 1, worker: str = "w1", **options: Any) -> tuple[Grant, ...]:
        """Lease up to `n` jobs."""
        outcome = self.ask(Lease(worker_id=worker, n=n, **options))
        assert isinstance(outcome, Leased)
        return outcome.grants

    def take(self, worker: str = "w1", **options: Any) -> Grant:
        """Lease exactly one job."""
        (grant,) = self.lease(1, worker, **options)
        return grant

    def complete(self, grant: Grant, result: Any = None) -> Reported:
        """Report success."""
        raw = msgspec.Raw(msgspec.json.encode(result))
        return self.report(Complete(job_id=grant.job.job_id, token=grant.token, result=raw))

    def fail(self, grant: Grant, error: str = "boom", **options: Any) -> Reported:
        """Report failure."""
        return self.report(Fail(job_id=grant.job.job_id, token=grant.token, error=error, **options))

    def report(self, command: Command) -> Reported:
        """Send a command that is answered as a report is."""
        outcome = self.ask(command)
        assert isinstance(outcome, Reported)
        return outcome

    def tick(self, retention: Retention | None = None) -> Round:
        """Let maintenance run once."""
        return tick(self.authority, retention)

    def recover(self) -> Round:
        """Recover, and see that a second recovery at the same time finds nothing and writes nothing."""
        found = recover(self.authority)
        before = self.dump()
        again = recover(self.authority)
        assert again == Round(), f"the second recovery found {again}"
        assert self.dump() == before
        return found

    def in_line(self) -> int:
        """Count the callers who wait for the commit under way to end."""
        return len(self.engine._waiting)  # noqa: SLF001 - the line can only be seen from inside

    # --- looking ----------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        """Give a job."""
        return self.engine.job(JobId(job_id))

    def status(self, job_id: str) -> JobStatus:
        """Give the status of a job."""
        return self.job(job_id).status

    def runs(self, job_id: str) -> Sequence[Run]:
        """Give a job's runs, oldest first."""
        return tuple(self.engine.runs(JobId(job_id)))

    def heirs(self, job_id: str) -> Sequence[Job]:
        """Give the jobs that retry this one."""
        with self.engine.read() as view:
            return view.successors(JobId(job_id))

    @property
    def seq(self) -> int:
        """Number of the last event."""
        with self.engine.read() as view:
            return view.seq

    def kinds(self, after: int = 0) -> list[str]:
        """Name the types of the events above `after`, in order."""
        return [str(entry.event.__struct_config__.tag) for entry in told(self.store, after) if entry.event is not None]

    def dump(self) -> Dump:
        """Read everything the store shows."""
        return dump_of(self.store)

    def order(self, n: int = 100, **options: Any) -> list[str]:
        """Lease everything there is, and name it in the order it came."""
        return [grant.job.job_id for grant in self.lease(n, **options)]

    def waiting(self, queue: str = "default", namespace: str = "") -> list[str]:
        """Name the queued jobs of a queue in the order they stand, delayed ones too, without leasing them."""
        with self.engine.read() as view:
            return [job.job_id for rank in view.bands(namespace, queue) for job in view.band(namespace, queue, rank)]

    # --- demands ----------------------------------------------------------------------------------------------------

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Demand that nothing at all is written inside the block."""
        before, seq = dump_of(self.authority.store), self._seq
        yield
        assert dump_of(self.authority.store) == before
        assert self._seq == seq

    @property
    def _seq(self) -> int:
        with self.authority.read() as view:
            return view.seq

    def refused(self, kind: type[HoldfastError], command: Command, **facts: str) -> Refusal:
        """Demand that `command` is refused as `kind`, naming `facts`, and that nothing was written."""
        with self.unchanged():
            outcome = self.engine.submit(command)
        assert isinstance(outcome, Refusal), f"{command!a:.300} was taken"
        assert (outcome.code, facts) == (kind.code, {name: outcome.facts.get(name) for name in facts}), outcome
        assert type(outcome.error()) is kind
        return outcome

    def demand_sound(self) -> None:
        """Demand that every invariant holds and that the store's own check finds nothing."""
        with self.authority.read() as view:
            assert list(violations(view)) == []
        assert self.authority.store.check() == []


class Topic:
    """One topic of the suite. A store's test class inherits topics and gives `open`; the rest comes with them."""

    #: The time of the check under way, for stores that stamp something on their own.
    clock: ManualClock
    #: Named points a commit passes. A store adds its own, and is then broken at each of them.
    points: tuple[str, ...] = ("engine.decided", "engine.committed")

    def open(self, path: Path) -> Store:
        """Open the store that lives under `path`, an existing directory; called again, it finds what was left there."""
        raise NotImplementedError

    def harnessed(self, path: Path) -> Harness:
        """Give what every check stands on, for the store that lives under `path`."""
        return Harness(self.open, path, self.clock)

    def plant(self, store: Store, kind: type[Record], key: Key, record: Record | None) -> None:
        """Change a record below the rules, as damage would; None removes it.

        A store whose records can be changed so overrides it.
        """
        del kind, key, record
        pytest.skip(f"{store.promises.name}: does not say how a record could be changed below the rules")

    @pytest.fixture
    def harness(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
        """Give the store under test; afterwards everything it keeps must be sound."""
        drawn = iter(range(1, 1 << 62))
        monkeypatch.setattr(engine, "_seed", lambda: next(drawn))
        self.clock = ManualClock()
        harness = self.harnessed(tmp_path)
        try:
            yield harness
            if not harness.engine._closed:  # noqa: SLF001 - a check that closed its engine has nothing left to look at
                harness.demand_sound()
        finally:
            harness.close()
