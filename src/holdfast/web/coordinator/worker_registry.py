"""Who has shown itself to a coordinator, in the order it was heard of them: no more than so many.

Whoever may work may name itself as it likes, and as often; the roster must not grow with it. One more, and the one
that has been silent for longest is forgotten. Soft, as the roster is: whoever was forgotten is back with its next note.

A worker of few words, such as a script with curl, says nothing of itself; it is known by what it asks for. Else people
would be told that nobody serves a queue whose jobs it runs, and could not ask it to stop.
"""

from __future__ import annotations

import threading
from itertools import islice

import msgspec

from holdfast.model.commands import Lease
from holdfast.model.times import Timestamp, later
from holdfast.model.workers import WorkerInfo, WorkerState
from holdfast.stores.http.wire import encode
from holdfast.stores.sidecar.protocol import Roster
from holdfast.stores.sidecar.worker_liveness import LOST_S

#: Seconds for which a worker of few words is not written down again, however often it is heard of.
FRESH_S = 20.0


class Muster:
    """Workers of one roster. For any thread; blocks."""

    def __init__(self, roster: Roster, most: int, note: int) -> None:
        """Keep at most so many, those included who are there already, of each at most so many bytes that it implied."""
        self._roster = roster
        self._most = most
        self._note = note
        self._lock = threading.Lock()
        known = sorted(roster.all(), key=lambda worker: worker.last_seen)
        #: The longest silent is first.
        self._heard = dict.fromkeys(worker.worker_id for worker in known)
        #: Those of them who have not said anything of themselves, as they were written down.
        self._terse = {worker.worker_id: worker for worker in known if not worker.version}
        #: Those whom an earlier opening heard of, as they were: shown as lost until this one hears of them.
        self._unheard = {
            worker.worker_id: worker
            for worker in known
            if worker.session_id is None and worker.state is not WorkerState.LOST
        }
        for worker in self._unheard.values():
            roster.note(msgspec.structs.replace(worker, state=WorkerState.LOST))

    def note(self, worker: WorkerInfo) -> None:
        """Hear of a worker, in its own words."""
        self._write(worker)

    def meet(self, lease: Lease, now: Timestamp) -> WorkerInfo | None:
        """Give what is to be written down (`know`) of who asks for work; None if nothing is. Does not block."""
        with self._lock:
            unheard = self._unheard.get(lease.worker_id)
            if unheard is not None and unheard.namespace == lease.namespace:
                return msgspec.structs.replace(unheard, last_seen=now)
            known = self._terse.get(lease.worker_id)
            if known is None and lease.worker_id in self._heard:
                return None  # it speaks for itself
        if known is not None and known.namespace != lease.namespace:
            if not _is_silent(known, now, LOST_S):
                return None  # another one of that name
            known = None
        if known is not None and not _is_silent(known, now, FRESH_S):
            return None
        worker = WorkerInfo(
            worker_id=lease.worker_id,
            name=lease.worker_id,
            host="",
            pid=0,
            version="",
            namespace=lease.namespace,
            queues=lease.queues,
            job_types=lease.job_types,
            slots=lease.n,
            started_at=now if known is None else known.started_at,
            last_seen=now,
        )
        return worker if len(encode(worker)) <= self._note else None

    def is_terse(self, worker_id: str) -> bool:
        """Tell whether a worker is known that has not said anything of itself."""
        with self._lock:
            return worker_id in self._terse

    def know(self, worker: WorkerInfo) -> None:
        """Hear of a worker that says nothing of itself now."""
        with self._lock:
            before = self._terse.get(worker.worker_id)
        if before is not None and before.namespace != worker.namespace:
            self._roster.drop(worker.worker_id)  # with what was wished of that one
        self._write(worker, is_terse=not worker.version)

    def _write(self, worker: WorkerInfo, *, is_terse: bool = False) -> None:
        self._roster.note(worker)
        with self._lock:
            self._unheard.pop(worker.worker_id, None)
            self._terse.pop(worker.worker_id, None)
            if is_terse:
                self._terse[worker.worker_id] = worker
            self._heard.pop(worker.worker_id, None)
            self._heard[worker.worker_id] = None
            silent = list(islice(self._heard, max(0, len(self._heard) - self._most)))
            for one in silent:
                del self._heard[one]
                self._terse.pop(one, None)
                self._unheard.pop(one, None)
        for one in silent:
            self._roster.drop(one)

    def stir(self, worker_id: str, now: Timestamp) -> None:
        """Hear that a worker lives, if it is known."""
        with self._lock:
            if worker_id in self._heard:
                del self._heard[worker_id]
                self._heard[worker_id] = None
            unheard, terse = self._unheard.get(worker_id), self._terse.get(worker_id)
        if unheard is not None:
            self.know(msgspec.structs.replace(unheard, last_seen=now))
        elif terse is not None and _is_silent(terse, now, FRESH_S):
            self.know(msgspec.structs.replace(terse, last_seen=now))

    def drop(self, worker_id: str) -> None:
        """Hear that a worker has gone."""
        with self._lock:
            self._heard.pop(worker_id, None)
            self._terse.pop(worker_id, None)
            self._unheard.pop(worker_id, None)
        self._roster.drop(worker_id)


def _is_silent(worker: WorkerInfo, now: Timestamp, seconds: float) -> bool:
    return worker.last_seen < later(now, -seconds)
