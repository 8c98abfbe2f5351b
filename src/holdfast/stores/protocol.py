"""The seam between the engine and every store: what a store must offer, as what is true afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

from holdfast.clock import Clock
from holdfast.model.commands import Command
from holdfast.model.events import Event
from holdfast.model.groups import Group, GroupStatus
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job, JobStatus
from holdfast.model.outcomes import Outcome
from holdfast.model.records import Record
from holdfast.model.times import Timestamp
from holdfast.model.webhooks import Delivery, DeliveryStatus
from holdfast.model.workflows.instances import InstanceStatus, Message
from holdfast.rules.explain import Reason
from holdfast.rules.state import Lane, State
from holdfast.rules.workflows.invariants import Fault
from holdfast.rules.workflows.state import InstanceQuery as InstanceQuery  # noqa: PLC0414 - one of the queries that callers find here
from holdfast.stores.sidecar.protocol import Blobs, Roster, RunLogs, Sessions

if TYPE_CHECKING:  # whoever only reads what stores are loads no journal
    from holdfast.journal.stats import JournalStats

R = TypeVar("R", bound=Record)


class Durability(StrEnum):
    """What an acknowledgement survives."""

    #: Nothing: the state dies with the process.
    NONE = "none"
    #: Everything but its last 10 ms.
    RELAXED = "relaxed"
    #: Power loss at any later instant.
    SYNC = "sync"


class Promises(msgspec.Struct, frozen=True, kw_only=True):
    """What a store promises; the engine reads it once at start."""

    #: The URL's scheme.
    name: str
    durability: Durability
    #: Whether several processes of one host may write.
    many_processes: bool
    #: Whether state is there after reopening.
    reopens: bool
    #: Whether all look-ups of one view see one state. Elsewhere each does alone, and the view's `seq` is the oldest's.
    frozen_views: bool = True


class Entry(msgspec.Struct, frozen=True):
    """One event as the feed gives it."""

    seq: int
    ts: Timestamp
    #: The event as encoded JSON.
    event: msgspec.Raw


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something `check` found wrong."""

    #: One permanent word, e.g. `row_sum`, `invariant`, `journal_damaged`.
    code: str
    message: str
    remedy: str = ""
    file: str | None = None
    line: int | None = None
    offset: int | None = None
    seq: int | None = None
    #: The record concerned.
    id: str | None = None
    #: All of them, where it concerns several.
    ids: tuple[str, ...] = ()


def finding_of(fault: Fault) -> Finding:
    """Give a broken invariant as a finding."""
    return Finding(code=fault.code, message=fault.message, remedy=fault.remedy, id=fault.id)


class JobQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs to list, newest first."""

    namespace: str = ""
    #: None for any.
    status: JobStatus | None = None
    queue: str | None = None
    job_type: str | None = None
    #: The access token that submitted them.
    submitted_by: str | None = None
    #: Only jobs created before this place, given by the last one of the page before.
    before: tuple[Timestamp, str] | None = None
    limit: int = 50


class DeliveryQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which deliveries of a webhook to list, newest first."""

    webhook_id: str
    #: None for any.
    status: DeliveryStatus | None = None
    limit: int = 50


class GroupQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which groups to list, newest first."""

    namespace: str = ""
    #: None for any.
    status: GroupStatus | None = None
    #: Only groups created before this place, given by the last one of the page before.
    before: tuple[Timestamp, str] | None = None
    limit: int = 50


class QueueCount(msgspec.Struct, frozen=True):
    """How many jobs of a queue have a status."""

    namespace: str
    queue: str
    status: JobStatus
    count: int


class StartQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which instances to list that nobody has begun, by id."""

    #: None for any.
    orchestration_name: str | None = None
    #: The access token that started them.
    submitted_by: str | None = None
    #: Only those behind this id, the last one of the page before.
    after: str = ""
    #: None for all.
    limit: int | None = None


class FlowTotals(msgspec.Struct, frozen=True, kw_only=True):
    """How many instances, executions and events there are."""

    instances: dict[InstanceStatus, int]
    executions: int
    events: int


class MailTotals(msgspec.Struct, frozen=True, kw_only=True):
    """How much waits for workflows and their activities, and is in nobody's hands."""

    queued: int
    #: Timers that are not due.
    timers: int
    parked: int
    #: Jobs with an owner.
    activities: int


class View(State, Protocol):
    """One consistent state of the store: the rules' look-ups, and what people ask for."""

    def jobs(self, query: JobQuery) -> Sequence[Job]:
        """Give the matching jobs, newest first (created_at, then id, descending)."""
        ...

    def deliveries(self, query: DeliveryQuery) -> Sequence[Delivery]:
        """Give the matching deliveries, newest first (created_at, then id, descending)."""
        ...

    def groups(self, query: GroupQuery) -> Sequence[Group]:
        """Give the matching groups, newest first (created_at, then id, descending)."""
        ...

    def ids_with_prefix(
        self, prefix: str, limit: int, kind: type[Job | Group] = Job, namespaces: Sequence[str] | None = None
    ) -> Sequence[str]:
        """Give the first `limit` ids of jobs, or groups, that begin with `prefix`, in order.

        - Of these namespaces, at a cost that does not grow with what lies in others; None: of every one.
        """
        ...

    def counts(self) -> Sequence[QueueCount]:
        """Count jobs by namespace, queue and status; what has none is left out. Sorted."""
        ...

    def unbegun(self, query: StartQuery) -> Sequence[Message]:
        """Give the starts of the matching instances that have no record yet, of each the first, by id of the instance.

        - Among them are those that wait for a time, for a worker, or for another one of their schedule to end, and
          those whose first turn is under way.
        - Not among them is what was set aside.
        """
        ...

    def flow_totals(self) -> FlowTotals:
        """Count instances by status, executions and events; statuses that none has are left out."""
        ...

    def mail_totals(self, now: Timestamp) -> MailTotals:
        """Count what waits: messages handed out under a live lock, and jobs under a live lease, are left out."""
        ...

    def next_due(self, lane: Lane) -> Timestamp | None:
        """Give the earliest time of a lane, or None if it is empty."""
        ...

    def all(self, kind: type[R]) -> Iterator[R]:
        """Walk every record of a table, in the order of its key."""
        ...

    @property
    def seq(self) -> int:
        """Number of the last event this state contains."""
        ...


@runtime_checkable
class Dated(Protocol):
    """A view that knows when its last event was written. A coordinator's does not; its feed tells."""

    @property
    def ts(self) -> Timestamp:
        """Time of the last event this state contains, "" if there is none. It never runs backwards."""
        ...


class Batch(View, Protocol):
    """A view that can be added to; nobody else sees it until it is durable."""

    def promote(self, now: Timestamp, limit: int) -> None:
        """Make up to `limit` delayed jobs whose time has come ready. Index work: no event, no change of a record."""
        ...

    def add(self, events: Sequence[Event], now: Timestamp) -> None:
        """Fold the events of one command, all or none.

        - Each gets the next number, and as its time `now`, or the previous event's if that is later.
        - From here on the look-ups of this batch see the change.
        - Raises RecordTooLarge if an event does not fit, CorruptState if it contradicts the state; nothing was added.
        """
        ...


class Store(Protocol):
    """Keeps records and the events they are folded from, and content and soft knowledge beside them."""

    promises: Promises

    @property
    def blobs(self) -> Blobs:
        """Content too large for a record, by its hash."""
        ...

    @property
    def logs(self) -> RunLogs:
        """What runs have said."""
        ...

    @property
    def workers(self) -> Roster:
        """Which workers there are."""
        ...

    @property
    def sessions(self) -> Sessions:
        """Which openings of this store live."""
        ...

    def write(self) -> AbstractContextManager[Batch]:
        """Open a batch, waiting for others to finish.

        - Left normally: everything added is durable and visible, or StoreError is raised and nothing is acknowledged.
        - Left by an exception: nothing was added.
        """
        ...

    def read(self) -> AbstractContextManager[View]:
        """Open a view of what is durable. It does not change while open, and must not be kept long."""
        ...

    def feed(self, after: int) -> Iterator[Entry]:
        """Walk durable events with a number above `after`, in order. Ends at the last one.

        - Raises InvalidValue if events after `after` have been trimmed away.
        """
        ...

    def wait(self, after: int, timeout: float | None) -> bool:
        """Return True as soon as an event above `after` is durable, False when `timeout` seconds have passed."""
        ...

    def trim(self, before: Timestamp, limit: int, *, upto: int = 0) -> int:
        """Forget events older than `before`, or numbered up to `upto`, that nothing needs any more.

        - Returns how many, at most `limit`.
        - A store whose log is also its feed may keep more.
        """
        ...

    def check(self) -> list[Finding]:
        """Read everything and list what is wrong. Changes nothing."""
        ...

    def snapshot(self) -> None:
        """Make reopening fast and old bytes reclaimable, now."""
        ...

    def close(self) -> None:
        """Finish and let go. Calling it again does nothing."""
        ...


class Wish(NamedTuple):
    """What somebody meant by what they did to a file."""

    #: None if nothing was meant, and the file is as it was: what waited for it waits no longer.
    command: Command | None
    #: Which one, for messages.
    file: str


@runtime_checkable
class Served(Protocol):
    """A store whose authority is a process elsewhere."""

    def status(self) -> bytes:
        """Give how it stands, in its own words (JSON). Raises Forbidden for who may not know."""
        ...


@runtime_checkable
class HandMade(Protocol):
    """A store whose files people may write, edit and move; what they mean is decided as commands."""

    def wishes(self, new_id: Callable[[], str]) -> Sequence[Wish]:
        """Look for what people did since the last look, and give what they wish.

        - What needs no deciding was done on the way: a file put back, or set aside.
        - Of many some are given, and `has_more` says so: called again, it goes on.
        - Each wish is answered by `granted` or `refused` before the next call.
        """
        ...

    @property
    def has_more(self) -> bool:
        """Whether the last look has not seen to all it found."""
        ...

    def granted(self, wish: Wish) -> None:
        """Hear that the wish was fulfilled; nothing of it is left lying afterwards."""
        ...

    def refused(self, wish: Wish, reason: str) -> None:
        """Hear that it was not; what asked for it is set aside or put back as it was."""
        ...

    def set_aside(self) -> int:
        """Count the files that could not be used, and wait for somebody to look at them."""
        ...


class Adopted(msgspec.Struct, frozen=True):
    """What lay in a directory of another program when it became a store."""

    #: When that was. The ended ones count as finished then, and retention counts from there.
    at: Timestamp
    waiting: int
    completed: int
    failed: int


@runtime_checkable
class Adopting(Protocol):
    """A store that can be made around the files of another program."""

    @property
    def adopted(self) -> Adopted | None:
        """What it was made around; None if there was nothing."""
        ...


@runtime_checkable
class Elsewhere(Protocol):
    """A store whose commands another process decides. It is the authority; recovery and the tick are its own."""

    @property
    def clock(self) -> Clock:
        """The time by which that process decides, as well as it is known here."""
        ...

    def read(self, *, attempt_s: float | None = None) -> AbstractContextManager[View]:
        """Open a view. With `attempt_s`, whoever does not answer a look-up within so many seconds is not asked again.

        - Its look-ups raise StoreBusy if nobody answers.
        """
        ...

    def decide(self, commands: Sequence[Command], *, attempt_s: float | None = None) -> list[Outcome]:
        """Have commands decided, in order, each atomic alone; return when their outcomes are durable.

        - With `attempt_s`, whoever does not answer within so many seconds is not asked again.
        - Raises StoreBusy if nothing was done, or if sending the same anew does no harm.
        - Raises StoreFailed if the outcome is unknown: the same commands, with the same ids, settle it.
        """
        ...


@runtime_checkable
class Probing(Protocol):
    """A store whose webhooks are tried where their deliveries are sent from."""

    def probe(self, webhook_id: str) -> str:
        """Have a webhook sent a delivery that only shows whether it arrives; give its id when that has ended.

        - Raises WebhookNotFound.
        """
        ...


@runtime_checkable
class Explaining(Protocol):
    """A store whose reasons are told elsewhere: by who knows its state, its workers, and what may be said of them."""

    def job_reason(self, job_id: JobId) -> Reason:
        """Give the one reason why a job is where it is, now.

        - Raises JobNotFound.
        """
        ...

    def instance_reason(self, instance_id: str) -> Reason:
        """Give the one reason why an instance is where it is, now.

        - Raises WorkflowNotFound.
        """
        ...


@runtime_checkable
class Joinable(Protocol):
    """A store whose users can have it write inside a transaction of their own."""

    def join(self, connection: object) -> AbstractContextManager[Batch]:
        """Open a batch on the caller's connection to the same database.

        - Left normally: everything added is part of the caller's transaction, durable and visible with its commit.
        - Left by an exception: nothing was added; what the caller did before stays.
        - Raises InvalidValue or InvalidOperation for what is no open transaction of this database.
        """
        ...

    def blobs_within(self, connection: object) -> Blobs:
        """Give the blobs as they are inside such a transaction: what is put is part of it. Only while joined."""
        ...


@runtime_checkable
class Journalling(Protocol):
    """A store that writes what happens into a log of its own before anything else."""

    def journal_stats(self) -> JournalStats:
        """Give the log's figures at this moment."""
        ...


@runtime_checkable
class OnDisk(Protocol):
    """A store that lies somewhere on a disk."""

    @property
    def path(self) -> str:
        """Where."""
        ...


@runtime_checkable
class Announcing(Protocol):
    """A store of one process, which can tell others where that process is to be asked instead."""

    def announce(self, url: str) -> None:
        """From now on whoever finds the store taken learns of this URL."""
        ...
