"""Who has shown itself to a coordinator, in the order it was heard of them: no more than so many.

Whoever may work may name itself as it likes, and as often; the roster must not grow with it. One more, and the one
that has been silent for longest is forgotten. Soft, as the roster is: whoever was forgotten is back with its next note.
"""

from __future__ import annotations

import threading
from itertools import islice

from holdfast.model.workers import WorkerInfo
from holdfast.stores.beside.protocol import Roster


class Muster:
    """Workers of one roster. For any thread; blocks."""

    def __init__(self, roster: Roster, most: int) -> None:
        """Keep at most so many, those included who are there already."""
        self._roster = roster
        self._most = most
        self._lock = threading.Lock()
        known = sorted(roster.all(), key=lambda worker: worker.last_seen)
        #: The longest silent is first.
        self._heard = dict.fromkeys(worker.worker_id for worker in known)

    def note(self, worker: WorkerInfo) -> None:
        """Hear of a worker."""
        self._roster.note(worker)
        with self._lock:
            self._heard.pop(worker.worker_id, None)
            self._heard[worker.worker_id] = None
            silent = list(islice(self._heard, max(0, len(self._heard) - self._most)))
            for one in silent:
                del self._heard[one]
        for one in silent:
            self._roster.drop(one)

    def stir(self, worker_id: str) -> None:
        """Hear that a worker lives, if it is known."""
        with self._lock:
            if worker_id in self._heard:
                del self._heard[worker_id]
                self._heard[worker_id] = None

    def drop(self, worker_id: str) -> None:
        """Hear that a worker has gone."""
        with self._lock:
            self._heard.pop(worker_id, None)
        self._roster.drop(worker_id)
