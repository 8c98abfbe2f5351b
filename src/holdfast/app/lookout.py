"""Waiting for the end of jobs: one look for all who wait, and one thread for all who await.

Whoever blocks waits on the store itself. Whoever awaits gets a future from the lookout: its thread sleeps until the
store has something new, looks after all awaited jobs in one view, and ends when nobody has awaited for a while. A
thousand awaited jobs cost one thread, not a thousand.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from holdfast.engine.engine import Engine
from holdfast.engine.reasons import reason_of
from holdfast.errors import JobNotFound
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job
from holdfast.rules.retry import last_of
from holdfast.stores.protocol import View

#: Seconds the thread stays after the last who awaited has gone.
LINGER_S = 1.0


def ended_or_late(engine: Engine, job_id: JobId, timeout: float | None) -> Job:
    """Give the ended job that stands for this one. Raises TimeoutError with what it waits for, or JobNotFound."""
    with engine.read() as view:
        job = last_of(view, job_id)
    if job is None:
        raise JobNotFound(f"there is no job {job_id}.", job_id=job_id)
    if job.has_ended:
        return job
    reason = reason_of(engine, job)
    raise TimeoutError(f"job {job.job_id} is {job.status} after {timeout:g} s: {reason.sentence}. It goes on.")


class Awaited:
    """Someone who awaits the end of one job."""

    __slots__ = ("_future", "_loop", "job_id")

    def __init__(self, job_id: JobId) -> None:
        """Await in the running loop."""
        self.job_id = job_id
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Job | None] = self._loop.create_future()

    def tell(self, job: Job | None, error: BaseException | None = None) -> None:
        """Give the ended job, None if there is no such job, or what went wrong. From any thread."""
        with suppress(RuntimeError):  # the loop was closed: nobody awaits any more
            self._loop.call_soon_threadsafe(self._settle, job, error)

    def _settle(self, job: Job | None, error: BaseException | None) -> None:
        if self._future.done():
            return
        if error is None:
            self._future.set_result(job)
        else:
            self._future.set_exception(error)

    async def end(self, timeout: float | None) -> Job | None:  # noqa: ASYNC109 - seconds of the caller, who gets TimeoutError
        """Wait to be told. Raises TimeoutError."""
        return await asyncio.wait_for(self._future, timeout)


class Lookout:
    """Looks after awaited jobs, in one thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._lock = threading.Lock()
        self._awaited: set[Awaited] = set()
        self._thread: threading.Thread | None = None

    def add(self, who: Awaited) -> None:
        """Tell `who` when its job has ended; look once at once."""
        with self._lock:
            self._awaited.add(who)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="holdfast-lookout", daemon=True)
                self._thread.start()
        # After joining: what ends before this look is seen by it, what ends later wakes the thread.
        with self.engine.read() as view:
            self._look(view, [who])

    def drop(self, who: Awaited) -> None:
        """Forget someone who no longer awaits."""
        with self._lock:
            self._awaited.discard(who)

    def _watch(self) -> None:
        try:
            while True:
                with self.engine.read() as view:
                    seen = view.seq
                    with self._lock:
                        found = list(self._awaited)
                    self._look(view, found)
                if self.engine.store.wait(seen, LINGER_S):
                    continue
                with self._lock:
                    if not self._awaited:
                        self._thread = None
                        return
        except BaseException as error:  # noqa: BLE001 - whoever awaits must hear of it, whatever it is
            with self._lock:
                found, self._thread = list(self._awaited), None
                self._awaited.clear()
            for who in found:
                who.tell(None, error)

    def _look(self, view: View, found: list[Awaited]) -> None:
        for who in found:
            job = last_of(view, who.job_id)
            if job is None or job.has_ended:
                self.drop(who)
                who.tell(job)
