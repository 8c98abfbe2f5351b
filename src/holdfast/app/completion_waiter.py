"""Waiting for the end of jobs, groups and instances: one look for all who wait, and one thread for all who await.

What is waited for is a look: it tells something when there is something to tell. Whoever blocks (`until`) waits on the
store itself. Whoever awaits (`awaited`) gets a future from the lookout: its thread sleeps until the store has something
new, looks after all that is awaited in one view, and ends when nobody has awaited for a while. A thousand awaited jobs
cost one thread, not a thousand.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from holdfast.clock import SystemClock
from holdfast.engine.engine import Engine
from holdfast.engine.reasons import reason_of
from holdfast.errors import Forbidden, HoldfastError, InvalidValue, JobNotFound
from holdfast.model.ids import JobId
from holdfast.model.jobs import Job
from holdfast.rules.explain import Reason
from holdfast.rules.jobs.retry import last_of
from holdfast.stores.deadline import keeping_to
from holdfast.stores.protocol import View

if TYPE_CHECKING:
    from holdfast.app.application import Holdfast
    from holdfast.app.store_connection import OpensStore

#: Seconds the thread stays after the last who awaited has gone.
LINGER_S = 1.0
#: What a look gives while there is nothing to tell yet.
PENDING: Literal["pending"] = "pending"

T = TypeVar("T")
#: Tells what it sees, or that there is nothing to tell yet.
Look = Callable[[View], T | Literal["pending"]]


def job_look(job_id: JobId) -> Look[Job | None]:
    """Give the look for the end of a job: the ended job that stands for it, or None if there is no such."""

    def look(view: View) -> Job | Literal["pending"] | None:
        job = last_of(view, job_id)
        return job if job is None or job.has_ended else PENDING

    return look


def limit_of(timeout: float | None) -> float | None:
    """Give the seconds that somebody waits, None without limit. Raises InvalidValue for what is no time."""
    if timeout is None:
        return None
    if type(timeout) not in (int, float) or timeout != timeout:  # noqa: PLR0124 - what is not a number differs from itself
        message = f"timeout: {timeout!r:.80} is not a number of seconds. Nothing was waited for."
        raise InvalidValue(message, hint="None waits without limit.", field="timeout")
    return None if timeout > threading.TIMEOUT_MAX else timeout  # which no clock could count


@contextmanager
def within(app: OpensStore, timeout: float | None) -> Iterator[float | None]:
    """Give when a wait of so many seconds ends (monotonic); a coordinator asked inside has no longer than that."""
    limit = limit_of(timeout)
    if limit is None:
        yield None
        return
    ends_at = app.clock.monotonic() + limit
    with keeping_to(ends_at):
        yield ends_at


def until(engine: Engine, look: Look[T], ends_at: float | None) -> T | None:
    """Wait for what a look tells, blocking; None if it has told nothing by then (monotonic).

    The store waits in the machine's seconds, whatever clock the engine has: a clock that a test holds still does not
    make it wait for ever.
    """
    machine = SystemClock()
    gives_up_at = None if ends_at is None else machine.monotonic() + ends_at - engine.look().monotonic
    while True:
        with engine.read() as view:
            seq, found = view.seq, look(view)
        if found != PENDING:
            return found
        left: float | None = None
        if ends_at is not None and gives_up_at is not None:
            left = min(ends_at - engine.look().monotonic, gives_up_at - machine.monotonic())
            if left <= 0:
                return None
        engine.store.wait(seq, left)


async def awaited(app: Holdfast, look: Look[T], ends_at: float | None) -> T | None:
    """Wait for what a look tells, without a thread of one's own; None if it has told nothing by then (monotonic)."""
    who = Awaited(look)
    lookout = await asyncio.to_thread(app.lookout)  # it may have to open the store
    try:
        await asyncio.to_thread(lookout.add, who)
        return await who.end(None if ends_at is None else ends_at - app.clock.monotonic())
    except TimeoutError:
        return None
    finally:
        # In this order: who comes to be added only now is not, and who was added is forgotten.
        who.leave()
        lookout.drop(who)


def ended_or_late(engine: Engine, job_id: JobId, timeout: float | None) -> Job:
    """Give the ended job that stands for this one. Raises TimeoutError with what it waits for, or JobNotFound."""
    with engine.read() as view:
        job = last_of(view, job_id)
    if job is None:
        raise JobNotFound(f"there is no job {job_id}.", job_id=job_id)
    if job.has_ended:
        return job
    why = sentence_of(lambda: reason_of(engine, job))
    raise TimeoutError(f"job {job.job_id} is {job.status} after {timeout:g} s{why}. It goes on.")


def sentence_of(explain: Callable[[], Reason]) -> str:
    """Give what something waits for, to be said behind how long; nothing to who may not see all that it takes."""
    try:
        return f": {explain().sentence}"
    except Forbidden:
        return ""


class Awaited(Generic[T]):
    """Someone who awaits what a look at the store tells some day."""

    __slots__ = ("_future", "_loop", "has_left", "look")

    def __init__(self, look: Look[T]) -> None:
        """Await in the running loop."""
        self.look = look
        #: It is awaited no more.
        self.has_left = False
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[T] = self._loop.create_future()

    def tell(self, found: T) -> None:
        """Give what was found. From any thread."""
        self._soon(self._future.set_result, found)

    def fail(self, error: BaseException) -> None:
        """Say what went wrong. From any thread."""
        self._soon(self._future.set_exception, error)

    def _soon(self, settle: Callable[[Any], None], value: object) -> None:
        def once() -> None:
            if not self._future.done():
                settle(value)

        with suppress(RuntimeError):  # the loop was closed: nobody awaits any more
            self._loop.call_soon_threadsafe(once)

    def leave(self) -> None:
        """Await it no more: a look that is under way may still fail, and nobody would fetch that."""
        self.has_left = True
        self._future.cancel()

    async def end(self, timeout: float | None) -> T:  # noqa: ASYNC109 - seconds of the caller, who gets TimeoutError
        """Wait to be told. Raises TimeoutError."""
        return await asyncio.wait_for(self._future, timeout)


class Lookout:
    """Looks after all that is awaited, in one thread."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._lock = threading.Lock()
        self._awaited: set[Awaited[Any]] = set()
        self._thread: threading.Thread | None = None

    def add(self, who: Awaited[Any]) -> None:
        """Tell `who` when there is something to tell; look once at once."""
        with self._lock:
            if who.has_left:
                return
            self._awaited.add(who)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="holdfast-lookout", daemon=True)
                self._thread.start()
        # After joining: what ends before this look is seen by it, what ends later wakes the thread.
        with self.engine.read() as view:
            self._look(view, [who])

    def drop(self, who: Awaited[Any]) -> None:
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
                who.fail(error)

    def _look(self, view: View, found: list[Awaited[Any]]) -> None:
        for who in found:
            try:
                seen = who.look(view)
            except HoldfastError as error:  # it concerns this one alone
                self.drop(who)
                who.fail(error)
                continue
            if seen is not PENDING:
                self.drop(who)
                who.tell(seen)
