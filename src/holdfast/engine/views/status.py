"""A store on one page, as programs read it: whether work is dispatched, how much there is, and what it survives."""

from __future__ import annotations

from collections import Counter

import msgspec

from holdfast.engine.maintenance import Report
from holdfast.engine.views.backlog import oldest_due, open_decisions, running_instances
from holdfast.engine.views.queues import QueueRow, queue_rows
from holdfast.model.jobs import JobStatus
from holdfast.model.records import AUTHORITY, Authority
from holdfast.model.reservations import Reservation
from holdfast.model.times import Timestamp
from holdfast.model.workers import WorkerState
from holdfast.stores.protocol import Durability, Served, Store, View
from holdfast.stores.wal import WalStore


class Replay(msgspec.Struct, frozen=True):
    """What opening the store took."""

    seconds: float
    records: int
    #: Of a torn tail; they are kept beside the log.
    cut_bytes: int


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a store and its authority stand."""

    #: The authority's time, by which all is decided.
    now: Timestamp
    #: Number of the last event.
    seq: int
    #: Whether anything is leased at all, and why not.
    dispatching: bool
    dispatch_reason: str | None
    durability: Durability
    #: Jobs by status; each status is there. `running` is one of them.
    counts: dict[str, int]
    running: int
    reservations: list[Reservation]
    #: By state; each state is there.
    workers: dict[str, int]
    #: Instances that run, and questions of theirs that wait for an answer, as far as anybody counts.
    running_instances: int
    open_decisions: int
    #: Since when the job that waits longest could have run; None if none could.
    oldest_due: Timestamp | None
    queues: list[QueueRow]
    #: What was mended, ended and taken back when the authority began; None if that was not here.
    last_recovery: Report | None
    #: Of a store that is read from a log.
    replay: Replay | None
    #: Steps of the wall clock since then, by direction.
    clock_steps: dict[str, int]


def store_status(
    view: View, store: Store, now: Timestamp, recovered: Report | None, steps: dict[str, int]
) -> StoreStatus:
    """Look once."""
    authority = view.get(Authority, AUTHORITY) or Authority()
    rows = queue_rows(view, now)
    counts = {status.value: sum(row.counts[status.value] for row in rows) for status in JobStatus}
    going = running_instances(view)
    states = Counter(worker.state.value for worker in store.workers.all())
    return StoreStatus(
        now=now,
        seq=view.seq,
        dispatching=not authority.dispatch_paused,
        dispatch_reason=authority.dispatch_reason,
        durability=store.promises.durability,
        counts=counts,
        running=counts[JobStatus.RUNNING.value],
        reservations=[row.reservation for row in rows if row.reservation is not None],
        workers={state.value: states[state.value] for state in WorkerState},
        running_instances=len(going),
        open_decisions=open_decisions(view, going),
        oldest_due=oldest_due(view, rows, now),
        queues=rows,
        last_recovery=recovered,
        replay=replay_of(store),
        clock_steps=dict(steps),
    )


class Standing(msgspec.Struct, frozen=True):
    """What of a status only the authority itself can tell; all of it None where that is somebody else, or nobody."""

    last_recovery: Report | None = None
    replay: Replay | None = None
    clock_steps: dict[str, int] | None = None


def standing_of(store: Store) -> Standing:
    """Ask the authority over a store; of one that is opened here, say what opening it took. Raises Forbidden."""
    if isinstance(store, Served):
        return msgspec.json.decode(store.status(), type=Standing)
    return Standing(replay=replay_of(store))


def replay_of(store: Store) -> Replay | None:
    """Give what opening a store took that is read from a log; None for another."""
    if not isinstance(store, WalStore):
        return None
    stats, cut = store.journal.stats(), store.journal.found.cut
    return Replay(stats.replay_seconds, stats.replay_records, 0 if cut is None else cut.size)


def recovery_told(report: Report | None, replay: Replay | None) -> str:
    """Say what opening and recovering a store took, as far as it took anything."""
    read = (
        ""
        if replay is None or not replay.records
        else f"{replay.records:,} record{'s' * (replay.records != 1)} in {replay.seconds:.2f} s"
    )
    ended = 0 if report is None else report.expired + report.ended_sessions
    parts = (
        read,
        f"{ended:,} {'lease or reservation' if ended == 1 else 'leases and reservations'} ended" if ended else "",
        f"{replay.cut_bytes:,} bytes cut" if replay is not None and replay.cut_bytes else "",
    )
    return ", ".join(filter(None, parts))
