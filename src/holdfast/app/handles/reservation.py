"""`hf.reserve`: hold a queue for a while, for maintenance or work of one's own. And who holds what in this process."""

from __future__ import annotations

import atexit
import os
import socket
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from holdfast.app.queue_wait import Patience, Vigil, Wait, Waiters
from holdfast.errors import InvalidOperation, InvalidValue, ReservationConflict
from holdfast.model.commands import Reserve
from holdfast.model.outcomes import Refusal
from holdfast.model.type_check import misfit
from holdfast.rules.validation import problem_with
from holdfast.workers.handlers.context import current
from holdfast.workers.reservation_keeper import Hold

if TYPE_CHECKING:
    from holdfast.app.aio.queues import AioReservation
    from holdfast.app.store_connection import OpensStore

T = TypeVar("T")

#: Seconds that a reservation holds unless it is renewed.
TTL_S = 60.0
#: The reservations that the present code is inside of.
_inside: ContextVar[tuple[Reservation, ...]] = ContextVar("holdfast.reservations", default=())


class Reservation(Hold):
    """A queue that is held inside a `with` block: nothing of it is dispatched, what runs goes on."""

    def __init__(self, app: OpensStore, queue: str, patience: Patience, *, by: str, ttl_s: float) -> None:
        """Prepare to hold a queue of an application; use `Holdfast.reserve`."""
        super().__init__(app.engine, app.namespace, queue, by=by, ttl_s=ttl_s)
        self._app = app
        self._patience = patience
        #: Whether a handler took it, which may be left behind when its worker ends.
        self.in_handler = current.get(None) is not None

    # --- the block ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Wait for the queue and hold it. Raises ReservationConflict or ReservationTimeout if it is not to be had."""
        try:
            self.acquire()
            self.go_inside()
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Give the queue back."""
        self.go_outside()
        self.release()

    def go_inside(self) -> None:
        """Let direct executions of the present code use it."""
        _inside.set((*_inside.get(), self))

    def go_outside(self) -> None:
        """Take that back."""
        _inside.set(tuple(other for other in _inside.get() if other is not self))

    # --- waiting ------------------------------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Wait for the queue, behind those of this process who came before, and take it."""
        if self._patience.is_given_up:
            message = f"reservation {self.reservation_id} of queue {self.queue} was used before. Nothing was reserved."
            raise InvalidOperation(message, hint="Call hf.reserve again.", reservation_id=self.reservation_id)
        mine = inside(self._app, self.queue)
        if mine is not None:
            raise ReservationConflict(
                f"queue {self.queue} is reserved by this very code, as {mine.reservation_id}. Nothing was reserved.",
                hint="Use the reservation that is there; waiting for it would never end.",
                reservation_id=mine.reservation_id,
                queue=self.queue,
            )
        self.demand_not_in_the_way(idle=False)
        held = self._app.held
        self._patience.begin(self.engine)
        vigil = self._vigil(self._patience)
        with held.waiters(self.queue).turn(self._patience) as first:
            if not first:
                raise vigil.late()
            while True:
                seq = vigil.begin()
                held.add(self)
                problem = vigil.reserved() or self.take()
                if problem is None:
                    break
                vigil.rest(seq, problem)
        if self._patience.is_given_up:
            self.release()

    def wait_idle(self, wait: Wait = None) -> None:
        """Wait until no job of the queue runs any more. Raises ReservationConflict (0) or ReservationTimeout."""
        patience = Patience(wait)
        patience.begin(self.engine)
        self.when_idle(patience, lambda: self)

    def when_idle(self, patience: Patience, attempt: Callable[[], T | Refusal]) -> T:
        """Wait until no job of the queue runs, then attempt something; again, as long as that is refused for one."""
        self.demand_not_in_the_way(idle=True)
        vigil = self._vigil(patience)
        while True:
            seq = vigil.begin()
            problem = vigil.running()
            if problem is None:
                outcome = attempt()
                if not isinstance(outcome, Refusal):
                    return outcome
                if outcome.code != ReservationConflict.code:
                    raise outcome.error()
                problem = outcome
            vigil.rest(seq, problem)

    def demand_not_in_the_way(self, *, idle: bool) -> None:
        """Refuse a handler that would wait for its own end: for an idle queue, or for its own reservation."""
        running = current.get(None)
        if running is None or not (idle or running.job.direct):
            return
        with self.engine.read() as view:
            own = running.job_id in view.running(self._namespace, self.queue)
        if own:
            raise InvalidOperation(
                f"job {running.job_id} is running on queue {self.queue} and would wait for its own end. "
                "Nothing was started.",
                hint="Call the function itself, or use another queue.",
                job_id=running.job_id,
            )

    def is_of(self, app: OpensStore) -> bool:
        """Tell whether it is one of that application, in this process: a forked child holds nothing."""
        return self._app is app and self.engine is app.engine

    def _vigil(self, patience: Patience) -> Vigil:
        return Vigil(self.engine, self._namespace, self.queue, patience)

    def release(self) -> None:
        """Give the queue back. Where the store cannot take that, the ttl does it."""
        self._patience.give_up()
        super().release()
        self._app.held.discard(self)

    @property
    def aio(self) -> AioReservation:
        """The same, for `async with`."""
        from holdfast.app.aio.queues import AioReservation  # noqa: PLC0415 - only programs that await pay for it

        return AioReservation(self)


class Held:
    """What an application holds in this process, and who of it waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[Reservation] = set()
        self._waiters: dict[str, Waiters] = {}
        _everywhere.add(self)

    def waiters(self, queue: str) -> Waiters:
        """Give those who wait for a queue."""
        with self._lock:
            return self._waiters.setdefault(queue, Waiters())

    def add(self, reservation: Reservation) -> None:
        """Note one that was taken."""
        with self._lock:
            self._held.add(reservation)

    def discard(self, reservation: Reservation) -> None:
        """Forget one that was given back."""
        with self._lock:
            self._held.discard(reservation)

    def release(self, *, of_handlers: bool = False) -> None:
        """Give all of them back, or those alone that handlers took."""
        with self._lock:
            found = [one for one in self._held if one.in_handler or not of_handlers]
        for reservation in found:
            reservation.release()


def reserve(app: OpensStore, queue: str, wait: Wait, by: str | None, ttl: float | timedelta) -> Reservation:
    """Prepare to hold a queue. Raises InvalidValue for what is no queue, no time or no name."""
    seconds: Any = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    who = f"pid {os.getpid()} on {socket.gethostname()}" if by is None else by
    sample = Reserve(reservation_id="sample", queue=queue, reserved_by=who, ttl_s=seconds, namespace=app.namespace)
    field = misfit(sample)
    if field is not None:
        raise InvalidValue(f"{field}: is not of the type this field takes. Nothing was reserved.", field=field)
    refusal = problem_with(sample)
    if refusal is not None:
        raise refusal.error()
    return Reservation(app, queue, Patience(wait), by=who, ttl_s=seconds)


def inside(app: OpensStore, queue: str) -> Reservation | None:
    """Give the reservation of that queue which the present code is inside of, or None."""
    found = (one for one in _inside.get() if one.queue == queue and one.is_of(app))
    return next(found, None)


#: Of every application in this process.
_everywhere: weakref.WeakSet[Held] = weakref.WeakSet()


@atexit.register
def _release_all() -> None:
    """Let no queue wait for the ttl of a program that ends in order."""
    for held in list(_everywhere):
        held.release()
