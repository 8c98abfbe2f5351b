"""Slots: how many handlers run at once, who waits for a slot, and what has ended.

All threads of a worker meet here: runners hand in outcomes, the pump collects them and sleeps until there are some.
The first outcome of an assignment counts; a slot is free only when its handler has really ended. Whoever frees a slot
starts the next assignment, so that no handler waits for the pump's commit.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from holdfast.model.ids import Token
from holdfast.stores.sidecar.protocol import Marks, NoMarks
from holdfast.workers.handlers.leased_job import Assignment
from holdfast.workers.handlers.outcome import Outcome, Raised
from holdfast.workers.runners import Desk, Runner
from holdfast.workers.task_registry import Isolation

log = logging.getLogger("holdfast.worker")

Ended = tuple[Assignment, Outcome]


class Slots(Desk):
    """The desk of a worker's runners."""

    def __init__(
        self,
        size: int,
        monotonic: Callable[[], float],
        runners: Callable[[Desk], Mapping[Isolation, Runner]],
        marks: Marks | None = None,
        worker_id: str = "",
    ) -> None:
        """Run handlers in `size` slots. Assignments that wait for a slot are marked as not begun."""
        self.size = size
        self._marks = marks or NoMarks()
        self._worker_id = worker_id
        self._marks.join(worker_id)
        #: Outcomes nobody waits for: late ones, and those of lost leases.
        self.discarded = 0
        self._monotonic = monotonic
        # Entered again by a thread that has it, if an object dies there whose end prints: lines poke.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: deque[Assignment] = deque()
        self._busy = 0
        #: Assignments without an outcome, waiting or running.
        self._open: dict[Token, Assignment] = {}
        self._ended: list[Ended] = []
        self._poked = False
        self._runners = runners(self)

    # --- for the pump -------------------------------------------------------------------------------------------------

    def add(self, assignments: Iterable[Assignment], not_begun: Sequence[Token] = ()) -> None:
        """Run these as soon as there are slots, in this order.

        `not_begun` are the tokens that were granted with them and end without a run. They are marked like those that
        wait: if the process dies before their report is sent, they are not charged.
        """
        added = list(assignments)
        with self._lock:
            for assignment in added:
                self._open[assignment.grant.token] = assignment
                self._waiting.append(assignment)
            starting = self._take_slots(self._monotonic())
            if added or not_begun:
                # Before any of them starts, and before another thread can: it might end this process.
                waiting = [*not_begun, *(one.grant.token for one in added if one.started_at is None)]
                granted = [*not_begun, *(one.grant.token for one in added)]
                self._marks.receive(self._worker_id, max(granted), waiting)
        self._start(starting)

    def held(self) -> list[Assignment]:
        """List the assignments without an outcome."""
        with self._lock:
            return list(self._open.values())

    def is_quiet(self) -> bool:
        """Tell whether there is no assignment without an outcome, and no outcome to collect."""
        with self._lock:
            return not self._open and not self._ended

    def room(self, ahead: int = 0) -> int:
        """Tell how many assignments could be added, with up to `ahead` of them waiting."""
        with self._lock:
            return max(0, self.size + ahead - self._busy - len(self._waiting))

    def waiting_since(self) -> float | None:
        """Tell when the assignment was granted that has waited for a slot longest."""
        with self._lock:
            return self._waiting[0].granted_at if self._waiting else None

    def withdraw(self) -> list[Assignment]:
        """Take back all that wait for a slot; their handlers have not begun."""
        with self._lock:
            waiting = list(self._waiting)
            self._waiting.clear()
            for assignment in waiting:
                self._open.pop(assignment.grant.token, None)
            return waiting

    def forget(self, assignment: Assignment) -> bool:
        """Discard whatever the assignment will end in; tell whether it had not ended yet."""
        with self._lock:
            if assignment in self._waiting:
                self._waiting.remove(assignment)
            return self._open.pop(assignment.grant.token, None) is not None

    def stop(self, assignment: Assignment) -> None:
        """Let its runner end the handler; `assignment.stop` says why."""
        if assignment.started_at is not None:
            self._runners[assignment.spec.isolation].stop(assignment)

    def unmark(self, assignment: Assignment) -> None:
        """Remove the mark of an assignment that never began, once its lease is over."""
        self._marks.clear(assignment.grant.token)

    def collect(self) -> list[Ended]:
        """Take what has ended since the last call."""
        with self._lock:
            ended, self._ended = self._ended, []
            return ended

    def wait(self, timeout: float | None) -> None:
        """Sleep until something has ended, someone pokes, or `timeout` seconds have passed."""
        with self._lock:
            self._changed.wait_for(lambda: self._poked or self._ended, timeout)
            self._poked = False

    def poke(self) -> None:
        """Wake whoever sleeps in `wait`."""
        with self._lock:
            self._poked = True
            self._changed.notify_all()

    def close(self) -> None:
        """End the runners."""
        for runner in self._runners.values():
            runner.close()

    # --- for the runners ----------------------------------------------------------------------------------------------

    def settle(self, assignment: Assignment, outcome: Outcome) -> None:
        """Take the outcome; the first one counts. The slot stays taken."""
        with self._lock:
            self._take(assignment, outcome)

    def end(self, assignment: Assignment, outcome: Outcome) -> None:
        """Take the outcome, unless there is one, and the slot."""
        self._start(self._end(assignment, outcome))

    def end_for_next(self, assignment: Assignment, outcome: Outcome) -> Assignment | None:
        """Take the outcome and the slot, and give what the same runner is to run next, if anything waits."""
        starting = self._end(assignment, outcome)
        if not starting:
            return None
        isolation = assignment.spec.isolation
        mine = next((each for each in starting if each.spec.isolation == isolation), None)
        if mine is not None:
            self._marks.clear(mine.grant.token)
        self._start(each for each in starting if each is not mine)
        return mine

    def _end(self, assignment: Assignment, outcome: Outcome) -> list[Assignment]:
        """Free a slot; give what is to be started."""
        with self._lock:
            assignment.ended_at = self._monotonic()
            self._take(assignment, outcome)
            self._busy -= 1
            return self._take_slots(assignment.ended_at)

    def _take(self, assignment: Assignment, outcome: Outcome) -> None:
        if self._open.pop(assignment.grant.token, None) is None:
            self.discarded += 1
            grant = assignment.grant
            log.info("run.discarded", extra={"job": grant.job.job_id, "run": grant.run_id, "token": grant.token})
            self._poked = True  # its slot may be free now
        else:
            self._ended.append((assignment, outcome))
        self._changed.notify_all()

    def _take_slots(self, now: float) -> list[Assignment]:
        starting: list[Assignment] = []
        while self._waiting and self._busy < self.size:
            assignment = self._waiting.popleft()
            assignment.started_at = now
            self._busy += 1
            starting.append(assignment)
        return starting

    def _start(self, starting: Iterable[Assignment]) -> None:
        pending = deque(starting)
        while pending:
            assignment = pending.popleft()
            self._marks.clear(assignment.grant.token)
            try:
                self._runners[assignment.spec.isolation].start(assignment)
            except (OSError, RuntimeError) as problem:
                # No thread or descriptor is left; there may be when it is tried again.
                pending.extend(self._end(assignment, Raised(f"the handler could not be started: {problem}", "exit")))
