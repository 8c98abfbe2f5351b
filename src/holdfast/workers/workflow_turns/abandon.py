"""Stints that end before their time: given back, refused by the store, lost to another, dropped.

What was not committed is thrown away, steps are stopped, the code is let go. Knows no reason of its own: whoever parts
with a stint says why. Called without the ledger's lock.
"""

from __future__ import annotations

import logging

from holdfast.workers.workflow_turns.pending_commands import Ledger
from holdfast.workers.workflow_turns.thread_pool import Crew
from holdfast.workers.workflow_turns.turn_state import BROKEN_S, Stint
from holdfast.workflows.api.error_conversion import tell
from holdfast.workflows.runtime.execution_cache import Residents

log = logging.getLogger("holdfast.worker")


class Parting:
    """How one worker parts with its stints."""

    def __init__(self, ledger: Ledger, crew: Crew, residents: Residents) -> None:
        self._ledger = ledger
        self._crew = crew
        self._residents = residents
        #: Stints that turned out to be another's.
        self.lost = 0

    def give_back(self, stint: Stint, reason: str | None, *, counted: bool, delay_s: float | None = None) -> None:
        """Give an instance back, for others to run."""
        with self._ledger.lock:
            if stint.token not in self._ledger.stints:
                return
            self._ledger.send_back(stint, reason, counted=counted, delay_s=delay_s)
        self.drop(stint)

    def cannot_keep(self, stint: Stint, problem: str) -> None:
        """Give back what wants something that cannot be kept. It counts: so it ends, and its end says why."""
        log.error("turn.refused", extra={"instance": stint.instance, "problem": problem})
        self.give_back(stint, problem, counted=True, delay_s=BROKEN_S)

    def lose(self, stint: Stint, problem: str) -> None:
        """Take it from the authority that the turn is another's: throw it away."""
        self.lost += 1
        log.warning("turn.lost", extra={"instance": stint.instance, "problem": problem})
        with self._ledger.lock:
            self._ledger.end(stint)
        self.drop(stint)

    def drop(self, stint: Stint) -> None:
        """Stop its steps, and let its code go, in the thread that is inside, or in another: it may be kept there."""
        resident = self._residents.take(stint.instance)
        with self._ledger.lock:
            stint.is_gone = stint.is_dropped = True
            steps = list(stint.steps.values())
            stint.steps.clear()
            if not stint.is_taken:
                self._crew.put(lambda: let_go(stint))
        for step in steps:
            step.stop()
        if resident is not None and (stint.turn is None or resident is not stint.turn.execution):
            self._crew.put(resident.close)


def let_go(stint: Stint) -> None:
    """Close the code of a turn."""
    try:
        if stint.execution is not None:
            stint.execution.close(clean_up=False)
    except Exception as problem:  # noqa: BLE001 - the user's code, which is let go whatever it does
        tell(log, "turn.not_closed", problem, {"instance": stint.instance})
