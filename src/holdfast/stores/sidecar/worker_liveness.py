"""What of the roster is shown: who is lost, and for how long that is told. Knows no store."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.model.times import Timestamp, later
from holdfast.model.workers import WorkerInfo, WorkerState
from holdfast.stores.sidecar.protocol import Sessions

#: A worker at work, or one that no session vouches for, is lost if it was not heard of for so many seconds: several of
#: the notes it leaves. An idle one leaves none; whether its process lives is known from its session.
LOST_S = 180.0
#: So long a lost worker is shown, in seconds.
SHOWN_S = 86_400.0


def forgotten_before(now: Timestamp) -> Timestamp:
    """Give the moment such that a worker last seen before it is not even shown as lost."""
    return later(now, -SHOWN_S)


def shown(workers: Iterable[WorkerInfo], sessions: Sessions, now: Timestamp) -> list[WorkerInfo]:
    """Give the workers of the last day by id, `lost` where they are gone."""
    kept = [worker for worker in workers if worker.last_seen >= forgotten_before(now)]
    # Seen far in the future: the clock was set back since then, and it has not been heard of by the new time.
    silent, ahead = later(now, -LOST_S), later(now, LOST_S)
    gone = sessions.gone({worker.session_id for worker in kept if worker.session_id is not None})

    def is_lost(worker: WorkerInfo) -> bool:
        speaks = worker.session_id is None or bool(worker.runs)
        return worker.session_id in gone or (speaks and not silent <= worker.last_seen <= ahead)

    return [
        msgspec.structs.replace(worker, state=WorkerState.LOST) if is_lost(worker) else worker
        for worker in sorted(kept, key=lambda worker: worker.worker_id)
    ]
