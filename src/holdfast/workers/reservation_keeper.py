"""A reservation as its holder has it: taken, renewed by a thread at a third of its ttl, given back.

Whoever holds one and dies blocks nobody for longer than the ttl: the thread dies, too. A renewal that is refused means
that the hold is over; the holder can see it, and the store does not care what it believes.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime

from holdfast.engine.engine import Engine
from holdfast.errors import HoldfastError, ReservationConflict, StoreBusy, StoreClosed, StoreFull
from holdfast.failpoints import reach
from holdfast.model.commands import ReleaseReservation, RenewReservation, Reserve
from holdfast.model.outcomes import Refusal, Reserved
from holdfast.model.times import moment

log = logging.getLogger("holdfast.reservation")

#: Seconds between two tries on a store that is busy or full.
RETRY_S = 1.0


class Hold:
    """One reservation of one queue, in this process. Thread-safe."""

    def __init__(self, engine: Engine, namespace: str, queue: str, *, by: str, ttl_s: float) -> None:
        """Prepare to hold a queue; nothing is asked for before `take`."""
        #: What it is asked from.
        self.engine = engine
        self._namespace = namespace
        self._ttl_s = ttl_s
        #: The queue it is of, and who holds it, in words for people.
        self.queue = queue
        self.by = by
        #: Names it to everybody.
        self.reservation_id = engine.new_id()
        #: How often it was renewed.
        self.renewed = 0
        self._changed = threading.Condition()
        #: Held while it is asked for, so that nobody gives it back before it is there.
        self._asking = threading.Lock()
        self._is_asked = False
        #: As the store last said; None before it was taken.
        self._standing: Reserved | None = None
        #: Monotonic times: when it is renewed next, and when it is over unless it is.
        self._renew_at = self._lost_at = 0.0
        self._is_over = False

    def __repr__(self) -> str:
        """Show the queue and the id."""
        return f"<Reservation {self.reservation_id} of {self.queue}>"

    @property
    def expires_at(self) -> datetime | None:
        """When it ends unless it is renewed. UTC, by the store's clock; None before it was taken."""
        with self._changed:
            return None if self._standing is None else moment(self._standing.expires_at)

    @property
    def is_held(self) -> bool:
        """Whether the queue is held, as far as this process knows."""
        with self._changed:
            live = self._standing is not None and not self._is_over
            return live and self.engine.look().monotonic < self._lost_at

    # --- taking and giving back ---------------------------------------------------------------------------------------

    def take(self) -> Refusal | None:
        """Ask for the queue once; give the refusal if somebody else has it. Raises any other."""
        sent_at = self.engine.look().monotonic
        with self._asking:
            self._is_asked = True
            outcome = self.engine.submit(
                Reserve(
                    reservation_id=self.reservation_id,
                    queue=self.queue,
                    namespace=self._namespace,
                    reserved_by=self.by,
                    ttl_s=self._ttl_s,
                    session_id=self.engine.session_id,
                )
            )
            if isinstance(outcome, Refusal):
                self._is_asked = False
                if outcome.code == ReservationConflict.code:
                    return outcome
                raise outcome.error()
            assert isinstance(outcome, Reserved)
            with self._changed:
                self._note(outcome, sent_at)
        threading.Thread(target=self._keep, name="holdfast-reservation", daemon=True).start()
        reach("reservation.taken")
        return None

    def renew(self) -> None:
        """Hold it for its ttl from now on. Raises InvalidOperation if it is over."""
        sent_at = self.engine.look().monotonic
        outcome = self.engine.submit(RenewReservation(reservation_id=self.reservation_id, ttl_s=self._ttl_s))
        with self._changed:
            if self._is_over:
                return
            if isinstance(outcome, Refusal):
                self._end()
                raise outcome.error()
            assert isinstance(outcome, Reserved)
            self.renewed += 1
            self._note(outcome, sent_at)

    def release(self) -> None:
        """Give the queue back. Where the store cannot take that, the ttl does it."""
        with self._asking, self._changed:
            if not self._is_asked or self._is_over:
                return
            self._end()
        try:
            self.engine.ask(ReleaseReservation(reservation_id=self.reservation_id))
        except HoldfastError as problem:
            facts = {"reservation": self.reservation_id, "queue": self.queue, "problem": problem.message}
            log.warning("reservation.unreleased", extra=facts)

    def _note(self, standing: Reserved, sent_at: float) -> None:
        self._standing = standing
        self._lost_at = sent_at + standing.left_s
        self._renew_at = sent_at + self._ttl_s / 3
        self._changed.notify_all()

    def _end(self) -> None:
        self._is_over = True
        self._changed.notify_all()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Renew it in time, until it is over."""
        while self._is_due():
            try:
                self.renew()
                reach("reservation.renewed")
            except (StoreBusy, StoreFull) as problem:
                log.warning("store.refused", extra={"problem": problem.message})
                with self._changed:
                    self._renew_at = self.engine.look().monotonic + RETRY_S
            except StoreClosed:
                return
            except HoldfastError as problem:
                facts = {"reservation": self.reservation_id, "queue": self.queue, "problem": problem.message}
                log.warning("reservation.lost", extra=facts)
                with self._changed:
                    self._end()

    def _is_due(self) -> bool:
        """Wait until it must be renewed; False if it is over before."""
        with self._changed:
            while not self._is_over:
                left_s = self._renew_at - self.engine.look().monotonic
                if left_s <= 0:
                    return True
                self._changed.wait(left_s)
            return False
