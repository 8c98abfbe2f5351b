"""What goes on in a store right now, gathered in one look: for `status` and `top`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.cli.render.output import Record
from holdfast.cli.render.worker_rows import progresses
from holdfast.cli.store_access.rates import Pulse, Rates, Recovery
from holdfast.cli.store_access.target import Target, now
from holdfast.cli.store_access.visibility import seen, workers_seen
from holdfast.engine.views.backlog import oldest_due, open_decisions, running_instances
from holdfast.engine.views.queues import QueueRow, queue_rows
from holdfast.engine.views.workers import Held, Staff, running, staff
from holdfast.model.jobs import JobStatus
from holdfast.model.records import AUTHORITY, Authority
from holdfast.model.times import Timestamp
from holdfast.model.workers import Progress, WorkerState
from holdfast.stores.protocol import Adopted, Adopting, Durability, HandMade, Store, View


class Scene(NamedTuple):
    """One look at a store."""

    at: Timestamp
    seq: int
    store: str
    durability: Durability
    #: None: not for whoever asks, as are the rates and the workers then.
    authority: Authority | None
    rates: Rates | None
    recovery: Recovery | None
    queues: Sequence[QueueRow]
    #: Since when the job that waits longest could have run; None if none could.
    oldest_due: Timestamp | None
    running: Sequence[Held]
    #: Job id → what its run last said.
    progress: dict[str, Progress]
    staff: Sequence[Staff] | None
    #: Files of a store that people may write to, which could not be used.
    set_aside: int = 0
    #: What another program had left here when this became a store.
    adopted: Adopted | None = None
    #: Instances that run, as far as anybody counts.
    #: None: workflows are not for whoever asks.
    instances: int | None = 0
    #: Questions of these that wait for an answer.
    questions: int = 0

    def count(self, status: JobStatus) -> int:
        """Count the jobs of a status."""
        return sum(row.counts[status.value] for row in self.queues)

    def workers(self) -> dict[str, int] | None:
        """Count the workers by state."""
        if self.staff is None:
            return None
        states = [one.worker.state for one in self.staff]
        return {state.value: states.count(state) for state in WorkerState}

    def left_out(self) -> list[str]:
        """Name what whoever asks may not see."""
        of_the_store = ["whether work is dispatched", "workers", "what happened lately"]
        return [*of_the_store * (self.staff is None), *["workflows"] * (self.instances is None)]


def gather(view: View, store: Store, place: Target, pulse: Pulse) -> Scene:
    """Look once; `pulse` remembers how far the feed was counted."""
    at, space = now(), place.namespace
    rows = queue_rows(view, at, space)
    held = [one for one in running(view) if space in (None, one.job.namespace)]
    workers = workers_seen(store)
    known = [worker for worker in workers or () if space in (None, worker.namespace)]
    said = progresses(known)
    going = seen(lambda: running_instances(view))
    # Whether work is dispatched, and the feed, belong to no namespace, as workers do.
    if workers is not None:
        pulse.follow(store, view.seq)
    return Scene(
        at=at,
        seq=view.seq,
        store=place.url,
        durability=store.promises.durability,
        authority=None if workers is None else view.get(Authority, AUTHORITY) or Authority(),
        rates=None if workers is None else pulse.rates(at),
        recovery=pulse.recovery,
        queues=rows,
        oldest_due=oldest_due(view, rows, at),
        running=held,
        progress={one.job.job_id: said[one.run_id] for one in held if one.run_id in said},
        staff=None if workers is None else staff(held, known),
        set_aside=store.set_aside() if isinstance(store, HandMade) else 0,
        adopted=store.adopted if isinstance(store, Adopting) else None,
        instances=None if going is None else len(going),
        questions=open_decisions(view, going or ()),
    )


def scene_record(scene: Scene) -> Record:
    """Give a look as programs read it."""
    return {
        "store": scene.store,
        "now": scene.at,
        "seq": scene.seq,
        "dispatching": None if scene.authority is None else not scene.authority.dispatch_paused,
        "dispatch_reason": None if scene.authority is None else scene.authority.dispatch_reason,
        "durability": scene.durability,
        "running": scene.count(JobStatus.RUNNING),
        "running_instances": scene.instances,
        "open_decisions": None if scene.instances is None else scene.questions,
        "counts": {status.value: scene.count(status) for status in JobStatus},
        "oldest_due": scene.oldest_due,
        "reservations": [row.reservation for row in scene.queues if row.reservation is not None],
        "workers": scene.workers(),
        "set_aside": scene.set_aside,
        "adopted": scene.adopted,
        "taken_back": scene.recovery,
        "queues": [msgspec.structs.asdict(row) for row in scene.queues],
    }
